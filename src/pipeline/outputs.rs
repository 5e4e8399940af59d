//! All outputs of a pipeline together: results per window, late events, rejected records. Counts what goes where.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::assemble;
use super::config::PipelineConfig;
use super::places::{self, places, record_text, refuse_misfits};
use super::sink::{
    AheadPolicy, DeadLetter, DeadLetterSink, Deliveries, DeliveryFigures, LateSink, Opened, Publish,
    PublishPermit, RecordSpec, RecoverReport, Restored as RestoredOutput, Sink, SinkContext, StagedOutput,
    WriteJoined, WriteResults, newest_published_in, renamed_staged,
};
use super::source::{Position, Rejected, RestOfBlock};
use super::task::RunOptions;
use crate::checkpoint::{Manifest, Published};
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::EventTime;
use crate::operator::{Emit, EventBatch, JoinedRow, LateEvent, Rejection, ResultBlock, SourceId};
use crate::store::{AfterPublish, Candidate, WindowStore};

/// Name of the late output in handles.
pub(super) const LATE: &str = "late";
/// Name of the dead-letter output in handles.
pub(super) const DEAD_LETTER: &str = "dead_letter";

impl PublishPermit for Published {
    fn epoch(&self) -> u64 {
        Published::epoch(self)
    }
}

/// Running totals of one lineage, kept in every checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records that became events.
    pub events: u64,
    /// Records that a filter passed over.
    pub filtered: u64,
    /// Records that could not become events, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Events that were dropped as repetitions, by name of their source.
    pub duplicates: BTreeMap<String, u64>,
    /// Events that were late for all their windows, by window or join name.
    pub late: BTreeMap<String, u64>,
    /// Result rows, by window or join name.
    pub results: BTreeMap<String, u64>,
    /// Decompressed bytes read.
    pub input_bytes: u64,
    /// Lines read of the current batch, where the watermark advances by batches.
    pub batch_lines: u64,
    /// What is left of the block that is being processed.
    pub block_rest: Option<RestOfBlock>,
}

impl Counters {
    /// Records that could not become events.
    #[must_use]
    pub fn rejected_total(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// Events that were late, over all windows.
    #[must_use]
    pub fn late_total(&self) -> u64 {
        self.late.values().sum()
    }

    /// Result rows, over all windows.
    #[must_use]
    pub fn results_total(&self) -> u64 {
        self.results.values().sum()
    }

    /// The form that manifests keep: dotted names.
    pub(super) fn to_map(&self) -> BTreeMap<String, u64> {
        let mut map = BTreeMap::from([
            ("events".to_owned(), self.events),
            ("filtered".to_owned(), self.filtered),
            ("input_bytes".to_owned(), self.input_bytes),
            ("batch_lines".to_owned(), self.batch_lines),
        ]);
        for (group, counts) in [
            ("rejected", &self.rejected),
            ("late", &self.late),
            ("results", &self.results),
            ("duplicates", &self.duplicates),
        ] {
            map.extend(counts.iter().map(|(name, count)| (format!("{group}.{name}"), *count)));
        }
        if let Some(RestOfBlock { partition, rest, ends }) = &self.block_rest {
            map.insert(format!("block_rest.{partition}"), *rest);
            if *ends {
                map.insert(format!("block_ends.{partition}"), 1);
            }
        }
        map
    }

    /// Reads the form that manifests keep; names of another version are left out.
    #[must_use]
    pub fn from_map(map: &BTreeMap<String, u64>) -> Self {
        let mut counters = Self::default();
        for (name, &count) in map {
            match name.split_once('.') {
                None if name == "events" => counters.events = count,
                None if name == "filtered" => counters.filtered = count,
                None if name == "input_bytes" => counters.input_bytes = count,
                None if name == "batch_lines" => counters.batch_lines = count,
                Some(("block_rest", name)) => {
                    let ends = map.contains_key(&format!("block_ends.{name}"));
                    counters.block_rest = Some(RestOfBlock { partition: name.to_owned(), rest: count, ends });
                }
                Some(("rejected", reason)) => {
                    counters.rejected.insert(reason.to_owned(), count);
                }
                Some(("duplicates", source)) => {
                    counters.duplicates.insert(source.to_owned(), count);
                }
                Some(("late", window)) => {
                    counters.late.insert(window.to_owned(), count);
                }
                Some(("results", window)) => {
                    counters.results.insert(window.to_owned(), count);
                }
                _ => {}
            }
        }
        counters
    }
}

/// Where the batch that is being processed was read.
#[derive(Clone, Debug, Default)]
struct Place {
    partition: String,
    start: Position,
    shed: Shed,
}

/// What of a partition this run did not count in any window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shed {
    /// Late events, once for each window that they were late for.
    pub(super) late: u64,
    /// Rejected records.
    pub(super) rejected: u64,
}

/// What this run has emitted of one window or join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Emitted {
    /// Times that panes of a window were emitted together; taking back is none.
    pub(super) firings: u64,
    /// The latest that an event was, in milliseconds behind the expiry of its last window.
    pub(super) late_by_ms_max: Option<i64>,
}

/// The outputs of a task, and its counters.
#[derive(Debug)]
pub(super) struct Outputs {
    // Names of the windows, then of the joins.
    windows: Vec<String>,
    sources: Vec<String>,
    results: Vec<Box<dyn WriteResults>>,
    joined: Vec<Box<dyn WriteJoined>>,
    late: Option<LateSink>,
    dead_letter: Option<DeadLetterSink>,
    delivery: Arc<Mutex<Delivering>>,
    pub(super) counters: Counters,
    // Rows of the current epoch, by window or join.
    fresh_rows: Vec<u64>,
    emitted: Vec<Emitted>,
    // Of partitions other than the one that is being read, whose figures are in `place`.
    shed: BTreeMap<String, Shed>,
    delivery_figures: Arc<DeliveryFigures>,
    place: Place,
    // Rejected records of the block that is being processed, by record, which were not taken yet.
    rejected: VecDeque<Rejected>,
    strict: bool,
}

impl Outputs {
    /// Opens every output, publishing first what the restored checkpoint had staged.
    pub(super) fn open(
        config: &PipelineConfig,
        store: &WindowStore,
        ahead: AheadPolicy,
        options: RunOptions,
    ) -> Result<(Self, Vec<RecoverReport>)> {
        let restored = store.restored();
        let (staged, rows_given_up) = due(config, restored.map(|restored| restored.manifest()), options)?;
        let last_epoch = restored.map_or(0, |restored| restored.manifest().epoch);
        let newest_epoch = store.next_epoch().saturating_sub(1);
        let from = RestoredOutput { staged: &staged, last_epoch, newest_epoch, ahead };
        let directory = store.directory();
        let context = SinkContext { lineage: directory.lineage().0, generation: directory.generation() };
        let mut opening = Opening::default();
        opening.reports.push(RecoverReport { rows_given_up, ..RecoverReport::default() });
        let mut results = Vec::new();
        for window in &config.windows {
            results.push(opening.take(assemble::open_results(window, context, from)?));
        }
        let mut joined = Vec::new();
        for join in &config.joins {
            joined.push(opening.take(assemble::open_joined(join, context, from)?));
        }
        let text = record_text(config);
        let spec = |name: &str, directory: &std::path::Path| RecordSpec {
            name: name.to_owned(),
            directory: directory.to_owned(),
            text,
        };
        let late =
            config.late.as_deref().map(|path| LateSink::open(spec(LATE, path), context, from)).transpose()?;
        let late = late.map(|opened| opening.take(opened));
        let dead = config.dead_letter.as_deref();
        let dead =
            dead.map(|path| DeadLetterSink::open(spec(DEAD_LETTER, path), context, from)).transpose()?;
        let dead_letter = dead.map(|opened| opening.take(opened));
        match (opening.orphan(&staged), options.allow_dropped) {
            (None, _) => {}
            (Some(orphan), false) => return Err(refuse_orphan(orphan)),
            (Some(orphan), true) => tracing::warn!(
                sink = %orphan.sink,
                rows = orphan.rows,
                "the last rows of an output that is dropped are published only if they were before the last run ended"
            ),
        }
        let windows = config.windows.iter().map(|window| window.name.clone());
        let windows: Vec<String> = windows.chain(config.joins.iter().map(|join| join.name.clone())).collect();
        let mut counters =
            restored.map(|restored| Counters::from_map(&restored.manifest().counters)).unwrap_or_default();
        for (was, name) in renamed(config) {
            for counts in [&mut counters.results, &mut counters.late] {
                if let Some(count) = counts.remove(was) {
                    counts.insert(name.to_owned(), count);
                }
            }
        }
        let deliveries = Deliveries::new(opening.publishers);
        let outputs = Self {
            fresh_rows: vec![0; windows.len()],
            emitted: vec![Emitted::default(); windows.len()],
            shed: BTreeMap::new(),
            delivery_figures: deliveries.figures(),
            windows,
            sources: config.sources.iter().map(|source| source.name.clone()).collect(),
            results,
            joined,
            late,
            dead_letter,
            delivery: Arc::new(Mutex::new(Delivering { outputs: deliveries, permit: None })),
            counters,
            place: Place::default(),
            rejected: VecDeque::new(),
            strict: options.strict,
        };
        Ok((outputs, opening.reports))
    }

    /// Says where the next batch was read: from which partition, and where its text starts.
    pub(super) fn now_reading(&mut self, partition: &str, start: Position) {
        if self.place.partition != partition {
            let shed = self.shed.remove(partition).unwrap_or_default();
            let before = std::mem::replace(&mut self.place.partition, partition.to_owned());
            self.shed.insert(before, std::mem::replace(&mut self.place.shed, shed));
        }
        self.place.start = start;
    }

    /// Says which records of the next batch's text were rejected. They are taken in the order of records, with those
    /// that the watermark's bounds reject.
    pub(super) fn expect_rejected(&mut self, rejected: Vec<Rejected>) {
        self.rejected = rejected.into();
    }

    /// Takes the rejected records before `record`, or all.
    pub(super) fn reject_before(&mut self, record: Option<u64>) -> Result<()> {
        while let Some(first) = self.rejected.front()
            && record.is_none_or(|record| first.record < record)
        {
            if let Some(rejected) = self.rejected.pop_front() {
                self.reject(&rejected)?;
            }
        }
        Ok(())
    }

    /// Takes a rejected record: counted, written out, or with `strict` the end of the run.
    fn reject(&mut self, rejected: &Rejected) -> Result<()> {
        self.dead_letter(&DeadLetter {
            source: &self.place.partition.clone(),
            record: rejected.record,
            byte_offset: rejected.byte_offset,
            reason: rejected.reason.name(),
            field: rejected.field.as_deref(),
            detail: &rejected.detail,
            text: &rejected.text,
        })
    }

    fn dead_letter(&mut self, letter: &DeadLetter<'_>) -> Result<()> {
        if self.strict {
            let field = letter.field.map(|field| format!(" field={field}")).unwrap_or_default();
            let offset = letter.byte_offset.map(|offset| format!(" offset={offset}")).unwrap_or_default();
            let message = format!(
                "{}:{}: record rejected: {}{field}{offset} detail={}",
                letter.source, letter.record, letter.reason, letter.detail
            );
            return Err(Error::new(ErrorKind::Invalid, message).with_remedy(
                "mend the record, or run without --strict to set such records aside and go on",
            ));
        }
        *self.counters.rejected.entry(letter.reason.to_owned()).or_default() += 1;
        self.place.shed.rejected += 1;
        match &mut self.dead_letter {
            Some(sink) => sink.write(letter),
            None => Ok(()),
        }
    }

    /// Makes everything written so far durable as the output of `epoch`. Returns what the manifest has to name: what
    /// waits from earlier epochs, then this one's.
    pub(super) fn stage(&mut self, epoch: u64) -> Result<Vec<StagedOutput>> {
        for (window, rows) in self.windows.iter().zip(&mut self.fresh_rows) {
            *self.counters.results.entry(window.clone()).or_default() += std::mem::take(rows);
        }
        let results = self.results.iter_mut().map(|sink| &mut **sink as &mut dyn Sink);
        let joined = self.joined.iter_mut().map(|sink| &mut **sink as &mut dyn Sink);
        let late = self.late.iter_mut().map(|sink| sink as &mut dyn Sink);
        let dead_letter = self.dead_letter.iter_mut().map(|sink| sink as &mut dyn Sink);
        // No checkpoint is under way, so nobody else is at it.
        let mut staged = lock(&self.delivery).outputs.waiting().to_vec();
        for sink in results.chain(joined).chain(late).chain(dead_letter) {
            staged.extend(sink.stage(epoch)?);
        }
        Ok(staged)
    }

    /// What to do with the permit of the checkpoint that holds `staged`.
    pub(super) fn publication(&self, staged: Vec<StagedOutput>) -> AfterPublish {
        let delivery = Arc::clone(&self.delivery);
        Box::new(move |permit| {
            let mut delivery = lock(&delivery);
            delivery.permit = Some(permit.clone());
            delivery.outputs.publish(staged, permit)
        })
    }

    /// After the last checkpoint: delivers what still waits. A run that was told to stop tries once, one that has
    /// completed keeps trying for a while.
    pub(super) fn deliver_rest(&self, patient: bool) -> Result<()> {
        let mut delivery = lock(&self.delivery);
        let Some(permit) = delivery.permit.clone() else { return Ok(()) };
        if patient {
            return delivery.outputs.insist(0, &permit);
        }
        let waiting = delivery.outputs.waiting().to_vec();
        if waiting.is_empty() { Ok(()) } else { delivery.outputs.publish(waiting, &permit) }
    }

    /// Result rows of a window or join so far, the current epoch included.
    pub(super) fn rows_of(&self, operator: usize) -> u64 {
        let staged = self.windows.get(operator).and_then(|name| self.counters.results.get(name));
        staged.copied().unwrap_or(0) + self.fresh_rows.get(operator).copied().unwrap_or(0)
    }

    /// What this run has emitted of a window or join.
    pub(super) fn emitted(&self, operator: usize) -> Emitted {
        self.emitted.get(operator).copied().unwrap_or_default()
    }

    /// What of a partition this run counted nowhere.
    pub(super) fn shed(&self, partition: &str) -> Shed {
        match self.place.partition == partition {
            true => self.place.shed,
            false => self.shed.get(partition).copied().unwrap_or_default(),
        }
    }

    /// Most epochs of one sink that wait to be delivered, and rows of all that wait.
    pub(super) fn waiting(&self) -> (u64, u64) {
        self.delivery_figures.waiting()
    }

    /// Result rows so far, the current epoch included.
    pub(super) fn rows(&self) -> u64 {
        self.counters.results_total() + self.fresh_rows.iter().sum::<u64>()
    }
}

/// The publishing halves, on the checkpoint's thread, and the newest permit they were given.
#[derive(Debug)]
struct Delivering {
    outputs: Deliveries,
    permit: Option<Published>,
}

fn lock(delivery: &Mutex<Delivering>) -> MutexGuard<'_, Delivering> {
    // What was delivered is noted where it was delivered to; a panic in between loses nothing.
    delivery.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The newest epoch of which any output was published, as far as the directories tell; 0 for none.
pub(super) fn newest_published(config: &PipelineConfig) -> u64 {
    let outputs = config.windows.iter().map(|window| &window.output.path);
    let outputs = outputs.chain(config.joins.iter().map(|join| &join.output.path));
    let directories = outputs.chain(&config.late).chain(&config.dead_letter);
    directories.map(|directory| newest_published_in(directory)).max().unwrap_or(0)
}

/// Refuses what the outputs of the pipeline would refuse, while none of them is touched yet, nor anything else.
pub(super) fn approve(
    config: &PipelineConfig,
    ahead: AheadPolicy,
    options: RunOptions,
    candidate: &Candidate<'_>,
) -> Result<()> {
    let mut staged =
        candidate.manifest.map_or(Ok(Vec::new()), |manifest| staged_outputs(config, manifest))?;
    if options.accept_lost_output {
        places::give_up(&places(config), &mut staged)?;
    }
    let last_epoch = candidate.manifest.map_or(0, |manifest| manifest.epoch);
    let from = RestoredOutput { staged: &staged, last_epoch, newest_epoch: candidate.newest_epoch, ahead };
    // A generation that is still to come is above that of everybody.
    let generation = candidate.generation.unwrap_or(u64::MAX);
    refuse_misfits(config, SinkContext { lineage: candidate.lineage.0, generation }, from)
}

/// What the checkpoint had staged for the outputs, and how many rows of it are nowhere any more and given up.
fn due(
    config: &PipelineConfig,
    manifest: Option<&Manifest>,
    options: RunOptions,
) -> Result<(Vec<StagedOutput>, u64)> {
    let mut staged = manifest.map_or(Ok(Vec::new()), |manifest| staged_outputs(config, manifest))?;
    if !options.accept_lost_output {
        return Ok((staged, 0));
    }
    let lost = places::give_up(&places(config), &mut staged)?;
    for (output, rows) in &lost {
        tracing::warn!(
            %output, rows,
            "rows that the checkpoint had staged are not where they waited: the run goes on without them (a table may have \
             them)"
        );
    }
    Ok((staged, lost.iter().map(|(_, rows)| rows).sum()))
}

/// Collects the publishing halves while outputs are opened.
#[derive(Default)]
struct Opening {
    publishers: Vec<Box<dyn Publish>>,
    reports: Vec<RecoverReport>,
}

impl Opening {
    fn take<S>(&mut self, opened: Opened<S>) -> S {
        self.publishers.push(opened.publisher);
        self.reports.push(opened.report);
        opened.sink
    }

    /// Output that a checkpoint staged and that has nowhere to go.
    fn orphan<'s>(&self, staged: &'s [StagedOutput]) -> Option<&'s StagedOutput> {
        let known =
            |file: &StagedOutput| self.publishers.iter().any(|publisher| publisher.sink() == file.sink);
        staged.iter().find(|file| !known(file))
    }
}

/// Its rows would be lost.
fn refuse_orphan(orphan: &StagedOutput) -> Error {
    Error::new(
        ErrorKind::Incompatible,
        format!(
            "the checkpoint holds output for a sink that the pipeline no longer has: sink={} rows={}",
            orphan.sink, orphan.rows
        ),
    )
    .with_remedy("put the output back into the pipeline file and run once; then it can be removed")
}

/// Old names of windows that nothing else has now, each with the new one.
fn renamed(config: &PipelineConfig) -> impl Iterator<Item = (&str, &str)> {
    let taken = |name: &str| {
        config.windows.iter().any(|window| window.name == name)
            || config.joins.iter().any(|join| join.name == name)
    };
    let windows = config.windows.iter();
    windows
        .filter_map(|window| Some((window.renames.was.as_deref()?, window.name.as_str())))
        .filter(move |(was, _)| !taken(was))
}

/// What the checkpoint staged; that of windows which have another name now under the new one.
pub(super) fn staged_outputs(config: &PipelineConfig, manifest: &Manifest) -> Result<Vec<StagedOutput>> {
    let staged = manifest.staged.iter().map(|staged| {
        let mut names =
            renamed(config).map(|(was, name)| (format!("results.{was}"), format!("results.{name}")));
        match names.find(|(was, _)| *was == staged.sink) {
            Some((_, name)) => Ok(renamed_staged(staged, &name)?),
            None => Ok(staged.clone()),
        }
    });
    staged.collect()
}

/// Counts rows on their way to a sink.
struct Counted<'a> {
    block: &'a mut dyn ResultBlock,
    rows: &'a mut u64,
}

impl ResultBlock for Counted<'_> {
    fn window(&self) -> crate::event_time::Window {
        self.block.window()
    }

    fn watermark(&self) -> crate::event_time::Watermark {
        self.block.watermark()
    }

    fn takes_back(&self) -> Option<crate::operator::RowKind> {
        self.block.takes_back()
    }

    fn next_row(&mut self) -> Option<crate::operator::ResultRow<'_>> {
        let row = self.block.next_row();
        *self.rows += u64::from(row.is_some());
        row
    }
}

impl Emit for Outputs {
    type Error = Error;

    fn results(&mut self, operator: usize, block: &mut dyn ResultBlock) -> Result<()> {
        let (Some(sink), Some(rows)) = (self.results.get_mut(operator), self.fresh_rows.get_mut(operator))
        else {
            return Err(Error::new(
                ErrorKind::Bug,
                format!("results of an unknown window: index={operator}"),
            ));
        };
        if let Some(emitted) = self.emitted.get_mut(operator) {
            emitted.firings += u64::from(block.takes_back().is_none());
        }
        sink.write(&mut Counted { block, rows })
    }

    fn late(&mut self, operator: usize, event: LateEvent<'_>) -> Result<()> {
        let (Some(window), Some(emitted)) = (self.windows.get(operator), self.emitted.get_mut(operator))
        else {
            return Ok(());
        };
        emitted.late_by_ms_max = emitted.late_by_ms_max.max(Some(event.late_by_ms));
        self.place.shed.late += 1;
        match self.counters.late.get_mut(window) {
            Some(count) => *count += 1,
            None => {
                self.counters.late.insert(window.clone(), 1);
            }
        }
        match &mut self.late {
            Some(sink) => sink.write(window, &self.place.partition, Some(self.place.start.bytes), &event),
            None => Ok(()),
        }
    }

    fn joined(&mut self, operator: usize, row: &JoinedRow<'_>) -> Result<()> {
        let sink = operator.checked_sub(self.results.len()).and_then(|index| self.joined.get_mut(index));
        let (Some(sink), Some(rows)) = (sink, self.fresh_rows.get_mut(operator)) else {
            return Err(Error::new(ErrorKind::Bug, format!("row of an unknown join: index={operator}")));
        };
        *rows += 1;
        sink.write(row)
    }

    fn duplicates(&mut self, source: SourceId, _: &EventBatch, indexes: &[u32]) -> Result<()> {
        if let Some(name) = self.sources.get(usize::from(source.0)) {
            *self.counters.duplicates.entry(name.clone()).or_default() += indexes.len() as u64;
        }
        Ok(())
    }

    fn rejected(&mut self, batch: &EventBatch, index: usize, rejection: Rejection) -> Result<()> {
        self.reject_before(batch.records.get(index).copied())?;
        // Counted as an event by the caller; it is a rejected record after all.
        self.counters.events = self.counters.events.saturating_sub(1);
        let span = batch.spans.get(index);
        self.dead_letter(&DeadLetter {
            source: &self.place.partition.clone(),
            record: batch.records.get(index).copied().unwrap_or(0),
            byte_offset: span.map(|span| self.place.start.bytes + u64::from(span.start)),
            reason: rejection.name(),
            field: None,
            detail: &match batch.times.get(index).copied() {
                Some(millis) => format!("{} {rejection}: ms={millis}", EventTime::from_millis(millis)),
                None => rejection.to_string(),
            },
            text: batch.text_of(index).as_deref().unwrap_or_default(),
        })
    }
}
