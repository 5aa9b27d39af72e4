//! Sources of signals: where numbers come from, turned into core's states.
//!
//! An administrator configures sources by name ([`config`]); a policy can only
//! name one of them. Each source answers with a
//! [`Reading`](crate::core::signal::Reading), never with an error: what went
//! wrong is a state of the signal.

pub mod config;
pub mod prometheus;
mod share;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::config::SourceConfig;
use self::prometheus::{PrometheusSource, SourceError};
pub use self::stats::{LATENCY_BUCKETS, Latency, SourceStats};

/// The configured sources by name.
#[derive(Debug, Default)]
pub struct Sources {
    by_name: BTreeMap<String, Arc<PrometheusSource>>,
}

impl Sources {
    /// Builds a client for each source. Nothing is asked yet, so a source that
    /// is down does not keep defragd from starting (S89).
    ///
    /// # Errors
    /// Certificates or keys that cannot be read or used.
    pub fn from_config(configs: Vec<SourceConfig>) -> Result<Self, SourceError> {
        let mut by_name = BTreeMap::new();
        for config in configs {
            let name = config.name.clone();
            by_name.insert(name, Arc::new(PrometheusSource::new(config)?));
        }
        Ok(Sources { by_name })
    }

    /// The source of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<PrometheusSource>> {
        self.by_name.get(name)
    }

    /// The names of all sources, sorted.
    pub fn names(&self) -> Vec<&str> {
        self.by_name.keys().map(String::as_str).collect()
    }

    /// What has been asked of each source since the start, by source name.
    pub fn stats(&self) -> BTreeMap<String, SourceStats> {
        self.by_name
            .iter()
            .map(|(name, source)| (name.clone(), source.stats()))
            .collect()
    }
}
