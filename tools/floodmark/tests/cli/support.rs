//! A pipeline in a directory of its own, the command run on it, and what came out.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use tempfile::TempDir;

/// The longest wait for anything that another process is to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The sample of 60,000 flights.
pub(crate) fn flights_sample() -> PathBuf {
    repository().join("examples/flights/flights.jsonl.zst")
}

/// All text of a zstd file.
pub(crate) fn unpacked(path: &Path) -> Vec<u8> {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
    zstd::decode_all(file).unwrap()
}

/// A directory with `pipeline.toml`, whose outputs go to `out/` and whose state goes to `state/`.
pub(crate) struct Site {
    dir: TempDir,
}

impl Site {
    /// Where a pipeline is run as its users run it: on a disk, or what the machine has for one.
    pub(crate) fn new(pipeline: &str) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), pipeline)
    }

    /// In memory where the machine offers that. What a killed process wrote is with the kernel either way, and syncs
    /// cost nothing there: runs have many more checkpoints, and a test many more kills. (Power cuts are another matter;
    /// `checkpoint::tests::power` makes those.)
    pub(crate) fn in_memory(pipeline: &str) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self::in_directory(dir, pipeline)
    }

    fn in_directory(dir: TempDir, pipeline: &str) -> Self {
        let site = Self { dir };
        site.write("pipeline.toml", pipeline);
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        path.parent().map(fs::create_dir_all).transpose().unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Forgets state and outputs.
    pub(crate) fn reset(&self) {
        for name in ["state", "out"] {
            match fs::remove_dir_all(self.path(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("cannot reset: {error}"),
                _ => {}
            }
        }
    }

    /// `floodmark run pipeline.toml --json` with further arguments, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
        command.arg("run").arg(self.path("pipeline.toml")).arg("--json").args(arguments);
        command.env_remove("FLOODMARK_FAULT").env_remove("FLOODMARK_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs to the end, however that comes.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).output().unwrap())
    }

    /// Runs with a fault point armed. A run from the beginning that was over before it came to the fault, for it made
    /// fewer checkpoints than the fault waits for on a busy machine, is made again with slower input.
    pub(crate) fn run_with_fault(&self, fault: &str) -> Ended {
        if self.path("state").exists() || !ends_a_run(fault) {
            return self.run_with_fault_at(fault, &[]);
        }
        ever_slower(|rate| self.run_with_fault_at(fault, rate), || self.reset())
    }

    /// Runs once with a fault point armed, whether it comes to that or not.
    pub(crate) fn run_with_fault_at(&self, fault: &str, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).env("FLOODMARK_FAULT", fault).output().unwrap())
    }

    /// Runs to the end of the input, which must come, and returns the outputs.
    pub(crate) fn complete(&self, arguments: &[&str]) -> (Json, Outputs) {
        let summary = self.run(arguments).summary();
        assert_eq!(summary["outcome"], "completed", "{summary}");
        (summary, self.outputs())
    }

    /// Everything published, by output.
    pub(crate) fn outputs(&self) -> Outputs {
        self.outputs_in("out")
    }

    /// Everything published below a directory of the site, by output.
    pub(crate) fn outputs_in(&self, out: &str) -> Outputs {
        let out = self.path(out);
        let names = |dir: &Path| -> Vec<String> {
            let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
            names.sort();
            names
        };
        let read = |output: String| {
            let dir = out.join(&output);
            let mut bytes = Vec::new();
            for part in names(&dir) {
                assert!(part.starts_with("part-"), "a file that readers do not expect: {output}/{part}");
                bytes.extend(fs::read(dir.join(part)).unwrap());
            }
            (output, bytes)
        };
        Outputs(names(&out).into_iter().map(read).collect())
    }

    /// Epochs of the complete checkpoints, oldest first.
    pub(crate) fn epochs(&self) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(self.path("state/checkpoints")) else { return Vec::new() };
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut epochs: Vec<u64> =
            entries.filter_map(|entry| name(entry).strip_prefix("chk-")?.parse().ok()).collect();
        epochs.sort_unstable();
        epochs
    }
}

/// Concatenated parts of every output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outputs(BTreeMap<String, Vec<u8>>);

impl Outputs {
    /// The rows of one output of JSON lines.
    pub(crate) fn rows(&self, output: &str) -> Vec<Json> {
        let bytes = self.0.get(output).map(Vec::as_slice).unwrap_or_default();
        let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// The lines of one output as they were written.
    pub(crate) fn lines(&self, output: &str) -> Vec<String> {
        let bytes = self.0.get(output).map(Vec::as_slice).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// The same with the lines of one output sorted.
    pub(crate) fn with_sorted(mut self, output: &str) -> Self {
        if let Some(bytes) = self.0.get_mut(output) {
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
            lines.sort_unstable();
            *bytes = lines.concat();
        }
        self
    }

    /// Each output as one part, under `top`.
    pub(crate) fn parts(&self, top: &str) -> Vec<(String, Vec<u8>)> {
        let part =
            |(name, bytes): (&String, &Vec<u8>)| (format!("{top}/{name}/part-0000000001"), bytes.clone());
        self.0.iter().map(part).collect()
    }

    pub(crate) fn bytes(&self, output: &str) -> usize {
        self.0.get(output).map_or(0, Vec::len)
    }

    /// Fails with the first line that differs. An output that nothing was written to equals one that is not there.
    pub(crate) fn assert_same_as(&self, straight: &Self, context: &str) {
        for name in straight.0.keys().chain(self.0.keys()) {
            let empty = Vec::new();
            let expected = straight.0.get(name).unwrap_or(&empty);
            let found = self.0.get(name).unwrap_or(&empty);
            if expected != found {
                panic!("{context}: output {name} differs: {}", first_difference(expected, found));
            }
        }
    }
}

fn first_difference(expected: &[u8], found: &[u8]) -> String {
    let lines = |bytes: &[u8]| -> Vec<String> {
        bytes.split(|&byte| byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    };
    let (expected, found) = (lines(expected), lines(found));
    let at = expected.iter().zip(&found).take_while(|(left, right)| left == right).count();
    let shown = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "nothing".to_owned());
    format!(
        "line {} of {} (expected {})\n  expected: {}\n  found:    {}",
        at + 1,
        found.len(),
        expected.len(),
        shown(&expected),
        shown(&found)
    )
}

/// How a run of the command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The `--json` summary of a run that ended well.
    pub(crate) fn summary(&self) -> Json {
        assert_eq!(self.code, Some(0), "signal={:?} stderr:\n{}", self.signal, self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Checks the exit code, and that standard error says all of `words`.
    pub(crate) fn assert_refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "signal={:?} stderr:\n{}", self.signal, self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "standard error does not say {word:?}:\n{}", self.stderr);
        }
        assert!(self.stderr.contains("remedy: "), "no remedy:\n{}", self.stderr);
    }
}

/// A child that does not outlive its test.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_child(self.child());
        kill_process(pid, signal).unwrap();
    }

    /// Kills it outright, unless it has ended, and collects what it said.
    pub(crate) fn kill(mut self) -> Ended {
        self.child().kill().unwrap();
        self.wait()
    }

    pub(crate) fn wait(mut self) -> Ended {
        Ended::of(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether a fault is to end the run; a delay is not.
fn ends_a_run(fault: &str) -> bool {
    fault.contains(":kill") || fault.contains(":error")
}

/// Runs with ever slower input until a run does not come to its end, for it was not too fast for its checkpoints.
pub(crate) fn ever_slower(run: impl Fn(&[&str]) -> Ended, forget: impl Fn()) -> Ended {
    let mut ended = run(&[]);
    for rate in ["40000", "10000", "2500"] {
        if ended.code != Some(0) {
            break;
        }
        forget();
        ended = run(&["--rate", rate]);
    }
    ended
}

/// Waits until `holds`.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Random numbers of one seed (SplitMix64). `SEED=…` in the environment replays a run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(test: &str) -> Self {
        use std::hash::{BuildHasher, Hasher, RandomState};
        let fresh = || RandomState::new().build_hasher().finish();
        let seed =
            std::env::var("SEED").ok().map_or_else(fresh, |seed| seed.parse().expect("SEED is a number"));
        println!("{test}: SEED={seed}");
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A time below `end`.
    pub(crate) fn time_below(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.next() % u64::try_from(end.as_nanos()).unwrap().max(1))
    }
}
