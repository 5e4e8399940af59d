//! The state directory: created or opened by one process, locked, fenced by its generation, and swept.
//!
//! Owns the order in which an open goes; what a checkpoint holds is for the writer and for restore.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::checkpoint::durable::{DiskFs, DurableFs, publish_file, remove_tree};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::found::FoundDirectory;
use crate::checkpoint::layout::{self, Layout};
use crate::checkpoint::lineage::{Lineage, LineageId};
use crate::checkpoint::listing::complete_epochs;
use crate::checkpoint::lock::{DirectoryLock, LockFailure};
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::plan::plan_sweep;
use crate::checkpoint::savepoint;
use crate::clock::Clock;

/// How often a left-over is swept where somebody is at work in it.
const SWEEPS_MAX: u32 = 5;

/// What a state directory takes from the outside world.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Wall time, for notes in lock and manifests.
    pub clock: Arc<dyn Clock>,
    /// The door to the disk.
    pub fs: Arc<dyn DurableFs>,
    /// Lineage id for a directory that is created; drawn at random when `None`.
    pub new_lineage: Option<LineageId>,
    /// The open takes a higher generation than this: the highest that is known elsewhere, in a repository.
    pub generation_above: u64,
    /// New checkpoints take higher epochs than this: the highest that is known elsewhere.
    pub epochs_above: u64,
}

impl Environment {
    /// The machine's disk and randomness, with `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, fs: Arc::new(DiskFs), new_lineage: None, generation_above: 0, epochs_above: 0 }
    }
}

/// A state directory, held by this process until dropped (with every writer it handed out).
///
/// Cheap to clone; all clones are the same holder.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    pub(super) shared: Arc<Shared>,
}

/// The checkpoint that the work goes on from.
#[derive(Debug)]
pub(super) struct Parent {
    pub(super) manifest: Arc<Manifest>,
    pub(super) path: PathBuf,
}

/// What changes while the directory is held.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) parent: Option<Arc<Parent>>,
    pub(super) next_epoch: u64,
    pub(super) attempts: u64,
    pub(super) in_flight: bool,
    // Set by a failed sync and never cleared: pages that failed once are dropped by the kernel without a word.
    pub(super) poisoned: bool,
    pub(super) copied_files: u64,
    // Epochs that somebody reads, with how many do.
    pub(super) pins: BTreeMap<u64, u32>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) layout: Layout,
    /// The lineage file as it was before this open.
    before: Option<Lineage>,
    pub(super) lineage: Lineage,
    lock: DirectoryLock,
    pub(super) fs: Arc<dyn DurableFs>,
    pub(super) clock: Arc<dyn Clock>,
    progress: Mutex<Progress>,
}

impl Shared {
    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        // Every change under this lock is a single assignment, so a panic elsewhere leaves nothing half done.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails when another process took over: its lock file is there, or a higher generation is.
    pub(super) fn check_fence(&self) -> Result<(), CheckpointError> {
        let fenced = |reason: String| CheckpointError::Fenced {
            path: self.layout.root.clone(),
            ours: self.lineage.generation,
            reason,
        };
        if !self.lock.still_ours() {
            return Err(fenced("the lock file was deleted or replaced".to_owned()));
        }
        match Lineage::load(&self.layout.lineage())? {
            Some(now) if now.id == self.lineage.id && now.generation == self.lineage.generation => Ok(()),
            Some(now) if now.id == self.lineage.id => {
                Err(fenced(format!("generation is {}", now.generation)))
            }
            Some(now) => Err(fenced(format!("lineage is {}", now.id))),
            None => Err(fenced("the lineage file is gone".to_owned())),
        }
    }

    /// Records a failed sync: nothing more is written through this holder.
    pub(super) fn failed_sync(&self, step: &'static str, path: &Path, source: io::Error) -> CheckpointError {
        self.progress().poisoned = true;
        CheckpointError::Sync { step, path: path.to_owned(), source }
    }

    pub(super) fn sync_dir(&self, step: &'static str, path: &Path) -> Result<(), CheckpointError> {
        self.fs.sync_dir(path).map_err(|source| self.failed_sync(step, path, source))
    }
}

impl StateDirectory {
    /// Opens or creates the state directory of `pipeline` at `path`, for writing.
    ///
    /// Takes the lock, raises the generation and sweeps what cut attempts left over, working databases included.
    ///
    /// # Errors
    /// [`CheckpointError::Locked`] while another process holds it; [`CheckpointError::OtherPipeline`],
    /// [`CheckpointError::Foreign`] and [`CheckpointError::Newer`] when it is not this pipeline's to open;
    /// [`CheckpointError::LineageDamaged`] and [`CheckpointError::LineageLost`]; I/O errors.
    pub fn open(path: &Path, pipeline: &str, clock: Arc<dyn Clock>) -> Result<Self, CheckpointError> {
        Self::open_in(path, pipeline, Environment::new(clock))
    }

    /// As [`StateDirectory::open`], in an environment that a test may own.
    ///
    /// # Errors
    /// As [`StateDirectory::open`].
    pub fn open_in(path: &Path, pipeline: &str, environment: Environment) -> Result<Self, CheckpointError> {
        FoundDirectory::locked(path, pipeline, environment)?.open()
    }

    /// Opens what was found and is locked.
    pub(super) fn open_found(found: FoundDirectory) -> Result<Self, CheckpointError> {
        let next_epoch = found.next_epoch();
        let FoundDirectory { layout, environment, before, lineage, lock, .. } = found;
        let Environment { clock, fs, .. } = environment;
        let Some(lock) = lock else { return Err(CheckpointError::Changed { path: layout.root }) };
        for directory in [layout.checkpoints(), layout.work()] {
            create_if_missing(fs.as_ref(), &directory)?;
        }
        // A checkpoint renamed by a process that died before its sync is only now certain to stay; nothing may
        // build on it earlier.
        let checkpoints = layout.checkpoints();
        fs.sync_dir(&checkpoints).map_err(CheckpointError::sync("sync the checkpoints", &checkpoints))?;
        write_lineage(fs.as_ref(), &layout, &lineage)?;
        sweep(fs.as_ref(), &layout)?;
        warn_without_links(&layout);
        let progress = Progress { next_epoch, ..Progress::default() };
        let shared = Shared { layout, before, lineage, lock, fs, clock, progress: Mutex::new(progress) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Leaves the directory with the generation that it had: for an open that was refused elsewhere after all, and has
    /// written nothing under its own. A generation that stayed raised would let the next start pass for one that has seen
    /// what others did meanwhile.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`]; I/O errors.
    pub(crate) fn give_back(self) -> Result<(), CheckpointError> {
        self.check_owner()?;
        let Shared { fs, layout, before, .. } = &*self.shared;
        before.as_ref().map_or(Ok(()), |before| write_lineage(fs.as_ref(), layout, before))
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.layout.root
    }

    /// The generation of this open; higher than that of any before.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shared.lineage.generation
    }

    /// The history of checkpoints that this directory holds.
    #[must_use]
    pub fn lineage(&self) -> LineageId {
        self.shared.lineage.id
    }

    /// Where the working database of this open belongs. Disposable; it does not exist until
    /// [`StateDirectory::materialise`] or the state layer makes it.
    #[must_use]
    pub fn work_dir(&self) -> PathBuf {
        self.shared.layout.work_of(self.generation())
    }

    /// The directory that holds the checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.shared.layout.checkpoints()
    }

    /// The lowest epoch that [`StateDirectory::begin`] takes: above every epoch ever seen here, also above ones that
    /// an explicit restore passed over, so that no epoch ever names two checkpoints.
    #[must_use]
    pub fn next_epoch(&self) -> u64 {
        self.shared.progress().next_epoch
    }

    /// Numbers the checkpoints to come from `epoch` on, if that is higher than [`StateDirectory::next_epoch`]: outputs
    /// may know epochs of this lineage that this directory never saw.
    pub(crate) fn number_from(&self, epoch: u64) {
        let mut progress = self.shared.progress();
        progress.next_epoch = progress.next_epoch.max(epoch);
    }

    /// Lets the next checkpoint take the place of the restored one: its epoch, and no parent. Only for a directory that
    /// nothing else knows, where one savepoint is made of another.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`]; I/O errors.
    pub(crate) fn replace_restored(&self) -> Result<(), CheckpointError> {
        self.check_owner()?;
        let Some(parent) = self.shared.progress().parent.take() else { return Ok(()) };
        self.shared.progress().next_epoch = parent.manifest.epoch;
        // The working database has its own links to the tables.
        remove_any(self.shared.fs.as_ref(), &parent.path)
            .map_err(CheckpointError::io("replace a checkpoint", &parent.path))
    }

    /// Tables that a restore had to copy because the filesystem does not link them. More than none usually means that
    /// work and checkpoints are on different filesystems, and each checkpoint costs its full size.
    #[must_use]
    pub fn copied_instead_of_linked(&self) -> u64 {
        self.shared.progress().copied_files
    }

    /// Fails once another process has taken over, or a sync has failed. Ask before anything becomes visible outside.
    ///
    /// # Errors
    /// [`CheckpointError::Fenced`] or [`CheckpointError::Poisoned`].
    pub fn check_owner(&self) -> Result<(), CheckpointError> {
        if self.shared.progress().poisoned {
            return Err(CheckpointError::Poisoned { path: self.path().to_owned() });
        }
        self.shared.check_fence()
    }
}

/// Refuses a directory that holds something and is not a state directory, before anything is written into it.
pub(super) fn refuse_foreign(layout: &Layout) -> Result<(), CheckpointError> {
    let root = &layout.root;
    match std::fs::symlink_metadata(layout.lineage()) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(CheckpointError::io("look for the lineage file", root)(error)),
    }
    let entries = match layout::entries(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(CheckpointError::io("list the state directory", root))?,
    };
    let mut used_work = false;
    for entry in entries {
        let (name, kind) = entry.map_err(CheckpointError::io("list the state directory", root))?;
        // What a creation that was cut may have left; `lost+found` is the filesystem's own.
        let ours = match name.as_str() {
            "LOCK" => kind.is_file(),
            "work" | "checkpoints" | "lost+found" => kind.is_dir(),
            name => is_lineage_attempt(name),
        };
        if !ours {
            return Err(CheckpointError::Foreign { path: root.clone(), entry: name });
        }
        if name == "checkpoints" && !complete_epochs(&layout.checkpoints())?.is_empty() {
            return Err(CheckpointError::LineageLost { path: layout.lineage() });
        }
        // A `work` of our own is empty before the first lineage; anybody else's would be swept.
        used_work |= name == "work" && names(&layout.work())?.next().is_some();
    }
    match used_work {
        true => Err(CheckpointError::Foreign { path: root.clone(), entry: "work".to_owned() }),
        false => Ok(()),
    }
}

pub(super) fn take_lock(layout: &Layout, clock: &dyn Clock) -> Result<DirectoryLock, CheckpointError> {
    DirectoryLock::acquire(&layout.lock(), clock.wall_millis()).map_err(|failure| match failure {
        LockFailure::Held(holder) => CheckpointError::Locked { path: layout.root.clone(), holder },
        LockFailure::Io(source) => {
            CheckpointError::Io { step: "lock the state directory", path: layout.lock(), source }
        }
    })
}

/// The lineage that an open writes: a new one, or the one that is there with its generation raised.
pub(super) fn next_lineage(
    layout: &Layout,
    before: Option<&Lineage>,
    present: &BTreeSet<u64>,
    pipeline: &str,
    environment: &Environment,
) -> Result<Lineage, CheckpointError> {
    let above = environment.generation_above;
    let Some(before) = before else {
        let id = match environment.new_lineage {
            Some(id) => id,
            None => LineageId::random().map_err(CheckpointError::io("draw a lineage id", &layout.root))?,
        };
        let generation = above.saturating_add(1);
        return Ok(Lineage { id, pipeline: pipeline.to_owned(), generation, newest_epoch_seen: 0 });
    };
    if before.pipeline != pipeline {
        return Err(CheckpointError::OtherPipeline {
            path: layout.root.clone(),
            found: before.pipeline.clone(),
            asked: pipeline.to_owned(),
        });
    }
    let newest = present.last().copied().unwrap_or(0);
    Ok(Lineage {
        generation: before.generation.max(above).saturating_add(1),
        newest_epoch_seen: before.newest_epoch_seen.max(newest),
        ..before.clone()
    })
}

pub(super) fn create_if_missing(fs: &dyn DurableFs, path: &Path) -> Result<(), CheckpointError> {
    match fs.create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A symlink here would carry the checkpoints, and every removal, somewhere else.
            let kind =
                std::fs::symlink_metadata(path).map_err(CheckpointError::io("look at a directory", path))?;
            if kind.is_dir() {
                return Ok(());
            }
            let source = io::Error::new(io::ErrorKind::NotADirectory, "not a directory");
            Err(CheckpointError::io("use a directory", path)(source))
        }
        other => other.map_err(CheckpointError::io("create a directory", path)),
    }
}

/// Writes the lineage last in a creation, and with it makes the entries of the state directory durable.
pub(super) fn write_lineage(
    fs: &dyn DurableFs,
    layout: &Layout,
    lineage: &Lineage,
) -> Result<(), CheckpointError> {
    let path = layout.lineage();
    for name in names(&layout.root)?.filter(|name| is_lineage_attempt(name)) {
        let left = layout.root.join(name);
        fs.remove_file(&left).map_err(CheckpointError::io("sweep a left-over lineage file", &left))?;
    }
    let temporary = layout.root.join(format!("LINEAGE.{}.tmp", lineage.generation));
    let bytes =
        lineage.encode().map_err(|error| CheckpointError::Draft { epoch: 0, reason: error.to_string() })?;
    publish_file(fs, &path, &temporary, &bytes).map_err(|(step, source)| match step {
        "sync" => CheckpointError::Sync { step: "sync the lineage file", path, source },
        _ => CheckpointError::Io { step: "write the lineage file", path, source },
    })
}

fn is_lineage_attempt(name: &str) -> bool {
    let generation = name.strip_prefix("LINEAGE.").and_then(|rest| rest.strip_suffix(".tmp"));
    generation.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn names(dir: &Path) -> Result<impl Iterator<Item = String> + use<>, CheckpointError> {
    let list =
        || layout::entries(dir)?.map(|entry| entry.map(|(name, _)| name)).collect::<io::Result<Vec<_>>>();
    Ok(list().map_err(CheckpointError::io("list a directory", dir))?.into_iter())
}

/// Removes what cut attempts left among the checkpoints, and every working database. Nothing here is ever needed,
/// so nothing is synced: what a cut brings back, the next open sweeps again.
fn sweep(fs: &dyn DurableFs, layout: &Layout) -> Result<(), CheckpointError> {
    let (checkpoints, work) = (layout.checkpoints(), layout.work());
    let entries: Vec<String> = names(&checkpoints)?.collect();
    let left_over = plan_sweep(entries.iter().map(String::as_str));
    let in_checkpoints = left_over.into_iter().map(|name| checkpoints.join(name));
    let in_work = names(&work)?.map(|name| work.join(name));
    for path in in_checkpoints.chain(in_work) {
        if sweep_one(fs, &path).map_err(CheckpointError::io("sweep a left-over", &path))? {
            tracing::debug!(path = %path.display(), "swept a left-over");
        } else {
            tracing::warn!(
                path = %path.display(),
                "a left-over stays until the next open: a process that this one has taken over from still writes there"
            );
        }
    }
    savepoint::sweep(fs, layout)
}

/// Removes a left-over; false when somebody goes on writing there. Whoever left it may be at work at this moment: a process
/// that lost the directory, and tidies up or has not noticed.
fn sweep_one(fs: &dyn DurableFs, path: &Path) -> io::Result<bool> {
    for _ in 0..SWEEPS_MAX {
        match remove_any(fs, path) {
            Ok(()) => return Ok(true),
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) =>
            {
                return Err(error);
            }
            Err(_) if std::fs::symlink_metadata(path).is_err() => return Ok(true),
            Err(_) => {}
        }
    }
    Ok(false)
}

/// Work and checkpoints share files by hard link; a mount between the two turns each link into a copy.
fn warn_without_links(layout: &Layout) {
    let device = |path: PathBuf| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if device(layout.work()) != device(layout.checkpoints()) {
        tracing::warn!(
            path = %layout.root.display(),
            "work and checkpoints are on different filesystems: files are copied, and each checkpoint costs its full size"
        );
    }
}

/// Removes a directory with its contents, or whatever else has the name.
pub(super) fn remove_any(fs: &dyn DurableFs, path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.is_dir() { remove_tree(fs, path) } else { fs.remove_file(path) }
}
