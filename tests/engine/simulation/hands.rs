//! What people do: savepoints, moves, forks, older checkpoints restored by hand; and what disks do to them.

use std::fmt::Write as _;

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
use super::world::{Expected, Savepoint, World, break_locks, epochs, files, flip, note};

const SAVEPOINTS_MAX: usize = 4;

fn environment() -> Environment {
    Environment::new(SystemClock::shared())
}

impl World {
    pub(super) fn savepoint(&mut self, step: u64, dice: &mut Dice) -> Result<(), String> {
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
    pub(super) fn move_away(&mut self, dice: &mut Dice) -> Result<(), String> {
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
    pub(super) fn fork(&mut self, dice: &mut Dice) -> Result<(), String> {
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

    pub(super) fn fork_until(&self, start: &Start, until: usize, dice: &mut Dice) -> Result<(), String> {
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
    pub(super) fn older(&mut self, dice: &mut Dice) -> Result<(), String> {
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
    pub(super) fn damage(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.crash();
        let mut there = floodmark::checkpoint::list(&self.state).unwrap_or_default();
        // With a single one all is lost, now and then.
        let spared = self.pinned.is_some() || there.len() < 2 && !dice.one_in(6);
        let Some(newest) = there.pop().filter(|_| !spared) else { return self.start() };
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
