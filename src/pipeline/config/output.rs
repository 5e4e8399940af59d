//! The `output` of a window or join: files, a table of PostgreSQL, or standard output.
//!
//! Plain data; that a directory can be written, or a server reached, is found out by the sinks.

use std::path::{Path, PathBuf};

use super::contradiction::Places;
use super::reader::{Item, Section};
use super::resolve;
use crate::error::Result;

/// Keys of an output's table, those of windows only included.
pub(super) const KEYS: [&str; 9] =
    ["kind", "path", "format", "time_format", "metadata", "url_env", "url", "table", "write"];
/// Longest name that PostgreSQL does not shorten.
pub(super) const SQL_NAME_BYTES_MAX: usize = 63;

/// Where rows go in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputTarget {
    /// Files in the output's directory.
    Files,
    /// Standard output, at least once; the directory holds what was not printed yet.
    Console,
    /// A table of PostgreSQL; the directory holds what was not delivered yet.
    Postgres(TableConfig),
}

/// A table of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableConfig {
    /// Name of the environment variable with the address of the server. The address itself is in no file.
    pub url_env: String,
    /// The table, as `name` or `schema.name`.
    pub table: String,
    /// What rows do to it.
    pub write: TableWrite,
}

/// What rows do to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableWrite {
    /// Each adds one.
    Append,
    /// Each replaces the one of the same key and window.
    Upsert,
}

/// Format of result rows in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// One JSON object per line.
    JsonLines,
    /// Comma-separated values.
    Csv,
    /// Parquet, with types.
    Parquet,
}

/// How window bounds are written in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputTime {
    /// RFC 3339 in UTC.
    Rfc3339,
    /// Milliseconds since the Unix epoch.
    EpochMillis,
}

/// What windows and joins have in common.
pub(super) struct Common<'a> {
    pub(super) path: PathBuf,
    pub(super) target: OutputTarget,
    pub(super) format: OutputFormat,
    pub(super) time_format: OutputTime,
    /// Where `write = "upsert"` stands.
    pub(super) upsert: Option<Item<'a>>,
}

/// Reads an output of `what`, such as `window "hourly"`; `outbox` names its folder in the state directory.
pub(super) fn read<'a>(
    section: &mut Section<'a>,
    what: &str,
    outbox: &str,
    base: &Path,
    places: &mut Places<'_>,
) -> Result<Common<'a>> {
    let outbox = places.state_directory().join("outbox").join(outbox);
    let kinds = [("files", false), ("postgres", true)];
    let is_table = section.take("kind").map_or(Ok(false), |item| item.choice(&kinds))?;
    if is_table {
        return read_table(section, what, outbox, places);
    }
    for key in ["url_env", "url", "table", "write"] {
        if let Some(item) = section.take(key) {
            return Err(item.error("belongs to a table", "add `kind = \"postgres\"`, or remove it"));
        }
    }
    let path_item = section
        .require("path", "add `path = \"out/hourly\"`, a directory, or write `kind = \"postgres\"`")?;
    let formats =
        [("jsonl", OutputFormat::JsonLines), ("csv", OutputFormat::Csv), ("parquet", OutputFormat::Parquet)];
    let format_item = section.take("format");
    let format = format_item.as_ref().map_or(Ok(OutputFormat::JsonLines), |item| item.choice(&formats))?;
    let time_item = section.take("time_format");
    let times = [("rfc3339", OutputTime::Rfc3339), ("epoch_ms", OutputTime::EpochMillis)];
    let time_format = time_item.as_ref().map_or(Ok(OutputTime::Rfc3339), |item| item.choice(&times))?;
    if let (Some(item), OutputFormat::Parquet) = (&time_item, format) {
        return Err(item.error("has no meaning in Parquet, whose times have a type", "remove it"));
    }
    if path_item.text()? == "-" {
        if let (Some(item), OutputFormat::Parquet) = (&format_item, format) {
            return Err(item.error("Parquet is no text to print", "use \"jsonl\" or \"csv\", or a directory"));
        }
        places.add_console(&path_item)?;
        return Ok(Common { path: outbox, target: OutputTarget::Console, format, time_format, upsert: None });
    }
    let path = resolve(base, &path_item.name()?);
    places.add_directory(&path_item, &format!("the output of {what}"), &path);
    Ok(Common { path, target: OutputTarget::Files, format, time_format, upsert: None })
}

fn read_table<'a>(
    section: &mut Section<'a>,
    what: &str,
    path: PathBuf,
    places: &mut Places<'_>,
) -> Result<Common<'a>> {
    if let Some(item) = section.take("url") {
        let message = "an address may hold a password, and a pipeline file is not the place for it";
        return Err(item.error(message, "write `url_env = \"DATABASE_URL\"` and set that variable"));
    }
    for key in ["path", "format", "time_format"] {
        if let Some(item) = section.take(key) {
            return Err(item.error("has no meaning for a table", "remove it"));
        }
    }
    let remedy = "add `url_env = \"DATABASE_URL\"`, the environment variable with the server's address";
    let env_item = section.require("url_env", remedy)?;
    let url_env = env_item.name()?;
    if url_env.contains(['=', ':', '/', '\0']) {
        return Err(env_item.error("is not the name of an environment variable", remedy));
    }
    let table_item = section.require("table", "add `table = \"hourly\"`")?;
    let table = table_item.name()?;
    let plain = |part: &str| {
        let mut bytes = part.bytes();
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        part.len() <= SQL_NAME_BYTES_MAX
            && bytes.next().is_some_and(letter)
            && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
    };
    if table.split('.').count() > 2 || !table.split('.').all(plain) {
        let message = format!("\"{table}\" is not a table name");
        let remedy = "use a-z, 0-9 and _, at most 63 of them, with a schema before a dot where it is needed";
        return Err(table_item.error(message, remedy));
    }
    places.add_table(&table_item, what, &url_env, &table)?;
    let writes = [("append", TableWrite::Append), ("upsert", TableWrite::Upsert)];
    let write_item = section.require(
        "write",
        "add `write = \"append\"`, or `write = \"upsert\"` to replace rows by key and window",
    )?;
    let write = write_item.choice(&writes)?;
    let upsert = (write == TableWrite::Upsert).then_some(write_item);
    let target = OutputTarget::Postgres(TableConfig { url_env, table, write });
    let (format, time_format) = (OutputFormat::JsonLines, OutputTime::Rfc3339);
    Ok(Common { path, target, format, time_format, upsert })
}

/// Refuses columns that PostgreSQL cannot name.
pub(super) fn check_columns<'n>(
    section: &Section<'_>,
    target: &OutputTarget,
    mut names: impl Iterator<Item = &'n str>,
) -> Result<()> {
    let OutputTarget::Postgres(_) = target else { return Ok(()) };
    let unfit = names.find(|name| {
        name.len() > SQL_NAME_BYTES_MAX || name.contains('\0') || name.starts_with("floodmark_")
    });
    unfit.map_or(Ok(()), |name| {
        let message = format!("\"{name}\" cannot be a column of a table of PostgreSQL");
        Err(section.error(message, "use another name: at most 63 bytes, not beginning with \"floodmark_\""))
    })
}
