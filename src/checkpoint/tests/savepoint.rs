//! Savepoints: kept whatever happens to checkpoints, and made into state directories of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{HastyFs, LINEAGE, checkpoint, draft, environment, fill, made, open, overwrite};
use crate::checkpoint::savepoint::{
    CreateRequest, Origin, OriginKind, PartitionChanges, RestoreAs, RestoreRequest, RestoredState, Savepoint,
    SavepointName, SavepointRecord, create, delete, list, peek, restore,
};
use crate::checkpoint::{
    CheckpointError, Environment, Keep, LineageId, PartitionState, Position, Problem, SourceIdentity,
    StagedOutput, StateDirectory, verify,
};
use crate::error::Error;
use crate::event_time::Watermark;

const FORK: LineageId = LineageId([0xf0; 16]);

pub(super) fn hasty() -> Environment {
    environment(Arc::new(HastyFs::default()))
}

fn keep_one() -> Keep {
    Keep { last: NonZeroU32::MIN, pinned: BTreeSet::new() }
}

pub(super) fn request(from: &Path, name: &str) -> CreateRequest {
    CreateRequest {
        name: SavepointName::parse(name).unwrap(),
        from: from.to_owned(),
        at: None,
        to: None,
        note: "why".to_owned(),
        late_parts: BTreeSet::new(),
    }
}

fn make(from: &Path, name: &str) -> Result<Savepoint, CheckpointError> {
    create(&request(from, name), &hasty())
}

fn restored(from: &Path, to: &Path, how: RestoreAs) -> Result<RestoredState, CheckpointError> {
    let (at, partitions) = (None, PartitionChanges::default());
    let request = RestoreRequest { from: from.to_owned(), at, to: to.to_owned(), how, partitions };
    restore(&request, &Environment { new_lineage: Some(FORK), ..hasty() })
}

fn hidden(dir: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

#[test]
fn a_savepoint_outlives_its_checkpoint_and_any_number_of_starts() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 2);
    let kept = make(&path, "kept").unwrap();
    assert_eq!(
        (kept.record.epoch, kept.record.lineage, kept.path.clone()),
        (2, LINEAGE, path.join("savepoints/kept"))
    );
    for _ in 0..3 {
        let state = open(&path).unwrap();
        state.materialise(&state.newest_verified(None).unwrap().chosen.unwrap()).unwrap();
        for _ in 0..10 {
            checkpoint(&state).unwrap();
            state.retire(&state.retention_plan(&keep_one()).unwrap()).unwrap();
        }
    }
    assert_eq!(crate::checkpoint::list(&path).unwrap().len(), 1);
    let report = verify(&kept.path);
    assert!(report.is_sound(), "{}", report.problem_line());
    assert_eq!(report.notes, ["savepoint \"kept\" of epoch 2"]);
    let listed = list(&path).unwrap();
    let (record, manifest) = listed[0].contents.as_ref().unwrap();
    assert_eq!((listed[0].name.as_str(), record.note.as_str(), manifest.epoch), ("kept", "why", 2));
    delete(&path, &SavepointName::parse("kept").unwrap(), &hasty()).unwrap();
    assert!(list(&path).unwrap().is_empty() && hidden(&path.join("savepoints")).is_empty());
    assert!(verify(&path.join("checkpoints/chk-0000000032")).is_sound());
}

#[test]
fn savepoints_are_made_beside_a_writer_that_keeps_one_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let state = open(&path).unwrap();
    state.materialise(&state.newest_verified(None).unwrap().chosen.unwrap()).unwrap();
    let mut made = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..150 {
                checkpoint(&state).unwrap();
                state.retire(&state.retention_plan(&keep_one()).unwrap()).unwrap();
            }
        });
        while !writer.is_finished() {
            match make(&path, &format!("s{made}")) {
                Ok(savepoint) => {
                    made += 1;
                    assert!(verify(&savepoint.path).is_sound());
                }
                // Eight times in a row somebody was faster: said, and nothing left.
                Err(error) => assert!(error.to_string().contains("retired faster"), "{error}"),
            }
        }
    });
    assert!(made > 0);
    assert_eq!(list(&path).unwrap().len(), made);
    assert!(hidden(&path.join("savepoints")).is_empty());
}

#[test]
fn tables_are_linked_where_that_works_and_copied_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 2);
    let checkpoint = path.join("checkpoints/chk-0000000002/db");
    let linked = make(&path, "linked").unwrap();
    assert_eq!(inode(&linked.path.join("db/000002.sst")), inode(&checkpoint.join("000002.sst")));
    assert_ne!(inode(&linked.path.join("db/CURRENT")), inode(&checkpoint.join("CURRENT")));
    let fs = Arc::new(HastyFs { refuse_links: true, ..HastyFs::default() });
    let to = dir.path().join("elsewhere/copied");
    let copied =
        create(&CreateRequest { to: Some(to.clone()), ..request(&path, "copied") }, &environment(fs))
            .unwrap();
    assert_eq!((copied.linked_bytes, copied.path.as_path()), (0, to.as_path()));
    assert_eq!(copied.copied_bytes, copied.manifest.database_bytes());
    assert_ne!(inode(&to.join("db/000002.sst")), inode(&checkpoint.join("000002.sst")));
    std::fs::remove_dir_all(&path).unwrap();
    assert!(verify(&to).is_sound());
}

#[test]
fn names_that_could_lead_elsewhere_are_no_names() {
    for name in
        ["", ".", "..", "../x", "a/b", "a.b", "-x", "chk-0000000001", "ä", " ", "a\0", &"a".repeat(101)]
    {
        assert!(matches!(SavepointName::parse(name), Err(CheckpointError::Refused { .. })), "{name:?}");
    }
    for name in ["a", "Monday_2", "2024-01-01", &"a".repeat(100)] {
        assert_eq!(SavepointName::parse(name).unwrap().as_str(), name);
    }
}

#[test]
fn a_name_that_is_taken_and_a_source_without_checkpoints_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 2);
    make(&path, "kept").unwrap();
    let refused = |error: CheckpointError, words: &str| {
        assert!(
            matches!(error, CheckpointError::Refused { .. }) && error.to_string().contains(words),
            "{error}"
        );
    };
    refused(make(&path, "kept").unwrap_err(), "under this name already");
    refused(make(&path.join("checkpoints/chk-0000000002"), "x").unwrap_err(), "no place of its own");
    let empty = dir.path().join("empty");
    drop(open(&empty).unwrap());
    refused(make(&empty, "x").unwrap_err(), "no checkpoint yet");
    let at = |epoch| CreateRequest { at: Some(epoch), ..request(&path, "older") };
    assert!(matches!(create(&at(7), &hasty()), Err(CheckpointError::NoSuchCheckpoint { epoch: 7, .. })));
    assert_eq!(create(&at(1), &hasty()).unwrap().record.epoch, 1);
    let misnamed = CreateRequest { to: Some(dir.path().join("chk-0000000009")), ..request(&path, "m") };
    refused(create(&misnamed, &hasty()).unwrap_err(), "the name of another checkpoint");
    refused(
        delete(&path, &SavepointName::parse("none").unwrap(), &hasty()).unwrap_err(),
        "no savepoint of this name",
    );
}

#[test]
fn no_savepoint_is_made_of_a_damaged_checkpoint_and_damage_to_one_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 2);
    let kept = make(&path, "kept").unwrap().path;
    // The small files are copies of its own.
    overwrite(&path.join("checkpoints/chk-0000000002/db/CURRENT"), b"MANIFEST-000003\n");
    let error = make(&path, "broken").unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { epoch: 2, .. }), "{error}");
    assert!(!path.join("savepoints/broken").exists() && hidden(&path.join("savepoints")).is_empty());
    assert!(verify(&kept).is_sound());
    let record = std::fs::read(kept.join("SAVEPOINT.fm")).unwrap();
    for at in 0..record.len() {
        let mut flipped = record.clone();
        flipped[at] ^= 0x10;
        overwrite(&kept.join("SAVEPOINT.fm"), &flipped);
        let report = verify(&kept);
        assert!(
            matches!(report.problems.as_slice(), [Problem::Savepoint { .. }]),
            "byte {at}: {:?}",
            report.problems
        );
    }
    // The record of another checkpoint.
    overwrite(&kept.join("SAVEPOINT.fm"), &record);
    let other = create(&CreateRequest { at: Some(1), ..request(&path, "other") }, &hasty()).unwrap().path;
    overwrite(&kept.join("SAVEPOINT.fm"), &std::fs::read(other.join("SAVEPOINT.fm")).unwrap());
    assert!(verify(&kept).problem_line().contains("of another manifest"), "{}", verify(&kept).problem_line());
}

#[test]
fn a_left_over_is_swept_by_the_next_attempt_and_by_a_start_and_a_strange_directory_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    make(&path, "first").unwrap();
    let savepoints = path.join("savepoints");
    let left_over = |name: &str| {
        std::fs::create_dir_all(savepoints.join(name).join("db")).unwrap();
        overwrite(&savepoints.join(name).join("db/000001.sst"), b"half");
    };
    left_over(".second.tmp");
    make(&path, "second").unwrap();
    assert!(hidden(&savepoints).is_empty());
    [".third.tmp", ".fourth.deleted", ".no name.tmp", ".notes"].iter().for_each(|name| left_over(name));
    drop(open(&path).unwrap());
    let mut left = hidden(&savepoints);
    left.sort();
    assert_eq!(left, [".no name.tmp", ".notes"], "what is not ours stays");
    std::fs::create_dir(savepoints.join(".fifth.tmp")).unwrap();
    overwrite(&savepoints.join(".fifth.tmp/diary"), b"x");
    let error = make(&path, "fifth").unwrap_err();
    assert!(error.to_string().contains("another use"), "{error}");
    assert!(savepoints.join(".fifth.tmp/diary").exists());
}

#[test]
fn one_under_work_elsewhere_is_neither_swept_nor_entered() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let under_work = path.join("savepoints/.busy.tmp");
    std::fs::create_dir_all(&under_work).unwrap();
    let held = std::fs::File::open(&under_work).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    drop(open(&path).unwrap());
    assert!(under_work.exists());
    let error = make(&path, "busy").unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    drop(held);
    make(&path, "busy").unwrap();
}

/// A state directory whose checkpoint 1 has staged output and partitions.
fn with_output(dir: &Path) -> PathBuf {
    let path = dir.join("state");
    let state = open(&path).unwrap();
    let writer = state.begin(1).unwrap();
    fill(&HastyFs::default(), &writer, None).unwrap();
    let partition = |name: &str| PartitionState {
        name: name.to_owned(),
        source: "s".to_owned(),
        position: Position { bytes: 10, records: 2 },
        identity: SourceIdentity { head_bytes: 4, head_crc32: 5 },
        finished: false,
        max_time: None,
        watermark: Watermark::None,
        idle: false,
        lateness: crate::operator::LatenessSketch::default(),
    };
    let mut draft = draft(1);
    draft.partitions = ["a", "b"].map(partition).to_vec();
    draft.staged = vec![StagedOutput { sink: "out".to_owned(), handle: vec![1], rows: 3, bytes: 9 }];
    writer.publish(draft).unwrap();
    path
}

#[test]
fn a_move_goes_on_with_the_same_history_above_every_generation_of_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_output(dir.path());
    let savepoint = make(&path, "kept").unwrap().path;
    (0..5).for_each(|_| drop(open(&path).unwrap()));
    let to = dir.path().join("moved");
    std::fs::create_dir(&to).unwrap();
    let done = restored(&savepoint, &to, RestoreAs::Move).unwrap();
    assert_eq!((done.lineage, done.epoch, done.staged_rows, done.rows_left), (LINEAGE, 1, 3, 0));
    let state = open(&to).unwrap();
    assert_eq!((state.lineage(), state.generation(), state.next_epoch()), (LINEAGE, (1 << 32) + 1, 2));
    let chosen = state.newest_verified(None).unwrap().chosen.unwrap();
    assert_eq!(**chosen.manifest(), peek(&path, None).unwrap());
    state.permit(&chosen).unwrap();
    state.materialise(&chosen).unwrap();
    assert_eq!(checkpoint(&state).unwrap().epoch(), 2);
    let origin = Origin::load(&to).unwrap().unwrap();
    assert_eq!((origin.kind, origin.epoch, origin.savepoint.as_str()), (OriginKind::Moved, 1, "kept"));
    drop(state);
    // Moved again, from a checkpoint of what was moved.
    let again = dir.path().join("again");
    restored(&to, &again, RestoreAs::Move).unwrap();
    assert_eq!(open(&again).unwrap().generation(), (2 << 32) + 1);
    assert!(verify(&path.join("checkpoints/chk-0000000001")).is_sound());
}

#[test]
fn a_fork_has_a_history_of_its_own_and_nothing_staged() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_output(dir.path());
    let _running = open(&path).unwrap();
    let to = dir.path().join("fork");
    let done = restored(&path, &to, RestoreAs::Fork { name: Some("other".to_owned()) }).unwrap();
    assert_eq!((done.lineage, done.staged_rows, done.rows_left), (FORK, 0, 3));
    assert!(matches!(open(&to), Err(CheckpointError::OtherPipeline { .. })));
    let state = StateDirectory::open_in(&to, "other", hasty()).unwrap();
    let chosen = state.newest_verified(None).unwrap().chosen.unwrap();
    let manifest = chosen.manifest();
    assert_eq!((manifest.lineage, manifest.epoch, manifest.parent), (FORK, 1, None));
    assert_eq!((manifest.pipeline.as_str(), manifest.staged.len()), ("other", 0));
    assert_eq!(manifest.counters, peek(&path, None).unwrap().counters);
    assert_eq!((state.generation(), state.next_epoch()), (1, 2));
    assert_eq!(Origin::load(&to).unwrap().unwrap().lineage, LINEAGE);
    assert_eq!(Origin::load(&path).unwrap(), None);
    state.materialise(&chosen).unwrap();
    checkpoint(&state).unwrap();
}

#[test]
fn a_move_is_refused_while_somebody_runs_the_original_and_onto_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_output(dir.path());
    let savepoint = make(&path, "kept").unwrap().path;
    let to = dir.path().join("to");
    let running = open(&path).unwrap();
    for from in [&path, &savepoint] {
        let error = restored(from, &to, RestoreAs::Move).unwrap_err();
        assert!(matches!(error, CheckpointError::OriginalInUse { .. }), "{error}");
        assert!(Error::from(error).remedy().unwrap().contains("stop the original"));
    }
    drop(running);
    let error = restored(&savepoint, &path, RestoreAs::Move).unwrap_err();
    assert!(matches!(error, CheckpointError::Refused { .. }), "{error}");
    assert!(!to.exists() && hidden(dir.path()).is_empty());
    restored(&savepoint, &to, RestoreAs::Move).unwrap();
}

#[test]
fn partitions_are_given_up_and_renamed_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_output(dir.path());
    let with = |drop: &[&str], rename: &[(&str, &str)], to: &str| {
        let owned = |(old, new): &(&str, &str)| ((*old).to_owned(), (*new).to_owned());
        let partitions = PartitionChanges {
            drop: drop.iter().map(|name| (*name).to_owned()).collect(),
            rename: rename.iter().map(owned).collect::<BTreeMap<_, _>>(),
        };
        let to = dir.path().join(to);
        let request =
            RestoreRequest { from: path.clone(), at: None, to: to.clone(), how: RestoreAs::Move, partitions };
        restore(&request, &hasty()).map(|_| peek(&to, None).unwrap().partitions)
    };
    for (drop, rename) in [(&["x"][..], &[][..]), (&[], &[("x", "y")]), (&[], &[("a", "b")])] {
        assert!(
            matches!(with(drop, rename, "no"), Err(CheckpointError::Refused { .. })),
            "{drop:?} {rename:?}"
        );
    }
    let changed = with(&["a"], &[("b", "c")], "yes").unwrap();
    let seen: Vec<_> = changed.iter().map(|p| (p.name.as_str(), p.finished, p.position.records)).collect();
    assert_eq!(seen, [("a", true, 2), ("c", false, 2)]);
    let swapped = with(&[], &[("a", "b"), ("b", "a")], "swapped").unwrap();
    assert_eq!(swapped.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    let origin = Origin::load(&dir.path().join("yes")).unwrap().unwrap();
    assert_eq!(origin.dropped_partitions, ["a"]);
    assert_eq!(origin.renamed_partitions, [("b".to_owned(), "c".to_owned())]);
}

#[test]
fn a_savepoint_is_made_of_a_savepoint_and_says_so_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let first = make(&path, "first").unwrap().path;
    let to = dir.path().join("second");
    let second = create(&CreateRequest { to: Some(to), ..request(&first, "second") }, &hasty()).unwrap();
    assert_eq!(SavepointRecord::load(&second.path).unwrap().unwrap().name, "second");
    assert!(verify(&second.path).is_sound());
    assert_eq!(SavepointRecord::load(&path.join("checkpoints/chk-0000000001")).unwrap(), None);
}
