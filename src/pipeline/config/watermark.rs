//! The `[watermark]` table and what a source may say differently: how event time advances, which times are believed.
//!
//! Plain data; the rules themselves are the operator's.

use super::reader::{Item, Section};
use crate::error::Result;
use crate::event_time::{EventTime, Span};
pub use crate::operator::Policy;
use crate::operator::{Advance, Bounds, Strategy};

/// How far ahead of the clock an event of a live source may be unless the file says otherwise.
const LIVE_MAX_AHEAD_MS: i64 = 300_000;

/// How event time advances over all sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatermarkConfig {
    /// How the watermarks of several sources become one.
    pub policy: Policy,
    /// After so much silence of all partitions the watermark goes on with the clock.
    pub idle_advance: Option<Span>,
    /// Whether the end of a bounded input closes every window.
    pub close_at_end: bool,
    /// How the watermark reaches the windows.
    pub advance: Advance,
    /// Input records per batch, where it advances by batches.
    pub batch_records: u32,
}

/// How event time advances in one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceWatermark {
    /// What its event times say.
    pub strategy: WatermarkStrategy,
    /// After so much silence of the wall clock a partition no longer holds the watermark back.
    pub idle_timeout: Option<Span>,
}

/// What event times say about those still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatermarkStrategy {
    /// Nothing.
    None,
    /// Events come at most so far behind the latest one.
    Bounded(Span),
    /// Events of a partition come in order.
    Monotone,
    /// A field of some events holds the watermark.
    Punctuated {
        /// The field, written as the event time is.
        field: String,
    },
}

impl WatermarkStrategy {
    /// The same without the name of the field.
    #[must_use]
    pub const fn strategy(&self) -> Strategy {
        match self {
            Self::None => Strategy::None,
            Self::Bounded(delay) => Strategy::Bounded(*delay),
            Self::Monotone => Strategy::Monotone,
            Self::Punctuated { .. } => Strategy::Punctuated,
        }
    }
}

/// What the `[watermark]` table says, before it is known what the sources say.
pub(super) struct Defaults<'a> {
    pub(super) config: WatermarkConfig,
    pub(super) strategy: Option<WatermarkStrategy>,
    pub(super) idle_timeout: Option<Span>,
    bounds: BoundsSpec,
    // Settings that need a watermark somewhere.
    dependent: Vec<Item<'a>>,
}

const STRATEGY_KEYS: [&str; 4] = ["strategy", "delay", "field", "idle_timeout"];
const TABLE_KEYS: [&str; 10] = [
    "strategy",
    "delay",
    "field",
    "idle_timeout",
    "close_at_end",
    "policy",
    "idle_advance",
    "bounds",
    "advance",
    "batch_records",
];
/// Records of a batch unless the file says otherwise.
const BATCH_RECORDS: u32 = 10_000;
/// The keys of bounds, here and in `source.time`.
pub(super) const BOUNDS_KEYS: [&str; 4] = ["min", "max", "max_ahead", "max_ahead_of_partitions"];

/// Reads the `[watermark]` table.
pub(super) fn read<'a>(root: &mut Section<'a>) -> Result<Defaults<'a>> {
    let config = WatermarkConfig {
        policy: Policy::Min,
        idle_advance: None,
        close_at_end: true,
        advance: Advance::Event,
        batch_records: BATCH_RECORDS,
    };
    let mut defaults = Defaults {
        config,
        strategy: None,
        idle_timeout: None,
        bounds: BoundsSpec::default(),
        dependent: Vec::new(),
    };
    let Some(item) = root.take("watermark") else { return Ok(defaults) };
    let mut section = item.section(&TABLE_KEYS)?;
    defaults.strategy = read_strategy(&mut section)?;
    if let Some(item) = section.take("idle_timeout") {
        defaults.idle_timeout = Some(item.positive_span()?);
        defaults.dependent.push(item);
    }
    if let Some(item) = section.take("idle_advance") {
        defaults.config.idle_advance = Some(item.positive_span()?);
        defaults.dependent.push(item);
    }
    if let Some(item) = section.take("policy") {
        defaults.config.policy = item.choice(&[("min", Policy::Min), ("max", Policy::Max)])?;
    }
    defaults.config.close_at_end = section.take("close_at_end").map_or(Ok(true), |item| item.boolean())?;
    let choices = [("event", Advance::Event), ("batch", Advance::Batch)];
    if let Some(item) = section.take("advance") {
        defaults.config.advance = item.choice(&choices)?;
    }
    if let Some(item) = section.take("batch_records") {
        if defaults.config.advance == Advance::Event {
            let remedy = "remove it, or add `advance = \"batch\"`";
            return Err(item.error("has no effect: the watermark advances with each event", remedy));
        }
        defaults.config.batch_records = item.count()?;
    }
    if let Some(item) = section.take("bounds") {
        defaults.bounds = BoundsSpec::read(&mut item.section(&BOUNDS_KEYS)?)?;
    }
    Ok(defaults)
}

impl Defaults<'_> {
    /// Refuses settings that need a watermark when no source has one.
    pub(super) fn check(&self, any: bool) -> Result<()> {
        match self.dependent.first() {
            Some(item) if !any => {
                let remedy = "add watermark.delay, or remove this setting";
                Err(item.error("has no effect without a watermark", remedy))
            }
            _ => Ok(()),
        }
    }

    /// What holds for a source, whose own table is `item`.
    pub(super) fn of_source(&self, item: Option<Item<'_>>) -> Result<SourceWatermark> {
        let inherited = self.strategy.clone().unwrap_or(WatermarkStrategy::None);
        let mut watermark = SourceWatermark { strategy: inherited, idle_timeout: self.idle_timeout };
        let Some(item) = item else { return Ok(watermark) };
        let mut section = item.section(&STRATEGY_KEYS)?;
        if let Some(strategy) = read_strategy(&mut section)? {
            watermark.strategy = strategy;
        }
        if let Some(item) = section.take("idle_timeout") {
            watermark.idle_timeout = Some(item.positive_span()?);
            if watermark.strategy == WatermarkStrategy::None {
                let remedy = "add a delay or another strategy, or remove idle_timeout";
                return Err(item.error("has no effect without a watermark", remedy));
            }
        }
        Ok(watermark)
    }

    /// The bounds of a source: what its own `time` table says, else what `watermark.bounds` says, else that live
    /// sources are guarded against wrong clocks. `own` is the table, for a message.
    pub(super) fn bounds_of(&self, own: BoundsSpec, table: &Section<'_>, live: bool) -> Result<TimeBounds> {
        let max_ahead = own.max_ahead.or(self.bounds.max_ahead);
        let by_default = live && max_ahead.is_none();
        let bounds = Bounds {
            min: own.min.or(self.bounds.min),
            max: own.max.or(self.bounds.max),
            max_ahead: match max_ahead {
                Some(MaxAhead::Off) => None,
                Some(MaxAhead::By(span)) => Some(span),
                None if live => Span::from_millis(LIVE_MAX_AHEAD_MS),
                None => None,
            },
            max_ahead_of_partitions: own.max_ahead_of_partitions.or(self.bounds.max_ahead_of_partitions),
        };
        match (bounds.min, bounds.max) {
            (Some(min), Some(max)) if min > max => Err(table.error(
                format!("the latest time believed, {max}, is before the earliest, {min}"),
                "change `min` or `max`, here or in watermark.bounds",
            )),
            _ => Ok(TimeBounds { bounds, max_ahead_by_default: by_default }),
        }
    }
}

/// Which event times of a source are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeBounds {
    /// The bounds.
    pub bounds: Bounds,
    /// The bound against the clock is there because the source is live, not because the file says so.
    pub max_ahead_by_default: bool,
}

/// Bounds as one table gives them.
#[derive(Clone, Copy, Default)]
pub(super) struct BoundsSpec {
    min: Option<EventTime>,
    max: Option<EventTime>,
    max_ahead: Option<MaxAhead>,
    max_ahead_of_partitions: Option<Span>,
}

#[derive(Clone, Copy)]
enum MaxAhead {
    Off,
    By(Span),
}

impl BoundsSpec {
    /// Takes the keys of bounds from a table.
    pub(super) fn read(section: &mut Section<'_>) -> Result<Self> {
        let min = section.take("min").map(|item| read_instant(&item)).transpose()?;
        let max_item = section.take("max");
        let max = max_item.as_ref().map(read_instant).transpose()?;
        if let (Some(min), Some(max), Some(item)) = (min, max, &max_item)
            && min > max
        {
            return Err(item.error("max is before min, so no time would be believed", "swap the two"));
        }
        let max_ahead = section.take("max_ahead").map(|item| read_max_ahead(&item)).transpose()?;
        let partitions = section.take("max_ahead_of_partitions").map(|item| item.span()).transpose()?;
        Ok(Self { min, max, max_ahead, max_ahead_of_partitions: partitions })
    }
}

fn read_max_ahead(item: &Item<'_>) -> Result<MaxAhead> {
    match item.is_text() && item.text()? == "off" {
        true => Ok(MaxAhead::Off),
        false => item.span().map(MaxAhead::By),
    }
}

fn read_instant(item: &Item<'_>) -> Result<EventTime> {
    let text = item.text()?;
    let instant: jiff::Timestamp = text.parse().map_err(|error| {
        let message = format!("\"{text}\" is not a time: {error}");
        item.error(message, "write RFC 3339 with an offset, such as \"2000-01-01T00:00:00Z\"")
    })?;
    Ok(EventTime::from_millis(instant.as_millisecond()))
}

#[derive(Clone, Copy, PartialEq)]
enum Word {
    Bounded,
    Monotone,
    Punctuated,
    None,
}

/// Reads `strategy`, `delay` and `field`, which go together; `None` when none of them is given.
fn read_strategy(section: &mut Section<'_>) -> Result<Option<WatermarkStrategy>> {
    let words = [
        ("bounded", Word::Bounded),
        ("monotone", Word::Monotone),
        ("punctuated", Word::Punctuated),
        ("none", Word::None),
    ];
    let (word, delay, field) = (section.take("strategy"), section.take("delay"), section.take("field"));
    if word.is_none() && delay.is_none() && field.is_none() {
        return Ok(None);
    }
    let word = word.map_or(Ok(Word::Bounded), |item| item.choice(&words))?;
    if let (Some(item), true) = (&delay, word != Word::Bounded) {
        let remedy = "remove the delay, or set `strategy = \"bounded\"`";
        return Err(item.error("belongs to `strategy = \"bounded\"`", remedy));
    }
    if let (Some(item), true) = (&field, word != Word::Punctuated) {
        let remedy = "remove the field, or set `strategy = \"punctuated\"`";
        return Err(item.error("belongs to `strategy = \"punctuated\"`", remedy));
    }
    Ok(Some(match (word, delay, field) {
        (Word::Bounded, Some(delay), _) => WatermarkStrategy::Bounded(delay.span()?),
        (Word::Bounded, None, _) => {
            let remedy = "add `delay = \"15m\"` (how far out of order events may come)";
            return Err(section.error("a bounded watermark needs a delay", remedy));
        }
        (Word::Punctuated, _, Some(field)) => WatermarkStrategy::Punctuated { field: field.name()? },
        (Word::Punctuated, _, None) => {
            let remedy = "add `field = \"watermark\"`, the field that holds the watermark";
            return Err(section.error("a punctuated watermark needs the name of its field", remedy));
        }
        (Word::Monotone, ..) => WatermarkStrategy::Monotone,
        (Word::None, ..) => WatermarkStrategy::None,
    }))
}
