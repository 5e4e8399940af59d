//! Tables keep the laws of outputs, on a real server, through the public contract.

use std::cell::Cell;
use std::ops::Range;

use floodmark::aggregate::Value;
use floodmark::error::{Error, ErrorKind, Result};
use floodmark::event_time::{EventTime, Watermark, Window};
use floodmark::operator::{PaneKind, ResultBlock, ResultRow};
use floodmark::pipeline::sink::laws::{Trial, check};
use floodmark::pipeline::sink::{
    ColumnType, KeyField, KeyKind, Output, PublishPermit, Restored, Secret, Sink, SinkContext, TableRows,
    TableSink, TableSpec, TableWrite, WriteResults,
};
use tempfile::TempDir;

use super::server::Server;

/// Rows whose key is a number.
struct Numbers(Range<u32>, Vec<u8>, [Value; 1]);

impl ResultBlock for Numbers {
    fn window(&self) -> Window {
        Window { start: EventTime::from_millis(0), end: EventTime::from_millis(60_000) }
    }

    fn watermark(&self) -> Watermark {
        Watermark::At(EventTime::from_millis(60_000))
    }

    fn next_row(&mut self) -> Option<ResultRow<'_>> {
        let number = self.0.next()?;
        self.1 = number.to_string().into_bytes();
        self.2 = [Value::Int(number.into())];
        Some(ResultRow { key: &self.1, pane_index: 0, kind: PaneKind::OnTime, values: &self.2 })
    }
}

/// A table that no trial has used.
struct Table<'s> {
    server: &'s Server,
    outbox: TempDir,
    name: String,
    write: TableWrite,
}

impl Trial for Table<'_> {
    type Output = TableSpec;

    fn output(&self) -> TableSpec {
        TableSpec {
            name: "numbers".to_owned(),
            outbox: self.outbox.path().to_owned(),
            url: Secret::new(self.server.url()),
            table: self.name.clone(),
            write: self.write,
            keys: vec![KeyField { name: "k".to_owned(), kind: KeyKind::Int }],
            rows: TableRows::Results {
                aggregates: vec!["n".to_owned()],
                metadata: false,
                row_kinds: false,
                unbounded: false,
                primary_key: vec!["k".to_owned(), "window_start".to_owned()],
            },
            types: vec![ColumnType::Int],
        }
    }

    fn write(&self, sink: &mut TableSink, numbers: Range<u32>) -> Result<()> {
        WriteResults::write(sink, &mut Numbers(numbers, Vec::new(), [Value::Null]))
    }

    fn visible(&self) -> Result<Vec<u32>> {
        let unreadable =
            |error| Error::new(ErrorKind::Unavailable, "cannot read the table").with_source(error);
        let rows = self.server.client().query(&format!("SELECT n FROM {} ORDER BY n", self.name), &[]);
        let rows = rows.map_err(unreadable)?;
        Ok(rows.iter().map(|row| u32::try_from(row.get::<_, i64>(0)).unwrap()).collect())
    }
}

struct Durable(u64);

impl PublishPermit for Durable {
    fn epoch(&self) -> u64 {
        self.0
    }
}

#[test]
fn of_two_runs_of_one_generation_the_last_has_the_table() {
    let Some(server) = Server::start() else { return };
    let table = || Table {
        server: &server,
        outbox: tempfile::tempdir().unwrap(),
        name: "numbers".to_owned(),
        write: TableWrite::Append,
    };
    // Two copies of one state directory: the same lineage, and the same generation next.
    let (first, copy) = (table(), table());
    let context = SinkContext { lineage: [3; 16], generation: 5 };
    let mut older = first.output().open(context, Restored::NOTHING).unwrap();
    let mut newer = copy.output().open(context, Restored::NOTHING).unwrap();
    first.write(&mut older.sink, 90..92).unwrap();
    let staged = older.sink.stage(1).unwrap().unwrap();
    let refused = older.publisher.publish(&staged, &Durable(1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked, "{refused}");
    copy.write(&mut newer.sink, 0..2).unwrap();
    let staged = newer.sink.stage(1).unwrap().unwrap();
    newer.publisher.publish(&staged, &Durable(1)).unwrap();
    assert_eq!(copy.visible().unwrap(), [0, 1]);
}

#[test]
fn tables_keep_the_laws_appended_and_upserted() {
    let Some(server) = Server::start() else { return };
    let number = Cell::new(0);
    for write in [TableWrite::Append, TableWrite::Upsert] {
        let kept = check(|| {
            number.set(number.get() + 1);
            let outbox = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
            Table { server: &server, outbox, name: format!("trial_{}", number.get()), write }
        });
        assert_eq!(kept, Ok(()), "{write:?}");
    }
    println!("{} tables", number.get());
}
