//! Retention and collection: over random histories nothing goes that is needed, and in the end everything else goes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::checkpoint::LineageId;
use crate::repository::{
    GcFacts, GcObject, ManifestFact, ManifestKey, ObjectName, OwnerFact, UploadId, WhyRetained, collect,
    fetch_with, plan_gc,
};

const HOUR_MS: i64 = 3_600_000;

fn object(generation: u64, epoch: u64, attempt: u64, file: u8) -> ObjectName {
    ObjectName {
        lineage: LineageId([1; 16]),
        upload: UploadId { generation, epoch, attempt },
        name: format!("{file:06}.sst"),
    }
}

/// What happens to a repository, as a list of steps of one owner after the other.
#[derive(Clone, Debug)]
enum Step {
    /// A checkpoint that replaces some files of the one before; its record is written.
    Upload(Vec<u8>),
    /// The same, cut before the record.
    Cut(Vec<u8>),
    /// Another owner takes over.
    Takeover,
    /// A checkpoint that shares nothing.
    Full,
}

fn step() -> impl Strategy<Value = Step> {
    let files = || prop::collection::vec(0_u8..5, 1..4);
    prop_oneof![
        6 => files().prop_map(Step::Upload),
        2 => files().prop_map(Step::Cut),
        1 => Just(Step::Takeover),
        1 => Just(Step::Full),
    ]
}

/// The repository after these steps, everything `age_ms` old.
fn played(steps: &[Step], age_ms: i64) -> GcFacts {
    let (mut generation, mut epoch, mut attempt) = (1, 0, 0);
    let mut files: BTreeMap<u8, ObjectName> = BTreeMap::new();
    let mut last = None;
    let mut facts = GcFacts { now_ms: 100 * HOUR_MS, ..GcFacts::default() };
    let mut objects = BTreeSet::new();
    for step in steps {
        match step {
            Step::Takeover => generation += 1,
            Step::Upload(changed) | Step::Cut(changed) => {
                (epoch, attempt) = (epoch + 1, attempt + 1);
                let mut now = files.clone();
                for &file in changed {
                    now.insert(file, object(generation, epoch, attempt, file));
                }
                objects.extend(now.values().cloned());
                if matches!(step, Step::Upload(_)) {
                    let key = ManifestKey { epoch, generation };
                    let named = now.values().cloned().collect();
                    facts.manifests.insert(key, ManifestFact { readable: true, base: last, objects: named });
                    (files, last) = (now, Some(key));
                }
            }
            Step::Full => {
                (epoch, attempt) = (epoch + 1, attempt + 1);
                files = (0..3).map(|file| (file, object(generation, epoch, attempt, file))).collect();
                objects.extend(files.values().cloned());
                let key = ManifestKey { epoch, generation };
                let named = files.values().cloned().collect();
                facts.manifests.insert(key, ManifestFact { readable: true, base: None, objects: named });
                last = Some(key);
            }
        }
    }
    facts.owner = Some(OwnerFact { generation, base: None });
    let modified_ms = facts.now_ms - age_ms;
    facts.objects =
        objects.into_iter().map(|name| GcObject { name: name.to_string(), bytes: 10, modified_ms }).collect();
    facts
}

proptest! {
    #[test]
    fn what_a_kept_checkpoint_names_is_never_deleted(
        steps in prop::collection::vec(step(), 0..30), last in 1_u32..5, hours in 0_i64..3, base in prop::option::of(1_u64..9)
    ) {
        let mut facts = played(&steps, hours * HOUR_MS);
        facts.owner = facts.owner.map(|owner| OwnerFact { base, ..owner });
        let plan = plan_gc(&facts, keep(last));
        let deleted: BTreeSet<&str> = plan.delete.iter().map(|(name, ..)| name.as_str()).collect();
        let kept: BTreeSet<ManifestKey> = plan.keep.iter().map(|(key, _)| *key).collect();
        for key in &kept {
            for object in &facts.manifests[key].objects {
                prop_assert!(!deleted.contains(object.to_string().as_str()), "{key:?} needs {object}\n{plan}");
            }
        }
        // The newest stay, as many as asked for, and the one in use.
        let newest = facts.manifests.keys().rev().take(1);
        prop_assert!(newest.into_iter().all(|key| kept.contains(key)));
        prop_assert!(facts.manifests.keys().filter(|key| Some(key.epoch) == base).all(|key| kept.contains(key)));
        prop_assert!(kept.len() >= facts.manifests.len().min(last as usize));
        // Everything is decided.
        prop_assert_eq!(kept.len() + plan.retire.len(), facts.manifests.len());
    }

    #[test]
    fn an_upload_under_way_and_a_newer_owner_lose_nothing(
        steps in prop::collection::vec(step(), 1..30), last in 1_u32..4, hours in 0_i64..50
    ) {
        // The collector looks while the last step is under way, and knows only the owner of the beginning.
        let facts = played(&steps, hours * HOUR_MS);
        let newest_record = facts.manifests.last_key_value().map(|(key, _)| *key);
        let owner = facts.owner.unwrap();
        let plan = plan_gc(&facts, keep(last));
        for object in &facts.objects {
            let name = ObjectName::parse(&object.name).unwrap();
            let under_way = name.upload.generation == owner.generation
                && newest_record.is_none_or(|key| name.upload.epoch > key.epoch);
            prop_assert!(!under_way || plan.delete.iter().all(|(deleted, ..)| *deleted != object.name), "{name}\n{plan}");
        }
        let mut old = facts.clone();
        old.owner = Some(OwnerFact { generation: 1, base: None });
        let plan = plan_gc(&old, keep(last));
        for (deleted, ..) in &plan.delete {
            prop_assert_eq!(ObjectName::parse(deleted).unwrap().upload.generation, 1);
        }
        prop_assert!(plan.retire.iter().all(|key| key.generation == 1));
    }

    #[test]
    fn in_the_end_only_what_is_named_is_left(steps in prop::collection::vec(step(), 1..30)) {
        let mut steps = steps;
        // Three more that are written in full, by one more owner, and enough time.
        steps.extend([Step::Takeover, Step::Full, Step::Upload(vec![0]), Step::Upload(vec![1])]);
        let facts = played(&steps, 2 * HOUR_MS);
        let plan = plan_gc(&facts, keep(3));
        prop_assert_eq!(plan.keep.len(), 3, "{}", plan);
        let named: BTreeSet<String> =
            plan.keep.iter().flat_map(|(key, _)| &facts.manifests[key].objects).map(ToString::to_string).collect();
        let deleted: BTreeSet<String> = plan.delete.iter().map(|(name, ..)| name.clone()).collect();
        let left: BTreeSet<String> =
            facts.objects.iter().map(|object| object.name.clone()).filter(|name| !deleted.contains(name)).collect();
        prop_assert_eq!(left, named);
    }
}

#[test]
fn while_a_record_cannot_be_read_nothing_goes() {
    let steps: Vec<Step> = (0..10).map(|_| Step::Upload(vec![0])).collect();
    let mut facts = played(&steps, 2 * HOUR_MS);
    assert_eq!(plan_gc(&facts, keep(2)).retire.len(), 8);
    facts.manifests.insert(ManifestKey { epoch: 3, generation: 1 }, ManifestFact::default());
    let plan = plan_gc(&facts, keep(2));
    assert!(plan.retire.is_empty() && plan.delete.is_empty(), "{plan}");
    let unreadable = plan.keep.iter().filter(|(_, why)| *why == WhyRetained::Unreadable);
    assert_eq!(unreadable.map(|(key, _)| key.epoch).collect::<Vec<_>>(), [3]);
    let said = plan.to_string();
    assert!(
        said.contains("nothing is deleted while manifests/chk-0000000003.0000000001 cannot be read"),
        "{said}"
    );
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let mut facts = played(&[Step::Full], 1_000 * HOUR_MS);
    for name in ["data/readme.txt", "data/../OWNER", "elsewhere/000001.sst"] {
        facts.objects.push(GcObject { name: name.to_owned(), bytes: 1, modified_ms: 0 });
    }
    facts.objects.push(GcObject { name: "uploads/one-1-1.part".to_owned(), bytes: 1, modified_ms: 0 });
    let plan = plan_gc(&facts, keep(1));
    assert_eq!(plan.delete.len(), 1, "{plan}");
    assert_eq!(plan.delete[0].0, "uploads/one-1-1.part");
}

#[test]
fn a_dry_run_says_what_the_collection_then_does() {
    let mut site = Site::new();
    let repository = local(&site.path("mirror"));
    let mirror = site.claim(&repository).unwrap();
    for text in ["one", "two", "three", "four", "five"] {
        let published = site.checkpoint(&files(&[("000001.sst", text), ("000002.sst", "shared")]));
        mirror.upload(published.path(), published.manifest(), &parents(&published)).unwrap();
    }
    // The owner keeps three by itself.
    assert_eq!(repository.list("manifests", 10).unwrap().objects.len(), 3);
    let before = repository.list("data", 100).unwrap().objects.len();
    let now = site.clock().wall_millis();
    let dry = collect(repository.as_ref(), &patient(), keep(1), now, true).unwrap();
    assert_eq!(repository.list("data", 100).unwrap().objects.len(), before);
    assert!(dry.retire.len() == 2 && dry.to_string().contains("retire"), "{dry}");
    let done = collect(repository.as_ref(), &patient(), keep(1), now, false).unwrap();
    assert_eq!(done, dry);
    let into = site.path("back");
    fetch_with(repository.as_ref(), &patient(), None, &into).unwrap();
    assert_eq!(contents(&into)["000002.sst"], b"shared");
    assert_eq!(repository.list("data", 100).unwrap().objects.len(), 2);
}
