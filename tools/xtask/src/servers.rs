//! Finds or installs what tests run besides this repository: a server that speaks S3, and promtool, which checks metrics
//! and alert rules.
//!
//! Installed into a cache outside of the repository; nothing is installed for the whole machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::platform::{on_path, output};
use crate::step::{Failure, Steps};

/// moto keeps objects in memory and honours If-Match and If-None-Match.
const MOTO: &str = "5.2.5";
/// The variable by which tests find it.
const S3_SERVER: &str = "FLOODMARK_S3_SERVER";
/// The variable by which tests that need it are left out.
const SKIP: &str = "FLOODMARK_SKIP_S3";

/// The variable by which tests find promtool. Without it they look for it on the path, and else say that they skip.
const PROMTOOL: &str = "FLOODMARK_PROMTOOL";

/// `cargo xtask servers`.
pub(crate) fn run() -> Result<(), Failure> {
    let mut list = Steps::new(Vec::new());
    if let Some(program) = promtool(&mut list) {
        println!("export {PROMTOOL}={program}");
    } else {
        eprintln!("{NO_PROMTOOL}");
    }
    let found = ready(&mut list);
    if let Some(program) = found {
        println!("export {S3_SERVER}={program}");
        return Ok(());
    }
    eprintln!("{}", advice());
    Err(Failure::Incomplete)
}

/// Sets the variables of the tests, installing what is missing. Where that is not possible it says so, and the tests
/// that need the server fail and say it again.
pub(crate) fn prepare(steps: &mut Steps) {
    match promtool(steps) {
        Some(program) => steps.set(PROMTOOL, &program),
        None => steps.skip("promtool", NO_PROMTOOL),
    }
    if env::var_os(SKIP).is_some_and(|value| value == "1") {
        steps.skip("S3 server", &format!("{SKIP}=1: tests against a real S3 server are left out"));
        return;
    }
    match ready(steps) {
        Some(program) => steps.set(S3_SERVER, &program),
        None => eprintln!("{}", advice()),
    }
}

/// Said where promtool is not to be had.
const NO_PROMTOOL: &str = "promtool of Prometheus is not on the path, and could not be had from Debian's packages: what it checks \
                           of metrics and alert rules is left out";

/// The program that checks metrics and alert rules. Taken out of Debian's package without installing that, which would
/// start a server.
fn promtool(steps: &mut Steps) -> Option<String> {
    if let Ok(program) = env::var(PROMTOOL) {
        return Some(program);
    }
    if on_path("promtool") {
        return Some("promtool".to_owned());
    }
    let dir = cache()?.join("prometheus");
    let program = dir.join("usr").join("bin").join("promtool");
    if !program.is_file() {
        if !on_path("apt-get") || !on_path("dpkg-deb") {
            return None;
        }
        fs::create_dir_all(&dir).ok()?;
        // It downloads to where it stands, and steps stand at the root of the repository.
        let mut download = Command::new("env");
        download.arg("-C").arg(&dir).args(["apt-get", "download", "prometheus"]).stdin(Stdio::null());
        steps.run("promtool", "apt-get download prometheus", download).ok()?;
        let package = package_in(&dir)?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&package).arg(&dir).stdin(Stdio::null());
        steps.run("promtool", &format!("dpkg-deb -x {}", package.display()), unpack).ok()?;
    }
    let program = program.to_str()?;
    output(program, &["--version"]).map(|_| program.to_owned())
}

/// The package that was downloaded.
fn package_in(dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "deb")).max()
}

/// The server's program.
fn ready(steps: &mut Steps) -> Option<String> {
    if let Ok(program) = env::var(S3_SERVER) {
        return Some(program);
    }
    let dir = cache()?.join(format!("moto-{MOTO}"));
    let program = dir.join("bin").join("moto_server");
    if program.is_file() {
        return program.to_str().map(str::to_owned);
    }
    if !on_path("python3") {
        return on_path("moto_server").then(|| "moto_server".to_owned());
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&dir).stdin(Stdio::null());
    let mut pip = Command::new(dir.join("bin").join("pip"));
    pip.args(["install", "--quiet", &format!("moto[server]=={MOTO}")]).stdin(Stdio::null());
    let installed = steps
        .run("S3 server", &format!("python3 -m venv {}", dir.display()), venv)
        .and_then(|()| steps.run("S3 server", &format!("pip install moto[server]=={MOTO}"), pip));
    match installed {
        Ok(()) if output(&program.to_string_lossy(), &["--help"]).is_some() => {
            program.to_str().map(str::to_owned)
        }
        // Of another version, perhaps, but one that is there.
        _ => on_path("moto_server").then(|| "moto_server".to_owned()),
    }
}

/// Where programs of tests are kept.
fn cache() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
    Some(base.join("floodmark"))
}

fn advice() -> String {
    format!(
        "The tests of repositories need an S3 server, which could not be installed (python3 with venv and pip, and PyPI).\n\
         Install it yourself, `pip install 'moto[server]=={MOTO}'`, and set {S3_SERVER} to its moto_server;\n\
         or leave these tests out with {SKIP}=1."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_the_way_out() {
        assert!(advice().contains("moto[server]") && advice().contains(SKIP));
    }
}
