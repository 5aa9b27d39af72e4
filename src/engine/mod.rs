//! Observe, decide, record, act; generic over the host.
//!
//! One worker for each policy, target and unfinished run. Workers do I/O and
//! call the pure core; they never decide. What they need from where objects live
//! is the [`Host`] trait.

mod claim;
mod cluster;
mod conclude;
mod create;
pub mod drive;
mod fleet;
pub mod host;
mod limits;
mod line;
mod pace;
mod policy;
mod queue;
mod read;
mod record;
mod run;
mod shared;
mod supervise;
mod target;
mod tidy;
mod turn;

pub use cluster::Link;
pub use host::*;
pub use limits::Limits;
pub use supervise::Engine;

use jiff::Timestamp;

/// The wall clock, to the millisecond: what is stored and read back is the same
/// instant.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}
