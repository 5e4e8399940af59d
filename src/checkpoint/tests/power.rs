//! Power cuts at every step of open, begin, publish and retire, and proof that each sync is needed.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{checkpoint, environment, open};
use crate::checkpoint::power_cut::{Loss, PowerCutFs};
use crate::checkpoint::{CheckpointError, Keep, StateDirectory, list, verify};
use crate::error::{Error, ErrorKind};

/// What the outside world was told; after a cut it must still be so.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    epoch: u64,
    generation: u64,
}

fn keep_two() -> Keep {
    Keep { last: NonZeroU32::new(2).unwrap(), pinned: Default::default() }
}

/// Opens the directory, makes four checkpoints and keeps two, until the disk dies.
fn work(fs: &Arc<PowerCutFs>, path: &Path, told: &mut Told) -> Result<(), CheckpointError> {
    let state = StateDirectory::open_in(path, "flights", environment(Arc::clone(fs) as _))?;
    told.generation = state.generation();
    let choice = state.newest_verified(None)?;
    if let Some(chosen) = &choice.chosen {
        told.epoch = told.epoch.max(state.permit(chosen)?.epoch());
        state.materialise(chosen)?;
    }
    for _ in 0..4 {
        told.epoch = checkpoint(&state)?.epoch();
        state.retire(&state.retention_plan(&keep_two())?)?;
    }
    Ok(())
}

struct Run {
    // Holds the directory of the disk until the run is done with.
    dir: tempfile::TempDir,
    fs: PowerCutFs,
    told: Told,
}

fn run(configure: impl FnOnce(&mut PowerCutFs)) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("disk");
    std::fs::create_dir(&root).unwrap();
    let mut fs = PowerCutFs::new(&root);
    configure(&mut fs);
    let (fs, mut told) = (Arc::new(fs), Told::default());
    let _ = work(&fs, &root.join("state"), &mut told);
    let fs = Arc::into_inner(fs).unwrap();
    Run { dir, fs, told }
}

impl Run {
    fn state(&self) -> PathBuf {
        self.dir.path().join("disk/state")
    }

    /// What is wrong with the disk after a cut that loses `loss`; `None` when all promises hold.
    fn broken_promise(&self, loss: Loss) -> Option<String> {
        let target = tempfile::tempdir().unwrap();
        let root = target.path().join("disk");
        self.fs.survive(loss, &root);
        judge(&root.join("state"), self.told).err()
    }
}

fn judge(path: &Path, told: Told) -> Result<(), String> {
    let state = open(path).map_err(|error| format!("open fails: {error}"))?;
    if state.generation() <= told.generation {
        return Err(format!("generation {} again", state.generation()));
    }
    let choice = state.newest_verified(None).map_err(|error| format!("restore fails: {error}"))?;
    let epoch = choice.chosen.as_ref().map_or(0, |chosen| chosen.manifest().epoch);
    if epoch != told.epoch && epoch != told.epoch + 1 {
        return Err(format!("restores {epoch}, but {} was told", told.epoch));
    }
    for summary in list(path).map_err(|error| error.to_string())? {
        let report = verify(&summary.path);
        if !report.is_sound() {
            return Err(format!("{}: {}", summary.path.display(), report.problem_line()));
        }
    }
    let left: Vec<_> =
        std::fs::read_dir(state.checkpoints()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    if left.iter().any(|name| name.to_string_lossy().contains('.')) {
        return Err(format!("left-overs after the sweep: {left:?}"));
    }
    if let Some(chosen) = &choice.chosen {
        state.materialise(chosen).map_err(|error| format!("materialise fails: {error}"))?;
    }
    checkpoint(&state).map(drop).map_err(|error| format!("going on fails: {error}"))
}

#[test]
fn the_workload_of_these_tests_runs_to_its_end() {
    let whole = run(|_| {});
    assert_eq!(whole.told.epoch, 4);
    assert_eq!(list(&whole.state()).unwrap().len(), 2);
    assert!(
        whole.fs.steps() > 60 && whole.fs.syncs().len() > 25,
        "{} {}",
        whole.fs.steps(),
        whole.fs.syncs().len()
    );
}

#[test]
fn a_power_cut_after_any_step_leaves_the_checkpoint_before_or_the_new_one() {
    let steps = run(|_| {}).fs.steps();
    for step in 0..=steps {
        let run = run(|fs| fs.die_at = Some(step));
        assert_eq!(run.fs.is_dead(), step < steps);
        for loss in Loss::ALL {
            let broken = run.broken_promise(loss);
            assert_eq!(broken, None, "cut after {step} steps, losing {loss:?}");
        }
    }
}

#[test]
fn a_kill_at_any_step_and_then_a_power_cut_loses_nothing_that_the_restart_told() {
    let steps = run(|_| {}).fs.steps();
    for step in 0..=steps {
        let mut run = run(|fs| fs.die_at = Some(step));
        restart_and_tell(&mut run);
        for loss in [Loss::Everything, Loss::Contents, Loss::Random(1)] {
            let broken = run.broken_promise(loss);
            assert_eq!(broken, None, "killed after {step} steps, then cut losing {loss:?}");
        }
    }
}

/// Restarts on the same machine and tells the outside world what was restored, as publishing its output does.
fn restart_and_tell(run: &mut Run) {
    run.fs.revive();
    let path = run.state();
    let root = path.parent().unwrap().to_owned();
    let fs = Arc::new(std::mem::replace(&mut run.fs, PowerCutFs::new(&root)));
    {
        let state = StateDirectory::open_in(&path, "flights", environment(Arc::clone(&fs) as _)).unwrap();
        run.told.generation = state.generation();
        if let Some(chosen) = &state.newest_verified(None).unwrap().chosen {
            run.told.epoch = state.permit(chosen).unwrap().epoch();
        }
    }
    run.fs = Arc::into_inner(fs).unwrap();
}

#[test]
fn leaving_out_any_single_sync_breaks_a_promise() {
    let whole = run(|_| {});
    let (steps, syncs) = (whole.fs.steps(), whole.fs.syncs());
    // The sync of the checkpoints at an open matters after a kill only; the next test is about it.
    let at_open = 1;
    for (index, &at) in syncs.iter().enumerate().filter(|&(index, _)| index != at_open) {
        let noticed = (at + 1..=steps).any(|step| {
            let run = run(|fs| {
                fs.swallow_sync = Some(index);
                fs.die_at = Some(step);
            });
            Loss::ALL.into_iter().any(|loss| run.broken_promise(loss).is_some())
        });
        assert!(noticed, "sync {index} at step {at} could be left out and no test would see it");
    }
}

#[test]
fn leaving_out_the_sync_of_the_checkpoints_at_a_restart_breaks_a_promise() {
    let steps = run(|_| {}).fs.steps();
    let noticed = (0..=steps).any(|step| {
        let mut run = run(|fs| fs.die_at = Some(step));
        // Counted on from the first process: the restart's first sync is of the parent, its second of the checkpoints.
        run.fs.swallow_sync = Some(run.fs.syncs().len() + 1);
        restart_and_tell(&mut run);
        run.told.epoch > 0 && run.broken_promise(Loss::Everything).is_some()
    });
    assert!(noticed);
}

#[test]
fn a_failed_sync_fails_the_epoch_for_good_and_is_never_retried() {
    let syncs = run(|_| {}).fs.syncs().len();
    let mut failures = 0;
    for index in 0..syncs {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("disk");
        std::fs::create_dir(&root).unwrap();
        let mut fs = PowerCutFs::new(&root);
        fs.fail_sync = Some(index);
        let (fs, path) = (Arc::new(fs), root.join("state"));
        let Ok(state) = StateDirectory::open_in(&path, "flights", environment(Arc::clone(&fs) as _)) else {
            continue;
        };
        let mut told = Told { epoch: 0, generation: state.generation() };
        let error = loop {
            match checkpoint(&state).and_then(|published| {
                told.epoch = published.epoch();
                state.retire(&state.retention_plan(&keep_two())?)
            }) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        failures += 1;
        assert!(matches!(error, CheckpointError::Sync { .. }), "{error}");
        assert_eq!(Error::from(error).kind(), ErrorKind::Poisoned);
        let again = state.begin(state.next_epoch()).unwrap_err();
        assert!(matches!(again, CheckpointError::Poisoned { .. }), "{again}");
        drop(state);
        for loss in Loss::ALL {
            let target = tempfile::tempdir().unwrap();
            fs.survive(loss, &target.path().join("disk"));
            let judged = judge(&target.path().join("disk/state"), told);
            assert_eq!(judged, Ok(()), "sync {index} failed, losing {loss:?}");
        }
    }
    assert!(failures > 20, "{failures}");
}
