//! Tables of PostgreSQL: rows wait in an outbox, and become visible in one transaction with the marker of their epoch.
//!
//! A tour. `marker` is the row of `floodmark_epochs` that says whose a table is and how far it was written: the fence,
//! and the proof that an epoch is in. `schema` creates or checks the table, `statements` are the few sentences of SQL,
//! `session` is the connection. The only place that names the `postgres` crate.

mod error;
mod marker;
mod schema;
mod session;
mod statements;

use std::io::Write;

use postgres::Transaction;

use self::error::{TableError, refused};
use self::marker::Marker;
use self::session::Session;
use self::statements::Statements;
use super::columns::Column;
use super::contract::{Delivery, Publish, PublishPermit, RecoverReport, Restored, SinkContext};
use super::outbox::Outbox;
use super::staged::StagedFile;
use super::table::{Secret, TableWrite};
use super::writer::Place;
use crate::checkpoint::StagedOutput;
use crate::error::{Error, Result};

/// A table as the pipeline wants it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) url: Secret,
    pub(super) table: String,
    pub(super) write: TableWrite,
    pub(super) columns: Vec<Column>,
    pub(super) primary_key: Vec<String>,
}

/// Moves staged rows into the table.
#[derive(Debug)]
pub(super) struct TablePublisher {
    sink: String,
    preamble: Vec<u8>,
    context: SinkContext,
    run: String,
    session: Session,
    statements: Statements,
    outbox: Outbox,
}

/// Takes hold of a table after a start, and publishes what the restored checkpoint had staged for it.
pub(super) fn recover(
    place: &Place,
    wanted: Wanted,
    context: SinkContext,
    restored: Restored<'_>,
) -> Result<(TablePublisher, RecoverReport)> {
    let due = StagedFile::due(restored, &place.sink)?;
    let outbox = Outbox::open(place)?;
    let mut session = Session::new(&wanted.url)?;
    let (statements, run) = session.insist(|client| {
        let mut transaction = session::begin(client)?;
        let relation = schema::settle(&mut transaction, &wanted)?;
        let statements = Statements::new(relation, &wanted);
        let run =
            marker::take_over(&mut transaction, &statements, &place.sink, context, restored.last_epoch)?;
        transaction.commit().map_err(refused("take over the table"))?;
        Ok((statements, run))
    })?;
    let (sink, preamble) = (place.sink.clone(), place.preamble.clone());
    let mut publisher = TablePublisher { sink, preamble, context, run, session, statements, outbox };
    let mut report = RecoverReport::default();
    for staged in &due {
        if publisher.insist(staged)? {
            report.published.push(staged.final_name.clone());
        }
    }
    publisher.outbox.sweep(context, &mut report)?;
    Ok((publisher, report))
}

impl Publish for TablePublisher {
    fn sink(&self) -> &str {
        &self.sink
    }

    fn publish(&mut self, staged: &StagedOutput, permit: &dyn PublishPermit) -> Result<Delivery> {
        let staged = StagedFile::of(staged, &self.sink)?;
        staged.check_permit(permit)?;
        self.outbox.fault("sink.publish.before")?;
        match self.settle(&staged) {
            Ok(_) => {}
            Err(error) if error.may_pass() => return Ok(Delivery::Later(Error::from(error))),
            Err(error) => return Err(error.into()),
        }
        self.outbox.fault("sink.publish.after")?;
        Ok(Delivery::Done)
    }
}

impl TablePublisher {
    /// Cut before the commit: the server forgets the transaction. Cut after it: the marker says that the epoch is in,
    /// and the file is removed the next time. Returns whether the rows are new.
    fn settle(&mut self, staged: &StagedFile) -> Result<bool, TableError> {
        let Self { session, statements, outbox, preamble, context, run, .. } = self;
        let new = session.with(|client| {
            let mut transaction = session::begin(client)?;
            let marker = Marker::lock(&mut transaction, statements)?;
            if marker.admits(statements, *context, run)?.epoch >= staged.epoch {
                return Ok(false);
            }
            write_rows(&mut transaction, statements, outbox, preamble, staged)?;
            marker::advance(&mut transaction, statements, staged.epoch)?;
            outbox.fault("sink.publish.copied")?;
            transaction.commit().map_err(refused("commit rows"))?;
            Ok(true)
        })?;
        outbox.remove(staged)?;
        Ok(new)
    }

    /// As `settle`, and waits for a server that is out of reach, for a while.
    fn insist(&mut self, staged: &StagedFile) -> Result<bool, TableError> {
        session::patiently(|| self.settle(staged))
    }
}

/// Streams the staged file to the server, and from its temporary table into the table where rows replace others.
fn write_rows(
    transaction: &mut Transaction<'_>,
    statements: &Statements,
    outbox: &Outbox,
    preamble: &[u8],
    staged: &StagedFile,
) -> Result<(), TableError> {
    for statement in &statements.before_copy {
        transaction.batch_execute(statement).map_err(refused("prepare for rows"))?;
    }
    let mut copy = transaction.copy_in(&statements.copy).map_err(refused("begin to copy rows"))?;
    // The first line says of which columns the file is.
    let mut head = Vec::with_capacity(preamble.len());
    outbox.read(staged, |bytes| {
        let (first, rest) = bytes.split_at(bytes.len().min(preamble.len() - head.len()));
        head.extend_from_slice(first);
        if !preamble.starts_with(&head) {
            return Err(TableError::Preamble { sink: staged.sink.clone(), epoch: staged.epoch });
        }
        copy.write_all(rest).map_err(TableError::from_copy)
    })?;
    copy.finish().map_err(refused("copy rows"))?;
    for statement in &statements.after_copy {
        transaction.batch_execute(statement).map_err(refused("apply rows"))?;
    }
    Ok(())
}
