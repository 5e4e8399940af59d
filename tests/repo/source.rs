//! The files of the repository, and Rust text without comments and literals.
//!
//! Walks the directory rather than asking git, so that it works on an unpacked archive as well.

use std::fs;
use std::path::{Path, PathBuf};

/// What is made by running things, not by people (in a work tree, `.git` is a file).
const MADE: [&str; 3] = [".git", "target", "demo-output"];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a directory of the repository, sorted, as (path relative to the root, absolute path).
pub(crate) fn files(below: &str) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    walk(&root().join(below), &mut found);
    found.sort();
    let root = root();
    let relative =
        |path: &Path| path.strip_prefix(&root).expect("walked from the root").display().to_string();
    found.into_iter().map(|path| (relative(&path), path)).collect()
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("a directory entry can be read").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if MADE.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rust code with comments and the contents of string and character literals blanked; line breaks stay.
pub(crate) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = blank_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where the comment or literal that starts here ends; the start itself when none does.
fn blank_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let starts = |pattern: &str| pattern.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if starts("//") {
        at + rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())
    } else if starts("/*") {
        at + block_comment(rest)
    } else if rest[0] == '"' {
        at + string(rest)
    } else if !after_word && (starts("r\"") || starts("r#") || starts("br\"") || starts("br#")) {
        at + raw_string(rest).unwrap_or(0)
    } else if rest[0] == '\'' && !after_word {
        at + character(rest)
    } else {
        at
    }
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match (rest[at], rest.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `None` when it is not a raw string after all but a raw identifier such as `r#type`.
fn raw_string(rest: &[char]) -> Option<usize> {
    let start = rest.iter().position(|&c| c == 'r').expect("the caller saw the r") + 1;
    let hashes = rest[start..].iter().take_while(|&&c| c == '#').count();
    let body = start + hashes + 1;
    (rest.get(start + hashes) == Some(&'"')).then_some(())?;
    let closes = |at: &usize| {
        rest[*at] == '"' && rest[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    Some((body..rest.len()).find(closes).map_or(rest.len(), |at| at + 1 + hashes))
}

/// The length of a character literal; 0 for a lifetime.
fn character(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', ..] => rest.iter().skip(3).position(|&c| c == '\'').map_or(0, |at| at + 4),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

#[test]
fn comments_and_literals_are_blanked_and_code_is_kept() {
    let text = "use a::b; // use c::d\n/* use /* e */ f */ let s = \"g \\\" h\"; let r = r#\"i \" j\"#; let c = '\"'; fn k<'l>() {}";
    let code = code_only(text);
    assert_eq!(code.len(), text.len());
    for kept in ["use a::b;", "let s =", "let r =", "let c =", "fn k<'l>() {}"] {
        assert!(code.contains(kept), "{kept} is gone: {code}");
    }
    for gone in ["c::d", "use /*", " f ", "g ", " h", "i ", " j"] {
        assert!(!code.contains(gone), "{gone:?} is still there: {code}");
    }
}
