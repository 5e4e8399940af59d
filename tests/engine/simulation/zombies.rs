//! Processes that are taken for dead and live, machines that are lost, and networks that fail.

use std::fmt::Write as _;

use floodmark::error::{Error, ErrorKind};
use floodmark::repository::Faults;

use super::draw::Dice;
use super::task::{NoStart, Start, Task};
use super::world::{Expected, NAME, World, break_locks, break_output_locks, note};

impl World {
    /// The process is taken for dead and another one started, while it lives.
    pub(super) fn zombie(&mut self, dice: &mut Dice) -> Result<(), String> {
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
    pub(super) fn second_writer(&self) -> Result<Error, String> {
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
    pub(super) fn late_publisher(&mut self, dice: &mut Dice) -> Result<(), String> {
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
    pub(super) fn lose_machine(&mut self, dice: &mut Dice) -> Result<(), String> {
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

    pub(super) fn dead_network(&mut self) -> Result<(), String> {
        if self.repository.is_none() {
            return Ok(());
        }
        self.set_faults(Faults { dead_after: Some(0), ..Faults::default() });
        let result = self.checkpoint(false);
        self.set_faults(Faults { stale: 0, ..Faults::SOME });
        result
    }
}
