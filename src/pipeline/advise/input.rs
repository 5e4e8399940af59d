//! The input, read from its beginning as often as needed: the same blocks as a run reads, in the same order, cut into
//! pieces after which panes are looked at.

use std::sync::Arc;

use super::measure::Meter;
use super::rehearsal::Rehearsal;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Advance, EventBatch, Mode, PartitionId};
use crate::pipeline::assemble;
use crate::pipeline::config::PipelineConfig;
use crate::pipeline::source::{Block, FileSource, PartitionInfo};
use crate::pipeline::task::refuse_own_files;

/// The input of a pipeline.
pub(super) struct Input<'a> {
    config: &'a PipelineConfig,
    clock: Arc<dyn Clock>,
    events_max: u64,
    memory_bytes_max: u64,
}

/// What one reading of the input met.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    pub(super) events: u64,
    pub(super) rejected: u64,
    pub(super) filtered: u64,
    pub(super) complete: bool,
}

/// What takes part in one reading of the input.
pub(super) struct Pass<'p> {
    pub(super) rehearsals: &'p mut [Rehearsal],
    /// Measures how late events are, by what the first rehearsal believes.
    pub(super) meter: Option<&'p mut Meter>,
    /// Events between two looks at the panes.
    pub(super) look_events: u64,
    /// Is told how many events were read, block by block.
    pub(super) progress: &'p mut dyn FnMut(u64),
}

impl<'a> Input<'a> {
    pub(super) fn new(
        config: &'a PipelineConfig,
        clock: Arc<dyn Clock>,
        events_max: u64,
        memory_bytes_max: u64,
    ) -> Self {
        Self { config, clock, events_max, memory_bytes_max }
    }

    /// The files, from their beginning.
    ///
    /// # Errors
    /// Those of a run: missing files, missing columns, files of the pipeline's own.
    pub(super) fn open(&self) -> Result<FileSource> {
        let (plans, _) = assemble::operators(self.config);
        let source = FileSource::open(&self.config.sources, plans, &[], Arc::clone(&self.clock))?;
        let source = match self.config.watermark.advance {
            Advance::Event => source,
            Advance::Batch => source.in_batches(self.config.watermark.batch_records, 0),
        };
        let source = source.leaving_unended_lines(!self.config.watermark.close_at_end);
        refuse_own_files(self.config, &source)?;
        Ok(source)
    }

    /// Reads `source` to its end, or to as many events as the sample may have.
    ///
    /// # Errors
    /// Those of the source; `Invalid` when the rehearsed panes take more memory than they may.
    pub(super) fn read(&self, mut source: FileSource, mut pass: Pass<'_>) -> Result<Met> {
        let mut met = Met::default();
        let mut batch_lines = 0;
        let mut recycled = None;
        let mut piece = None;
        while let Some(block) = source.next_block(recycled.take())? {
            met.rejected += block.rejected.len() as u64;
            met.filtered += block.filtered_records.len() as u64;
            let whole = self.events(&block, &mut met, &mut pass, &mut piece)?;
            self.refuse_size(pass.rehearsals)?;
            (pass.progress)(met.events);
            if !whole {
                return Ok(met);
            }
            end_of_partition(&block, source.partitions(), &mut pass)?;
            batch_lines += block.lines;
            if self.config.watermark.advance == Advance::Batch && block.end_of_batch {
                batch_lines = 0;
                pass.rehearsals.iter_mut().try_for_each(Rehearsal::end_batch)?;
            }
            recycled = Some(block);
        }
        self.end_last_batches(batch_lines, pass.rehearsals)?;
        met.complete = true;
        Ok(met)
    }

    /// The events of a block, piece by piece. False when the sample is full before its end.
    fn events(
        &self,
        block: &Block,
        met: &mut Met,
        pass: &mut Pass<'_>,
        piece: &mut Option<EventBatch>,
    ) -> Result<bool> {
        let batch = &block.batch;
        let piece = piece.get_or_insert_with(|| batch.empty_like());
        if piece.source != batch.source || piece.keys.len() != batch.keys.len() {
            *piece = batch.empty_like();
        }
        piece.partition = batch.partition;
        let mut from = 0;
        while from < batch.len() {
            let look = pass.look_events - met.events % pass.look_events;
            let room = look.min(self.events_max - met.events);
            if room == 0 {
                return Ok(false);
            }
            let until = batch.len().min(from + usize::try_from(room).unwrap_or(usize::MAX));
            piece.clear();
            piece.append_events(batch, from..until);
            pass.rehearsals.iter_mut().try_for_each(|rehearsal| rehearsal.take(piece))?;
            if let (Some(meter), Some(first)) = (&mut pass.meter, pass.rehearsals.first()) {
                let wall = self.clock.wall_millis();
                met.rejected += first.rejected().len() as u64;
                meter.observe(piece.partition.0 as usize, &piece.times, first.rejected(), wall);
            }
            met.events += (until - from) as u64;
            from = until;
        }
        Ok(true)
    }

    fn refuse_size(&self, rehearsals: &[Rehearsal]) -> Result<()> {
        let bytes: u64 = rehearsals.iter().map(Rehearsal::memory_bytes).sum();
        if bytes <= self.memory_bytes_max {
            return Ok(());
        }
        let message = format!(
            "the panes of {} delays at once take more memory than they may: bytes={bytes} bytes_max={}",
            rehearsals.len(),
            self.memory_bytes_max
        );
        Err(Error::new(ErrorKind::Invalid, message).with_remedy(
            "allow more with --memory, look at fewer events with --events, or name fewer --delays",
        ))
    }

    /// As a run does at the end of its input.
    fn end_last_batches(&self, batch_lines: u64, rehearsals: &mut [Rehearsal]) -> Result<()> {
        if self.config.watermark.advance == Advance::Event {
            return Ok(());
        }
        if batch_lines > 0 {
            rehearsals.iter_mut().try_for_each(Rehearsal::end_batch)?;
        }
        let repeats = self.config.windows.iter().all(|window| window.mode == Mode::Complete);
        let due = rehearsals.iter_mut().filter(|rehearsal| !repeats && rehearsal.batch_is_due());
        due.into_iter().try_for_each(Rehearsal::end_batch)
    }
}

fn end_of_partition(block: &Block, infos: &[PartitionInfo], pass: &mut Pass<'_>) -> Result<()> {
    if !block.end_of_partition {
        return Ok(());
    }
    let Some(PartitionId(ended)) = block.end_of_watermark else { return Ok(()) };
    if let Some(meter) = &mut pass.meter {
        meter.finish(ended as usize);
    }
    debug_assert!((ended as usize) < infos.len(), "a block ends a partition that there is");
    pass.rehearsals.iter_mut().try_for_each(|rehearsal| rehearsal.finish_partition(PartitionId(ended)))
}
