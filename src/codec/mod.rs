//! Bytes: how numbers, keys and records are laid out on disk, and how hostile bytes are read back.
//!
//! The only module that names `bincode`. Layouts are written down in `docs/FORMAT.md`. Decoders here never panic
//! and never allocate more than the bytes at hand allow.

mod envelope;
#[cfg(feature = "fault-injection")]
pub(crate) mod fuzzing;
mod key;

pub use envelope::{DecodeError, decode, encode};
pub use key::{
    KeyWriter, PaneKey, PaneKeyBuf, key_components, order_preserving_time, split_component, time_from_ordered,
};
