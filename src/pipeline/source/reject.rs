//! Records that cannot become events: why, where, and what they said.
//!
//! Every rejected record is counted and can be written to the dead-letter output; none of them stops a run.

use std::fmt;

use crate::operator::Rejection;

/// The text of a rejected record is kept up to this many bytes.
pub const REJECTED_TEXT_BYTES_MAX: usize = 16 << 10;

/// Why a record cannot become an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// Not valid JSON, not a JSON object, a ragged CSV row, or not UTF-8.
    BrokenRecord,
    /// Longer than [`super::RECORD_BYTES_MAX`].
    RecordTooLarge,
    /// The time field is null, or empty in CSV.
    NullTimestamp,
    /// There is no time field.
    MissingTimestamp,
    /// The time field does not follow the declared format.
    UnparsableTimestamp,
    /// The time is beyond what event time can hold.
    TimestampOutOfBounds,
    /// A window that would hold the time reaches past the end of representable time.
    TimestampOutOfRange,
    /// The time is before `min`.
    TimestampBeforeMin,
    /// The time is after `max`.
    TimestampAfterMax,
    /// The time is further ahead of the wall clock than `max_ahead`.
    TimestampAheadOfClock,
    /// The time is further ahead of the other partitions than `max_ahead_of_partitions`.
    TimestampAheadOfPartitions,
    /// A key field is absent.
    MissingKey,
    /// A key field is null.
    NullKey,
    /// The key exceeds [`super::KEY_BYTES_MAX`].
    KeyTooLong,
    /// A number is written as text.
    NumberAsString,
    /// A number with a fraction or an exponent where an integer is declared.
    NotAnInteger,
    /// An integer beyond 64 bits.
    IntegerOutOfRange,
    /// A number beyond double precision.
    FloatOutOfRange,
    /// A value of another type than declared.
    WrongType,
    /// A decimal with more than 18 digits.
    DecimalOutOfRange,
    /// A decimal with more digits behind the point than declared.
    DecimalTooFine,
    /// A text that exceeds [`super::VALUE_BYTES_MAX`].
    ValueTooLong,
}

impl RejectReason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 22] = [
        Self::BrokenRecord,
        Self::RecordTooLarge,
        Self::NullTimestamp,
        Self::MissingTimestamp,
        Self::UnparsableTimestamp,
        Self::TimestampOutOfBounds,
        Self::TimestampOutOfRange,
        Self::TimestampBeforeMin,
        Self::TimestampAfterMax,
        Self::TimestampAheadOfClock,
        Self::TimestampAheadOfPartitions,
        Self::MissingKey,
        Self::NullKey,
        Self::KeyTooLong,
        Self::NumberAsString,
        Self::NotAnInteger,
        Self::IntegerOutOfRange,
        Self::FloatOutOfRange,
        Self::WrongType,
        Self::DecimalOutOfRange,
        Self::DecimalTooFine,
        Self::ValueTooLong,
    ];

    /// Stable lowercase name, used in the dead-letter output, metrics and `--json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BrokenRecord => "broken_record",
            Self::RecordTooLarge => "record_too_large",
            Self::NullTimestamp => "null_timestamp",
            Self::MissingTimestamp => "missing_timestamp",
            Self::UnparsableTimestamp => "unparsable_timestamp",
            Self::TimestampOutOfBounds => "timestamp_out_of_bounds",
            Self::TimestampOutOfRange => "timestamp_out_of_range",
            Self::TimestampBeforeMin => "timestamp_before_min",
            Self::TimestampAfterMax => "timestamp_after_max",
            Self::TimestampAheadOfClock => "timestamp_ahead_of_clock",
            Self::TimestampAheadOfPartitions => "timestamp_ahead_of_partitions",
            Self::MissingKey => "missing_key",
            Self::NullKey => "null_key",
            Self::KeyTooLong => "key_too_long",
            Self::NumberAsString => "number_as_string",
            Self::NotAnInteger => "not_an_integer",
            Self::IntegerOutOfRange => "integer_out_of_range",
            Self::FloatOutOfRange => "float_out_of_range",
            Self::WrongType => "wrong_type",
            Self::DecimalOutOfRange => "decimal_out_of_range",
            Self::DecimalTooFine => "decimal_too_fine",
            Self::ValueTooLong => "value_too_long",
        }
    }
}

impl From<Rejection> for RejectReason {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::OutOfRange => Self::TimestampOutOfRange,
            Rejection::BeforeMin { .. } => Self::TimestampBeforeMin,
            Rejection::AfterMax { .. } => Self::TimestampAfterMax,
            Rejection::AheadOfClock { .. } => Self::TimestampAheadOfClock,
            Rejection::AheadOfPartitions { .. } => Self::TimestampAheadOfPartitions,
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A record that cannot become an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// 1-based number of the line it starts on.
    pub record: u64,
    /// Lines that it takes up, at least 1.
    pub lines: u64,
    /// Where it starts, in bytes of the decompressed input; `None` where records have no such place.
    pub byte_offset: Option<u64>,
    /// Why.
    pub reason: RejectReason,
    /// The field at fault, when there is one.
    pub field: Option<String>,
    /// What exactly, for people.
    pub detail: String,
    /// Its text without the line end, cut at [`REJECTED_TEXT_BYTES_MAX`].
    pub text: Vec<u8>,
}

/// Why a record is refused, before it is known where it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: RejectReason,
    pub(super) field: Option<String>,
    pub(super) detail: String,
}

impl Refusal {
    /// A refusal of the record as a whole.
    pub(super) fn record(reason: RejectReason, detail: impl Into<String>) -> Self {
        Self { reason, field: None, detail: detail.into() }
    }

    /// A refusal because of one field.
    pub(super) fn field(reason: RejectReason, field: &str, detail: impl Into<String>) -> Self {
        Self { reason, field: Some(field.to_owned()), detail: detail.into() }
    }

    /// The refused record at its place.
    pub(super) fn at(self, record: u64, byte_offset: Option<u64>, text: &[u8]) -> Rejected {
        let Self { reason, field, mut detail } = self;
        let lines = memchr::memchr_iter(b'\n', text).count() as u64 + 1;
        if lines > 1 {
            detail.push_str(&format!("; the record has {lines} lines"));
        }
        let text = text[..text.len().min(REJECTED_TEXT_BYTES_MAX)].to_vec();
        Rejected { record, lines, byte_offset, reason, field, detail, text }
    }
}

/// The beginning of a text, for a message.
pub(super) fn shown(text: &[u8]) -> String {
    const SHOWN_BYTES: usize = 64;
    let cut = &text[..text.len().min(SHOWN_BYTES)];
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", String::from_utf8_lossy(cut).escape_debug())
}
