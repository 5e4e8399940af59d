//! A pane's row together with everything that it refers to. Rows are copied, merged and stored through these types
//! only, so that a word that points to a state never leaves its slab.

use super::{Layout, PayloadError, Sketches, Value};

/// A row to be read.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    layout: &'a Layout,
    words: &'a [u64],
    sketches: &'a Sketches,
}

/// A row to be changed.
#[derive(Debug)]
pub struct RowMut<'a> {
    layout: &'a Layout,
    words: &'a mut [u64],
    sketches: &'a mut Sketches,
}

impl<'a> RowRef<'a> {
    /// The row of `words`, whose states are in `sketches`.
    pub(crate) fn new(layout: &'a Layout, words: &'a [u64], sketches: &'a Sketches) -> Self {
        debug_assert_eq!(words.len(), layout.stride());
        Self { layout, words, sketches }
    }

    /// All its words, the extra ones included. Those of states mean nothing elsewhere.
    #[must_use]
    pub fn words(self) -> &'a [u64] {
        self.words
    }

    /// Events counted in it.
    #[must_use]
    pub fn events(self) -> u64 {
        self.words[0]
    }

    /// Appends the value of each aggregate to `values`.
    pub fn finish(self, values: &mut Vec<Value>) {
        self.layout.finish(self.words, self.sketches, values);
    }

    /// Appends a copy of its words to `words`, with copies of its states in `sketches`.
    pub(crate) fn copy_to(self, words: &mut Vec<u64>, sketches: &mut Sketches) {
        let start = words.len();
        words.extend_from_slice(self.words);
        self.layout.copy_states(&mut words[start..], sketches, self.sketches);
    }

    /// Appends the stored form to `bytes`.
    pub fn write_payload(self, bytes: &mut Vec<u8>) {
        super::payload::write(self.layout, self.words, self.sketches, bytes);
    }
}

impl<'a> RowMut<'a> {
    /// The row of `words`, whose states are in `sketches`.
    pub(crate) fn new(layout: &'a Layout, words: &'a mut [u64], sketches: &'a mut Sketches) -> Self {
        debug_assert_eq!(words.len(), layout.stride());
        Self { layout, words, sketches }
    }

    /// The same row, to be read.
    #[must_use]
    pub fn as_ref(&self) -> RowRef<'_> {
        RowRef { layout: self.layout, words: self.words, sketches: self.sketches }
    }

    /// The extra words after the accumulators, which mean nothing to a layout.
    pub fn extra_mut(&mut self) -> &mut [u64] {
        &mut self.words[self.layout.words()..]
    }

    /// All words. Those of states must stay as they are.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.words
    }

    /// Merges the accumulators of `other`, which may be in another slab, into this row; extra words stay.
    pub fn merge(&mut self, other: RowRef<'_>) {
        self.layout.merge(self.words, self.sketches, other.words, other.sketches);
    }

    /// Makes this row a copy of `other`, extra words included.
    pub fn assign(&mut self, other: RowRef<'_>) {
        self.release();
        self.words.copy_from_slice(other.words);
        self.layout.copy_states(self.words, self.sketches, other.sketches);
    }

    /// Empties the accumulators; extra words stay.
    pub fn reset(&mut self) {
        self.release();
        let words = self.layout.words();
        self.words[..words].copy_from_slice(&self.layout.identity()[..words]);
    }

    /// Replaces the row by a stored one.
    ///
    /// # Errors
    /// [`PayloadError`] when the bytes are not a row of this layout; the row is then as it was.
    pub fn read_payload(&mut self, bytes: &[u8]) -> Result<(), PayloadError> {
        super::payload::read(self.layout, bytes, self.words, self.sketches)
    }

    fn release(&mut self) {
        for &word in &self.words[self.layout.sketch_words()] {
            self.sketches.release(word);
        }
    }
}
