//! Describes a store, checks the description once, and opens it.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::WindowStore;
use super::events::EventOperators;
use super::evolution::{self, Evolution, PaneMigration, Renames, Rules};
use super::steps::Steps;
use crate::aggregate::Layout;
use crate::checkpoint::{LineageId, Manifest};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::Span;
use crate::operator::{
    Bounds, DEFAULT_SOURCE, DedupSpec, JoinSpec, OperatorSpec, Policy, RowBuffer, SourceId, SourceSpec,
    Strategy,
};
use crate::repository::Settings;
use crate::state::{FamilySpec, PaneMerge};

/// Share of the memory budget for panes in memory.
const HOT_SHARE: f64 = 0.4;
/// Share of the memory budget for the state database: its block cache with the write buffers inside.
const STATE_SHARE: f64 = 0.25;
/// Share of the memory budget for panes on their way from one to the other, beside what either has left. The rest is for
/// what cannot be foreseen: rows being encoded, tables being sorted.
const MOVING_SHARE: f64 = 0.2;
/// The least budget that a store can work with.
pub(crate) const MEMORY_BYTES_MIN: usize = 16 << 20;

/// Every so many checkpoints all their files are read again unless the builder says otherwise.
pub(crate) const VERIFY_EVERY: u32 = 16;

/// More sources than this are refused; partitions are what there may be many of.
const SOURCES_MAX: usize = 1_000;

/// What a [`WindowStore`] is to be. Defaults: delay 0, no idle time-out, 512 MiB of memory, three checkpoints kept.
#[derive(Debug)]
pub struct WindowStoreBuilder {
    pub(super) name: String,
    pub(super) windows: Vec<OperatorSpec>,
    pub(super) joins: Vec<JoinSpec>,
    // What `delay`, `idle_timeout` and `bounds` describe: the source of a store that declares none.
    only: SourceSpec,
    sources: Vec<SourceSpec>,
    pub(super) policy: Policy,
    pub(super) idle_advance: Option<Duration>,
    pub(super) step_rows: Option<usize>,
    pub(super) workers: usize,
    pub(super) memory_bytes: usize,
    pub(super) retain: NonZeroU32,
    pub(super) verify_every: u32,
    pub(super) restore_at: Option<u64>,
    pub(super) repository: Option<Settings>,
    pub(super) epochs_above: u64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) rules: Rules,
    pub(super) approve: Option<Approve>,
}

/// What a store is about to go on from, before it claims anything that others may be using.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// The checkpoint; `None` for new state.
    pub(crate) manifest: Option<&'a Manifest>,
    /// Its lineage, or that of the new state.
    pub(crate) lineage: LineageId,
    /// The generation of this open; not known before a checkpoint is fetched.
    pub(crate) generation: Option<u64>,
    /// The newest epoch that the directory has had.
    pub(crate) newest_epoch: u64,
}

type Decision = dyn Fn(&Candidate<'_>) -> Result<()> + Send + Sync;

/// Whoever has a say in whether a store may go on from a checkpoint.
#[derive(Clone)]
pub(super) struct Approve(Arc<Decision>);

impl std::fmt::Debug for Approve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Approve")
    }
}

impl WindowStoreBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            windows: Vec::new(),
            joins: Vec::new(),
            only: SourceSpec::new(DEFAULT_SOURCE, Strategy::Bounded(Span::ZERO)),
            sources: Vec::new(),
            policy: Policy::Min,
            idle_advance: None,
            step_rows: None,
            workers: 1,
            memory_bytes: 512 << 20,
            retain: NonZeroU32::MIN.saturating_add(2),
            verify_every: VERIFY_EVERY,
            restore_at: None,
            repository: None,
            epochs_above: 0,
            clock: SystemClock::shared(),
            rules: Rules::default(),
            approve: None,
        }
    }

    /// Asks before the repository is claimed, and before a checkpoint is fetched from it, whether the rest of the
    /// program could go on from there: a start that cannot must not stop a process that does.
    #[must_use]
    pub(crate) fn approve(
        mut self,
        approve: impl Fn(&Candidate<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.approve = Some(Approve(Arc::new(approve)));
        self
    }

    pub(super) fn ask(&self, candidate: &Candidate<'_>) -> Result<()> {
        self.approve.as_ref().map_or(Ok(()), |approve| (approve.0)(candidate))
    }

    /// Adds a windowed aggregation.
    #[must_use]
    pub fn window(mut self, spec: OperatorSpec) -> Self {
        self.windows.push(spec);
        self
    }

    /// Adds a join of two of the sources. Its rows go to [`crate::operator::Emit::joined`].
    #[must_use]
    pub fn join(mut self, spec: JoinSpec) -> Self {
        self.joins.push(spec);
        self
    }

    /// Drops events that repeat an earlier one, of the one source of a store that declares none; of others
    /// [`SourceSpec::dedup`] says it. Those dropped go to [`crate::operator::Emit::duplicates`].
    #[must_use]
    pub fn dedup(mut self, dedup: DedupSpec) -> Self {
        self.only.dedup = Some(dedup);
        self
    }

    /// How far out of order events may come without being late; [`Span::MAX`] for no watermark. Like `idle_timeout`
    /// and `bounds`, about the one source of a store that declares none with [`WindowStoreBuilder::source`].
    #[must_use]
    pub fn delay(mut self, delay: Span) -> Self {
        let fresh = SourceSpec::new(DEFAULT_SOURCE, Strategy::delayed(delay));
        self.only.strategy = fresh.strategy;
        self.only.jump_warning = fresh.jump_warning;
        self
    }

    /// How long a partition may be silent before it stops holding the watermark back.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.only.idle_timeout = timeout;
        self
    }

    /// Which event times are believed. Others are handed to [`crate::operator::Emit::rejected`].
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.only.bounds = bounds;
        self
    }

    /// Declares a source with rules of its own. Its index, the number of those declared before, is its
    /// [`SourceId`]; give it to [`WindowStore::partition_of`].
    #[must_use]
    pub fn source(mut self, source: SourceSpec) -> Self {
        self.sources.push(source);
        self
    }

    /// How the watermarks of several sources become one. Default: the slowest decides.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Lets the watermark go on with the clock when nothing has come from any partition for so long, so that windows
    /// close in a silent stream, see [`crate::operator::WatermarkTracker::tick`]. Off unless set. Events that come
    /// after the silence with earlier times are late.
    #[must_use]
    pub fn idle_advance(mut self, after: Option<Duration>) -> Self {
        self.idle_advance = after;
        self
    }

    /// Shares the work on each batch among so many threads, the calling one included: 1, the default, to 16. Each has the
    /// keys of a part of the hashes; what comes out is the same for any number. Sessions, overlapping windows that cannot
    /// share slices, and windows that may fire more than once stay with the calling thread.
    #[must_use]
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Fires in steps of about so many rows per window, so that a checkpoint can come in between: see
    /// [`WindowStore::process_some`] and [`WindowStore::is_firing`]. Without it nothing is left for later.
    #[must_use]
    pub const fn firing_step_rows(mut self, rows: usize) -> Self {
        self.step_rows = Some(rows);
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

    /// After every so many checkpoints, reads all files of the newest one again, beside processing: they are hard links, so
    /// that a table that goes bad on the disk takes every checkpoint that shares it. 16 unless set, 0 for never.
    #[must_use]
    pub fn verify_every(mut self, checkpoints: u32) -> Self {
        self.verify_every = checkpoints;
        self
    }

    /// Restores the checkpoint of this epoch instead of the newest. Sinks may be ahead of it: they will refuse, or
    /// show results again.
    #[must_use]
    pub fn restore_at(mut self, epoch: Option<u64>) -> Self {
        self.restore_at = epoch;
        self
    }

    /// Mirrors every checkpoint to a repository, and restores from there when the state directory has none. See
    /// `docs/REPOSITORY.md`. None by default.
    #[must_use]
    pub fn repository(mut self, settings: Option<Settings>) -> Self {
        self.repository = settings;
        self
    }

    /// Numbers new checkpoints above this: the newest epoch that outputs of this lineage know
    /// ([`crate::pipeline::sink::RecoverReport::newest_epoch`]), where some of them are set aside and the state directory
    /// never had those checkpoints: it was moved, or restored from a repository.
    #[must_use]
    pub fn epochs_above(mut self, epoch: u64) -> Self {
        self.epochs_above = epoch;
        self
    }

    /// Where time comes from.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Names that `window` and its parts have in state that was stored before they were renamed.
    #[must_use]
    pub fn renames(mut self, window: &str, renames: Renames) -> Self {
        self.rules.renames.insert(window.to_owned(), renames);
        self
    }

    /// Lets the state of windows, joins and aggregates that are not asked for any more be dropped, instead of refusing
    /// it. What was dropped is gone with the first checkpoint that follows, and when the older ones are retired.
    #[must_use]
    pub fn allow_dropped(mut self, allow: bool) -> Self {
        self.rules.allow_dropped = allow;
        self
    }

    /// Declares how panes of `window` that are stored in another form are rewritten, where no rule does it.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use floodmark::checkpoint::OperatorState;
    /// use floodmark::store::WindowStore;
    /// use floodmark::store::evolution::{PaneMigration, StoredPane};
    ///
    /// /// `amount` was stored in euros, and is counted in cents now.
    /// #[derive(Debug)]
    /// struct Cents;
    ///
    /// impl PaneMigration for Cents {
    ///     fn accepts(&self, stored: &OperatorState) -> bool {
    ///         stored.definition.contains(r#""name":"euros""#)
    ///     }
    ///
    ///     fn migrate(&self, pane: StoredPane<'_>) -> Result<Vec<u8>, String> {
    ///         // A format byte, the number of events, of values, and the sum in two words: docs/FORMAT.md.
    ///         let [format, counts @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = pane.payload else {
    ///             return Err("too short".to_owned());
    ///         };
    ///         let sum = pane.payload.last_chunk::<16>().ok_or("too short")?;
    ///         let cents = i128::from_le_bytes(*sum).checked_mul(100).ok_or("too large")?;
    ///         Ok([&[*format][..], counts, &cents.to_le_bytes()].concat())
    ///     }
    /// }
    ///
    /// let builder = WindowStore::builder("orders").migrate("per_minute", Arc::new(Cents));
    /// # drop(builder);
    /// ```
    #[must_use]
    pub fn migrate(mut self, window: &str, migration: Arc<dyn PaneMigration>) -> Self {
        self.rules.migrations.push((window.to_owned(), migration));
        self
    }

    /// Says whether a checkpoint could be opened, and what would change, without touching anything: `manifest` is all
    /// that is looked at. That its files hold is for [`crate::inspect::verify`] to say.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a description that cannot work.
    pub fn evolution(mut self, manifest: &Manifest) -> Result<Evolution> {
        self.check()?;
        self.resolve_events()?;
        Steps::resolve(&mut self.windows)?;
        let events = EventOperators::new(&self).states();
        Ok(evolution::plan(manifest, &mut self.windows, &events, &self.rules).report)
    }

    /// Refuses a description that cannot work, without opening anything.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], as [`WindowStoreBuilder::open`].
    pub fn check_only(mut self) -> Result<()> {
        self.check()?;
        self.resolve_events()?;
        Steps::resolve(&mut self.windows).map(drop)
    }

    /// Opens the state directory at `path`, creating it if there is none, and restores its newest checkpoint.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a description that cannot work, [`ErrorKind::Locked`] while another process has
    /// the directory, [`ErrorKind::Incompatible`] when its state is of another shape, [`ErrorKind::Damaged`] when
    /// its newest checkpoint does not verify, [`ErrorKind::Unavailable`] when the disk fails.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<WindowStore> {
        self.check()?;
        self.resolve_events()?;
        let names: Vec<String> = self.sources().iter().map(|source| source.name.clone()).collect();
        let id =
            |name: &String| names.iter().position(|known| known == name).map(|index| SourceId(index as u16));
        for spec in &mut self.windows {
            spec.source_ids = spec.sources.as_ref().map(|sources| sources.iter().filter_map(id).collect());
        }
        super::restore::open(self, path.as_ref())
    }

    fn check(&self) -> Result<()> {
        let invalid =
            |message: String, remedy: &str| Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy));
        if self.windows.is_empty() && self.joins.is_empty() {
            return invalid(
                "a store needs at least one window or join".to_owned(),
                "add one with WindowStoreBuilder::window or WindowStoreBuilder::join",
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
            let unknown = spec
                .sources
                .iter()
                .flatten()
                .find(|name| self.sources().iter().all(|known| known.name != **name));
            if let Some(name) = unknown {
                let message =
                    format!("window reads a source that is not declared: name={} source={name}", spec.name);
                return invalid(message, "declare it with WindowStoreBuilder::source");
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
        self.check_sources()
    }

    fn check_sources(&self) -> Result<()> {
        let invalid =
            |message: String, remedy: &str| Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy));
        if self.sources.len() > SOURCES_MAX {
            return invalid(
                format!("too many sources: sources={} sources_max={SOURCES_MAX}", self.sources.len()),
                "join sources of one kind as partitions of one source",
            );
        }
        for (index, source) in self.sources().iter().enumerate() {
            let name = &source.name;
            if name.is_empty() || self.sources()[..index].iter().any(|other| other.name == *name) {
                return invalid(
                    format!("every source needs a name of its own: index={index} name={name}"),
                    "name each differently",
                );
            }
            if let (Some(min), Some(max)) = (source.bounds.min, source.bounds.max)
                && min > max
            {
                return invalid(
                    format!("no time would be believed: source={name} min={min} max={max}"),
                    "swap the two bounds",
                );
            }
        }
        Ok(())
    }

    /// The sources declared, or the one that stands for none.
    pub(super) fn sources(&self) -> &[SourceSpec] {
        if self.sources.is_empty() { std::slice::from_ref(&self.only) } else { &self.sources }
    }

    pub(super) fn hot_bytes(&self) -> usize {
        (self.memory_bytes as f64 * HOT_SHARE) as usize
    }

    pub(super) fn state_bytes(&self) -> usize {
        (self.memory_bytes as f64 * STATE_SHARE) as usize
    }

    pub(super) fn moving_bytes(&self) -> usize {
        (self.memory_bytes as f64 * MOVING_SHARE) as usize
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
