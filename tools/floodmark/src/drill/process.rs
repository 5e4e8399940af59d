//! A run as a child process, seen from the drill: started, watched, killed, and what it said. Knows nothing of why.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU32;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use floodmark::clock::Clock;
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::StopFlag;

use super::child::{Finished, Line};

/// Time between two looks at a child that is waited for.
const LOOK: Duration = Duration::from_millis(1);
/// More of what a run says on standard error is not read.
const STDERR_BYTES_MAX: u64 = 64 << 10;

/// What all runs of a drill have in common.
#[derive(Clone, Debug)]
pub(super) struct Runner {
    /// The executable.
    pub(super) program: PathBuf,
    /// The pipeline file.
    pub(super) pipeline: PathBuf,
    /// Checkpoints come at least so often.
    pub(super) interval_ms: i64,
    /// A run that takes longer is taken for one that hangs.
    pub(super) patience: Duration,
    pub(super) clock: Arc<dyn Clock>,
    /// Set when the drill is to stop.
    pub(super) stop: StopFlag,
}

/// How one run differs from another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// No more events per second than this.
    pub(super) rate: Option<NonZeroU32>,
    /// The checkpoint to restore, its later output set aside; the newest when left out.
    pub(super) at: Option<u64>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// The exit code; none when it was killed.
    pub(super) code: Option<i32>,
    /// The checkpoint that it had restored; outer none when it did not get so far.
    pub(super) restored: Option<Option<u64>>,
    /// From the start of the process until its first event was processed; where none was left, until it was ready.
    pub(super) recovery: Option<Duration>,
    /// Of these, by its own account, restoring.
    pub(super) restoring_ms: Option<f64>,
    pub(super) finished: Option<Finished>,
    /// From the start of the process to its end.
    pub(super) wall: Duration,
    /// The last of what it said on standard error.
    pub(super) stderr: String,
}

impl Ended {
    /// Why this was not a run to the end of the input.
    pub(super) fn failure(&self) -> Option<String> {
        match (&self.finished, self.code) {
            (Some(finished), Some(0)) if finished.outcome == "completed" => None,
            (Some(finished), Some(0)) => {
                Some(format!("it was {} before the end of its input", finished.outcome))
            }
            (_, code) => {
                let code = code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
                Some(format!("it ended with {code}: {}", self.stderr.trim_end()))
            }
        }
    }
}

/// A run that goes on.
pub(super) struct Running<'a> {
    runner: &'a Runner,
    child: Child,
    lines: Receiver<(Duration, Line)>,
    started: Duration,
    stderr: PathBuf,
}

impl Runner {
    /// Starts a run in `root`.
    ///
    /// # Errors
    /// `Unavailable` when no process can be started.
    pub(super) fn start(&self, root: &Path, how: How) -> Result<Running<'_>, Error> {
        let failed = |message: &str, error| Error::new(ErrorKind::Unavailable, message).with_source(error);
        let stderr = root.join("stderr");
        let file =
            File::create(&stderr).map_err(|error| failed("cannot write in the scratch directory", error))?;
        let mut command = Command::new(&self.program);
        command.arg("drill-run").arg(&self.pipeline).arg("--scratch").arg(root);
        command.arg("--interval-ms").arg(self.interval_ms.to_string());
        if let Some(rate) = how.rate {
            command.arg("--rate").arg(rate.to_string());
        }
        if let Some(epoch) = how.at {
            command.arg("--at").arg(epoch.to_string()).arg("--set-aside-output");
        }
        // In a group of its own: a Ctrl-C is for the drill, which ends the run.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).process_group(0);
        let started = self.clock.monotonic();
        let mut child =
            command.spawn().map_err(|error| failed("cannot start a run of the pipeline", error))?;
        let stdout = child.stdout.take();
        let (sender, lines) = channel();
        let clock = Arc::clone(&self.clock);
        // A run says three lines, and the thread ends with it.
        let listen = move || {
            for line in
                stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
            {
                if let Ok(line) = serde_json::from_str(&line) {
                    let _ = sender.send((clock.monotonic(), line));
                }
            }
        };
        let thread = std::thread::Builder::new().name("drill-lines".to_owned()).spawn(listen);
        let running = Running { runner: self, child, lines, started, stderr };
        thread.map_err(|error| failed("cannot start a thread", error))?;
        Ok(running)
    }

    /// Runs to the end, however that comes.
    ///
    /// # Errors
    /// `Unavailable` when no process can be started, or the drill is to stop.
    pub(super) fn run(&self, root: &Path, how: How) -> Result<Ended, Error> {
        self.start(root, how)?.wait()
    }

    /// The error that ends a drill which is to stop.
    ///
    /// # Errors
    /// That one.
    pub(super) fn heed_stop(&self) -> Result<(), Error> {
        if self.stop.is_set() {
            return Err(Error::new(ErrorKind::Unavailable, "the drill was interrupted"));
        }
        Ok(())
    }
}

impl Running<'_> {
    /// Time since the start of the process.
    pub(super) fn age(&self) -> Duration {
        self.runner.clock.monotonic().saturating_sub(self.started)
    }

    /// True once it has ended by itself.
    ///
    /// # Errors
    /// `Unavailable` when the system does not say, or the drill is to stop.
    pub(super) fn has_ended(&mut self) -> Result<bool, Error> {
        self.runner.heed_stop()?;
        Ok(self.child.try_wait().map_err(not_waited)?.is_some())
    }

    /// Kills it outright and collects what it said.
    ///
    /// # Errors
    /// `Unavailable` when the system does not let it be killed.
    pub(super) fn kill(mut self) -> Result<Ended, Error> {
        self.child.kill().map_err(not_waited)?;
        self.collect()
    }

    /// Waits for its end. One that takes too long is killed, and has no exit code.
    ///
    /// # Errors
    /// As [`Self::has_ended`].
    pub(super) fn wait(mut self) -> Result<Ended, Error> {
        while !self.has_ended()? {
            if self.age() > self.runner.patience {
                let mut ended = self.kill()?;
                ended.code = None;
                ended.stderr = "it did not end and was killed".to_owned();
                return Ok(ended);
            }
            std::thread::sleep(LOOK);
        }
        self.collect()
    }

    fn collect(mut self) -> Result<Ended, Error> {
        let status = self.child.wait().map_err(not_waited)?;
        let wall = self.age();
        let mut ended = Ended {
            code: status.code(),
            restored: None,
            recovery: None,
            restoring_ms: None,
            finished: None,
            wall,
            stderr: String::new(),
        };
        let mut ready = None;
        // Ends when the thread has read everything.
        while let Ok((at, line)) = self.lines.recv() {
            let since = at.saturating_sub(self.started);
            match line {
                Line::Started { epoch, took_ms } => {
                    (ended.restored, ended.restoring_ms, ready) = (Some(epoch), Some(took_ms), Some(since));
                }
                Line::FirstEvent => ended.recovery = Some(since),
                Line::Finished(finished) => ended.finished = Some(finished),
            }
        }
        if ended.finished.is_some() {
            ended.recovery = ended.recovery.or(ready);
        }
        let mut said = Vec::new();
        let read =
            File::open(&self.stderr).and_then(|file| file.take(STDERR_BYTES_MAX).read_to_end(&mut said));
        if read.is_ok() {
            ended.stderr = String::from_utf8_lossy(&said).into_owned();
        }
        Ok(ended)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Does nothing to one that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn not_waited(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "cannot follow a run of the pipeline").with_source(error)
}
