//! One writer: the lock between processes, the fence between generations, and whose directory it is.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{HastyFs, checkpoint, draft, environment, fill, made, open, overwrite, take_over};
use crate::checkpoint::{CheckpointError, Manifest, StateDirectory, list, verify};
use crate::error::{Error, ErrorKind};

const CHILD: &str = "FLOODMARK_TEST_LOCK_DIRECTORY";

/// Runs only as the child of the test below: holds the lock until its input ends.
#[test]
fn child_process_that_holds_the_lock() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let state = open(Path::new(&path)).unwrap();
    println!("\nheld by generation {}", state.generation());
    let _ = std::io::stdin().lock().lines().count();
}

fn child_holding(path: &Path) -> Child {
    let name = "checkpoint::tests::ownership::child_process_that_holds_the_lock";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.starts_with("held by")), "the child holds nothing");
    child
}

#[test]
fn a_second_process_is_told_which_one_holds_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let mut child = child_holding(&path);
    let error = open(&path).unwrap_err();
    let CheckpointError::Locked { holder, .. } = &error else { panic!("{error}") };
    assert_eq!(holder.pid, Some(child.id()));
    let error = Error::from(error);
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.remedy().unwrap().contains("deleting files does not release the lock"));
    // A killed process holds nothing.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(open(&path).unwrap().generation(), 2);
}

#[test]
fn a_zombie_whose_lock_file_was_deleted_cannot_publish() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let zombie = open(&path).unwrap();
    let chosen = zombie.newest_verified(None).unwrap().chosen.unwrap();
    zombie.materialise(&chosen).unwrap();
    let writer = zombie.begin(2).unwrap();
    fill(&HastyFs::default(), &writer, None).unwrap();

    std::fs::remove_file(path.join("LOCK")).unwrap();
    let successor = open(&path).unwrap();
    assert_eq!(successor.generation(), zombie.generation() + 1);
    let error = writer.publish(draft(2)).unwrap_err();
    assert!(matches!(error, CheckpointError::Fenced { .. }), "{error}");
    assert!(matches!(zombie.begin(2), Err(CheckpointError::Fenced { .. })));
    assert!(matches!(zombie.materialise(&chosen), Err(CheckpointError::Fenced { .. })));
    assert!(zombie.check_owner().is_err());
    drop(zombie);

    let chosen = successor.newest_verified(None).unwrap().chosen.unwrap();
    assert_eq!(chosen.manifest().epoch, 1);
    successor.materialise(&chosen).unwrap();
    let published = checkpoint(&successor).unwrap();
    assert_eq!((published.epoch(), published.generation()), (2, successor.generation()));
}

#[test]
fn a_raised_generation_fences_even_under_the_same_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let zombie = open(&path).unwrap();
    let writer = zombie.begin(1).unwrap();
    fill(&HastyFs::default(), &writer, None).unwrap();
    take_over(&path);
    let error = writer.publish(draft(1)).unwrap_err();
    assert!(error.to_string().contains("generation is 2"), "{error}");
    assert!(list(&path).unwrap().is_empty());
}

#[test]
fn a_take_over_during_the_rename_gives_no_permit_and_the_owner_can_go_on_from_either() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let fs = HastyFs { take_over_at_publish: true, ..HastyFs::default() };
    let zombie = StateDirectory::open_in(&path, "flights", environment(Arc::new(fs))).unwrap();
    let error = checkpoint(&zombie).unwrap_err();
    assert!(matches!(error, CheckpointError::Fenced { .. }), "{error}");
    assert!(zombie.check_owner().is_err());
    drop(zombie);
    let owner = open(&path).unwrap();
    assert_eq!(owner.newest_verified(None).unwrap().chosen.unwrap().manifest().epoch, 2);
}

#[test]
fn a_checkpoint_that_a_zombie_published_at_the_last_moment_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let state = open(&path).unwrap();
    // The zombie's rename fell between our open and our publish: its checkpoint has our epoch, a lower generation.
    let stale = path.join("checkpoints/chk-0000000002");
    std::fs::create_dir(&stale).unwrap();
    let mut manifest = Manifest::load(&path.join("checkpoints/chk-0000000001")).unwrap();
    manifest.epoch = 2;
    overwrite(&stale.join("MANIFEST.fm"), &manifest.encode().unwrap());
    let published = checkpoint(&state).unwrap();
    assert_eq!(published.generation(), 2);
    assert!(verify(published.path()).is_sound());
    assert_eq!(std::fs::read_dir(path.join("checkpoints")).unwrap().count(), 2);
}

#[test]
fn a_checkpoint_of_our_own_generation_is_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let state = open(&path).unwrap();
    let writer = state.begin(1).unwrap();
    fill(&HastyFs::default(), &writer, None).unwrap();
    let foreign = path.join("checkpoints/chk-0000000001");
    std::fs::create_dir(&foreign).unwrap();
    overwrite(&foreign.join("note"), b"x");
    assert!(matches!(writer.publish(draft(1)), Err(CheckpointError::EpochTaken { .. })));
    assert!(foreign.join("note").exists());
}

#[test]
fn a_directory_that_is_not_ours_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    overwrite(&dir.path().join("thesis.tex"), b"years of work");
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(&error, CheckpointError::Foreign { entry, .. } if entry == "thesis.tex"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

    let with_work = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(with_work.path().join("work/project")).unwrap();
    assert!(matches!(open(with_work.path()), Err(CheckpointError::Foreign { .. })));
}

#[test]
fn a_directory_of_another_pipeline_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let error =
        StateDirectory::open_in(&path, "orders", environment(Arc::new(HastyFs::default()))).unwrap_err();
    let CheckpointError::OtherPipeline { found, asked, .. } = &error else { panic!("{error}") };
    assert_eq!((found.as_str(), asked.as_str()), ("flights", "orders"));
    assert_eq!(open(&path).unwrap().generation(), 2, "a refused open must not raise the generation");
}

#[test]
fn a_lineage_that_is_lost_damaged_or_newer_is_an_error_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let lineage = path.join("LINEAGE");
    let mut bytes = std::fs::read(&lineage).unwrap();
    std::fs::remove_file(&lineage).unwrap();
    assert!(matches!(open(&path), Err(CheckpointError::LineageLost { .. })));
    overwrite(&lineage, &crate::codec::encode(*b"FLOODLIN", 2, &0_u8).unwrap());
    assert!(matches!(open(&path), Err(CheckpointError::Newer { found: 2, .. })));
    bytes[30] ^= 1;
    overwrite(&lineage, &bytes);
    let error = open(&path).unwrap_err();
    assert!(matches!(error, CheckpointError::LineageDamaged { .. }), "{error}");
    assert_eq!(Error::from(error).kind(), ErrorKind::Damaged);
    assert!(verify(&path.join("checkpoints/chk-0000000001")).is_sound());
}

#[test]
fn a_process_that_was_taken_over_and_writes_on_does_not_hold_its_successor_up() {
    static WRITES: AtomicUsize = AtomicUsize::new(0);
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    for (epoch, (writes, left)) in (2..).zip([(1, 0), (1_000, 1)]) {
        WRITES.store(writes, Ordering::SeqCst);
        let old = open(&path).unwrap();
        old.materialise(&old.newest_verified(None).unwrap().chosen.unwrap()).unwrap();
        std::fs::remove_file(path.join("LOCK")).unwrap();
        let fs = HastyFs { busy: Some(&WRITES), ..HastyFs::default() };
        let state = StateDirectory::open_in(&path, "flights", environment(Arc::new(fs))).unwrap();
        assert_eq!(std::fs::read_dir(path.join("work")).unwrap().count(), left);
        assert_eq!(checkpoint(&state).unwrap().epoch(), epoch);
    }
    let _state = open(&path).unwrap();
    assert_eq!(std::fs::read_dir(path.join("work")).unwrap().count(), 0);
}

#[test]
fn the_lock_file_tells_pid_and_host() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let _state = open(&path).unwrap();
    let note = std::fs::read_to_string(path.join("LOCK")).unwrap();
    assert!(note.contains(&format!("pid={}\n", std::process::id())) && note.contains("host="), "{note}");
}
