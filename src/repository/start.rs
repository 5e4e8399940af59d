//! What a start does with a repository: go on from the local state, restore from the repository, begin anew, or refuse.
//!
//! The decision is a pure function; carrying it out fetches a checkpoint into an empty state directory. It never begins
//! with empty state beside a repository that holds checkpoints.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use super::error::RepositoryError;
use super::fetch::fetch_key;
use super::format::{ManifestKey, Owner, StoredCheckpoint};
use super::mirror::{
    Claim, Mirror, Records, load_owner, load_record, load_records, owner_of, refuse_news, take_over,
};
use super::retry::StopSignal;
use super::uploader::Uploader;
use super::{Repository, Settings};
use crate::checkpoint::{Adoption, LineageId, LocalState, Manifest, StateDirectory, look};
use crate::clock::Clock;

/// What is known of the local state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFacts {
    /// Its history.
    pub lineage: LineageId,
    /// The generation of its last open.
    pub generation: u64,
    /// Its checkpoints.
    pub epochs: BTreeSet<u64>,
}

/// What is known of both sides at a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartFacts {
    /// The local state; `None` when there is no state directory.
    pub local: Option<LocalFacts>,
    /// The history of the checkpoints in the repository; that of its owner when it holds none, `None` without either.
    pub lineage: Option<LineageId>,
    /// The checkpoints in the repository.
    pub stored: BTreeSet<ManifestKey>,
    /// The generation of whoever claimed the repository last.
    pub owner: Option<u64>,
    /// The epoch asked for.
    pub at: Option<u64>,
}

/// What a start does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPlan {
    /// Open the local state.
    Local,
    /// Neither side has anything.
    Fresh,
    /// Fetch this checkpoint into the empty state directory, and open that.
    Restore(ManifestKey),
    /// Neither side may win silently.
    Refuse(Refusal),
}

/// Why a start is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The two hold different histories.
    OtherLineage,
    /// The repository has a checkpoint that the local state does not know.
    LocalBehind(ManifestKey),
    /// Another state directory of this history claimed the repository since the local one was last opened. What it
    /// published of its epochs nobody knows here.
    Overtaken(u64),
    /// The epoch asked for is not in the repository.
    NoSuch,
}

/// Decides. A local state without checkpoints counts as none.
#[must_use]
pub fn plan_start(facts: &StartFacts) -> StartPlan {
    let newest = facts.stored.last().copied();
    let local = facts.local.as_ref().filter(|local| !local.epochs.is_empty());
    match (local, newest) {
        (None, None) => StartPlan::Fresh,
        (Some(local), None) => {
            // Without checkpoints a repository may change its history; of one's own somebody else may have gone on.
            let of_ours = facts.lineage == Some(local.lineage);
            match facts.owner.filter(|&owner| of_ours && owner > local.generation) {
                Some(_) if facts.at.is_some_and(|at| local.epochs.contains(&at)) => StartPlan::Local,
                Some(owner) => StartPlan::Refuse(Refusal::Overtaken(owner)),
                None => StartPlan::Local,
            }
        }
        (None, Some(newest)) => match facts.at {
            None => StartPlan::Restore(newest),
            Some(at) => {
                let of_epoch = facts.stored.iter().rev().find(|key| key.epoch == at);
                of_epoch.map_or(StartPlan::Refuse(Refusal::NoSuch), |&key| StartPlan::Restore(key))
            }
        },
        (Some(local), Some(newest)) => {
            if facts.lineage.is_some_and(|lineage| lineage != local.lineage) {
                return StartPlan::Refuse(Refusal::OtherLineage);
            }
            if facts.at.is_some_and(|at| local.epochs.contains(&at)) {
                return StartPlan::Local;
            }
            let behind = local.epochs.last().is_none_or(|&epoch| newest.epoch > epoch);
            // A generation we have not reached is another machine's: its work is not ours, whatever the numbers say.
            let taken_over = facts.stored.iter().rev().find(|key| key.generation > local.generation);
            match taken_over {
                Some(&key) => StartPlan::Refuse(Refusal::LocalBehind(key)),
                None if behind => StartPlan::Refuse(Refusal::LocalBehind(newest)),
                None => match facts.owner.filter(|&owner| owner > local.generation) {
                    Some(owner) => StartPlan::Refuse(Refusal::Overtaken(owner)),
                    None => StartPlan::Local,
                },
            }
        }
    }
}

/// A repository that was looked at, before the state directory is opened.
#[derive(Debug)]
pub struct Prepared {
    settings: Settings,
    stop: Arc<StopSignal>,
    records: Records,
    owner: Option<Owner>,
    clock: Arc<dyn Clock>,
    /// The checkpoint that was fetched into the state directory.
    pub adopted: Option<u64>,
}

impl Prepared {
    /// The open of the state directory takes a higher generation than this.
    #[must_use]
    pub fn generation_above(&self) -> u64 {
        highest_generation(&self.records, self.owner.as_ref())
    }

    /// New checkpoints take higher epochs than this.
    #[must_use]
    pub fn epochs_above(&self) -> u64 {
        self.records.last_key_value().map_or(0, |(key, _)| key.epoch)
    }

    /// True when somebody else has claimed the repository, or uploaded to it, since a state directory was last opened
    /// under `generation`.
    #[must_use]
    pub fn is_ahead_of(&self, generation: u64) -> bool {
        self.generation_above() > generation
    }

    /// Claims the repository, and keeps the newest `keep` checkpoints there.
    ///
    /// # Errors
    /// [`RepositoryError::Fenced`] or [`RepositoryError::Moved`] when another process was quicker; errors of the store.
    pub fn claim(self, claim: Claim, keep: NonZeroU32) -> Result<Claimed, RepositoryError> {
        let retry = self.settings.retry.clone().seeded(claim.generation ^ u64::from(std::process::id()));
        let retry = retry.pausing(Arc::clone(&self.stop) as _);
        let repository = Arc::clone(&self.settings.repository);
        let mirror = Mirror::claim(repository, retry, self.clock, claim, self.records, keep)?;
        mirror.refuse_news()?;
        Ok(Claimed { mirror, stop: self.stop })
    }
}

/// A repository that was claimed, and to which nothing is uploaded yet.
#[derive(Debug)]
pub struct Claimed {
    mirror: Mirror,
    stop: Arc<StopSignal>,
}

impl Claimed {
    /// Starts the uploader of checkpoints of `directory`, which was opened under the generation of the claim.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(self, directory: &StateDirectory) -> Result<Uploader, RepositoryError> {
        Uploader::start(self.mirror, directory.clone(), self.stop)
    }
}

/// Looks at the repository and the state directory at `path`, and brings a checkpoint from the one into the other when
/// that is what the start needs.
///
/// # Errors
/// [`RepositoryError::OtherLineage`], [`RepositoryError::LocalBehind`], [`RepositoryError::Overtaken`],
/// [`RepositoryError::OtherPipeline`],
/// [`RepositoryError::NoCheckpoint`]; [`RepositoryError::Damaged`] when the checkpoint to restore is;
/// [`RepositoryError::Moved`] when the repository has got another one meanwhile; errors of the store and of the disk.
pub fn prepare(
    settings: &Settings,
    path: &Path,
    pipeline: &str,
    at: Option<u64>,
    clock: &Arc<dyn Clock>,
) -> Result<Prepared, RepositoryError> {
    let repository = settings.repository.as_ref();
    let Surveyed { owner, records, local, facts } = survey(settings, path, pipeline, at)?;
    let mut prepared = Prepared {
        settings: settings.clone(),
        stop: Arc::new(StopSignal::default()),
        records,
        owner,
        clock: Arc::clone(clock),
        adopted: None,
    };
    match plan_start(&facts) {
        StartPlan::Local | StartPlan::Fresh => {}
        StartPlan::Restore(_) => {
            prepared.fence_off(pipeline, &facts)?;
            let stored = prepared.records.keys().copied().collect();
            let StartPlan::Restore(key) = plan_start(&StartFacts { stored, ..facts }) else {
                return Err(RepositoryError::Moved {
                    place: repository.place(),
                    epoch: prepared.epochs_above(),
                });
            };
            prepared.restore(key, path, pipeline, local.as_ref())?;
            prepared.adopted = Some(key.epoch);
        }
        StartPlan::Refuse(refusal) => return Err(refused(refusal, &facts, repository, path)),
    }
    Ok(prepared)
}

/// What both sides were found to be.
struct Surveyed {
    owner: Option<Owner>,
    records: Records,
    local: Option<LocalState>,
    facts: StartFacts,
}

fn survey(
    settings: &Settings,
    path: &Path,
    pipeline: &str,
    at: Option<u64>,
) -> Result<Surveyed, RepositoryError> {
    let repository = settings.repository.as_ref();
    let owner = load_owner(repository, &settings.retry)?.map(|(owner, _)| owner);
    let records = load_records(repository, &settings.retry)?;
    refuse_other_pipeline(repository, pipeline, owner.as_ref(), &records)?;
    let local = look(path)?;
    let facts = StartFacts {
        local: local.as_ref().map(facts_of),
        lineage: lineage_of(&records, owner.as_ref()),
        stored: records.keys().copied().collect(),
        owner: owner.as_ref().map(|owner| owner.generation),
        at,
    };
    Ok(Surveyed { owner, records, local, facts })
}

/// What [`prepare`] would do.
#[derive(Clone, Debug, Default)]
pub struct Preview {
    /// As [`Prepared::generation_above`].
    pub generation_above: u64,
    /// What it would bring into the state directory: the checkpoint's name in the repository, and its manifest. `None`
    /// when it would go on with what is local, or begin anew.
    pub fetched: Option<(String, Manifest)>,
}

/// Says what [`prepare`] would do with the state directory at `path`. Claims and writes nothing.
///
/// # Errors
/// As [`prepare`].
pub fn preview(
    settings: &Settings,
    path: &Path,
    pipeline: &str,
    at: Option<u64>,
) -> Result<Preview, RepositoryError> {
    let repository = settings.repository.as_ref();
    let Surveyed { owner, records, facts, .. } = survey(settings, path, pipeline, at)?;
    let mut preview =
        Preview { generation_above: highest_generation(&records, owner.as_ref()), fetched: None };
    let key = match plan_start(&facts) {
        StartPlan::Local | StartPlan::Fresh => return Ok(preview),
        StartPlan::Restore(key) => key,
        StartPlan::Refuse(refusal) => return Err(refused(refusal, &facts, repository, path)),
    };
    let stored = load_record(repository, &settings.retry, key)?;
    let (_, manifest) = StoredCheckpoint::decode(key, &stored.encode()?)?;
    preview.fetched = Some((format!("{}/{}", repository.place(), key.object_name()), manifest));
    Ok(preview)
}

fn highest_generation(records: &Records, owner: Option<&Owner>) -> u64 {
    let stored = records.keys().map(|key| key.generation);
    stored.chain(owner.map(|owner| owner.generation)).max().unwrap_or(0)
}

impl Prepared {
    /// Takes the repository over before a checkpoint is chosen: whoever has it now, and may be alive, uploads no more.
    fn fence_off(&mut self, pipeline: &str, facts: &StartFacts) -> Result<(), RepositoryError> {
        let repository = self.settings.repository.as_ref();
        let Some(lineage) = facts.lineage else { return Ok(()) };
        let local = facts.local.as_ref().map_or(0, |local| local.generation);
        let generation = self.generation_above().max(local).saturating_add(1);
        let claim = Claim { pipeline: pipeline.to_owned(), lineage, generation, base: None };
        let owner = owner_of(claim, self.clock.as_ref())?;
        take_over(repository, &self.settings.retry, &owner, false)?;
        self.owner = Some(owner);
        self.records = load_records(repository, &self.settings.retry)?;
        Ok(())
    }

    fn restore(
        &self,
        key: ManifestKey,
        path: &Path,
        pipeline: &str,
        local: Option<&LocalState>,
    ) -> Result<(), RepositoryError> {
        let repository = self.settings.repository.as_ref();
        let started = self.clock.monotonic();
        tracing::warn!(
            place = %repository.place(), epoch = key.epoch, generation = key.generation, path = %path.display(),
            "the state directory is empty and the repository is not: restoring from the repository"
        );
        // The generation of whoever had it; the open that follows takes a higher one.
        let generation = self.generation_above().max(local.map_or(0, |local| local.generation));
        let adoption = Adoption::begin(path, pipeline, key.epoch, key.generation, self.clock.as_ref())?;
        let verified = fetch_key(repository, &self.settings.retry, key, &adoption.incoming())?;
        let bytes = verified.manifest().database_bytes();
        // Once it is taken in, whatever was overlooked makes the local state one that is behind, which only a person may
        // throw away. Now the next start can still choose.
        refuse_news(repository, &self.settings.retry, &self.records)?;
        adoption.complete(verified.manifest().lineage, generation)?;
        tracing::warn!(
            epoch = key.epoch,
            bytes,
            took_ms = self.clock.monotonic().saturating_sub(started).as_millis() as u64,
            "restored from the repository"
        );
        Ok(())
    }
}

fn facts_of(local: &LocalState) -> LocalFacts {
    LocalFacts { lineage: local.lineage, generation: local.generation, epochs: local.epochs.clone() }
}

fn lineage_of(records: &Records, owner: Option<&Owner>) -> Option<LineageId> {
    let readable = records.values().rev().find_map(|record| record.as_ref().ok());
    match readable {
        Some(stored) => Some(stored.lineage),
        None => owner.map(|owner| owner.lineage),
    }
}

fn refuse_other_pipeline(
    repository: &dyn Repository,
    pipeline: &str,
    owner: Option<&Owner>,
    records: &Records,
) -> Result<(), RepositoryError> {
    let owned = owner.map(|owner| &owner.pipeline);
    let stored = records.values().flatten().map(|stored| &stored.pipeline);
    match owned.into_iter().chain(stored).find(|name| name.as_str() != pipeline) {
        Some(found) => Err(RepositoryError::OtherPipeline {
            place: repository.place(),
            found: found.clone(),
            asked: pipeline.to_owned(),
        }),
        None => Ok(()),
    }
}

fn refused(
    refusal: Refusal,
    facts: &StartFacts,
    repository: &dyn Repository,
    path: &Path,
) -> RepositoryError {
    let place = repository.place();
    match (refusal, &facts.local) {
        (Refusal::OtherLineage, Some(local)) => RepositoryError::OtherLineage {
            place,
            found: facts.lineage.unwrap_or(local.lineage),
            ours: local.lineage,
        },
        (Refusal::LocalBehind(key), Some(local)) => RepositoryError::LocalBehind {
            place,
            epoch: key.epoch,
            generation: key.generation,
            local_epoch: local.epochs.last().copied().unwrap_or(0),
            local_generation: local.generation,
            path: path.to_owned(),
        },
        (Refusal::Overtaken(generation), Some(local)) => RepositoryError::Overtaken {
            place,
            generation,
            local_epoch: local.epochs.last().copied().unwrap_or(0),
            local_generation: local.generation,
            path: path.to_owned(),
        },
        _ => {
            let mut present: Vec<u64> = facts.stored.iter().rev().map(|key| key.epoch).collect();
            present.dedup();
            present.truncate(20);
            RepositoryError::NoCheckpoint { place, epoch: facts.at, present }
        }
    }
}
