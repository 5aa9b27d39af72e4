//! From what is known at one moment to the text of a scrape.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use metrics_process::collector::Metrics as Process;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::encode::{Done, Histogram, Metric, Value, Writer};
use super::*;
use crate::core::key::{ClusterKey, ClusterKind, ObjectKey, PolicyOn};
use crate::core::signal::SignalState;
use crate::signals::webhook::DeliveryStats;
use crate::signals::{LATENCY_BUCKETS, SourceStats};
use crate::telemetry::counts::Counts;
use crate::telemetry::health::Health;
use crate::telemetry::objects::{
    ClusterNumbers, FleetNumbers, MemberNumbers, Objects, PolicyNumbers, UnfinishedNumbers,
};

/// The commit, where the build was told.
const REVISION: &str = match option_env!("DEFRAGD_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

const STATES: [SignalState; 5] = [
    SignalState::Firing,
    SignalState::NotFiring,
    SignalState::NoData,
    SignalState::Inconclusive,
    SignalState::Error,
];

/// All that a scrape shows.
#[derive(Debug)]
pub(in crate::telemetry) struct Scrape {
    pub(in crate::telemetry) objects: Objects,
    pub(in crate::telemetry) counts: Counts,
    pub(in crate::telemetry) health: Health,
    pub(in crate::telemetry) sources: BTreeMap<String, SourceStats>,
    /// By source; those for sources that do not exist have no name.
    pub(in crate::telemetry) deliveries: BTreeMap<String, DeliveryStats>,
    pub(in crate::telemetry) process: Process,
}

impl Scrape {
    /// All metrics in the OpenMetrics text format; `size` is about how many bytes
    /// that takes.
    pub(in crate::telemetry) fn render(self, size: usize) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::with_capacity(size);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Done {
        let mut out = Writer::new(&mut encoder);
        self.policies(&mut out)?;
        self.clusters(&mut out)?;
        self.members(&mut out)?;
        self.unfinished(&mut out)?;
        self.runs(&mut out)?;
        self.sources(&mut out)?;
        self.deliveries(&mut out)?;
        self.engine(&mut out)?;
        self.api(&mut out)?;
        self.process(&mut out)
    }
}

impl Scrape {
    fn policies(&self, out: &mut Writer<'_, '_>) -> Done {
        let policies = || {
            self.objects
                .policies
                .iter()
                .filter_map(|(key, numbers)| Some((policy_labels(key), (**numbers).as_ref()?)))
        };
        out.metric(&POLICY, policies().map(|(labels, _)| (labels, Value::Info)))?;
        out.metric(
            &SIGNAL_STATE,
            policies()
                .filter_map(|(labels, numbers)| Some((labels, numbers.signal?)))
                .flat_map(|(labels, current)| {
                    STATES.map(|state| {
                        let [namespace, name, cluster, kind] = labels.clone();
                        let state_label = text(("state", state.as_str()));
                        (
                            [namespace, name, cluster, kind, state_label],
                            flag(state == current),
                        )
                    })
                }),
        )?;
        out.metric(
            &DECISION,
            policies().filter_map(|([namespace, name, cluster, kind], numbers)| {
                let reason = text(("reason", numbers.decision?.as_str()));
                Some(([namespace, name, cluster, kind, reason], Value::Gauge(1.0)))
            }),
        )?;
        self.fleets(out)?;
        let mut each =
            |metric: &Metric, value: &dyn Fn(&PolicyNumbers) -> Option<Value<'static>>| {
                out.metric(
                    metric,
                    policies().filter_map(|(labels, numbers)| Some((labels, value(numbers)?))),
                )
            };
        each(&SIGNAL_VALUE, &|n| n.value.map(Value::Gauge))?;
        each(&FIRING_SINCE, &|n| n.firing_since.map(time))?;
        each(&BLOCKED_SINCE, &|n| n.blocked_since.map(time))?;
        each(&BLOCKERS_SINCE, &|n| n.blockers_since.map(time))?;
        each(&NEXT_ELIGIBLE, &|n| n.next_eligible.map(time))?;
        each(&LAST_RUN, &|n| n.last_run.map(time))?;
        each(&LAST_SUCCESS, &|n| n.last_success.map(time))?;
        each(&BACKOFF_LEVEL, &|n| Some(level(n.backoff_level)))?;
        each(&FAILURE_LEVEL, &|n| Some(level(n.failure_level)))?;
        each(&FALLBACK, &|n| Some(flag(n.fallback)))
    }

    fn fleets(&self, out: &mut Writer<'_, '_>) -> Done {
        let mut each =
            |metric: &Metric, value: &dyn Fn(&FleetNumbers) -> Option<Value<'static>>| {
                out.metric(
                    metric,
                    self.objects.fleets.iter().filter_map(|(key, numbers)| {
                        let ObjectKey { namespace, name } = &**key;
                        let labels = [("namespace", namespace.as_str()), ("name", name.as_str())];
                        Some((labels, value(numbers)?))
                    }),
                )
            };
        each(&FLEET_CLUSTERS, &|n| Some(count(n.clusters)))?;
        each(&FLEET_EXCESS, &|n| Some(count(n.excess)))?;
        each(&FLEET_UNMATCHED, &|n| n.unmatched.map(count))
    }

    fn clusters(&self, out: &mut Writer<'_, '_>) -> Done {
        let mut each =
            |metric: &Metric, value: &dyn Fn(&ClusterNumbers) -> Option<Value<'static>>| {
                let clusters = self.objects.clusters.iter();
                out.metric(
                    metric,
                    clusters
                        .filter_map(|(key, numbers)| Some((cluster_labels(key), value(numbers)?))),
                )
            };
        each(&OBSERVED, &|n| n.observed_at.map(time))?;
        each(&CLUSTER_RECLAIMED, &|n| Some(Value::Counter(n.reclaimed)))?;
        out.metric(
            &HEALTH,
            self.objects.clusters.iter().filter_map(|(key, numbers)| {
                let [namespace, name, kind] = cluster_labels(key);
                let reason = ("reason", Cow::from(numbers.health?.as_str()));
                Some(([namespace, name, kind, reason], Value::Gauge(1.0)))
            }),
        )?;
        out.metric(
            &CLUSTER_RUNS,
            self.objects.clusters.iter().flat_map(|(key, numbers)| {
                let outcomes = [("Complete", numbers.complete), ("Failed", numbers.failed)];
                outcomes.map(|(outcome, count)| {
                    let [namespace, name, kind] = cluster_labels(key);
                    let outcome = ("outcome", Cow::from(outcome));
                    ([namespace, name, kind, outcome], Value::Counter(count))
                })
            }),
        )
    }

    fn members(&self, out: &mut Writer<'_, '_>) -> Done {
        let members = || {
            self.objects.clusters.iter().flat_map(|(key, numbers)| {
                numbers.members.iter().map(move |member| {
                    let [namespace, name, kind] = cluster_labels(key);
                    let id = [
                        text(("member", &member.name)),
                        text(("member_id", &member.id)),
                    ];
                    let [member_name, member_id] = id;
                    let labels = [namespace, name, kind, member_name, member_id];
                    (labels, member)
                })
            })
        };
        let mut each =
            |metric: &Metric, value: &dyn Fn(&MemberNumbers) -> Option<Value<'static>>| {
                out.metric(
                    metric,
                    members().filter_map(|(labels, member)| Some((labels, value(member)?))),
                )
            };
        each(&MEMBER_UP, &|m| Some(flag(m.up)))?;
        each(&MEMBER_DB_SIZE, &|m| m.db_size.map(count))?;
        each(&MEMBER_IN_USE, &|m| m.in_use.map(count))?;
        each(&MEMBER_QUOTA, &|m| m.quota.map(count))?;
        each(&MEMBER_LAG, &|m| m.apply_lag.map(count))?;
        out.metric(
            &MEMBER_ALARM,
            members().flat_map(|(labels, member)| {
                let alarms = [("NOSPACE", member.no_space), ("CORRUPT", member.corrupt)];
                alarms.into_iter().filter_map(move |(alarm, raised)| {
                    let [namespace, name, kind, member, id] = labels.clone();
                    let alarm = ("alarm", Cow::from(alarm));
                    Some(([namespace, name, kind, member, id, alarm], flag(raised?)))
                })
            }),
        )
    }

    fn unfinished(&self, out: &mut Writer<'_, '_>) -> Done {
        let mut each = |metric: &Metric, value: &dyn Fn(&UnfinishedNumbers) -> Value<'static>| {
            let runs = self.objects.unfinished.iter();
            out.metric(
                metric,
                runs.map(|(key, numbers)| (cluster_labels(key), value(numbers))),
            )
        };
        each(&UNFINISHED, &|n| count(n.count))?;
        each(&UNFINISHED_CREATED, &|n| time(n.oldest))?;
        out.metric(
            &RUN_GATE,
            self.objects.unfinished.iter().filter_map(|(key, numbers)| {
                let [namespace, name, kind] = cluster_labels(key);
                let reason = ("reason", Cow::from(numbers.gate?.as_str()));
                Some(([namespace, name, kind, reason], Value::Gauge(1.0)))
            }),
        )
    }

    fn runs(&self, out: &mut Writer<'_, '_>) -> Done {
        let runs = self.counts.runs.iter();
        out.metric(
            &RUNS,
            runs.map(|((outcome, reason), count)| {
                let labels = [("outcome", *outcome), ("reason", reason.as_str())];
                (labels, Value::Counter(*count))
            }),
        )?;
        out.single(
            &MEMBER_SECONDS,
            Value::Histogram(&self.counts.member_seconds),
        )
    }

    fn sources(&self, out: &mut Writer<'_, '_>) -> Done {
        out.metric(
            &SOURCE_REQUESTS,
            self.sources.iter().flat_map(|(source, stats)| {
                stats.requests.iter().map(move |(code, count)| {
                    let labels = [("source", source.as_str()), ("code", code.as_str())];
                    (labels, Value::Counter(*count))
                })
            }),
        )?;
        out.metric(
            &SOURCE_SHARED,
            self.sources.iter().map(|(source, stats)| {
                ([("source", source.as_str())], Value::Counter(stats.shared))
            }),
        )?;
        let bounds = || LATENCY_BUCKETS.into_iter().chain([f64::INFINITY]);
        let histograms: Vec<(&str, Histogram)> = self
            .sources
            .iter()
            .map(|(source, stats)| {
                let histogram = Histogram {
                    sum: stats.latency.sum_seconds,
                    count: stats.latency.count,
                    buckets: bounds().zip(stats.latency.buckets).collect(),
                };
                (source.as_str(), histogram)
            })
            .collect();
        out.metric(
            &SOURCE_SECONDS,
            histograms
                .iter()
                .map(|(source, histogram)| ([("source", *source)], Value::Histogram(histogram))),
        )
    }

    fn deliveries(&self, out: &mut Writer<'_, '_>) -> Done {
        out.metric(
            &WEBHOOK_DELIVERIES,
            self.deliveries.iter().flat_map(|(source, stats)| {
                stats.deliveries.iter().map(move |(result, count)| {
                    let labels = [
                        text(("source", source)),
                        ("result", Cow::from(result.as_str())),
                        ("code", Cow::from(result.code().to_string())),
                    ];
                    (labels, Value::Counter(*count))
                })
            }),
        )?;
        out.metric(
            &WEBHOOK_ALERTS,
            self.deliveries.iter().flat_map(|(source, stats)| {
                stats.alerts.iter().map(move |(result, count)| {
                    let labels = [("source", source.as_str()), ("result", *result)];
                    (labels, Value::Counter(*count))
                })
            }),
        )
    }

    fn engine(&self, out: &mut Writer<'_, '_>) -> Done {
        let objects = self.counts.objects.iter();
        out.metric(
            &OBJECTS,
            objects.map(|(kind, known)| ([("kind", *kind)], count(*known))),
        )?;
        out.single(&LAST_ROUND, self.health.last_round.map(time))?;
        out.single(&LEADER, self.health.leads.map(flag))?;
        let transitions = Value::Counter(self.health.transitions);
        out.single(&LEADER_TRANSITIONS, self.health.leads.map(|_| transitions))?;
        let errors = self.counts.errors.iter();
        out.metric(
            &ERRORS,
            errors.map(|(what, count)| ([("what", *what)], Value::Counter(*count))),
        )?;
        let writes = self.counts.state_writes.iter();
        out.metric(
            &STATE_WRITES,
            writes.map(|(result, count)| ([("result", *result)], Value::Counter(*count))),
        )
    }

    fn api(&self, out: &mut Writer<'_, '_>) -> Done {
        let requests = self.counts.api_requests.iter();
        out.metric(
            &API_REQUESTS,
            requests.map(|((verb, resource, code), count)| {
                let code = code.map_or(Cow::from("none"), |code| Cow::from(code.to_string()));
                let labels = [
                    text(("verb", verb)),
                    text(("resource", resource)),
                    ("code", code),
                ];
                (labels, Value::Counter(*count))
            }),
        )?;
        let seconds = self.counts.api_seconds.iter();
        out.metric(
            &API_SECONDS,
            seconds.map(|(verb, histogram)| ([("verb", *verb)], Value::Histogram(histogram))),
        )?;
        let restarts = self.counts.watch_restarts.iter();
        out.metric(
            &WATCH_RESTARTS,
            restarts.map(|(kind, count)| ([("kind", *kind)], Value::Counter(*count))),
        )
    }

    fn process(&self, out: &mut Writer<'_, '_>) -> Done {
        let build = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("revision", REVISION),
            ("rustc", env!("DEFRAGD_RUSTC")),
        ];
        out.metric(&BUILD, [(build, Value::Info)])?;
        let process = &self.process;
        out.single(&CPU, process.cpu_seconds_total.map(Value::Seconds))?;
        out.single(&RESIDENT, process.resident_memory_bytes.map(count))?;
        out.single(&VIRTUAL, process.virtual_memory_bytes.map(count))?;
        out.single(&START_TIME, process.start_time_seconds.map(count))?;
        out.single(&OPEN_FDS, process.open_fds.map(count))?;
        // Zero means that there is no limit.
        let max_fds = process.max_fds.filter(|max| *max > 0);
        out.single(&MAX_FDS, max_fds.map(count))?;
        out.single(&THREADS, process.threads.map(count))
    }
}

type Label<'a> = (&'static str, Cow<'a, str>);

fn text<'a>((name, value): (&'static str, &'a str)) -> Label<'a> {
    (name, Cow::from(value))
}

fn policy_labels(policy: &PolicyOn) -> [Label<'_>; 4] {
    let PolicyOn { policy, cluster } = policy;
    [
        text(("namespace", &policy.namespace)),
        text(("name", &policy.name)),
        text(("cluster", &cluster.object.name)),
        ("cluster_kind", kind_label(cluster.kind)),
    ]
}

fn cluster_labels(cluster: &ClusterKey) -> [Label<'_>; 3] {
    let ClusterKey { kind, object } = cluster;
    [
        text(("namespace", &object.namespace)),
        text(("name", &object.name)),
        ("kind", kind_label(*kind)),
    ]
}

/// Two operators have an `EtcdCluster`; the group tells them apart.
fn kind_label(kind: ClusterKind) -> Cow<'static, str> {
    match kind {
        ClusterKind::EtcdTarget => Cow::from(kind.kind()),
        kind => Cow::from(format!("{}.{}", kind.kind(), kind.group())),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sample is a float; nobody compares these exactly"
)]
fn count(value: u64) -> Value<'static> {
    Value::Gauge(value as f64)
}

fn level(value: u32) -> Value<'static> {
    Value::Gauge(f64::from(value))
}

fn flag(value: bool) -> Value<'static> {
    Value::Gauge(f64::from(u8::from(value)))
}

fn time(at: Timestamp) -> Value<'static> {
    Value::Gauge(at.as_duration().as_secs_f64())
}
