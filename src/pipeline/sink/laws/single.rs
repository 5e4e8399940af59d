//! Each law by itself, in a history as short as can be.

use super::{Durable, LINEAGE, Run, Trial, must, must_not, restored, sees};
use crate::checkpoint::StagedOutput;
use crate::pipeline::sink::contract::{Output, Restored, Sink, SinkContext};

/// Rows come out with publish and not before, whole, in order, epoch after epoch.
pub(super) fn invisible_until_published<T: Trial>(trial: &T) -> Result<(), String> {
    let law = "invisible until published";
    let mut run = Run::first(law, trial)?;
    sees(law, trial, "after the first open", 0..0)?;
    run.write(law, 0..3)?;
    sees(law, trial, "after write", 0..0)?;
    let first = run.stage(law, 1)?;
    sees(law, trial, "after stage", 0..0)?;
    if must(law, "stage", run.sink.stage(2))?.is_some() {
        return Err(format!("{law}: an epoch without rows has a handle"));
    }
    run.write(law, 3..5)?;
    let third = run.stage(law, 3)?;
    run.write(law, 5..6)?;
    run.publish(law, &first, 3)?;
    sees(law, trial, "after publish of the first epoch", 0..3)?;
    run.publish(law, &third, 3)?;
    sees(law, trial, "after publish of the third epoch", 0..5)
}

/// Publishing again changes nothing, now or after a restart.
pub(super) fn idempotent<T: Trial>(trial: &T) -> Result<(), String> {
    let law = "idempotent";
    let mut run = Run::first(law, trial)?;
    let mut handles = Vec::new();
    for epoch in 1..=3_u32 {
        run.write(law, (epoch - 1) * 2..epoch * 2)?;
        let staged = run.stage(law, u64::from(epoch))?;
        run.publish(law, &staged, u64::from(epoch))?;
        run.publish(law, &staged, u64::from(epoch))?;
        sees(law, trial, "after publishing twice", 0..epoch * 2)?;
        handles.push(staged);
    }
    run.publish(law, &handles[0], 3)?;
    sees(law, trial, "after publishing an older handle again", 0..6)?;
    drop(run);
    for generation in [2, 3] {
        let mut run = must(law, "open", Run::open(trial, generation, restored(&handles, 3)))?;
        sees(law, trial, "after a restart that names what is published", 0..6)?;
        for staged in &handles {
            run.publish(law, staged, 3)?;
        }
        sees(law, trial, "after publishing again in a later run", 0..6)?;
    }
    Ok(())
}

/// What was staged and restored is published by the open, in order of epoch, whatever the order of the handles.
pub(super) fn durable<T: Trial>(trial: &T) -> Result<(), String> {
    let law = "durable";
    let mut run = Run::first(law, trial)?;
    run.write(law, 0..2)?;
    let first = run.stage(law, 1)?;
    run.write(law, 2..5)?;
    let second = run.stage(law, 2)?;
    drop(run);
    let stranger =
        StagedOutput { sink: "another sink".to_owned(), handle: b"its own".to_vec(), rows: 9, bytes: 9 };
    let handles = [second, stranger, first];
    let mut run = must(law, "open", Run::open(trial, 2, restored(&handles, 2)))?;
    sees(law, trial, "after a restart with handles that were not published", 0..5)?;
    run.write(law, 5..6)?;
    let third = run.stage(law, 3)?;
    run.publish(law, &third, 3)?;
    sees(law, trial, "after the next epoch", 0..6)
}

/// Rows of no restored handle are never seen again.
pub(super) fn forgotten<T: Trial>(trial: &T) -> Result<(), String> {
    let law = "forgotten";
    let mut run = Run::first(law, trial)?;
    run.write(law, 0..2)?;
    let first = run.stage(law, 1)?;
    run.publish(law, &first, 1)?;
    run.write(law, 90..92)?;
    run.stage(law, 2)?;
    run.write(law, 92..95)?;
    drop(run);
    let handles = [first];
    let mut run = must(law, "open", Run::open(trial, 2, restored(&handles, 1)))?;
    sees(law, trial, "after a restart without the handle of the second epoch", 0..2)?;
    if must(law, "stage", run.sink.stage(2))?.is_some() {
        return Err(format!("{law}: rows of a run that is gone are staged by the next one"));
    }
    run.write(law, 2..4)?;
    let third = run.stage(law, 3)?;
    run.publish(law, &third, 3)?;
    sees(law, trial, "after writing the rows again", 0..4)
}

/// No permit, no publish.
pub(super) fn permitted<T: Trial>(trial: &T) -> Result<(), String> {
    let law = "permitted";
    let mut run = Run::first(law, trial)?;
    run.write(law, 0..2)?;
    let staged = run.stage(law, 2)?;
    must_not(law, "publishing before the checkpoint", run.publisher.publish(&staged, &Durable(1)))?;
    sees(law, trial, "without a permit", 0..0)?;
    run.publish(law, &staged, 2)?;
    sees(law, trial, "with a permit", 0..2)
}

/// After a newer run an older one has no say.
pub(super) fn fenced<T: Trial>(trial: &T) -> Result<(), String> {
    let law = "fenced";
    let mut zombie = Run::first(law, trial)?;
    zombie.write(law, 0..2)?;
    let handles = [zombie.stage(law, 1)?];
    match Run::open(trial, 2, restored(&handles, 1)) {
        // As good: the older run still holds the place.
        Err(_) => {
            drop(zombie);
            drop(must(law, "open after the older run", Run::open(trial, 2, restored(&handles, 1)))?);
        }
        Ok(newer) => {
            sees(law, trial, "after a newer run has opened", 0..2)?;
            // It may fail at any of these calls, and must fail at the last.
            if zombie.trial.write(&mut zombie.sink, 80..82).is_ok()
                && let Ok(Some(staged)) = zombie.sink.stage(2)
            {
                let published = zombie.publisher.publish(&staged, &Durable(2));
                must_not(law, "publishing by an older run", published)?;
            }
            sees(law, trial, "after an older run has tried to publish", 0..2)?;
            drop(zombie);
            drop(newer);
        }
    }
    must_not(law, "opening with an older generation", Run::open(trial, 1, restored(&handles, 1)))?;
    sees(law, trial, "after an older run has tried to open", 0..2)
}

/// A place that knows more than the checkpoint is not opened.
pub(super) fn ahead<T: Trial>(trial: &T) -> Result<(), String> {
    let law = "ahead";
    let mut run = Run::first(law, trial)?;
    let mut handles = Vec::new();
    for epoch in 1..=3_u32 {
        run.write(law, (epoch - 1) * 2..epoch * 2)?;
        let staged = run.stage(law, u64::from(epoch))?;
        run.publish(law, &staged, u64::from(epoch))?;
        handles.push(staged);
    }
    drop(run);
    must_not(law, "an output ahead of the checkpoint", Run::open(trial, 2, restored(&handles[..1], 1)))?;
    must_not(law, "an output ahead of a new state", Run::open(trial, 2, Restored::NOTHING))?;
    sees(law, trial, "after the refusal", 0..6)?;
    drop(must(law, "open at the newest checkpoint", Run::open(trial, 2, restored(&handles, 3)))?);
    Ok(())
}

/// A place with rows of another lineage is not opened.
pub(super) fn owned<T: Trial>(trial: &T) -> Result<(), String> {
    let law = "owned";
    let mut run = Run::first(law, trial)?;
    run.write(law, 0..2)?;
    let staged = run.stage(law, 1)?;
    run.publish(law, &staged, 1)?;
    drop(run);
    let other = SinkContext { lineage: LINEAGE.map(|byte| byte + 1), generation: 9 };
    must_not(law, "the output of another lineage", trial.output().open(other, restored(&[], 9)))?;
    sees(law, trial, "after the refusal", 0..2)
}

/// Epochs ascend.
pub(super) fn ordered<T: Trial>(trial: &T, other: &T) -> Result<(), String> {
    let law = "ordered";
    let mut run = Run::first(law, trial)?;
    run.write(law, 0..2)?;
    run.stage(law, 2)?;
    run.write(law, 2..3)?;
    must_not(law, "staging an epoch twice", run.sink.stage(2))?;
    let mut run = must(law, "open", Run::open(other, 1, restored(&[], 5)))?;
    run.write(law, 0..2)?;
    must_not(law, "staging an epoch that was restored", run.sink.stage(5))
}

/// Places of a handle that are damaged, at most.
const FLIPS_MAX: usize = 40;

/// Damage to a handle is found, and nothing comes of it.
pub(super) fn checked<T: Trial>(fresh: &dyn Fn() -> T) -> Result<(), String> {
    let law = "checked";
    let trial = fresh();
    let mut run = Run::first(law, &trial)?;
    run.write(law, 0..2)?;
    let staged = run.stage(law, 1)?;
    let length = staged.handle.len();
    let step = (length / FLIPS_MAX).max(1);
    let mut damaged: Vec<Vec<u8>> = vec![Vec::new(), staged.handle[..length / 2].to_vec()];
    for at in (0..length).step_by(step) {
        let mut handle = staged.handle.clone();
        handle[at] ^= 0x21;
        damaged.push(handle);
    }
    for handle in damaged {
        let staged = StagedOutput { handle, ..staged.clone() };
        must_not(law, "a damaged handle", run.publisher.publish(&staged, &Durable(1)))?;
        sees(law, &trial, "after a damaged handle", 0..0)?;
    }
    run.publish(law, &staged, 1)?;
    sees(law, &trial, "after the handle itself", 0..2)?;
    let trial = fresh();
    let mut run = Run::first(law, &trial)?;
    run.write(law, 0..2)?;
    let mut staged = run.stage(law, 1)?;
    drop(run);
    staged.handle[length / 2] ^= 0x21;
    must_not(law, "a restored handle that is damaged", Run::open(&trial, 2, restored(&[staged], 1)))?;
    sees(law, &trial, "after a restored handle that is damaged", 0..0)
}
