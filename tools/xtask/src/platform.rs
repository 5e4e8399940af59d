//! How each platform installs what the build needs.
//!
//! Knows package names and who may install; what is missing is decided in `native`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A family of systems with one package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// Name as people know it.
    pub(crate) name: &'static str,
    /// The command that says this platform is here; installing needs it too.
    manager: &'static str,
    /// What to type to install a C++ compiler and libclang.
    pub(crate) install: &'static str,
    /// What to type to install a PostgreSQL server for the tests.
    pub(crate) install_server: &'static str,
}

/// Every platform we can name a command for.
pub(crate) const PLATFORMS: [Platform; 5] = [
    Platform {
        name: "Debian, Ubuntu",
        manager: "apt-get",
        install: "sudo apt-get update && sudo apt-get install -y g++ libclang-dev",
        install_server: "sudo apt-get update && sudo apt-get install -y postgresql",
    },
    Platform {
        name: "Fedora",
        manager: "dnf",
        install: "sudo dnf install -y gcc-c++ clang-devel",
        install_server: "sudo dnf install -y postgresql-server",
    },
    Platform {
        name: "Arch",
        manager: "pacman",
        install: "sudo pacman -S --needed gcc clang",
        install_server: "sudo pacman -S --needed postgresql",
    },
    Platform {
        name: "Alpine",
        manager: "apk",
        install: "sudo apk add g++ clang-dev linux-headers",
        install_server: "sudo apk add postgresql setpriv",
    },
    Platform {
        name: "macOS",
        manager: "brew",
        install: "xcode-select --install && brew install llvm",
        install_server: "brew install postgresql",
    },
];

/// The platform of this machine, if it is one of ours.
pub(crate) fn here() -> Option<Platform> {
    PLATFORMS.into_iter().find(|platform| on_path(platform.manager))
}

/// True when Rust here makes static musl programs, which cannot load libclang at build time.
pub(crate) fn is_musl() -> bool {
    Path::new("/etc/alpine-release").exists()
}

/// The command prefix with which packages can be installed without asking anybody: none for root, `sudo -n` where it
/// works, nothing at all elsewhere.
fn privilege() -> Option<&'static [&'static str]> {
    let root = output("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    if root {
        return Some(&[]);
    }
    output("sudo", &["-n", "true"]).map(|_| ["sudo", "-n"].as_slice())
}

/// The commands that install everything here unattended; `None` where that is not ours to do.
pub(crate) fn unattended() -> Option<[Vec<String>; 2]> {
    unattended_packages("g++ libclang-dev")
}

/// As [`unattended`], for the server that tests start.
pub(crate) fn unattended_server() -> Option<[Vec<String>; 2]> {
    unattended_packages("postgresql")
}

fn unattended_packages(packages: &str) -> Option<[Vec<String>; 2]> {
    if !on_path("apt-get") {
        return None;
    }
    let prefix = privilege()?;
    let words = |line: &str| prefix.iter().copied().chain(line.split(' ')).map(str::to_owned).collect();
    Some([
        words("apt-get update"),
        words(&format!(
            "env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {packages}"
        )),
    ])
}

/// Standard output of a command that succeeded, or `None`.
pub(crate) fn output(program: &str, args: &[&str]) -> Option<String> {
    let done = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Whether a program can be found on the search path.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| fs::metadata(dir.join(program)).is_ok_and(|file| file.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_script_gives_the_same_advice() {
        let script = include_str!("../../cc.sh");
        for platform in PLATFORMS {
            assert!(script.contains(platform.install), "tools/cc.sh lacks: {}", platform.install);
            assert!(script.contains(platform.name), "tools/cc.sh lacks: {}", platform.name);
        }
    }

    #[test]
    fn a_program_that_does_not_exist_is_not_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-such-program-here"));
    }
}
