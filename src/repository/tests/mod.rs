//! What holds of uploads, fetches, takeovers and collection, on a directory and behind a bad network.

mod collection;
mod faults;
mod start;
mod uploads;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mirror::{Records, load_records};
use super::retry::tests::Recorded;
use super::{Claim, LocalRepository, Mirror, Repository, RepositoryError, Retry};
use crate::checkpoint::{DiskFs, DurableFs, ManifestDraft, Published, StateDirectory};
use crate::clock::{Clock, ManualClock};

/// Retries that wait for nobody.
fn patient() -> Retry {
    let mut retry = Retry::default().seeded(1).pausing(Arc::new(Recorded::default()));
    retry.attempts = NonZeroU32::new(12).unwrap();
    retry
}

fn keep(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

/// A state directory whose checkpoints have the files that a test says.
struct Site {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    state: Option<StateDirectory>,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, clock: Arc::new(ManualClock::at(1_700_000_000_000)), state: None }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as _
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn state(&mut self) -> &StateDirectory {
        if self.state.is_none() {
            let opened = StateDirectory::open(&self.path("state"), "flights", self.clock()).unwrap();
            self.state = Some(opened);
        }
        self.state.as_ref().unwrap()
    }

    /// A checkpoint of these files. Files that the last one has with the same bytes are linked from it.
    fn checkpoint(&mut self, files: &BTreeMap<String, Vec<u8>>) -> Published {
        let state = self.state().clone();
        let writer = state.begin(state.next_epoch()).unwrap();
        let target = writer.db_target();
        DiskFs.create_dir(&target).unwrap();
        let last = std::fs::read_dir(state.checkpoints()).unwrap().map(|entry| entry.unwrap().path());
        let last = last.filter(|path| path.extension().is_none()).max();
        for (name, bytes) in files {
            let to = target.join(name);
            let from = last.as_ref().map(|last| last.join("db").join(name));
            match from.filter(|from| std::fs::read(from).is_ok_and(|there| there == *bytes)) {
                Some(from) => DiskFs.hard_link(&from, &to).unwrap(),
                None => DiskFs.write_new(&to, bytes).unwrap(),
            }
        }
        writer.publish(ManifestDraft::default()).unwrap()
    }

    fn claim(&mut self, repository: &Arc<dyn Repository>) -> Result<Mirror, RepositoryError> {
        let (lineage, generation) = (self.state().lineage(), self.state().generation());
        let claim = Claim { pipeline: "flights".to_owned(), lineage, generation, base: None };
        let records: Records = load_records(repository.as_ref(), &patient())?;
        Mirror::claim(Arc::clone(repository), patient(), self.clock(), claim, records, keep(3))
    }
}

fn local(path: &Path) -> Arc<dyn Repository> {
    Arc::new(LocalRepository::new(path))
}

fn files(names: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    names.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

/// The files of a checkpoint directory, the manifest included.
fn contents(checkpoint: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    found.insert("MANIFEST.fm".to_owned(), std::fs::read(checkpoint.join("MANIFEST.fm")).unwrap());
    for entry in std::fs::read_dir(checkpoint.join("db")).unwrap() {
        let entry = entry.unwrap();
        found.insert(entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap());
    }
    found
}

fn parents(published: &Published) -> Vec<u64> {
    published.manifest().parent.into_iter().collect()
}
