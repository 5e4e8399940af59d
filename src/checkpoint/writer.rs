//! Making one checkpoint: a place to write, then checksums, manifest, syncs, and one rename that publishes.
//!
//! Owns the order of the steps and the fence around them (`docs/CHECKPOINTS.md` names the cut points). What the
//! state layer puts into `db/` it only counts and checksums.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::directory::{Parent, Shared, StateDirectory, remove_any};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::layout;
use crate::checkpoint::lineage::LineageId;
use crate::checkpoint::listing::load_directory;
use crate::checkpoint::manifest::{
    FileEntry, Manifest, OperatorState, PartitionState, SourceState, StagedOutput,
};
use crate::checkpoint::verify::checksum;
use crate::event_time::Watermark;
use crate::fault;

/// What the caller knows of a checkpoint; the writer adds names, sizes, checksums and its own place in history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestDraft {
    /// The sources, in the order declared.
    pub sources: Vec<SourceState>,
    /// Where each source partition stands.
    pub partitions: Vec<PartitionState>,
    /// The watermark of the task.
    pub watermark: Watermark,
    /// What operators that advance by batches reach at the end of the batch.
    pub batch_watermark: Watermark,
    /// The eviction horizon.
    pub horizon: Watermark,
    /// The operators and the shape of their state.
    pub operators: Vec<OperatorState>,
    /// What the state layer knows of the files it linked. Files it does not mention are listed without a family.
    pub files: Vec<FileFacts>,
    /// Output staged for this epoch.
    pub staged: Vec<StagedOutput>,
    /// Running totals.
    pub counters: BTreeMap<String, u64>,
}

impl Default for ManifestDraft {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            partitions: Vec::new(),
            watermark: Watermark::None,
            batch_watermark: Watermark::None,
            horizon: Watermark::None,
            operators: Vec::new(),
            files: Vec::new(),
            staged: Vec::new(),
            counters: BTreeMap::new(),
        }
    }
}

/// What the state layer knows of one file under `db/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// Its plain name, without a leading slash.
    pub name: String,
    /// The family whose data it holds.
    pub family: Option<String>,
    /// First key.
    pub smallest_key: Vec<u8>,
    /// Last key.
    pub largest_key: Vec<u8>,
    /// Entries, tombstones included.
    pub entries: u64,
}

/// The permit to publish an epoch's output: its checkpoint is complete and durable.
#[derive(Clone, Debug)]
pub struct Published {
    // Private: a permit exists only for a checkpoint that is durable in this process's own directory.
    manifest: Arc<Manifest>,
    path: PathBuf,
    new_bytes: u64,
    shared_bytes: u64,
}

impl Published {
    /// A permit for a checkpoint that was found durable and verified at a restore.
    pub(super) fn restored(manifest: Arc<Manifest>, path: PathBuf) -> Self {
        let shared_bytes = manifest.database_bytes();
        Self { manifest, path, new_bytes: 0, shared_bytes }
    }

    /// The epoch that is now durable.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.manifest.epoch
    }

    /// The generation that wrote it.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.manifest.generation
    }

    /// The history it belongs to.
    #[must_use]
    pub fn lineage(&self) -> LineageId {
        self.manifest.lineage
    }

    /// Its manifest, with the staged output to publish.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of files that its parent does not have.
    #[must_use]
    pub const fn new_bytes(&self) -> u64 {
        self.new_bytes
    }

    /// Bytes of files that it shares with its parent.
    #[must_use]
    pub const fn shared_bytes(&self) -> u64 {
        self.shared_bytes
    }
}

/// A checkpoint being written. Dropped without [`CheckpointWriter::publish`], it leaves nothing.
///
/// It may move to another thread, so that the task goes on while files are checksummed.
#[derive(Debug)]
pub struct CheckpointWriter {
    shared: Arc<Shared>,
    epoch: u64,
    dir: PathBuf,
    parent: Option<Arc<Parent>>,
}

impl StateDirectory {
    /// Begins the checkpoint of `epoch`, which is at least [`StateDirectory::next_epoch`]. One at a time.
    ///
    /// # Errors
    /// [`CheckpointError::InFlight`] while another is being written, [`CheckpointError::EpochTaken`],
    /// [`CheckpointError::Fenced`], [`CheckpointError::Poisoned`] after a failed sync; I/O errors.
    pub fn begin(&self, epoch: u64) -> Result<CheckpointWriter, CheckpointError> {
        self.check_owner()?;
        let shared = &self.shared;
        let (attempt, parent) = {
            let mut progress = shared.progress();
            if progress.in_flight {
                return Err(CheckpointError::InFlight { epoch });
            }
            if epoch < progress.next_epoch {
                return Err(CheckpointError::EpochTaken { epoch, next: progress.next_epoch });
            }
            progress.in_flight = true;
            progress.attempts += 1;
            (progress.attempts, progress.parent.clone())
        };
        let dir = shared.layout.attempt(epoch, self.generation(), attempt);
        let writer = CheckpointWriter { shared: Arc::clone(shared), epoch, dir, parent };
        // From here on dropping the writer ends the attempt.
        pass("checkpoint.link.before", &writer.dir)?;
        shared.fs.create_dir(&writer.dir).map_err(CheckpointError::io("begin a checkpoint", &writer.dir))?;
        Ok(writer)
    }
}

impl CheckpointWriter {
    /// Where the state layer puts the database. It does not exist yet; files are hard links or new, and final.
    #[must_use]
    pub fn db_target(&self) -> PathBuf {
        self.dir.join(layout::DATABASE)
    }

    /// The epoch being written.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Completes the checkpoint: reads and syncs the new files, writes the manifest, and makes the whole visible by
    /// one durable rename.
    ///
    /// After an error the epoch did not happen, and its names are never used again. After a failed sync, or an error
    /// once the rename was done, the directory must be reopened: it then holds this checkpoint or the one before.
    ///
    /// # Errors
    /// [`CheckpointError::Draft`] when draft and files differ, [`CheckpointError::Fenced`] when another process took
    /// over, [`CheckpointError::Sync`]; I/O errors.
    pub fn publish(self, draft: ManifestDraft) -> Result<Published, CheckpointError> {
        pass("checkpoint.link.after", &self.dir)?;
        self.shared.check_fence()?;
        let (files, shared_bytes) = self.take_inventory(&draft.files)?;
        let manifest = self.manifest(draft, files);
        let bytes = manifest.encode().map_err(|error| self.draft(error.to_string()))?;
        pass("checkpoint.manifest.before", &self.dir)?;
        self.write_manifest(&bytes)?;
        pass("checkpoint.manifest.after", &self.dir)?;
        let new_bytes = manifest.database_bytes().saturating_sub(shared_bytes);
        let path = self.shared.layout.checkpoint(self.epoch);
        self.reveal(&path)?;
        let manifest = Arc::new(manifest);
        let mut progress = self.shared.progress();
        progress.parent = Some(Arc::new(Parent { manifest: Arc::clone(&manifest), path: path.clone() }));
        progress.next_epoch = self.epoch.saturating_add(1);
        drop(progress);
        Ok(Published { manifest, path, new_bytes, shared_bytes })
    }

    /// Lists the files of the database, syncing and checksumming those that the parent does not share.
    fn take_inventory(&self, facts: &[FileFacts]) -> Result<(Vec<FileEntry>, u64), CheckpointError> {
        self.refuse_strays()?;
        let database = self.db_target();
        let mut facts: BTreeMap<&str, &FileFacts> =
            facts.iter().map(|fact| (fact.name.as_str(), fact)).collect();
        let (mut files, mut shared_bytes) = (Vec::new(), 0);
        let list_failed = || CheckpointError::io("list the linked files", &database);
        for entry in layout::entries(&database).map_err(list_failed())? {
            let (name, kind) = entry.map_err(list_failed())?;
            if !kind.is_file() || !layout::is_plain_name(&name) {
                return Err(self.draft(format!("not a plain regular file, name={name:?}")));
            }
            let known = facts.remove(name.as_str());
            let (file, shared) = self.describe(&database, name, known)?;
            shared_bytes += if shared { file.bytes } else { 0 };
            files.push(file);
        }
        if let Some(name) = facts.keys().next() {
            return Err(self.draft(format!("a file of the draft is not there, name={name:?}")));
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        self.shared.sync_dir("sync the linked files", &database)?;
        Ok((files, shared_bytes))
    }

    /// Beside the database there is nothing, such as a half-made one under another name.
    fn refuse_strays(&self) -> Result<(), CheckpointError> {
        let list_failed = || CheckpointError::io("list the checkpoint", &self.dir);
        for entry in layout::entries(&self.dir).map_err(list_failed())? {
            let (name, kind) = entry.map_err(list_failed())?;
            if name != layout::DATABASE || !kind.is_dir() {
                return Err(self.draft(format!("a stray entry beside the database, name={name:?}")));
            }
        }
        Ok(())
    }

    fn describe(
        &self,
        database: &Path,
        name: String,
        known: Option<&FileFacts>,
    ) -> Result<(FileEntry, bool), CheckpointError> {
        let path = database.join(&name);
        let metadata =
            std::fs::symlink_metadata(&path).map_err(CheckpointError::io("look at a linked file", &path))?;
        let shared = self.shared_checksum(&name, &metadata);
        let crc32 = match shared {
            Some(crc32) => crc32,
            None => self.sync_and_checksum(&path, metadata.len())?,
        };
        let known = known.cloned().unwrap_or_default();
        let entry = FileEntry {
            name,
            bytes: metadata.len(),
            crc32,
            family: known.family,
            smallest_key: known.smallest_key,
            largest_key: known.largest_key,
            entries: known.entries,
        };
        Ok((entry, shared.is_some()))
    }

    /// The checksum in the parent's manifest, when the parent's file of that name is this very file. By inode: a
    /// file number, and so a name, is used again after an older checkpoint was restored.
    fn shared_checksum(&self, name: &str, metadata: &Metadata) -> Option<u32> {
        let parent = self.parent.as_ref()?;
        let entry = parent.manifest.file(name).filter(|entry| entry.bytes == metadata.len())?;
        let theirs = std::fs::symlink_metadata(parent.path.join(layout::DATABASE).join(name)).ok()?;
        ((theirs.dev(), theirs.ino()) == (metadata.dev(), metadata.ino())).then_some(entry.crc32)
    }

    fn sync_and_checksum(&self, path: &Path, bytes: u64) -> Result<u32, CheckpointError> {
        let synced = self.shared.fs.sync_file(path);
        synced.map_err(|source| self.shared.failed_sync("sync a linked file", path, source))?;
        let read = checksum(path).map_err(CheckpointError::io("read a linked file", path))?;
        if read.bytes != bytes {
            return Err(self.draft(format!("a file changes while it is read, path={}", path.display())));
        }
        Ok(read.crc32)
    }

    fn manifest(&self, draft: ManifestDraft, files: Vec<FileEntry>) -> Manifest {
        let lineage = &self.shared.lineage;
        Manifest {
            pipeline: lineage.pipeline.clone(),
            lineage: lineage.id,
            generation: lineage.generation,
            epoch: self.epoch,
            parent: self.parent.as_ref().map(|parent| parent.manifest.epoch),
            created_by: env!("CARGO_PKG_VERSION").to_owned(),
            created_at_ms: self.shared.clock.wall_millis(),
            sources: draft.sources,
            partitions: draft.partitions,
            watermark: draft.watermark,
            batch_watermark: draft.batch_watermark,
            horizon: draft.horizon,
            operators: draft.operators,
            files,
            staged: draft.staged,
            counters: draft.counters,
        }
    }

    fn write_manifest(&self, bytes: &[u8]) -> Result<(), CheckpointError> {
        let (fs, path) = (&self.shared.fs, self.dir.join(layout::MANIFEST));
        fs.write_new(&path, bytes).map_err(CheckpointError::io("write the manifest", &path))?;
        fs.sync_file(&path).map_err(|source| self.shared.failed_sync("sync the manifest", &path, source))?;
        self.shared.sync_dir("sync the checkpoint", &self.dir)
    }

    /// The rename that publishes, with the fence checked on both sides of it: a process that lost the directory in
    /// between must not go on to publish output.
    fn reveal(&self, path: &Path) -> Result<(), CheckpointError> {
        pass("checkpoint.publish.before", path)?;
        self.shared.check_fence()?;
        let displaced = self.displace_stale(path)?;
        let fs = self.shared.fs.as_ref();
        fs.rename(&self.dir, path).map_err(CheckpointError::io("publish the checkpoint", path))?;
        let confirm = || {
            self.shared.sync_dir("publish the checkpoint", &self.shared.layout.checkpoints())?;
            pass("checkpoint.publish.after", path)?;
            self.shared.check_fence()
        };
        if let Err(error) = confirm() {
            // It is visible, and the caller is told that it failed: only a reopen finds out what holds.
            self.shared.progress().poisoned = true;
            return Err(error);
        }
        if let Some(displaced) = displaced
            && let Err(error) = remove_any(fs, &displaced)
        {
            tracing::warn!(path = %displaced.display(), %error, "left for the next start to sweep");
        }
        Ok(())
    }

    /// Moves away a checkpoint of this epoch that a fenced process published after we opened. Its output was never
    /// published, since that process checks the fence again after its rename.
    fn displace_stale(&self, path: &Path) -> Result<Option<PathBuf>, CheckpointError> {
        if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let stale = load_directory(path).is_ok_and(|there| {
            there.lineage == self.shared.lineage.id && there.generation < self.shared.lineage.generation
        });
        if !stale {
            let next = self.epoch.saturating_add(1);
            return Err(CheckpointError::EpochTaken { epoch: self.epoch, next });
        }
        let away = self.shared.layout.retired(self.epoch);
        self.shared
            .fs
            .rename(path, &away)
            .map_err(CheckpointError::io("move a stale checkpoint away", path))?;
        tracing::warn!(epoch = self.epoch, "replaced a checkpoint that a fenced process had published");
        Ok(Some(away))
    }

    fn draft(&self, reason: String) -> CheckpointError {
        CheckpointError::Draft { epoch: self.epoch, reason }
    }
}

impl Drop for CheckpointWriter {
    /// Ends the attempt. After a publish its directory has moved and there is nothing to remove.
    fn drop(&mut self) {
        self.shared.progress().in_flight = false;
        match remove_any(self.shared.fs.as_ref(), &self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.dir.display(), %error, "left for the next start to sweep");
            }
            _ => {}
        }
    }
}

/// Passes a fault point of a checkpoint step.
pub(super) fn pass(point: &'static str, path: &Path) -> Result<(), CheckpointError> {
    fault::point(point).map_err(CheckpointError::io(point, path))
}
