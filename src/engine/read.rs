//! Asking: the signal of a policy, and the members where that is necessary.

use futures::future::join_all;
use jiff::Timestamp;

use crate::core::decide::{Policy, wants_fallback, wants_sample_age};
use crate::core::fleet::OwnSeries;
use crate::core::probe;
use crate::core::reason::Reason;
use crate::core::signal::{MetricSignal, PrometheusSignal, Reading, Signal, SignalState};
use crate::core::tick;
use crate::core::view::Observation;
use crate::etcd::Connection;
use crate::signals::Sources;

use super::cluster::Link;
use super::host::{ClusterKey, Host, PolicyView};
use super::now;
use super::pace::BlockerSteps;
use super::run::listed;
use super::shared::PolicyShared;

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
        namespace: &view.key.namespace,
        series: view.series.as_ref(),
        connection,
        asked_at,
        whole: false,
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

/// When an answer of a blocker has to be of.
#[derive(Clone, Copy, Debug)]
pub(super) enum AsOf {
    /// The last tick of its question, so that all policies with this blocker share one
    /// answer, whenever they ask.
    Tick,
    /// This moment.
    Now,
}

/// What the policy's blockers say, in their order.
pub(super) async fn blockers<H: Host>(
    shared: &PolicyShared<H>,
    policy: &Policy,
    cluster: &ClusterKey,
    connection: &Connection,
    steps: &BlockerSteps,
    as_of: AsOf,
) -> Vec<Reading> {
    let now = now();
    let subjects = policy.blockers.iter().map(|b| subject(&b.signal, cluster));
    let subjects: Vec<String> = subjects.collect();
    let intervals = steps.keep(&subjects, policy.interval);
    let each = policy.blockers.iter().zip(&subjects).zip(intervals);
    let asked = each.map(|((blocker, subject), interval)| async move {
        let tick = tick::next(now, interval, subject);
        let mut asking = Asking {
            sources: &shared.sources,
            connection,
            asked_at: match as_of {
                AsOf::Tick => tick.checked_sub(interval).unwrap_or(now).min(now),
                AsOf::Now => now,
            },
            namespace: &cluster.object.namespace,
            // It is about all clusters of the policy.
            series: None,
            whole: true,
            seen: None,
        };
        asking.signal(&blocker.signal, false).await
    });
    // A slow one keeps no other one waiting.
    Box::pin(join_all(asked)).await
}

/// One evaluation's questions, all as of one tick.
struct Asking<'a> {
    sources: &'a Sources,
    /// The policy's own.
    namespace: &'a str,
    /// Those that are about the cluster; `None`: all.
    series: Option<&'a OwnSeries>,
    connection: &'a Connection,
    asked_at: Timestamp,
    /// A "no" of a set of Alertmanagers counts only when none is silent.
    whole: bool,
    /// The members are looked at once at most.
    seen: Option<Observation>,
}

impl Asking<'_> {
    /// What a signal of any kind says.
    async fn signal(&mut self, signal: &Signal, need_sample_age: bool) -> Reading {
        match signal {
            Signal::Prometheus(signal) => Box::pin(self.prometheus(signal, need_sample_age)).await,
            Signal::Metric(signal) => Box::pin(self.metric(signal, need_sample_age)).await,
            Signal::Alert(signal) => {
                Box::pin(self.sources.alert(signal, self.asked_at, self.whole)).await
            }
            Signal::Probe(rule) => probe::judge(rule, self.look().await),
        }
    }

    async fn metric(&self, signal: &MetricSignal, need_sample_age: bool) -> Reading {
        match self.sources.metrics_api() {
            Some(api) => {
                api.read(signal, self.namespace, self.asked_at, need_sample_age)
                    .await
            }
            None => Reading::error(
                Reason::SourceUnknown,
                "a metric needs Kubernetes: its metrics APIs are asked, and there is none here",
            ),
        }
    }

    async fn prometheus(&self, signal: &PrometheusSignal, need_sample_age: bool) -> Reading {
        let source = match self.sources.prometheus(&signal.source) {
            Ok(source) => source,
            Err(reading) => return reading,
        };
        let Some(OwnSeries { label, value }) = self.series else {
            return source.read(signal, self.asked_at, need_sample_age).await;
        };
        match value {
            Ok(value) => {
                source
                    .read_of(signal, label, value, self.asked_at, need_sample_age)
                    .await
            }
            Err(note) => Reading::error(note.reason, note.message.clone()),
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
    subject(&policy.signal, cluster)
}

/// What is asked of a source, whatever the cluster; `None` for a probe.
pub(super) fn question_of_all(policy: &Policy, namespace: &str) -> Option<String> {
    asked(&policy.signal, namespace)
}

/// What is asked, as text: equal questions have equal ones.
fn subject(signal: &Signal, cluster: &ClusterKey) -> String {
    asked(signal, &cluster.object.namespace).unwrap_or_else(|| format!("probe\n{cluster}"))
}

fn asked(signal: &Signal, namespace: &str) -> Option<String> {
    match signal {
        Signal::Prometheus(signal) => Some(format!("{}\n{}", signal.source, signal.query.text())),
        Signal::Metric(signal) => Some(signal.metric.question(namespace)),
        Signal::Alert(signal) => Some(format!("{}\n{}", signal.source, signal.matchers)),
        Signal::Probe(_) => None,
    }
}
