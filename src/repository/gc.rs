//! What may be deleted from a repository: a pure plan over all records and objects, and the order in which it is done.
//!
//! A file that a retained checkpoint names is never deleted, nor what a newer owner wrote, nor what may be an upload
//! under way. Records go before the files they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;

use super::Repository;
use super::error::RepositoryError;
use super::format::{DATA, ManifestKey, ObjectName, Owner};
use super::local::UPLOADS;
use super::mirror::{Records, load_owner, load_records};
use super::parallel;
use super::retry::Retry;

/// What no record names is left alone until it is so old, by the clocks of store and caller.
const ORPHAN_AGE_MIN_MS: i64 = 3_600_000;
/// What a write into a directory left over is left alone so long.
const PART_AGE_MIN_MS: i64 = 86_400_000;
/// Objects looked at in one go; the rest has its turn the next time.
const OBJECTS_MAX: usize = 200_000;

/// What the plan knows of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerFact {
    /// Its generation.
    pub generation: u64,
    /// The checkpoint that it went on from.
    pub base: Option<u64>,
}

/// What the plan knows of a stored checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestFact {
    /// False when its record cannot be read.
    pub readable: bool,
    /// The stored checkpoint that it shares files with.
    pub base: Option<ManifestKey>,
    /// The objects that it names.
    pub objects: BTreeSet<ObjectName>,
}

/// An object, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcObject {
    /// Its name in the repository.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, by the store's clock.
    pub modified_ms: i64,
}

/// Everything that the plan is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcFacts {
    /// Who owns the repository.
    pub owner: Option<OwnerFact>,
    /// The stored checkpoints.
    pub manifests: BTreeMap<ManifestKey, ManifestFact>,
    /// The objects.
    pub objects: Vec<GcObject>,
    /// The caller's wall clock.
    pub now_ms: i64,
}

/// Why a stored checkpoint stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyRetained {
    /// Among the newest of the current history.
    Recent,
    /// The owner went on from it.
    InUse,
    /// Not older than the oldest recent one.
    NotOlder,
    /// A later owner than the one known uploaded it.
    NewerOwner,
    /// Fewer recent ones exist than are to be kept.
    TooFew,
    /// Its record cannot be read.
    Unreadable,
    /// Another record cannot be read, so that nothing is known to be unused.
    Unknown,
}

/// Why an object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GcReason {
    /// Only checkpoints that go name it.
    Retired,
    /// An upload that was cut left it.
    Orphan,
}

/// Which stored checkpoints and objects stay and go; printed by a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcPlan {
    /// Checkpoints that stay, oldest first.
    pub keep: Vec<(ManifestKey, WhyRetained)>,
    /// Checkpoints that go, oldest first.
    pub retire: Vec<ManifestKey>,
    /// Objects that go: name, bytes, reason.
    pub delete: Vec<(String, u64, GcReason)>,
}

impl GcPlan {
    /// Bytes of the objects that go.
    #[must_use]
    pub fn freed_bytes(&self) -> u64 {
        self.delete.iter().fold(0, |sum, (_, bytes, _)| sum.saturating_add(*bytes))
    }
}

impl fmt::Display for GcPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ManifestKey { epoch, generation }, why) in &self.keep {
            let why = match why {
                WhyRetained::Recent => "recent",
                WhyRetained::InUse => "the owner went on from it",
                WhyRetained::NotOlder => "newer than the oldest recent one",
                WhyRetained::NewerOwner => "of a newer owner",
                WhyRetained::TooFew => "fewer checkpoints than are to be kept",
                WhyRetained::Unreadable => "its record cannot be read",
                WhyRetained::Unknown => "another record cannot be read",
            };
            writeln!(f, "keep   {epoch:>10}  generation {generation}  {why}")?;
        }
        for ManifestKey { epoch, generation } in &self.retire {
            writeln!(f, "retire {epoch:>10}  generation {generation}")?;
        }
        for (name, bytes, reason) in &self.delete {
            let reason = match reason {
                GcReason::Retired => "of a retired checkpoint",
                GcReason::Orphan => "left by a cut upload",
            };
            writeln!(f, "delete {bytes:>10}  {name}  {reason}")?;
        }
        for (key, _) in self.keep.iter().filter(|(_, why)| *why == WhyRetained::Unreadable) {
            writeln!(
                f,
                "nothing is deleted while {} cannot be read: put it back from a copy, or delete that object if its \
                 checkpoint is not needed",
                key.object_name()
            )?;
        }
        writeln!(f, "frees {} bytes in {} objects", self.freed_bytes(), self.delete.len())
    }
}

/// Decides what stays: the newest `keep` checkpoints along what they share files with, everything not older than the
/// oldest of these, and what the owner went on from. Nothing goes while that history is shorter than `keep`, or while a
/// record cannot be read.
#[must_use]
pub fn plan_gc(facts: &GcFacts, keep: NonZeroU32) -> GcPlan {
    let recent = recent_history(facts, keep);
    let complete = recent.len() as u64 >= u64::from(keep.get());
    let readable = facts.manifests.values().all(|manifest| manifest.readable);
    let oldest_recent = recent.first().copied();
    let why = |key: ManifestKey| match key {
        key if facts.manifests.get(&key).is_some_and(|it| !it.readable) => Some(WhyRetained::Unreadable),
        _ if !readable => Some(WhyRetained::Unknown),
        key if recent.contains(&key) => Some(WhyRetained::Recent),
        key if facts.owner.is_none_or(|owner| key.generation > owner.generation) => {
            Some(WhyRetained::NewerOwner)
        }
        key if facts.owner.is_some_and(|owner| owner.base == Some(key.epoch)) => Some(WhyRetained::InUse),
        _ if !complete => Some(WhyRetained::TooFew),
        key if oldest_recent.is_some_and(|oldest| key > oldest) => Some(WhyRetained::NotOlder),
        _ => None,
    };
    let mut plan = GcPlan::default();
    for &key in facts.manifests.keys() {
        match why(key) {
            Some(why) => plan.keep.push((key, why)),
            None => plan.retire.push(key),
        }
    }
    if readable {
        plan.delete = objects_to_delete(facts, &plan);
    }
    plan
}

/// The newest checkpoint, the one it shares files with, and so on, at most `keep`.
fn recent_history(facts: &GcFacts, keep: NonZeroU32) -> BTreeSet<ManifestKey> {
    let mut recent = BTreeSet::new();
    let mut next = facts.manifests.last_key_value().map(|(&key, _)| key);
    while let Some((key, manifest)) = next.and_then(|key| facts.manifests.get_key_value(&key)) {
        if recent.len() as u64 >= u64::from(keep.get()) {
            break;
        }
        recent.insert(*key);
        // A base is always older (checked when a record is read), so this ends.
        next = manifest.base.filter(|base| base < key);
    }
    recent
}

fn objects_to_delete(facts: &GcFacts, plan: &GcPlan) -> Vec<(String, u64, GcReason)> {
    let objects_of = |key: &ManifestKey| facts.manifests.get(key).into_iter().flat_map(|it| &it.objects);
    let kept: BTreeSet<&ObjectName> = plan.keep.iter().flat_map(|(key, _)| objects_of(key)).collect();
    let retired: BTreeSet<&ObjectName> = plan.retire.iter().flat_map(objects_of).collect();
    let Some(owner) = facts.owner else { return Vec::new() };
    let own = facts.manifests.keys().filter(|key| key.generation == owner.generation);
    let newest_own = own.map(|key| key.epoch).max();
    let reason = |object: &GcObject| {
        let age_ms = facts.now_ms.saturating_sub(object.modified_ms);
        if object.name.strip_prefix(UPLOADS).is_some_and(|rest| rest.starts_with('/')) {
            return (age_ms >= PART_AGE_MIN_MS).then_some(GcReason::Orphan);
        }
        // What is not named like our files is not ours.
        let name = ObjectName::parse(&object.name)?;
        if kept.contains(&name) || name.upload.generation > owner.generation {
            return None;
        }
        if retired.contains(&name) {
            return Some(GcReason::Retired);
        }
        // Uploads of an owner come one after the other: those up to its newest record are over.
        let over = name.upload.generation < owner.generation
            || newest_own.is_some_and(|newest| name.upload.epoch <= newest);
        (over && age_ms >= ORPHAN_AGE_MIN_MS).then_some(GcReason::Orphan)
    };
    let going = facts.objects.iter();
    going.filter_map(|object| Some((object.name.clone(), object.bytes, reason(object)?))).collect()
}

/// Looks at the whole repository and says what retention of the newest `keep` lets go; with `dry_run` nothing is
/// deleted.
///
/// # Errors
/// [`RepositoryError::NoCheckpoint`] for a place without an owner record; errors of the store.
pub fn collect(
    repository: &dyn Repository,
    retry: &Retry,
    keep: NonZeroU32,
    now_ms: i64,
    dry_run: bool,
) -> Result<GcPlan, RepositoryError> {
    let Some((owner, _)) = load_owner(repository, retry)? else {
        return Err(RepositoryError::NoCheckpoint {
            place: repository.place(),
            epoch: None,
            present: Vec::new(),
        });
    };
    let objects = list_objects(repository, retry)?;
    // After the objects: a checkpoint that is published meanwhile is known, and so are the files it names.
    let records = load_records(repository, retry)?;
    let plan = plan_gc(&facts_of(&owner, &records, objects, now_ms), keep);
    if !dry_run {
        carry_out(repository, retry, &plan)?;
    }
    Ok(plan)
}

/// As [`collect`], for the owner itself, which knows the records.
pub(super) fn plan_and_collect(
    repository: &dyn Repository,
    retry: &Retry,
    owner: &Owner,
    records: &Records,
    keep: NonZeroU32,
    now_ms: i64,
) -> Result<Vec<ManifestKey>, RepositoryError> {
    let objects = list_objects(repository, retry)?;
    let plan = plan_gc(&facts_of(owner, records, objects, now_ms), keep);
    carry_out(repository, retry, &plan)?;
    Ok(plan.retire)
}

/// As [`plan_and_collect`], without listing: only what the records name can go.
pub(super) fn collect_after_upload(
    repository: &dyn Repository,
    retry: &Retry,
    owner: &Owner,
    records: &Records,
    keep: NonZeroU32,
    now_ms: i64,
) -> Result<Vec<ManifestKey>, RepositoryError> {
    let mut named = BTreeMap::new();
    for stored in records.values().flatten() {
        named.extend(stored.files.iter().map(|file| (stored.object(file).to_string(), file.bytes)));
    }
    let named = named.into_iter().map(|(name, bytes)| GcObject { name, bytes, modified_ms: now_ms });
    let plan = plan_gc(&facts_of(owner, records, named.collect(), now_ms), keep);
    carry_out(repository, retry, &plan)?;
    Ok(plan.retire)
}

fn facts_of(owner: &Owner, records: &Records, objects: Vec<GcObject>, now_ms: i64) -> GcFacts {
    let manifests = records.iter().map(|(&key, record)| {
        let fact = match record {
            Ok(stored) => ManifestFact {
                readable: true,
                base: stored.base,
                objects: stored.files.iter().map(|file| stored.object(file)).collect(),
            },
            Err(_) => ManifestFact::default(),
        };
        (key, fact)
    });
    let owner = Some(OwnerFact { generation: owner.generation, base: owner.base });
    GcFacts { owner, manifests: manifests.collect(), objects, now_ms }
}

fn list_objects(repository: &dyn Repository, retry: &Retry) -> Result<Vec<GcObject>, RepositoryError> {
    let mut objects = Vec::new();
    for folder in [DATA, UPLOADS] {
        let listing = retry.run(|| repository.list(folder, OBJECTS_MAX))?;
        objects.extend(listing.objects.into_iter().map(|object| GcObject {
            name: object.name,
            bytes: object.bytes,
            modified_ms: object.modified_ms,
        }));
    }
    Ok(objects)
}

/// Records first: what is cut leaves files that no record names, never a record that names missing files.
fn carry_out(repository: &dyn Repository, retry: &Retry, plan: &GcPlan) -> Result<(), RepositoryError> {
    for key in &plan.retire {
        retry.run(|| repository.delete(&key.object_name()))?;
    }
    parallel::for_each(&plan.delete, |(name, ..)| retry.run(|| repository.delete(name)))?;
    Ok(())
}
