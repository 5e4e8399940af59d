//! Published rows read back: JSON lines with their fields in order, every value as the text that was written.
//!
//! Knows the form of rows (docs/OUTPUT.md) and nothing of what is in them.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Window};
use crate::pipeline::sink::part_epoch;

/// Columns after the aggregates that say of a row how it came about.
const METADATA: [&str; 4] = ["pane", "pane_index", "watermark", "row_kind"];

/// A value as JSON text, with every digit that was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JsonText(pub(super) String);

impl JsonText {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JsonText {
    /// As in the file; text without its quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match serde_json::from_str::<String>(&self.0) {
            Ok(text) => f.write_str(&text),
            Err(_) => f.write_str(&self.0),
        }
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.0.clone()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// The fields of one JSON object in their order.
pub(super) struct Fields(pub(super) Vec<(String, JsonText)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    fields.push((name, JsonText(value.get().to_owned())));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Ordered)
    }
}

/// Key and window of a row, in the order of results.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) end: EventTime,
    pub(super) start: EventTime,
    pub(super) key: Vec<JsonText>,
}

/// A row of results.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) fields: Vec<(String, JsonText)>,
    keys: usize,
    pub(super) window: Window,
}

impl Row {
    /// Reads a line, or says what is wrong with it.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let Fields(fields) =
            serde_json::from_slice(line).map_err(|error| format!("no JSON object: {error}"))?;
        let start = fields.iter().position(|(name, _)| name == "window_start");
        let keys = start.ok_or("no window_start: not a result")?;
        let end = fields.get(keys + 1).filter(|(name, _)| name == "window_end");
        let end = end.ok_or("window_end does not follow window_start: not a result")?;
        let window = window(&fields[keys].1, &end.1)?;
        Ok(Self { fields, keys, window })
    }

    pub(super) fn identity(&self) -> Identity {
        let key = self.key().map(|(_, value)| value.clone()).collect();
        Identity { end: self.window.end, start: self.window.start, key }
    }

    /// True when the row takes an earlier one back.
    pub(super) fn takes_back(&self) -> bool {
        self.get("row_kind").is_some_and(|kind| matches!(kind.as_str(), "\"-U\"" | "\"-D\""))
    }

    /// The components of the key.
    pub(super) fn key(&self) -> impl Iterator<Item = (&str, &JsonText)> {
        self.fields.iter().take(self.keys).map(|(name, value)| (name.as_str(), value))
    }

    /// The aggregates.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &JsonText)> {
        let after = self.fields.iter().skip(self.keys + 2);
        let values = after.filter(|(name, _)| !METADATA.contains(&name.as_str()));
        values.map(|(name, value)| (name.as_str(), value))
    }

    /// The value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&JsonText> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Replaces the value of a field that is there.
    pub(super) fn set(&mut self, name: &str, text: &str) {
        if let Some((_, value)) = self.fields.iter_mut().find(|(known, _)| known == name) {
            text.clone_into(&mut value.0);
        }
    }

    /// The row as the line that it was read from, but for what was replaced.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = Vec::new();
        for (index, (name, value)) in self.fields.iter().enumerate() {
            line.push(if index == 0 { b'{' } else { b',' });
            crate::pipeline::sink::append_json_text(&mut line, name);
            line.push(b':');
            line.extend_from_slice(value.0.as_bytes());
        }
        line.extend_from_slice(b"}\n");
        line
    }
}

/// The window of two bounds; null bounds are those of all time.
pub(super) fn window(start: &JsonText, end: &JsonText) -> Result<Window, String> {
    if start.as_str() == "null" && end.as_str() == "null" {
        return Ok(Window::ALL);
    }
    let time = |text: &JsonText| {
        time(text).ok_or_else(|| format!("neither RFC 3339 nor milliseconds: {}", text.as_str()))
    };
    Ok(Window { start: time(start)?, end: time(end)? })
}

/// A bound of a window as reports say it; none for that of all time.
pub(super) fn bound(time: EventTime) -> Option<String> {
    (time != Window::ALL.start && time != Window::ALL.end).then(|| time.to_string())
}

/// A time in either of the forms that outputs have.
pub(super) fn time(text: &JsonText) -> Option<EventTime> {
    if let Ok(millis) = text.0.parse() {
        return Some(EventTime::from_millis(millis));
    }
    let text: String = serde_json::from_str(&text.0).ok()?;
    if let Some(millis) = text.strip_suffix("ms") {
        return millis.parse().ok().map(EventTime::from_millis);
    }
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(EventTime::from_millis(time.as_millisecond()))
}

/// One file of an output.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) epoch: u64,
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// The parts of an output of JSON lines, in order.
pub(super) fn parts(directory: &Path) -> Result<Vec<Part>> {
    let unreadable = |error: std::io::Error| {
        let message = format!("cannot list the output: path={}", directory.display());
        Error::new(ErrorKind::Unavailable, message)
            .with_remedy("name the directory of an output, the one that holds part-* files")
            .with_source(error)
    };
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let Some(epoch) = part_epoch(&name) else { continue };
        if !name.ends_with(".jsonl") {
            let message = format!("this output is not in JSON lines: path={}", entry.path().display());
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("have the pipeline write `format = \"jsonl\"`: other formats do not keep null, text and numbers apart"));
        }
        parts.push(Part { epoch, name, path: entry.path() });
    }
    parts.sort_by_key(|part| part.epoch);
    Ok(parts)
}

impl Part {
    /// Hands each line, with its line break, to `each`, with its 1-based number.
    pub(super) fn lines(&self, mut each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let unreadable = |error: std::io::Error| {
            let message = format!("cannot read: path={}", self.path.display());
            Error::new(ErrorKind::Unavailable, message)
                .with_remedy("check that the part is still there and may be read")
                .with_source(error)
        };
        let mut reader = BufReader::with_capacity(256 << 10, File::open(&self.path).map_err(unreadable)?);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
                break;
            }
            each(number, &line)?;
        }
        Ok(())
    }

    /// Hands each row to `each`.
    pub(super) fn rows(&self, mut each: impl FnMut(u64, &[u8], Row) -> Result<()>) -> Result<()> {
        self.lines(|number, line| match Row::parse(line) {
            Ok(row) => each(number, line, row),
            Err(what) => Err(self.wrong(number, &what, "name a directory of results in JSON lines")),
        })
    }

    /// The error of one line.
    pub(super) fn wrong(&self, number: u64, what: &str, remedy: &str) -> Error {
        let message = format!("{}:{number}: {what}", self.path.display());
        Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "{\"id\":\"a\\u0001b\",\"n\":7,\"window_start\":\"1970-01-01T00:00:00Z\",\"window_end\":60000,\
                        \"sum\":123456789012345678901234567890.10,\"pane\":\"on_time\"}\n";

    #[test]
    fn a_row_read_back_and_written_is_the_same_line() {
        let row = Row::parse(LINE.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(row.line()).unwrap(), LINE);
        assert_eq!(row.key().map(|(name, _)| name).collect::<Vec<_>>(), ["id", "n"]);
        assert_eq!(row.values().map(|(name, _)| name).collect::<Vec<_>>(), ["sum"]);
        assert_eq!(row.window.end, EventTime::from_millis(60_000));
    }

    #[test]
    fn times_beyond_the_calendar_are_read_as_they_are_written() {
        assert_eq!(time(&JsonText("\"-9223372036854775808ms\"".to_owned())), Some(EventTime::MIN));
        assert_eq!(time(&JsonText("\"soon\"".to_owned())), None);
    }

    #[test]
    fn a_line_that_is_no_result_says_why() {
        for (line, why) in
            [("[1]", "JSON object"), ("{\"a\":1}", "window_start"), ("{\"window_start\":1}", "window_end")]
        {
            assert!(Row::parse(line.as_bytes()).unwrap_err().contains(why), "{line}");
        }
    }
}
