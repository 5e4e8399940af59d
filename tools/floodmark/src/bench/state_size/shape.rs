//! The windows that are measured, and what the model has to know of them.

use clap::ValueEnum;
use floodmark::event_time::{InvalidWindow, Sliding, Span, Tumbling, Windows};
use serde::Serialize;

const MINUTE_MS: i64 = 60_000;
/// Size of tumbling windows, and slide of sliding ones.
const PIECE_MS: i64 = 10 * MINUTE_MS;
/// Size of sliding windows.
const SIZE_MS: i64 = 60 * MINUTE_MS;
/// Gap of sessions.
const GAP_MS: i64 = 5 * MINUTE_MS;

/// A kind of window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// 10 min.
    Tumbling,
    /// 1 h every 10 min, kept as slices of 10 min.
    Sliding,
    /// Gap of 5 min.
    Session,
}

/// What decides how long state lives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// Panes are aligned pieces of event time, of `piece_ms`, and are needed until `kept_ms` after their start.
    Aligned {
        piece_ms: f64,
        kept_ms: f64,
    },
    Session {
        gap_ms: f64,
    },
}

impl Kind {
    /// All of them, in the order of reports.
    pub(super) const ALL: [Self; 3] = [Self::Tumbling, Self::Sliding, Self::Session];

    /// Stable name in reports and on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tumbling => "tumbling",
            Self::Sliding => "sliding",
            Self::Session => "session",
        }
    }

    /// The same with its lengths, for headings.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Tumbling => "Tumbling, 10 min",
            Self::Sliding => "Sliding, 1 h every 10 min",
            Self::Session => "Session, gap 5 min",
        }
    }

    /// As the model sees it.
    pub(super) fn shape(self) -> Shape {
        match self {
            Self::Tumbling => Shape::Aligned { piece_ms: PIECE_MS as f64, kept_ms: PIECE_MS as f64 },
            Self::Sliding => Shape::Aligned { piece_ms: PIECE_MS as f64, kept_ms: SIZE_MS as f64 },
            Self::Session => Shape::Session { gap_ms: GAP_MS as f64 },
        }
    }

    /// As the library sees it.
    pub(super) fn windows(self) -> Result<Windows, InvalidWindow> {
        let span = |millis| Span::from_millis(millis).unwrap_or_default();
        match self {
            Self::Tumbling => Ok(Tumbling::new(span(PIECE_MS), 0)?.into()),
            Self::Sliding => Ok(Sliding::new(span(SIZE_MS), span(PIECE_MS), 0)?.into()),
            Self::Session => Windows::session(span(GAP_MS)),
        }
    }
}
