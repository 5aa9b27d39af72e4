//! Counting what is asked of a source.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the latency buckets in seconds; one more bucket has none.
pub const LATENCY_BUCKETS: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Counts of one source since the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceStats {
    /// HTTP requests by outcome: the status code, or one of `timeout`,
    /// `connect`, `redirect`, `too_large`, `broken`.
    pub requests: BTreeMap<String, u64>,
    /// Questions answered by a request that another caller had sent.
    pub shared: u64,
    pub latency: Latency,
}

impl SourceStats {
    /// Adds those of another client of the same source.
    pub(super) fn add(&mut self, other: &SourceStats) {
        for (outcome, count) in &other.requests {
            *self.requests.entry(outcome.clone()).or_default() += count;
        }
        self.shared += other.shared;
        self.latency.count += other.latency.count;
        self.latency.sum_seconds += other.latency.sum_seconds;
        for (own, more) in self.latency.buckets.iter_mut().zip(other.latency.buckets) {
            *own += more;
        }
    }
}

/// How long the requests took, to the last byte of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    pub count: u64,
    pub sum_seconds: f64,
    /// Requests by bucket of [`LATENCY_BUCKETS`], not accumulated; the last
    /// counts those above all bounds.
    pub buckets: [u64; LATENCY_BUCKETS.len() + 1],
}

/// The counters that requests are entered into.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<SourceStats>);

impl Counters {
    pub(super) fn request(&self, outcome: &str, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = LATENCY_BUCKETS
            .iter()
            .position(|bound| seconds <= *bound)
            .unwrap_or(LATENCY_BUCKETS.len());
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match stats.requests.get_mut(outcome) {
            Some(count) => *count += 1,
            None => {
                stats.requests.insert(outcome.to_owned(), 1);
            }
        }
        stats.latency.count += 1;
        stats.latency.sum_seconds += seconds;
        stats.latency.buckets[bucket] += 1;
    }

    pub(super) fn shared(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).shared += 1;
    }

    pub(super) fn snapshot(&self) -> SourceStats {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
