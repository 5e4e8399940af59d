//! Every RocksDB option that matters, set by name: defaults change between versions, this file does not.
//!
//! Knows how a database is configured, not what is done with it.

use rocksdb::{
    BlockBasedOptions, ChecksumType, CompactionPri, DBCompactionStyle, DBCompressionType, LogLevel, Options,
    WriteOptions,
};

use super::memory::StateMemory;
use crate::open_files;

/// Files are cut at about this size; whole-file drops work in these pieces.
pub(super) const FILE_BYTES: u64 = 16 << 20;

/// What a state database takes from its caller; the rest is decided here.
#[derive(Clone, Copy, Debug)]
pub struct StateOptions {
    /// Files that RocksDB may keep open, with room for everything else below the process's limit.
    pub max_open_files: u32,
    /// A file that was not rewritten for so long is: the bound on garbage where neither file drops nor range
    /// deletes nor ordinary compactions reach.
    pub periodic_compaction_seconds: u64,
}

impl Default for StateOptions {
    /// 512 open files, or half of what the process may open; every file is rewritten within 4 hours.
    fn default() -> Self {
        Self { max_open_files: open_files::share(512, 2), periodic_compaction_seconds: 4 * 3_600 }
    }
}

/// Options of the database as a whole.
pub(super) fn database(options: &StateOptions, memory: &StateMemory) -> Options {
    let mut db = Options::default();
    db.create_if_missing(false);
    db.create_missing_column_families(false);
    db.set_paranoid_checks(true);
    // With the WAL off, families are only consistent with each other when they are flushed together.
    db.set_atomic_flush(true);
    // Not possible with atomic flush.
    db.set_enable_pipelined_write(false);
    db.set_unordered_write(false);
    db.set_manual_wal_flush(false);
    db.set_write_buffer_manager(&memory.write_buffers);
    db.set_max_open_files(i32::try_from(options.max_open_files).unwrap_or(i32::MAX));
    // Two cores: one job for flushes, one for compactions, beside the thread that aggregates.
    db.set_max_background_jobs(2);
    db.set_max_subcompactions(1);
    db.set_bytes_per_sync(1 << 20);
    db.set_avoid_unnecessary_blocking_io(true);
    // Every checkpoint holds a copy: it is begun anew before it is large.
    db.set_max_manifest_file_size(1 << 20);
    // Its own log: warnings only, and no more than two small files.
    db.set_log_level(LogLevel::Warn);
    db.set_max_log_file_size(1 << 20);
    db.set_keep_log_file_num(2);
    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    db
}

/// Options of one column family, without merge operator and filter.
pub(super) fn column_family(options: &StateOptions, memory: &StateMemory) -> Options {
    let mut family = Options::default();
    family.set_block_based_table_factory(&table(memory));
    family.set_write_buffer_size(memory.write_buffer_bytes());
    family.set_arena_block_size(256 << 10);
    family.set_max_write_buffer_number(3);
    family.set_min_write_buffer_number_to_merge(1);
    // A pane gets at most one operand per spill; this bounds the chain where spills are frequent.
    family.set_max_successive_merges(16);

    family.set_compaction_style(DBCompactionStyle::Level);
    family.set_compaction_pri(CompactionPri::MinOverlappingRatio);
    family.set_num_levels(7);
    family.set_level_compaction_dynamic_level_bytes(true);
    family.set_level_zero_file_num_compaction_trigger(4);
    family.set_level_zero_slowdown_writes_trigger(20);
    family.set_level_zero_stop_writes_trigger(36);
    family.set_target_file_size_base(FILE_BYTES);
    family.set_target_file_size_multiplier(1);
    family.set_max_bytes_for_level_base(128 << 20);
    family.set_max_bytes_for_level_multiplier(10.0);
    family.set_disable_auto_compactions(false);
    family.set_periodic_compaction_seconds(options.periodic_compaction_seconds);
    // The other clock-driven rewriting; periodic compaction does all that is wanted.
    family.set_ttl(0);

    // New files are read or rewritten soon: fast. The last level keeps what stays: small.
    family.set_compression_type(DBCompressionType::Lz4);
    family.set_bottommost_compression_type(DBCompressionType::Zstd);
    family.set_bottommost_compression_options(-14, 1, 0, 0, true);

    // Range deletes have bad neighbours: no row cache, no memtable filter, no in-place updates.
    family.set_memtable_prefix_bloom_ratio(0.0);
    family.set_memtable_whole_key_filtering(false);
    family.set_inplace_update_support(false);
    family
}

/// Checks between memory and file that have no setter of their own: set by name, once a database is open.
///
/// New files are read back and compared with what was written. Entries of write buffers, and of blocks in the cache,
/// carry eight bytes of checksum from their birth on; the first write buffer of a database is made before this is set.
pub(super) const INTEGRITY: [(&str, &str); 3] = [
    ("paranoid_file_checks", "true"),
    ("memtable_protection_bytes_per_key", "8"),
    ("block_protection_bytes_per_key", "8"),
];

/// Options for files that are made outside of the database and handed to it.
///
/// Such a file would take the compression of the last level, but is rewritten like any new one.
pub(super) fn handed_over(mut family: Options) -> Options {
    family.set_bottommost_compression_type(DBCompressionType::Lz4);
    family
}

fn table(memory: &StateMemory) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&memory.cache);
    // Inside the cache, so that memory does not grow with the data; pinned where every read goes.
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // Panes are read by scans; a point read is the exception, so there are no bloom filters to pay for.
    table.set_block_size(16 << 10);
    table.set_block_restart_interval(16);
    table.set_format_version(6);
    table.set_checksum_type(ChecksumType::XXH3);
    table
}

/// Every write: no WAL, ever. Recovery starts from a checkpoint, never from this directory.
pub(super) fn write() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options.set_sync(false);
    options.set_memtable_insert_hint_per_batch(true);
    options
}
