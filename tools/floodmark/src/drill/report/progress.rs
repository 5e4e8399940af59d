//! How a drill goes on: a line that is redrawn on a terminal, a line now and then elsewhere.

use std::sync::Arc;
use std::time::Duration;

use floodmark::clock::Clock;

use crate::console;

/// Time between two lines where nobody watches.
const INTERVAL: Duration = Duration::from_secs(5);

/// Tells how a drill goes on.
pub(in crate::drill) struct Progress {
    quiet: bool,
    terminal: bool,
    drawn: bool,
    clock: Arc<dyn Clock>,
    last: Option<Duration>,
}

impl Progress {
    pub(in crate::drill) fn new(quiet: bool, clock: Arc<dyn Clock>) -> Self {
        Self { quiet, terminal: console::stderr_is_terminal(), drawn: false, clock, last: None }
    }

    /// A line that stays.
    pub(in crate::drill) fn note(&mut self, line: &str) {
        if !self.quiet {
            self.clear();
            console::say(line);
        }
    }

    /// The kill that comes next.
    pub(in crate::drill) fn trial(&mut self, kill: u32, of: Option<u32>, failed: usize) {
        let of = of.map_or(String::new(), |of| format!(" of {of}"));
        let failed = if failed == 0 { String::new() } else { format!(", {failed} trials FAILED") };
        self.draw(&format!("kill {kill}{of}{failed}"));
    }

    /// The damage that comes next.
    pub(in crate::drill) fn damage(&mut self, number: u32, of: usize) {
        self.draw(&format!("damaged checkpoint {number} of {of}"));
    }

    /// Takes the line away.
    pub(in crate::drill) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            console::redraw("");
        }
    }

    fn draw(&mut self, line: &str) {
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
