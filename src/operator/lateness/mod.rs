//! How late events are: an event's lateness is how far it lies behind the latest event time of its partition so far.
//!
//! Pure numbers. `distribution` answers questions about lateness that was measured; where it comes from is for others.

mod distribution;

pub use distribution::{Bucket, Distribution, LADDER_MS, Spread};
