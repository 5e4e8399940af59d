//! Every data set in the repository says where it comes from, and is small enough to be cloned.

use std::collections::BTreeSet;

use crate::source::{files, read, root};

/// Largest file that the repository carries.
const FILE_BYTES_MAX: u64 = 2 << 20;

#[test]
fn every_folder_of_data_names_source_and_licence() {
    let folders = ["conformance", "formats", "fuzz", "golden", "scenarios", "streams"]
        .map(|name| format!("tests/data/{name}"));
    for folder in folders.iter().map(String::as_str).chain(["examples/flights", "examples/windows"]) {
        let text = read(&root().join(folder).join("SOURCE.md"));
        let told = ["licen", "public domain", "Apache-2.0"].iter().any(|word| text.contains(word));
        assert!(told, "{folder}/SOURCE.md does not name a licence");
    }
}

#[test]
fn every_golden_case_is_whole_and_its_stream_is_known() {
    let folders: BTreeSet<String> = files("tests/data/golden")
        .into_iter()
        .filter_map(|(path, _)| path.rsplit_once('/').map(|(folder, _)| folder.to_owned()))
        .filter(|folder| folder != "tests/data/golden")
        .collect();
    assert!(folders.len() >= 29, "only {} golden cases", folders.len());
    for folder in folders {
        let case: serde_json::Value = serde_json::from_str(&read(&root().join(&folder).join("case.json")))
            .unwrap_or_else(|error| panic!("{folder}/case.json: {error}"));
        let stream = case["stream"].as_str().unwrap_or_default();
        assert!(["flights", "quakes", "weblog"].contains(&stream), "{folder}: unknown stream {stream:?}");
        for (file, rows) in [("expected", "emitted_rows"), ("late", "late_rows")] {
            let path = root().join(&folder).join(format!("{file}.jsonl.zst"));
            // Flink SQL counts late events but does not hand them out.
            if file == "late" && case["engine"] == "flink-sql" {
                assert!(!path.exists() && case[rows].is_u64(), "{folder}: late events that nobody gave");
                continue;
            }
            let packed =
                std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let text = zstd::decode_all(packed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let lines = text.iter().filter(|&&byte| byte == b'\n').count() as u64;
            assert_eq!(case[rows].as_u64(), Some(lines), "{folder}: {rows}");
        }
    }
}

#[test]
fn no_file_is_too_large_to_be_cloned_by_everybody() {
    for (path, absolute) in files("") {
        let bytes = std::fs::metadata(&absolute).expect("a walked file exists").len();
        assert!(bytes <= FILE_BYTES_MAX, "{path} has {bytes} bytes, more than {FILE_BYTES_MAX}");
    }
}
