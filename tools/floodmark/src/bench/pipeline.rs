//! The whole pipeline, as a child process: `floodmark run` with a file made for it. In a process of its own its peak
//! memory is its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use serde::Deserialize;

use super::report::Measured;

/// Time between two looks at the child's peak memory. The kernel keeps the peak, so only growth in the last moments
/// before the exit can be missed.
const LOOK: Duration = Duration::from_millis(10);

/// What to run.
pub(super) struct Setup<'a> {
    /// The input.
    pub(super) text: &'a Path,
    /// Where state and output go.
    pub(super) dir: &'a Path,
    /// Name of the shape.
    pub(super) name: &'a str,
    /// Memory budget.
    pub(super) memory_mib: u64,
    /// Length of the windows.
    pub(super) window: &'a str,
    /// Whether the end of the input closes what is open.
    pub(super) close_at_end: bool,
    /// Whether people see how it goes on.
    pub(super) show: bool,
}

impl Setup<'_> {
    /// The directory of a run.
    pub(super) fn work(&self) -> PathBuf {
        self.dir.join(format!("{}-run", self.name))
    }
}

/// The part of the summary of `floodmark run --json` that matters here.
#[derive(Deserialize)]
struct Summary {
    events: u64,
    total: Totals,
    checkpoints: Checkpoints,
    open_panes: u64,
}

#[derive(Deserialize)]
struct Totals {
    results: std::collections::BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Checkpoints {
    count: u64,
    pause_ms_max: f64,
}

/// Runs the pipeline once from nothing. The time includes the start and the end of the process.
pub(super) fn measure(setup: &Setup<'_>) -> Result<Measured, Error> {
    let work = setup.work();
    remove(&work)?;
    let measured = run(setup);
    remove(&work)?;
    measured
}

/// Runs the pipeline on what is there, and leaves it there.
#[expect(clippy::disallowed_methods, reason = "a file of the measurement, thrown away after it")]
pub(super) fn run(setup: &Setup<'_>) -> Result<Measured, Error> {
    let work = setup.work();
    fs::create_dir_all(&work).map_err(|error| failed("cannot create the directory of a run", error))?;
    let file = work.join("pipeline.toml");
    fs::write(&file, pipeline_file(setup)?)
        .map_err(|error| failed("cannot write the pipeline file", error))?;
    run_child(&file, setup.show)
}

fn run_child(file: &Path, show: bool) -> Result<Measured, Error> {
    let program = std::env::current_exe().map_err(|error| failed("cannot find this program", error))?;
    let clock = SystemClock::shared();
    let started = clock.monotonic();
    let child = Command::new(program)
        .args(["run", "--json"])
        .args((!show).then_some("--quiet"))
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(if show { Stdio::inherit() } else { Stdio::piped() })
        .spawn()
        .map_err(|error| failed("cannot start the pipeline", error))?;
    let (ended, observer) = observe(&child)?;
    let output = child.wait_with_output().map_err(|error| failed("cannot wait for the pipeline", error));
    let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
    drop(ended);
    let peak_rss_bytes = observer.join().ok().flatten();
    let output = output?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(ErrorKind::Unavailable, format!("the pipeline failed:\n{}", said.trim_end())));
    }
    let summary: Summary = serde_json::from_slice(&output.stdout).map_err(|error| {
        Error::new(ErrorKind::Bug, "the summary of the pipeline cannot be read").with_source(error)
    })?;
    Ok(Measured {
        events: summary.events,
        results: summary.total.results.values().sum(),
        seconds,
        checkpoints: Some(summary.checkpoints.count),
        pause_ms_max: Some(summary.checkpoints.pause_ms_max),
        peak_rss_bytes,
        resident_panes: Some(summary.open_panes),
    })
}

/// Follows the child's peak memory on a thread until the sender is dropped; `None` where the system does not tell.
fn observe(child: &Child) -> Result<(Sender<()>, JoinHandle<Option<u64>>), Error> {
    let status = format!("/proc/{}/status", child.id());
    let (ended, wait) = channel::<()>();
    let look = move || {
        let mut peak = None;
        loop {
            let now = fs::read_to_string(&status).ok().as_deref().and_then(peak_rss);
            peak = peak.max(now);
            if wait.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                return peak;
            }
        }
    };
    let thread = std::thread::Builder::new().name("floodmark-bench-memory".to_owned()).spawn(look);
    Ok((ended, thread.map_err(|error| failed("cannot start a thread", error))?))
}

/// `VmHWM` of a Linux process status, in bytes.
fn peak_rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1_024)
}

fn pipeline_file(setup: &Setup<'_>) -> Result<String, Error> {
    let text = fs::canonicalize(setup.text).map_err(|error| failed("cannot find the text", error))?;
    let text = text.to_str().filter(|path| !path.contains(['\'', '\n']));
    let text = text.ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "the directory has a name that a pipeline file cannot hold")
            .with_remedy("give another with --dir")
    })?;
    Ok(format!(
        "name = 'bench-{}'
[source]
path = '{text}'
time = {{ field = 'ts', format = 'epoch_ms' }}
[watermark]
delay = '5s'
close_at_end = {}
[state]
directory = 'state'
memory = '{}MiB'
[checkpoint]
interval = '10s'
[[window]]
name = 'bench'
key = ['key']
type = 'tumbling'
size = '{}'
aggregates = [
  {{ name = 'count', function = 'count' }},
  {{ name = 'sum', function = 'sum', field = 'value', type = 'int' }},
  {{ name = 'min', function = 'min', field = 'value', type = 'int' }},
  {{ name = 'max', function = 'max', field = 'value', type = 'int' }},
]
output = {{ path = 'out', format = 'jsonl' }}
[late]
path = 'late'
",
        setup.name, setup.close_at_end, setup.memory_mib, setup.window
    ))
}

/// Removes the directory of a run, if it is there.
pub(super) fn remove(work: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(work) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("cannot remove the directory of a run", error))
        }
        _ => Ok(()),
    }
}

fn failed(message: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use floodmark::pipeline::config::PipelineConfig;

    use super::*;

    #[test]
    fn peak_memory_is_read_from_a_process_status() {
        assert_eq!(peak_rss("Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   1024 kB\n"), Some(1 << 20));
        assert_eq!(peak_rss("Name:\tx\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn the_pipeline_file_of_a_run_is_accepted() {
        let folder = tempfile::tempdir().expect("a directory");
        let text = folder.path().join("s1.jsonl");
        fs::File::create(&text).expect("created");
        let setup = Setup {
            text: &text,
            dir: Path::new("."),
            name: "s1",
            memory_mib: 512,
            window: "1m",
            close_at_end: true,
            show: false,
        };
        let file = pipeline_file(&setup).expect("a file");
        let config = PipelineConfig::from_str(&file, Path::new("pipeline.toml")).expect("accepted");
        assert_eq!((config.state.memory_bytes, config.checkpoint.interval.as_millis()), (512 << 20, 10_000));
    }
}
