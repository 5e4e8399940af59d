//! SIGTERM and SIGINT: the first drains the task, the second ends the process at once, which is as safe as a crash.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::config::PipelineConfig;
use super::report::{RunSummary, Watch};
use super::task::{RunOptions, StopFlag, run};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// Exit code of a process that was told to stop twice.
const EXIT_IMPATIENT: i32 = 130;

/// Waits for signals for as long as it lives.
#[derive(Debug)]
pub struct Signals {
    _runtime: tokio::runtime::Runtime,
}

/// As [`run`], and stops with a last checkpoint on SIGTERM or SIGINT.
///
/// # Errors
/// As [`run`], and [`ErrorKind::Unavailable`] when signals cannot be waited for.
pub fn run_until_signalled(
    config: &PipelineConfig,
    options: RunOptions,
    clock: Arc<dyn Clock>,
    watch: &mut dyn Watch,
) -> Result<RunSummary> {
    let stop = StopFlag::default();
    let _signals = stop_on_signals(&stop)?;
    run(config, options, &stop, clock, watch)
}

/// Sets `flag` on SIGTERM or SIGINT, for programs that run pipelines themselves. A second signal ends the process at once.
///
/// # Errors
/// [`ErrorKind::Unavailable`] when signals cannot be waited for.
pub fn stop_on_signals(flag: &StopFlag) -> Result<Signals> {
    let unavailable = |error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, "cannot wait for signals").with_source(error)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("floodmark-signals")
        .enable_all()
        .build()
        .map_err(unavailable)?;
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate()).map_err(unavailable)?,
            signal(SignalKind::interrupt()).map_err(unavailable)?,
        )
    };
    let flag = flag.clone();
    runtime.spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if flag.is_set() {
                tracing::warn!("stopping at once; the last checkpoint stands");
                std::process::exit(EXIT_IMPATIENT);
            }
            tracing::info!("stopping after a last checkpoint; once more stops at once");
            flag.stop();
        }
    });
    Ok(Signals { _runtime: runtime })
}
