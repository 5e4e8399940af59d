//! An operator alone, with a sorted map for the state database: fast enough for very many histories, and every pane
//! can be moved out of memory at any time.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use floodmark::aggregate::{PayloadError, RowMut, RowRef};
use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::{EventTime, Watermark};
use floodmark::operator::{
    Advance, Emit, EventBatch, Marks, OperatorSpec, Panes, PartitionId, PartitionProgress, RowBuffer,
    SavedWatermarks, SourceId, SpillKind, Spilled, WatermarkTracker, WindowOperator,
};

use super::runner::{Backend as Face, Reader, Step, is_real};
use super::seen::{Seen, row};
use super::spec::{operator, span};
use crate::oracle::{Op, Row, Settings};

pub(super) struct Backend {
    settings: Settings,
    spec: OperatorSpec,
    operator: WindowOperator,
    tracker: WatermarkTracker,
    // Where operators that advance by batches will be at the end of the batch.
    batch_watermark: Watermark,
    panes: ModelPanes,
    now: Duration,
    durable: Option<Durable>,
}

/// What a checkpoint holds.
struct Durable {
    panes: ModelPanes,
    watermark: Watermark,
    partitions: Vec<PartitionProgress>,
    operator: Watermark,
    batch_watermark: Watermark,
}

impl Backend {
    /// # Errors
    /// Why the settings are refused.
    pub(super) fn new(settings: &Settings, ops: &[Op]) -> Result<Self, String> {
        let spec = operator(settings, is_real(ops))?;
        Ok(Self {
            operator: WindowOperator::new(0, spec.clone()),
            tracker: tracker(settings)?,
            settings: settings.clone(),
            spec,
            batch_watermark: from_1970(Watermark::None),
            panes: ModelPanes::default(),
            now: Duration::ZERO,
            durable: None,
        })
    }

    fn advance(&mut self, watermark: Watermark, seen: &mut Seen) -> Result<(), String> {
        if self.spec.advance == Advance::Batch && watermark != Watermark::End {
            return Ok(());
        }
        words(self.operator.advance(watermark, &mut self.panes, seen))
    }

    /// Takes up the stored panes, window by window; every other one stays outside of memory where that is allowed.
    fn restore_panes(&mut self) -> Result<(), String> {
        let mut windows: BTreeMap<EventTime, RowBuffer> = BTreeMap::new();
        for ((end, key), payload) in &self.panes.0 {
            let rows = windows.entry(*end).or_insert_with(|| RowBuffer::new(self.operator.layout()));
            words(rows.push_payload(key, payload).map_err(damaged))?;
        }
        for (index, (end, rows)) in windows.iter().enumerate() {
            if self.operator.is_expired(*end) {
                continue;
            }
            let resident = index % 2 == 0 || self.operator.needs_resident_panes();
            self.operator.restore_window(*end, resident.then_some(rows));
        }
        Ok(())
    }
}

fn tracker(settings: &Settings) -> Result<WatermarkTracker, String> {
    let idle = settings.idle_timeout_ms.map(|millis| Duration::from_millis(millis as u64));
    Ok(WatermarkTracker::new(span(settings.delay_ms)?, idle))
}

/// By batches, windows that end by 1970 are closed from the start.
fn from_1970(watermark: Watermark) -> Watermark {
    watermark.max(Watermark::At(EventTime::from_millis(0)))
}

impl Face for Backend {
    fn open(&mut self, _: &[Reader]) -> Result<(), String> {
        self.operator = WindowOperator::new(0, self.spec.clone());
        self.tracker = tracker(&self.settings)?;
        self.panes = ModelPanes::default();
        self.batch_watermark = from_1970(Watermark::None);
        if self.spec.advance == Advance::Batch {
            self.operator.restore(self.batch_watermark);
        }
        let Some(durable) = &self.durable else { return Ok(()) };
        let partitions = durable.partitions.iter().map(|&progress| (SourceId::default(), progress));
        let saved = SavedWatermarks {
            task: durable.watermark,
            sources: vec![durable.watermark],
            partitions: partitions.collect(),
        };
        self.tracker.restore(saved, self.now);
        self.batch_watermark = durable.batch_watermark;
        self.panes = durable.panes.clone();
        self.operator.restore(durable.operator);
        self.restore_panes()
    }

    fn die(&mut self) {}

    fn add_partition(&mut self, partition: usize, _: Reader) -> Result<(), String> {
        if self.tracker.partitions().len() == partition {
            self.tracker.add_partition(self.now);
        }
        Ok(())
    }

    fn process(&mut self, batch: &EventBatch, seen: &mut Seen) -> Result<(), String> {
        self.tracker.touch(batch.partition, self.now);
        let mut marks = Marks::default();
        marks.observe(&mut self.tracker, slice::from_ref(&self.operator), batch);
        for &(index, rejection) in marks.rejected() {
            words(seen.rejected(batch, index as usize, rejection))?;
        }
        words(self.operator.process(batch, &marks, &mut self.panes, seen))
    }

    fn tick(&mut self, now_ms: i64, backlog: &BTreeMap<usize, u64>, seen: &mut Seen) -> Result<(), String> {
        self.now = self.now.max(Duration::from_millis(now_ms as u64));
        let unread = |partition: PartitionId| backlog.get(&(partition.0 as usize)).is_some_and(|n| *n > 0);
        let watermark = self.tracker.tick(self.now, unread);
        self.advance(watermark, seen)?;
        words(self.operator.tick(EventTime::from_millis(now_ms), &mut self.panes, seen))
    }

    fn finish_partition(&mut self, partition: usize, seen: &mut Seen) -> Result<(), String> {
        let watermark = self.tracker.finish(PartitionId(partition as u32));
        self.advance(watermark, seen)
    }

    fn end_of_input(&mut self, seen: &mut Seen) -> Result<(), String> {
        let watermark = self.tracker.end();
        self.advance(watermark, seen)
    }

    fn end_batch(&mut self, seen: &mut Seen) -> Result<(), String> {
        let reached = std::mem::replace(&mut self.batch_watermark, from_1970(self.tracker.current()));
        words(self.operator.end_batch(reached, &mut self.panes, seen))
    }

    fn checkpoint(&mut self, _: &[Reader]) -> Result<(), String> {
        self.spill(Step::SpillDirty)?;
        let operator = &self.operator;
        self.panes.0.retain(|(end, _), _| !operator.is_expired(*end));
        self.durable = Some(Durable {
            panes: self.panes.clone(),
            watermark: self.tracker.current(),
            partitions: self.tracker.partitions().collect(),
            operator: self.operator.watermark(),
            batch_watermark: self.batch_watermark,
        });
        Ok(())
    }

    fn spill(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::SpillLargest => {
                if let Some(spilled) = self.operator.spill_largest() {
                    words(self.panes.take_in(&self.operator, &spilled))?;
                }
            }
            Step::SpillAll => {
                while let Some(spilled) = self.operator.spill_largest() {
                    words(self.panes.take_in(&self.operator, &spilled))?;
                }
            }
            _ => {
                for spilled in self.operator.spill_dirty() {
                    words(self.panes.take_in(&self.operator, &spilled))?;
                }
            }
        }
        Ok(())
    }

    fn watermark(&self) -> Watermark {
        self.tracker.current()
    }

    fn batch_watermark(&self) -> Watermark {
        self.batch_watermark
    }

    /// Panes left, wherever they are: written out first, then put together from the pieces that windows share.
    fn state(&mut self) -> Result<Option<Vec<Row>>, String> {
        self.spill(Step::SpillDirty)?;
        let mut windows: BTreeMap<(EventTime, EventTime, Vec<u8>), RowBuffer> = BTreeMap::new();
        for ((end, key), payload) in &self.panes.0 {
            if self.operator.is_expired(*end) {
                continue;
            }
            let mut piece = RowBuffer::new(self.operator.layout());
            words(piece.push_payload(key, payload).map_err(damaged))?;
            let stored = self.operator.stored_window(*end, piece.row(0).words());
            let holding = match self.spec.shares_slices() {
                true => self.spec.windows.windows_of(stored.start).collect(),
                false => vec![stored],
            };
            let watermark = self.operator.watermark();
            for window in holding.into_iter().filter(|window| !self.is_gone(window.end, watermark)) {
                let whole = windows.entry((window.end, window.start, key.clone())).or_insert_with(|| {
                    let mut whole = RowBuffer::new(self.operator.layout());
                    whole.push_identity(key);
                    whole
                });
                whole.row_mut(0).merge(piece.row(0));
            }
        }
        let rows = windows.iter().map(|((end, start, key), whole)| {
            let mut values = Vec::new();
            whole.row(0).finish(&mut values);
            row(key, start.as_millis(), end.as_millis(), &values)
        });
        Ok(Some(rows.filter(|row| row.count > 0).collect()))
    }
}

impl Backend {
    fn is_gone(&self, end: EventTime, watermark: Watermark) -> bool {
        self.spec.mode != floodmark::operator::Mode::Complete
            && watermark.expired(end, self.spec.allowed_lateness)
    }
}

/// Keeps evicted panes in a sorted map, as the state database would.
#[derive(Clone, Default)]
struct ModelPanes(BTreeMap<(EventTime, Vec<u8>), Vec<u8>>);

impl ModelPanes {
    fn take_in(&mut self, operator: &WindowOperator, spilled: &Spilled) -> Result<(), Error> {
        for index in 0..spilled.rows.len() {
            let pane = (spilled.end(index), spilled.rows.key(index).to_vec());
            if spilled.kind == SpillKind::Delete {
                self.0.remove(&pane);
                continue;
            }
            let mut together = RowBuffer::new(operator.layout());
            together.push(&pane.1, spilled.rows.row(index));
            if let (SpillKind::Merge, Some(before)) = (spilled.kind, self.0.get(&pane)) {
                let mut stored = RowBuffer::new(operator.layout());
                stored.push_payload(&pane.1, before).map_err(damaged)?;
                together.row_mut(0).merge(stored.row(0));
            }
            self.0.insert(pane, payload(together.row(0)));
        }
        Ok(())
    }
}

impl Panes for ModelPanes {
    type Error = Error;

    fn load(&mut self, _: usize, end: EventTime, key: &[u8], mut row: RowMut<'_>) -> Result<bool, Error> {
        let Some(found) = self.0.get(&(end, key.to_vec())) else { return Ok(false) };
        row.read_payload(found).map_err(damaged)?;
        Ok(true)
    }

    fn scan(
        &mut self,
        _: usize,
        end: EventTime,
        after: Option<&[u8]>,
        limit: usize,
        rows: &mut RowBuffer,
    ) -> Result<(), Error> {
        let of_window = self.0.iter().filter(|((window, _), _)| *window == end);
        let from_key = of_window.filter(|((_, key), _)| after.is_none_or(|after| key.as_slice() > after));
        from_key
            .take(limit)
            .try_for_each(|((_, key), payload)| rows.push_payload(key, payload).map_err(damaged))
    }

    fn put(&mut self, _: usize, end: EventTime, rows: RowBuffer) -> Result<(), Error> {
        for index in 0..rows.len() {
            self.0.insert((end, rows.key(index).to_vec()), payload(rows.row(index)));
        }
        Ok(())
    }
}

fn payload(row: RowRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.write_payload(&mut bytes);
    bytes
}

fn damaged(error: PayloadError) -> Error {
    Error::new(ErrorKind::Damaged, error.to_string())
}

fn words<T>(result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}
