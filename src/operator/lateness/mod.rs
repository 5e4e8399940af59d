//! How late events are: an event's lateness is how far it lies behind the latest event time of its partition so far.
//!
//! Pure numbers. `sketch` keeps it in bounded space while events come in; `distribution` answers questions about what was
//! measured, exactly or by a sketch.

mod distribution;
mod sketch;

pub use distribution::{Bucket, Distribution, LADDER_MS, Spread};
pub use sketch::LatenessSketch;
