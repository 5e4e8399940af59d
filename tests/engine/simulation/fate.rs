//! What happens between two batches.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use floodmark::error::Error;
use floodmark::fault;
use floodmark::repository::Faults;

use super::draw::Dice;
use super::world::{Expected, Firing, World, note};

/// After so many steps nothing happens any more but the rest of the input.
const STEPS_MAX: u64 = 220;

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
}
