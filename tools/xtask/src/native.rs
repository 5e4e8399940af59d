//! Finds the native tools that RocksDB needs: a C++20 compiler, and libclang for its bindings.
//!
//! Looks where the build itself will look, and says what the build must be told where that is not enough.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::platform::{on_path, output};

/// A program that only a C++20 compiler with its standard library accepts.
const PROBE: &str =
    "#include <atomic>\n#include <span>\nint main() { std::span<int> none; return int(none.size()); }\n";

/// What was found of one native tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Works; the text says which.
    Found(String),
    /// Not there, or too old; the text says why.
    Missing(String),
    /// A variable names something that does not work; no installation helps, only the reader can mend it.
    Misset(String),
}

/// The native side of this machine.
pub(crate) struct Native {
    /// The C++ compiler.
    pub(crate) compiler: Finding,
    /// libclang.
    pub(crate) libclang: Finding,
    /// Variables that the build needs to find what was found.
    pub(crate) env: Vec<(&'static str, String)>,
}

impl Native {
    /// Looks at the machine; takes well under a second.
    pub(crate) fn detect() -> Self {
        let mut env = Vec::new();
        let compiler = find_compiler(&mut env);
        let libclang = find_libclang(&mut env);
        Self { compiler, libclang, env }
    }

    /// Whether a build can start.
    pub(crate) fn is_complete(&self) -> bool {
        self.findings().all(|finding| matches!(finding, Finding::Found(_)))
    }

    /// Whether a variable of the reader's is in the way.
    pub(crate) fn is_misset(&self) -> bool {
        self.findings().any(|finding| matches!(finding, Finding::Misset(_)))
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        [&self.compiler, &self.libclang].into_iter()
    }
}

/// A PostgreSQL server, which only tests need; distributions keep its programs off the search path.
pub(crate) fn find_server() -> Finding {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&path).collect();
    for root in ["/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt"] {
        places.push(Path::new(root).join("bin"));
        places.extend(children(Path::new(root)).into_iter().rev().map(|version| version.join("bin")));
    }
    match places.into_iter().find(|place| place.join("initdb").is_file() && place.join("postgres").is_file())
    {
        Some(place) => Finding::Found(place.join("postgres").display().to_string()),
        None => Finding::Missing("postgres and initdb are in none of the usual places".to_owned()),
    }
}

fn find_compiler(env: &mut Vec<(&'static str, String)>) -> Finding {
    if let Ok(chosen) = env::var("CXX") {
        return match try_compiler(&chosen) {
            Ok(()) => Finding::Found(format!("{chosen} (from CXX)")),
            Err(reason) => Finding::Misset(format!("CXX={chosen} does not work: {reason}")),
        };
    }
    let mut last = "none of c++, g++, clang++ is on the path".to_owned();
    for name in ["c++", "g++", "clang++"].into_iter().filter(|name| on_path(name)) {
        match try_compiler(name) {
            Ok(()) => {
                if name != "c++" {
                    env.push(("CXX", name.to_owned()));
                }
                return Finding::Found(name.to_owned());
            }
            Err(reason) => last = format!("{name} cannot compile C++20: {reason}"),
        }
    }
    Finding::Missing(last)
}

/// Compiles [`PROBE`] without writing anything; the error is the compiler's first line.
fn try_compiler(command: &str) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let program = words.next().ok_or("the name is empty")?;
    let mut child = Command::new(program)
        .args(words)
        .args(["-std=c++20", "-x", "c++", "-fsyntax-only", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A compiler that refuses its arguments closes the pipe first; its own message is the better one.
        drop(stdin.write_all(PROBE.as_bytes()));
    }
    let done = child.wait_with_output().map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(said.lines().find(|line| line.contains("error")).unwrap_or("it failed").to_owned())
}

fn find_libclang(env: &mut Vec<(&'static str, String)>) -> Finding {
    if let Some(chosen) = env::var_os("LIBCLANG_PATH") {
        let chosen = PathBuf::from(chosen);
        return match library_in(&chosen).or_else(|| chosen.is_file().then(|| chosen.clone())) {
            Some(library) => Finding::Found(format!("{} (from LIBCLANG_PATH)", library.display())),
            None => Finding::Misset(format!("LIBCLANG_PATH={} holds no libclang", chosen.display())),
        };
    }
    if let Some(library) = searched_by_the_build().iter().find_map(|dir| library_in(dir)) {
        return Finding::Found(library.display().to_string());
    }
    if let Some(library) = known_to_the_loader() {
        if let Some(dir) = library.parent() {
            env.push(("LIBCLANG_PATH", dir.display().to_string()));
        }
        return Finding::Found(library.display().to_string());
    }
    Finding::Missing("libclang is in none of the usual places".to_owned())
}

/// The directories that the bindings generator searches by itself.
fn searched_by_the_build() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Some(prefix) = output("llvm-config", &["--prefix"]) {
        dirs.push(Path::new(prefix.trim()).join("lib"));
    }
    for root in ["/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/local/lib", "/usr/local/lib64"] {
        dirs.push(root.into());
        for child in children(Path::new(root)) {
            dirs.push(child.join("lib"));
            dirs.push(child);
        }
    }
    dirs.extend(
        [
            "/usr/local/opt/llvm/lib",
            "/opt/homebrew/opt/llvm/lib",
            "/Library/Developer/CommandLineTools/usr/lib",
            "/Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib",
        ]
        .map(PathBuf::from),
    );
    dirs
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut children: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    children.sort();
    children
}

fn library_in(dir: &Path) -> Option<PathBuf> {
    children(dir).into_iter().find(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        is_libclang(&name) && path.exists()
    })
}

/// `libclang.so`, `libclang-14.so.1`, `libclang.dylib`; not `libclang-cpp.so`, which is another library.
fn is_libclang(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("libclang") else { return false };
    let kind = match rest.strip_prefix('-') {
        Some(versioned) => match versioned.split_once(".so") {
            Some((version, _)) if version.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
                &versioned[version.len()..]
            }
            _ => return false,
        },
        None => rest,
    };
    kind == ".dylib" || kind == ".so" || kind.starts_with(".so.")
}

fn known_to_the_loader() -> Option<PathBuf> {
    let listing = output("ldconfig", &["-p"]).or_else(|| output("/sbin/ldconfig", &["-p"]))?;
    listing
        .lines()
        .filter(|line| line.split_whitespace().next().is_some_and(is_libclang))
        .filter_map(|line| line.split_once("=> "))
        .map(|(_, path)| PathBuf::from(path.trim()))
        .find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_told_from_its_neighbours_by_name() {
        for name in
            ["libclang.so", "libclang.so.1", "libclang-14.so.14.0.6", "libclang-19.so", "libclang.dylib"]
        {
            assert!(is_libclang(name), "{name}");
        }
        for name in ["libclang-cpp.so.14", "libclang_rt.asan.so", "libclangAST.a", "libclang.a", "clang.so"] {
            assert!(!is_libclang(name), "{name}");
        }
    }

    #[test]
    fn a_compiler_that_does_not_exist_is_missing_with_a_reason() {
        assert!(try_compiler("no-such-compiler-here").is_err());
        assert!(try_compiler("").is_err());
    }

    #[test]
    fn a_directory_without_libclang_gives_nothing() {
        assert_eq!(library_in(Path::new("/no/such/dir")), None);
    }
}
