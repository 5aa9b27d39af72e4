//! `defragd standalone` as people run it: the real binary, real etcd, real Prometheus.
//!
//! Each story names the cases that it shows. Time is told by what the processes record, and nothing
//! here sleeps; "does not happen" is looked at after defragd has had several more occasions.

mod blockers;
mod files;
mod fleets;
mod metrics;
mod policies;
mod removals;
mod restarts;
mod secrets;
mod signals;
mod story;
mod support;
