//! The pure core: when to run and what to do next.
//!
//! Nothing in here is async, reads a clock, or knows a client. `now` and random
//! seeds are arguments; observations are plain values. The wall is enforced by
//! the lints below (their bans are in `clippy.toml`) and by a test that reads
//! the imports of these files.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod alert;
pub mod decide;
pub mod duration;
pub mod fleet;
pub mod history;
pub mod key;
pub mod labels;
pub mod name;
pub mod probe;
pub mod promql;
pub mod quantity;
pub mod reason;
pub mod rule;
pub mod run;
pub mod signal;
pub mod sweep;
pub mod target;
pub mod tick;
pub mod version;
pub mod view;
pub mod window;
