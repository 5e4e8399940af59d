//! The ordinary course: open, begin, publish, restore, list and retire, and what a cut leaves for the next open.

use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::{HastyFs, LINEAGE, checkpoint, draft, environment, fill, made, open, overwrite, rename};
use crate::checkpoint::{CheckpointError, FileFacts, Keep, StateDirectory, list, verify};
use crate::error::{Error, ErrorKind};

fn keep(last: u32) -> Keep {
    Keep { last: NonZeroU32::new(last).unwrap(), pinned: Default::default() }
}

fn epochs(path: &Path) -> Vec<u64> {
    list(path).unwrap().into_iter().filter_map(|summary| summary.epoch).collect()
}

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

#[test]
fn a_new_directory_starts_empty_and_numbers_from_one() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&dir.path().join("deep/down/state")).unwrap();
    assert_eq!((state.generation(), state.next_epoch(), state.lineage()), (1, 1, LINEAGE));
    assert!(state.newest_verified(None).unwrap().chosen.is_none());
    assert!(matches!(state.newest_verified(Some(1)), Err(CheckpointError::NoSuchCheckpoint { .. })));
    assert!(!state.work_dir().exists() && state.check_owner().is_ok());
}

#[test]
fn a_published_manifest_says_where_it_belongs() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&made(dir.path(), 1)).unwrap();
    let chosen = state.newest_verified(None).unwrap().chosen.unwrap();
    state.materialise(&chosen).unwrap();
    let published = checkpoint(&state).unwrap();
    let manifest = published.manifest();
    assert_eq!((manifest.pipeline.as_str(), manifest.lineage), ("flights", LINEAGE));
    assert_eq!((manifest.generation, manifest.epoch, manifest.parent), (2, 2, Some(1)));
    assert_eq!(manifest.created_at_ms, 1_700_000_000_000);
    assert_eq!(manifest.counters["events"], 200);
    let table = manifest.file("000002.sst").unwrap();
    assert_eq!((table.family.as_deref(), table.entries, table.bytes), (Some("hourly.windows"), 4, 30));
    assert_eq!(manifest.file("CURRENT").unwrap().family, None);
    assert_eq!(verify(published.path()).manifest.as_deref(), Some(&**manifest));
}

#[test]
fn restore_links_tables_and_copies_what_the_database_rewrites() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&made(dir.path(), 2)).unwrap();
    let chosen = state.newest_verified(None).unwrap().chosen.unwrap();
    let work = state.materialise(&chosen).unwrap();
    assert_eq!(work, state.work_dir());
    let database = chosen.database();
    for table in ["000001.sst", "000002.sst"] {
        assert_eq!(inode(&work.join(table)), inode(&database.join(table)));
    }
    assert_ne!(inode(&work.join("CURRENT")), inode(&database.join("CURRENT")));
    overwrite(&work.join("CURRENT"), b"rewritten");
    assert!(verify(chosen.path()).is_sound());
    assert_eq!(state.copied_instead_of_linked(), 0);
    assert!(matches!(state.materialise(&chosen), Err(CheckpointError::Io { .. })), "it may be open already");
}

#[test]
fn a_filesystem_without_links_gets_copies_and_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 2);
    let environment = environment(Arc::new(HastyFs { refuse_links: true, ..HastyFs::default() }));
    let state = StateDirectory::open_in(&path, "flights", environment).unwrap();
    let chosen = state.newest_verified(None).unwrap().chosen.unwrap();
    let work = state.materialise(&chosen).unwrap();
    assert_eq!(state.copied_instead_of_linked(), 2);
    let (copy, original) = (work.join("000001.sst"), chosen.database().join("000001.sst"));
    assert_ne!(inode(&copy), inode(&original));
    assert_eq!(std::fs::read(copy).unwrap(), std::fs::read(original).unwrap());
}

#[test]
fn only_files_that_the_parent_does_not_share_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&dir.path().join("state")).unwrap();
    let first = checkpoint(&state).unwrap();
    assert_eq!((first.new_bytes(), first.shared_bytes()), (46, 0));
    // A bad byte in a shared table goes unread by the next checkpoint, and is verify's to find.
    overwrite(&first.path().join("db/000001.sst"), &[1; 30]);
    let second = checkpoint(&state).unwrap();
    assert_eq!((second.new_bytes(), second.shared_bytes()), (46, 30));
    assert!(!verify(second.path()).is_sound());
}

#[test]
fn a_file_name_used_again_after_a_restore_is_not_taken_for_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&made(dir.path(), 2)).unwrap();
    state.materialise(&state.newest_verified(Some(1)).unwrap().chosen.unwrap()).unwrap();
    // The database restored from 1 numbers its next table 2 again, of the same size, and also rewrites table 1.
    let writer = state.begin(3).unwrap();
    std::fs::create_dir(writer.db_target()).unwrap();
    for name in ["000001.sst", "000002.sst"] {
        overwrite(&writer.db_target().join(name), &[9; 30]);
    }
    let published = writer.publish(Default::default()).unwrap();
    assert_eq!((published.shared_bytes(), published.manifest().parent), (0, Some(1)));
    for summary in list(state.path()).unwrap() {
        assert!(verify(&summary.path).is_sound(), "{}", summary.path.display());
    }
}

#[test]
fn an_interrupted_attempt_leaves_nothing_after_the_next_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    for round in 0..5 {
        let state = open(&path).unwrap();
        state.materialise(&state.newest_verified(None).unwrap().chosen.unwrap()).unwrap();
        let writer = state.begin(2).unwrap();
        fill(&HastyFs::default(), &writer, None).unwrap();
        // As a kill would: no destructor runs, but the lock is let go.
        std::mem::forget(writer);
        std::mem::forget(state);
        std::fs::remove_file(path.join("LOCK")).unwrap();
        assert_eq!(std::fs::read_dir(path.join("checkpoints")).unwrap().count(), 2, "round {round}");
        assert_eq!(std::fs::read_dir(path.join("work")).unwrap().count(), 1, "round {round}");
    }
    let retired = path.join("checkpoints/chk-0000000009.retired");
    std::fs::create_dir(&retired).unwrap();
    overwrite(&retired.join("half"), b"x");
    overwrite(&path.join("LINEAGE.77.tmp"), b"half");
    overwrite(&path.join("checkpoints/notes.txt"), b"not ours, stays");
    let state = open(&path).unwrap();
    assert_eq!(epochs(&path), [1]);
    assert_eq!(std::fs::read_dir(path.join("checkpoints")).unwrap().count(), 2);
    assert_eq!(std::fs::read_dir(path.join("work")).unwrap().count(), 0);
    assert!(!path.join("LINEAGE.77.tmp").exists());
    assert_eq!(checkpoint(&state).unwrap().epoch(), 2);
}

#[test]
fn an_attempt_that_fails_or_is_dropped_frees_its_epoch_and_its_space() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let state = open(&path).unwrap();
    let writer = state.begin(1).unwrap();
    assert!(matches!(state.begin(1), Err(CheckpointError::InFlight { epoch: 1 })));
    fill(&HastyFs::default(), &writer, None).unwrap();
    let first_name = writer.db_target();
    drop(writer);
    assert_eq!(std::fs::read_dir(state.checkpoints()).unwrap().count(), 0);
    let writer = state.begin(1).unwrap();
    assert_ne!(writer.db_target(), first_name, "names are used once");
    drop(writer);
    assert_eq!(checkpoint(&state).unwrap().epoch(), 1);
    assert!(matches!(state.begin(1), Err(CheckpointError::EpochTaken { epoch: 1, next: 2 })));
}

#[test]
fn a_draft_that_does_not_fit_its_files_publishes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&dir.path().join("state")).unwrap();
    let attempt = |spoil: &dyn Fn(&Path, &mut Vec<FileFacts>)| {
        let writer = state.begin(1).unwrap();
        fill(&HastyFs::default(), &writer, None).unwrap();
        let mut draft = draft(1);
        spoil(&writer.db_target(), &mut draft.files);
        let error = writer.publish(draft).unwrap_err();
        assert!(matches!(error, CheckpointError::Draft { .. }), "{error}");
    };
    attempt(&|_, files| files.push(FileFacts { name: "000099.sst".to_owned(), ..FileFacts::default() }));
    attempt(&|_, files| files[0].name.insert(0, '/'));
    attempt(&|db, _| std::fs::create_dir(db.join("sub")).unwrap());
    attempt(&|db, _| overwrite(&db.join("a name"), b"x"));
    attempt(&|db, _| std::os::unix::fs::symlink("/etc/passwd", db.join("link")).unwrap());
    attempt(&|db, _| std::fs::create_dir(db.with_extension("tmp")).unwrap());
    assert!(epochs(state.path()).is_empty());
    checkpoint(&state).unwrap();
}

#[test]
fn a_full_disk_fails_the_epoch_cleanly_and_the_next_attempt_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let full: &'static AtomicBool = Box::leak(Box::default());
    let fs = HastyFs { full: Some(full), ..HastyFs::default() };
    let state = StateDirectory::open_in(&path, "flights", environment(Arc::new(fs))).unwrap();
    let writer = state.begin(2).unwrap();
    fill(&HastyFs::default(), &writer, None).unwrap();
    full.store(true, Ordering::SeqCst);
    let error = Error::from(writer.publish(draft(2)).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("write the manifest") && error.remedy().unwrap().contains("free space")
    );
    assert_eq!(
        std::fs::read_dir(state.checkpoints()).unwrap().count(),
        1,
        "the attempt gives its space back"
    );
    assert!(state.newest_verified(None).is_ok());
    full.store(false, Ordering::SeqCst);
    assert_eq!(checkpoint(&state).unwrap().epoch(), 2);
}

#[test]
fn a_permit_is_given_for_restored_checkpoints_of_this_directory_only() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&made(dir.path(), 1)).unwrap();
    let own = state.newest_verified(None).unwrap().chosen.unwrap();
    assert_eq!(state.permit(&own).unwrap().epoch(), 1);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = made(elsewhere.path(), 1).join("checkpoints/chk-0000000001");
    assert!(state.permit(&verify(&other).into_verified().unwrap()).is_err());
}

#[test]
fn listing_takes_a_state_directory_its_checkpoints_or_one_of_them_without_a_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 3);
    let _held = open(&path).unwrap();
    assert_eq!(epochs(&path), [1, 2, 3]);
    assert_eq!(epochs(&path.join("checkpoints")), [1, 2, 3]);
    assert_eq!(epochs(&path.join("checkpoints/chk-0000000002")), [2]);
    overwrite(&path.join("checkpoints/chk-0000000002/MANIFEST.fm"), b"");
    let summaries = list(&path).unwrap();
    assert!(summaries[0].manifest.is_ok() && summaries[1].manifest.is_err());
    assert!(matches!(list(dir.path()), Err(CheckpointError::NoCheckpoints { .. })));
    assert!(matches!(list(&dir.path().join("nowhere")), Err(CheckpointError::Io { .. })));
    let set_aside = dir.path().join("aside");
    std::fs::create_dir(&set_aside).unwrap();
    rename(&path.join("checkpoints/chk-0000000003"), &set_aside.join("chk-0000000003"));
    assert_eq!(epochs(&set_aside), [3]);
}

#[test]
fn listing_beside_a_writer_skips_what_vanishes() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let state = open(&path).unwrap();
    state.materialise(&state.newest_verified(None).unwrap().chosen.unwrap()).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..150 {
                checkpoint(&state).unwrap();
                state.retire(&state.retention_plan(&keep(1)).unwrap()).unwrap();
            }
        });
        while !writer.is_finished() {
            for summary in list(&path).unwrap() {
                assert!(summary.manifest.is_ok(), "{:?}", summary.manifest);
            }
        }
    });
    assert_eq!(epochs(&path), [151]);
}

#[test]
fn retiring_leaves_the_kept_ones_sound_and_the_newest_whatever_the_plan() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&dir.path().join("state")).unwrap();
    for _ in 0..5 {
        checkpoint(&state).unwrap();
    }
    let mut plan = state.retention_plan(&keep(2)).unwrap();
    assert_eq!(plan.retire.iter().map(|retired| retired.epoch).collect::<Vec<_>>(), [1, 2, 3]);
    plan.retire.push(crate::checkpoint::Retired { epoch: 5, freed_bytes: 0 });
    state.retire(&plan).unwrap();
    state.retire(&plan).unwrap();
    assert_eq!(epochs(state.path()), [4, 5]);
    assert_eq!(std::fs::read_dir(state.checkpoints()).unwrap().count(), 2);
    for summary in list(state.path()).unwrap() {
        assert!(verify(&summary.path).is_sound());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn after_any_history_every_kept_checkpoint_restores(
        steps in prop::collection::vec(0_u8..8, 1..14),
        last in 1_u32..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut state = open(&path).unwrap();
        let restore = |state: &StateDirectory, at| {
            if let Some(chosen) = state.newest_verified(at).unwrap().chosen {
                state.materialise(&chosen).unwrap();
            }
        };
        for step in steps {
            match step {
                0..=3 => drop(checkpoint(&state).unwrap()),
                4 | 5 => state.retire(&state.retention_plan(&keep(last)).unwrap()).unwrap(),
                _ => {
                    // Restart, sometimes at an older one.
                    drop(state);
                    state = open(&path).unwrap();
                    let older = epochs(&path).first().copied().filter(|_| step == 7);
                    restore(&state, older);
                }
            }
            for summary in list(&path).unwrap() {
                prop_assert!(verify(&summary.path).is_sound(), "{}", summary.path.display());
            }
        }
        drop(state);
        for epoch in epochs(&path) {
            let state = open(&path).unwrap();
            restore(&state, Some(epoch));
            prop_assert_eq!(std::fs::read_dir(state.work_dir()).unwrap().filter(|entry| {
                entry.as_ref().unwrap().file_name().to_string_lossy() == format!("{epoch:06}.sst")
            }).count(), 1);
        }
    }
}

#[cfg(feature = "fault-injection")]
#[test]
fn every_fault_point_of_a_checkpoint_and_its_retirement_is_passed() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&dir.path().join("state")).unwrap();
    for _ in 0..2 {
        checkpoint(&state).unwrap();
    }
    state.retire(&state.retention_plan(&keep(1)).unwrap()).unwrap();
    let passed = crate::fault::passed();
    let ours = |point: &&&str| point.starts_with("checkpoint.") || point.starts_with("retain.");
    for point in crate::fault::POINTS.iter().filter(ours) {
        assert!(passed.contains_key(point), "{point}");
    }
}
