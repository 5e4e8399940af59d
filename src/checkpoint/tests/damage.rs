//! Damage and hostility: whatever is done to a checkpoint, verify and restore say so.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{checkpoint, files, made, open, overwrite, rename};
use crate::checkpoint::{CheckpointError, Manifest, Problem, VerifyReport, list, verify};
use crate::error::{Error, ErrorKind};

fn one(dir: &Path) -> PathBuf {
    made(dir, 1).join("checkpoints/chk-0000000001")
}

fn problems(report: &VerifyReport) -> &[Problem] {
    assert!(!report.is_sound());
    &report.problems
}

#[test]
fn a_sound_checkpoint_verifies_with_every_file_counted() {
    let dir = tempfile::tempdir().unwrap();
    let report = verify(&one(dir.path()));
    assert!(report.is_sound(), "{}", report.problem_line());
    assert_eq!((report.files_verified, report.bytes_verified), (2, 30 + 16));
    assert!(report.notes.is_empty());
    assert_eq!(report.into_verified().unwrap().manifest().epoch, 1);
}

#[test]
fn every_flipped_byte_of_a_checkpoint_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = one(dir.path());
    let mut flips = 0;
    for file in files(&path) {
        let sound = std::fs::read(&file).unwrap();
        for index in 0..sound.len() {
            let mut damaged = sound.clone();
            damaged[index] ^= 0x10;
            overwrite(&file, &damaged);
            assert!(!verify(&path).is_sound(), "byte {index} of {}", file.display());
            flips += 1;
        }
        overwrite(&file, &sound);
    }
    assert!(flips > 300 && verify(&path).is_sound(), "{flips}");
}

#[test]
fn truncated_missing_extra_and_swapped_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = one(dir.path());
    let (table, current, extra) =
        (path.join("db/000001.sst"), path.join("db/CURRENT"), path.join("db/EXTRA"));
    let bytes = std::fs::read(&table).unwrap();
    let name = || "000001.sst".to_owned();

    overwrite(&table, &bytes[..10]);
    assert_eq!(problems(&verify(&path)), [Problem::Size { name: name(), expected: 30, found: 10 }]);
    overwrite(&table, &[0; 30]);
    assert!(matches!(problems(&verify(&path)), [Problem::Checksum { .. }]));
    std::fs::remove_file(&table).unwrap();
    assert_eq!(problems(&verify(&path)), [Problem::Missing { name: name() }]);
    overwrite(&table, &bytes);
    overwrite(&extra, b"x");
    assert_eq!(problems(&verify(&path)), [Problem::Extra { name: "EXTRA".to_owned() }]);
    rename(&table, &extra);
    rename(&current, &table);
    rename(&extra, &current);
    assert_eq!(problems(&verify(&path)).len(), 2);
}

#[test]
fn a_checkpoint_without_its_database_or_manifest_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = one(dir.path());
    rename(&path.join("db"), &dir.path().join("db"));
    assert_eq!(problems(&verify(&path)), [Problem::Missing { name: "db".to_owned() }]);
    std::fs::remove_file(path.join("MANIFEST.fm")).unwrap();
    assert!(matches!(problems(&verify(&path)), [Problem::Manifest { .. }]));
    assert!(matches!(problems(&verify(&dir.path().join("nowhere"))), [Problem::Missing { .. }, ..]));
}

#[test]
fn symlinks_and_special_files_are_refused_without_being_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = one(dir.path());
    let (table, aside) = (path.join("db/000001.sst"), dir.path().join("aside"));
    rename(&table, &aside);
    let irregular = [Problem::Irregular { name: "000001.sst".to_owned() }];

    std::os::unix::fs::symlink(&aside, &table).unwrap();
    assert_eq!(problems(&verify(&path)), irregular);
    std::fs::remove_file(&table).unwrap();
    make_fifo(&table);
    assert_eq!(problems(&verify(&path)), irregular);
    std::fs::remove_file(&table).unwrap();
    std::fs::create_dir(&table).unwrap();
    assert_eq!(problems(&verify(&path)), irregular);
    std::fs::remove_dir(&table).unwrap();
    rename(&aside, &table);

    let manifest = path.join("MANIFEST.fm");
    rename(&manifest, &aside);
    make_fifo(&manifest);
    assert!(problems(&verify(&path)).contains(&Problem::Irregular { name: "MANIFEST.fm".to_owned() }));
    std::fs::remove_file(&manifest).unwrap();
    rename(&aside, &manifest);

    rename(&path.join("db"), &aside);
    std::os::unix::fs::symlink(&aside, path.join("db")).unwrap();
    assert!(problems(&verify(&path)).contains(&Problem::Irregular { name: "db".to_owned() }));
}

fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn a_directory_flooded_with_files_gives_a_report_of_bounded_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = one(dir.path());
    for index in 0..1_000 {
        File::create_new(path.join(format!("db/junk-{index}"))).unwrap();
    }
    let report = verify(&path);
    assert_eq!(report.problems.len(), 101);
    assert_eq!(report.problems.last(), Some(&Problem::More { count: 900 }));
}

#[test]
fn a_giant_manifest_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = one(dir.path());
    let manifest = File::options().write(true).open(path.join("MANIFEST.fm")).unwrap();
    manifest.set_len(1 << 40).unwrap();
    assert!(problems(&verify(&path))[0].to_string().contains("too large"));
}

#[test]
fn a_copy_under_another_name_verifies_with_a_note_and_under_another_epoch_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = one(dir.path());
    let copy = dir.path().join("before-upgrade");
    rename(&path, &copy);
    let report = verify(&copy);
    assert!(report.is_sound() && report.notes[0].contains("chk-0000000001"), "{report:?}");
    assert_eq!(list(&copy).unwrap()[0].epoch, Some(1));
    let wrong = dir.path().join("chk-0000000002");
    rename(&copy, &wrong);
    assert!(matches!(problems(&verify(&wrong)), [Problem::WrongName { epoch: 1, .. }]));
}

#[test]
fn a_damaged_newest_checkpoint_is_an_error_that_names_the_way_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 3);
    overwrite(&path.join("checkpoints/chk-0000000003/db/CURRENT"), b"MANIFEST-999999\n");
    let state = open(&path).unwrap();
    let error = state.newest_verified(None).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { epoch: 3, alternative: Some(2), .. }), "{error}");
    let error = Error::from(error);
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("name=CURRENT"), "{error}");
    let remedy = error.remedy().unwrap();
    assert!(remedy.contains("--at 2") && remedy.contains("ahead of the state"), "{remedy}");

    let choice = state.newest_verified(Some(2)).unwrap();
    assert_eq!((choice.chosen.as_ref().unwrap().manifest().epoch, choice.newer), (2, vec![3]));
    state.materialise(choice.chosen.as_ref().unwrap()).unwrap();
    let published = checkpoint(&state).unwrap();
    assert_eq!((published.epoch(), published.manifest().parent), (4, Some(2)));
    assert_eq!(state.newest_verified(None).unwrap().chosen.unwrap().manifest().epoch, 4);
}

#[test]
fn the_alternative_that_is_offered_verifies_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 3);
    for epoch in 2..=3 {
        overwrite(&path.join(format!("checkpoints/chk-000000000{epoch}/MANIFEST.fm")), b"rubbish");
    }
    let state = open(&path).unwrap();
    let error = state.newest_verified(None).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { epoch: 3, alternative: Some(1), .. }), "{error}");
    let choice = state.newest_verified(Some(1)).unwrap();
    assert_eq!(choice.damaged.iter().map(|damaged| damaged.epoch).collect::<Vec<_>>(), [2, 3]);
    assert!(matches!(state.newest_verified(Some(2)), Err(CheckpointError::Damaged { epoch: 2, .. })));
}

#[test]
fn damage_in_a_shared_file_is_reported_for_every_checkpoint_that_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 3);
    // Table 2 is one inode in checkpoints 2 and 3.
    overwrite(&path.join("checkpoints/chk-0000000003/db/000002.sst"), &[7; 30]);
    let sound: Vec<bool> =
        list(&path).unwrap().iter().map(|summary| verify(&summary.path).is_sound()).collect();
    assert_eq!(sound, [true, false, false]);
}

#[test]
fn a_checkpoint_of_another_history_is_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let checkpoint = path.join("checkpoints/chk-0000000001");
    let mut manifest = Manifest::load(&checkpoint).unwrap();
    manifest.lineage.0[0] ^= 1;
    overwrite(&checkpoint.join("MANIFEST.fm"), &manifest.encode().unwrap());
    assert!(verify(&checkpoint).is_sound());
    let error = open(&path).unwrap().newest_verified(None).unwrap_err();
    assert!(error.to_string().contains("belongs to another state directory"), "{error}");
}

#[test]
fn a_checkpoint_behind_a_symlink_is_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let (checkpoint, aside) = (path.join("checkpoints/chk-0000000001"), dir.path().join("chk-0000000001"));
    rename(&checkpoint, &aside);
    std::os::unix::fs::symlink(&aside, &checkpoint).unwrap();
    let error = open(&path).unwrap().newest_verified(None).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { epoch: 1, .. }), "{error}");
}

#[test]
fn a_newer_format_asks_for_a_newer_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 1);
    let manifest = path.join("checkpoints/chk-0000000001/MANIFEST.fm");
    overwrite(&manifest, &crate::codec::encode(*b"FLOODCHK", 4, &0_u64).unwrap());
    let error = open(&path).unwrap().newest_verified(None).unwrap_err();
    assert!(matches!(error, CheckpointError::Newer { found: 4, known: 3, .. }), "{error}");
    assert_eq!(Error::from(error).kind(), ErrorKind::Incompatible);
}

#[test]
fn a_missing_newest_checkpoint_is_noticed_and_not_an_empty_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path(), 2);
    drop(open(&path).unwrap());
    std::fs::remove_dir_all(path.join("checkpoints/chk-0000000002")).unwrap();
    let error = open(&path).unwrap().newest_verified(None).unwrap_err();
    assert!(matches!(error, CheckpointError::NewestMissing { seen: 2, present: Some(1), .. }), "{error}");
    std::fs::remove_dir_all(path.join("checkpoints")).unwrap();
    let state = open(&path).unwrap();
    assert_eq!(Error::from(state.newest_verified(None).unwrap_err()).kind(), ErrorKind::Damaged);
    assert_eq!(state.next_epoch(), 3);
}

#[test]
fn a_file_that_changes_between_verification_and_restore_is_caught() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&made(dir.path(), 1)).unwrap();
    let chosen = state.newest_verified(None).unwrap().chosen.unwrap();
    let mut current = File::options().write(true).open(chosen.database().join("CURRENT")).unwrap();
    current.write_all(b"X").unwrap();
    assert!(matches!(state.materialise(&chosen), Err(CheckpointError::Damaged { .. })));
    assert!(!state.work_dir().exists());
}

#[test]
fn a_file_that_goes_bad_in_a_directory_in_use_is_named_with_all_that_share_it() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(&dir.path().join("state")).unwrap();
    let published: Vec<_> = (0..3).map(|_| checkpoint(&state).unwrap()).collect();
    let newest = published.last().unwrap();
    assert_eq!(state.reread(newest).unwrap(), newest.manifest().database_bytes());
    // The second's table is the third's too, by hard link; the first checkpoint is older than it.
    let table = newest.path().join("db/000002.sst");
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[7] ^= 1;
    overwrite(&table, &bytes);
    let error = state.reread(newest).unwrap_err();
    let message = error.to_string();
    for word in ["db/000002.sst", "fails its checksum", "shared_by=[chk-0000000002, chk-0000000003]"] {
        assert!(message.contains(word), "no {word:?} in {message}");
    }
    let error = Error::from(error);
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.remedy().unwrap().contains("copy"));
    std::fs::remove_file(&table).unwrap();
    assert!(state.reread(newest).unwrap_err().to_string().contains("file is missing"));
}
