//! Describes a store, checks the description once, and opens it.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::WindowStore;
use crate::aggregate::Layout;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::Span;
use crate::operator::{OperatorSpec, RowBuffer};
use crate::state::{FamilySpec, PaneMerge};

/// Share of the memory budget for panes in memory; the rest is for the state database and for panes on their way.
const HOT_SHARE: f64 = 0.4;
/// Share of the memory budget for the state database: its block cache with the write buffers inside.
const STATE_SHARE: f64 = 0.25;
/// The least budget that a store can work with.
const MEMORY_BYTES_MIN: usize = 16 << 20;

/// What a [`WindowStore`] is to be. Defaults: delay 0, no idle time-out, 512 MiB of memory, three checkpoints kept.
#[derive(Debug)]
pub struct WindowStoreBuilder {
    pub(super) name: String,
    pub(super) windows: Vec<OperatorSpec>,
    pub(super) delay: Span,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) memory_bytes: usize,
    pub(super) retain: NonZeroU32,
    pub(super) restore_at: Option<u64>,
    pub(super) clock: Arc<dyn Clock>,
}

impl WindowStoreBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            windows: Vec::new(),
            delay: Span::ZERO,
            idle_timeout: None,
            memory_bytes: 512 << 20,
            retain: NonZeroU32::MIN.saturating_add(2),
            restore_at: None,
            clock: SystemClock::shared(),
        }
    }

    /// Adds a windowed aggregation.
    #[must_use]
    pub fn window(mut self, spec: OperatorSpec) -> Self {
        self.windows.push(spec);
        self
    }

    /// How far out of order events may come without being late.
    #[must_use]
    pub fn delay(mut self, delay: Span) -> Self {
        self.delay = delay;
        self
    }

    /// How long a partition may be silent before it stops holding the watermark back.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Memory for everything the store holds, at least 16 MiB.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// How many checkpoints to keep.
    #[must_use]
    pub fn retain(mut self, checkpoints: NonZeroU32) -> Self {
        self.retain = checkpoints;
        self
    }

    /// Restores the checkpoint of this epoch instead of the newest. Sinks may be ahead of it: they will refuse, or
    /// show results again.
    #[must_use]
    pub fn restore_at(mut self, epoch: Option<u64>) -> Self {
        self.restore_at = epoch;
        self
    }

    /// Where time comes from.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the state directory at `path`, creating it if there is none, and restores its newest checkpoint.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a description that cannot work, [`ErrorKind::Locked`] while another process has
    /// the directory, [`ErrorKind::Incompatible`] when its state is of another shape, [`ErrorKind::Damaged`] when
    /// its newest checkpoint does not verify, [`ErrorKind::Unavailable`] when the disk fails.
    pub fn open(self, path: impl AsRef<Path>) -> Result<WindowStore> {
        self.check()?;
        super::restore::open(self, path.as_ref())
    }

    fn check(&self) -> Result<()> {
        let invalid =
            |message: String, remedy: &str| Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy));
        if self.windows.is_empty() {
            return invalid(
                "a store needs at least one window".to_owned(),
                "add one with WindowStoreBuilder::window",
            );
        }
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return invalid(
                format!("memory budget is too small: bytes={} least={MEMORY_BYTES_MIN}", self.memory_bytes),
                "give the store at least 16 MiB",
            );
        }
        for (index, spec) in self.windows.iter().enumerate() {
            if self.windows[..index].iter().any(|other| other.name == spec.name) {
                return invalid(
                    format!("two windows have one name: name={}", spec.name),
                    "name each differently",
                );
            }
            if let Err(why) = spec.check() {
                return invalid(
                    format!("window cannot be: name={} {why}", spec.name),
                    "change its definition",
                );
            }
            if spec.aggregates.is_empty() {
                return invalid(format!("window computes nothing: name={}", spec.name), "add an aggregate");
            }
            for aggregate in &spec.aggregates {
                if let Err(problem) = aggregate.check() {
                    let name = &aggregate.name;
                    let message =
                        format!("aggregate cannot be computed: window={} name={name}: {problem}", spec.name);
                    return invalid(message, "see docs/AGGREGATES.md for what each function takes");
                }
            }
        }
        Ok(())
    }

    pub(super) fn hot_bytes(&self) -> usize {
        (self.memory_bytes as f64 * HOT_SHARE) as usize
    }

    pub(super) fn state_bytes(&self) -> usize {
        (self.memory_bytes as f64 * STATE_SHARE) as usize
    }
}

/// The column family of an operator.
pub(crate) fn family(spec: &OperatorSpec) -> FamilySpec {
    let merge = RowMerge { layout: Arc::new(spec.layout()), fires_once: spec.fires_once() };
    FamilySpec { name: spec.name.clone(), allowed_lateness: spec.retention(), merge: Arc::new(merge) }
}

/// Merges stored rows of one operator.
struct RowMerge {
    layout: Arc<Layout>,
    fires_once: bool,
}

impl PaneMerge for RowMerge {
    fn merge(&self, base: &mut Vec<u8>, operand: &[u8]) -> bool {
        // Panes that fire more than once are always written whole: a history cannot be merged.
        if !self.fires_once {
            return false;
        }
        let (mut row, mut other) = (RowBuffer::new(&self.layout), RowBuffer::new(&self.layout));
        if row.push_payload(&[], base).is_err() || other.push_payload(&[], operand).is_err() {
            return false;
        }
        row.row_mut(0).merge(other.row(0));
        base.clear();
        row.row(0).write_payload(base);
        true
    }
}
