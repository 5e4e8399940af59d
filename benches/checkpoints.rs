//! What a checkpoint costs: how long processing stands still, how many bytes are new, how quickly a killed process works
//! again, and how quickly a lost machine is replaced from a repository.
//!
//! Each size runs in a process of its own, which is killed with SIGKILL after its last checkpoint; another process then
//! opens its state and takes one event. `FLOODMARK_BENCH_PANES=10000,1000000` chooses the sizes,
//! `FLOODMARK_BENCH_REPOSITORY` the repository to restore from (a directory when left out), `FLOODMARK_BENCH_DIR` the disk.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench reads the clock and prints")]

#[path = "support/count.rs"]
mod count;
#[path = "support/random.rs"]
mod random;
#[path = "support/spec.rs"]
mod spec;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floodmark::checkpoint::SourceIdentity;
use floodmark::event::{EventBatch, Number, PartitionId, ValueColumn};
use floodmark::event_time::EventTime;
use floodmark::repository::{Location, Settings};
use floodmark::store::{Barrier, CheckpointReport, WindowStore};

use count::Count;
use random::Random;
use spec::{aggregated, tumbling};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const SIZES: [u64; 3] = [10_000, 1_000_000, 10_000_000];
const BATCH: u64 = 8_192;
const MEMORY_BYTES: usize = 512 << 20;
const START: i64 = 1_700_006_400_000;
const DAY: i64 = 86_400_000;
/// Checkpoints after the first one.
const CHECKPOINTS: usize = 100;
/// Panes that change between two checkpoints: one in so many, but no more than [`CHANGED_MAX`].
const ONE_IN: u64 = 100;
const CHANGED_MAX: u64 = 50_000;
/// What tells a child what to do.
const ROLE: &str = "FLOODMARK_BENCH_ROLE";
const LOADED: &str = "loaded";

fn open(state: &Path, repository: Option<&str>) -> Outcome<WindowStore> {
    let spec = aggregated(tumbling(DAY)?);
    let repository = match repository {
        Some(location) => Some(Settings::new(Location::parse(location, Path::new("/"))?.open()?)),
        None => None,
    };
    let builder =
        WindowStore::builder("bench").window(spec).memory_bytes(MEMORY_BYTES).repository(repository);
    let mut store = builder.open(state)?;
    store.partition("bench", SourceIdentity::default())?;
    Ok(store)
}

/// One event for each of these keys.
fn process(store: &mut WindowStore, keys: impl Iterator<Item = u64>) -> Outcome<()> {
    let mut batch = EventBatch::with_columns(PartitionId(0), 1, vec![ValueColumn::int()]);
    for (at, key) in keys.enumerate() {
        let value = Number::Int((key % 1_000) as i64);
        let time = EventTime::from_millis(START + (key % 1_000) as i64);
        batch.push_event(time, &[format!("key-{key:09}").as_bytes()], &[Some(value)]);
        if (at as u64 + 1).is_multiple_of(BATCH) {
            store.process(&batch, &mut Count::default())?;
            batch = EventBatch::with_columns(PartitionId(0), 1, vec![ValueColumn::int()]);
        }
    }
    Ok(store.process(&batch, &mut Count::default())?)
}

/// Every pane once, a checkpoint, then many of them after small changes; waits to be killed.
fn load(state: &Path, panes: u64, repository: Option<&str>) -> Outcome<()> {
    let mut store = open(state, repository)?;
    let started = Instant::now();
    process(&mut store, 0..panes)?;
    let loading = started.elapsed();
    let first = store.checkpoint(Barrier::default())?;
    let changed = (panes / ONE_IN).min(CHANGED_MAX);
    let mut random = Random::new();
    let mut reports = Vec::new();
    for _ in 0..CHECKPOINTS {
        let keys = std::iter::repeat_with(|| random.below(panes));
        process(&mut store, keys.take(changed as usize))?;
        reports.push(store.checkpoint(Barrier::default())?);
    }
    let rate = panes as f64 / loading.as_secs_f64();
    println!("{panes} panes loaded at {rate:.0} events/s, peak memory {} MB", peak_memory() / 1_000_000);
    println!("  first checkpoint       {}", line(&first));
    print_repeated(changed, &reports);
    store.finish_uploads()?;
    println!("{LOADED}");
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn print_repeated(changed: u64, reports: &[CheckpointReport]) {
    let mut by_pause: Vec<_> = reports.iter().collect();
    by_pause.sort_by_key(|report| report.pause);
    println!("  {} more, {changed} events each", reports.len());
    println!("    median pause         {}", line(by_pause[reports.len() / 2]));
    println!("    longest pause        {}", line(by_pause[reports.len() - 1]));
    let new: u64 = reports.iter().map(|report| report.new_bytes).sum();
    let full: u64 = reports.iter().map(|report| report.new_bytes + report.shared_bytes).sum();
    let times = full as f64 / new.max(1) as f64;
    println!(
        "    all of them          incremental {}  full {}  ({times:.1}x)",
        megabytes(new),
        megabytes(full)
    );
}

fn line(report: &CheckpointReport) -> String {
    let beside = report.spill + report.link + report.publish;
    format!(
        "pause {:>9.3} ms  beside processing {:>8.1} ms  panes {:>9}  new {}  shared {}",
        report.pause.as_secs_f64() * 1e3,
        beside.as_secs_f64() * 1e3,
        report.panes_written,
        megabytes(report.new_bytes),
        megabytes(report.shared_bytes),
    )
}

fn megabytes(bytes: u64) -> String {
    format!("{:>9.3} MB", bytes as f64 / 1e6)
}

/// The most memory that this process has had, as the kernel tells it; 0 where it does not.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Opens the state and takes one event, as a process does that was started again.
fn restart(state: &Path, panes: u64, repository: Option<&str>) -> Outcome<()> {
    let what = if repository.is_some() { "restore on an empty machine" } else { "restart after kill -9" };
    let started = Instant::now();
    let mut store = open(state, repository)?;
    let opened = started.elapsed();
    process(&mut store, std::iter::once(panes / 2))?;
    let first = started.elapsed();
    let restored = store.restored().ok_or("nothing was restored")?;
    let bytes: u64 = restored.manifest().files.iter().map(|file| file.bytes).sum();
    let rate = bytes as f64 / 1e6 / opened.as_secs_f64();
    println!(
        "  {what:28} first event after {:>8.1} ms, of them opening {:>8.1} ms; {} at {rate:.0} MB/s",
        first.as_secs_f64() * 1e3,
        opened.as_secs_f64() * 1e3,
        megabytes(bytes),
    );
    Ok(())
}

/// This program again, in another role.
fn child(role: &str, state: &Path, panes: u64, repository: Option<&str>) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env(ROLE, role)
        .env("FLOODMARK_BENCH_STATE", state)
        .env("FLOODMARK_BENCH_PANES", panes.to_string());
    command.env_remove("FLOODMARK_BENCH_REPOSITORY");
    if let Some(repository) = repository {
        command.env("FLOODMARK_BENCH_REPOSITORY", repository);
    }
    Ok(command)
}

fn measure(directory: &Path, panes: u64) -> Outcome<()> {
    let state = directory.join(format!("state-{panes}"));
    let kept = std::env::var("FLOODMARK_BENCH_REPOSITORY").ok();
    let repository = match &kept {
        Some(location) => format!("{}/{panes}-{}", location.trim_end_matches('/'), std::process::id()),
        None => directory.join(format!("repository-{panes}")).display().to_string(),
    };
    let mut loader = child("load", &state, panes, Some(&repository))?.stdout(Stdio::piped()).spawn()?;
    let said = loader.stdout.take().ok_or("the child has no output")?;
    let mut loaded = false;
    for line in BufReader::new(said).lines() {
        let line = line?;
        loaded = line == LOADED;
        if loaded {
            break;
        }
        println!("{line}");
    }
    loader.kill()?;
    loader.wait()?;
    if !loaded {
        return Err(format!("the process that loads {panes} panes ended early").into());
    }
    let fresh = directory.join(format!("fresh-{panes}"));
    // A killed writer is still the owner in the repository; alone, the state takes it over by itself.
    for (state, repository) in [(&state, None), (&fresh, Some(repository.as_str()))] {
        if !child("restart", state, panes, repository)?.status()?.success() {
            return Err("the state was not opened".into());
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let text = std::env::var("FLOODMARK_BENCH_PANES").ok();
    let sizes = match &text {
        Some(text) => text.split(',').map(|size| size.trim().parse()).collect::<Result<Vec<u64>, _>>()?,
        None => SIZES.to_vec(),
    };
    if let Ok(role) = std::env::var(ROLE) {
        let state = PathBuf::from(std::env::var("FLOODMARK_BENCH_STATE")?);
        let repository = std::env::var("FLOODMARK_BENCH_REPOSITORY").ok();
        let act = if role == "load" { load } else { restart };
        return act(&state, sizes[0], repository.as_deref());
    }
    let directory = match std::env::var("FLOODMARK_BENCH_DIR") {
        Ok(directory) => tempfile::tempdir_in(directory)?,
        Err(_) => tempfile::tempdir()?,
    };
    sizes.into_iter().try_for_each(|panes| measure(directory.path(), panes))
}
