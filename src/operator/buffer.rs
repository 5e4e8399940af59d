//! Rows with their keys on the way between memory, results and the state database.

use super::KeyColumn;

/// Panes of one window: keys and their words, side by side.
#[derive(Clone, Debug, Default)]
pub struct RowBuffer {
    keys: KeyColumn,
    words: Vec<u64>,
    stride: usize,
}

impl RowBuffer {
    /// An empty buffer for rows of `stride` words.
    #[must_use]
    pub fn new(stride: usize) -> Self {
        Self { keys: KeyColumn::default(), words: Vec::new(), stride }
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

    /// Words of a row.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Appends a row; `words` has [`RowBuffer::stride`] words.
    pub fn push(&mut self, key: &[u8], words: &[u64]) {
        debug_assert_eq!(words.len(), self.stride);
        self.keys.push(key);
        self.words.extend_from_slice(words);
    }

    /// The key of row `index`.
    ///
    /// # Panics
    /// When `index` is not below [`RowBuffer::len`].
    #[must_use]
    pub fn key(&self, index: usize) -> &[u8] {
        self.keys.get(index)
    }

    /// The words of row `index`.
    ///
    /// # Panics
    /// When `index` is not below [`RowBuffer::len`].
    #[must_use]
    pub fn row(&self, index: usize) -> &[u64] {
        &self.words[index * self.stride..(index + 1) * self.stride]
    }

    pub(super) fn row_mut(&mut self, index: usize) -> &mut [u64] {
        &mut self.words[index * self.stride..(index + 1) * self.stride]
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
    }
}
