//! A claimed repository: the fence, and the upload of one checkpoint so that any cut leaves the one before or this one.
//!
//! Files first, each under a name that no other attempt uses; the record last, created only where none is. It does not
//! know when uploads happen (`uploader`) nor what is deleted (`gc`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::RepositoryError;
use super::format::{
    MANIFESTS, ManifestKey, OWNER, OWNER_BYTES_MAX, Owner, RECORD_BYTES_MAX, StoredCheckpoint, StoredFile,
    UploadId,
};
use super::gc::{collect_after_upload, plan_and_collect};
use super::parallel;
use super::retry::Retry;
use super::{Repository, Tag, stock};
use crate::checkpoint::{LineageId, Manifest};
use crate::clock::Clock;
use crate::fault;

/// Records of checkpoints that a repository may hold; retention keeps it far below.
const RECORDS_MAX: usize = 10_000;
/// How often a claim is tried when others claim at the same time.
const CLAIMS_MAX: u32 = 5;

/// Records by key; those that cannot be read with the reason.
pub(super) type Records = BTreeMap<ManifestKey, Result<Arc<StoredCheckpoint>, Arc<RepositoryError>>>;

/// Who claims a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The pipeline.
    pub pipeline: String,
    /// Its history.
    pub lineage: LineageId,
    /// The generation of the open that claims; above that of any owner before.
    pub generation: u64,
    /// The checkpoint that it goes on from.
    pub base: Option<u64>,
}

/// What an upload did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// The epoch.
    pub epoch: u64,
    /// Files written.
    pub new_files: u64,
    /// Bytes written.
    pub new_bytes: u64,
    /// Bytes of files that were there already.
    pub shared_bytes: u64,
    /// Stored checkpoints that were deleted after it.
    pub retired: u64,
}

/// A repository that this process owns until another one claims it.
#[derive(Debug)]
pub struct Mirror {
    repository: Arc<dyn Repository>,
    retry: Retry,
    clock: Arc<dyn Clock>,
    owner: Owner,
    records: Mutex<Records>,
    /// Those that cannot be fetched any more; nothing is shared with them.
    broken: BTreeSet<ManifestKey>,
    attempts: AtomicU64,
    keep: NonZeroU32,
    swept: AtomicBool,
}

impl Mirror {
    /// Claims `repository`, in which `records` were found, for one open of a state directory. Keeps the newest `keep`
    /// checkpoints there.
    ///
    /// # Errors
    /// [`RepositoryError::Fenced`] when an owner of this or a higher generation is there,
    /// [`RepositoryError::OtherPipeline`], [`RepositoryError::OtherLineage`] when it holds checkpoints of another
    /// history; errors of the store.
    pub(super) fn claim(
        repository: Arc<dyn Repository>,
        retry: Retry,
        clock: Arc<dyn Clock>,
        claim: Claim,
        records: Records,
        keep: NonZeroU32,
    ) -> Result<Self, RepositoryError> {
        let owner = owner_of(claim, clock.as_ref())?;
        take_over(repository.as_ref(), &retry, &owner, records.is_empty())?;
        let place = repository.place();
        for (key, record) in &records {
            warn_if_unreadable(&place, *key, record);
        }
        let missing = stock::missing(repository.as_ref(), &retry, &records)?;
        for (key, missing) in &missing {
            tracing::warn!(
                %place, epoch = key.epoch, %missing,
                "a checkpoint in the repository cannot be restored any more; its files are uploaded again with the next one"
            );
        }
        Ok(Self {
            repository,
            retry,
            clock,
            owner,
            records: Mutex::new(records),
            broken: missing.into_keys().collect(),
            attempts: AtomicU64::new(0),
            keep,
            swept: AtomicBool::new(false),
        })
    }

    /// The place, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        self.repository.place()
    }

    /// Fails once another process has claimed the repository.
    ///
    /// # Errors
    /// [`RepositoryError::Fenced`] with the new holder; errors of the store.
    pub fn check_fence(&self) -> Result<(), RepositoryError> {
        match load_owner(self.repository.as_ref(), &self.retry)? {
            Some((now, _)) if now == self.owner => Ok(()),
            Some((now, _)) => Err(fenced(self.repository.as_ref(), self.owner.generation, &now)),
            None => Err(RepositoryError::Fenced {
                place: self.repository.place(),
                ours: self.owner.generation,
                holder: "the owner record is gone".to_owned(),
            }),
        }
    }

    /// True when the repository has this very checkpoint, whole.
    #[must_use]
    pub fn holds(&self, manifest: &Manifest) -> bool {
        let Ok(bytes) = manifest.encode() else { return false };
        let of_epoch = ManifestKey { epoch: manifest.epoch, generation: 0 }..=ManifestKey {
            epoch: manifest.epoch,
            generation: u64::MAX,
        };
        let records = self.records();
        let mut whole = records.range(of_epoch).filter(|(key, _)| !self.broken.contains(key));
        whole.any(|(_, stored)| stored.as_ref().is_ok_and(|it| it.manifest == bytes))
    }

    /// Uploads the checkpoint in the directory `checkpoint`, and returns once the repository has it. `parents` are its
    /// ancestors, nearest first, as far as they are known.
    ///
    /// # Errors
    /// [`RepositoryError::Fenced`] when another process took over: the record may then have been written, under a
    /// generation that later owners know to be old. Errors of the store after all retries, of reading the files, and
    /// [`RepositoryError::Damaged`] when a file is not as its manifest says.
    pub fn upload(
        &self,
        checkpoint: &Path,
        manifest: &Manifest,
        parents: &[u64],
    ) -> Result<Uploaded, RepositoryError> {
        let upload = UploadId {
            generation: self.owner.generation,
            epoch: manifest.epoch,
            attempt: self.attempts.fetch_add(1, Ordering::SeqCst),
        };
        let uploaded_at_ms = self.clock.wall_millis();
        self.check_fence()?;
        let base = self.base_of(manifest, parents);
        let (files, new) = self.upload_files(checkpoint, manifest, base.as_deref(), upload)?;
        let encoded = manifest.encode().map_err(|error| RepositoryError::Damaged {
            name: checkpoint.display().to_string(),
            reason: error.to_string(),
        })?;
        let stored = StoredCheckpoint {
            pipeline: manifest.pipeline.clone(),
            lineage: manifest.lineage,
            epoch: manifest.epoch,
            generation: self.owner.generation,
            base: base.as_ref().map(|base| base.key()),
            uploaded_at_ms,
            manifest: encoded,
            files,
        };
        pass("upload.manifest.before")?;
        self.check_fence()?;
        self.publish(&stored)?;
        pass("upload.manifest.after")?;
        // A process that was taken over in between must not tell anybody that its checkpoint counts.
        self.check_fence()?;
        let shared_bytes = stored.bytes().saturating_sub(new.bytes);
        self.records().insert(stored.key(), Ok(Arc::new(stored)));
        let retired = self.retire();
        let (epoch, new_files, new_bytes) = (manifest.epoch, new.files, new.bytes);
        Ok(Uploaded { epoch, new_files, new_bytes, shared_bytes, retired })
    }

    /// The nearest ancestor that the repository has: the one whose files need not be written again.
    ///
    /// Along ancestors alone, since the database uses file numbers again after an older checkpoint was restored.
    fn base_of(&self, manifest: &Manifest, parents: &[u64]) -> Option<Arc<StoredCheckpoint>> {
        let records = self.records();
        parents.iter().filter(|&&parent| parent < manifest.epoch).find_map(|&parent| {
            let of_epoch = ManifestKey { epoch: parent, generation: 0 }..=ManifestKey {
                epoch: parent,
                generation: self.owner.generation,
            };
            let mut newest_first = records.range(of_epoch).rev();
            let (_, stored) = newest_first.next().filter(|(key, _)| !self.broken.contains(key))?;
            stored.as_ref().ok().filter(|stored| stored.lineage == manifest.lineage).map(Arc::clone)
        })
    }

    fn upload_files(
        &self,
        checkpoint: &Path,
        manifest: &Manifest,
        base: Option<&StoredCheckpoint>,
        upload: UploadId,
    ) -> Result<(Vec<StoredFile>, New), RepositoryError> {
        let mut files = Vec::with_capacity(manifest.files.len());
        let mut missing = Vec::new();
        for file in &manifest.files {
            let known = base.and_then(|base| base.file(&file.name));
            let known = known.filter(|known| (known.bytes, known.crc32) == (file.bytes, file.crc32));
            let upload = known.map_or(upload, |known| known.upload);
            let stored = StoredFile { name: file.name.clone(), bytes: file.bytes, crc32: file.crc32, upload };
            if known.is_none() {
                missing.push(stored.clone());
            }
            files.push(stored);
        }
        let database = checkpoint.join("db");
        parallel::for_each(&missing, |file| self.upload_file(&database, manifest.lineage, file))?;
        let new = New {
            files: missing.len() as u64,
            bytes: missing.iter().fold(0, |sum, file| sum.saturating_add(file.bytes)),
        };
        Ok((files, new))
    }

    fn upload_file(
        &self,
        database: &Path,
        lineage: LineageId,
        file: &StoredFile,
    ) -> Result<(), RepositoryError> {
        let path = database.join(&file.name);
        let object = super::ObjectName { lineage, upload: file.upload, name: file.name.clone() }.to_string();
        pass("upload.file.before")?;
        self.retry.run(|| {
            let opened = std::fs::File::open(&path);
            let opened = opened.map_err(RepositoryError::local("read a file of the checkpoint", &path))?;
            let mut stream = Summed { inner: opened, bytes: 0, hasher: crc32fast::Hasher::new() };
            self.repository.put_file(&object, &mut stream, file.bytes)?;
            let found = (stream.bytes, stream.hasher.finalize());
            if found == (file.bytes, file.crc32) {
                return Ok(());
            }
            Err(RepositoryError::Damaged {
                name: path.display().to_string(),
                reason: format!("file is not as its manifest says: bytes={} crc32={:08x}", found.0, found.1),
            })
        })?;
        pass("upload.file.after")
    }

    /// Creates the record. When an earlier attempt took effect and its reply was lost, the name is taken by the same
    /// bytes, and that is success.
    fn publish(&self, stored: &StoredCheckpoint) -> Result<(), RepositoryError> {
        let name = stored.key().object_name();
        let bytes = stored.encode()?;
        self.retry.run(|| match self.repository.put_new(&name, &bytes) {
            Ok(_) => Ok(()),
            Err(RepositoryError::Exists { .. }) => {
                match self.repository.get(&name, RECORD_BYTES_MAX) {
                    Ok((found, _)) if found == bytes => Ok(()),
                    // Cut short on the way, perhaps: looked at again before it counts as another one's.
                    Ok((found, _)) if bytes.starts_with(&found) => Err(RepositoryError::Unavailable {
                        step: "read back",
                        name: name.clone(),
                        reason: "the reply was cut".to_owned(),
                    }),
                    Ok(_) => Err(RepositoryError::Conflict { name: name.clone() }),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        })
    }

    /// Deletes what retention lets go. A failure is a warning: it is tried again after the next upload.
    fn retire(&self) -> u64 {
        let (repository, retry) = (self.repository.as_ref(), &self.retry);
        let now_ms = self.clock.wall_millis();
        if let Err(error) = self.learn_news() {
            tracing::warn!(%error, place = %self.place(), "old checkpoints stay in the repository for now");
            return 0;
        }
        let records = self.records().clone();
        // Once for each owner everything is listed, for what cut uploads left.
        let outcome = if self.swept.swap(true, Ordering::SeqCst) {
            collect_after_upload(repository, retry, &self.owner, &records, self.keep, now_ms)
        } else {
            plan_and_collect(repository, retry, &self.owner, &records, self.keep, now_ms)
        };
        match outcome {
            Ok(retired) => {
                let mut records = self.records();
                for key in &retired {
                    records.remove(key);
                }
                retired.len() as u64
            }
            Err(error) => {
                tracing::warn!(%error, place = %self.place(), "old checkpoints stay in the repository for now");
                0
            }
        }
    }

    /// Looks for records that an earlier listing left out, or that a fenced process managed to write: what they name
    /// must not be deleted.
    fn learn_news(&self) -> Result<(), RepositoryError> {
        for key in list_keys(self.repository.as_ref(), &self.retry)? {
            if self.records().contains_key(&key) {
                continue;
            }
            match load_record(self.repository.as_ref(), &self.retry, key) {
                Ok(stored) => self.records().insert(key, Ok(Arc::new(stored))),
                Err(RepositoryError::NotFound { .. }) => None,
                Err(error @ (RepositoryError::Damaged { .. } | RepositoryError::Newer { .. })) => {
                    let record = Err(Arc::new(error));
                    warn_if_unreadable(&self.place(), key, &record);
                    self.records().insert(key, record)
                }
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Fails when the repository has a checkpoint that was not there when it was looked at before the claim.
    pub(super) fn refuse_news(&self) -> Result<(), RepositoryError> {
        refuse_news(self.repository.as_ref(), &self.retry, &self.records())
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        // Every change under this lock is a single insertion or removal.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn warn_if_unreadable(
    place: &str,
    key: ManifestKey,
    record: &Result<Arc<StoredCheckpoint>, Arc<RepositoryError>>,
) {
    if let Err(error) = record {
        tracing::warn!(
            %place, epoch = key.epoch, %error,
            "a record in the repository cannot be read: nothing is deleted there before it is brought back or taken away"
        );
    }
}

struct New {
    files: u64,
    bytes: u64,
}

/// Counts and checksums what is read through it.
struct Summed<R> {
    inner: R,
    bytes: u64,
    hasher: crc32fast::Hasher,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes += read as u64;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

/// The owner record of this process.
pub(super) fn owner_of(claim: Claim, clock: &dyn Clock) -> Result<Owner, RepositoryError> {
    let session = LineageId::random()
        .map_err(RepositoryError::local("draw a session id", Path::new("/dev/urandom")))?;
    Ok(Owner {
        pipeline: claim.pipeline,
        lineage: claim.lineage,
        generation: claim.generation,
        session: session.0,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
        since_ms: clock.wall_millis(),
        base: claim.base,
    })
}

/// Writes our owner record over the one that is there. `empty` says that there are no checkpoints, whose history would
/// have to be ours.
pub(super) fn take_over(
    repository: &dyn Repository,
    retry: &Retry,
    ours: &Owner,
    empty: bool,
) -> Result<(), RepositoryError> {
    let bytes = ours.encode()?;
    for _ in 0..CLAIMS_MAX {
        let found = load_owner(repository, retry)?;
        let outcome = match &found {
            // An earlier attempt took effect, and its reply was lost.
            Some((now, _)) if now == ours => return Ok(()),
            Some((now, _)) if now.pipeline != ours.pipeline => {
                return Err(RepositoryError::OtherPipeline {
                    place: repository.place(),
                    found: now.pipeline.clone(),
                    asked: ours.pipeline.clone(),
                });
            }
            Some((now, _)) if now.lineage != ours.lineage && !empty => {
                return Err(RepositoryError::OtherLineage {
                    place: repository.place(),
                    found: now.lineage,
                    ours: ours.lineage,
                });
            }
            Some((now, _)) if now.generation >= ours.generation => {
                return Err(fenced(repository, ours.generation, now));
            }
            Some((_, tag)) => retry.run(|| repository.put_if(OWNER, &bytes, tag).map(|_| ())),
            None => retry.run(|| repository.put_new(OWNER, &bytes).map(|_| ())),
        };
        match outcome {
            Ok(()) => {
                if let Some((before, _)) = found {
                    tracing::info!(place = %repository.place(), %before, "repository taken over");
                }
                return Ok(());
            }
            // Another one was quicker, or we were ourselves: look again.
            Err(RepositoryError::Changed { .. } | RepositoryError::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(RepositoryError::Changed { name: OWNER.to_owned() })
}

fn fenced(repository: &dyn Repository, ours: u64, now: &Owner) -> RepositoryError {
    RepositoryError::Fenced { place: repository.place(), ours, holder: now.to_string() }
}

/// The owner record, when there is one.
pub(super) fn load_owner(
    repository: &dyn Repository,
    retry: &Retry,
) -> Result<Option<(Owner, Tag)>, RepositoryError> {
    let read = read_record(retry, || {
        let (bytes, tag) = repository.get(OWNER, OWNER_BYTES_MAX)?;
        Ok((Owner::decode(&bytes)?, tag))
    });
    match read {
        Ok(found) => Ok(Some(found)),
        Err(RepositoryError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The record of one checkpoint.
pub(super) fn load_record(
    repository: &dyn Repository,
    retry: &Retry,
    key: ManifestKey,
) -> Result<StoredCheckpoint, RepositoryError> {
    read_record(retry, || {
        let (bytes, _) = repository.get(&key.object_name(), RECORD_BYTES_MAX)?;
        StoredCheckpoint::decode(key, &bytes).map(|(stored, _)| stored)
    })
}

/// Reads a small object; one that does not decode is read again, since the reply may have been cut.
fn read_record<T>(
    retry: &Retry,
    read: impl Fn() -> Result<T, RepositoryError>,
) -> Result<T, RepositoryError> {
    let mut damage = None;
    let outcome = retry.run(|| match read() {
        Err(RepositoryError::Damaged { name, reason }) => {
            damage = Some((name.clone(), reason.clone()));
            Err(RepositoryError::Unavailable { step: "decode", name, reason })
        }
        outcome => {
            damage = None;
            outcome
        }
    });
    match (outcome, damage) {
        (Err(RepositoryError::Unavailable { .. }), Some((name, reason))) => {
            Err(RepositoryError::Damaged { name, reason })
        }
        (outcome, _) => outcome,
    }
}

/// Keys of all records. Listed twice: a listing may lag behind.
pub(super) fn list_keys(
    repository: &dyn Repository,
    retry: &Retry,
) -> Result<Vec<ManifestKey>, RepositoryError> {
    let mut keys = Vec::new();
    for _ in 0..2 {
        let listing = retry.run(|| repository.list(MANIFESTS, RECORDS_MAX))?;
        if !listing.complete {
            return Err(RepositoryError::TooLarge { name: MANIFESTS.to_owned(), bytes: RECORDS_MAX as u64 });
        }
        keys.extend(listing.objects.iter().filter_map(|object| ManifestKey::parse(&object.name)));
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Fails when there is a checkpoint that `known` lacks: an earlier listing lagged, or somebody wrote it since.
pub(super) fn refuse_news(
    repository: &dyn Repository,
    retry: &Retry,
    known: &Records,
) -> Result<(), RepositoryError> {
    let listed = list_keys(repository, retry)?;
    match listed.into_iter().find(|key| !known.contains_key(key)) {
        Some(key) => Err(RepositoryError::Moved { place: repository.place(), epoch: key.epoch }),
        None => Ok(()),
    }
}

/// All records. One that was deleted meanwhile is left out.
pub(super) fn load_records(repository: &dyn Repository, retry: &Retry) -> Result<Records, RepositoryError> {
    let keys = list_keys(repository, retry)?;
    let loaded = parallel::for_each(&keys, |&key| match load_record(repository, retry, key) {
        Ok(stored) => Ok(Some((key, Ok(Arc::new(stored))))),
        Err(RepositoryError::NotFound { .. }) => Ok(None),
        Err(error @ (RepositoryError::Damaged { .. } | RepositoryError::Newer { .. })) => {
            Ok(Some((key, Err(Arc::new(error)))))
        }
        Err(error) => Err(error),
    })?;
    Ok(loaded.into_iter().flatten().collect())
}

fn pass(point: &'static str) -> Result<(), RepositoryError> {
    fault::point(point).map_err(|error| RepositoryError::Unavailable {
        step: point,
        name: String::new(),
        reason: error.to_string(),
    })
}
