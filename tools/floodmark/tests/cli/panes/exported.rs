//! Panes as files, read back by the libraries that people read them with.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value as Json, json};

use super::{inspect, json_of, kinds, operator};
use crate::support::Site;

fn export(site: &Site, format: &str, options: &[&str]) -> Json {
    let into = site.path(&format!("panes-{format}"));
    let arguments = [&["export", "--format", format, "--into", into.to_str().unwrap()], options].concat();
    json_of(&arguments, &site.path("state"))
}

/// What `panes` says of the window that is exported, as flat rows.
fn expected(site: &Site) -> Vec<Json> {
    let report = json_of(&["panes", "--limit", "100000", "--window", "minutes"], &site.path("state"));
    let panes = operator(&report, "minutes")["panes"].as_array().unwrap();
    let row = |pane: &Json| {
        json!({
            "user": pane["key"][0], "page": pane["key"][1],
            "window_start": pane["start"], "window_end": pane["end"],
            "pane_status": pane["status"], "pane_events": pane["events"],
            "pane_emissions": pane["emissions"], "pane_bytes": pane["bytes"], "pane_problem": Json::Null,
            "n": pane["aggregates"]["n"], "spent": pane["aggregates"]["spent"],
            "mean": pane["aggregates"]["mean"], "pages": pane["aggregates"]["pages"],
        })
    };
    panes.iter().map(row).collect()
}

#[test]
fn json_lines_hold_every_pane_as_it_is_listed() {
    let site = kinds();
    let exported = export(&site, "jsonl", &["--window", "minutes"]);
    let file = &exported["files"][0];
    let path = Path::new(file["path"].as_str().unwrap());
    let text = fs::read_to_string(path).unwrap();
    let rows: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows, expected(&site));
    assert_eq!((&file["rows"], &file["bytes"]), (&json!(rows.len()), &json!(text.len())));
    assert!(rows.len() > 8, "{text}");
}

#[test]
fn each_window_gets_a_file_that_is_there_when_it_is_complete() {
    let site = kinds();
    let exported = export(&site, "parquet", &[]);
    let names: BTreeMap<&str, u64> = exported["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["window"].as_str().unwrap(), file["rows"].as_u64().unwrap()))
        .collect();
    assert_eq!(names.keys().copied().collect::<Vec<_>>(), ["ever", "minutes", "moving", "visits"]);
    for (name, rows) in names {
        let file = fs::File::open(site.path(&format!("panes-parquet/{name}.parquet"))).unwrap();
        let found = SerializedFileReader::new(file).unwrap().metadata().file_metadata().num_rows();
        assert_eq!(found, i64::try_from(rows).unwrap(), "{name}");
    }
    let left = fs::read_dir(site.path("panes-parquet")).unwrap().count();
    assert_eq!(left, 4, "no partial file is left");
    let into = site.path("panes-parquet");
    inspect(&["export", "--into", into.to_str().unwrap()], &site.path("state"))
        .assert_refused(2, &["there is such a file already", "minutes.parquet"]);
}

/// A Python with DuckDB and PyArrow: FLOODMARK_PYTHON, or the one on the search path.
fn python() -> Option<String> {
    let python = std::env::var("FLOODMARK_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let tried = Command::new(&python).args(["-c", "import duckdb, pyarrow"]).output();
    match tried {
        Ok(output) if output.status.success() => Some(python),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            println!(
                "SKIPPED, because {python} has no DuckDB and PyArrow (pip install duckdb pyarrow): {why}"
            );
            None
        }
        Err(error) => {
            println!("SKIPPED, because there is no {python}: {error}");
            None
        }
    }
}

#[test]
fn duckdb_and_pyarrow_read_what_was_exported() {
    let Some(python) = python() else { return };
    let site = kinds();
    for format in ["parquet", "csv", "jsonl"] {
        export(&site, format, &["--window", "minutes"]);
    }
    let script = r#"
import duckdb, json, sys
import pyarrow.parquet
root = sys.argv[1]
found = {}
for kind in ["parquet", "csv", "jsonl"]:
    path = f"{root}/panes-{kind}/minutes.{kind}"
    table = {"parquet": "read_parquet", "csv": "read_csv_auto", "jsonl": "read_json_auto"}[kind]
    rows = duckdb.sql(f"""
        select "user", page, pane_status, epoch_ms(window_end::timestamptz) as ends, n::bigint, spent::bigint, mean::double
        from {table}('{path}') order by all
    """).fetchall()
    found[kind] = [list(row) for row in rows]
schema = pyarrow.parquet.read_table(f"{root}/panes-parquet/minutes.parquet").schema
found["types"] = {field.name: str(field.type) for field in schema}
print(json.dumps(found))
"#;
    let output =
        Command::new(python).args(["-c", script]).arg(site.path("")).env("TZ", "UTC").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["parquet"], found["csv"]);
    assert_eq!(found["parquet"], found["jsonl"]);
    let rows = found["parquet"].as_array().unwrap();
    let mut wanted: Vec<(String, String, String, i64, i64)> = expected(&site)
        .iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            (
                text("user"),
                text("page"),
                text("pane_status"),
                row["n"].as_i64().unwrap(),
                row["spent"].as_i64().unwrap(),
            )
        })
        .collect();
    wanted.sort();
    let mut read: Vec<(String, String, String, i64, i64)> = rows
        .iter()
        .map(|row| {
            let text = |at: usize| row[at].as_str().unwrap().to_owned();
            (text(0), text(1), text(2), row[4].as_i64().unwrap(), row[5].as_i64().unwrap())
        })
        .collect();
    read.sort();
    assert_eq!(read, wanted);
    assert_eq!(found["types"]["window_end"], "timestamp[ms, tz=UTC]", "{}", found["types"]);
    assert_eq!(found["types"]["spent"], "decimal128(38, 0)");
    assert!(rows.iter().any(|row| row[2] == "open"), "{rows:?}");
}
