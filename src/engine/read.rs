//! Asking: the signal of a policy, and the members where that is necessary.

use jiff::Timestamp;

use crate::core::decide::{Policy, wants_fallback, wants_sample_age};
use crate::core::fleet::OwnSeries;
use crate::core::probe;
use crate::core::reason::Reason;
use crate::core::signal::{PrometheusSignal, Reading, Signal, SignalState};
use crate::core::view::Observation;
use crate::etcd::Connection;
use crate::signals::Sources;

use super::cluster::Link;
use super::host::{ClusterKey, Host, PolicyView};
use super::now;
use super::policy::{PolicyShared, listed};

/// What was said at one evaluation.
pub(super) struct Readings {
    pub(super) primary: Option<Reading>,
    pub(super) fallback: Option<Reading>,
    pub(super) emergency: Option<String>,
    /// When it was found that nobody is to be asked. The decision is about that
    /// moment: a pause must not end between the two.
    pub(super) unasked_at: Option<Timestamp>,
}

impl Readings {
    pub(super) fn unasked(at: Timestamp) -> Self {
        Readings {
            primary: None,
            fallback: None,
            emergency: None,
            unasked_at: Some(at),
        }
    }

    /// The number that decided, for the metrics; the status keeps a coarser one.
    pub(super) fn value(&self, by_fallback: bool) -> Option<f64> {
        let fallback = self.fallback.as_ref().filter(|_| by_fallback);
        fallback.or(self.primary.as_ref())?.value
    }
}

/// Asks the signal, and the members where the answer makes that necessary.
pub(super) async fn read<H: Host>(
    shared: &PolicyShared<H>,
    policy: &Policy,
    view: &PolicyView,
    connection: &Connection,
    asked_at: Timestamp,
) -> Readings {
    let state = &view.state;
    let mut asking = Asking {
        sources: &shared.sources,
        series: view.series.as_ref(),
        connection,
        asked_at,
        seen: None,
    };
    // Without a list of runs nothing is created, whatever the age.
    let runs = listed(&*shared.base.host, view).unwrap_or_default();
    let age = wants_sample_age(state, &runs);
    let primary = asking.signal(&policy.signal, age).await;
    let fallback = match &policy.fallback {
        Some(fallback) if wants_fallback(policy, state, &primary, now()) => {
            Some(probe::judge(&fallback.rule, asking.look().await))
        }
        _ => None,
    };
    let firing = [Some(&primary), fallback.as_ref()]
        .into_iter()
        .flatten()
        .any(|r| r.state == SignalState::Firing);
    let emergency = match &policy.emergency {
        Some(declared) if firing => probe::emergency(declared, asking.look().await),
        _ => None,
    };
    Readings {
        primary: Some(primary),
        fallback,
        emergency,
        unasked_at: None,
    }
}

/// One evaluation's questions, all as of one tick.
struct Asking<'a> {
    sources: &'a Sources,
    /// Those that are about the cluster; `None`: all.
    series: Option<&'a OwnSeries>,
    connection: &'a Connection,
    asked_at: Timestamp,
    /// The members are looked at once at most.
    seen: Option<Observation>,
}

impl Asking<'_> {
    /// What a signal of any kind says.
    async fn signal(&mut self, signal: &Signal, need_sample_age: bool) -> Reading {
        match signal {
            Signal::Prometheus(signal) => Box::pin(self.prometheus(signal, need_sample_age)).await,
            Signal::Probe(rule) => probe::judge(rule, self.look().await),
        }
    }

    async fn prometheus(&self, signal: &PrometheusSignal, need_sample_age: bool) -> Reading {
        match (self.sources.get(&signal.source), self.series) {
            (Some(source), None) => source.read(signal, self.asked_at, need_sample_age).await,
            (Some(source), Some(OwnSeries { label, value })) => match value {
                Ok(value) => {
                    source
                        .read_of(signal, label, value, self.asked_at, need_sample_age)
                        .await
                }
                Err(note) => Reading::error(note.reason, note.message.clone()),
            },
            (None, _) => Reading::error(
                Reason::SourceUnknown,
                format!(
                    "the source {:?} is not configured; known: {}",
                    signal.source,
                    self.sources.names().join(", ")
                ),
            ),
        }
    }

    /// Observes the cluster.
    async fn look(&mut self) -> &Observation {
        let observation = match self.seen.take() {
            Some(observation) => observation,
            None => Box::pin(observe(self.connection.clone())).await,
        };
        self.seen.insert(observation)
    }
}

async fn observe(connection: Connection) -> Observation {
    Link::new(connection).observe(now()).await
}

/// What the signal asks, for those who ask the same to ask it at the same moment.
pub(super) fn question(policy: &Policy, cluster: &ClusterKey) -> String {
    // Each cluster is a question of its own, so that not all are probed at once.
    question_of_all(policy).unwrap_or_else(|| format!("probe\n{cluster}"))
}

/// What is asked of a source, whatever the cluster.
pub(super) fn question_of_all(policy: &Policy) -> Option<String> {
    match &policy.signal {
        Signal::Prometheus(signal) => Some(format!("{}\n{}", signal.source, signal.query.text())),
        Signal::Probe(_) => None,
    }
}
