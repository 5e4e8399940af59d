//! What a start does: every combination of what is here and what is there.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::checkpoint::{LineageId, StateDirectory, look};
use crate::repository::{
    Listing, LocalFacts, ManifestKey, Refusal, Settings, StartFacts, StartPlan, Tag, plan_start, prepare,
};

const OURS: LineageId = LineageId([1; 16]);
const OTHER: LineageId = LineageId([2; 16]);

fn key(epoch: u64, generation: u64) -> ManifestKey {
    ManifestKey { epoch, generation }
}

fn facts(local: Option<(u64, &[u64])>, stored: &[(u64, u64)], at: Option<u64>) -> StartFacts {
    StartFacts {
        owner: None,
        local: local.map(|(generation, epochs)| LocalFacts {
            lineage: OURS,
            generation,
            epochs: epochs.iter().copied().collect(),
        }),
        lineage: (!stored.is_empty()).then_some(OURS),
        stored: stored.iter().map(|&(epoch, generation)| key(epoch, generation)).collect::<BTreeSet<_>>(),
        at,
    }
}

#[test]
fn a_start_never_begins_empty_beside_checkpoints_and_never_lets_one_side_win_silently() {
    use StartPlan::{Fresh, Local, Refuse, Restore};
    let behind = |epoch, generation| Refuse(Refusal::LocalBehind(key(epoch, generation)));
    let cases = [
        (facts(None, &[], None), Fresh),
        (facts(Some((3, &[])), &[], None), Fresh),
        (facts(Some((3, &[7])), &[], None), Local),
        (facts(None, &[(7, 1), (8, 1)], None), Restore(key(8, 1))),
        (facts(None, &[(8, 1), (8, 2)], None), Restore(key(8, 2))),
        (facts(None, &[(7, 1), (8, 1)], Some(7)), Restore(key(7, 1))),
        (facts(None, &[(7, 1)], Some(9)), Refuse(Refusal::NoSuch)),
        // Opened and died before its first checkpoint.
        (facts(Some((1, &[])), &[(8, 1)], None), Restore(key(8, 1))),
        // The usual restart, and one whose last upload was cut.
        (facts(Some((3, &[7, 8])), &[(8, 3)], None), Local),
        (facts(Some((3, &[7, 8, 9])), &[(8, 3)], None), Local),
        // An old copy of the state directory.
        (facts(Some((3, &[7])), &[(8, 3)], None), behind(8, 3)),
        // Another machine took over, and has come less far, as far, or farther.
        (facts(Some((3, &[9])), &[(7, 3), (8, 4)], None), behind(8, 4)),
        (facts(Some((3, &[8])), &[(8, 4)], None), behind(8, 4)),
        (facts(Some((3, &[8])), &[(9, 4)], None), behind(9, 4)),
        // Asked for by its number.
        (facts(Some((3, &[7])), &[(8, 4)], Some(7)), Local),
        (facts(Some((3, &[8])), &[(9, 4)], Some(9)), behind(9, 4)),
        // Taken over by somebody who has uploaded nothing yet.
        (
            StartFacts { owner: Some(4), ..facts(Some((3, &[7])), &[(7, 3)], None) },
            Refuse(Refusal::Overtaken(4)),
        ),
        (StartFacts { owner: Some(4), ..facts(Some((3, &[7])), &[(7, 3)], Some(7)) }, Local),
        (StartFacts { owner: Some(3), ..facts(Some((3, &[8])), &[(7, 3)], None) }, Local),
        // Or who never uploaded anything, to a repository of ours.
        (
            StartFacts { owner: Some(4), lineage: Some(OURS), ..facts(Some((3, &[7])), &[], None) },
            Refuse(Refusal::Overtaken(4)),
        ),
        (StartFacts { owner: Some(4), lineage: Some(OURS), ..facts(Some((3, &[7])), &[], Some(7)) }, Local),
        (StartFacts { owner: Some(3), lineage: Some(OURS), ..facts(Some((3, &[7])), &[], None) }, Local),
        (StartFacts { owner: Some(4), lineage: Some(OTHER), ..facts(Some((3, &[7])), &[], None) }, Local),
        // Fetched by its number: asked for again, until a new checkpoint follows it.
        (facts(Some((6, &[7])), &[(7, 3), (8, 4)], None), behind(8, 4)),
        (facts(Some((6, &[7])), &[(7, 3), (8, 4)], Some(7)), Local),
        (facts(Some((6, &[7, 9])), &[(7, 3), (8, 4)], None), Local),
    ];
    for (facts, plan) in cases {
        assert_eq!(plan_start(&facts), plan, "{facts:?}");
    }
    let mut foreign = facts(Some((3, &[7])), &[(7, 1)], None);
    foreign.lineage = Some(OTHER);
    assert_eq!(plan_start(&foreign), Refuse(Refusal::OtherLineage));
}

/// A repository with two checkpoints, and the site that uploaded them.
fn uploaded() -> (Site, Arc<dyn Repository>, Vec<Published>) {
    let mut site = Site::new();
    let repository = local(&site.path("mirror"));
    let mirror = site.claim(&repository).unwrap();
    let mut published = Vec::new();
    for text in ["one", "two"] {
        let checkpoint = site.checkpoint(&files(&[("000001.sst", text), ("CURRENT", "x")]));
        mirror.upload(checkpoint.path(), checkpoint.manifest(), &parents(&checkpoint)).unwrap();
        published.push(checkpoint);
    }
    (site, repository, published)
}

#[test]
fn a_new_machine_takes_the_newest_checkpoint_and_the_history_with_it() {
    let (mut site, repository, published) = uploaded();
    let path = site.path("another machine");
    let settings = Settings::new(repository);
    let clock = site.clock();
    let prepared = prepare(&settings, &path, "flights", None, &clock).unwrap();
    assert_eq!((prepared.adopted, prepared.generation_above(), prepared.epochs_above()), (Some(2), 2, 2));
    let local = look(&path).unwrap().unwrap();
    assert_eq!((local.lineage, local.generation), (site.state().lineage(), 2));
    let state = StateDirectory::open(&path, "flights", Arc::clone(&clock)).unwrap();
    assert_eq!(state.generation(), 3);
    let choice = state.newest_verified(None).unwrap().chosen.unwrap();
    assert_eq!(contents(choice.path()), contents(published[1].path()));
    let (lineage, generation) = (state.lineage(), state.generation());
    let claim = Claim { pipeline: "flights".to_owned(), lineage, generation, base: Some(2) };
    let _uploader = prepared.claim(claim, keep(3)).unwrap().start(&state).unwrap();
    // The first machine comes back. What the other did meanwhile, and did not bring yet, it cannot know: a person decides.
    let overtaken = prepare(&settings, &site.path("state"), "flights", None, &clock).unwrap_err();
    assert!(matches!(overtaken, RepositoryError::Overtaken { generation: 3, .. }), "{overtaken}");
    assert!(prepare(&settings, &site.path("state"), "flights", Some(2), &clock).unwrap().adopted.is_none());
}

#[test]
fn a_restore_that_was_cut_is_gone_on_with() {
    let (site, repository, published) = uploaded();
    let path = site.path("another machine");
    let faulty = Arc::new(crate::repository::FaultyRepository::new(
        repository,
        crate::repository::Faults::default(),
        1,
    ));
    let mut settings = Settings::new(Arc::clone(&faulty) as _);
    settings.retry = patient();
    let clock = site.clock();
    for calls in 1..=20 {
        faulty.set_faults(crate::repository::Faults {
            dead_after: Some(faulty.calls() + calls),
            ..crate::repository::Faults::default()
        });
        if let Ok(prepared) = prepare(&settings, &path, "flights", None, &clock) {
            assert!(prepared.adopted == Some(2) && calls > 3, "{calls}");
            let state = StateDirectory::open(&path, "flights", clock).unwrap();
            let choice = state.newest_verified(None).unwrap().chosen.unwrap();
            assert_eq!(contents(choice.path()), contents(published[1].path()));
            return;
        }
        assert!(look(&path).unwrap().is_none_or(|local| local.epochs.is_empty()));
    }
    panic!("never restored");
}

/// A repository whose first listings leave out the newest record.
#[derive(Debug)]
struct Lagging {
    inner: Arc<dyn Repository>,
    listings: AtomicU64,
}

impl Repository for Lagging {
    fn place(&self) -> String {
        self.inner.place()
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<Tag, RepositoryError> {
        self.inner.put_new(name, bytes)
    }

    fn put_if(&self, name: &str, bytes: &[u8], current: &Tag) -> Result<Tag, RepositoryError> {
        self.inner.put_if(name, bytes, current)
    }

    fn put_file(&self, name: &str, stream: &mut dyn Read, bytes: u64) -> Result<(), RepositoryError> {
        self.inner.put_file(name, stream, bytes)
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<(Vec<u8>, Tag), RepositoryError> {
        self.inner.get(name, bytes_max)
    }

    fn get_range(&self, name: &str, from: u64, bytes: u64) -> Result<Vec<u8>, RepositoryError> {
        self.inner.get_range(name, from, bytes)
    }

    fn list(&self, prefix: &str, objects_max: usize) -> Result<Listing, RepositoryError> {
        let mut listing = self.inner.list(prefix, objects_max)?;
        // Two listings before the repository is taken over, and two after it.
        if self.listings.fetch_add(1, Ordering::SeqCst) < 4 {
            listing.objects.pop();
        }
        Ok(listing)
    }

    fn delete(&self, name: &str) -> Result<(), RepositoryError> {
        self.inner.delete(name)
    }
}

#[test]
fn a_checkpoint_that_listings_left_out_is_found_before_an_older_one_is_taken_in() {
    let (site, repository, _) = uploaded();
    let settings = Settings::new(Arc::new(Lagging { inner: repository, listings: AtomicU64::new(0) }));
    let (path, clock) = (site.path("another machine"), site.clock());
    let moved = prepare(&settings, &path, "flights", None, &clock).unwrap_err();
    assert!(matches!(moved, RepositoryError::Moved { epoch: 2, .. }), "{moved}");
    assert!(look(&path).unwrap().is_none_or(|local| local.epochs.is_empty()));
    assert_eq!(prepare(&settings, &path, "flights", None, &clock).unwrap().adopted, Some(2));
}

#[test]
fn refusals_name_both_sides_and_the_choices() {
    let (mut site, repository, _) = uploaded();
    let settings = Settings::new(repository);
    let clock = site.clock();
    let other = prepare(&settings, &site.path("x"), "orders", None, &clock).unwrap_err();
    assert!(matches!(other, RepositoryError::OtherPipeline { .. }), "{other}");
    let none = prepare(&settings, &site.path("x"), "flights", Some(9), &clock).unwrap_err();
    assert!(none.to_string().contains("present=[2, 1]"), "{none}");
    assert!(!site.path("x").exists());
    // A state directory of another history.
    let mut foreign = Site::new();
    foreign.checkpoint(&files(&[("CURRENT", "x")]));
    let refused = prepare(&settings, &foreign.path("state"), "flights", None, &clock).unwrap_err();
    assert!(matches!(refused, RepositoryError::OtherLineage { .. }), "{refused}");
    // The newest checkpoint is gone from the local directory.
    site.state = None;
    crate::checkpoint::remove_tree(&DiskFs, &site.path("state/checkpoints/chk-0000000002")).unwrap();
    let behind = prepare(&settings, &site.path("state"), "flights", None, &clock).unwrap_err();
    let public = crate::error::Error::from(behind);
    assert!(
        public.to_string().contains("repository_epoch=2") && public.to_string().contains("local_epoch=1"),
        "{public}"
    );
    assert!(public.remedy().unwrap().contains("move the local state directory away"));
}
