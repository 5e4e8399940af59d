//! The stream that every contender takes: the one that `floodmark generate` and `floodmark bench` make of a shape, in
//! memory, as Arrow record batches.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use clap::ValueEnum;
use floodmark::pipeline::generate::{Event, Generator, Spec, TextFormat, append_event};

use crate::Outcome;

/// Seed of the stream, that of `floodmark bench`.
const SEED: u64 = 1;
/// Rows of a batch.
const ROWS: usize = 8_192;
/// Length of the windows, in milliseconds.
pub(crate) const WINDOW_MS: i64 = 60_000;
/// How long events may be on their way, in milliseconds. No event of the shapes is late with it.
pub(crate) const DELAY_MS: i64 = 5_000;

/// The workload: tumbling windows of one minute with count, sum, min and max.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// 10,000 keys: about fifty events a pane.
    S1,
    /// 1,000,000 keys: most panes see one event.
    S4,
}

impl Shape {
    /// Its name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::S1 => "s1",
            Self::S4 => "s4",
        }
    }

    fn spec(self, events: u64) -> Spec {
        match self {
            Self::S1 => Spec::s1(events),
            Self::S4 => Spec::s4(events),
        }
    }
}

/// One stream.
pub(crate) struct Stream {
    /// Its shape.
    pub(crate) shape: Shape,
    /// Events in it.
    pub(crate) events: u64,
    /// All of them, in order of arrival: `ts`, `key` and `value`.
    pub(crate) batches: Vec<RecordBatch>,
}

impl Stream {
    /// Draws the events of a shape.
    pub(crate) fn new(shape: Shape, events: u64) -> Outcome<Self> {
        let mut generator = Generator::new(shape.spec(events), SEED)?;
        let digits = generator.key_digits();
        let mut batches = Vec::new();
        loop {
            let drawn: Vec<Event> = generator.by_ref().take(ROWS).collect();
            if drawn.is_empty() {
                return Ok(Self { shape, events, batches });
            }
            batches.push(batch(&drawn, digits)?);
        }
    }

    /// The same events as a file of JSON lines in `dir`.
    pub(crate) fn write_text(&self, dir: &Path) -> Outcome<PathBuf> {
        let path = dir.join(format!("{}.jsonl", self.shape.name()));
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        let generator = Generator::new(self.shape.spec(self.events), SEED)?;
        let digits = generator.key_digits();
        let mut line = Vec::new();
        for event in generator {
            line.clear();
            append_event(&mut line, &event, TextFormat::Jsonl, digits);
            file.write_all(&line)?;
        }
        file.flush()?;
        Ok(path)
    }
}

fn batch(events: &[Event], digits: usize) -> Outcome<RecordBatch> {
    let times: Vec<i64> = events.iter().map(|event| event.time.as_millis()).collect();
    let keys: Vec<String> = events.iter().map(|event| format!("k{:0digits$}", event.key)).collect();
    let values: Option<Vec<i64>> = events.iter().map(|event| event.value).collect();
    let values = values.ok_or("the shapes have no nulls")?;
    Ok(RecordBatch::try_from_iter([
        ("ts", Arc::new(TimestampMillisecondArray::from(times)) as _),
        ("key", Arc::new(StringArray::from(keys)) as _),
        ("value", Arc::new(Int64Array::from(values)) as _),
    ])?)
}

/// The columns of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// Event times, in milliseconds since 1970.
    pub(crate) times: &'a [i64],
    /// Keys.
    pub(crate) keys: &'a StringArray,
    /// Values.
    pub(crate) values: &'a [i64],
}

impl<'a> Rows<'a> {
    /// Those of a batch of a [`Stream`].
    pub(crate) fn of(batch: &'a RecordBatch) -> Self {
        Self {
            times: batch.column(0).as_primitive::<TimestampMillisecondType>().values(),
            keys: batch.column(1).as_string::<i32>(),
            values: batch.column(2).as_primitive::<Int64Type>().values(),
        }
    }

    /// Row by row: start of the window, key, value.
    pub(crate) fn iter(self) -> impl Iterator<Item = (i64, &'a str, i64)> {
        let window = |time: i64| time.div_euclid(WINDOW_MS) * WINDOW_MS;
        let rows = self.times.iter().zip(self.values).enumerate();
        rows.map(move |(row, (&time, &value))| (window(time), self.keys.value(row), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_batches_are_the_same_events() {
        let stream = Stream::new(Shape::S1, 10_000).expect("a stream");
        let folder = tempfile::tempdir().expect("a directory");
        let text = std::fs::read_to_string(stream.write_text(folder.path()).expect("written")).expect("text");
        let mut lines = text.lines();
        for batch in &stream.batches {
            let rows = Rows::of(batch);
            for row in 0..batch.num_rows() {
                let (time, key, value) = (rows.times[row], rows.keys.value(row), rows.values[row]);
                let line = format!(r#"{{"ts":{time},"key":"{key}","value":{value}}}"#);
                assert_eq!(lines.next(), Some(line.as_str()));
            }
        }
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn no_event_is_late() {
        let stream = Stream::new(Shape::S4, 100_000).expect("a stream");
        let (mut newest, mut longest) = (i64::MIN, 0);
        for time in stream.batches.iter().flat_map(|batch| Rows::of(batch).times) {
            newest = newest.max(*time);
            longest = longest.max(newest - time);
        }
        assert!(longest > 4_000 && longest <= DELAY_MS, "{longest}");
    }
}
