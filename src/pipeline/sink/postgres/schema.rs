//! The table itself: created when it is missing, else held against what the pipeline wants, side by side.

use std::fmt::Write;

use postgres::Transaction;

use super::Wanted;
use super::error::{TableError, refused};
use super::statements::{ORDER, Relation, kept, quoted, sql_type};
use crate::pipeline::sink::columns::{Column, ColumnType};
use crate::pipeline::sink::table::TableWrite;

/// One creation at a time in a database: "if not exists" alone lets two sessions collide.
const CREATION_LOCK: &str = "SELECT pg_advisory_xact_lock(7381240113957)";
const COLUMNS: &str = "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), \
     a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' \
     FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
const UNIQUE: &str = "SELECT array_to_string(ARRAY(SELECT a.attname::text FROM pg_attribute a \
     WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) ORDER BY a.attname::text), E'\\n') FROM pg_index i \
     WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL";

/// A column as the server has it.
#[derive(Debug)]
struct Found {
    name: String,
    sql_type: String,
    /// It takes no null and has no default.
    needs_value: bool,
}

/// Sees to it that the table and the table of markers exist and fit. Returns where the table is.
pub(super) fn settle(transaction: &mut Transaction<'_>, wanted: &Wanted) -> Result<Relation, TableError> {
    let doing = || refused("look for the table");
    transaction.batch_execute(CREATION_LOCK).map_err(doing())?;
    let schema = match wanted.table.split_once('.') {
        Some((schema, _)) => schema.to_owned(),
        None => {
            let current = transaction.query_one("SELECT current_schema()::text", &[]).map_err(doing())?;
            let current: Option<String> = current.try_get(0).map_err(doing())?;
            current.ok_or_else(|| TableError::Shape("no schema of the search path exists".to_owned()))?
        }
    };
    let name = wanted.table.rsplit('.').next().unwrap_or(&wanted.table).to_owned();
    let relation = Relation { schema, name };
    if let Some(column) = wanted.columns.iter().find(|column| column.name == ORDER) {
        return Err(TableError::Shape(format!("a column has a name that is ours: name={}", column.name)));
    }
    if !exists(transaction, &relation.markers())? {
        transaction.batch_execute(&create_markers(&relation)).map_err(refused("create floodmark_epochs"))?;
    }
    if !exists(transaction, &relation.quoted())? {
        transaction.batch_execute(&create_table(&relation, wanted)).map_err(refused("create the table"))?;
        return Ok(relation);
    }
    let found = columns(transaction, &relation)?;
    if let Some(comparison) = compare(wanted, &found) {
        return Err(TableError::Shape(format!(
            "table {} does not fit its output\n{comparison}",
            wanted.table
        )));
    }
    if wanted.write == TableWrite::Upsert && !has_key(transaction, &relation, wanted)? {
        return Err(TableError::Shape(format!(
            "rows are to replace others, and the table has no primary key or unique index for it: table={} key={}",
            wanted.table,
            wanted.primary_key.join(",")
        )));
    }
    Ok(relation)
}

fn exists(transaction: &mut Transaction<'_>, quoted: &str) -> Result<bool, TableError> {
    let row = transaction.query_one("SELECT to_regclass($1) IS NOT NULL", &[&quoted]);
    row.and_then(|row| row.try_get(0)).map_err(refused("look for the table"))
}

fn columns(transaction: &mut Transaction<'_>, relation: &Relation) -> Result<Vec<Found>, TableError> {
    let doing = || refused("look at the table's columns");
    let rows = transaction.query(COLUMNS, &[&relation.quoted()]).map_err(doing())?;
    let found = rows.iter().map(|row| {
        Ok(Found { name: row.try_get(0)?, sql_type: row.try_get(1)?, needs_value: row.try_get(2)? })
    });
    found.collect::<Result<_, postgres::Error>>().map_err(doing())
}

fn has_key(
    transaction: &mut Transaction<'_>,
    relation: &Relation,
    wanted: &Wanted,
) -> Result<bool, TableError> {
    let doing = || refused("look at the table's indexes");
    let mut key = wanted.primary_key.clone();
    key.sort();
    let rows = transaction.query(UNIQUE, &[&relation.quoted()]).map_err(doing())?;
    for row in rows {
        let columns: String = row.try_get(0).map_err(doing())?;
        let mut columns: Vec<&str> = columns.split('\n').collect();
        columns.sort_unstable();
        if columns == key {
            return Ok(true);
        }
    }
    Ok(false)
}

fn create_markers(relation: &Relation) -> String {
    format!(
        "CREATE TABLE {} (target text PRIMARY KEY, sink text NOT NULL, lineage text NOT NULL, \
         generation bigint NOT NULL, epoch bigint NOT NULL, run uuid NOT NULL, \
         changed_at timestamptz NOT NULL DEFAULT now())",
        relation.markers()
    )
}

fn create_table(relation: &Relation, wanted: &Wanted) -> String {
    let column = |column: &Column| {
        let null = if column.nullable { "" } else { " NOT NULL" };
        format!("{} {}{null}", quoted(&column.name), sql_type(column.kind))
    };
    let mut parts: Vec<String> = kept(wanted).map(column).collect();
    if wanted.write == TableWrite::Upsert {
        let key = wanted.primary_key.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        parts.push(format!("PRIMARY KEY ({key})"));
    }
    format!("CREATE TABLE {} ({})", relation.quoted(), parts.join(", "))
}

/// What differs, as a table of its own; `None` when the columns fit.
fn compare(wanted: &Wanted, found: &[Found]) -> Option<String> {
    let mut lines = vec![("column".to_owned(), "wanted".to_owned(), "found".to_owned(), false)];
    for column in kept(wanted) {
        let known = found.iter().find(|found| found.name == column.name);
        let wrong = known.is_none_or(|found| !accepts(column, &found.sql_type));
        let known = known.map_or("(missing)", |found| found.sql_type.as_str());
        lines.push((column.name.clone(), sql_type(column.kind), known.to_owned(), wrong));
    }
    for extra in found.iter().filter(|found| kept(wanted).all(|column| column.name != found.name)) {
        let known = format!("{}{}", extra.sql_type, if extra.needs_value { " NOT NULL" } else { "" });
        lines.push((extra.name.clone(), "(nothing)".to_owned(), known, extra.needs_value));
    }
    if lines.iter().all(|(.., wrong)| !wrong) {
        return None;
    }
    let width = |pick: fn(&(String, String, String, bool)) -> &str| {
        lines.iter().map(|line| pick(line).chars().count()).max().unwrap_or(0)
    };
    let (names, types) = (width(|line| &line.0), width(|line| &line.1));
    let mut text = String::new();
    for (name, wanted, found, wrong) in &lines {
        let mark = if *wrong { "   <- differs" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {name:names$}  {wanted:types$}  {found}{mark}");
    }
    Some(text.trim_start_matches('\n').to_owned())
}

/// Whether a column of this type takes every value of ours without changing it.
fn accepts(column: &Column, found: &str) -> bool {
    match column.kind {
        ColumnType::Text => ["text", "character varying"].contains(&found),
        ColumnType::Int => ["bigint", "numeric"].contains(&found),
        ColumnType::Whole => found == "numeric" || found == "numeric(38,0)",
        ColumnType::Decimal(scale) => found == "numeric" || found == format!("numeric(38,{scale})"),
        ColumnType::Float => found == "double precision",
        ColumnType::Time => found == "timestamp with time zone",
        ColumnType::Json => ["json", "text"].contains(&found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::table::Secret;
    use super::*;

    #[test]
    fn a_table_that_does_not_fit_is_shown_beside_what_is_wanted() {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind, nullable: false };
        let wanted = Wanted {
            url: Secret::new(""),
            table: "t".to_owned(),
            write: TableWrite::Append,
            columns: vec![column("key", ColumnType::Text), column("sum", ColumnType::Whole)],
            primary_key: Vec::new(),
        };
        let found = |name: &str, sql_type: &str, needs_value| Found {
            name: name.to_owned(),
            sql_type: sql_type.to_owned(),
            needs_value,
        };
        let fits = [found("sum", "numeric", true), found("key", "text", true), found("note", "text", false)];
        assert_eq!(compare(&wanted, &fits), None);
        let wrong = [found("sum", "integer", true), found("note", "text", true)];
        let text = "  column  wanted     found\n  key     text       (missing)   <- differs\n  \
                    sum     numeric    integer   <- differs\n  note    (nothing)  text NOT NULL   <- differs";
        assert_eq!(compare(&wanted, &wrong).unwrap(), text);
    }
}
