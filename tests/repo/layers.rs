//! Imports point downward: the table of docs/ARCHITECTURE.md, held against the code.
//!
//! Reads `crate::…` and `super::…` paths of src/, and the doors through which outside libraries come in.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{code_only, files, read, root};

/// Tests of the command over Parquet files.
const ARROW_TESTS: &str = "tools/floodmark/tests/cli/parquet.rs";

/// Tests of panes that were written as Parquet files.
const EXPORT_TESTS: &str = "tools/floodmark/tests/cli/panes/exported.rs";

/// Where a library may be named in src/; everywhere else its types do not appear.
const DOORS: [(&str, &[&str]); 11] = [
    ("arrow_array", &["src/pipeline/source/columnar/", "src/pipeline/source/parquet", ARROW_TESTS]),
    ("arrow_schema", &["src/pipeline/source/columnar/"]),
    ("rayon_core", &["src/operator/workers.rs"]),
    ("axum", &["src/pipeline/status/server"]),
    ("rocksdb", &["src/state/"]),
    ("bincode", &["src/codec/"]),
    ("tokio", &["src/pipeline/", "src/repository/"]),
    ("object_store", &["src/repository/"]),
    ("futures_util", &["src/repository/"]),
    ("parquet", &["src/pipeline/sink/parquet/", "src/pipeline/source/parquet", ARROW_TESTS, EXPORT_TESTS]),
    ("postgres", &["src/pipeline/sink/postgres/", "tools/floodmark/tests/cli/postgres/"]),
];

/// Row of each module, read from the table in docs/ARCHITECTURE.md: lines `| row | modules | owns |`.
fn rows() -> BTreeMap<String, u32> {
    let text = read(&root().join("docs/ARCHITECTURE.md"));
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, row, modules, ..] = cells.as_slice()
            && let Ok(row) = row.parse::<u32>()
        {
            for module in modules.split(',') {
                rows.insert(module.trim().trim_matches('`').to_owned(), row);
            }
        }
    }
    rows
}

/// The top-level module that a file under src/ belongs to; `None` for the crate root.
fn module_of(path: &str) -> Option<&str> {
    let inner = path.strip_prefix("src/")?;
    let first = inner.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "lib").then_some(name)
}

/// The top-level modules that code names through `crate::`.
fn crate_paths(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => named.extend(group_heads(group)),
            None => named.extend(Some(ident(rest)).filter(|name| !name.is_empty())),
        }
    }
    named
}

/// The first names inside `{a::b, c::{d, e}, f}`, after the opening brace.
fn group_heads(group: &str) -> Vec<String> {
    let (mut heads, mut depth, mut fresh) = (Vec::new(), 0_u32, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && !c.is_whitespace() => {
                heads.push(ident(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

fn ident(text: &str) -> String {
    text.trim_start().chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect()
}

/// True when code names a library as the head of a path (`lib::x`, `::lib::x`) or in `use lib`.
fn names_library(code: &str, library: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(library).any(|(at, _)| {
        let before = code[..at].strip_suffix("::").unwrap_or(&code[..at]);
        let rooted = before.len() < at;
        let is_head = before.chars().next_back().is_none_or(|c| !is_word(c) && (!rooted || c != '>'));
        let after = code[at + library.len()..].trim_start();
        let used = before.trim_end().ends_with("use") && (after.starts_with(';') || after.starts_with("as "));
        is_head && (after.starts_with("::") || used)
    })
}

#[test]
fn modules_import_only_from_rows_below_them() {
    let rows = rows();
    let mut wrong = Vec::new();
    for (path, absolute) in files("src") {
        let Some(module) = module_of(&path).filter(|_| path.ends_with(".rs")) else { continue };
        let Some(row) = rows.get(module) else {
            wrong.push(format!("{path}: module `{module}` has no row in docs/ARCHITECTURE.md"));
            continue;
        };
        for named in crate_paths(&code_only(&read(&absolute))) {
            if let Some(below) = rows.get(&named)
                && named != module
                && below > row
            {
                wrong.push(format!("{path} (row {row}) imports crate::{named} (row {below})"));
            }
        }
    }
    assert!(wrong.is_empty(), "imports must point downward:\n{}", wrong.join("\n"));
}

#[test]
fn modules_of_one_row_do_not_import_each_other_in_a_circle() {
    let rows = rows();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, absolute) in files("src") {
        let Some(module) = module_of(&path).filter(|_| path.ends_with(".rs")) else { continue };
        let named = crate_paths(&code_only(&read(&absolute)));
        let same = named.into_iter().filter(|name| name != module && rows.get(name) == rows.get(module));
        edges.entry(module.to_owned()).or_default().extend(same);
    }
    for start in edges.keys() {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(module) = next.pop() {
            for target in edges.get(module).into_iter().flatten() {
                assert_ne!(
                    target, start,
                    "`{start}` and `{module}` import each other, directly or in a circle"
                );
                if seen.insert(target) {
                    next.push(target);
                }
            }
        }
    }
}

#[test]
fn every_row_of_the_table_exists_in_the_code() {
    let modules: BTreeSet<String> =
        files("src").iter().filter_map(|(path, _)| module_of(path)).map(str::to_owned).collect();
    let table: BTreeSet<String> = rows().into_keys().filter(|module| module != "tools/*").collect();
    assert_eq!(modules, table, "left: modules in src/; right: modules in docs/ARCHITECTURE.md");
}

#[test]
fn outside_libraries_come_in_through_their_door() {
    let mut wrong = Vec::new();
    for (path, absolute) in files("src").into_iter().chain(files("tools")) {
        if !path.ends_with(".rs") {
            continue;
        }
        let code = code_only(&read(&absolute));
        for (library, doors) in DOORS {
            if !doors.iter().any(|door| path.starts_with(door)) && names_library(&code, library) {
                wrong.push(format!("{path} names {library}; only {} may", doors.join(" and ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn xtask_depends_on_nothing() {
    let manifest = read(&root().join("tools/xtask/Cargo.toml"));
    assert!(!manifest.contains("dependencies]"), "cargo xtask must build where nothing else does");
}

#[test]
fn paths_are_found_in_every_form_of_import() {
    let code = "use crate::a::B;\nuse crate::{b, c::{D, e}, f as g};\nfn h() -> crate::i::J {}\npub(crate) fn k() {}";
    let named: Vec<String> = crate_paths(code).into_iter().collect();
    assert_eq!(named, ["a", "b", "c", "f", "i"]);
}

#[test]
fn a_library_is_found_as_a_path_head_only() {
    assert!(names_library("use rocksdb::DB;", "rocksdb"));
    assert!(names_library("fn f(db: &rocksdb::DB) {}", "rocksdb"));
    assert!(names_library("use rocksdb as r;", "rocksdb"));
    assert!(names_library("type D = ::rocksdb::DB;", "rocksdb"));
    assert!(!names_library("let rocksdb_bytes = state::rocksdb::x();", "rocksdb"));
    assert!(!names_library("let rocksdb = 1;", "rocksdb"));
}
