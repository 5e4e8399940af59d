//! How a drill goes on.

use crate::progress::Progress;

impl Progress {
    /// The kill that comes next.
    pub(in crate::drill) fn trial(&mut self, kill: u32, of: Option<u32>, failed: usize) {
        let of = of.map_or(String::new(), |of| format!(" of {of}"));
        let failed = if failed == 0 { String::new() } else { format!(", {failed} trials FAILED") };
        self.line(&format!("kill {kill}{of}{failed}"));
    }

    /// The damage that comes next.
    pub(in crate::drill) fn damage(&mut self, number: u32, of: usize) {
        self.line(&format!("damaged checkpoint {number} of {of}"));
    }
}
