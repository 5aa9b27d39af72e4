//! Sources of signals: where numbers come from, turned into core's states.
//!
//! An administrator configures sources by name ([`config`]); a policy can only
//! name one of them. Each source answers with a
//! [`Reading`](crate::core::signal::Reading), never with an error: what went
//! wrong is a state of the signal.

pub mod config;
mod failure;
pub mod http;
pub mod prometheus;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::config::{SourceConfig, SourceKind};
use self::http::SourceError;
use self::prometheus::PrometheusSource;
pub use self::stats::{LATENCY_BUCKETS, Latency, SourceStats};
use crate::core::reason::Reason;
use crate::core::signal::Reading;

/// A source of any kind, ready to be asked.
#[derive(Clone, Debug)]
pub enum Source {
    Prometheus(Arc<PrometheusSource>),
}

impl Source {
    /// Builds its client. Nothing is asked yet.
    ///
    /// # Errors
    /// Certificates or keys that cannot be read or used.
    pub fn new(config: SourceConfig) -> Result<Self, SourceError> {
        let SourceConfig { name, kind } = config;
        Ok(match kind {
            SourceKind::Prometheus(http) => {
                Source::Prometheus(Arc::new(PrometheusSource::new(name, http)?))
            }
        })
    }

    fn stats(&self) -> SourceStats {
        match self {
            Source::Prometheus(source) => source.stats(),
        }
    }
}

/// The configured sources by name.
#[derive(Debug, Default)]
pub struct Sources {
    by_name: BTreeMap<String, Source>,
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
            by_name.insert(name, Source::new(config)?);
        }
        Ok(Sources { by_name })
    }

    /// The source of that name.
    pub fn get(&self, name: &str) -> Option<&Source> {
        self.by_name.get(name)
    }

    /// The source of that name, which must answer PromQL.
    ///
    /// # Errors
    /// The reading of a policy that names another one, or none.
    pub fn prometheus(&self, name: &str) -> Result<&Arc<PrometheusSource>, Reading> {
        match self.get(name) {
            Some(Source::Prometheus(source)) => Ok(source),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> Reading {
        Reading::error(
            Reason::SourceUnknown,
            format!(
                "the source {name:?} is not configured; known: {}",
                self.names().join(", ")
            ),
        )
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
