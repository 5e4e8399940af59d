//! The `floodmark` command from outside: real processes, real files, killed, starved and fed with rubbish.
//!
//! Needs the fault points: `cargo xtask test` turns them on. A run that goes wrong leaves its seed and the first
//! line that differs.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and says where it was"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests write inputs that need no sync, and keep the time of other processes"
)]

mod advise;
mod aggregates;
mod bad_input;
mod bench;
mod crash;
mod drill;
mod evolution;
mod examples;
mod explain;
mod formats;
mod golden;
mod inspect;
mod joins;
mod lanes;
mod limits;
mod outputs;
mod panes;
mod parquet;
mod postgres;
mod reapply;
mod reapply_savepoint;
mod repository;
mod s3;
mod savepoint;
mod starts;
mod state_size;
mod status;
mod steps;
mod support;
mod watermarks;
