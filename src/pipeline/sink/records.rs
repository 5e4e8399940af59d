//! The sinks of single records that found no window: late events, and input that was rejected. JSON lines.

use std::path::PathBuf;

use super::publisher;
use super::results::open;
use super::row::{TimeFormat, append_json_bytes, append_json_text};
use super::row::{append_json_time, append_json_watermark, append_u64};
use super::writer::{PartWriter, Place};
use super::{Opened, Restored, Sink, SinkContext};
use crate::checkpoint::StagedOutput;
use crate::error::Result;
use crate::operator::LateEvent;

/// What the original text of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordText {
    /// JSON lines: put in as the object it is, where it is valid, else as a string.
    Json,
    /// Any other text: put in as a string.
    Plain,
}

/// Where single records go.
#[derive(Clone, Debug)]
pub struct RecordSpec {
    /// Name of the output, unique in the pipeline; recorded in handles.
    pub name: String,
    /// Directory of its parts.
    pub directory: PathBuf,
    /// What the records' original text is.
    pub text: RecordText,
}

impl RecordSpec {
    fn open(self, context: SinkContext, restored: Restored<'_>) -> Result<Opened<PartWriter>> {
        Ok(open(self.place(), context, None, restored)?)
    }

    /// As [`super::Output::preflight`], for either kind of records.
    pub(in crate::pipeline) fn preflight(
        &self,
        context: SinkContext,
        restored: Restored<'_>,
    ) -> Result<Vec<String>> {
        Ok(publisher::preflight(&self.place(), context, None, restored)?)
    }

    fn place(&self) -> Place {
        Place {
            sink: self.name.clone(),
            directory: self.directory.clone(),
            extension: "jsonl",
            look: records_look(self.text),
            preamble: Vec::new(),
        }
    }
}

/// What single records look like; a start refuses parts of another look.
fn records_look(text: RecordText) -> String {
    format!("records {text:?}")
}

/// Writes events that came too late, with what is needed to judge and to replay them.
#[derive(Debug)]
pub struct LateSink {
    text: RecordText,
    times: TimeFormat,
    writer: PartWriter,
}

impl LateSink {
    /// Recovers the output's directory after a start and opens it for this run.
    ///
    /// # Errors
    /// As [`super::ResultSink::open`].
    pub fn open(spec: RecordSpec, context: SinkContext, restored: Restored<'_>) -> Result<Opened<Self>> {
        let text = spec.text;
        let opened = spec.open(context, restored)?;
        Ok(opened.map(|writer| Self { text, times: TimeFormat::Rfc3339, writer }))
    }

    /// Writes a late event of the operator and source partition of these names. `text_offset` is where the text of
    /// its batch starts in the partition, when that is known.
    ///
    /// # Errors
    /// When the disk is in the way; the sink then refuses work.
    pub fn write(
        &mut self,
        operator: &str,
        partition: &str,
        text_offset: Option<u64>,
        event: &LateEvent<'_>,
    ) -> Result<()> {
        let times = self.times;
        let span = event.batch.spans.get(event.index);
        let offset = text_offset.zip(span).map(|(start, span)| start.saturating_add(u64::from(span.start)));
        self.writer.row(|out| {
            out.extend_from_slice(b"{\"operator\":");
            append_json_text(out, operator);
            let record = event.batch.records.get(event.index).copied();
            append_origin(out, b",\"source\":", partition, record, offset);
            out.extend_from_slice(b",\"event_time\":");
            append_json_time(out, event.time(), times);
            out.extend_from_slice(b",\"window_start\":");
            append_json_time(out, event.window.start, times);
            out.extend_from_slice(b",\"window_end\":");
            append_json_time(out, event.window.end, times);
            out.extend_from_slice(b",\"watermark\":");
            append_json_watermark(out, event.watermark, times);
            out.extend_from_slice(b",\"late_by_ms\":");
            append_u64(out, event.late_by_ms.unsigned_abs());
            append_record(out, event.batch.text_of(event.index).as_deref(), self.text);
            Ok(())
        })?;
        Ok(())
    }
}

impl Sink for LateSink {
    fn name(&self) -> &str {
        self.writer.sink()
    }

    fn stage(&mut self, epoch: u64) -> Result<Option<StagedOutput>> {
        Ok(self.writer.stage_output(epoch)?)
    }
}

/// A record that could not be used, and why.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetter<'a> {
    /// Name of the source partition.
    pub source: &'a str,
    /// 1-based number of the record in its partition.
    pub record: u64,
    /// Where the record starts, in bytes of uncompressed input; `None` where records have no such place.
    pub byte_offset: Option<u64>,
    /// Stable name of the reason.
    pub reason: &'a str,
    /// The field at fault, when it is one.
    pub field: Option<&'a str>,
    /// The reason in a sentence.
    pub detail: &'a str,
    /// The record, or its beginning when it is long.
    pub text: &'a [u8],
}

/// Writes rejected records.
#[derive(Debug)]
pub struct DeadLetterSink {
    text: RecordText,
    writer: PartWriter,
}

impl DeadLetterSink {
    /// Recovers the output's directory after a start and opens it for this run.
    ///
    /// # Errors
    /// As [`super::ResultSink::open`].
    pub fn open(spec: RecordSpec, context: SinkContext, restored: Restored<'_>) -> Result<Opened<Self>> {
        let text = spec.text;
        Ok(spec.open(context, restored)?.map(|writer| Self { text, writer }))
    }

    /// Writes a rejected record.
    ///
    /// # Errors
    /// When the disk is in the way; the sink then refuses work.
    pub fn write(&mut self, letter: &DeadLetter<'_>) -> Result<()> {
        self.writer.row(|out| {
            append_origin(out, b"{\"source\":", letter.source, Some(letter.record), letter.byte_offset);
            out.extend_from_slice(b",\"reason\":");
            append_json_text(out, letter.reason);
            out.extend_from_slice(b",\"field\":");
            match letter.field {
                Some(field) => append_json_text(out, field),
                None => out.extend_from_slice(b"null"),
            }
            out.extend_from_slice(b",\"detail\":");
            append_json_text(out, letter.detail);
            append_record(out, Some(letter.text), self.text);
            Ok(())
        })?;
        Ok(())
    }
}

impl Sink for DeadLetterSink {
    fn name(&self) -> &str {
        self.writer.sink()
    }

    fn stage(&mut self, epoch: u64) -> Result<Option<StagedOutput>> {
        Ok(self.writer.stage_output(epoch)?)
    }
}

fn append_origin(out: &mut Vec<u8>, label: &[u8], source: &str, record: Option<u64>, offset: Option<u64>) {
    out.extend_from_slice(label);
    append_json_text(out, source);
    for (label, number) in [(&b",\"record_number\":"[..], record), (b",\"byte_offset\":", offset)] {
        out.extend_from_slice(label);
        match number {
            Some(number) => append_u64(out, number),
            None => out.extend_from_slice(b"null"),
        }
    }
}

/// Appends the original text as the last field and ends the line.
fn append_record(out: &mut Vec<u8>, text: Option<&[u8]>, kind: RecordText) {
    out.extend_from_slice(b",\"record\":");
    match text {
        None => out.extend_from_slice(b"null"),
        Some(text) => match json_line(text).filter(|_| kind == RecordText::Json) {
            Some(json) => out.extend_from_slice(json),
            None => append_json_bytes(out, text),
        },
    }
    out.extend_from_slice(b"}\n");
}

/// The text without outer white space, when that is JSON on one line which every reader will take.
///
/// Deep nesting, numbers out of range and halves of surrogate pairs fail here; such text goes out as a string.
fn json_line(text: &[u8]) -> Option<&[u8]> {
    let text = text.trim_ascii();
    let one_line = !text.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    (one_line && serde_json::from_slice::<serde_json::Value>(text).is_ok()).then_some(text)
}
