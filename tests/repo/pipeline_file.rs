//! The reference of the pipeline file next to the code that reads it: every key has its line in a table, every word that
//! is a choice is named, and no table has a key that the code does not know.

use std::collections::BTreeSet;

use crate::source::{files, read, root};

/// Words of the code that are no settings: parts of messages, a type without its digits, a folder of the state directory.
const NO_SETTINGS: [&str; 3] = ["decimal", "outbox", "text"];

/// What reads the pipeline file, without tests.
fn config_code() -> String {
    let is_code = |path: &str| path.ends_with(".rs") && !path.ends_with("/tests.rs");
    let code = files("src/pipeline/config").into_iter().filter(|(path, _)| is_code(path));
    let text = code.map(|(_, path)| read(&path).split("#[cfg(test)]").next().unwrap_or_default().to_owned());
    // Messages and documentation are full of examples; a literal that is one word is a key or a choice.
    text.collect::<String>()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// One word as a setting would be: `allowed_lateness`.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(plain)
}

/// String literals of `code` that are one word. Quotes inside of literals are escaped, and stay.
fn words(code: &str) -> BTreeSet<String> {
    let code = code.replace("\\\"", " ").replace("b'\"'", " ");
    code.split('"').skip(1).step_by(2).filter(|literal| is_word(literal)).map(str::to_owned).collect()
}

/// The literals that stand between each `from` and the next `to` after it.
fn words_between(code: &str, from: &str, to: &str) -> BTreeSet<String> {
    let after = code.split(from).skip(1);
    after.flat_map(|rest| words(rest.split(to).next().unwrap_or_default())).collect()
}

/// The keys that are taken out of tables, and those that tables allow.
fn keys(code: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (from, to) in [
        (".take(", ")"),
        // Its second argument is a remedy, which is no single word.
        (".require(", ")"),
        ("section(&[", "]"),
        ("keys = [", "]"),
        ("KEYS: [&str; ", "];"),
        ("ROOT: [&str; ", "];"),
        ("LENGTHS: [&str; ", "];"),
        ("PARAMETERS: [&str; ", "];"),
    ] {
        let found = words_between(code, from, to);
        assert!(!found.is_empty(), "the code has no {from}: look for its keys elsewhere");
        keys.extend(found);
    }
    keys
}

/// First cells of the tables of keys: `` | `key` | … ``.
fn documented(page: &str) -> BTreeSet<String> {
    let mut documented = BTreeSet::new();
    let mut is_of_keys = false;
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ") else {
            is_of_keys &= line.starts_with('|');
            continue;
        };
        if row.starts_with("key |") {
            is_of_keys = true;
        } else if is_of_keys {
            let cell = row.split(" |").next().unwrap_or_default();
            documented.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    documented
}

#[test]
fn the_reference_of_the_pipeline_file_has_every_key_and_no_other() {
    let (code, page) = (config_code(), read(&root().join("docs/PIPELINE.md")));
    assert_eq!(keys(&code), documented(&page), "left: src/pipeline/config; right: docs/PIPELINE.md");
}

#[test]
fn the_reference_of_the_pipeline_file_names_every_choice() {
    let page = read(&root().join("docs/PIPELINE.md"));
    let named = |word: &String| {
        [format!("`\"{word}\"`"), format!("`{word}`"), format!("`.{word}`")]
            .iter()
            .any(|form| page.contains(form))
    };
    let settings = words(&config_code()).into_iter().filter(|word| !NO_SETTINGS.contains(&word.as_str()));
    let missing: Vec<String> = settings.filter(|word| !named(word)).collect();
    assert!(missing.is_empty(), "docs/PIPELINE.md does not name: {}", missing.join(", "));
}

#[test]
fn keys_and_words_are_found_in_code() {
    let code = "let x = section.take(\"size\"); item.section(&[\"from\", \"to\"])?; \
                f.require(\n\"path\", \"Add `path = \\\"-\\\"`.\"); choice(&[(\"none\", A)])";
    assert_eq!(words_between(code, ".take(", ")"), ["size".to_owned()].into());
    assert_eq!(words_between(code, ".require(", ")"), ["path".to_owned()].into());
    assert_eq!(words(code).into_iter().collect::<Vec<_>>(), ["from", "none", "path", "size", "to"]);
    assert_eq!(
        documented("| key | x |\n|---|\n| `a`, `b` | c |\n\n| no |\n| `d` |"),
        ["a", "b"].map(str::to_owned).into()
    );
}
