//! Signs that a run does not keep up: writes that stand still, checkpoints longer than their interval, copies in the
//! place of hard links. Each is told once.
//!
//! Decides what is worth a word from figures that it is given; reads none itself.

use std::time::Duration;

use crate::state::StateStats;
use crate::store::CheckpointReport;

/// Time between two looks at the state database.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Writes that were held up for so long are told of; a moment is ordinary.
const STALL: Duration = Duration::from_secs(5);
/// Checkpoints in a row without a hard link. A single one may have had all its tables rewritten meanwhile.
const COPIED_IN_A_ROW: u32 = 3;

/// How often and how long writes were stopped or slowed down, as far as the looks show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldUp {
    /// How often it began.
    pub(super) times: u64,
    /// How long it was, all times together.
    pub(super) total: Duration,
}

/// What was seen of a run so far.
#[derive(Debug, Default)]
pub(super) struct Strain {
    last_look: Option<Duration>,
    held_up_since: Option<Duration>,
    held_up: HeldUp,
    copied: u32,
    told_stall: bool,
    told_slow: bool,
    told_copies: bool,
}

impl Strain {
    /// True when the state database is to be looked at, at most once a second.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let due = self.last_look.is_none_or(|last| now.saturating_sub(last) >= LOOK_INTERVAL);
        if due {
            self.last_look = Some(now);
        }
        due
    }

    /// How often and how long writes were held up so far.
    pub(super) fn held_up(&self) -> HeldUp {
        self.held_up
    }

    /// A look at the state database. Returns what is to be said of writes that are stopped or slowed down.
    pub(super) fn look(&mut self, now: Duration, stats: &StateStats) -> Option<String> {
        if !stats.write_stopped && stats.delayed_write_rate == 0 {
            // The next one is another one.
            let before = self.held_up_since.take();
            self.held_up.total += before.map_or(Duration::ZERO, |since| now.saturating_sub(since));
            self.told_stall = false;
            return None;
        }
        self.held_up.times += u64::from(self.held_up_since.is_none());
        let since = *self.held_up_since.get_or_insert(now);
        let length = now.saturating_sub(since);
        if self.told_stall || length < STALL {
            return None;
        }
        self.told_stall = true;
        let state = match stats.write_stopped {
            true => "stopped".to_owned(),
            false => format!("slowed down to {} bytes per second", stats.delayed_write_rate),
        };
        Some(format!(
            "writes to the state database are {state}: compactions do not keep up; nothing is lost, but the run waits for \
             the disk: for_s={} level0_files={} compaction_pending_bytes={}",
            length.as_secs(),
            stats.level0_files_max,
            stats.compaction_pending_bytes
        ))
    }

    /// A checkpoint that took `took` and should come every `interval`. Returns what is to be said of it.
    pub(super) fn checkpoint(
        &mut self,
        report: &CheckpointReport,
        took: Duration,
        interval: Duration,
    ) -> Vec<String> {
        let copied = !report.hard_linked && report.shared_bytes == 0;
        self.copied = if copied { self.copied.saturating_add(1) } else { 0 };
        let mut said = Vec::new();
        if took > interval && !std::mem::replace(&mut self.told_slow, true) {
            said.push(format!(
                "a checkpoint takes longer than checkpoint.interval, so that they come less often than asked for, and more \
                 is read again after a crash: epoch={} took_ms={} interval_ms={}",
                report.epoch,
                took.as_millis(),
                interval.as_millis()
            ));
        }
        if self.copied >= COPIED_IN_A_ROW && !std::mem::replace(&mut self.told_copies, true) {
            said.push(format!(
                "files of checkpoints are copied, not hard linked: each checkpoint costs its full size; have the state \
                 directory on one file system that knows hard links: epoch={}",
                report.epoch
            ));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn writes_held_up_for_five_seconds_are_told_of_once_and_again_after_they_went_on() {
        let mut strain = Strain::default();
        assert!(strain.is_due(seconds(0)) && !strain.is_due(Duration::from_millis(999)));
        assert!(strain.is_due(seconds(1)));
        let stopped = StateStats { write_stopped: true, level0_files_max: 36, ..StateStats::default() };
        let slow = StateStats { delayed_write_rate: 1_000, ..StateStats::default() };
        assert_eq!(strain.look(seconds(10), &stopped), None);
        assert_eq!(strain.look(seconds(14), &slow), None);
        let said = strain.look(seconds(15), &stopped).unwrap();
        assert!(said.contains("stopped") && said.contains("for_s=5 level0_files=36"), "{said}");
        assert_eq!(strain.look(seconds(16), &stopped), None);
        assert_eq!(strain.look(seconds(17), &StateStats::default()), None);
        assert_eq!(strain.look(seconds(18), &slow), None);
        assert!(strain.look(seconds(23), &slow).unwrap().contains("slowed down to 1000 bytes"));
        assert_eq!(strain.held_up(), HeldUp { times: 2, total: seconds(7) });
    }

    #[test]
    fn a_checkpoint_longer_than_its_interval_is_told_of_once() {
        let (mut strain, report) = (Strain::default(), CheckpointReport::example(true));
        assert!(strain.checkpoint(&report, seconds(10), seconds(10)).is_empty());
        let said = strain.checkpoint(&report, seconds(11), seconds(10));
        assert!(said.len() == 1 && said[0].contains("took_ms=11000 interval_ms=10000"), "{said:?}");
        assert!(strain.checkpoint(&report, seconds(12), seconds(10)).is_empty());
    }

    #[test]
    fn copies_in_the_place_of_links_are_told_of_once_they_are_the_rule() {
        let mut strain = Strain::default();
        let mut said = |hard_linked| {
            !strain.checkpoint(&CheckpointReport::example(hard_linked), seconds(1), seconds(10)).is_empty()
        };
        let seen = [false, false, true, false, false, false, false].map(&mut said);
        assert_eq!(seen, [false, false, false, false, false, true, false]);
    }
}
