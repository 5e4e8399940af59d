//! Whatever the network does: a checkpoint that can be fetched is complete and the one that was uploaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::repository::{Faults, FaultyRepository, fetch_with};

/// One step of a history: which of a few files change.
type Step = Vec<(u8, u8)>;

fn history() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(prop::collection::vec((0_u8..6, any::<u8>()), 1..4), 1..8)
}

fn apply(files: &mut BTreeMap<String, Vec<u8>>, step: &Step) {
    for &(number, value) in step {
        let name = format!("{number:06}.sst");
        if value % 5 == 0 {
            files.remove(&name);
        } else {
            files.insert(name, vec![value; 10 + usize::from(value % 7)]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_fetched_checkpoint_is_complete_and_byte_equal_or_an_error(history in history(), seed in any::<u64>()) {
        let mut site = Site::new();
        let inner = local(&site.path("mirror"));
        let faulty = Arc::new(FaultyRepository::new(Arc::clone(&inner), Faults::SOME, seed));
        let repository: Arc<dyn Repository> = Arc::clone(&faulty) as _;
        let mut expected = BTreeMap::new();
        let mut files = BTreeMap::from([("CURRENT".to_owned(), b"x".to_vec())]);
        let mut mirror = site.claim(&repository).ok();
        let mut known: Vec<u64> = Vec::new();
        for (index, step) in history.iter().enumerate() {
            // A cut in the middle of an upload, and an open after it.
            if index % 3 == 2 {
                faulty.set_faults(Faults { dead_after: Some(faulty.calls() + seed % 9), ..Faults::SOME });
            }
            apply(&mut files, step);
            let published = site.checkpoint(&files);
            expected.insert(published.epoch(), contents(published.path()));
            if let Some(mirror) = &mirror
                && mirror.upload(published.path(), published.manifest(), &known).is_ok()
            {
                // Told that it is there: then it is, whole.
                let into = site.path(&format!("told-{}", published.epoch()));
                fetch_with(inner.as_ref(), &patient(), Some(published.epoch()), &into).unwrap();
                prop_assert_eq!(&contents(&into), &expected[&published.epoch()]);
            }
            known.insert(0, published.epoch());
            if index % 3 == 2 {
                faulty.set_faults(Faults::SOME);
                mirror = None;
                site.state = None;
                mirror = site.claim(&repository).ok().or(mirror);
                known.clear();
            }
        }
        let keys = super::super::mirror::list_keys(inner.as_ref(), &patient()).unwrap();
        for key in keys {
            let into = site.path(&format!("back-{}-{}", key.epoch, key.generation));
            let fetched = super::super::fetch::fetch_key(inner.as_ref(), &patient(), key, &into);
            prop_assert!(fetched.is_ok(), "a record without its files: {key:?} {fetched:?}");
            prop_assert_eq!(&contents(&into), &expected[&key.epoch]);
            let through = site.path(&format!("through-{}-{}", key.epoch, key.generation));
            if fetch_with(repository.as_ref(), &patient(), Some(key.epoch), &through).is_ok() {
                prop_assert_eq!(&contents(&through), &expected[&key.epoch]);
            }
        }
    }
}
