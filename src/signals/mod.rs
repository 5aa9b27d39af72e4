//! Sources of signals: where numbers come from, turned into core's states.
//!
//! An administrator configures sources by name ([`config`]); a policy can only
//! name one of them. Each source answers with a
//! [`Reading`](crate::core::signal::Reading), never with an error: what went
//! wrong is a state of the signal.

pub mod alertmanager;
pub mod config;
mod failure;
pub mod http;
pub mod metrics_api;
pub mod prometheus;
mod share;
mod stats;
pub mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

use self::alertmanager::AlertmanagerSource;
use self::config::{SourceConfig, SourceKind};
use self::http::SourceError;
use self::metrics_api::MetricsApi;
use self::prometheus::PrometheusSource;
pub use self::stats::{LATENCY_BUCKETS, Latency, SourceStats};
use self::webhook::{AlertStore, Delivery, DeliveryStats, WebhookSource};
use crate::core::alert::AlertSignal;
use crate::core::reason::Reason;
use crate::core::signal::Reading;

/// A source of any kind, ready to be asked.
#[derive(Clone, Debug)]
pub enum Source {
    Prometheus(Arc<PrometheusSource>),
    Alertmanager(Arc<AlertmanagerSource>),
    Webhook(Arc<WebhookSource>),
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
            SourceKind::Alertmanager(set) => {
                Source::Alertmanager(Arc::new(AlertmanagerSource::new(name, set)?))
            }
            SourceKind::Webhook(config) => {
                Source::Webhook(Arc::new(WebhookSource::new(name, config)))
            }
        })
    }

    fn stats(&self) -> SourceStats {
        match self {
            Source::Prometheus(source) => source.stats(),
            Source::Alertmanager(source) => source.stats(),
            // It is not asked: it is delivered to.
            Source::Webhook(_) => SourceStats::default(),
        }
    }
}

/// The configured sources by name.
#[derive(Debug, Default)]
pub struct Sources {
    by_name: BTreeMap<String, Source>,
    /// Only where there is a Kubernetes to ask.
    metrics_api: Option<Arc<MetricsApi>>,
    /// Deliveries to sources that do not exist.
    to_nobody: AtomicU64,
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
        Ok(Sources {
            by_name,
            metrics_api: None,
            to_nobody: AtomicU64::new(0),
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
            Some(_) => Err(Reading::error(
                Reason::SourceUnsuitable,
                format!("the source {name:?} answers no PromQL: name one of the kind prometheus"),
            )),
            None => Err(self.unknown(name)),
        }
    }

    /// Evaluates a signal about alerts as of the tick `asked_at`, whether they are
    /// asked for or delivered. With `whole`, a "no" needs an answer of each
    /// Alertmanager of a set.
    pub async fn alert(&self, signal: &AlertSignal, asked_at: Timestamp, whole: bool) -> Reading {
        let name = &signal.source;
        match self.get(name) {
            Some(Source::Alertmanager(source)) => source.read(signal, asked_at, whole).await,
            Some(Source::Webhook(source)) => source.read(signal).await,
            Some(Source::Prometheus(_)) => Reading::error(
                Reason::SourceUnsuitable,
                format!(
                    "the source {name:?} has no alerts with silences: name one of the kind \
                     alertmanager or webhook"
                ),
            ),
            None => self.unknown(name),
        }
    }

    /// The sources that are delivered to.
    pub fn webhooks(&self) -> impl Iterator<Item = &Arc<WebhookSource>> {
        self.by_name.values().filter_map(|source| match source {
            Source::Webhook(source) => Some(source),
            Source::Prometheus(_) | Source::Alertmanager(_) => None,
        })
    }

    /// From now on what is delivered is stored there.
    pub fn keep_alerts_in(&self, store: &Arc<dyn AlertStore>) {
        for webhook in self.webhooks() {
            webhook.keep_in(store.clone());
        }
    }

    fn webhook(&self, name: &str) -> Option<&Arc<WebhookSource>> {
        match self.get(name) {
            Some(Source::Webhook(source)) => Some(source),
            _ => None,
        }
    }

    fn delivered_to_nobody(&self) {
        self.to_nobody.fetch_add(1, Ordering::Relaxed);
    }

    /// What became of deliveries since the start, by source name. Those to sources
    /// that do not exist have the empty name.
    pub fn deliveries(&self) -> BTreeMap<String, DeliveryStats> {
        let mut all: BTreeMap<String, DeliveryStats> = self
            .webhooks()
            .map(|source| (source.name().to_owned(), source.deliveries()))
            .collect();
        if !all.is_empty() {
            let to_nobody = (
                Delivery::UnknownSource,
                self.to_nobody.load(Ordering::Relaxed),
            );
            let stats = DeliveryStats {
                deliveries: BTreeMap::from([to_nobody]),
                ..DeliveryStats::default()
            };
            all.insert(String::new(), stats);
        }
        all
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
