//! The memory that all state databases of a process share: one block cache, with write buffers charged to it.
//!
//! Knows no database; each takes a clone and adds to the same account.

use rocksdb::{Cache, LruCacheOptions, WriteBufferManager};

/// A write buffer is at least this large, however small the budget.
const WRITE_BUFFER_BYTES_MIN: usize = 1 << 20;
/// More would not make flushes cheaper, and would make them longer.
const WRITE_BUFFER_BYTES_MAX: usize = 64 << 20;

/// A memory budget for state databases; clones share it.
///
/// Blocks, indexes and write buffers all count against it. RocksDB keeps to it closely but not exactly: blocks in
/// use are never thrown out, and a flush in progress holds its buffer.
#[derive(Clone)]
pub struct StateMemory {
    bytes: usize,
    pub(super) cache: Cache,
    pub(super) write_buffers: WriteBufferManager,
}

impl std::fmt::Debug for StateMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StateMemory").field(&self.usage()).finish()
    }
}

/// How much of a [`StateMemory`] is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The budget.
    pub budget_bytes: u64,
    /// Everything charged: blocks, indexes and write buffers.
    pub cache_bytes: u64,
    /// The part of it that cannot be thrown out at the moment, write buffers included.
    pub pinned_bytes: u64,
    /// Write buffers alone.
    pub write_buffer_bytes: u64,
}

impl StateMemory {
    /// A budget of `bytes`, of which write buffers may take half.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let mut options = LruCacheOptions::default();
        options.set_capacity(bytes);
        options.set_num_shard_bits(-1);
        let cache = Cache::new_lru_cache_opts(&options);
        // No stall: with several databases, one that waits for the buffers of an idle one would wait for ever.
        // A full account makes RocksDB flush instead.
        let write_buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(bytes / 2, false, cache.clone());
        Self { bytes, cache, write_buffers }
    }

    /// What is in use now.
    #[must_use]
    pub fn usage(&self) -> MemoryUse {
        MemoryUse {
            budget_bytes: self.bytes as u64,
            cache_bytes: self.cache.get_usage() as u64,
            pinned_bytes: self.cache.get_pinned_usage() as u64,
            write_buffer_bytes: self.write_buffers.get_usage() as u64,
        }
    }

    /// Size at which the buffer of one family is flushed by itself.
    pub(super) fn write_buffer_bytes(&self) -> usize {
        (self.bytes / 4).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX)
    }
}
