//! The SQL of one output, written once when it is opened. Names are quoted here and nowhere else.

use super::Wanted;
use crate::pipeline::sink::columns::{Column, ColumnType};
use crate::pipeline::sink::table::TableWrite;

/// Column of the temporary table that keeps the order of rows.
pub(super) const ORDER: &str = "floodmark_row";
/// Column of a result that says what it does to earlier ones; a table that is upserted does not keep it.
pub(super) const ROW_KIND: &str = "row_kind";

/// A table with its schema, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) schema: String,
    pub(super) name: String,
}

impl Relation {
    pub(super) fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }

    /// Where this schema's markers are.
    pub(super) fn markers(&self) -> String {
        format!("{}.floodmark_epochs", quoted(&self.schema))
    }
}

/// Everything that is said to the server between begin and commit.
#[derive(Debug)]
pub(super) struct Statements {
    /// `schema.name`, as it stands in the marker.
    pub(super) target: String,
    pub(super) lock_marker: String,
    pub(super) own_marker: String,
    pub(super) advance_marker: String,
    pub(super) before_copy: Vec<String>,
    pub(super) copy: String,
    pub(super) after_copy: Vec<String>,
}

impl Statements {
    pub(super) fn new(relation: Relation, wanted: &Wanted) -> Self {
        let markers = relation.markers();
        let table = relation.quoted();
        let staged = names(wanted.columns.iter());
        let (before_copy, copy_into, after_copy) = match wanted.write {
            TableWrite::Append => (Vec::new(), table, Vec::new()),
            TableWrite::Upsert => {
                let temporary = "pg_temp.floodmark_staged".to_owned();
                (
                    vec![temporary_table(&temporary, wanted)],
                    temporary.clone(),
                    upsert(&table, &temporary, wanted),
                )
            }
        };
        Self {
            target: format!("{}.{}", relation.schema, relation.name),
            lock_marker: format!(
                "SELECT lineage, generation, epoch, run::text FROM {markers} WHERE target = $1 FOR UPDATE"
            ),
            own_marker: format!(
                "INSERT INTO {markers} (target, sink, lineage, generation, epoch, run) \
                 VALUES ($1, $2, $3, $4, 0, gen_random_uuid()) \
                 ON CONFLICT (target) DO UPDATE SET sink = EXCLUDED.sink, generation = EXCLUDED.generation, \
                 run = EXCLUDED.run, changed_at = now() RETURNING run::text"
            ),
            advance_marker: format!(
                "UPDATE {markers} SET epoch = $2, changed_at = now() WHERE target = $1 AND epoch < $2"
            ),
            before_copy,
            copy: format!("COPY {copy_into} ({staged}) FROM STDIN"),
            after_copy,
        }
    }
}

/// The columns that the table itself has.
pub(super) fn kept(wanted: &Wanted) -> impl Iterator<Item = &Column> + Clone {
    let upsert = wanted.write == TableWrite::Upsert;
    wanted.columns.iter().filter(move |column| !(upsert && column.name == ROW_KIND))
}

fn takes_back(wanted: &Wanted) -> bool {
    wanted.columns.iter().any(|column| column.name == ROW_KIND)
}

fn temporary_table(temporary: &str, wanted: &Wanted) -> String {
    let columns =
        wanted.columns.iter().map(|column| format!("{} {}", quoted(&column.name), sql_type(column.kind)));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let name = temporary.trim_start_matches("pg_temp.");
    format!("CREATE TEMPORARY TABLE {name} ({columns}, {ORDER} bigserial) ON COMMIT DROP")
}

/// Of several rows with one key the last counts: it replaces the table's, or takes it away.
fn upsert(table: &str, temporary: &str, wanted: &Wanted) -> Vec<String> {
    let key = wanted.primary_key.iter().map(|name| quoted(name)).collect::<Vec<_>>();
    let (columns, key_list) = (names(kept(wanted)), key.join(", "));
    let last = format!(
        "(SELECT DISTINCT ON ({key_list}) * FROM {temporary} ORDER BY {key_list}, {ORDER} DESC) AS last"
    );
    let mut statements = Vec::new();
    let mut stays = String::new();
    if takes_back(wanted) {
        let same =
            key.iter().map(|name| format!("kept.{name} = last.{name}")).collect::<Vec<_>>().join(" AND ");
        let gone = format!("last.{ROW_KIND} IN ('-U', '-D')");
        statements.push(format!("DELETE FROM {table} AS kept USING {last} WHERE {gone} AND {same}"));
        stays = format!(" WHERE NOT {gone}");
    }
    let others = kept(wanted).filter(|column| !wanted.primary_key.contains(&column.name));
    let set = others.map(|column| format!("{0} = EXCLUDED.{0}", quoted(&column.name)));
    let set = set.collect::<Vec<_>>().join(", ");
    statements.push(format!(
        "INSERT INTO {table} ({columns}) SELECT {columns} FROM {last}{stays} ORDER BY {ORDER} \
         ON CONFLICT ({key_list}) DO UPDATE SET {set}"
    ));
    statements
}

fn names<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    columns.map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", ")
}

/// A name that is taken as it is.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The type of a column that we create.
pub(super) fn sql_type(kind: ColumnType) -> String {
    match kind {
        ColumnType::Text => "text".to_owned(),
        ColumnType::Int => "bigint".to_owned(),
        ColumnType::Whole => "numeric".to_owned(),
        ColumnType::Decimal(scale) => format!("numeric(38,{scale})"),
        ColumnType::Float => "double precision".to_owned(),
        ColumnType::Time => "timestamp with time zone".to_owned(),
        ColumnType::Json => "json".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::table::Secret;
    use super::*;

    fn wanted(write: TableWrite, names: &[(&str, ColumnType)]) -> Wanted {
        let column =
            |&(name, kind): &(&str, ColumnType)| Column { name: name.to_owned(), kind, nullable: false };
        Wanted {
            url: Secret::new(""),
            table: "t".to_owned(),
            write,
            columns: names.iter().map(column).collect(),
            primary_key: vec!["k".to_owned(), "window_start".to_owned()],
        }
    }

    fn statements(wanted: &Wanted) -> Statements {
        Statements::new(Relation { schema: "public".to_owned(), name: "t".to_owned() }, wanted)
    }

    #[test]
    fn rows_that_are_appended_are_copied_straight_into_the_table() {
        let wanted = wanted(TableWrite::Append, &[("k\"; DROP", ColumnType::Text), ("n", ColumnType::Int)]);
        let statements = statements(&wanted);
        assert_eq!(statements.copy, r#"COPY "public"."t" ("k""; DROP", "n") FROM STDIN"#);
        assert!(statements.before_copy.is_empty() && statements.after_copy.is_empty());
    }

    #[test]
    fn the_last_row_of_a_key_replaces_or_removes() {
        let columns = [
            ("k", ColumnType::Text),
            ("window_start", ColumnType::Time),
            ("n", ColumnType::Int),
            ("row_kind", ColumnType::Text),
        ];
        let statements = statements(&wanted(TableWrite::Upsert, &columns));
        let last = "(SELECT DISTINCT ON (\"k\", \"window_start\") * FROM pg_temp.floodmark_staged \
                    ORDER BY \"k\", \"window_start\", floodmark_row DESC) AS last";
        let delete = format!(
            "DELETE FROM \"public\".\"t\" AS kept USING {last} WHERE last.row_kind IN ('-U', '-D') AND \
             kept.\"k\" = last.\"k\" AND kept.\"window_start\" = last.\"window_start\""
        );
        let insert = format!(
            "INSERT INTO \"public\".\"t\" (\"k\", \"window_start\", \"n\") SELECT \"k\", \"window_start\", \"n\" FROM \
             {last} WHERE NOT last.row_kind IN ('-U', '-D') ORDER BY floodmark_row ON CONFLICT (\"k\", \
             \"window_start\") DO UPDATE SET \"n\" = EXCLUDED.\"n\""
        );
        assert_eq!(statements.after_copy, [delete, insert]);
    }
}
