//! The speed of light: one thread reads the text, takes the fields where the generator puts them, and adds them up in
//! a hash map per window. No checks, no state on disk, no output. Nothing durable can be faster than this.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Read;
use std::path::Path;

use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};

use super::report::Measured;

/// Bytes read at once; what a second-level cache holds with room to spare.
const BLOCK_BYTES: usize = 256 << 10;
/// The window of every shape.
const WINDOW_MS: i64 = 60_000;
/// The disorder of every shape.
const DELAY_MS: i64 = 5_000;

/// A key of at most eight bytes, packed.
type Key = u64;
type Panes = HashMap<Key, Pane, BuildHasherDefault<KeyHasher>>;

#[derive(Clone, Copy)]
struct Pane {
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
}

/// One multiplication and a fold: keys are packed decimal digits.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, key: u64) {
        let product = u128::from(key) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

/// Reads the file once and tells how long it took.
pub(super) fn measure(text: &Path) -> Result<Measured, Error> {
    let clock = SystemClock::shared();
    let started = clock.monotonic();
    let mut windows = Windows::default();
    read(text, &mut windows)?;
    windows.close(i64::MAX);
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    Ok(Measured { events: windows.events, results: windows.results, seconds, ..Measured::default() })
}

fn read(text: &Path, windows: &mut Windows) -> Result<(), Error> {
    let broken = |error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, format!("cannot read: path={}", text.display())).with_source(error)
    };
    let mut file = File::open(text).map_err(broken)?;
    let mut block = vec![0; BLOCK_BYTES];
    let mut held = 0;
    loop {
        let read = file.read(&mut block[held..]).map_err(broken)?;
        let filled = held + read;
        if read == 0 {
            return Ok(());
        }
        let mut at = 0;
        for end in memchr::memchr_iter(b'\n', &block[..filled]) {
            let Some((time, key, value)) = fields(&block[at..end]) else {
                return Err(Error::new(ErrorKind::Invalid, "the text was not made by floodmark generate")
                    .with_remedy("remove it: the next run generates it again"));
            };
            windows.add(time, key, value);
            at = end + 1;
        }
        block.copy_within(at..filled, 0);
        held = filled - at;
        if held == block.len() {
            return Err(Error::new(ErrorKind::Invalid, "a line of the text is longer than a block"));
        }
    }
}

/// `{"ts":1700000000000,"key":"k000123","value":42}`, and nothing else.
#[inline]
fn fields(line: &[u8]) -> Option<(i64, Key, i64)> {
    let (time, rest) = number(line.strip_prefix(b"{\"ts\":")?);
    let rest = rest.strip_prefix(b",\"key\":\"")?;
    let length = rest.iter().position(|&byte| byte == b'"').filter(|&length| length <= 8)?;
    let key = rest[..length].iter().fold(0, |key, &byte| key << 8 | u64::from(byte));
    let (value, rest) = number(rest[length..].strip_prefix(b"\",\"value\":")?);
    (rest == b"}").then_some((time, key, value))
}

/// Digits up to the first byte that is none.
#[inline]
fn number(text: &[u8]) -> (i64, &[u8]) {
    let mut value = 0_i64;
    for (at, &byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (value, &text[at..]);
        }
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
    }
    (value, &[])
}

/// The open windows. A window that closes is counted and gives its map to the next one.
#[derive(Default)]
struct Windows {
    open: BTreeMap<i64, Panes>,
    // The map of the last event's window, taken out of `open`: most events fall into it.
    recent: Option<(i64, Panes)>,
    spare: Vec<Panes>,
    newest: i64,
    events: u64,
    results: u64,
    // Keeps the work from being optimised away.
    checksum: i64,
}

impl Windows {
    #[inline]
    fn add(&mut self, time: i64, key: Key, value: i64) {
        let hit = self.recent.as_ref().is_some_and(|(start, _)| (0..WINDOW_MS).contains(&(time - start)));
        if !hit {
            self.turn_to(time.div_euclid(WINDOW_MS) * WINDOW_MS);
        }
        if let Some((_, panes)) = &mut self.recent {
            let pane = panes.entry(key).or_insert(Pane { count: 0, sum: 0, min: i64::MAX, max: i64::MIN });
            pane.count += 1;
            pane.sum += value;
            pane.min = pane.min.min(value);
            pane.max = pane.max.max(value);
        }
        self.events += 1;
        if time > self.newest {
            // The stream's first event opens a minute; every later one is looked at once a minute.
            let crossed =
                (time - DELAY_MS).div_euclid(WINDOW_MS) > (self.newest - DELAY_MS).div_euclid(WINDOW_MS);
            self.newest = time;
            if crossed {
                self.close(time - DELAY_MS);
            }
        }
    }

    #[cold]
    fn turn_to(&mut self, start: i64) {
        if let Some((old, panes)) = self.recent.take() {
            self.open.insert(old, panes);
        }
        let panes = self.open.remove(&start).or_else(|| self.spare.pop()).unwrap_or_default();
        self.recent = Some((start, panes));
    }

    /// Closes what ends at or before `watermark`.
    #[cold]
    fn close(&mut self, watermark: i64) {
        if let Some((start, panes)) = self.recent.take() {
            self.open.insert(start, panes);
        }
        while let Some(first) = self.open.first_entry()
            && *first.key() <= watermark.saturating_sub(WINDOW_MS)
        {
            let mut panes = first.remove();
            self.results += panes.len() as u64;
            for pane in panes.values() {
                let words = [pane.count as i64, pane.sum, pane.min, pane.max];
                self.checksum = words.iter().fold(self.checksum, |sum, &word| sum.wrapping_add(word));
            }
            panes.clear();
            self.spare.push(panes);
        }
        std::hint::black_box(self.checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_generated_line_are_found() {
        let key = u64::from_be_bytes(*b"\0k000123");
        assert_eq!(
            fields(br#"{"ts":1700000000000,"key":"k000123","value":42}"#),
            Some((1_700_000_000_000, key, 42))
        );
        for wrong in
            [&br#"{"ts":1,"key":"k","value":null}"#[..], br#"{"key":"k","ts":1,"value":1}"#, b"{\"ts\":1"]
        {
            assert_eq!(fields(wrong), None);
        }
    }

    #[test]
    fn a_window_closes_once_and_counts_its_keys() {
        let mut windows = Windows::default();
        for (time, key) in [(1_000, 1), (2_000, 2), (59_999, 1), (61_000, 1), (58_000, 3)] {
            windows.add(time, key, 5);
        }
        assert_eq!(windows.results, 0);
        windows.add(65_000, 1, 5);
        assert_eq!(windows.results, 3);
        windows.close(i64::MAX);
        assert_eq!((windows.events, windows.results), (6, 4));
    }
}
