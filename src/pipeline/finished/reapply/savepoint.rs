//! Late events worked into a savepoint: into those of its windows that are still to fire. A new savepoint comes of it, at
//! the same epoch, with the same watermark and the same positions in the input.
//!
//! The store itself does the work, opened in a scratch directory, so that panes become what they would have become. What
//! may be applied is decided in `judge`: nothing may count twice.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::applied::Applied;
use super::judge::{Reading, WhyNot, judge, reading};
use super::late::{Late, REMEDY, TEXT_BYTES, has, only_stdin, unusable};
use super::{nothing_to_apply, write};
use crate::checkpoint::savepoint::{
    CreateRequest, Savepoint, SavepointName, SavepointRecord, create, restore_scratch,
};
use crate::checkpoint::{DiskFs, Environment, Manifest, PartitionState, remove_tree};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::Watermark;
use crate::operator::{
    Advance, Emit, EventBatch, LateEvent, OperatorSpec, PartitionId, Rejection, ResultBlock, SourceId,
};
use crate::pipeline::assemble;
use crate::pipeline::config::{Partitioning, PipelineConfig};
use crate::pipeline::finished::row::{Part, parts};
use crate::pipeline::source::{FileSource, ParsePlan};
use crate::pipeline::task::{RunOptions, store_builder};
use crate::store::{Barrier, WindowStore};

/// Records that were not applied and are listed one by one.
const LISTED_MAX: usize = 1_000;

/// What is to be worked into which savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReapplySavepoint {
    /// Directory of the late output.
    pub late: PathBuf,
    /// The savepoint, or any checkpoint directory.
    pub savepoint: PathBuf,
    /// Directory of the new savepoint; it must not exist.
    pub to: PathBuf,
    /// Records that the savepoint has not read yet will be late again when they are read, or are not there to be read:
    /// apply them now.
    pub late_again: bool,
}

/// What was worked in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReappliedSavepoint {
    /// The new savepoint.
    pub savepoint: PathBuf,
    /// Its name.
    pub name: String,
    /// Its epoch: that of the old one.
    pub epoch: u64,
    /// Late parts that were worked in now.
    pub parts_applied: Vec<String>,
    /// Late parts that the savepoint held already.
    pub parts_passed_over: Vec<String>,
    /// Events that were worked in, by window.
    pub applied: BTreeMap<String, u64>,
    /// Late records that were not, by reason.
    pub not_applied: BTreeMap<WhyNot, u64>,
    /// The first 1,000 of them.
    pub listed: Vec<NotApplied>,
    /// Those beyond.
    pub left_out: u64,
}

/// A late record that was not worked in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotApplied {
    /// Its part of the late output.
    pub part: String,
    /// Its line there.
    pub line: u64,
    /// The window or join that it was late for.
    pub operator: String,
    /// Why not.
    pub reason: WhyNot,
}

/// Works late events into a savepoint and writes the outcome as a new one. The old one stays as it is.
///
/// # Errors
/// `Invalid` for a target that exists, a late record that cannot be read, a window that emits with each event, or when
/// there is nothing to apply; `Incompatible` when the savepoint is of another definition; `Damaged` when it does not
/// verify; `Unavailable` when something cannot be read or written.
pub fn reapply_savepoint(
    config: &PipelineConfig,
    request: &ReapplySavepoint,
    clock: Arc<dyn Clock>,
) -> Result<ReappliedSavepoint> {
    let name = name_of(&request.to)?;
    write::refuse_existing(&request.to)?;
    let mut held = Applied::of_savepoint(late_parts_of(&request.savepoint)?);
    let (fresh, passed_over) = held.split(parts(&request.late)?)?;
    if fresh.is_empty() {
        return Err(nothing_to_apply(&request.late, &passed_over));
    }
    let environment = Environment::new(Arc::clone(&clock));
    let scratch = Scratch(write::unfinished(&request.to)?);
    restore_scratch(&request.savepoint, &scratch.0, &environment)?;
    let mut store = open(config, &scratch.0, &clock)?;
    let mut folding = Folding::new(config, request, &mut store, clock)?;
    folding.take(&fresh)?;
    let Folding { applied, not_applied, listed, .. } = folding;
    if applied.is_empty() {
        return Err(nothing_applies(&request.late, &not_applied));
    }
    save(&mut store)?;
    drop(store);
    let made = create(
        &CreateRequest {
            name,
            from: scratch.0.clone(),
            at: None,
            to: Some(request.to.clone()),
            note: format!("late events worked into {}", request.savepoint.display()),
            late_parts: held.into_parts(),
        },
        &environment,
    )?;
    let Savepoint { path, record, .. } = made;
    let all: u64 = not_applied.values().sum();
    Ok(ReappliedSavepoint {
        savepoint: path,
        name: record.name,
        epoch: record.epoch,
        parts_applied: fresh.into_iter().map(|part| part.name).collect(),
        parts_passed_over: passed_over,
        applied,
        not_applied,
        left_out: all.saturating_sub(listed.len() as u64),
        listed,
    })
}

fn name_of(to: &Path) -> Result<SavepointName> {
    let name = to.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    Ok(SavepointName::parse(name)?)
}

fn late_parts_of(
    savepoint: &Path,
) -> Result<std::collections::BTreeSet<crate::checkpoint::savepoint::LatePart>> {
    let record = SavepointRecord::load(savepoint).map_err(|error| {
        Error::new(
            ErrorKind::Damaged,
            format!("cannot tell which late parts the savepoint holds: path={}", savepoint.display()),
        )
        .with_remedy("take another savepoint; `floodmark inspect verify` says what is wrong with this one")
        .with_source(error)
    })?;
    Ok(record.map(|record| record.late_parts).unwrap_or_default())
}

fn nothing_applies(late: &Path, not_applied: &BTreeMap<WhyNot, u64>) -> Error {
    let reasons: Vec<String> =
        not_applied.iter().map(|(reason, records)| format!("{reason}={records}")).collect();
    let message = format!(
        "no late record can be worked into this savepoint: path={} {}",
        late.display(),
        reasons.join(" ")
    );
    let remedy = match not_applied.get(&WhyNot::WillBeRead) {
        Some(_) => {
            "records that the savepoint has not read yet are read again after a restore; if they will be late again \
             then (same pipeline file, same input), or are not there to be read, say so with --late-again"
        }
        None => "take an older savepoint, or work the late events into the results: --results",
    };
    Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
}

/// The scratch directory; gone when this is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.symlink_metadata().is_ok()
            && let Err(error) = remove_tree(&DiskFs, &self.0)
        {
            tracing::warn!(path = %self.0.display(), %error, "a scratch directory is left");
        }
    }
}

fn open(config: &PipelineConfig, scratch: &Path, clock: &Arc<dyn Clock>) -> Result<WindowStore> {
    let mut elsewhere = config.clone();
    elsewhere.state.directory = scratch.to_owned();
    let (_, operators) = assemble::operators(config);
    let store = store_builder(&elsewhere, operators, RunOptions::default(), clock)?
        .open(&elsewhere.state.directory)?;
    store.directory().replace_restored()?;
    Ok(store)
}

/// Makes the checkpoint anew, with everything in it but the panes as it was.
fn save(store: &mut WindowStore) -> Result<()> {
    let manifest = manifest(store)?;
    let (staged, counters) = (manifest.staged.clone(), manifest.counters.clone());
    store.checkpoint(Barrier { staged, counters, ..Barrier::default() })?;
    Ok(())
}

fn manifest(store: &WindowStore) -> Result<&Manifest> {
    let restored = store.restored().ok_or_else(|| Error::new(ErrorKind::Bug, "a scratch state is empty"))?;
    Ok(restored.manifest())
}

/// A window as the savepoint left it.
struct Standing {
    spec: OperatorSpec,
    watermark: Watermark,
    // Over results of another window: a late output does not keep these.
    is_fed: bool,
}

/// Late records on their way into the store.
struct Folding<'a> {
    config: &'a PipelineConfig,
    late_again: bool,
    store: &'a mut WindowStore,
    clock: Arc<dyn Clock>,
    plans: Vec<ParsePlan>,
    windows: Vec<Standing>,
    partitions: BTreeMap<String, (PartitionId, PartitionState)>,
    // By window and partition.
    waiting: BTreeMap<(usize, String), Waiting>,
    waiting_bytes: usize,
    applied: BTreeMap<String, u64>,
    not_applied: BTreeMap<WhyNot, u64>,
    listed: Vec<NotApplied>,
}

/// Text of records of one partition for one window, to be parsed together.
struct Waiting {
    source: usize,
    text: Vec<u8>,
    // For each line of the text: the part, the line there, and the number of the record in its partition.
    places: Vec<(usize, u64)>,
    numbers: Vec<u64>,
}

impl<'a> Folding<'a> {
    fn new(
        config: &'a PipelineConfig,
        request: &ReapplySavepoint,
        store: &'a mut WindowStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (plans, _) = assemble::operators(config);
        let standing = |((spec, watermark), window): ((&OperatorSpec, Watermark), _)| Standing {
            spec: spec.clone(),
            watermark,
            is_fed: is_fed(window),
        };
        let windows: Vec<Standing> =
            store.operators().zip(store.operator_watermarks()).zip(&config.windows).map(standing).collect();
        let by_line = windows
            .iter()
            .find(|window| window.spec.advance == Advance::Batch && window.spec.windows.overlap());
        if let Some(window) = by_line {
            let message = format!(
                "late events cannot be worked into a savepoint here: by batches, a late line is about one of several \
                 windows of its event: window={}",
                window.spec.name
            );
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("work them into the results: --window and --results"));
        }
        let partitions = manifest(store)?
            .partitions
            .iter()
            .zip(0..)
            .map(|(partition, index)| (partition.name.clone(), (PartitionId(index), partition.clone())));
        Ok(Self {
            config,
            late_again: request.late_again,
            partitions: partitions.collect(),
            store,
            clock,
            plans,
            windows,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            applied: BTreeMap::new(),
            not_applied: BTreeMap::new(),
            listed: Vec::new(),
        })
    }

    fn take(&mut self, fresh: &[Part]) -> Result<()> {
        for (index, part) in fresh.iter().enumerate() {
            part.lines(|number, line| {
                let wrong = |what: String| part.wrong(number, &what, REMEDY);
                let late = Late::parse(line).map_err(wrong)?;
                let window = self.windows.iter().position(|window| window.spec.name == late.operator);
                match self.judge(window, &late).map_err(wrong)? {
                    Err(reason) => {
                        self.leave(part, number, late.operator, reason);
                        Ok(())
                    }
                    Ok(window) => {
                        self.push(window, &late, (index, number)).map_err(wrong)?;
                        if self.waiting_bytes >= TEXT_BYTES { self.work_in(fresh) } else { Ok(()) }
                    }
                }
            })?;
        }
        self.work_in(fresh)
    }

    fn leave(&mut self, part: &Part, line: u64, operator: String, reason: WhyNot) {
        *self.not_applied.entry(reason).or_default() += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(NotApplied { part: part.name.clone(), line, operator, reason });
        }
    }

    /// The window that a late record is to be worked into, or why it is not.
    fn judge(&self, window: Option<usize>, late: &Late) -> Result<Result<usize, WhyNot>, String> {
        let standing = window.and_then(|index| Some((index, self.windows.get(index)?)));
        let Some((index, standing)) = standing.filter(|(_, standing)| !standing.is_fed) else {
            return Ok(Err(WhyNot::OtherOperator));
        };
        let time = late.event_time.ok_or("no `event_time`: not a line of a late output")?;
        let reading = match self.partitions.get(&late.source) {
            Some((_, partition)) => reading(partition, late)?,
            None => Reading::Ahead,
        };
        Ok(match judge(&standing.spec, standing.watermark, time, reading, self.late_again) {
            Some(reason) => Err(reason),
            None => Ok(index),
        })
    }

    fn push(&mut self, window: usize, late: &Late, place: (usize, u64)) -> Result<(), String> {
        let source = self.source_of(&late.source)?;
        let config = &self.config.sources[source];
        if config.csv.as_ref().is_some_and(|csv| csv.header) {
            return Err("late records of CSV files do not say which columns their header named".to_owned());
        }
        let text = late.text(&config.time.field)?;
        let waiting = self.waiting.entry((window, late.source.clone())).or_insert_with(|| Waiting {
            source,
            text: Vec::new(),
            places: Vec::new(),
            numbers: Vec::new(),
        });
        // A record may be of several lines.
        for _ in 0..=text.iter().filter(|&&byte| byte == b'\n').count() {
            waiting.places.push(place);
            waiting.numbers.push(late.record_number.unwrap_or_default());
        }
        waiting.text.extend_from_slice(&text);
        waiting.text.push(b'\n');
        self.waiting_bytes += text.len() + 1;
        Ok(())
    }

    fn source_of(&self, partition: &str) -> Result<usize, String> {
        let sources = &self.config.sources;
        let known = self.partitions.get(partition).map(|(_, state)| state.source.as_str());
        let by_name = known.and_then(|name| sources.iter().position(|source| source.name == name));
        let by_pattern = || sources.iter().position(|source| has(source, partition));
        by_name
            .or_else(by_pattern)
            .or_else(|| (sources.len() == 1).then_some(0))
            .ok_or_else(|| format!("no source has this partition: source={partition}"))
    }

    /// Parses what waits, and hands it to its windows.
    fn work_in(&mut self, parts: &[Part]) -> Result<()> {
        self.waiting_bytes = 0;
        for ((window, partition), waiting) in std::mem::take(&mut self.waiting) {
            let Waiting { source, text, places, numbers } = waiting;
            let id = self.leader_of(source, &partition);
            let (config, plan) = (only_stdin(&self.config.sources[source]), self.plans[source].clone());
            let clock = Arc::clone(&self.clock);
            let stdin = Box::new(Cursor::new(text));
            let mut input = FileSource::open_with_stdin(&[config], vec![plan], &[], clock, stdin)?;
            while let Some(mut block) = input.next_block(None)? {
                if let Some(rejected) = block.rejected.first() {
                    return Err(unusable(rejected, &places, parts));
                }
                let batch = &mut block.batch;
                batch.partition = id;
                batch.source = SourceId(u16::try_from(source).unwrap_or(u16::MAX));
                batch.punctuations.clear();
                for record in &mut batch.records {
                    let line = usize::try_from(record.saturating_sub(1)).unwrap_or(usize::MAX);
                    *record = numbers.get(line).copied().unwrap_or_default();
                }
                self.fold(window, batch)?;
            }
        }
        Ok(())
    }

    fn fold(&mut self, window: usize, batch: &EventBatch) -> Result<()> {
        let mut silent = Silent { window: &self.windows[window].spec.name };
        self.store.work_in(window, batch, &mut silent)?;
        if !batch.is_empty() {
            *self.applied.entry(self.windows[window].spec.name.clone()).or_default() += batch.len() as u64;
        }
        Ok(())
    }

    /// The partition under which the events of another are counted, as in a run.
    fn leader_of(&self, source: usize, partition: &str) -> PartitionId {
        let config = &self.config.sources[source];
        let own = self.partitions.get(partition).map(|(id, _)| *id);
        let first = || {
            let mut of_source = self.partitions.values().filter(|(_, state)| state.source == config.name);
            of_source.next().map(|(id, _)| *id)
        };
        let leader = if config.partitioning == Partitioning::Single { first() } else { own };
        leader.unwrap_or(PartitionId(u32::try_from(self.partitions.len()).unwrap_or(u32::MAX)))
    }
}

fn is_fed(window: &crate::pipeline::config::WindowConfig) -> bool {
    window.input.is_some()
}

/// Takes no results: a row that comes out here would be lost.
struct Silent<'a> {
    window: &'a str,
}

impl Emit for Silent<'_> {
    type Error = Error;

    fn results(&mut self, _: usize, _: &mut dyn ResultBlock) -> Result<()> {
        let message = format!(
            "this window emits with its events, and results cannot go out from a savepoint: window={}",
            self.window
        );
        Err(Error::new(ErrorKind::Invalid, message).with_remedy(
            "windows that fire at the watermark take late events; for others run again over the input with a longer delay",
        ))
    }

    fn late(&mut self, _: usize, _: LateEvent<'_>) -> Result<()> {
        Err(Error::new(ErrorKind::Bug, "an event was late for a window that was found to be open"))
    }

    fn rejected(&mut self, _: &EventBatch, _: usize, rejection: Rejection) -> Result<()> {
        Err(Error::new(ErrorKind::Bug, format!("a late record was rejected: reason={}", rejection.name())))
    }
}
