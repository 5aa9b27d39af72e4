//! The engine over a host that lives in memory and fails on cue, against real
//! etcd members where calls have to be counted.

mod blockers;
mod burst;
mod fleets;
mod leading;
mod memory;
mod policies;
mod runs;
mod sources;
