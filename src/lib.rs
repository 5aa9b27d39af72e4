//! defragd: metrics-driven, safe defragmentation of etcd clusters.
//!
//! The map of the code and the direction of its arrows:
//!
//! | module | what lives there | knows |
//! | --- | --- | --- |
//! | [`core`] | pure decisions: when to run, what to do next | nobody |
//! | [`api`] | the custom resources, parsed once into core's types | core |
//! | [`etcd`] | one member, one client | core |
//! | [`signals`] | sources of signals, turned into core's signal states | core |
//! | [`engine`] | observe, decide, record, act; generic over the host | core, etcd, signals, telemetry |
//! | [`hosts`] | where objects live | all but the command line |
//! | [`telemetry`] | logs, metrics, health | core, signals (its counts) |
//! | [`cli`] | one file a subcommand | all |
//!
//! Invariants that hold everywhere are listed in `docs/architecture.md`.

pub mod api;
pub mod cli;
pub mod core;
pub mod engine;
pub mod etcd;
pub mod hosts;
pub mod signals;
pub mod telemetry;
