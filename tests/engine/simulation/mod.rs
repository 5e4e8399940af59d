//! Histories made up by chance: events, checkpoints, crashes, faults in durable steps, zombies, lost machines, failing
//! networks, savepoints, moves, forks, restores of older checkpoints and damaged bytes, against the naive model.
//!
//! A seed is a history. The rows that readers find in the output files have to be the model's after every start, after
//! checkpoints and at the end: nothing lost, nothing twice, each pane's rows in order. `SEED=7` runs one history and prints
//! what happened in it; `FLOODMARK_SIM_SECONDS=3600` runs for an hour; `FLOODMARK_SIM_FROM=1000` starts at another seed.
//!
//! Fault points belong to a process, so histories run in processes of their own: this test starts itself again. What the
//! uploader's thread does, and with it the faults of the network, falls differently in a replay; everything else is as it
//! was.

mod draw;
mod fate;
mod hands;
mod judge;
mod task;
mod world;
mod zombies;

use std::process::{Command, Stdio};

use floodmark::clock::SystemClock;

use fate::{Outcome, run};
use world::Firing;

use crate::cases::deep;

/// Seconds of a run that is not told otherwise, and of one at full length.
const SECONDS: u64 = 20;
const SECONDS_DEEP: u64 = 600;
/// Histories that are run to make a failing one smaller.
const SHRINKS_MAX: usize = 80;
/// And how long that may take.
const SHRINK_SECONDS_MAX: u64 = 30;
/// Histories in which nothing could be restored, of a hundred; more of them would mean that less is tried than it seems.
const ANEW_PERCENT_MAX: usize = 25;
/// From so many histories on that says something.
const HISTORIES_TELLING: usize = 12;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[test]
fn histories_of_crashes_faults_and_restores_show_what_the_model_shows() {
    // Histories wait a lot: for locks, for networks, for threads of zombies. Two of them fill a processor.
    let workers = std::thread::available_parallelism().map_or(4, |threads| 2 * threads.get().min(4)) as u64;
    let workers = if number("SEED").is_some() { 1 } else { workers };
    let program = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..workers)
        .map(|worker| {
            let mut command = Command::new(&program);
            command.args(["--ignored", "--exact", "--nocapture", "simulation::one_worker"]);
            command.env("FLOODMARK_SIM_WORKER", worker.to_string());
            command.env("FLOODMARK_SIM_WORKERS", workers.to_string());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut failed = String::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        said.lines().filter(|line| line.starts_with("simulation:")).for_each(|line| println!("{line}"));
        if number("SEED").is_some() {
            println!("{said}");
        }
        if !output.status.success() {
            failed.push_str(&String::from_utf8_lossy(&output.stderr));
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
#[ignore = "a part of the test above, in a process of its own"]
fn one_worker() {
    if let Some(seed) = number("SEED") {
        let outcome = run(seed, &[]);
        println!("{}", outcome.trace);
        assert_eq!(outcome.failure, None, "seed {seed}");
        return;
    }
    let (worker, workers) =
        (number("FLOODMARK_SIM_WORKER").unwrap_or(0), number("FLOODMARK_SIM_WORKERS").unwrap_or(1));
    let seconds = number("FLOODMARK_SIM_SECONDS").unwrap_or(if deep() { SECONDS_DEEP } else { SECONDS });
    let first = number("FLOODMARK_SIM_FROM").unwrap_or(1);
    let clock = SystemClock::shared();
    let started = clock.monotonic();
    let (mut histories, mut happenings, mut anew) = (0, 0, 0);
    let mut firing = Firing::default();
    for seed in (first + worker..).step_by(workers as usize) {
        if (clock.monotonic() - started).as_secs() >= seconds {
            break;
        }
        let outcome = run(seed, &[]);
        histories += 1;
        happenings += outcome.eventful.len();
        anew += usize::from(outcome.anew > 0);
        firing.add(outcome.firing);
        if let Some(failure) = &outcome.failure {
            let (small, quiet) = smaller(seed, &outcome);
            let shown = small.as_ref().unwrap_or(&outcome);
            panic!(
                "history {histories} of this worker fails: {failure}\n\n{}\nfailure: {}\n{} of {} happenings left; the whole of \
                 it: cargo xtask simulate --seed {seed}\n",
                shown.trace,
                shown.failure.as_deref().unwrap_or(failure),
                outcome.eventful.len() - quiet.len(),
                outcome.eventful.len(),
            );
        }
    }
    println!(
        "simulation: worker {worker} ran {histories} histories with {happenings} happenings; {anew} had to begin anew; in \
         the middle of firings {} checkpoints, {} crashes, {} restarts",
        firing.checkpoints, firing.crashes, firing.restarts
    );
    assert!(
        histories < HISTORIES_TELLING || anew * 100 <= histories * ANEW_PERCENT_MAX + 100,
        "{anew} of {histories} histories lost all they could restore"
    );
}

/// Leaves out what a failure does not need; `None` where every replay with something left out goes well.
fn smaller(seed: u64, whole: &Outcome) -> (Option<Outcome>, Vec<u64>) {
    let (mut small, mut quiet) = (None, Vec::new());
    let clock = SystemClock::shared();
    let started = clock.monotonic();
    for &step in whole.eventful.iter().rev().take(SHRINKS_MAX) {
        if (clock.monotonic() - started).as_secs() >= SHRINK_SECONDS_MAX {
            break;
        }
        quiet.push(step);
        let outcome = run(seed, &quiet);
        if outcome.failure.is_some() {
            small = Some(outcome);
        } else {
            quiet.pop();
        }
    }
    (small, quiet)
}
