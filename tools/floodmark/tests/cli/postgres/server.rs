//! A PostgreSQL server of the test's own: its data in memory, a socket in its directory, gone with the test.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use postgres::{Client, NoTls};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::wait_until;

/// Tests say that they need a server, and go by, when this is set and there is none.
const SKIP: &str = "FLOODMARK_SKIP_POSTGRES";
/// Who runs the server when the tests run as root, which it refuses.
const NOBODY: u32 = 65_534;

pub(crate) struct Server {
    dir: TempDir,
    programs: PathBuf,
    as_nobody: bool,
    child: Option<Child>,
}

impl Server {
    /// A running server, or `None` where there is none and the environment says to do without.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(
                std::env::var_os(SKIP).is_some(),
                "no PostgreSQL server on this machine: `cargo xtask doctor` says how to install one (Debian: \
                 apt-get install postgresql); or set {SKIP}=1 to go without these tests"
            );
            println!("no PostgreSQL server, and {SKIP} is set: nothing was tested");
            return None;
        };
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let as_nobody = rustix::process::geteuid().is_root();
        if as_nobody {
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut server = Self { dir, programs, as_nobody, child: None };
        let mut initdb = server.command("initdb");
        initdb.arg("-D").arg(server.data());
        initdb.args(["-U", "floodmark", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]);
        let made = initdb.output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.up();
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A program of the server, as somebody that it accepts.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = if self.as_nobody {
            let mut command = Command::new("setpriv");
            let id = NOBODY.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn up(&mut self) {
        let log = fs::File::create(self.dir.path().join("log")).unwrap();
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data()).arg("-k").arg(self.dir.path());
        for setting in ["listen_addresses=", "fsync=off", "shared_buffers=16MB", "max_connections=30"] {
            postgres.args(["-c", setting]);
        }
        postgres.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(postgres.spawn().unwrap());
        wait_until("the server answers", || Client::connect(&self.url(), NoTls).is_ok());
    }

    /// Stops it as a crash does: sessions are cut off, and it recovers at the next start.
    pub(crate) fn down(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_process(Pid::from_child(&child), Signal::QUIT).unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("host={} user=floodmark dbname=postgres", self.dir.path().display())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.url(), NoTls).unwrap()
    }

    /// Rows of a query as text, a cell after the other, null as `null`.
    pub(crate) fn rows(&self, query: &str) -> Vec<Vec<String>> {
        let messages = self.client().simple_query(query).unwrap();
        let row = |message: &postgres::SimpleQueryMessage| match message {
            postgres::SimpleQueryMessage::Row(row) => {
                let cell = |index| row.get(index).unwrap_or("null").to_owned();
                Some((0..row.len()).map(cell).collect())
            }
            _ => None,
        };
        messages.iter().filter_map(row).collect()
    }

    /// Forgets all tables.
    pub(crate) fn reset(&self) {
        self.client().batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill_process(Pid::from_child(&child), Signal::QUIT);
            let _ = child.wait();
        }
        // Its last children are writing still.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where the server's programs are; distributions keep them off the search path.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for (root, tail) in
        [("/usr/lib/postgresql", "bin"), ("/usr/local/pgsql", "bin"), ("/opt/homebrew/opt", "bin")]
    {
        let mut versions: Vec<PathBuf> = fs::read_dir(root)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .collect();
        versions.sort();
        places.extend(versions.into_iter().rev().map(|version| version.join(tail)));
        places.push(Path::new(root).join(tail));
    }
    places.into_iter().find(|place| place.join("initdb").is_file() && place.join("postgres").is_file())
}
