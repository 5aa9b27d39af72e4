//! Sources of signals: where numbers come from, turned into core's states.
//!
//! An administrator configures sources by name ([`config`]); a policy can only
//! name one of them. Each source answers with a
//! [`Reading`](crate::core::signal::Reading), never with an error: what went
//! wrong is a state of the signal.

pub mod config;
pub mod metrics_api;
pub mod prometheus;
mod stats;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::config::SourceConfig;
use self::metrics_api::MetricsApi;
use self::prometheus::{PrometheusSource, SourceError};
pub use self::stats::{LATENCY_BUCKETS, Latency, SourceStats};

/// The configured sources by name.
#[derive(Debug, Default)]
pub struct Sources {
    by_name: BTreeMap<String, Arc<PrometheusSource>>,
    /// Only where there is a Kubernetes to ask.
    metrics_api: Option<Arc<MetricsApi>>,
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
        Ok(Sources {
            by_name,
            metrics_api: None,
        })
    }

    /// With the metrics APIs of the Kubernetes cluster that defragd works in.
    #[must_use]
    pub fn with_metrics_api(mut self, metrics_api: MetricsApi) -> Self {
        self.metrics_api = Some(Arc::new(metrics_api));
        self
    }

    /// The metrics APIs, where there is a Kubernetes to ask.
    pub fn metrics_api(&self) -> Option<&Arc<MetricsApi>> {
        self.metrics_api.as_ref()
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
        let mut stats: BTreeMap<String, SourceStats> = self
            .by_name
            .iter()
            .map(|(name, source)| (name.clone(), source.stats()))
            .collect();
        // Where no policy has a metric there is nothing to tell.
        if let Some(of_api) = self.metrics_api.as_ref().map(|api| api.stats())
            && of_api != SourceStats::default()
        {
            stats.insert(metrics_api::SOURCE.to_owned(), of_api);
        }
        stats
    }
}
