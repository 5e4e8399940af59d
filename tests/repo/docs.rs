//! What the documentation says exists, exists; and no file names the machine it was written on.

use std::collections::BTreeSet;

use crate::source::{files, read, root};

/// Relative link targets of Markdown text: `[words](target)`, code blocks left out.
fn links(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).collect::<String>();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap_or(target).to_owned())
        .collect()
}

fn markdown() -> Vec<(String, std::path::PathBuf)> {
    files("").into_iter().filter(|(path, _)| path.ends_with(".md")).collect()
}

#[test]
fn links_in_the_documentation_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, absolute) in markdown() {
        let folder = absolute.parent().expect("a file has a folder");
        broken.extend(
            links(&read(&absolute))
                .into_iter()
                .filter(|link| !folder.join(link).exists())
                .map(|link| format!("{path}: {link}")),
        );
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn links_are_read_from_prose_only() {
    assert_eq!(
        links("see [a](b.md#c) and [d](https://e.f)\n```\n[g](h)\n```\n[i](#j) [k](l/m.md)"),
        ["b.md", "l/m.md"]
    );
}

#[test]
fn every_dependency_has_its_line_in_the_decisions() {
    let decisions = read(&root().join("docs/decisions/0001-dependencies.md"));
    let told: BTreeSet<&str> =
        decisions.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let manifest = read(&root().join("Cargo.toml"));
    let section =
        manifest.split("[workspace.dependencies]").nth(1).expect("the workspace lists its dependencies");
    let named: BTreeSet<&str> = section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()))
        .filter(|name| *name != "floodmark")
        .collect();
    assert_eq!(named, told, "left: Cargo.toml; right: docs/decisions/0001-dependencies.md");
}

#[test]
fn no_file_names_the_machine_it_was_written_on() {
    let private = ["/home/", concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("/Us", "ers/")];
    let mut found = Vec::new();
    for (path, absolute) in files("") {
        let Ok(text) = std::fs::read_to_string(&absolute) else { continue };
        if path == "tests/repo/docs.rs" || path.starts_with("tests/data/") {
            continue;
        }
        found.extend(
            private.iter().filter(|part| text.contains(**part)).map(|part| format!("{path}: {part}")),
        );
    }
    assert!(found.is_empty(), "paths of one machine:\n{}", found.join("\n"));
}
