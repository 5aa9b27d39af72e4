//! What an administrator allows, for all clusters together.

use std::num::NonZeroU32;

/// Limits that an administrator sets for all clusters together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Runs that may be going on at a time; `None`: one for each cluster. One that waits for
    /// its cluster to be healthy, or that is suspended, does not count.
    pub max_concurrent_runs: Option<NonZeroU32>,
    /// Runs that policies may create within any hour; `None`: as many as their own limits
    /// allow.
    pub runs_per_hour: Option<NonZeroU32>,
    /// Runs that policies may create within any minute, evenly spread; `None`: at once.
    pub runs_per_minute: Option<NonZeroU32>,
}
