//! A hash map per open window: what a program would write that may lose everything.

use hashbrown::HashMap;

use super::PaneStore;
use crate::Outcome;
use crate::results::{Pane, Results};
use crate::stream::Rows;

#[derive(Default)]
pub(super) struct Panes {
    // Rarely more than two at a time.
    open: Vec<(i64, HashMap<Box<str>, Pane>)>,
}

impl Panes {
    fn window(&mut self, window: i64) -> &mut HashMap<Box<str>, Pane> {
        let at = self.open.iter().position(|(start, _)| *start == window).unwrap_or_else(|| {
            self.open.push((window, HashMap::new()));
            self.open.len() - 1
        });
        &mut self.open[at].1
    }
}

impl PaneStore for Panes {
    fn add(&mut self, rows: Rows<'_>) -> Outcome<()> {
        for (window, key, value) in rows.iter() {
            let pane = Pane::of(value);
            let panes = self.window(window);
            match panes.get_mut(key) {
                Some(old) => old.merge(pane),
                None => {
                    panes.insert(key.into(), pane);
                }
            }
        }
        Ok(())
    }

    fn fire(&mut self, window: i64, results: &mut Results) -> Outcome<()> {
        if let Some(at) = self.open.iter().position(|(start, _)| *start == window) {
            let (_, panes) = self.open.swap_remove(at);
            panes.iter().for_each(|(key, &pane)| results.take(window, key.as_bytes(), pane));
        }
        Ok(())
    }

    fn keep(&mut self) -> Outcome<bool> {
        Ok(false)
    }
}
