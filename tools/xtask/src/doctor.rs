//! Says what the machine lacks, installs it where nobody needs to be asked, and names the command elsewhere.
//!
//! Puts `native` (what is there) and `platform` (how it is had) together; runs before anything is built.

use std::process::{Command, Stdio};

use crate::native::{Finding, Native};
use crate::platform::{self, PLATFORMS};
use crate::step::Failure;

/// `cargo xtask doctor`: the report, and the cure if there is one.
pub(crate) fn run() -> Result<(), Failure> {
    let native = ready()?;
    println!("{}", report(&native));
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

fn succeeds(words: &[String]) -> bool {
    words.split_first().is_some_and(|(program, args)| {
        Command::new(program).args(args).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
    })
}

fn report(native: &Native) -> String {
    let line = |what: &str, finding: &Finding| match finding {
        Finding::Found(which) => format!("  {what:13} ok       {which}"),
        Finding::Missing(why) => format!("  {what:13} MISSING  {why}"),
        Finding::Misset(why) => format!("  {what:13} WRONG    {why}"),
    };
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
