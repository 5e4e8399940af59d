//! Says what the machine lacks, installs it where nobody needs to be asked, and names the command elsewhere.
//!
//! Puts `native` (what is there) and `platform` (how it is had) together; runs before anything is built.

use std::process::{Command, Stdio};

use crate::native::{self, Finding, Native};
use crate::platform::{self, PLATFORMS};
use crate::step::Failure;

/// `cargo xtask doctor`: the report, and the cure if there is one.
pub(crate) fn run() -> Result<(), Failure> {
    let native = ready()?;
    println!("{}", report(&native));
    println!("{}", line("PostgreSQL", &server()));
    for (name, value) in &native.env {
        println!("  for cargo without xtask: export {name}={value}");
    }
    println!("Everything that the build needs is here.");
    Ok(())
}

/// The native tools, after installing what was missing; the failure has been explained to the reader.
pub(crate) fn ready() -> Result<Native, Failure> {
    let native = Native::detect();
    if native.is_complete() {
        return Ok(native);
    }
    eprintln!("{}", report(&native));
    if native.is_misset() {
        eprintln!(
            "Correct the variable, or unset it to let the usual places be searched; then repeat the command."
        );
        return Err(Failure::Incomplete);
    }
    let Some(commands) = platform::unattended() else {
        eprintln!("{}", advice());
        return Err(Failure::Incomplete);
    };
    for words in commands {
        eprintln!("==> {}", words.join(" "));
        if !succeeds(&words) {
            eprintln!("xtask: `{}` did not succeed\n{}", words.join(" "), advice());
            return Err(Failure::Incomplete);
        }
    }
    let native = Native::detect();
    if native.is_complete() {
        return Ok(native);
    }
    eprintln!("Still missing after the installation:\n{}\n{}", report(&native), advice());
    Err(Failure::Incomplete)
}

/// Variable with which tests go by without a server.
const SKIP_SERVER: &str = "FLOODMARK_SKIP_POSTGRES";

/// The server that tests start, after installing it where nobody needs to be asked. Without one, and without the
/// variable that says to do without, its tests fail and say so; everything else runs.
pub(crate) fn server() -> Finding {
    let found = native::find_server();
    if matches!(found, Finding::Found(_)) || std::env::var_os(SKIP_SERVER).is_some() {
        return found;
    }
    eprintln!("{}", line("PostgreSQL", &found));
    for words in platform::unattended_server().into_iter().flatten() {
        eprintln!("==> {}", words.join(" "));
        if !succeeds(&words) {
            eprintln!("xtask: `{}` did not succeed", words.join(" "));
            break;
        }
    }
    let found = native::find_server();
    if matches!(found, Finding::Missing(_)) {
        eprintln!(
            "Tests of tables need a PostgreSQL server. Install it, or set {SKIP_SERVER}=1 to go without them:"
        );
        let here = platform::here().map_or_else(|| PLATFORMS.to_vec(), |platform| vec![platform]);
        for platform in here {
            eprintln!("  {:15}  {}", platform.name, platform.install_server);
        }
    }
    found
}

fn succeeds(words: &[String]) -> bool {
    words.split_first().is_some_and(|(program, args)| {
        Command::new(program).args(args).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
    })
}

fn line(what: &str, finding: &Finding) -> String {
    match finding {
        Finding::Found(which) => format!("  {what:13} ok       {which}"),
        Finding::Missing(why) => format!("  {what:13} MISSING  {why}"),
        Finding::Misset(why) => format!("  {what:13} WRONG    {why}"),
    }
}

fn report(native: &Native) -> String {
    [line("C++ compiler", &native.compiler), line("libclang", &native.libclang)].join("\n")
}

/// The exact command for this platform, or for each one where the platform is not known.
fn advice() -> String {
    let mut text =
        "Floodmark builds RocksDB from source, which needs a C++20 compiler and libclang.\n".to_owned();
    match platform::here() {
        Some(platform) => text += &format!("Install them, then repeat the command:\n  {}", platform.install),
        None => {
            text += "Install them with one of these, then repeat the command:";
            for platform in PLATFORMS {
                text += &format!("\n  {:15}  {}", platform.name, platform.install);
            }
        }
    }
    if platform::is_musl() {
        text += "\nRust from rustup makes static programs here, which cannot load libclang; also set\n  \
                 export RUSTFLAGS=\"-C target-feature=-crt-static\"";
    }
    text + "\nWith libclang in an unusual place, set LIBCLANG_PATH to its directory; with another compiler, set CXX."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_is_missing_and_why() {
        let native = Native {
            compiler: Finding::Found("c++".to_owned()),
            libclang: Finding::Missing("libclang is in none of the usual places".to_owned()),
            env: Vec::new(),
        };
        let report = report(&native);
        assert!(report.contains("C++ compiler  ok       c++"), "{report}");
        assert!(report.contains("libclang      MISSING  libclang is in none"), "{report}");
    }

    #[test]
    fn the_advice_holds_a_command_to_type() {
        assert!(PLATFORMS.iter().any(|platform| advice().contains(platform.install)));
    }
}
