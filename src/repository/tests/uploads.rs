//! One checkpoint after the other: what is written, what is shared, who may, and how it comes back.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::repository::{
    Faults, FaultyRepository, ManifestKey, ObjectName, StopSignal, Uploader, fetch_with, list,
};

#[test]
fn a_checkpoint_comes_back_as_it_went() {
    let mut site = Site::new();
    let repository = local(&site.path("mirror"));
    let published = site.checkpoint(&files(&[("000001.sst", "one"), ("CURRENT", "m")]));
    let mirror = site.claim(&repository).unwrap();
    let uploaded = mirror.upload(published.path(), published.manifest(), &[]).unwrap();
    assert_eq!((uploaded.epoch, uploaded.new_files, uploaded.new_bytes), (1, 2, 4));
    assert!(mirror.holds(published.manifest()));
    let into = site.path("back/chk-0000000001");
    let verified = fetch_with(repository.as_ref(), &patient(), None, &into).unwrap();
    assert_eq!(verified.manifest().epoch, 1);
    assert_eq!(contents(&into), contents(published.path()));
}

#[test]
fn files_that_an_ancestor_brought_are_not_written_again() {
    let mut site = Site::new();
    let repository = local(&site.path("mirror"));
    let mirror = site.claim(&repository).unwrap();
    let first = site.checkpoint(&files(&[("000001.sst", "one"), ("CURRENT", "a")]));
    mirror.upload(first.path(), first.manifest(), &parents(&first)).unwrap();
    let second = site.checkpoint(&files(&[("000001.sst", "one"), ("000002.sst", "two"), ("CURRENT", "b")]));
    let uploaded = mirror.upload(second.path(), second.manifest(), &parents(&second)).unwrap();
    assert_eq!((uploaded.new_files, uploaded.new_bytes, uploaded.shared_bytes), (2, 4, 3));
    for published in [&first, &second] {
        let into = site.path(&format!("back-{}", published.epoch()));
        fetch_with(repository.as_ref(), &patient(), Some(published.epoch()), &into).unwrap();
        assert_eq!(contents(&into), contents(published.path()));
    }
}

#[test]
fn what_was_deleted_behind_our_back_is_uploaded_again() {
    let mut site = Site::new();
    let repository = local(&site.path("mirror"));
    let mirror = site.claim(&repository).unwrap();
    let texts = |last: &str| files(&[("000001.sst", "one"), ("000002.sst", "two"), ("CURRENT", last)]);
    let first = site.checkpoint(&texts("a"));
    mirror.upload(first.path(), first.manifest(), &[]).unwrap();
    let objects = repository.list("data", 100).unwrap().objects;
    let gone = objects.iter().find(|object| object.name.ends_with("000001.sst")).unwrap();
    repository.delete(&gone.name).unwrap();
    let listed = list(repository.as_ref(), &patient()).unwrap();
    let problem = listed[0].problem.clone().unwrap();
    assert!(problem.contains("objects=1") && problem.contains(&gone.name), "{problem}");
    assert!(mirror.holds(first.manifest()), "an owner looks when it claims");

    drop(mirror);
    site.state = None;
    let mirror = site.claim(&repository).unwrap();
    assert!(!mirror.holds(first.manifest()));
    let second = site.checkpoint(&texts("b"));
    let uploaded = mirror.upload(second.path(), second.manifest(), &[first.epoch()]).unwrap();
    assert_eq!((uploaded.new_files, uploaded.shared_bytes), (3, 0));
    let into = site.path("back");
    fetch_with(repository.as_ref(), &patient(), None, &into).unwrap();
    assert_eq!(contents(&into), contents(second.path()));
}

#[test]
fn a_file_number_that_is_used_again_is_another_object() {
    // The same name and size, other bytes: what a database writes after an older checkpoint was restored.
    let mut site = Site::new();
    let repository = local(&site.path("mirror"));
    let mirror = site.claim(&repository).unwrap();
    let first = site.checkpoint(&files(&[("000001.sst", "one")]));
    mirror.upload(first.path(), first.manifest(), &[]).unwrap();
    let second = site.checkpoint(&files(&[("000001.sst", "two")]));
    mirror.upload(second.path(), second.manifest(), &parents(&second)).unwrap();
    for published in [&first, &second] {
        let into = site.path(&format!("back-{}", published.epoch()));
        fetch_with(repository.as_ref(), &patient(), Some(published.epoch()), &into).unwrap();
        assert_eq!(contents(&into), contents(published.path()));
    }
    let objects = repository.list("data", 100).unwrap().objects;
    assert_eq!(objects.iter().filter_map(|object| ObjectName::parse(&object.name)).count(), 2);
}

#[test]
fn a_file_that_rotted_on_the_local_disk_is_not_passed_on() {
    let mut site = Site::new();
    let repository = local(&site.path("mirror"));
    let mirror = site.claim(&repository).unwrap();
    let published = site.checkpoint(&files(&[("000001.sst", "one")]));
    let path = published.path().join("db/000001.sst");
    DiskFs.remove_file(&path).unwrap();
    DiskFs.write_new(&path, b"onf").unwrap();
    let error = mirror.upload(published.path(), published.manifest(), &[]).unwrap_err();
    assert!(matches!(error, RepositoryError::Damaged { .. }), "{error}");
    assert!(repository.list("manifests", 10).unwrap().objects.is_empty());
}

#[test]
fn an_object_that_rotted_is_an_error_and_never_a_checkpoint() {
    let mut site = Site::new();
    let repository = local(&site.path("mirror"));
    let mirror = site.claim(&repository).unwrap();
    let published = site.checkpoint(&files(&[("000001.sst", "one")]));
    mirror.upload(published.path(), published.manifest(), &[]).unwrap();
    let object = repository.list("data", 10).unwrap().objects[0].name.clone();
    repository.delete(&object).unwrap();
    let into = site.path("back");
    let missing = fetch_with(repository.as_ref(), &patient(), None, &into).unwrap_err();
    assert!(matches!(missing, RepositoryError::NotFound { .. }), "{missing}");
    repository.put_new(&object, b"onf").unwrap();
    let rotted = fetch_with(repository.as_ref(), &patient(), None, &into).unwrap_err();
    assert!(matches!(rotted, RepositoryError::Damaged { .. }), "{rotted}");
    assert!(!into.join("MANIFEST.fm").exists());
    // Put right, the same directory is gone on with.
    repository.delete(&object).unwrap();
    repository.put_new(&object, b"one").unwrap();
    fetch_with(repository.as_ref(), &patient(), None, &into).unwrap();
    assert_eq!(contents(&into), contents(published.path()));
}

#[test]
fn who_was_taken_over_publishes_no_more_and_is_told_by_whom() {
    let mut one = Site::new();
    let repository = local(&one.path("mirror"));
    let mirror = one.claim(&repository).unwrap();
    let first = one.checkpoint(&files(&[("000001.sst", "one")]));
    mirror.upload(first.path(), first.manifest(), &[]).unwrap();

    // Another open of the same history, as a second machine makes one; the higher generation wins.
    let claim = Claim {
        pipeline: "flights".to_owned(),
        lineage: one.state().lineage(),
        generation: one.state().generation() + 1,
        base: Some(1),
    };
    let records = load_records(repository.as_ref(), &patient()).unwrap();
    let two = Mirror::claim(
        Arc::clone(&repository),
        patient(),
        one.clock(),
        claim.clone(),
        records.clone(),
        keep(3),
    )
    .unwrap();
    two.check_fence().unwrap();

    let second = one.checkpoint(&files(&[("000002.sst", "two")]));
    let error = mirror.upload(second.path(), second.manifest(), &parents(&second)).unwrap_err();
    let text = error.to_string();
    assert!(error.is_fence() && text.contains("our_generation=1") && text.contains("generation=2"), "{text}");
    assert!(text.contains(&format!("pid={}", std::process::id())), "{text}");
    assert_eq!(repository.list("manifests", 10).unwrap().objects.len(), 1);
    // A generation is had once.
    let again = Mirror::claim(repository, patient(), one.clock(), claim, records, keep(3)).unwrap_err();
    assert!(again.is_fence(), "{again}");
}

#[test]
fn a_record_whose_reply_was_lost_counts_and_another_one_of_its_name_does_not() {
    let mut site = Site::new();
    let inner = local(&site.path("mirror"));
    let faulty = Arc::new(FaultyRepository::new(Arc::clone(&inner), Faults::default(), 1));
    let repository: Arc<dyn Repository> = Arc::clone(&faulty) as _;
    let mirror = site.claim(&repository).unwrap();
    let first = site.checkpoint(&files(&[("000001.sst", "one")]));
    // Every reply to a write is lost once it was done twice.
    faulty.set_faults(Faults { twice: 1_000, ..Faults::default() });
    mirror.upload(first.path(), first.manifest(), &[]).unwrap();
    faulty.set_faults(Faults::default());
    let name = ManifestKey { epoch: 2, generation: 1 }.object_name();
    inner.put_new(&name, b"somebody else's").unwrap();
    let second = site.checkpoint(&files(&[("000001.sst", "one")]));
    let error = mirror.upload(second.path(), second.manifest(), &parents(&second)).unwrap_err();
    assert!(matches!(error, RepositoryError::Conflict { .. }), "{error}");
}

#[test]
fn the_uploader_passes_over_what_is_no_longer_the_newest_and_keeps_what_it_needs() {
    let mut site = Site::new();
    let inner = local(&site.path("mirror"));
    let faulty = Arc::new(FaultyRepository::new(Arc::clone(&inner), Faults::default(), 1));
    let repository: Arc<dyn Repository> = Arc::clone(&faulty) as _;
    let mirror = site.claim(&repository).unwrap();
    let state = site.state().clone();
    let uploader = Uploader::start(mirror, state.clone(), Arc::new(StopSignal::default())).unwrap();
    faulty.set_faults(Faults { refused: 1_000, ..Faults::default() });
    let lost = site.checkpoint(&files(&[("000001.sst", "one")]));
    uploader.offer(&lost).unwrap();
    let stats = uploader.drain().unwrap();
    assert_eq!((stats.uploaded, stats.failed), (0, 1));
    assert!(stats.problem.unwrap().contains("503"));
    faulty.set_faults(Faults::default());
    for text in ["two", "three", "four"] {
        let published = site.checkpoint(&files(&[("000002.sst", text)]));
        uploader.offer(&published).unwrap();
    }
    let stats = uploader.drain().unwrap();
    assert_eq!(stats.last_epoch, Some(4));
    assert!(stats.uploaded + stats.skipped == 3 && stats.problem.is_none(), "{stats:?}");
    // What is pinned stays, whatever retention says.
    let pin = state.pin(2);
    let plan =
        state.retention_plan(&crate::checkpoint::Keep { last: keep(1), pinned: Default::default() }).unwrap();
    state.retire(&plan).unwrap();
    let left: Vec<u64> =
        crate::checkpoint::list(&state.checkpoints()).unwrap().iter().filter_map(|it| it.epoch).collect();
    assert_eq!(left, [2, 4]);
    drop(pin);
}

#[test]
fn one_who_waits_is_told_when_patience_ends() {
    let mut site = Site::new();
    let faults = Faults { refused: 1_000, ..Faults::default() };
    let inner = local(&site.path("mirror"));
    let faulty = Arc::new(FaultyRepository::new(inner, Faults::default(), 1));
    let repository: Arc<dyn Repository> = Arc::clone(&faulty) as _;
    let mirror = site.claim(&repository).unwrap();
    faulty.set_faults(faults);
    let uploader = Uploader::start(mirror, site.state().clone(), Arc::new(StopSignal::default())).unwrap();
    let published = site.checkpoint(&files(&[("000001.sst", "one")]));
    let error = uploader.upload(&published, Duration::ZERO, site.clock().as_ref()).unwrap_err();
    assert!(matches!(error, RepositoryError::Unavailable { .. }), "{error}");
    faulty.set_faults(Faults::default());
    uploader.upload(&published, Duration::from_secs(60), site.clock().as_ref()).unwrap();
}
