//! The files of all sources as a stream of parsed blocks: which file is next, where it was left, what its records say.
//!
//! [`FileSource`] chooses and resumes; `files` lists, `input` decompresses, `partition` cuts blocks, `crew` shares their
//! parsing among threads, `json` and `csv` find fields, `row` makes events of them; `parquet` reads row groups, and
//! `columnar` makes events of columns. The order of blocks depends on positions and event times alone, so a resumed run
//! reads exactly as the uninterrupted one.

mod block;
#[cfg(feature = "arrow")]
pub mod columnar;
mod crew;
mod csv;
mod files;
#[cfg(feature = "fault-injection")]
pub(crate) mod fuzzing;
mod input;
mod json;
mod number;
#[cfg(feature = "parquet")]
mod parquet;
mod partition;
mod plan;
mod reject;
mod rfc3339;
mod row;
mod survey;
mod time;
mod token;

use std::io::Read;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::EventTime;
use crate::open_files;
use crate::operator::{Bounds, Limits as BlockBounds, PartitionId, SourceId};
use crate::pipeline::config::{Compression, Format, Partitioning, SourceConfig};

#[cfg(feature = "parquet")]
pub use self::parquet::BLOCK_ROWS;
pub use crate::checkpoint::{Position, SourceIdentity};
pub use block::{Block, RestOfBlock};
pub use files::STDIN_NAME;
pub use partition::{BLOCK_BYTES, RECORD_BYTES_MAX};
pub use plan::{EventColumns, ParsePlan, ValueField, WindowColumns};
pub use reject::{REJECTED_TEXT_BYTES_MAX, RejectReason, Rejected};
pub use row::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use survey::{Survey, survey};

use block::Records;
use crew::Crew;
use csv::Columns;
use partition::{CHOICES, CHOICES_OF_STREAM, Exact, Limits, Parsers, Partition, Wanted};
use row::RowReader;

/// Files kept open at a time, or an eighth of what the process may open. Beyond it the one that waited longest is closed; it is opened again in its turn.
const OPEN_FILES_MAX: u32 = 64;

/// How far a partition was read, as a checkpoint remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionResume {
    /// The partition's name.
    pub name: String,
    /// Its source.
    pub source: SourceId,
    /// Where reading goes on.
    pub position: Position,
    /// By what the file is recognised; `None` while nothing was read of standard input.
    pub identity: Option<SourceIdentity>,
    /// It was read to its end.
    pub finished: bool,
    /// Latest event time read so far.
    pub max_time: Option<EventTime>,
}

/// A partition as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// What a checkpoint must remember.
    pub resume: PartitionResume,
    /// The partition under whose watermark its events count.
    pub watermark: PartitionId,
    /// It had been read to its end, and has grown since: reading goes on.
    pub has_grown: bool,
}

/// One source: how its records are read.
#[derive(Debug)]
struct Feed {
    rows: RowReader,
    // For threads that help.
    others: Vec<RowReader>,
    partitioning: Partitioning,
    bounds: Bounds,
}

/// The files of a pipeline, read block by block.
///
/// The next block comes from the partition with the lowest event time so far (one that was never read counts as
/// lowest, ties go by the order of the sources and then by name), so that a backlog of files is read in the order of
/// its events, whichever sources they belong to. Files of a source that is read as one stand in with its latest time.
#[derive(Debug)]
pub struct FileSource {
    feeds: Vec<Feed>,
    partitions: Vec<Partition>,
    infos: Vec<PartitionInfo>,
    clock: Arc<dyn Clock>,
    stdin: Stdin,
    blocks: u64,
    limits: Limits,
    batches: Option<Batches>,
    leaves_unended: bool,
    crew: Option<Crew>,
    // The partition, by index, and the bytes or rows of a block that a checkpoint was made in the middle of.
    rest: Option<(usize, Exact)>,
}

/// Batches of so many lines, and how many lines of the current one were read.
#[derive(Clone, Copy, Debug)]
struct Batches {
    size: u64,
    done: u64,
}

/// Standard input, until it is opened.
struct Stdin(Option<Box<dyn Read + Send>>);

impl std::fmt::Debug for Stdin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stdin({})", if self.0.is_some() { "waiting" } else { "taken" })
    }
}

/// Refuses sources whose files have no header and whose `columns` lack a field that the plan needs.
///
/// # Errors
/// `Invalid`, with the place of the source.
pub(super) fn check_columns(configs: &[SourceConfig], plans: &[ParsePlan]) -> Result<()> {
    configs.iter().zip(plans).try_for_each(|(config, plan)| records_of(config, &plan.fields()).map(drop))
}

impl FileSource {
    /// Finds the files of each source and goes on where `resume` says; `plans` has one plan per source. Files that it
    /// does not name are read from their beginning; those that it says were finished may have gone.
    ///
    /// # Errors
    /// `Unavailable` when there is no file or one cannot be read, `Incompatible` when one is not what it was,
    /// `Invalid` when a CSV file lacks a column, or when two sources name one file.
    pub fn open(
        configs: &[SourceConfig],
        plans: Vec<ParsePlan>,
        resume: &[PartitionResume],
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Self::open_with_stdin(configs, plans, resume, clock, Box::new(std::io::stdin()))
    }

    /// As [`FileSource::open`], with a stream that stands for standard input.
    ///
    /// # Errors
    /// As [`FileSource::open`].
    pub fn open_with_stdin(
        configs: &[SourceConfig],
        plans: Vec<ParsePlan>,
        resume: &[PartitionResume],
        clock: Arc<dyn Clock>,
        stdin: Box<dyn Read + Send>,
    ) -> Result<Self> {
        let (mut feeds, mut partitions, mut records) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (config, plan)) in configs.iter().zip(plans).enumerate() {
            let rows = RowReader::new(plan);
            records.push(records_of(config, &rows.fields)?);
            for file in files::list(config)? {
                partitions.push(fresh(file, index, config, &records[index]));
            }
            let (partitioning, bounds) = (config.partitioning, config.time.bounds.bounds);
            feeds.push(Feed { rows, others: Vec::new(), partitioning, bounds });
        }
        refuse_shared(&partitions, configs)?;
        for known in resume {
            if !partitions.iter().any(|partition| partition.name == known.name) {
                refuse_renamed(known, &partitions, resume)?;
                partitions.push(gone(known, &records)?);
            }
        }
        partitions.sort_by(|a, b| (a.source, &a.name).cmp(&(b.source, &b.name)));
        let limits = Limits { block_bytes: BLOCK_BYTES, record_bytes: RECORD_BYTES_MAX };
        let stdin = Stdin(Some(stdin));
        let infos = Vec::with_capacity(partitions.len());
        let mut source = Self {
            feeds,
            partitions,
            infos,
            clock,
            stdin,
            blocks: 0,
            limits,
            batches: None,
            leaves_unended: false,
            crew: None,
            rest: None,
        };
        source.recognise(resume)?;
        Ok(source)
    }

    /// Lets blocks end where batches of `lines` lines over all partitions end, `done` lines of the first were read
    /// before. A row over several lines belongs to the batch that it begins in.
    #[must_use]
    pub fn in_batches(mut self, lines: u32, done: u64) -> Self {
        self.batches = Some(Batches { size: u64::from(lines), done });
        self
    }

    /// Lets so many threads help to parse blocks, which say the same as without.
    ///
    /// # Errors
    /// `Unavailable` when a thread cannot be started.
    pub fn with_helpers(mut self, helpers: usize) -> Result<Self> {
        self.crew = if helpers > 0 { Some(Crew::start(helpers)?) } else { None };
        Ok(self)
    }

    /// With `grows`, files may be written to while they are read: a last line without a line end stays unread, and
    /// reading goes on before it next time ([`Block::unended_bytes`]). Without, it counts as a record. Compressed files
    /// and standard input are at their end when they end.
    #[must_use]
    pub fn leaving_unended_lines(mut self, grows: bool) -> Self {
        self.leaves_unended = grows;
        self
    }

    /// Reads the rest of a block first that a checkpoint was made in the middle of: all goes on as if it had been read in
    /// one piece.
    #[must_use]
    pub fn with_rest_of_block(mut self, block: &RestOfBlock) -> Self {
        let index = self.partitions.iter().position(|known| known.name == block.partition && !known.finished);
        let length = usize::try_from(block.rest).unwrap_or(usize::MAX);
        self.rest = index.map(|index| (index, Exact { length, ends: block.ends }));
        self
    }

    /// Brings every partition to where it was left, and checks that its file still is the same.
    fn recognise(&mut self, resume: &[PartitionResume]) -> Result<()> {
        let by_name: std::collections::HashMap<&str, &PartitionResume> =
            resume.iter().map(|known| (known.name.as_str(), known)).collect();
        let leaders: Vec<usize> = (0..self.partitions.len()).map(|index| self.leader_of(index)).collect();
        for (partition, leader) in self.partitions.iter_mut().zip(leaders) {
            let known = by_name.get(partition.name.as_str()).copied();
            let has_grown = recognise(partition, known)?;
            let needs_check = match partition.records {
                Records::Csv { header, .. } => header,
                Records::JsonLines => false,
                // Columns of other types are refused before anything is read.
                #[cfg(feature = "parquet")]
                Records::Parquet => true,
            };
            if needs_check && !partition.finished && partition.path.is_some() {
                partition.open(&self.feeds[partition.source].rows, None)?;
                partition.reader = None;
            }
            let watermark = partition_id(leader);
            self.infos.push(PartitionInfo { resume: resume_of(partition), watermark, has_grown });
        }
        Ok(())
    }

    /// The partition whose watermark the one at `index` counts under.
    fn leader_of(&self, index: usize) -> usize {
        let source = self.partitions[index].source;
        match self.feeds[source].partitioning {
            Partitioning::File => index,
            // They are in the order of their sources.
            Partitioning::Single => self.partitions.partition_point(|partition| partition.source < source),
        }
    }

    /// All partitions in the order of their sources and names, as they stand after the last block.
    #[must_use]
    pub fn partitions(&self) -> &[PartitionInfo] {
        &self.infos
    }

    /// The files, as the pipeline names them, each with its source.
    pub fn paths(&self) -> impl Iterator<Item = (SourceId, &std::path::Path)> {
        let known =
            self.partitions.iter().map(|partition| (source_id(partition.source), partition.path.as_deref()));
        known.filter_map(|(source, path)| Some((source, path?)))
    }

    /// Reads the next block, into the memory of one that is no longer needed; `None` when everything was read.
    ///
    /// # Errors
    /// `Unavailable` when a file cannot be read, `Invalid` when a compressed one is damaged: after all that could be
    /// read was handed out. Calling again tries the same place again.
    pub fn next_block(&mut self, recycled: Option<Block>) -> Result<Option<Block>> {
        let rest = self.rest.take();
        let Some(index) = rest.map(|(index, _)| index).or_else(|| self.choose()) else { return Ok(None) };
        self.bound_open_files(index);
        let bounds = self.bounds_of(index);
        let partition = &mut self.partitions[index];
        let (source, feed) = (partition.source, &mut self.feeds[partition.source]);
        partition.leaves_unended = self.leaves_unended && partition.path.is_some() && partition.may_grow();
        if partition.reader.is_none() {
            let stdin = if partition.path.is_none() { self.stdin.0.take() } else { None };
            partition.open(&feed.rows, stdin)?;
        }
        self.blocks += 1;
        partition.last_used = self.blocks;
        let mut block = recycled.unwrap_or_default();
        block.clear();
        feed.rows.prepare(&mut block.batch);
        feed.rows.set_limits(bounds);
        let lines_max = self.batches.map(|batches| batches.size.saturating_sub(batches.done).max(1));
        let wanted = Wanted { lines_max, exact: rest.map(|(_, exact)| exact) };
        let parsers = Parsers { rows: &mut feed.rows, others: &mut feed.others, crew: self.crew.as_mut() };
        partition.next_block(parsers, &mut block, self.limits, wanted)?;
        if let Some(batches) = &mut self.batches {
            batches.done += block.lines;
            block.end_of_batch = batches.done >= batches.size;
            batches.done = if block.end_of_batch { 0 } else { batches.done };
        }
        self.infos[index].resume = resume_of(partition);
        block.partition = partition_id(index);
        block.identity = partition.identity;
        block.batch.partition = self.infos[index].watermark;
        block.batch.source = source_id(source);
        let last = match self.feeds[source].partitioning {
            Partitioning::File => block.end_of_partition,
            Partitioning::Single => self.of_source(source).all(|partition| partition.finished),
        };
        block.end_of_watermark = last.then_some(block.batch.partition);
        Ok(Some(block))
    }

    fn of_source(&self, source: usize) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(move |partition| partition.source == source)
    }

    /// Which times are believed in the next block of a partition: the rule that the watermark has for its batches,
    /// applied before a wrong time can change the order in which files are read.
    fn bounds_of(&self, index: usize) -> BlockBounds {
        let source = self.partitions[index].source;
        let feed = &self.feeds[source];
        let others = self.partitions.iter().enumerate().filter(|(other, partition)| {
            *other != index
                && partition.source == source
                && !partition.finished
                && feed.partitioning == Partitioning::File
        });
        let reached = others.filter_map(|(_, partition)| partition.max_time);
        feed.bounds.limits(Some(self.clock.wall_millis()), reached)
    }

    fn choose(&self) -> Option<usize> {
        let mut best: Option<(Option<EventTime>, usize)> = None;
        let mut single_seen = vec![false; self.feeds.len()];
        for (index, partition) in self.partitions.iter().enumerate().filter(|(_, next)| !next.finished) {
            let source = partition.source;
            let reached = match self.feeds[source].partitioning {
                Partitioning::File => partition.max_time,
                Partitioning::Single if std::mem::replace(&mut single_seen[source], true) => continue,
                Partitioning::Single => {
                    self.of_source(source).map(|partition| partition.max_time).max().flatten()
                }
            };
            if best.is_none_or(|(least, _)| reached < least) {
                best = Some((reached, index));
            }
        }
        best.map(|(_, index)| index)
    }

    fn bound_open_files(&mut self, next: usize) {
        if self.partitions[next].reader.is_some() {
            return;
        }
        let open = self.partitions.iter_mut().filter(|partition| partition.reader.is_some());
        let mut open: Vec<&mut Partition> = open.collect();
        if open.len() >= open_files::share(OPEN_FILES_MAX, 8) as usize
            && let Some(oldest) = open.iter_mut().min_by_key(|partition| partition.last_used)
        {
            oldest.reader = None;
        }
    }
}

fn partition_id(index: usize) -> PartitionId {
    // The number of files is bounded far below.
    PartitionId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn source_id(index: usize) -> SourceId {
    // So is that of sources.
    SourceId(u16::try_from(index).unwrap_or(u16::MAX))
}

/// A file that was not read yet.
fn fresh(file: files::Named, source: usize, config: &SourceConfig, records: &Records) -> Partition {
    let by_name = |path: &std::path::PathBuf| Compression::of_path(path);
    let told = || file.path.as_ref().map_or(Compression::None, by_name);
    Partition {
        source,
        compression: config.compression.unwrap_or_else(told),
        name: file.name,
        path: file.path,
        position: Position::default(),
        identity: None,
        finished: false,
        max_time: None,
        records: records.clone(),
        reader: None,
        mid_line: false,
        // Until it is read nobody has said that the file is whole.
        leaves_unended: true,
        last_used: 0,
    }
}

/// Refuses a file that two sources name: positions are kept once for each.
fn refuse_shared(partitions: &[Partition], configs: &[SourceConfig]) -> Result<()> {
    let mut owners = std::collections::HashMap::new();
    for partition in partitions {
        if let Some(other) = owners.insert(partition.name.as_str(), partition.source) {
            let (first, second) = (&configs[other], &configs[partition.source]);
            let message = format!(
                "{}: sources \"{}\" and \"{}\" both read {}",
                second.declared_at, first.name, second.name, partition.name
            );
            let remedy = "let one source read it; several windows may read one source";
            return Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy));
        }
    }
    Ok(())
}

fn resume_of(partition: &Partition) -> PartitionResume {
    PartitionResume {
        name: partition.name.clone(),
        source: source_id(partition.source),
        position: partition.position,
        identity: partition.identity,
        finished: partition.finished,
        max_time: partition.max_time,
    }
}

fn records_of(config: &SourceConfig, fields: &[String]) -> Result<Records> {
    let csv = match (&config.csv, config.format) {
        (Some(csv), Format::Csv) => csv,
        #[cfg(feature = "parquet")]
        (_, Format::Parquet) => return Ok(Records::Parquet),
        #[cfg(not(feature = "parquet"))]
        (_, Format::Parquet) => {
            let message = format!("{}: this build reads no Parquet", config.declared_at);
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("build it with `--features parquet`, which is on unless turned off"));
        }
        _ => return Ok(Records::JsonLines),
    };
    let mut columns = Columns::default();
    if !csv.header {
        columns.slots =
            partition::slots(&csv.columns, fields).map_err(|problem| problem.about(&config.declared_at))?;
    }
    Ok(Records::Csv { delimiter: csv.delimiter, header: csv.header, columns })
}

/// Refuses a file that was read under another name, or that `path` spells in another way: it would count twice.
fn refuse_renamed(
    known: &PartitionResume,
    partitions: &[Partition],
    resume: &[PartitionResume],
) -> Result<()> {
    let Some(identity) = known.identity.filter(|identity| identity.head_bytes > 0) else { return Ok(()) };
    let is_new = |partition: &&Partition| resume.iter().all(|known| known.name != partition.name);
    for partition in partitions.iter().filter(is_new) {
        let Some(path) = &partition.path else { continue };
        let (found, _) = input::identify(path, None, partition.recognition())
            .map_err(|error| partition.unreadable(error))?;
        if found == identity {
            let message = format!(
                "an input file has another name than when it was read: was={} is={}",
                known.name, partition.name
            );
            let remedy =
                "give it its old name back and spell `path` as before, or start with a new state directory";
            return Err(Error::new(ErrorKind::Incompatible, message).with_remedy(remedy));
        }
    }
    Ok(())
}

/// A partition whose file no longer exists: fine when it was finished.
fn gone(known: &PartitionResume, records: &[Records]) -> Result<Partition> {
    if !known.finished {
        let message = format!(
            "an input file is gone before it was read to its end: name={} read_bytes={}",
            known.name, known.position.bytes
        );
        let remedy = if known.name == STDIN_NAME { CHOICES_OF_STREAM } else { CHOICES };
        return Err(Error::new(ErrorKind::Unavailable, message).with_remedy(remedy));
    }
    // Of a source that is gone as well, it counts for the first: finished, it holds nothing back.
    let source = Some(usize::from(known.source.0)).filter(|&source| source < records.len()).unwrap_or(0);
    Ok(Partition {
        source,
        name: known.name.clone(),
        path: None,
        compression: Compression::None,
        position: known.position,
        identity: known.identity,
        finished: true,
        max_time: known.max_time,
        records: records[source].clone(),
        reader: None,
        mid_line: false,
        leaves_unended: false,
        last_used: 0,
    })
}

/// Brings one partition to where it was left. Returns whether it had been finished and has grown since.
fn recognise(partition: &mut Partition, known: Option<&PartitionResume>) -> Result<bool> {
    if let Some(known) = known {
        partition.position = known.position;
        partition.identity = known.identity;
        partition.finished = known.finished;
        partition.max_time = known.max_time;
    }
    let Some(path) = partition.path.clone() else {
        // Only reading it again tells whether a stream is the same and goes on.
        partition.finished &= partition.name != STDIN_NAME;
        return Ok(false);
    };
    // Of a file that was not read yet nothing can have changed.
    let expected = partition.identity.filter(|_| partition.position.bytes > 0);
    let (identity, same) = input::identify(&path, expected, partition.recognition())
        .map_err(|error| partition.unreadable(error))?;
    if !same {
        return Err(partition.replaced());
    }
    // A file that was short when it was first opened goes on being known by the little that there was.
    partition.identity = expected.or(Some(identity));
    if !partition.may_grow() {
        return Ok(false);
    }
    let length = path.metadata().map_err(|error| partition.unreadable(error))?.len();
    if length < partition.position.bytes {
        return Err(partition.shorter());
    }
    let has_grown = partition.finished && length > partition.position.bytes;
    partition.finished &= !has_grown;
    Ok(has_grown)
}

#[cfg(test)]
mod tests;
