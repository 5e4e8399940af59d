//! Opening a store: the newest checkpoint, checked against the definition, as a fresh working database with its
//! open windows back in memory.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use super::builder::{Candidate, WindowStoreBuilder, family};
use super::events::EventOperators;
use super::evolution::{self, Evolution, Plan, Rules, Verdict};
use super::firing::set_step_rows;
use super::mirroring::Mirroring;
use super::panes::decode;
use super::steps::Steps;
use super::takeover::take_over;
use super::writer::Writer;
use super::{Partition, Warned, WindowStore, lateness, zones};
use crate::aggregate::STATE_VERSION;
use crate::checkpoint::{
    Environment, FoundDirectory, Manifest, OperatorState, PartitionState, Position, Published,
    SourceIdentity, StateDirectory, VerifiedManifest,
};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Watermark};
use crate::operator::{
    Advance, BatchWatermark, Marks, OperatorSpec, PartitionProgress, RowBuffer, SavedWatermarks, SourceId,
    SourceSpec, WatermarkTracker, WindowOperator, Workers,
};
use crate::repository::{Prepared, prepare, preview};
use crate::state::{FamilyId, FamilySpec, StateDb, StateMemory};

/// Share of the hot buffer that restored panes may fill; the rest is for what comes.
const LOADED_SHARE: f64 = 0.75;

/// A source partition as a checkpoint left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredPartition {
    /// Its name.
    pub name: String,
    /// Name of its source; empty when the checkpoint is of a version that knew no more than one.
    pub source: String,
    /// Where to read on.
    pub position: Position,
    /// How to know it again.
    pub identity: SourceIdentity,
    /// Read to its end.
    pub finished: bool,
    /// Latest event time seen in it.
    pub max_time: Option<EventTime>,
}

/// What a store took up when it was opened.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The permit to publish the output that the checkpoint staged, in case that was cut. Publish it before
    /// anything else.
    pub published: Published,
    /// Epochs of newer checkpoints that were passed over by `restore_at`.
    pub newer: Vec<u64>,
    /// Panes that are back in memory.
    pub panes_loaded: usize,
    /// Windows whose panes stay in the state database.
    pub windows_stored: usize,
    /// Time zones of calendar windows whose clocks change at other moments than when the checkpoint was made.
    pub changed_zones: Vec<String>,
}

impl Restored {
    /// The manifest of the checkpoint.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        self.published.manifest()
    }

    /// The partitions, in the order of their indexes.
    pub fn partitions(&self) -> impl Iterator<Item = RestoredPartition> + '_ {
        partitions_of(self.manifest())
    }
}

/// The partitions of a checkpoint, in the order of their indexes.
pub(crate) fn partitions_of(manifest: &Manifest) -> impl Iterator<Item = RestoredPartition> + '_ {
    manifest.partitions.iter().map(|partition| RestoredPartition {
        name: partition.name.clone(),
        source: partition.source.clone(),
        position: partition.position,
        identity: partition.identity,
        finished: partition.finished,
        max_time: partition.max_time,
    })
}

/// What a checkpoint says of an operator: enough to refuse another shape, and to read its panes without the code.
pub(super) fn operator_state(operator: &WindowOperator) -> OperatorState {
    let spec = operator.spec();
    let complete = operator.open_windows().iter().all(|window| window.complete);
    OperatorState {
        name: spec.name.clone(),
        family: family(spec).column_family(),
        definition: definition(spec),
        fingerprint: operator.layout().fingerprint(),
        state_version: STATE_VERSION,
        allowed_lateness: spec.allowed_lateness,
        watermark: operator.watermark(),
        // Set by the writer, which knows how far the database is.
        horizon: Watermark::None,
        open_panes: complete.then(|| operator.resident_panes() as u64),
    }
}

/// The definition as JSON with a fixed order of fields.
fn definition(spec: &OperatorSpec) -> String {
    // A struct of names, numbers and lists always serialises.
    serde_json::to_string(spec).unwrap_or_default()
}

/// Opens the state directory, as the builder describes it.
pub(super) fn open(mut builder: WindowStoreBuilder, path: &Path) -> Result<WindowStore> {
    let steps = Steps::resolve(&mut builder.windows)?;
    approve_fetch(&builder, path)?;
    let prepared = builder
        .repository
        .as_ref()
        .map(|settings| prepare(settings, path, &builder.name, builder.restore_at, &builder.clock))
        .transpose()?;
    let found = FoundDirectory::look(path, &builder.name, environment(&builder, prepared.as_ref()))?;
    let choice = found.newest_verified(builder.restore_at)?;
    for damaged in &choice.damaged {
        tracing::warn!(epoch = damaged.epoch, reason = %damaged.reason, "an older checkpoint is damaged");
    }
    let mut events = EventOperators::new(&builder);
    let manifest = choice.chosen.as_ref().map(|verified| &**verified.manifest());
    let plan = manifest.map(|manifest| evolve(manifest, &mut builder, &events)).transpose()?;
    let saved = manifest.map(|manifest| saved_watermarks(manifest, builder.sources())).transpose()?;
    builder.ask(&Candidate {
        manifest,
        lineage: found.lineage(),
        generation: Some(found.generation()),
        newest_epoch: found.next_epoch().saturating_sub(1),
    })?;
    let base = manifest.map(|manifest| manifest.epoch);
    let (directory, outbox) = take_over(found, prepared, &builder, base)?;
    let families: Vec<FamilySpec> = builder.windows.iter().map(family).chain(events.families()).collect();
    let memory = StateMemory::new(builder.state_bytes());
    let mut operators: Vec<WindowOperator> = builder
        .windows
        .iter()
        .enumerate()
        .map(|(index, spec)| WindowOperator::new(index, spec.clone()))
        .collect();
    share_work(&mut operators, builder.workers)?;
    let mut tracker = WatermarkTracker::of(builder.sources().to_vec(), builder.policy)
        .advancing_when_idle(builder.idle_advance);
    let (db, restored) = match choice.chosen.zip(plan) {
        None => {
            // By batches, windows that end by 1970 are closed from the start.
            let by_batch = operators.iter_mut().filter(|operator| operator.spec().advance == Advance::Batch);
            by_batch.for_each(|operator| operator.restore(BatchWatermark::new(Watermark::None).next()));
            (StateDb::create(&directory.work_dir(), &families, &memory)?, None)
        }
        Some((verified, plan)) => {
            let db = open_copy(&directory, &verified, &plan, &builder.windows, &families, &memory)?;
            let manifest = verified.manifest();
            if let Some(saved) = saved {
                tracker.restore(saved, builder.clock.monotonic());
            }
            for (operator, origin) in operators.iter_mut().zip(&plan.origins) {
                let known = origin.stored().and_then(|index| manifest.operators.get(index));
                let start = || evolution::start_of(manifest, operator.spec());
                let watermark = known.map_or_else(start, |state| state.watermark);
                operator.restore(watermark);
                operator.forget(evolution::horizon_of(manifest, origin, operator.spec()));
            }
            let hot_bytes = (builder.hot_bytes() as f64 * LOADED_SHARE) as usize;
            let (panes_loaded, windows_stored) = load_windows(&db, &mut operators, hot_bytes)?;
            let panes_loaded = panes_loaded + events.restore(&db, manifest)?;
            let published = directory.permit(&verified)?;
            if let Some(outbox) = &outbox {
                outbox.send_restored(&published, builder.clock.as_ref())?;
            }
            let changed_zones = changed_zones(manifest, &builder.windows);
            let newer = choice.newer;
            (db, Some(Restored { published, newer, panes_loaded, windows_stored, changed_zones }))
        }
    };
    set_step_rows(&mut operators, builder.step_rows);
    events.set_step_rows(builder.step_rows);
    let known = restored.iter().flat_map(|restored| &restored.manifest().partitions);
    let partitions = known.map(|partition| Partition {
        name: partition.name.clone(),
        position: partition.position,
        identity: partition.identity,
        finished: partition.finished,
        lateness: partition.lateness.clone(),
    });
    let partitions = partitions.collect();
    let manifest = restored.as_ref().map(Restored::manifest);
    let source_lateness = lateness::of_sources(manifest, builder.sources());
    let db = Arc::new(db);
    let saved = restored.as_ref().map_or(Watermark::None, |restored| restored.manifest().batch_watermark);
    let batch_watermark = BatchWatermark::new(saved);
    Ok(WindowStore {
        batch_watermark,
        steps,
        mirroring: outbox.map(Mirroring),
        writer: Writer::start(Arc::clone(&db))?,
        directory,
        db,
        operators,
        events,
        tracker,
        partitions,
        source_lateness,
        marks: Marks::default(),
        warned: Warned::default(),
        hot_bytes_max: builder.hot_bytes(),
        moving_bytes_max: builder.moving_bytes(),
        retain: builder.retain,
        step_rows: builder.step_rows,
        verify_every: builder.verify_every,
        clock: builder.clock,
        restored,
        failed: false,
    })
}

/// Refuses a checkpoint in the repository that would be fetched and could not be gone on from, while whoever has the
/// repository now can still go on with it.
fn approve_fetch(builder: &WindowStoreBuilder, path: &Path) -> Result<()> {
    let Some(settings) = &builder.repository else { return Ok(()) };
    let preview = preview(settings, path, &builder.name, builder.restore_at)?;
    let Some((_, manifest)) = preview.fetched else { return Ok(()) };
    let (mut windows, events) = (builder.windows.clone(), EventOperators::new(builder).states());
    refuse_misfit(&evolution::plan(&manifest, &mut windows, &events, &builder.rules).report)?;
    saved_watermarks(&manifest, builder.sources())?;
    builder.ask(&Candidate {
        manifest: Some(&manifest),
        lineage: manifest.lineage,
        generation: None,
        newest_epoch: manifest.epoch,
    })
}

/// Says loudly which time zones have other rules than when the checkpoint was made.
fn changed_zones(manifest: &Manifest, windows: &[OperatorSpec]) -> Vec<String> {
    let changed = zones::changed(manifest, windows.iter());
    for zone in &changed {
        tracing::warn!(
            %zone, epoch = manifest.epoch,
            "the rules of this time zone are not those that the checkpoint was made with: calendar windows that are open \
             may be split in two, or end at another moment than they began for; run the build or the system's time zone \
             database of before until they are closed, or expect that"
        );
    }
    changed
}

/// The outside world of the state directory, with what the repository says of other machines.
fn environment(builder: &WindowStoreBuilder, prepared: Option<&Prepared>) -> Environment {
    Environment {
        generation_above: prepared.map_or(0, Prepared::generation_above),
        epochs_above: prepared.map_or(0, Prepared::epochs_above).max(builder.epochs_above),
        ..Environment::new(Arc::clone(&builder.clock))
    }
}

fn open_copy(
    directory: &StateDirectory,
    verified: &VerifiedManifest,
    plan: &Plan,
    windows: &[OperatorSpec],
    families: &[FamilySpec],
    memory: &StateMemory,
) -> Result<StateDb> {
    let work = directory.materialise(verified)?;
    let manifest = verified.manifest();
    if plan.reshapes() {
        evolution::reshape(&work, manifest, plan, windows, families, memory)?;
    }
    let db = StateDb::open(&work, families, memory)?;
    // Windows may stand in another order now.
    for (index, origin) in plan.origins.iter().enumerate() {
        let horizon = match (windows.get(index), origin.stored()) {
            (Some(spec), _) => evolution::horizon_of(manifest, origin, spec),
            (None, Some(stored)) => manifest.operators[stored].horizon,
            (None, None) => manifest.watermark,
        };
        db.set_family_horizon(FamilyId(index), horizon)?;
    }
    let (found, expected) = (db.epoch()?, manifest.epoch);
    if found != Some(expected) {
        return Err(Error::new(
            ErrorKind::Damaged,
            format!("state database is not of its checkpoint: epoch={found:?} manifest_epoch={expected}"),
        )
        .with_remedy("restore another checkpoint by its number"));
    }
    Ok(db)
}

/// Starts the threads that operators share their work among.
fn share_work(operators: &mut [WindowOperator], count: usize) -> Result<()> {
    let workers = Workers::start(count).map_err(|source| {
        Error::new(ErrorKind::Unavailable, format!("cannot start threads: workers={count}"))
            .with_source(source)
            .with_remedy("allow the process more threads, or ask for fewer workers")
    })?;
    let workers = Arc::new(workers);
    operators.iter_mut().for_each(|operator| operator.set_workers(&workers));
    Ok(())
}

/// What the manifest says of the watermarks, in the order of the sources as they are declared now.
pub(crate) fn saved_watermarks(manifest: &Manifest, sources: &[SourceSpec]) -> Result<SavedWatermarks> {
    // An only source may change its name: there is no other that it could be mistaken for.
    let only = manifest.sources.len() <= 1 && sources.len() == 1;
    let index_of = |name: &str| match sources.iter().position(|source| source.name == name) {
        None if only || name.is_empty() => Some(0),
        found => found,
    };
    let mut watermarks = vec![Watermark::None; sources.len()];
    for known in &manifest.sources {
        if let Some(watermark) = index_of(&known.name).and_then(|index| watermarks.get_mut(index)) {
            *watermark = known.watermark;
        }
    }
    let mut partitions = Vec::with_capacity(manifest.partitions.len());
    for partition in &manifest.partitions {
        let index = match index_of(&partition.source) {
            Some(index) => index,
            // What was read to its end holds nothing back, wherever it is counted.
            None if partition.finished => 0,
            None => return Err(unknown_source(partition)),
        };
        partitions.push((SourceId(index as u16), progress_of(partition)));
    }
    Ok(SavedWatermarks { task: manifest.watermark, sources: watermarks, partitions })
}

fn unknown_source(partition: &PartitionState) -> Error {
    let message = format!(
        "a source of the checkpoint is not declared any more, and was not read to its end: source={} partition={}",
        partition.source, partition.name
    );
    Error::new(ErrorKind::Incompatible, message)
        .with_remedy("declare it again, under the same name, or start with a new state directory")
}

fn progress_of(partition: &PartitionState) -> PartitionProgress {
    let PartitionState { max_time, watermark, idle, finished, .. } = *partition;
    PartitionProgress { max_time, watermark, idle, finished }
}

/// Refuses state that does not fit, showing both shapes.
pub(crate) fn refuse_misfit(report: &Evolution) -> Result<()> {
    if report.verdict != Verdict::Refused {
        return Ok(());
    }
    let changed = report.operators.iter().filter(|operator| operator.verdict != Verdict::Same);
    let shown: String = changed.map(ToString::to_string).collect();
    let message =
        format!("the state was made by another definition: epoch={}\n{}", report.epoch, shown.trim_end());
    Err(Error::new(ErrorKind::Incompatible, message).with_remedy(
        "see above for each; `floodmark check PIPELINE` tells the same without touching the state. Or change the \
         definition back, or give the new one a state directory of its own; the old state stays as it is",
    ))
}

/// Refuses state of another definition than these, whether or not it could be taken over: for readers who change
/// nothing. Sets in `windows` what is stored beside their definition.
pub(crate) fn check_shape(
    manifest: &Manifest,
    windows: &mut [OperatorSpec],
    events: &[OperatorState],
) -> Result<()> {
    let mut plan = evolution::plan(manifest, windows, events, &Rules::default());
    for operator in &mut plan.report.operators {
        if operator.verdict == Verdict::Compatible {
            operator.verdict = Verdict::Refused;
            plan.report.verdict = Verdict::Refused;
        }
    }
    refuse_misfit(&plan.report)
}

/// Compares the checkpoint with the definition, says what changes, or refuses.
fn evolve(manifest: &Manifest, builder: &mut WindowStoreBuilder, events: &EventOperators) -> Result<Plan> {
    let plan = evolution::plan(manifest, &mut builder.windows, &events.states(), &builder.rules);
    refuse_misfit(&plan.report)?;
    for operator in &plan.report.operators {
        for change in &operator.changes {
            tracing::info!(operator = %operator.name, "{}: {}", change.what, change.effect);
        }
    }
    Ok(plan)
}

/// Brings the panes of open windows back into memory, earliest window first, as long as they fit.
fn load_windows(
    db: &StateDb,
    operators: &mut [WindowOperator],
    hot_bytes_max: usize,
) -> Result<(usize, usize)> {
    let (mut loaded, mut stored) = (0, 0);
    for index in 0..operators.len() {
        if operators[index].needs_resident_panes() {
            loaded += load_all(db, &mut operators[index])?;
            continue;
        }
        let mut after = Bound::Unbounded;
        loop {
            let used: usize = operators.iter().map(WindowOperator::memory_bytes).sum();
            let operator = &mut operators[index];
            let room = hot_bytes_max.saturating_sub(used);
            let Some((end, rows)) = load_window(db, operator, after, room)? else { break };
            after = Bound::Excluded(end);
            match rows {
                Loaded::Expired => {}
                Loaded::Rows(rows) => {
                    loaded += rows.len();
                    operator.restore_window(end, Some(&rows));
                }
                Loaded::TooMany => {
                    stored += 1;
                    operator.restore_window(end, None);
                }
            }
        }
    }
    Ok((loaded, stored))
}

/// Brings all live panes of an operator back into memory, in one scan.
fn load_all(db: &StateDb, operator: &mut WindowOperator) -> Result<usize> {
    let mut scan = db.scan(FamilyId(operator.index()), ..)?;
    let mut rows = RowBuffer::new(operator.layout());
    let (mut loaded, mut window) = (0, None);
    while let Some((pane, stored)) = scan.next_pane()? {
        if operator.is_expired(pane.end) {
            continue;
        }
        if let Some(end) = window.replace(pane.end).filter(|end| *end != pane.end) {
            operator.restore_window(end, Some(&rows));
            rows.clear();
        }
        decode(stored, pane.end, pane.key, |payload| rows.push_payload(pane.key, payload))?;
        loaded += 1;
    }
    if let Some(end) = window {
        operator.restore_window(end, Some(&rows));
    }
    Ok(loaded)
}

enum Loaded {
    Rows(RowBuffer),
    TooMany,
    Expired,
}

/// Reads the first window whose end lies beyond `after`.
fn load_window(
    db: &StateDb,
    operator: &WindowOperator,
    after: Bound<EventTime>,
    room: usize,
) -> Result<Option<(EventTime, Loaded)>> {
    let mut scan = db.scan(FamilyId(operator.index()), (after, Bound::Unbounded))?;
    let mut rows = RowBuffer::new(operator.layout());
    let mut window = None;
    while let Some((pane, pane_value)) = scan.next_pane()? {
        let end = *window.get_or_insert(pane.end);
        if pane.end != end {
            break;
        }
        if operator.is_expired(end) {
            // Closed before the checkpoint; the horizon had not come so far yet.
            return Ok(Some((end, Loaded::Expired)));
        }
        if rows.len() * operator.bytes_per_pane(pane.key.len()) + rows.sketch_bytes() > room {
            return Ok(Some((end, Loaded::TooMany)));
        }
        decode(pane_value, end, pane.key, |payload| rows.push_payload(pane.key, payload))?;
    }
    Ok(window.map(|end| (end, Loaded::Rows(rows))))
}
