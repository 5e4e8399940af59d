//! Power cuts at every step of making a savepoint, deleting one, and restoring one: there completely or not at all.

use std::path::Path;
use std::sync::Arc;

use super::savepoint::{hasty, request};
use super::{checkpoint, environment, open};
use crate::checkpoint::power_cut::{Loss, PowerCutFs};
use crate::checkpoint::savepoint::{
    Origin, PartitionChanges, RestoreAs, RestoreRequest, SavepointName, create, delete, list, restore,
};
use crate::checkpoint::{CheckpointError, StateDirectory, verify};

/// What the outside world was told; after a cut it must still be so.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    kept: bool,
    made: bool,
    deleting: bool,
    deleted: bool,
    restored: bool,
}

fn work(fs: &Arc<PowerCutFs>, root: &Path, told: &mut Told) -> Result<(), CheckpointError> {
    let path = root.join("state");
    let with = || environment(Arc::clone(fs) as _);
    let state = StateDirectory::open_in(&path, "flights", with())?;
    checkpoint(&state)?;
    checkpoint(&state)?;
    create(&request(&path, "kept"), &with())?;
    told.kept = true;
    create(&request(&path, "gone"), &with())?;
    told.made = true;
    told.deleting = true;
    delete(&path, &SavepointName::parse("gone").unwrap_or_else(|_| unreachable!()), &with())?;
    told.deleted = true;
    drop(state);
    restore(&to_fork(&path, &root.join("forks/fork")), &with())?;
    told.restored = true;
    Ok(())
}

fn to_fork(state: &Path, to: &Path) -> RestoreRequest {
    RestoreRequest {
        from: state.join("savepoints/kept"),
        at: None,
        to: to.to_owned(),
        how: RestoreAs::Fork { name: None },
        partitions: PartitionChanges::default(),
    }
}

struct Run {
    _dir: tempfile::TempDir,
    fs: PowerCutFs,
    told: Told,
    // The first step and the first sync after the checkpoints were made.
    begins: (u64, usize),
}

fn run(configure: impl FnOnce(&mut PowerCutFs)) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("disk");
    std::fs::create_dir(&root).unwrap();
    let mut fs = PowerCutFs::new(&root);
    configure(&mut fs);
    let (fs, mut told) = (Arc::new(fs), Told::default());
    let _ = work(&fs, &root, &mut told);
    let begins = beginnings();
    let fs = Arc::into_inner(fs).unwrap();
    Run { _dir: dir, fs, told, begins }
}

/// Steps and syncs of two checkpoints in a new directory.
fn beginnings() -> (u64, usize) {
    static BEGINS: std::sync::OnceLock<(u64, usize)> = std::sync::OnceLock::new();
    *BEGINS.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("disk");
        std::fs::create_dir(&root).unwrap();
        let fs = Arc::new(PowerCutFs::new(&root));
        let state =
            StateDirectory::open_in(&root.join("state"), "flights", environment(Arc::clone(&fs) as _))
                .unwrap();
        checkpoint(&state).unwrap();
        checkpoint(&state).unwrap();
        (fs.steps(), fs.syncs().len())
    })
}

impl Run {
    fn broken_promise(&self, loss: Loss) -> Option<String> {
        let target = tempfile::tempdir().unwrap();
        let root = target.path().join("disk");
        self.fs.survive(loss, &root);
        judge(&root, self.told).err()
    }
}

fn judge(root: &Path, told: Told) -> Result<(), String> {
    let path = root.join("state");
    drop(open(&path).map_err(|error| format!("open fails: {error}"))?);
    let savepoints = path.join("savepoints");
    for (name, must, may) in [("kept", told.kept, true), ("gone", told.made && !told.deleted, !told.deleted)]
    {
        let there = savepoints.join(name).exists();
        let deleting = name == "gone" && told.deleting;
        if (must && !there && !deleting) || (there && !may) {
            return Err(format!("{name}: there={there} told={told:?}"));
        }
        if there && !verify(&savepoints.join(name)).is_sound() {
            return Err(format!("{name}: {}", verify(&savepoints.join(name)).problem_line()));
        }
    }
    let left = list(&path).map_err(|error| error.to_string())?;
    if let Some(listed) = left.iter().find(|listed| listed.contents.is_err()) {
        return Err(format!("{}: {:?}", listed.name, listed.contents));
    }
    let hidden = std::fs::read_dir(&savepoints).into_iter().flatten();
    if let Some(name) =
        hidden.map(|entry| entry.unwrap().file_name()).find(|name| name.as_encoded_bytes()[0] == b'.')
    {
        return Err(format!("left over: {name:?}"));
    }
    let fork = root.join("forks/fork");
    if told.kept && !fork.exists() {
        if told.restored {
            return Err("the restored state is gone".to_owned());
        }
        restore(&to_fork(&path, &fork), &hasty())
            .map_err(|error| format!("restoring again fails: {error}"))?;
    }
    if fork.exists() {
        let state = open(&fork).map_err(|error| format!("opening the fork fails: {error}"))?;
        let chosen =
            state.newest_verified(None).map_err(|error| format!("restoring the fork fails: {error}"))?;
        let chosen = chosen.chosen.ok_or("the fork is empty")?;
        state.materialise(&chosen).map_err(|error| error.to_string())?;
        Origin::load(&fork)
            .map_err(|error| error.to_string())?
            .ok_or("the fork does not say where it is from")?;
    }
    if list(&path).is_ok_and(|all| all.iter().all(|listed| listed.name != "kept")) && told.made {
        return Err("kept is not listed".to_owned());
    }
    Ok(())
}

#[test]
fn a_power_cut_after_any_step_leaves_savepoints_and_restored_states_whole_or_not_there() {
    let whole = run(|_| {});
    assert!(whole.told.restored);
    let steps = whole.fs.steps();
    for step in whole.begins.0..=steps {
        let run = run(|fs| fs.die_at = Some(step));
        assert_eq!(run.fs.is_dead(), step < steps);
        for loss in Loss::ALL {
            let broken = run.broken_promise(loss);
            assert_eq!(broken, None, "cut after {step} steps, losing {loss:?}");
        }
    }
}

/// The losses that show a missing sync soonest.
const LOSSES: [Loss; 4] = [Loss::Everything, Loss::Contents, Loss::Entries, Loss::Random(1)];
/// Steps of the syncs that matter only after a cut of somebody else: of the checkpoints, whose writer may not have
/// synced them; of a directory that was there already; and of a savepoint whose deletion begins at once.
const REDUNDANT: [u64; 4] = [0, 17, 18, 32];

#[test]
fn leaving_out_any_single_sync_of_a_savepoint_or_a_restore_breaks_a_promise() {
    let whole = run(|_| {});
    let (steps, syncs) = (whole.fs.steps(), whole.fs.syncs());
    let unnoticed: Vec<u64> = syncs
        .iter()
        .enumerate()
        .skip(whole.begins.1)
        .filter(|&(index, &at)| {
            // What a sync is for shows within the steps of the same piece of work.
            !(at + 1..=steps.min(at + 40)).any(|step| {
                let run = run(|fs| {
                    fs.swallow_sync = Some(index);
                    fs.die_at = Some(step);
                });
                LOSSES.into_iter().any(|loss| run.broken_promise(loss).is_some())
            })
        })
        .map(|(_, &at)| at - whole.begins.0)
        .collect();
    assert_eq!(unnoticed, REDUNDANT, "of {} syncs", syncs.len() - whole.begins.1);
}
