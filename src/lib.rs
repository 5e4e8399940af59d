//! Durable window state and exactly-once checkpoints for event-time stream pipelines.
//!
//! The modules are layered; each imports only from the rows below it (`docs/ARCHITECTURE.md`, held by a test):
//! `pipeline` → `store`, `inspect` → `repository` → `checkpoint` → `state` → `operator` → `aggregate` → `event`,
//! `event_time`, `codec`, `error`, `clock`, `fault`, `open_files`. `fuzzing`, beside `pipeline`, is for tests alone.
//!
//! The command `floodmark` runs pipelines from a file; programs embed [`store::WindowStore`]. Both are shown in the
//! README, whose example is compiled, and in `docs/EMBEDDING.md`, whose example runs.

/// The README, so that its examples compile and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The page for programs, so that its example runs.
#[cfg(doctest)]
#[doc = include_str!("../docs/EMBEDDING.md")]
pub struct Embedding;

pub mod aggregate;
pub mod checkpoint;
pub mod clock;
pub mod codec;
pub mod error;
pub mod event;
pub mod event_time;
pub mod fault;
#[cfg(feature = "fault-injection")]
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
pub mod open_files;
pub mod operator;
pub mod pipeline;
pub mod repository;
pub mod state;
pub mod store;
