//! The table of docs/HAZARDS.md: every hazard once, with a status, and every test and case that it names exists.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{files, read, root};

/// Hazards of the general list (H) and of the list about RocksDB (R).
const NUMBERS: [(char, u32); 2] = [('H', 74), ('R', 80)];

struct Row {
    number: String,
    tests: Vec<String>,
    /// Files of the cases.
    cases: Vec<String>,
    status: String,
}

/// Files of the cases in words between tests: names in quotes are conformance cases, B and two digits scenarios.
fn cases(words: &str) -> Vec<String> {
    let quoted = words.split('"').skip(1).step_by(2);
    let numbered = words.split(|c: char| !c.is_alphanumeric()).filter(|word| {
        word.len() == 3 && word.starts_with('B') && word[1..].bytes().all(|byte| byte.is_ascii_digit())
    });
    let conformance = quoted.map(|name| format!("tests/data/conformance/{name}.json"));
    let scenarios = numbered.map(|name| format!("tests/data/scenarios/{}.json", name.to_lowercase()));
    conformance.chain(scenarios).collect()
}

/// Lines `| number | hazard | rule | tests | status |`; tests stand in backticks.
fn rows() -> Vec<Row> {
    let text = read(&root().join("docs/HAZARDS.md"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let &[_, number, _, _, tests, status, _] = cells.as_slice() else { return None };
        let named = number.starts_with(['H', 'R']) && number[1..].parse::<u32>().is_ok();
        let cases = cases(&tests.split('`').step_by(2).collect::<String>());
        let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        named.then(|| Row { number: number.to_owned(), tests, cases, status: status.to_owned() })
    };
    text.lines().filter_map(row).collect()
}

/// Names of test functions, each with the components of the paths of the files it stands in.
fn tests() -> BTreeMap<String, Vec<BTreeSet<String>>> {
    let mut found: BTreeMap<String, Vec<BTreeSet<String>>> = BTreeMap::new();
    for (path, absolute) in files("") {
        let Some(stem) = path.strip_suffix(".rs") else { continue };
        let components: BTreeSet<String> = stem.split('/').map(str::to_owned).collect();
        let mut after_attribute = false;
        for line in read(&absolute).lines().map(str::trim) {
            after_attribute |= line.starts_with("#[test]");
            let Some(rest) = line.strip_prefix("fn ").filter(|_| after_attribute) else { continue };
            let name = rest.split('(').next().unwrap_or_default();
            found.entry(name.to_owned()).or_default().push(components.clone());
            after_attribute = false;
        }
    }
    found
}

#[test]
fn every_hazard_has_one_row() {
    let mut left: Vec<String> = rows().into_iter().map(|row| row.number).collect();
    let expected = NUMBERS.iter().flat_map(|(list, last)| (1..=*last).map(move |n| format!("{list}{n}")));
    let wrong: Vec<String> = expected
        .filter(|number| {
            let before = left.len();
            left.retain(|found| found != number);
            before - left.len() != 1
        })
        .collect();
    assert!(
        wrong.is_empty() && left.is_empty(),
        "not there, or more than once: {wrong:?}; unknown: {left:?}"
    );
}

#[test]
fn every_test_and_case_that_a_hazard_names_exists() {
    let tests = tests();
    let mut missing = Vec::new();
    for row in rows() {
        for named in &row.tests {
            let exists = named.split_once("::").is_some_and(|(place, name)| {
                tests.get(name).is_some_and(|files| files.iter().any(|file| file.contains(place)))
            });
            if !exists {
                missing.push(format!("{}: {named}", row.number));
            }
        }
        let absent = row.cases.iter().filter(|case| !root().join(case).exists());
        missing.extend(absent.map(|case| format!("{}: {case}", row.number)));
    }
    assert!(missing.is_empty(), "docs/HAZARDS.md names what is not there:\n{}", missing.join("\n"));
}

#[test]
fn a_hazard_is_tested_or_says_why_not() {
    let rows = rows();
    let open = rows.iter().filter(|row| row.status.starts_with("**open**")).count();
    println!("{open} hazards of {} are open", rows.len());
    for Row { number, tests, status, .. } in rows {
        let reason = |word: &str| status.strip_prefix(word).map(|rest| rest.len() > 10);
        let told = match status.split([':', ';', ' ']).next() {
            Some("tested") => !tests.is_empty(),
            Some("**open**") => reason("**open**") == Some(true),
            Some("by") => reason("by construction") == Some(true),
            Some("not") => reason("not here") == Some(true),
            _ => false,
        };
        assert!(told, "{number}: a status without a test or a reason: {status:?}");
    }
}

#[test]
fn cases_are_found_between_tests() {
    let found = cases("(\"far-timestamps\", B07) H12 (publishes twice)");
    assert_eq!(found, ["tests/data/conformance/far-timestamps.json", "tests/data/scenarios/b07.json"]);
}
