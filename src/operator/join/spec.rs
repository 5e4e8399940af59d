//! What an interval join is asked to do, and the times at which its events are needed no more. Plain data.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::aggregate::InputType;
use crate::event_time::{EventTime, Span};
use crate::operator::SourceId;

/// A side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The source whose event times the interval is counted from.
    Left,
    /// The other.
    Right,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// Whether events that find no partner come out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JoinKind {
    /// Of neither side.
    #[default]
    Inner,
    /// Those of the left side.
    Left,
    /// Those of the right side.
    Right,
    /// Those of both.
    Full,
}

impl JoinKind {
    /// Lowercase name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inner => "inner",
            Self::Left => "left",
            Self::Right => "right",
            Self::Full => "full",
        }
    }

    /// True when events of `side` come out without a partner as well.
    #[must_use]
    pub const fn keeps(self, side: Side) -> bool {
        matches!((self, side), (Self::Full, _) | (Self::Left, Side::Left) | (Self::Right, Side::Right))
    }
}

/// A field of one side that goes into the rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JoinField {
    /// Name of its column in the rows.
    pub name: String,
    /// The input field.
    pub field: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: InputType,
    /// Index of the value column; a matter of one run, not of the definition.
    #[serde(skip)]
    pub column: usize,
}

/// One side of a join.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JoinInput {
    /// Name of its source.
    pub source: String,
    /// The fields of it that go into the rows.
    pub fields: Vec<JoinField>,
    /// The source by index, filled in by the store; a matter of one run.
    #[serde(skip)]
    pub source_id: SourceId,
    /// Index of its key column; a matter of one run.
    #[serde(skip)]
    pub key_column: usize,
}

impl JoinInput {
    /// A side that brings its key and its time, and no field yet.
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self { source: source.to_owned(), fields: Vec::new(), source_id: SourceId::default(), key_column: 0 }
    }

    /// Adds a field, which a program puts into value column `column` of its batches.
    #[must_use]
    pub fn field(mut self, name: &str, field: &str, kind: InputType, column: usize) -> Self {
        self.fields.push(JoinField { name: name.to_owned(), field: field.to_owned(), kind, column });
        self
    }
}

/// One interval join: pairs of events of two sources with one key, where
/// `left.time + from ≤ right.time ≤ left.time + to`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JoinSpec {
    /// Unique name.
    pub name: String,
    /// Names of the key fields, in order; empty to pair by time alone.
    pub key: Vec<String>,
    /// The left side.
    pub left: JoinInput,
    /// The right side.
    pub right: JoinInput,
    /// Least time from the left event to the right one, in milliseconds; negative where the right one may be earlier.
    pub from_ms: i64,
    /// Greatest time from the left event to the right one, in milliseconds.
    pub to_ms: i64,
    /// Whether events without partner come out.
    pub kind: JoinKind,
}

impl JoinSpec {
    /// An inner join of `left` and `right`.
    #[must_use]
    pub fn new(name: &str, key: &[&str], left: JoinInput, right: JoinInput, within_ms: (i64, i64)) -> Self {
        let key = key.iter().map(|&field| field.to_owned()).collect();
        let (from_ms, to_ms) = within_ms;
        Self { name: name.to_owned(), key, left, right, from_ms, to_ms, kind: JoinKind::Inner }
    }

    /// The same join of another kind.
    #[must_use]
    pub fn of_kind(mut self, kind: JoinKind) -> Self {
        self.kind = kind;
        self
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// What is wrong, as a sentence without a subject, for people.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.from_ms > self.to_ms {
            return Err("the interval ends before it begins");
        }
        if self.left.source == self.right.source {
            return Err("left and right are one source: every event would be its own partner");
        }
        let names: Vec<&str> = [&self.left, &self.right]
            .into_iter()
            .flat_map(|input| &input.fields)
            .map(|field| field.name.as_str())
            .chain(self.key.iter().map(String::as_str))
            .collect();
        match names.iter().enumerate().any(|(index, name)| names[..index].contains(name)) {
            true => Err("two columns of its rows have one name"),
            false => Ok(()),
        }
    }

    /// The side whose events `source` brings.
    #[must_use]
    pub fn side_of(&self, source: SourceId) -> Option<Side> {
        if self.left.source_id == source {
            Some(Side::Left)
        } else {
            (self.right.source_id == source).then_some(Side::Right)
        }
    }

    /// One of the sides.
    #[must_use]
    pub const fn input(&self, side: Side) -> &JoinInput {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }

    /// The watermark from which on an event of `side` at `time` takes no part any more: no event that is on time could
    /// be its partner, and the event itself would be late. `None` past the end of time.
    #[must_use]
    pub fn expiry(&self, side: Side, time: EventTime) -> Option<EventTime> {
        let reach = match side {
            Side::Left => self.to_ms.max(0),
            Side::Right => self.from_ms.saturating_neg().max(0),
        };
        let last = time.as_millis().checked_add(reach)?;
        last.checked_add(1).map(EventTime::from_millis)
    }

    /// Times of the partners of an event of `side` at `time`, first and last.
    #[must_use]
    pub fn partners(&self, side: Side, time: EventTime) -> (EventTime, EventTime) {
        let time = time.as_millis();
        let (first, last) = match side {
            Side::Left => (time.saturating_add(self.from_ms), time.saturating_add(self.to_ms)),
            Side::Right => (time.saturating_sub(self.to_ms), time.saturating_sub(self.from_ms)),
        };
        (EventTime::from_millis(first), EventTime::from_millis(last))
    }
}

impl fmt::Display for JoinSpec {
    /// In words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = (&self.left.source, &self.right.source);
        write!(f, "{} join of {left} with {right} ", self.kind.name())?;
        write!(f, "from {} to {} after it", signed(self.from_ms), signed(self.to_ms))
    }
}

fn signed(millis: i64) -> String {
    let length = Span::from_millis(millis.saturating_abs()).unwrap_or(Span::MAX);
    format!("{}{length}", if millis < 0 { "-" } else { "" })
}
