//! States in the formats of every release, kept in `tests/data/formats`: each is opened, checked and finished, and gives
//! what the release that wrote it would have given. How one is made is at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Ended, Site, repository};

/// Of a kept format: the state and the outputs half-way.
pub(crate) const BEGUN: &str = "begun.tar.zst";
/// Of a kept format: the outputs at the end.
const EXPECTED: &str = "expected.tar.zst";
/// A kept format with everything in it is smaller than this.
const BYTES_MAX: u64 = 100 << 10;

pub(crate) fn formats() -> PathBuf {
    repository().join("tests/data/formats")
}

/// The kept formats, by name.
fn kept() -> Vec<PathBuf> {
    let entries = fs::read_dir(formats()).unwrap().map(|entry| entry.unwrap().path());
    let mut kept: Vec<PathBuf> = entries.filter(|path| path.join(BEGUN).exists()).collect();
    kept.sort();
    kept
}

/// A site with the pipeline file and the inputs of a kept format.
fn site_of(directory: &Path) -> Site {
    let site = Site::in_memory("");
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".tar.zst") {
            site.write(name, fs::read(&path).unwrap());
        }
    }
    site
}

#[test]
fn every_kept_format_is_opened_and_finished_as_by_the_version_that_wrote_it() {
    let kept = kept();
    assert!(kept.len() >= 2, "only {} kept formats", kept.len());
    for directory in kept {
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        let site = site_of(&directory);
        unpack(&directory.join(BEGUN), &site);
        let command = |words: &[&str], path: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
            Ended::of(command.args(words).arg(site.path(path)).output().unwrap())
        };
        let verified = command(&["inspect", "verify"], "state");
        assert_eq!(verified.code, Some(0), "{name}: {}{}", verified.stdout, verified.stderr);
        let checked = command(&["check"], "pipeline.toml");
        assert_eq!(checked.code, Some(0), "{name}: {}{}", checked.stdout, checked.stderr);
        assert!(checked.stdout.contains(": goes on as before"), "{name}: {}", checked.stdout);
        let (summary, found) = site.complete(&[]);
        assert!(summary["start"]["panes"].as_u64() > Some(0), "{name}: nothing was taken over: {summary}");
        unpack(&directory.join(EXPECTED), &site);
        // The first version told the late events of one batch window by window.
        let [found, expected] =
            [found, site.outputs_in("expected")].map(|outputs| outputs.with_sorted("late"));
        found.assert_same_as(&expected, &name);
    }
}

#[test]
fn kept_formats_are_small() {
    for directory in kept() {
        let files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap());
        let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes < BYTES_MAX, "{}: bytes={bytes}", directory.display());
    }
}

/// `cargo xtask fixtures NAME`: makes the kept format NAME with this build, out of the recipe. It is left half-way with
/// output that its checkpoint staged and nobody published.
#[test]
#[ignore = "writes into the repository; `cargo xtask fixtures NAME` runs it"]
fn make_a_kept_format() {
    let name = std::env::var("FLOODMARK_FIXTURE").expect("FLOODMARK_FIXTURE names the format to be made");
    let recipe = formats().join("recipe");
    let target = formats().join(&name);
    assert!(!target.exists(), "a kept format is never made again: {}", target.display());
    let site = site_of(&recipe);
    let (_, expected) = site.complete(&[]);
    site.reset();
    // Slow enough for several checkpoints, and killed in the middle of publishing one.
    let mut command = site.command(&["--rate", "400"]);
    let ended = Ended::of(command.env("FLOODMARK_FAULT", "sink.publish.before:kill:20").output().unwrap());
    assert_eq!(ended.signal, Some(9), "{}", ended.stderr);
    fs::create_dir_all(&target).unwrap();
    for entry in fs::read_dir(&recipe).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
    }
    let begun = [files_below(&site, "state"), files_below(&site, "out")].concat();
    pack(&target.join(BEGUN), &begun);
    pack(&target.join(EXPECTED), &expected.parts("expected"));
}

type Files = Vec<(String, Vec<u8>)>;

/// Files of a directory of the site that a format consists of: neither locks nor the working database.
fn files_below(site: &Site, top: &str) -> Files {
    let (mut found, mut open) = (Vec::new(), vec![top.to_owned()]);
    while let Some(name) = open.pop() {
        for entry in fs::read_dir(site.path(&name)).unwrap() {
            let path = entry.unwrap().path();
            let inner = format!("{name}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() && inner != "state/work" {
                open.push(inner);
            } else if path.is_file() && !inner.ends_with("/LOCK") {
                found.push((inner, fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Writes a tar archive of the plainest kind (ustar), packed with zstd.
fn pack(path: &Path, files: &Files) {
    let mut tar = Vec::new();
    for (name, bytes) in files {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        assert!(name.len() <= 100, "{name}");
        put(0, name);
        put(100, "0000644\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", bytes.len()));
        put(136, "00000000000\0");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&header);
        tar.extend_from_slice(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1_024, 0);
    fs::write(path, zstd::encode_all(tar.as_slice(), 19).unwrap()).unwrap();
}

/// Lays the files of an archive out in the site.
pub(crate) fn unpack(path: &Path, site: &Site) {
    let tar = zstd::decode_all(fs::File::open(path).unwrap()).unwrap();
    let mut rest = tar.as_slice();
    while let Some((header, after)) = rest.split_first_chunk::<512>() {
        if header[0] == 0 {
            break;
        }
        let text = |range: std::ops::Range<usize>| {
            let field = &header[range];
            let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
            std::str::from_utf8(&field[..end]).unwrap().trim().to_owned()
        };
        let (name, length) = (text(0..100), usize::from_str_radix(&text(124..136), 8).unwrap());
        assert!(!name.starts_with('/') && !name.contains(".."), "{name}");
        if header[156] != b'5' {
            site.write(&name, &after[..length]);
        }
        rest = &after[length.next_multiple_of(512)..];
    }
}
