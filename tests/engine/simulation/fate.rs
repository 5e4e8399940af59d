//! What happens between two batches.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use floodmark::checkpoint::Environment;
use floodmark::checkpoint::savepoint::{
    self, CreateRequest, PartitionChanges, RestoreAs, RestoreRequest, SavepointName,
};
use floodmark::clock::SystemClock;
use floodmark::error::{Error, ErrorKind};
use floodmark::fault;
use floodmark::repository::Faults;

use super::draw::Dice;
use super::task::{NoStart, Start, Task};
use super::world::{
    Expected, Firing, NAME, Savepoint, World, break_locks, break_output_locks, epochs, files, flip, note,
};

/// After so many steps nothing happens any more but the rest of the input.
const STEPS_MAX: u64 = 220;
const SAVEPOINTS_MAX: usize = 4;

/// Something that happens to a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Batch,
    Checkpoint,
    Stop,
    Begin,
    Crash,
    Fault,
    Zombie,
    LatePublisher,
    ZombieActs,
    LoseMachine,
    DeadNetwork,
    Savepoint,
    Move,
    Fork,
    Older,
    Damage,
}

impl Fate {
    fn drawn(dice: &mut Dice) -> Self {
        match dice.below(100) {
            0..54 => Self::Batch,
            54..56 => Self::Stop,
            56..68 => Self::Checkpoint,
            68..75 => Self::Begin,
            75..79 => Self::Crash,
            79..84 => Self::Fault,
            84..86 => Self::Zombie,
            86 => Self::LatePublisher,
            87 => Self::ZombieActs,
            88..90 => Self::LoseMachine,
            90 => Self::DeadNetwork,
            91..93 => Self::Savepoint,
            93 => Self::Move,
            94 => Self::Fork,
            95..98 => Self::Older,
            // Rare: where the newest checkpoint is the only one, nothing is left to go on from.
            _ if dice.one_in(6) => Self::Damage,
            _ => Self::Crash,
        }
    }
}

/// What came of a history.
pub(super) struct Outcome {
    /// What went wrong, in words; `None` when nothing did.
    pub(super) failure: Option<String>,
    pub(super) trace: String,
    /// The steps that were more than a batch.
    pub(super) eventful: Vec<u64>,
    /// How often nothing could be restored.
    pub(super) anew: usize,
    pub(super) firing: Firing,
}

/// Runs the history of a seed, with nothing but batches at the steps in `quiet`.
pub(super) fn run(seed: u64, quiet: &[u64]) -> Outcome {
    fault::disarm();
    let mut world = World::new(seed);
    let mut eventful = Vec::new();
    let lived = catch_unwind(AssertUnwindSafe(|| live(&mut world, quiet, &mut eventful)));
    let failure = match lived {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    };
    fault::disarm();
    Outcome {
        failure,
        trace: std::mem::take(&mut world.trace),
        eventful,
        anew: world.anew,
        firing: world.firing,
    }
}

fn live(world: &mut World, quiet: &[u64], eventful: &mut Vec<u64>) -> Result<(), String> {
    world.start()?;
    let mut step = 1;
    while !world.is_done() {
        let mut dice = Dice::of(world.seed, step);
        let fate =
            if step > STEPS_MAX || quiet.contains(&step) { Fate::Batch } else { Fate::drawn(&mut dice) };
        if fate != Fate::Batch {
            eventful.push(step);
            note!(world, "step {step}: {fate:?}");
        }
        world.meet(fate, step, &mut dice)?;
        step += 1;
    }
    world.set_faults(Faults::default());
    note!(world, "end of the input");
    world.checkpoint(false)?;
    world.crash();
    world.start()?;
    while !world.is_done() {
        world.plain(&mut Dice::of(world.seed, u64::MAX))?;
        world.checkpoint(false)?;
    }
    while let Some(zombie) = world.zombies.pop() {
        world.zombie_acts(zombie)?;
    }
    world.check(&(0..world.input.len()), false)
}

fn environment() -> Environment {
    Environment::new(SystemClock::shared())
}

impl World {
    fn meet(&mut self, fate: Fate, step: u64, dice: &mut Dice) -> Result<(), String> {
        match fate {
            Fate::Batch => self.plain(dice),
            Fate::Checkpoint => self.checkpoint(false),
            Fate::Stop => {
                self.checkpoint(false)?;
                self.crash();
                self.start()
            }
            Fate::Begin => self.begin(dice),
            Fate::Crash => {
                self.crash();
                self.start()
            }
            Fate::Fault => self.fault(dice),
            Fate::Zombie => self.zombie(dice),
            Fate::LatePublisher => self.late_publisher(dice),
            Fate::ZombieActs => match self.zombies.pop() {
                Some(zombie) => self.zombie_acts(zombie),
                None => Ok(()),
            },
            Fate::LoseMachine => self.lose_machine(dice),
            Fate::DeadNetwork => self.dead_network(),
            Fate::Savepoint => self.savepoint(step, dice),
            Fate::Move => self.move_away(dice),
            Fate::Fork => self.fork(dice),
            Fate::Older => self.older(dice),
            Fate::Damage => self.damage(dice),
        }
    }

    pub(super) fn checkpoint(&mut self, armed: bool) -> Result<(), String> {
        let Self { task, pipeline, input, .. } = self;
        let task = task.as_mut().expect("a process runs between two steps");
        match task.checkpoint(pipeline, input) {
            Ok(epoch) => {
                note!(self, "checkpoint {epoch}");
                self.settled(epoch)
            }
            Err(error) => self.failed(&error, armed),
        }
    }

    /// A checkpoint during which processing goes on.
    fn begin(&mut self, dice: &mut Dice) -> Result<(), String> {
        let Self { task, pipeline, input, .. } = self;
        let task = task.as_mut().expect("a process runs between two steps");
        match task.begin(pipeline, input, false) {
            Ok(epoch) => {
                let firing = task.store.is_firing();
                note!(self, "begins checkpoint {epoch}");
                self.firing.checkpoints += usize::from(firing);
            }
            Err(error) => return self.failed(&error, false),
        }
        for _ in 0..dice.below(4) {
            if !self.is_done() {
                self.plain(dice)?;
            }
        }
        if dice.one_in(3) {
            note!(self, "crashes while the checkpoint is under way");
            self.crash();
            return self.start();
        }
        match self.running().report() {
            Ok(Some(report)) => {
                self.newest_epoch = self.newest_epoch.max(report.epoch);
                self.pinned = None;
                self.expected = Expected::default();
                Ok(())
            }
            // It ended with a restart.
            Ok(None) => Ok(()),
            Err(error) => self.failed(&error, false),
        }
    }

    fn fault(&mut self, dice: &mut Dice) -> Result<(), String> {
        let points = [fault::POINTS, fault::UPLOAD_POINTS].concat();
        let (point, nth) = (dice.pick(&points), 1 + dice.next() % 2);
        note!(self, "{point} fails the time number {nth}");
        fault::arm(point, "error", nth);
        let result = self.checkpoint_under_fault();
        fault::disarm();
        match result {
            Ok(epoch) => self.settled(epoch),
            Err(error) => self.failed(&error, true),
        }
    }

    fn checkpoint_under_fault(&mut self) -> Result<u64, Error> {
        let Self { task, pipeline, input, .. } = self;
        task.as_mut().expect("a process runs between two steps").checkpoint(pipeline, input)
    }

    /// The process is taken for dead and another one started, while it lives.
    fn zombie(&mut self, dice: &mut Dice) -> Result<(), String> {
        if dice.one_in(3) {
            let Self { task, pipeline, input, .. } = self;
            let task = task.as_mut().expect("a process runs between two steps");
            if let Err(error) = task.begin(pipeline, input, false).and_then(|_| task.report()) {
                return self.failed(&error, false);
            }
        }
        let refused = self.second_writer()?;
        note!(self, "  a second writer is refused: {refused}");
        let zombie = self.task.take().expect("a process runs between two steps");
        self.firing.crashes += usize::from(zombie.store.is_firing());
        self.newest_epoch = self.newest_epoch.max(zombie.store.next_epoch() - 1);
        break_locks(&self.state, &self.outputs());
        self.zombies.push(zombie);
        self.start()
    }

    /// An honest second process, which has to find the lock.
    fn second_writer(&self) -> Result<Error, String> {
        let start = Start {
            name: NAME,
            state: self.state.clone(),
            outputs: self.outputs(),
            repository: None,
            at: None,
            set_aside: false,
            epochs_above: 0,
            prefix: "p",
        };
        match Task::start(&self.pipeline, &self.input, &start) {
            Err(NoStart::Refused(error)) if error.kind() == ErrorKind::Locked => Ok(error),
            Err(NoStart::Refused(error)) => Err(format!("a second writer gets {error:?}")),
            Err(NoStart::Wrong(why)) => Err(format!("a second writer starts, and wrong: {why}")),
            Ok(_) => Err("two writers at once".to_owned()),
        }
    }

    /// A process hangs between a durable checkpoint and its output, is replaced, and wakes up later.
    fn late_publisher(&mut self, dice: &mut Dice) -> Result<(), String> {
        let Self { task, pipeline, input, .. } = self;
        let task = task.as_mut().expect("a process runs between two steps");
        if let Err(error) = task.begin(pipeline, input, true).and_then(|_| task.report()) {
            return self.failed(&error, false);
        }
        let zombie = self.task.take().expect("a process runs between two steps");
        self.newest_epoch = self.newest_epoch.max(zombie.store.next_epoch() - 1);
        self.pinned = None;
        self.expected = Expected::default();
        break_locks(&self.state, &self.outputs());
        self.start()?;
        for _ in 0..dice.below(3) {
            if !self.is_done() {
                self.plain(dice)?;
            }
        }
        if dice.one_in(2) {
            self.checkpoint(false)?;
        }
        match zombie.publish_withheld() {
            Ok(0) => {}
            Ok(handles) => return Err(format!("a zombie has published {handles} handles")),
            Err(error) => note!(self, "  the old process is refused: {error:?}"),
        }
        self.zombies.push(zombie);
        Ok(())
    }

    /// What a zombie does is refused, and nobody notices.
    pub(super) fn zombie_acts(&mut self, mut zombie: Task) -> Result<(), String> {
        note!(self, "a zombie goes on from operation {}", zombie.at);
        if zombie.at < self.input.len()
            && let Err(error) = zombie.advance(&self.input, 5, false)
        {
            note!(self, "  it cannot go on: {error:?}");
            return Ok(());
        }
        let (generation, before) = (zombie.store.directory().generation(), self.stored());
        match zombie.checkpoint(&self.pipeline, &self.input) {
            // In a directory of its own it may, as long as it brings nothing to anybody.
            Ok(epoch) if zombie.elsewhere => note!(self, "  it makes checkpoint {epoch} for itself"),
            Ok(epoch) => return Err(format!("a zombie has made checkpoint {epoch}")),
            Err(error) if error.kind() == ErrorKind::Bug => {
                return Err(format!("a zombie meets a bug: {error:?}"));
            }
            Err(error) => note!(self, "  it is refused: {error:?}"),
        }
        let _ = zombie.store.finish_uploads();
        drop(zombie);
        match self.stored().difference(&before).find(|stored| stored.1 == generation) {
            Some((epoch, _)) => Err(format!("a zombie has uploaded checkpoint {epoch}")),
            None => Ok(()),
        }
    }

    /// State and machine are gone; output and repository are elsewhere.
    fn lose_machine(&mut self, dice: &mut Dice) -> Result<(), String> {
        if self.repository.is_none() {
            return Ok(());
        }
        if dice.one_in(2)
            && let Err(error) = self.running().store.finish_uploads()
        {
            return self.failed(&error, false);
        }
        // What an upload that was under way brings while the other machine starts is a matter of luck.
        if dice.one_in(3) && self.running().store.finish_uploads().is_ok() {
            note!(self, "  the old machine lives on");
            let mut zombie = self.task.take().expect("a process runs between two steps");
            zombie.elsewhere = true;
            self.newest_epoch = self.newest_epoch.max(zombie.store.next_epoch() - 1);
            self.zombies.push(zombie);
            break_output_locks(&self.outputs());
            self.other_state();
        } else {
            self.crash();
            self.new_state();
        }
        let lagging = dice.one_in(3);
        if lagging {
            self.set_faults(Faults::SOME);
        }
        // The repository may lag, unless output waits for it; so may its listings; and an older checkpoint restored by hand
        // is not known there.
        self.expected.ahead |= self.pipeline.mirrored == Some(false) || lagging || self.pinned.is_some();
        let result = self.start();
        self.set_faults(Faults { stale: 0, ..Faults::SOME });
        result
    }

    fn dead_network(&mut self) -> Result<(), String> {
        if self.repository.is_none() {
            return Ok(());
        }
        self.set_faults(Faults { dead_after: Some(0), ..Faults::default() });
        let result = self.checkpoint(false);
        self.set_faults(Faults { stale: 0, ..Faults::SOME });
        result
    }

    fn savepoint(&mut self, step: u64, dice: &mut Dice) -> Result<(), String> {
        if epochs(&self.state).is_empty() || self.savepoints.len() >= SAVEPOINTS_MAX {
            return Ok(());
        }
        let request = CreateRequest {
            name: SavepointName::parse(&format!("at-{step}")).unwrap(),
            from: self.state.clone(),
            at: None,
            to: None,
            note: String::new(),
            late_parts: Default::default(),
        };
        if dice.one_in(2) {
            fault::arm(dice.pick(fault::SAVEPOINT_POINTS), "error", 1);
        }
        let made = savepoint::create(&request, &environment());
        fault::disarm();
        match made.map_err(Error::from) {
            Ok(made) => {
                let counters = &made.manifest.counters;
                let (at, firing) = (counters["at"] as usize, counters["firing"] == 1);
                note!(self, "savepoint of checkpoint {}, operation {at}", made.manifest.epoch);
                self.savepoints.push(Savepoint { path: made.path, home: self.state.clone(), at, firing });
                Ok(())
            }
            // A checkpoint in which a bit flipped is refused here as well.
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Damaged) => Ok(()),
            Err(error) => Err(format!("a savepoint fails: {error:?}")),
        }
    }

    /// The pipeline moves into another directory, from a savepoint or the newest checkpoint.
    fn move_away(&mut self, dice: &mut Dice) -> Result<(), String> {
        let here = self.savepoints.iter().filter(|savepoint| savepoint.home == self.state);
        let mut from: Vec<_> = here.map(|savepoint| savepoint.path.clone()).collect();
        if epochs(&self.state).is_empty() {
            return Ok(());
        }
        from.push(self.state.clone());
        let from = from.swap_remove(dice.below(from.len()));
        let request = RestoreRequest {
            from,
            at: None,
            to: self.root.path().join(format!("state-{}", self.states)),
            how: RestoreAs::Move,
            partitions: PartitionChanges::default(),
        };
        self.states += 1;
        match savepoint::restore(&request, &environment()).map_err(Error::from) {
            // The newest checkpoint may be one that was damaged, and passed over by the start.
            Err(error) if matches!(error.kind(), ErrorKind::Locked | ErrorKind::Damaged) => {}
            other => return Err(format!("a move of a running pipeline is not refused: {other:?}")),
        }
        if dice.one_in(2) {
            break_locks(&self.state, &self.outputs());
            self.zombies.extend(self.task.take());
        }
        self.crash();
        if dice.one_in(3) {
            fault::arm(dice.pick(fault::SAVEPOINT_POINTS), "error", 1);
        }
        let moved = savepoint::restore(&request, &environment()).map_err(Error::from);
        fault::disarm();
        if let Err(error) = moved {
            note!(self, "  the move fails: {error:?}");
            if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Damaged) {
                return Err(format!("a move fails: {error:?}"));
            }
            if !request.to.exists() {
                return self.start();
            }
        }
        note!(self, "moves from {}", request.from.display());
        self.state = request.to;
        self.new_repository();
        self.pinned = None;
        self.expected.ahead = true;
        self.start()
    }

    /// Another pipeline goes on from a savepoint, with its own outputs, to the end.
    fn fork(&mut self, dice: &mut Dice) -> Result<(), String> {
        let whole: Vec<_> = self.savepoints.iter().filter(|savepoint| !savepoint.firing).cloned().collect();
        if whole.is_empty() || self.forks >= 2 {
            return Ok(());
        }
        self.forks += 1;
        let savepoint = whole[dice.below(whole.len())].clone();
        let place = self.root.path().join(format!("fork-{}", self.forks));
        let partitions = super::task::partitions_after(&self.pipeline, &self.input[..savepoint.at]);
        let renamed = (0..partitions).map(|index| (format!("p{index}"), format!("q{index}")));
        let request = RestoreRequest {
            from: savepoint.path.clone(),
            at: None,
            to: place.join("state"),
            how: RestoreAs::Fork { name: Some("fork".to_owned()) },
            partitions: PartitionChanges { rename: renamed.collect(), ..PartitionChanges::default() },
        };
        savepoint::restore(&request, &environment()).map_err(|error| format!("a fork fails: {error}"))?;
        note!(self, "forks from operation {}", savepoint.at);
        let start = Start {
            name: "fork",
            state: request.to,
            outputs: place.join("out"),
            repository: None,
            at: None,
            set_aside: false,
            epochs_above: 0,
            prefix: "q",
        };
        let crash_at = savepoint.at + dice.below(self.input.len() + 1 - savepoint.at);
        let mut crashes = vec![crash_at, self.input.len()];
        while let Some(&next) = crashes.first() {
            self.fork_until(&start, next, dice)?;
            crashes.remove(0);
        }
        self.judge
            .check(&start.outputs, &(savepoint.at..self.input.len()), self.input.len())
            .map_err(|why| format!("fork: {why}"))
    }

    fn fork_until(&self, start: &Start, until: usize, dice: &mut Dice) -> Result<(), String> {
        let words = |error: Error| format!("a fork fails: {error:?}");
        let mut task = match Task::start(&self.pipeline, &self.input, start) {
            Ok(task) => task,
            Err(NoStart::Wrong(why)) => return Err(format!("a fork starts, and wrong: {why}")),
            Err(NoStart::Refused(error)) => return Err(words(error)),
        };
        while task.at < until {
            task.advance(&self.input, 1 + dice.below(12), self.pipeline.step_rows.is_some())
                .map_err(words)?;
            if dice.one_in(6) {
                task.checkpoint(&self.pipeline, &self.input).map_err(words)?;
            }
        }
        if until == self.input.len() {
            while task.store.is_firing() {
                task.fire().map_err(words)?;
            }
            task.checkpoint(&self.pipeline, &self.input).map_err(words)?;
        }
        Ok(())
    }

    /// Somebody restores an older checkpoint by hand.
    fn older(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.crash();
        let there = epochs(&self.state);
        if !there.is_empty() {
            self.pinned = Some(dice.pick(&there));
            note!(self, "restores checkpoint {:?} by hand", self.pinned);
            self.expected.ahead = true;
        }
        self.start()
    }

    /// A bit of the newest checkpoint flips while nothing runs.
    fn damage(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.crash();
        let newest = floodmark::checkpoint::list(&self.state).unwrap_or_default().pop();
        let Some(newest) = newest.filter(|_| self.pinned.is_none()) else { return self.start() };
        let files: Vec<_> =
            files(&newest.path).into_iter().filter(|path| path.metadata().unwrap().len() > 0).collect();
        let (file, place, alone) = (&files[dice.below(files.len())], dice.next(), !dice.one_in(8));
        note!(self, "a bit flips in {}", file.display());
        flip(file, place, alone);
        self.set_faults(Faults::default());
        let started = self.try_start(None, false);
        self.set_faults(Faults { stale: 0, ..Faults::SOME });
        match started {
            Err(NoStart::Refused(error)) => note!(self, "  it is noticed: {error:?}"),
            Err(NoStart::Wrong(why)) => return Err(why),
            Ok(_) => return Err(format!("a flipped bit is not noticed: {}", file.display())),
        }
        self.expected = Expected { ahead: true, damaged: true };
        self.start()
    }
}
