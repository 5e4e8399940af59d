//! Standard output as an output: at least once. What was printed cannot be fenced nor taken back, and whether a line
//! was read before a crash nobody knows.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::contract::{
    Delivery, Opened, Publish, PublishPermit, RecoverReport, Restored, SinkContext, WriteJoined, WriteResults,
};
use super::error::SinkError;
use super::joined::{JoinSink, JoinSinkSpec};
use super::outbox::Outbox;
use super::results::{Format, ResultSink, ResultSpec};
use super::row::{CsvRows, JoinedRows, JsonRows, Rows, Shape};
use super::staged::StagedFile;
use super::writer::{PartWriter, Place};
use crate::checkpoint::StagedOutput;
use crate::error::Result;

/// Rows that are printed once their checkpoint is durable. Their directories keep them until then.
#[derive(Debug)]
pub(in crate::pipeline) struct ConsoleSpec<S>(pub(in crate::pipeline) S);

impl ConsoleSpec<ResultSpec> {
    /// Prints what the restored checkpoint had staged and may not have printed, and opens for more.
    pub(in crate::pipeline) fn open(
        self,
        context: SinkContext,
        restored: Restored<'_>,
    ) -> Result<Opened<Box<dyn WriteResults>>> {
        let ResultSpec { name, directory, format, keys, aggregates, times, metadata, row_kinds, .. } = self.0;
        let shape = Shape { sink: name.clone(), keys, aggregates, times, metadata, row_kinds };
        let (rows, header) = match format {
            Format::Csv => {
                let rows = CsvRows::new(shape);
                let header = rows.header();
                (Rows::Csv(rows), Some(header))
            }
            _ => (Rows::Json(JsonRows::new(shape)), None),
        };
        let opened = open(place(name, directory, format), context, header, restored, Paper::standard())?;
        Ok(opened.map(|writer| Box::new(ResultSink::of_text(rows, writer)) as Box<dyn WriteResults>))
    }
}

impl ConsoleSpec<JoinSinkSpec> {
    /// As for results.
    pub(in crate::pipeline) fn open(
        self,
        context: SinkContext,
        restored: Restored<'_>,
    ) -> Result<Opened<Box<dyn WriteJoined>>> {
        let JoinSinkSpec { name, directory, format, keys, left, right, times, .. } = self.0;
        let (left_fields, aggregates) = (left.len(), [left, right].concat());
        let shape = Shape { sink: name.clone(), keys, aggregates, times, metadata: false, row_kinds: false };
        let rows = JoinedRows::new(shape, left_fields, format == Format::Csv);
        let header = rows.header();
        let opened = open(place(name, directory, format), context, header, restored, Paper::standard())?;
        Ok(opened.map(|writer| Box::new(JoinSink::of_text(rows, writer)) as Box<dyn WriteJoined>))
    }
}

fn place(sink: String, directory: PathBuf, format: Format) -> Place {
    let extension = if format == Format::Csv { "csv" } else { "jsonl" };
    Place { sink, directory, extension, look: String::new(), preamble: Vec::new() }
}

/// What is printed on: standard output, or in tests what stands for it.
#[derive(Clone)]
struct Paper(Arc<Mutex<dyn Write + Send>>);

impl Paper {
    fn standard() -> Self {
        Self(Arc::new(Mutex::new(io::stdout())))
    }

    fn print(&self, bytes: &[u8]) -> Result<(), SinkError> {
        let mut paper = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let printed = paper.write_all(bytes).and_then(|()| paper.flush());
        printed.map_err(SinkError::io("print results", "standard output"))
    }
}

impl std::fmt::Debug for Paper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Paper")
    }
}

fn open(
    place: Place,
    context: SinkContext,
    header: Option<Vec<u8>>,
    restored: Restored<'_>,
    paper: Paper,
) -> Result<Opened<PartWriter>, SinkError> {
    let due = StagedFile::due(restored, &place.sink)?;
    let outbox = Outbox::open(&place)?;
    let mut report = RecoverReport::default();
    let printer = Printer { sink: place.sink.clone(), outbox, paper };
    if let Some(header) = header {
        printer.paper.print(&header)?;
    }
    for staged in due.iter().filter(|staged| printer.outbox.holds(staged)) {
        printer.settle(staged)?;
        report.published.push(staged.final_name.clone());
    }
    printer.outbox.sweep(context, &mut report)?;
    let sink = PartWriter::new(place, context, restored.last_epoch);
    Ok(Opened { sink, publisher: Box::new(printer), report })
}

#[derive(Debug)]
struct Printer {
    sink: String,
    outbox: Outbox,
    paper: Paper,
}

impl Printer {
    /// Cut before the removal: it is printed again.
    fn settle(&self, staged: &StagedFile) -> Result<(), SinkError> {
        // Once for the sum, since nothing that was printed can be taken back.
        self.outbox.read(staged, |_| Ok::<_, SinkError>(()))?;
        self.outbox.read(staged, |bytes| self.paper.print(bytes))?;
        self.outbox.remove(staged)
    }
}

impl Publish for Printer {
    fn sink(&self) -> &str {
        &self.sink
    }

    fn publish(&mut self, staged: &StagedOutput, permit: &dyn PublishPermit) -> Result<Delivery> {
        let staged = StagedFile::of(staged, &self.sink)?;
        staged.check_permit(permit)?;
        self.outbox.fault("sink.publish.before")?;
        if self.outbox.holds(&staged) {
            self.settle(&staged)?;
        }
        self.outbox.fault("sink.publish.after")?;
        Ok(Delivery::Done)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::Sink;
    use super::super::tests::{Durable, numbers, run, spec};
    use super::*;

    #[test]
    fn rows_are_printed_at_publish_and_again_only_when_nobody_knows() {
        let root = TempDir::new().unwrap();
        let printed = Arc::new(Mutex::new(Vec::new()));
        let open = |generation, restored: Restored<'_>| {
            let ResultSpec { name, directory, format, keys, aggregates, times, .. } =
                spec(root.path(), Format::Csv);
            let place = place(name.clone(), directory, format);
            let shape = Shape { sink: name, keys, aggregates, times, metadata: false, row_kinds: false };
            let rows = CsvRows::new(shape);
            let header = Some(rows.header());
            let paper = Paper(Arc::clone(&printed) as _);
            let opened = super::open(place, run(generation), header, restored, paper).unwrap();
            opened.map(|writer| ResultSink::of_text(Rows::Csv(rows), writer))
        };
        let text = || String::from_utf8(printed.lock().unwrap().clone()).unwrap();
        let header = "key,window_start,window_end,n\n";
        let Opened { mut sink, mut publisher, .. } = open(1, Restored::NOTHING);
        sink.write(&mut numbers(0..1)).unwrap();
        let first = sink.stage(1).unwrap().unwrap();
        assert_eq!(text(), header);
        publisher.publish(&first, &Durable(1)).unwrap();
        publisher.publish(&first, &Durable(1)).unwrap();
        assert_eq!(text(), format!("{header}k,0,60000,0\n"));
        sink.write(&mut numbers(1..2)).unwrap();
        let second = sink.stage(2).unwrap().unwrap();
        drop((sink, publisher));
        let staged = [second];
        let report = open(2, Restored { staged: &staged, last_epoch: 2, ..Restored::NOTHING }).report;
        assert_eq!(report.published.len(), 1);
        assert_eq!(text(), format!("{header}k,0,60000,0\n{header}k,0,60000,1\n"));
    }
}
