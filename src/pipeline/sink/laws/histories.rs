//! Whole histories: epochs with and without rows, a checkpoint that fails and whose handle is carried on, handles that
//! are published twice; cut after any call, restored, cut again, and finished.

use super::{Durable, Run, Trial, must, restored, sees};
use crate::checkpoint::StagedOutput;
use crate::pipeline::sink::contract::Sink;

const LAW: &str = "exactly once";
/// Rows of each epoch of a history.
const EPOCHS: [u32; 5] = [3, 0, 2, 4, 1];
/// The epoch whose checkpoint fails after everything was staged.
const FAILING: usize = 2;

/// What the model knows to be durable.
#[derive(Clone, Default)]
struct Checkpoint {
    epoch: u64,
    next: u32,
    staged: Vec<StagedOutput>,
}

/// Calls that are left before the process is killed.
struct Calls(Option<usize>);

impl Calls {
    /// True when this call still happens.
    fn happens(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

/// Cuts a history after each call, and each of these once more at a few places.
pub(super) fn cut_anywhere<T: Trial>(fresh: &dyn Fn() -> T) -> Result<(), String> {
    let total: u32 = EPOCHS.iter().sum();
    let calls = {
        let trial = fresh();
        let mut calls = Calls(Some(usize::MAX));
        run(&trial, 1, &mut Checkpoint::default(), total, &mut calls)?;
        sees(LAW, &trial, "after an uninterrupted run", 0..total)?;
        usize::MAX - calls.0.unwrap_or_default()
    };
    for first in 0..calls {
        for second in [1, 4, 8] {
            let trial = fresh();
            let mut checkpoint = Checkpoint::default();
            let context = |error| format!("{error} (cut after {first} calls, then after {second})");
            run(&trial, 1, &mut checkpoint, total, &mut Calls(Some(first))).map_err(context)?;
            run(&trial, 2, &mut checkpoint, total, &mut Calls(Some(second))).map_err(context)?;
            run(&trial, 3, &mut checkpoint, total, &mut Calls(None)).map_err(context)?;
            sees(LAW, &trial, "at the end", 0..total).map_err(context)?;
        }
    }
    Ok(())
}

/// Runs from the checkpoint to the end, or until the calls are used up, and leaves the newest checkpoint behind.
fn run<T: Trial>(
    trial: &T,
    generation: u64,
    checkpoint: &mut Checkpoint,
    total: u32,
    calls: &mut Calls,
) -> Result<(), String> {
    if !calls.happens() {
        return Ok(());
    }
    let opened = Run::open(trial, generation, restored(&checkpoint.staged, checkpoint.epoch));
    let mut run = must(LAW, "open", opened)?;
    // Everything that the checkpoint stands for is there, and nothing else.
    sees(LAW, trial, "after a restart", 0..checkpoint.next)?;
    let (mut epoch, mut next) = (checkpoint.epoch, checkpoint.next);
    let mut carried: Vec<StagedOutput> = Vec::new();
    while next < total {
        epoch += 1;
        let index = usize::try_from(epoch - 1).unwrap_or(usize::MAX);
        let end = total.min(next + EPOCHS.get(index).copied().unwrap_or(total));
        // In two writes, so that a cut comes between rows of an epoch.
        for part in [next..next + (end - next) / 2, next + (end - next) / 2..end] {
            if !calls.happens() {
                return Ok(());
            }
            run.write(LAW, part)?;
        }
        next = end;
        if !calls.happens() {
            return Ok(());
        }
        carried.extend(must(LAW, "stage", run.sink.stage(epoch))?);
        if index == FAILING {
            continue;
        }
        if !calls.happens() {
            return Ok(());
        }
        *checkpoint = Checkpoint { epoch, next, staged: std::mem::take(&mut carried) };
        for staged in &checkpoint.staged {
            for _ in 0..2 {
                if !calls.happens() {
                    return Ok(());
                }
                must(LAW, "publish", run.publisher.publish(staged, &Durable(epoch)))?;
            }
        }
        sees(LAW, trial, "after a checkpoint", 0..next)?;
    }
    Ok(())
}
