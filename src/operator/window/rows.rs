//! Rows side by side, each found by its index: where sessions keep their accumulators.

use std::sync::Arc;

use crate::aggregate::{Layout, RowMut, RowRef, Sketches, Touch};
use crate::operator::EventBatch;

/// Rows of one layout, with the states that belong to them.
#[derive(Debug)]
pub(super) struct Rows {
    layout: Arc<Layout>,
    words: Vec<u64>,
    sketches: Sketches,
}

impl Rows {
    pub(super) fn new(layout: &Arc<Layout>) -> Self {
        Self { layout: Arc::clone(layout), words: Vec::new(), sketches: Sketches::default() }
    }

    /// Appends a row without events.
    pub(super) fn push(&mut self) {
        self.words.extend_from_slice(self.layout.identity());
    }

    /// Makes a row one without events, extra words included.
    pub(super) fn clear(&mut self, row: u32) {
        self.get_mut(row).reset();
        let words = self.layout.words();
        let identity = Arc::clone(&self.layout);
        self.words_mut(row)[words..].copy_from_slice(&identity.identity()[words..]);
    }

    fn place(&self, row: u32) -> std::ops::Range<usize> {
        let stride = self.layout.stride();
        row as usize * stride..(row as usize + 1) * stride
    }

    pub(super) fn get(&self, row: u32) -> RowRef<'_> {
        RowRef::new(&self.layout, &self.words[self.place(row)], &self.sketches)
    }

    pub(super) fn get_mut(&mut self, row: u32) -> RowMut<'_> {
        let place = self.place(row);
        RowMut::new(&self.layout, &mut self.words[place], &mut self.sketches)
    }

    pub(super) fn words(&self, row: u32) -> &[u64] {
        &self.words[self.place(row)]
    }

    /// All words. Those of states must stay as they are.
    pub(super) fn words_mut(&mut self, row: u32) -> &mut [u64] {
        let place = self.place(row);
        &mut self.words[place]
    }

    /// Merges the accumulators of one row into another.
    pub(super) fn merge(&mut self, into: u32, from: u32) {
        // States of both are in one slab; a copy outside of it lets one be changed while the other is read.
        let mut copy = Self::new(&self.layout);
        copy.push();
        copy.get_mut(0).assign(self.get(from));
        self.get_mut(into).merge(copy.get(0));
    }

    /// Adds touched events of `batch` to their rows.
    pub(super) fn update(&mut self, touches: &[Touch], batch: &EventBatch) {
        self.layout.update(&mut self.words, &mut self.sketches, touches, batch);
    }

    /// Bytes held, counted by capacity.
    pub(super) fn bytes(&self) -> usize {
        self.words.capacity() * 8 + self.sketches.bytes()
    }
}
