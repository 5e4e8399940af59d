//! What an explanation consists of, as plain data. How it looks to people is for the command.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::event_time::{EventTime, Span, Watermark, Window};
use crate::inspect::{Aggregates, Key, Origin, as_optional_text, as_text};
use crate::operator::{Advance, PaneKind};

/// The life of a window or a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What is explained.
    pub head: Head,
    /// What happened, in order, at most as many frames as were asked for.
    pub frames: Vec<Frame>,
    /// How it ends.
    pub end: End,
}

impl Explanation {
    /// The parts, in order: as JSON lines, the head, the frames and the end have `frame` to tell them apart.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let frames = self.frames.iter().map(Part::Frame);
        std::iter::once(Part::Head(&self.head)).chain(frames).chain([Part::End(&self.end)])
    }
}

/// One part of an explanation.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Part<'a> {
    /// The first part.
    Head(&'a Head),
    /// One of those in between.
    Frame(&'a Frame),
    /// The last part.
    End(&'a End),
}

/// What is explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "frame", rename = "head")]
pub struct Head {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the windowed aggregation.
    pub window: String,
    /// Others of the pipeline, when none was asked for by name.
    pub other_windows: Vec<String>,
    /// Its windows in words.
    pub windows: String,
    /// How long after its end a window still takes events.
    #[serde(serialize_with = "as_text")]
    pub allowed_lateness: Span,
    /// When it fires, in words.
    pub fires: String,
    /// True when firings by the wall clock are among these, which cannot be told again.
    pub fires_by_clock: bool,
    /// How the watermark reaches it.
    pub advance: Advance,
    /// The sources of the pipeline; together they make the watermark.
    pub sources: Vec<SourceRule>,
    /// Names of the key fields.
    pub key_fields: Vec<String>,
    /// The key; `None` for all keys of one window, or when no event came.
    pub key: Option<Key>,
    /// The key is the first one that was seen, not one that was asked for.
    pub key_chosen: bool,
    /// Start of the window, when only one is explained.
    #[serde(serialize_with = "as_optional_text")]
    pub start: Option<EventTime>,
    /// The checkpoint that it starts from.
    pub checkpoint: Option<Origin>,
    /// How often the pipeline was started over its state, where that may matter: several files are told from their
    /// beginning in the order of a single run, and those that came or grew between runs were read in another one.
    pub starts: Option<u64>,
}

/// A source, and how its watermark comes about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceRule {
    /// Its name.
    pub name: String,
    /// The rule in words.
    pub watermark: String,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Frame {
    /// What.
    #[serde(flatten)]
    pub what: What,
    /// The watermark that windows had reached before it.
    #[serde(serialize_with = "as_text")]
    pub watermark_before: Watermark,
    /// And after it.
    #[serde(serialize_with = "as_text")]
    pub watermark_after: Watermark,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// A pane, or a part of one, as the checkpoint holds it.
    Restored(RestoredFrame),
    /// An event.
    Event(EventFrame),
    /// A record that cannot become an event.
    Rejected(RejectedFrame),
    /// A record that a filter passed over.
    Filtered(RecordFrame),
    /// An event whose id came before and is still remembered: no window sees it, but it moves the watermark.
    Duplicate(RecordFrame),
    /// Records in a row that are of no concern here, but for the watermark.
    Others(OthersFrame),
    /// A partition was read to its end, which moved the watermark.
    PartitionEnd {
        /// The partition.
        partition: String,
    },
    /// A batch ended, where the watermark advances by batches.
    BatchEnd {
        /// The watermark of its events: windows reach it at the end of the next batch.
        #[serde(serialize_with = "as_text")]
        events_reach: Watermark,
    },
    /// The input ended, and with it every window.
    InputEnd,
    /// The watermark reached the end of a window.
    Closed {
        /// The window.
        #[serde(serialize_with = "as_bounds")]
        window: Window,
        /// It takes no more events.
        expired: bool,
    },
    /// A result was emitted.
    Firing(FiringFrame),
    /// A closed window takes no more late events.
    Expired {
        /// The window.
        #[serde(serialize_with = "as_bounds")]
        window: Window,
        /// Its end and the allowed lateness.
        #[serde(serialize_with = "as_text")]
        limit: EventTime,
    },
}

/// A pane as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestoredFrame {
    /// Its window, or the slice that windows share.
    #[serde(serialize_with = "as_bounds")]
    pub window: Window,
    /// It is a slice that windows share.
    pub slice: bool,
    /// Its key.
    pub key: Key,
    /// Its events.
    pub events: u64,
    /// Its aggregates so far.
    pub values: Aggregates,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventFrame {
    /// Its partition.
    pub partition: String,
    /// The line that it starts on.
    pub line: u64,
    /// Its event time.
    #[serde(serialize_with = "as_text")]
    pub time: EventTime,
    /// Its key; absent when its source is not read here.
    pub key: Option<Key>,
    /// What the aggregates read of it.
    pub values: Aggregates,
    /// It is not of the key or window that is explained; only what it did to the watermark counts.
    pub other: bool,
    /// The windows that took it.
    pub accepted: Vec<Accepted>,
    /// The windows that it came too late for.
    pub late: Vec<TooLate>,
    /// No window took it, and it went to the late events.
    pub dropped: bool,
    /// By batches: the watermark of the events so far.
    #[serde(serialize_with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub events_reach: Option<Watermark>,
}

/// A window that took an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// The window; of sessions, with the event in it.
    #[serde(serialize_with = "as_bounds")]
    pub window: Window,
    /// It had been closed: the event is late and still allowed.
    pub after_close: bool,
    /// The sessions that the event fell into, extended or joined; none when it opened one.
    #[serde(serialize_with = "as_list_of_bounds", skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<Window>,
}

/// A window that an event came too late for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TooLate {
    /// The window.
    #[serde(serialize_with = "as_bounds")]
    pub window: Window,
    /// The watermark up to which it took events: its end and the allowed lateness.
    #[serde(serialize_with = "as_text")]
    pub limit: EventTime,
    /// How far the watermark was past the limit; `None` after the end of the input.
    #[serde(serialize_with = "as_optional_text")]
    pub by: Option<Span>,
}

/// A record that cannot become an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RejectedFrame {
    /// Where it stands.
    #[serde(flatten)]
    pub record: RecordFrame,
    /// The reason, as in the dead-letter output.
    pub reason: String,
    /// What exactly.
    pub detail: String,
}

/// A record that is no event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordFrame {
    /// Its partition.
    pub partition: String,
    /// The line that it starts on.
    pub line: u64,
    /// The beginning of its text.
    pub text: String,
}

/// Records in a row that are of no concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OthersFrame {
    /// Events.
    pub events: u64,
    /// Rejected records.
    pub rejected: u64,
    /// Records that a filter passed over.
    pub filtered: u64,
    /// Events whose id came before.
    pub duplicates: u64,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FiringFrame {
    /// Its window.
    #[serde(serialize_with = "as_bounds")]
    pub window: Window,
    /// Its key.
    pub key: Key,
    /// Early, on time or late.
    #[serde(serialize_with = "as_pane")]
    pub pane: PaneKind,
    /// 0 for the first emission of this pane.
    pub pane_index: u32,
    /// It takes an earlier result back: the one with these values.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub takes_back: bool,
    /// Its aggregates.
    pub values: Aggregates,
}

/// How an explanation ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "frame", rename = "end")]
pub struct End {
    /// The watermark that windows have reached, before the end of the input closed them.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// Whether the end of the input then closed every window.
    pub closed_by_end: bool,
    /// What was counted.
    pub counts: Counts,
    /// Frames that are left out because there are more than were asked for.
    pub frames_left_out: u64,
    /// Why a window was not closed by the watermark, when one was not: the first of them to end.
    pub waiting: Option<Waiting>,
}

/// What was counted, frames left out included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Events of the key or window that is explained.
    pub events: u64,
    /// Of them, those that a window took.
    pub accepted: u64,
    /// Of them, those that no window took because they were late.
    pub dropped: u64,
    /// All other events.
    pub other_events: u64,
    /// Rejected records, whatever they are about.
    pub rejected: u64,
    /// Records that a filter passed over, whatever they are about.
    pub filtered: u64,
    /// Events whose id came before, whatever they are about.
    pub duplicates: u64,
    /// Results.
    pub firings: u64,
    /// Windows that were closed.
    pub closed: u64,
}

/// Why a window is not closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The window.
    #[serde(serialize_with = "as_bounds")]
    pub window: Window,
    /// How many more are open.
    pub more: u64,
    /// The watermark that closes it: its end.
    #[serde(serialize_with = "as_text")]
    pub needs: EventTime,
    /// The watermark that windows have reached.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// Nothing but the end of the input closes it.
    pub never: bool,
    /// By batches: the watermark of the events so far, which windows reach later.
    #[serde(serialize_with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub events_reach: Option<Watermark>,
    /// The partition that the watermark stands at.
    pub slowest: Option<Holder>,
    /// Partitions that hold nothing back because they are silent.
    pub idle: Vec<String>,
    /// Partitions that hold nothing back because they were read to their end.
    pub finished: u64,
}

/// The partition that the watermark stands at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The partition.
    pub partition: String,
    /// Its source.
    pub source: String,
    /// Latest event time in it.
    #[serde(serialize_with = "as_optional_text")]
    pub max_time: Option<EventTime>,
    /// How far its watermark stays behind, where that is so.
    #[serde(serialize_with = "as_optional_text")]
    pub delay: Option<Span>,
    /// Its own watermark.
    #[serde(serialize_with = "as_text")]
    pub watermark: Watermark,
    /// It holds the watermark back; otherwise it is the latest of those that no longer do.
    pub holds_back: bool,
}

fn as_bounds<S: Serializer>(window: &Window, serializer: S) -> Result<S::Ok, S::Error> {
    let mut bounds = serializer.serialize_struct("Window", 2)?;
    bounds.serialize_field("start", &window.start.to_string())?;
    bounds.serialize_field("end", &window.end.to_string())?;
    bounds.end()
}

fn as_list_of_bounds<S: Serializer>(windows: &[Window], serializer: S) -> Result<S::Ok, S::Error> {
    struct Bounds<'a>(&'a Window);
    impl Serialize for Bounds<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            as_bounds(self.0, serializer)
        }
    }
    serializer.collect_seq(windows.iter().map(Bounds))
}

fn as_pane<S: Serializer>(pane: &PaneKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(pane.name())
}
