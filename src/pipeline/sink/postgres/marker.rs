//! The row of `floodmark_epochs` for a table: whose it is, and the last epoch that is in it. Locked by whoever writes,
//! changed in the transaction that writes.

use postgres::Transaction;

use super::error::{TableError, refused};
use super::statements::Statements;
use crate::pipeline::sink::contract::SinkContext;

/// The row as it was found, locked for the rest of the transaction.
#[derive(Debug)]
pub(super) struct Marker {
    row: Option<Row>,
}

#[derive(Debug)]
pub(super) struct Row {
    lineage: String,
    generation: u64,
    pub(super) epoch: u64,
    run: String,
}

impl Marker {
    pub(super) fn lock(
        transaction: &mut Transaction<'_>,
        statements: &Statements,
    ) -> Result<Self, TableError> {
        let found = transaction.query_opt(&statements.lock_marker, &[&statements.target]);
        let Some(row) = found.map_err(refused("read floodmark_epochs"))? else {
            return Ok(Self { row: None });
        };
        // Numbers below 2^63 only ever went in.
        let number = |index: usize| row.try_get::<_, i64>(index).map(i64::cast_unsigned);
        let read = || {
            let lineage = row.try_get(0)?;
            Ok(Row { lineage, generation: number(1)?, epoch: number(2)?, run: row.try_get(3)? })
        };
        let row: Result<Row, postgres::Error> = read();
        Ok(Self { row: Some(row.map_err(refused("read floodmark_epochs"))?) })
    }

    /// The row, when it is that of this run. Of two runs of one generation, which a copied state directory makes, the one
    /// that opened last has it.
    pub(super) fn admits(
        &self,
        statements: &Statements,
        context: SinkContext,
        run: &str,
    ) -> Result<&Row, TableError> {
        let table = || statements.target.clone();
        let Some(row) = &self.row else { return Err(TableError::Marker { table: table() }) };
        if row.lineage != lineage_text(context) {
            return Err(TableError::Foreign { table: table() });
        }
        let (ours, found) = (context.generation, row.generation);
        if found > ours || (found == ours && row.run != run) {
            return Err(TableError::Fenced { table: table(), ours, newer: found });
        }
        if found < ours {
            return Err(TableError::Marker { table: table() });
        }
        Ok(row)
    }
}

/// Makes the table this run's, or says why it cannot be. Returns what the server calls this run.
pub(super) fn take_over(
    transaction: &mut Transaction<'_>,
    statements: &Statements,
    sink: &str,
    context: SinkContext,
    last_epoch: u64,
) -> Result<String, TableError> {
    let table = || statements.target.clone();
    let marker = Marker::lock(transaction, statements)?;
    if let Some(row) = &marker.row {
        if row.lineage != lineage_text(context) {
            return Err(TableError::Foreign { table: table() });
        }
        if row.generation > context.generation {
            let (ours, newer) = (context.generation, row.generation);
            return Err(TableError::Fenced { table: table(), ours, newer });
        }
        if row.epoch > last_epoch {
            return Err(TableError::Ahead { table: table(), published: row.epoch, last_epoch });
        }
    }
    let generation = context.generation.cast_signed();
    let owned = transaction
        .query_one(&statements.own_marker, &[&statements.target, &sink, &lineage_text(context), &generation]);
    owned.and_then(|row| row.try_get(0)).map_err(refused("write floodmark_epochs"))
}

/// Notes that `epoch` is in.
pub(super) fn advance(
    transaction: &mut Transaction<'_>,
    statements: &Statements,
    epoch: u64,
) -> Result<(), TableError> {
    let changed =
        transaction.execute(&statements.advance_marker, &[&statements.target, &epoch.cast_signed()]);
    match changed.map_err(refused("write floodmark_epochs"))? {
        1 => Ok(()),
        _ => Err(TableError::Marker { table: statements.target.clone() }),
    }
}

fn lineage_text(context: SinkContext) -> String {
    context.lineage.iter().map(|byte| format!("{byte:02x}")).collect()
}
