//! How something that takes minutes goes on: a line that is redrawn on a terminal, a line now and then elsewhere.

use std::sync::Arc;
use std::time::Duration;

use floodmark::clock::Clock;

use crate::console;

/// Time between two lines where nobody watches.
const INTERVAL: Duration = Duration::from_secs(5);

/// Tells how it goes on.
pub(crate) struct Progress {
    quiet: bool,
    terminal: bool,
    drawn: bool,
    clock: Arc<dyn Clock>,
    last: Option<Duration>,
}

impl Progress {
    pub(crate) fn new(quiet: bool, clock: Arc<dyn Clock>) -> Self {
        Self { quiet, terminal: console::stderr_is_terminal(), drawn: false, clock, last: None }
    }

    /// A line that stays.
    pub(crate) fn note(&mut self, line: &str) {
        if !self.quiet {
            self.clear();
            console::say(line);
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            console::redraw("");
        }
    }

    /// A line that the next one replaces.
    pub(crate) fn line(&mut self, line: &str) {
        if self.quiet {
            return;
        }
        if self.terminal {
            console::redraw(line);
            self.drawn = true;
            return;
        }
        let now = self.clock.monotonic();
        if self.last.is_none_or(|last| now.saturating_sub(last) >= INTERVAL) {
            self.last = Some(now);
            console::say(line);
        }
    }
}
