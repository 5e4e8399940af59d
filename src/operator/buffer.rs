//! Rows with their keys on the way between memory, results and the state database.

use std::sync::Arc;

use super::KeyColumn;
use crate::aggregate::{Layout, PayloadError, RowMut, RowRef, Sketches};

/// Panes of one window: keys and their rows, side by side, with the states that belong to the rows.
#[derive(Clone, Debug)]
pub struct RowBuffer {
    layout: Arc<Layout>,
    keys: KeyColumn,
    words: Vec<u64>,
    sketches: Sketches,
}

impl RowBuffer {
    /// An empty buffer for rows of `layout`.
    #[must_use]
    pub fn new(layout: &Arc<Layout>) -> Self {
        Self {
            layout: Arc::clone(layout),
            keys: KeyColumn::default(),
            words: Vec::new(),
            sketches: Sketches::default(),
        }
    }

    /// Makes room for so many more rows, so that what they take is not found by doubling.
    pub(crate) fn reserve_exact(&mut self, rows: usize) {
        self.words.reserve_exact(rows * self.layout.stride());
    }

    /// Bytes held, counted by capacity.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.held_bytes() + self.words.capacity() * 8 + self.sketches.bytes()
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True without rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What its rows are.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Bytes of the states of its rows.
    #[must_use]
    pub fn sketch_bytes(&self) -> usize {
        self.sketches.bytes()
    }

    /// Appends a copy of `row`.
    pub fn push(&mut self, key: &[u8], row: RowRef<'_>) {
        self.keys.push(key);
        row.copy_to(&mut self.words, &mut self.sketches);
    }

    /// Appends a row without events.
    pub fn push_identity(&mut self, key: &[u8]) {
        self.keys.push(key);
        self.words.extend_from_slice(self.layout.identity());
    }

    /// Appends a stored row.
    ///
    /// # Errors
    /// [`PayloadError`] when the bytes are not a row of this layout; nothing is then appended.
    pub fn push_payload(&mut self, key: &[u8], payload: &[u8]) -> Result<(), PayloadError> {
        self.push_identity(key);
        let row = self.len() - 1;
        let read = self.row_mut(row).read_payload(payload);
        if read.is_err() {
            self.keys.truncate(row);
            self.words.truncate(row * self.layout.stride());
        }
        read
    }

    /// The key of row `index`.
    ///
    /// # Panics
    /// When `index` is not below [`RowBuffer::len`].
    #[must_use]
    pub fn key(&self, index: usize) -> &[u8] {
        self.keys.get(index)
    }

    /// The row at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`RowBuffer::len`].
    #[must_use]
    pub fn row(&self, index: usize) -> RowRef<'_> {
        let stride = self.layout.stride();
        RowRef::new(&self.layout, &self.words[index * stride..(index + 1) * stride], &self.sketches)
    }

    /// The row at `index`, to be changed.
    ///
    /// # Panics
    /// When `index` is not below [`RowBuffer::len`].
    pub fn row_mut(&mut self, index: usize) -> RowMut<'_> {
        let stride = self.layout.stride();
        let words = &mut self.words[index * stride..(index + 1) * stride];
        RowMut::new(&self.layout, words, &mut self.sketches)
    }

    /// Drops the last row.
    pub fn pop(&mut self) {
        let Some(last) = self.len().checked_sub(1) else { return };
        self.row_mut(last).reset();
        self.keys.truncate(last);
        self.words.truncate(last * self.layout.stride());
    }

    /// Indexes of the rows in key order.
    #[must_use]
    pub fn sorted(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| self.key(a as usize).cmp(self.key(b as usize)));
        order
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.words.clear();
        self.sketches.clear();
    }
}
