//! One history: a machine with its disk, its repository and whatever goes wrong, held against the model.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::Watermark;
use floodmark::repository::{Faults, FaultyRepository, LocalRepository, Repository};
use tempfile::TempDir;

use super::draw::{Dice, Pipeline, history};
use super::judge::Judge;
use super::task::{NoStart, Start, Task};
use crate::oracle::Op;

/// Tries to start before a history is given up as one that does not start.
const STARTS_MAX: usize = 40;
pub(super) const NAME: &str = "simulated";

/// A savepoint, and how far the input was processed in it.
#[derive(Clone, Debug)]
pub(super) struct Savepoint {
    pub(super) path: PathBuf,
    pub(super) home: PathBuf,
    pub(super) at: usize,
    pub(super) firing: bool,
}

/// What the next start may meet, because of what was done to the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    /// Outputs may be ahead of what is restored, or a checkpoint may be one whose output was set aside.
    pub(super) ahead: bool,
    /// Files of checkpoints were damaged.
    pub(super) damaged: bool,
}

/// Everything there is in a history.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) pipeline: Pipeline,
    pub(super) input: Vec<Op>,
    pub(super) judge: Judge,
    pub(super) root: TempDir,
    pub(super) state: PathBuf,
    pub(super) states: usize,
    pub(super) repository: Option<Arc<FaultyRepository>>,
    pub(super) repositories: usize,
    pub(super) task: Option<Task>,
    pub(super) zombies: Vec<Task>,
    pub(super) savepoints: Vec<Savepoint>,
    pub(super) forks: usize,
    pub(super) newest_epoch: u64,
    /// An older checkpoint that was restored by hand, until the first new one is complete.
    pub(super) pinned: Option<u64>,
    pub(super) expected: Expected,
    pub(super) anew: usize,
    pub(super) firing: Firing,
    pub(super) trace: String,
}

/// How often something fell into the middle of a firing that goes in steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Firing {
    pub(super) checkpoints: usize,
    pub(super) crashes: usize,
    /// Starts from a checkpoint that was made there.
    pub(super) restarts: usize,
}

impl Firing {
    pub(super) fn add(&mut self, other: Self) {
        self.checkpoints += other.checkpoints;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
    }
}

/// Words about what happened, kept for whoever has to understand a failure.
macro_rules! note {
    ($world:expr, $($words:tt)*) => {{
        let _ = writeln!($world.trace, $($words)*);
    }};
}
pub(super) use note;

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let (pipeline, input) = history(seed);
        let judge = Judge::new(&pipeline, &input);
        // Many stores are opened here, and none of them has to outlive the machine.
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let mut world = Self {
            seed,
            judge,
            state: root.path().join("state-0"),
            root,
            states: 1,
            repository: None,
            repositories: 0,
            task: None,
            zombies: Vec::new(),
            savepoints: Vec::new(),
            forks: 0,
            newest_epoch: 0,
            pinned: None,
            expected: Expected::default(),
            anew: 0,
            firing: Firing::default(),
            trace: String::new(),
            pipeline,
            input,
        };
        world.new_repository();
        note!(world, "{:?}", world.pipeline);
        note!(world, "{} operations arrive", world.input.len());
        world
    }

    /// A fresh place for checkpoints, where the pipeline has one.
    pub(super) fn new_repository(&mut self) {
        if self.pipeline.mirrored.is_none() {
            return;
        }
        self.repositories += 1;
        let place = self.root.path().join(format!("repository-{}", self.repositories));
        let inner: Arc<dyn Repository> = Arc::new(LocalRepository::new(&place));
        let faults = Faults { stale: 0, ..Faults::SOME };
        self.repository = Some(Arc::new(FaultyRepository::new(inner, faults, self.seed)));
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        if let Some(repository) = &self.repository {
            repository.set_faults(faults);
        }
    }

    pub(super) fn outputs(&self) -> PathBuf {
        self.root.path().join("out")
    }

    pub(super) fn running(&mut self) -> &mut Task {
        self.task.as_mut().expect("a process runs between two steps")
    }

    pub(super) fn try_start(&mut self, at: Option<u64>, set_aside: bool) -> Result<Task, NoStart> {
        let repository = self.repository.clone().map(|repository| repository as Arc<dyn Repository>);
        let start = Start {
            name: NAME,
            state: self.state.clone(),
            outputs: self.outputs(),
            repository,
            at,
            set_aside,
            epochs_above: self.newest_epoch,
            prefix: "p",
        };
        Task::start(&self.pipeline, &self.input, &start)
    }

    /// Starts the process, by all means that a person would have after reading the message of a refusal.
    pub(super) fn start(&mut self) -> Result<(), String> {
        let mut choices: Option<Vec<u64>> = None;
        let (mut at, mut set_aside) = (self.pinned, self.pinned.is_some());
        for attempt in 0..STARTS_MAX {
            if attempt == STARTS_MAX / 2 {
                self.set_faults(Faults::default());
            }
            let error = match self.try_start(at, set_aside) {
                Ok(task) => return self.started(task, at),
                Err(NoStart::Wrong(why)) => return Err(why),
                Err(NoStart::Refused(error)) => error,
            };
            note!(self, "  refused at={at:?} set_aside={set_aside}: {error:?}");
            match error.kind() {
                // A network that fails now may work at the next attempt.
                ErrorKind::Unavailable | ErrorKind::Locked if self.repository.is_some() => continue,
                // A fault that cuts what is fetched short looks like damage.
                ErrorKind::Damaged if self.repository.is_some() && attempt < 3 && choices.is_none() => {
                    continue;
                }
                ErrorKind::Incompatible if self.expected.ahead && !set_aside => {
                    set_aside = true;
                    continue;
                }
                ErrorKind::Incompatible if self.expected.ahead => {}
                ErrorKind::Damaged | ErrorKind::Invalid if self.expected.damaged || self.expected.ahead => {}
                // The version of a format may be what was damaged.
                ErrorKind::Incompatible if self.expected.damaged => {}
                _ => return Err(format!("a start was refused without a reason that is known: {error:?}")),
            }
            set_aside = true;
            self.expected.ahead = true;
            let left = choices.get_or_insert_with(|| epochs(&self.state));
            match left.pop() {
                Some(epoch) => at = Some(epoch),
                None => {
                    self.begin_anew();
                    at = None;
                }
            }
        }
        Err("the process does not start, whatever is tried".to_owned())
    }

    /// When nothing can be restored any more: new state, new repository, and output set aside.
    fn begin_anew(&mut self) {
        note!(self, "  nothing can be restored: begins anew");
        self.new_state();
        self.new_repository();
        self.anew += 1;
    }

    /// State is gone. Another directory takes its place: zombies of this process may still have a database open there.
    pub(super) fn new_state(&mut self) {
        let _ = fs::remove_dir_all(&self.state);
        self.other_state();
    }

    /// The next start finds an empty state directory.
    pub(super) fn other_state(&mut self) {
        self.state = self.root.path().join(format!("state-{}", self.states));
        self.states += 1;
        self.savepoints.retain(|savepoint| savepoint.path.exists());
    }

    fn started(&mut self, task: Task, at: Option<u64>) -> Result<(), String> {
        let (restored, firing) = match task.store.restored() {
            Some(restored) => (restored.manifest().epoch, restored.manifest().counters["firing"] == 1),
            None => (0, false),
        };
        let newer = task.store.restored().is_some_and(|restored| !restored.newer.is_empty());
        if at.is_none() && newer {
            return Err("a start without --at passed newer checkpoints over".to_owned());
        }
        note!(self, "  starts from checkpoint {restored}, operation {}", task.at);
        // What was asked for by its number has to be asked for again, until a new checkpoint follows it.
        let passed_over =
            newer || at.is_some() && self.stored().last().is_some_and(|&(epoch, _)| epoch > restored);
        self.pinned = passed_over.then_some(restored);
        self.newest_epoch = self.newest_epoch.max(task.store.next_epoch() - 1);
        self.expected = Expected { ahead: passed_over, damaged: false };
        self.firing.restarts += usize::from(firing);
        let at = task.at;
        self.check_watermark(&task)?;
        self.task = Some(task);
        self.check(&(0..at), firing)
    }

    /// Epoch and generation of the checkpoints in the repository.
    pub(super) fn stored(&self) -> BTreeSet<(u64, u64)> {
        let manifests = self.root.path().join(format!("repository-{}/manifests", self.repositories));
        let names = fs::read_dir(manifests).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        let key = |name: &str| {
            let (epoch, generation) = name.strip_prefix("chk-")?.split_once('.')?;
            Some((epoch.parse().ok()?, generation.parse().ok()?))
        };
        names.filter_map(|name| key(name.to_str()?)).collect()
    }

    /// Every row that is visible, against the model. While `firing`, rows that the last operation has made due may be
    /// missing.
    pub(super) fn check(&self, range: &Range<usize>, firing: bool) -> Result<(), String> {
        self.judge.check(&self.outputs(), range, range.end - usize::from(firing))
    }

    pub(super) fn check_watermark(&self, task: &Task) -> Result<(), String> {
        let found = match task.store.watermark() {
            Watermark::None => None,
            Watermark::End => Some(i64::MAX),
            Watermark::At(time) => Some(time.as_millis() - 1),
        };
        let expected = self.judge.watermark(task.at);
        if found == expected {
            return Ok(());
        }
        Err(format!("the watermark at operation {} is {found:?} instead of {expected:?}", task.at))
    }

    /// The process is gone, with everything that is in memory.
    pub(super) fn crash(&mut self) {
        if let Some(task) = self.task.take() {
            self.firing.crashes += usize::from(task.store.is_firing());
            self.newest_epoch = self.newest_epoch.max(task.store.next_epoch() - 1);
        }
    }

    /// A running checkpoint has failed, or a step of it: for a reason that is known, or the history ends.
    pub(super) fn failed(&mut self, error: &Error, armed: bool) -> Result<(), String> {
        note!(self, "  fails: {error:?}");
        let passing = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Poisoned);
        // A repository that fails for long ends a run that requires it; a lost answer may look like another writer.
        let network =
            self.repository.is_some() && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Locked);
        if !(armed && passing || network) {
            return Err(format!("failed without a reason that is known: {error:?}"));
        }
        self.crash();
        self.start()
    }

    /// After a checkpoint that was waited for: all is visible, and a restart needs no `--at` any more.
    pub(super) fn settled(&mut self, epoch: u64) -> Result<(), String> {
        self.newest_epoch = self.newest_epoch.max(epoch);
        self.pinned = None;
        self.expected = Expected::default();
        let task = self.running();
        let (at, firing) = (task.at, task.store.is_firing());
        self.firing.checkpoints += usize::from(firing);
        self.check(&(0..at), firing)
    }

    /// Goes on to the end of the input.
    pub(super) fn plain(&mut self, dice: &mut Dice) -> Result<(), String> {
        let in_steps = self.pipeline.step_rows.is_some();
        let most = if dice.one_in(3) { 1 } else { 1 + dice.below(12) };
        // Whatever comes next would do the rest of a firing at once.
        let one_step = !dice.one_in(4);
        let Self { task, input, .. } = self;
        let task = task.as_mut().expect("a process runs between two steps");
        let result = match task.at == input.len() || one_step && task.store.is_firing() {
            true => task.fire(),
            false => task.advance(input, most, in_steps),
        };
        let (at, firing) = (task.at, task.store.is_firing());
        note!(self, "goes on to operation {at}{}", if firing { ", firing" } else { "" });
        match result {
            Ok(()) => self.check_watermark(self.task.as_ref().expect("it runs")),
            // What a checkpoint under way has met shows in the next call.
            Err(error) => self.failed(&error, false),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        let done = |task: &Task| task.at == self.input.len() && !task.store.is_firing();
        self.task.as_ref().is_some_and(done)
    }
}

/// Epochs of the checkpoints in a state directory, oldest first.
pub(super) fn epochs(state: &Path) -> Vec<u64> {
    let summaries = floodmark::checkpoint::list(state).unwrap_or_default();
    summaries.iter().filter_map(|summary| summary.epoch).collect()
}

/// Removes lock files, as a careless person would: whoever holds them is a zombie from then on.
pub(super) fn break_locks(state: &Path, outputs: &Path) {
    let _ = fs::remove_file(state.join("LOCK"));
    break_output_locks(outputs);
}

/// The same on outputs alone.
pub(super) fn break_output_locks(outputs: &Path) {
    for output in fs::read_dir(outputs).into_iter().flatten() {
        let _ = fs::remove_file(output.unwrap().path().join(".staging/LOCK"));
    }
}

/// Every file under a directory, in order.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Flips a bit of a file; with `alone` not in other checkpoints that share it.
pub(super) fn flip(path: &Path, place: u64, alone: bool) {
    let mut bytes = fs::read(path).unwrap();
    let place = (place % bytes.len() as u64) as usize;
    bytes[place] ^= 1 << (place % 8);
    if alone {
        fs::remove_file(path).unwrap();
    }
    File::create(path).and_then(|mut file| file.write_all(&bytes)).unwrap();
}
