//! Our own outputs keep the laws; outputs that break one are found out, each by the law that it breaks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::super::tests::{concatenated, numbers, spec};
use super::super::{Format, ResultSink, ResultSpec};
use super::*;
use crate::error::{Error, ErrorKind};

/// A directory of files.
struct Files {
    root: TempDir,
    format: Format,
}

impl Trial for Files {
    type Output = ResultSpec;

    fn output(&self) -> ResultSpec {
        spec(self.root.path(), self.format)
    }

    fn write(&self, sink: &mut ResultSink, range: Range<u32>) -> Result<()> {
        sink.write(&mut numbers(range))
    }

    fn visible(&self) -> Result<Vec<u32>> {
        #[cfg(feature = "parquet")]
        if self.format == Format::Parquet {
            return Ok(super::super::parquet::tests::numbers_in(self.root.path()));
        }
        let text = concatenated(self.root.path());
        let digits = |line: &str| -> String {
            let last = line.trim_end_matches('}').rsplit([',', ':']).next().unwrap_or_default();
            last.to_owned()
        };
        Ok(text.lines().filter_map(|line| digits(line).parse().ok()).collect())
    }
}

#[test]
fn directories_of_every_format_keep_the_laws() {
    let mut formats = vec![Format::Jsonl, Format::Csv];
    if cfg!(feature = "parquet") {
        formats.push(Format::Parquet);
    }
    for format in formats {
        let kept = check(|| Files { root: TempDir::new().unwrap(), format });
        assert_eq!(kept, Ok(()), "{format:?}");
    }
}

/// What an output does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    VisibleAtStage,
    DropsTheLastRow,
    Doubles,
    LosesStaged,
    KeepsUnstaged,
    IgnoresPermits,
    IgnoresGenerations,
    IgnoresWhatIsAhead,
    IgnoresOwners,
    StagesAnEpochTwice,
    BelievesAnyHandle,
    ForgetsTheOrder,
}

/// A place in memory.
#[derive(Debug, Default)]
struct Place {
    visible: Vec<u32>,
    staged: BTreeMap<(u64, u64), Vec<u32>>,
    unstaged: Vec<u32>,
    published: u64,
    owner: Option<SinkContext>,
}

#[derive(Clone, Debug)]
struct Memory {
    flaw: Flaw,
    place: Arc<Mutex<Place>>,
}

#[derive(Debug)]
struct Half {
    memory: Memory,
    context: SinkContext,
    rows: Vec<u32>,
    last: u64,
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Incompatible, what)
}

impl Half {
    /// Epoch and generation, twice, so that damage shows.
    fn key(&self, staged: &StagedOutput) -> Result<(u64, u64)> {
        let text = String::from_utf8_lossy(&staged.handle).into_owned();
        let (one, two) = text.split_once('|').unwrap_or((&text, "nothing"));
        if one != two && self.memory.flaw != Flaw::BelievesAnyHandle {
            return Err(refused("damaged"));
        }
        let (epoch, generation) = one.split_once('-').unwrap_or(("1", "1"));
        Ok((epoch.parse().unwrap_or(1), generation.parse().unwrap_or(1)))
    }

    fn settle(&self, staged: &StagedOutput) -> Result<()> {
        let flaw = self.memory.flaw;
        let (epoch, generation) = self.key(staged)?;
        let mut place = self.memory.place.lock().unwrap();
        let newer = place.owner.is_some_and(|owner| owner.generation > self.context.generation);
        if newer && flaw != Flaw::IgnoresGenerations {
            return Err(refused("fenced"));
        }
        if epoch <= place.published && flaw != Flaw::Doubles {
            return Ok(());
        }
        let mut rows = place.staged.get(&(epoch, generation)).cloned().unwrap_or_default();
        if flaw == Flaw::DropsTheLastRow {
            rows.pop();
        }
        if flaw == Flaw::ForgetsTheOrder {
            rows.reverse();
        }
        place.visible.extend(rows);
        place.published = place.published.max(epoch);
        Ok(())
    }
}

impl Output for Memory {
    type Sink = Half;

    fn open(self, context: SinkContext, restored: Restored<'_>) -> Result<Opened<Half>> {
        let flaw = self.flaw;
        {
            let mut place = self.place.lock().unwrap();
            if let Some(owner) = place.owner {
                if owner.lineage != context.lineage && flaw != Flaw::IgnoresOwners {
                    return Err(refused("foreign"));
                }
                if owner.generation > context.generation && flaw != Flaw::IgnoresGenerations {
                    return Err(refused("fenced"));
                }
            }
            if place.published > restored.last_epoch && flaw != Flaw::IgnoresWhatIsAhead {
                return Err(refused("ahead"));
            }
            place.owner = Some(context);
            if flaw == Flaw::LosesStaged {
                place.staged.clear();
            }
        }
        let rows = match flaw {
            Flaw::KeepsUnstaged => std::mem::take(&mut self.place.lock().unwrap().unstaged),
            _ => Vec::new(),
        };
        let half = |rows| Half { memory: self.clone(), context, rows, last: restored.last_epoch };
        let (sink, publisher) = (half(rows), half(Vec::new()));
        let mut due: Vec<_> = restored.staged.iter().filter(|staged| staged.sink == "memory").collect();
        due.sort_by_key(|staged| publisher.key(staged).unwrap_or_default());
        due.into_iter().try_for_each(|staged| publisher.settle(staged))?;
        Ok(Opened { sink, publisher: Box::new(publisher), report: Default::default() })
    }
}

impl Sink for Half {
    fn name(&self) -> &str {
        "memory"
    }

    fn stage(&mut self, epoch: u64) -> Result<Option<StagedOutput>> {
        let flaw = self.memory.flaw;
        if epoch <= self.last && flaw != Flaw::StagesAnEpochTwice {
            return Err(refused("twice"));
        }
        self.last = epoch;
        let mut place = self.memory.place.lock().unwrap();
        place.unstaged.clear();
        if self.rows.is_empty() {
            return Ok(None);
        }
        let rows = std::mem::take(&mut self.rows);
        if flaw == Flaw::VisibleAtStage {
            place.visible.extend(&rows);
        }
        let count = rows.len() as u64;
        place.staged.insert((epoch, self.context.generation), rows);
        let text = format!("{epoch}-{}", self.context.generation);
        let handle = format!("{text}|{text}").into_bytes();
        Ok(Some(StagedOutput { sink: "memory".to_owned(), handle, rows: count, bytes: count }))
    }
}

impl Publish for Half {
    fn sink(&self) -> &str {
        "memory"
    }

    fn publish(&mut self, staged: &StagedOutput, permit: &dyn PublishPermit) -> Result<Delivery> {
        if self.key(staged)?.0 > permit.epoch() && self.memory.flaw != Flaw::IgnoresPermits {
            return Err(refused("not permitted"));
        }
        self.settle(staged)?;
        Ok(Delivery::Done)
    }
}

impl Trial for Memory {
    type Output = Self;

    fn output(&self) -> Self {
        self.clone()
    }

    fn write(&self, sink: &mut Half, numbers: Range<u32>) -> Result<()> {
        self.place.lock().unwrap().unstaged.extend(numbers.clone());
        sink.rows.extend(numbers);
        Ok(())
    }

    fn visible(&self) -> Result<Vec<u32>> {
        Ok(self.place.lock().unwrap().visible.clone())
    }
}

fn tried(flaw: Flaw) -> Result<(), String> {
    check(|| Memory { flaw, place: Arc::default() })
}

#[test]
fn an_output_without_flaw_keeps_the_laws() {
    assert_eq!(tried(Flaw::None), Ok(()));
}

#[test]
fn each_flaw_is_found_and_named_by_its_law() {
    let laws = [
        (Flaw::VisibleAtStage, "invisible until published"),
        (Flaw::DropsTheLastRow, "invisible until published"),
        (Flaw::ForgetsTheOrder, "invisible until published"),
        (Flaw::Doubles, "idempotent"),
        (Flaw::LosesStaged, "durable"),
        (Flaw::KeepsUnstaged, "forgotten"),
        (Flaw::IgnoresPermits, "permitted"),
        (Flaw::IgnoresGenerations, "fenced"),
        (Flaw::IgnoresWhatIsAhead, "ahead"),
        (Flaw::IgnoresOwners, "owned"),
        (Flaw::StagesAnEpochTwice, "ordered"),
        (Flaw::BelievesAnyHandle, "checked"),
    ];
    for (flaw, law) in laws {
        let broken = tried(flaw).unwrap_err();
        assert!(broken.starts_with(law), "{flaw:?} was found as: {broken}");
    }
}
