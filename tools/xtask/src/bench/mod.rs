//! `cargo xtask bench`: takes the figures of the regression guard (`benches/guard`), keeps them a line each per commit,
//! and compares two commits.
//!
//! `measure` builds and runs, `figures` is the file, `compare` the verdict.

mod compare;
mod figures;
mod measure;

use std::path::PathBuf;
use std::process::Command;

use crate::platform::output;
use crate::step::{Failure, Steps, root};

use compare::Bounds;
use figures::{Commit, Figure};

/// How often each of two commits is measured, by turns.
const ROUNDS: usize = 2;

/// What the command line asks for.
#[derive(Debug, PartialEq)]
struct Wanted {
    file: Option<PathBuf>,
    compare: Option<(String, String)>,
    bounds: Bounds,
    again: bool,
}

/// `cargo xtask bench [--file FILE]` and `cargo xtask bench --compare A B [--file FILE] [--bound 1.25]
/// [--counted-bound 1.02] [--again]`.
pub(crate) fn run(mut steps: Steps, args: &[String]) -> Result<(), Failure> {
    let wanted = parse(args).ok_or(Failure::Usage)?;
    let file = match &wanted.file {
        Some(file) => std::path::absolute(file).unwrap_or_else(|_| file.clone()),
        None => measure::target_dir().join("bench").join("figures.jsonl"),
    };
    let done = match &wanted.compare {
        None => here(&mut steps, &file),
        Some((a, b)) => commits(&mut steps, &file, [a, b], &wanted),
    };
    eprintln!("\n{}", steps.table());
    done
}

fn parse(args: &[String]) -> Option<Wanted> {
    let mut wanted = Wanted { file: None, compare: None, bounds: Bounds::default(), again: false };
    let bound = |text: Option<&String>| text?.parse::<f64>().ok().filter(|bound| *bound >= 1.0);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--file" => wanted.file = Some(PathBuf::from(args.next()?)),
            "--compare" => wanted.compare = Some((args.next()?.clone(), args.next()?.clone())),
            "--bound" => wanted.bounds.time = bound(args.next())?,
            "--counted-bound" => wanted.bounds.counted = bound(args.next())?,
            "--again" => wanted.again = true,
            _ => return None,
        }
    }
    Some(wanted)
}

/// Measures this tree as it is.
fn here(steps: &mut Steps, file: &std::path::Path) -> Result<(), Failure> {
    let commit = Commit { hash: resolve("HEAD")?, dirty: is_dirty() };
    let guard = measure::build(steps, "this tree", &root().join("Cargo.toml"))?;
    let mut taken = measure::times(steps, "this tree", &guard)?;
    taken.extend(measure::instructions(steps, "this tree", &guard)?);
    figures::append(file, &commit, &taken)?;
    println!("{}", compare::listed(&taken));
    eprintln!("{} figures of {} added to {}", taken.len(), commit.shown(), file.display());
    Ok(())
}

/// Compares two commits by what the file has of them, or by measuring both now.
fn commits(
    steps: &mut Steps,
    file: &std::path::Path,
    names: [&String; 2],
    wanted: &Wanted,
) -> Result<(), Failure> {
    let [a, b] = [resolve(names[0])?, resolve(names[1])?];
    let known = figures::read(file)?;
    let of =
        |hash: &str| figures::best(known.iter().filter(|(commit, _)| commit.is(hash)).map(|(_, one)| one));
    let (mut old, mut new) = (of(&a), of(&b));
    if wanted.again || old.is_empty() || new.is_empty() {
        [old, new] = both(steps, file, [&a, &b])?;
    } else {
        eprintln!("both commits are in {}; --again measures them anew", file.display());
    }
    let rows = compare::rows(&old, &new, wanted.bounds);
    println!("{}", compare::table(&rows, [figures::short(&a), figures::short(&b)]));
    match rows.iter().filter(|row| row.is_worse()).count() {
        0 => Ok(()),
        worse => Err(Failure::Worse(worse)),
    }
}

/// Builds both in work trees of their own and runs them by turns, so that a machine that slows down slows both.
fn both(steps: &mut Steps, file: &std::path::Path, hashes: [&str; 2]) -> Result<[Vec<Figure>; 2], Failure> {
    let mut guards = Vec::new();
    for hash in hashes {
        let tree = measure::Tree::of(steps, hash)?;
        guards.push(measure::build(steps, figures::short(hash), &tree.manifest()?)?);
    }
    let mut taken = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for ((hash, guard), taken) in hashes.iter().zip(&guards).zip(&mut taken) {
            let name = format!("{}, round {} of {ROUNDS}", figures::short(hash), round + 1);
            let mut fresh = measure::times(steps, &name, guard)?;
            if round == 0 {
                fresh.extend(measure::instructions(steps, figures::short(hash), guard)?);
            }
            figures::append(file, &Commit { hash: (*hash).to_owned(), dirty: false }, &fresh)?;
            taken.extend(fresh);
        }
    }
    Ok(taken.map(|taken| figures::best(taken.iter())))
}

/// The commit that a name stands for.
fn resolve(name: &str) -> Result<String, Failure> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")]);
    let done = git.current_dir(root()).output();
    let hash = done.ok().filter(|done| done.status.success());
    let hash = hash.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned());
    hash.filter(|hash| !hash.is_empty())
        .ok_or_else(|| Failure::Step("bench".to_owned(), format!("`{name}` is no commit of this repository")))
}

/// True when the tree is not the one that was committed; figures of such a tree are kept, and never compared.
fn is_dirty() -> bool {
    let root = root();
    let root = root.to_string_lossy();
    output("git", &["-C", &root, "status", "--porcelain"]).is_none_or(|changes| !changes.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_command_line_is_read() {
        let plain = parse(&[]).expect("a plain run");
        assert_eq!((plain.compare, plain.bounds), (None, Bounds { time: 1.25, counted: 1.02 }));
        let line = "--compare HEAD~1 HEAD --bound 1.1 --counted-bound 1.5 --again --file x.jsonl";
        let wanted = parse(&words(line)).expect("a comparison");
        assert_eq!(wanted.compare, Some(("HEAD~1".to_owned(), "HEAD".to_owned())));
        assert_eq!(wanted.bounds, Bounds { time: 1.1, counted: 1.5 });
        assert!(wanted.again && wanted.file == Some(PathBuf::from("x.jsonl")));
        for wrong in ["--compare HEAD", "--bound 0.9", "--bound", "--bound x", "HEAD", "--file"] {
            assert_eq!(parse(&words(wrong)), None, "{wrong}");
        }
    }
}
