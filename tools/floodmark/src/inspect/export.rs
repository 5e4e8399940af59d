//! `floodmark inspect export`: panes as files that other tools read.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use floodmark::error::Error;
use floodmark::pipeline::export::{Exported, export};
use floodmark::pipeline::sink;

use super::place::{FilterArguments, Need, One, Watching};
use super::text::{origin, size};
use crate::console::print_report as print;
use crate::run::grouped;
use crate::table::Table;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    filter: FilterArguments,
    /// The directory that gets a file for each window.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// What the files are.
    #[arg(long, value_enum, default_value_t = Format::Parquet)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Parquet,
    Csv,
    Jsonl,
}

pub(super) fn run(arguments: &Arguments, now_ms: i64) -> Result<(), Error> {
    let One { place, at } = &arguments.one;
    let filter = arguments.filter.filter()?;
    let located = place.locate(Need::Checkpoint(*at))?;
    let format = match arguments.format {
        Format::Parquet => sink::Format::Parquet,
        Format::Csv => sink::Format::Csv,
        Format::Jsonl => sink::Format::Jsonl,
    };
    let mut watching = Watching::new();
    let mut exported = export(&located.path, *at, &filter, format, &arguments.into, now_ms, &mut |so_far| {
        watching.scanned(so_far);
    })?;
    drop(watching);
    located.name(&mut exported.checkpoint.path);
    print(place.json, &exported, text)
}

fn text(exported: &Exported) -> String {
    let mut table = Table::new(&["window", ">panes", ">size", "file"]);
    for file in &exported.files {
        let path = file.path.display().to_string();
        table.row(vec![file.window.clone(), grouped(file.rows), size(file.bytes), path]);
    }
    origin(&exported.checkpoint) + &table.render(2)
}
