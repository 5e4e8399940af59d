//! Tests of the whole checkpoint module on a real directory; the parts have theirs beside them.

mod damage;
mod ownership;
mod power;
mod protocol;
mod savepoint;
mod savepoint_power;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::checkpoint::durable::{Copied, DiskFs, DurableFs};
use crate::checkpoint::lineage::Lineage;
use crate::checkpoint::{
    CheckpointError, CheckpointWriter, Environment, FileFacts, LineageId, ManifestDraft, Published,
    StateDirectory,
};
use crate::clock::ManualClock;

pub(super) const LINEAGE: LineageId = LineageId([0x5a; 16]);

/// The machine's disk without the waiting: syncs are left out. May refuse hard links, be full, or let another process
/// take the directory over at the very moment of the rename that publishes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HastyFs {
    pub(super) refuse_links: bool,
    pub(super) take_over_at_publish: bool,
    pub(super) full: Option<&'static AtomicBool>,
    /// So often somebody else writes into a working database while it is removed.
    pub(super) busy: Option<&'static AtomicUsize>,
}

impl DurableFs for HastyFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DiskFs.create_dir(path)
    }
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.full.is_some_and(|full| full.load(Ordering::SeqCst)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        DiskFs.write_new(path, bytes)
    }
    fn copy_new(&self, from: &Path, to: &Path) -> io::Result<Copied> {
        DiskFs.copy_new(from, to)
    }
    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        if self.refuse_links {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        DiskFs.hard_link(original, link)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        DiskFs.rename(from, to)?;
        if self.take_over_at_publish && to.parent().is_some_and(|parent| parent.ends_with("checkpoints")) {
            take_over(to.ancestors().nth(2).unwrap());
        }
        Ok(())
    }
    fn sync_file(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        DiskFs.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let writes = |busy: &AtomicUsize| {
            let one_less = |left: usize| left.checked_sub(1);
            path.parent().is_some_and(|parent| parent.ends_with("work"))
                && busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
        };
        if self.busy.is_some_and(writes) {
            DiskFs.write_new(&path.join("000077.sst"), b"late")?;
        }
        DiskFs.remove_dir(path)
    }
}

pub(super) fn environment(fs: Arc<dyn DurableFs>) -> Environment {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    Environment { fs, new_lineage: Some(LINEAGE), ..Environment::new(clock) }
}

pub(super) fn open(path: &Path) -> Result<StateDirectory, CheckpointError> {
    StateDirectory::open_in(path, "flights", environment(Arc::new(HastyFs::default())))
}

/// Puts a database of one table per epoch into the writer's target, as the state layer would: the parent's tables
/// by hard link, a new one, and the database's own small file. Nothing is synced.
pub(super) fn fill(fs: &dyn DurableFs, writer: &CheckpointWriter, parent: Option<&Path>) -> io::Result<()> {
    let target = writer.db_target();
    fs.create_dir(&target)?;
    if let Some(parent) = parent {
        let tables = std::fs::read_dir(parent.join("db"))?.map(|entry| Ok(entry?.file_name()));
        let mut tables = tables.collect::<io::Result<Vec<_>>>()?;
        tables.sort();
        // Like a compaction would, keep no more than the last two.
        let is_table = |name: &&std::ffi::OsString| name.to_string_lossy().ends_with(".sst");
        for name in tables.iter().filter(is_table).rev().take(2) {
            fs.hard_link(&parent.join("db").join(name), &target.join(name))?;
        }
    }
    let epoch = writer.epoch();
    fs.write_new(&target.join(format!("{epoch:06}.sst")), format!("table of {epoch}").repeat(3).as_bytes())?;
    fs.write_new(&target.join("CURRENT"), format!("MANIFEST-{epoch:06}\n").as_bytes())
}

pub(super) fn draft(epoch: u64) -> ManifestDraft {
    ManifestDraft {
        files: vec![FileFacts {
            name: format!("{epoch:06}.sst"),
            family: Some("hourly.windows".to_owned()),
            smallest_key: vec![1],
            largest_key: vec![9],
            entries: 4,
        }],
        counters: BTreeMap::from([("events".to_owned(), epoch * 100)]),
        ..ManifestDraft::default()
    }
}

/// Makes the next checkpoint of a directory.
pub(super) fn checkpoint(state: &StateDirectory) -> Result<Published, CheckpointError> {
    let parent = state.shared.progress().parent.as_ref().map(|parent| parent.path.clone());
    let writer = state.begin(state.next_epoch())?;
    let fs = Arc::clone(&state.shared.fs);
    fill(fs.as_ref(), &writer, parent.as_deref())
        .map_err(CheckpointError::io("fill", &writer.db_target()))?;
    let epoch = writer.epoch();
    writer.publish(draft(epoch))
}

/// A state directory with checkpoints 1 to `epochs`, closed.
pub(super) fn made(dir: &Path, epochs: u64) -> PathBuf {
    let path = dir.join("state");
    let state = open(&path).unwrap();
    for _ in 0..epochs {
        checkpoint(&state).unwrap();
    }
    path
}

/// Raises the generation behind the holder's back, as a machine would for which the flock does not count.
pub(super) fn take_over(state: &Path) {
    let path = state.join("LINEAGE");
    let mut lineage = Lineage::load(&path).unwrap().unwrap();
    lineage.generation += 1;
    overwrite(&path, &lineage.encode().unwrap());
}

/// Every file under `dir`, in order.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

#[expect(clippy::disallowed_methods, reason = "tests damage files on purpose")]
pub(super) fn overwrite(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "tests move things about on purpose")]
pub(super) fn rename(from: &Path, to: &Path) {
    std::fs::rename(from, to).unwrap();
}
