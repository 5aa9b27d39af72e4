//! The metrics: one table of what there is, and their rendering.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::Counts;
use crate::core::key::ObjectKey;
use crate::core::reason::Reason;
use crate::core::rule::{Quota, QuotaSource};
use crate::core::signal::SignalState;
use crate::core::view::MemberId;
use crate::signals::{LATENCY_BUCKETS, SourceStats};

/// What stands before every name.
const PREFIX: &str = "defragd";

/// One metric.
struct Metric {
    /// Without the prefix, the unit and `_total`.
    name: &'static str,
    unit: Option<&'static str>,
    kind: MetricType,
    /// For the documentation's table.
    #[cfg(test)]
    labels: &'static [&'static str],
    help: &'static str,
}

macro_rules! metrics {
    ($($id:ident = $name:literal, $unit:expr, $kind:ident, $labels:expr, $help:literal;)+) => {
        $(const $id: Metric = Metric {
            name: $name,
            unit: $unit,
            kind: MetricType::$kind,
            #[cfg(test)]
            labels: &$labels,
            help: $help,
        };)+
        /// Every metric there is; `docs/metrics.md` holds the same table.
        #[cfg(test)]
        const ALL: &[Metric] = &[$($id),+];
    };
}

metrics! {
    BUILD = "build", None, Info, ["version"], "The release that runs";
    LAST_ROUND = "engine_last_round_timestamp", Some("seconds"), Gauge, [],
        "When the engine last went over all objects";
    SIGNAL_STATE = "policy_signal_state", None, Gauge, ["namespace", "name", "state"],
        "1 for the state of the policy's signal, 0 for the other four";
    SIGNAL_VALUE = "policy_signal_value", None, Gauge, ["namespace", "name"],
        "The number that the signal compared; absent without one";
    DECISION = "policy_decision", None, Gauge, ["namespace", "name", "reason"],
        "1 for the reason of the policy's last decision; other reasons are absent";
    FIRING_SINCE = "policy_firing_since_timestamp", Some("seconds"), Gauge, ["namespace", "name"],
        "Since when the signal fires; absent while it does not";
    NEXT_ELIGIBLE = "policy_next_eligible_timestamp", Some("seconds"), Gauge, ["namespace", "name"],
        "Before this no run starts; absent when nothing holds one back";
    LAST_RUN = "policy_last_run_timestamp", Some("seconds"), Gauge, ["namespace", "name"],
        "End of the last run on the policy's cluster, whoever made it";
    LAST_SUCCESS = "policy_last_success_timestamp", Some("seconds"), Gauge, ["namespace", "name"],
        "End of the last run that succeeded; absent when none is known";
    BACKOFF_LEVEL = "policy_backoff_level", None, Gauge, ["namespace", "name"],
        "Runs in a row that gave back too little";
    FAILURE_LEVEL = "policy_failure_level", None, Gauge, ["namespace", "name"],
        "Runs in a row that failed";
    FALLBACK = "policy_fallback_active", None, Gauge, ["namespace", "name"],
        "1 while the fallback's probe decides because the source fails";
    RUNS = "runs", None, Counter, ["outcome", "reason"], "Runs that reached their end";
    RECLAIMED = "reclaimed", Some("bytes"), Counter, [], "Bytes that runs gave back";
    MEMBER_SECONDS = "member_defragmentation_duration", Some("seconds"), Histogram, [],
        "Time from the call to the member that was seen to be defragmented";
    OBSERVED = "target_observed_timestamp", Some("seconds"), Gauge, ["namespace", "name"],
        "When the target was last looked at";
    MEMBER_UP = "target_member_up", None, Gauge, ["namespace", "name", "member", "member_id"],
        "1 when the member answered";
    MEMBER_DB_SIZE = "target_member_db_size", Some("bytes"), Gauge,
        ["namespace", "name", "member", "member_id"], "Size of the member's file; absent when unknown";
    MEMBER_IN_USE = "target_member_db_in_use", Some("bytes"), Gauge,
        ["namespace", "name", "member", "member_id"], "Bytes of the file in use; absent when unknown";
    MEMBER_QUOTA = "target_member_quota", Some("bytes"), Gauge,
        ["namespace", "name", "member", "member_id"], "Limit of the file's size; absent when nobody told it";
    MEMBER_LAG = "target_member_apply_lag_entries", None, Gauge,
        ["namespace", "name", "member", "member_id"],
        "Raft entries received and not yet applied; absent when unknown";
    MEMBER_ALARM = "target_member_alarm", None, Gauge,
        ["namespace", "name", "member", "member_id", "alarm"],
        "1 while the alarm is raised; absent when alarms cannot be read";
    SOURCE_REQUESTS = "source_requests", None, Counter, ["source", "code"],
        "Requests to a source by status code, or by what kept it from answering";
    SOURCE_SHARED = "source_shared_answers", None, Counter, ["source"],
        "Questions answered by a request that another policy had sent";
    SOURCE_SECONDS = "source_request_duration", Some("seconds"), Histogram, ["source"],
        "Time of requests to a source";
    ERRORS = "errors", None, Counter, ["what"],
        "What went wrong and is no outcome of a run: state, document, policy, target, worker";
    STATE_WRITES = "state_writes", None, Counter, ["result"],
        "Writes of the state folder, done or failed";
}

/// What is kept between two scrapes.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    pub(super) policies: BTreeMap<ObjectKey, PolicyNumbers>,
    pub(super) targets: BTreeMap<ObjectKey, (Timestamp, Vec<MemberNumbers>)>,
    pub(super) runs: Counts<(&'static str, Reason)>,
    pub(super) reclaimed: u64,
    pub(super) member_seconds: Histogram,
    pub(super) errors: Counts<&'static str>,
    pub(super) writes_done: u64,
    pub(super) writes_failed: u64,
    pub(super) last_round: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PolicyNumbers {
    pub(super) signal: Option<SignalState>,
    pub(super) value: Option<f64>,
    pub(super) decision: Option<Reason>,
    pub(super) firing_since: Option<Timestamp>,
    pub(super) next_eligible: Option<Timestamp>,
    pub(super) last_run: Option<Timestamp>,
    pub(super) last_success: Option<Timestamp>,
    pub(super) backoff_level: u32,
    pub(super) failure_level: u32,
    pub(super) fallback: bool,
}

/// A member as last seen; what was not told is absent.
#[derive(Clone, Debug)]
pub(super) struct MemberNumbers {
    pub(super) name: String,
    pub(super) id: MemberId,
    pub(super) up: bool,
    pub(super) db_size: Option<u64>,
    pub(super) in_use: Option<u64>,
    pub(super) quota: Option<u64>,
    pub(super) apply_lag: Option<u64>,
    pub(super) no_space: Option<bool>,
    pub(super) corrupt: Option<bool>,
}

/// The quota, unless it is etcd's default taken for want of a better number.
pub(super) fn known_quota(quota: Quota) -> Option<u64> {
    match quota {
        Quota::Known {
            source: QuotaSource::Default,
            ..
        }
        | Quota::None
        | Quota::Unknown => None,
        Quota::Known { bytes, .. } => Some(bytes),
    }
}

/// Counts of observations by bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    sum: f64,
    count: u64,
    /// Upper bound and observations in the bucket, not accumulated.
    buckets: Vec<(f64, u64)>,
}

impl Histogram {
    pub(super) fn new(bounds: &[f64]) -> Self {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        Histogram {
            buckets: bounds.map(|bound| (bound, 0)).collect(),
            ..Histogram::default()
        }
    }

    fn value(&self) -> Value<'_> {
        let Histogram {
            sum,
            count,
            buckets,
        } = self;
        Value::Histogram {
            sum: *sum,
            count: *count,
            buckets,
        }
    }

    pub(super) fn observe(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        if let Some((_, count)) = self.buckets.iter_mut().find(|(bound, _)| value <= *bound) {
            *count += 1;
        }
    }
}

/// All metrics in the OpenMetrics text format.
pub(super) fn render(
    numbers: Numbers,
    sources: BTreeMap<String, SourceStats>,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Scrape { numbers, sources }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape {
    numbers: Numbers,
    sources: BTreeMap<String, SourceStats>,
}

type Done = Result<(), fmt::Error>;

/// Renders one metric; without a series it is left out.
struct Writer<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
}

impl Writer<'_, '_> {
    fn metric<'s, L: EncodeLabelSet>(
        &mut self,
        metric: &Metric,
        series: impl IntoIterator<Item = (L, Value<'s>)>,
    ) -> Done {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
        let mut encoder =
            self.encoder
                .encode_descriptor(metric.name, metric.help, unit.as_ref(), metric.kind)?;
        for (labels, value) in series {
            let encoder = encoder.encode_family(&labels)?;
            value.encode(encoder)?;
        }
        Ok(())
    }

    /// A metric without labels.
    fn single(&mut self, metric: &Metric, value: Value<'_>) -> Done {
        let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
        let encoder =
            self.encoder
                .encode_descriptor(metric.name, metric.help, unit.as_ref(), metric.kind)?;
        value.encode(encoder)
    }
}

enum Value<'a> {
    Gauge(f64),
    Counter(u64),
    Histogram {
        sum: f64,
        count: u64,
        buckets: &'a [(f64, u64)],
    },
}

impl Value<'_> {
    fn encode(self, mut encoder: MetricEncoder<'_>) -> Done {
        match self {
            Value::Gauge(value) => encoder.encode_gauge(&value),
            Value::Counter(value) => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
            Value::Histogram {
                sum,
                count,
                buckets,
            } => encoder.encode_histogram::<NoLabelSet>(sum, count, buckets, None),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sample is a float; nobody compares these exactly"
)]
fn bytes(value: u64) -> Value<'static> {
    Value::Gauge(value as f64)
}

fn flag(value: bool) -> Value<'static> {
    Value::Gauge(f64::from(u8::from(value)))
}

fn time(at: Timestamp) -> Value<'static> {
    Value::Gauge(at.as_duration().as_secs_f64())
}

const STATES: [SignalState; 5] = [
    SignalState::Firing,
    SignalState::NotFiring,
    SignalState::NoData,
    SignalState::Inconclusive,
    SignalState::Error,
];

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Done {
        encoder
            .encode_descriptor(BUILD.name, BUILD.help, None, BUILD.kind)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let mut out = Writer {
            encoder: &mut encoder,
        };
        self.policies(&mut out)?;
        self.runs(&mut out)?;
        self.targets(&mut out)?;
        self.sources(&mut out)?;
        self.process(&mut out)
    }
}

impl Scrape {
    fn policies(&self, out: &mut Writer<'_, '_>) -> Done {
        let policies = || {
            self.numbers.policies.iter().map(|(key, numbers)| {
                (
                    [
                        ("namespace", key.namespace.as_str()),
                        ("name", key.name.as_str()),
                    ],
                    numbers,
                )
            })
        };
        out.metric(
            &SIGNAL_STATE,
            policies()
                .filter_map(|(labels, numbers)| Some((labels, numbers.signal?)))
                .flat_map(|([namespace, name], current)| {
                    STATES.map(|state| {
                        (
                            [namespace, name, ("state", state.as_str())],
                            flag(state == current),
                        )
                    })
                }),
        )?;
        out.metric(
            &DECISION,
            policies().filter_map(|([namespace, name], numbers)| {
                let reason = numbers.decision?.as_str();
                Some(([namespace, name, ("reason", reason)], Value::Gauge(1.0)))
            }),
        )?;
        let mut each =
            |metric: &Metric, value: &dyn Fn(&PolicyNumbers) -> Option<Value<'static>>| {
                out.metric(
                    metric,
                    policies().filter_map(|(labels, numbers)| Some((labels, value(numbers)?))),
                )
            };
        each(&SIGNAL_VALUE, &|n| n.value.map(Value::Gauge))?;
        each(&FIRING_SINCE, &|n| n.firing_since.map(time))?;
        each(&NEXT_ELIGIBLE, &|n| n.next_eligible.map(time))?;
        each(&LAST_RUN, &|n| n.last_run.map(time))?;
        each(&LAST_SUCCESS, &|n| n.last_success.map(time))?;
        each(&BACKOFF_LEVEL, &|n| {
            Some(Value::Gauge(f64::from(n.backoff_level)))
        })?;
        each(&FAILURE_LEVEL, &|n| {
            Some(Value::Gauge(f64::from(n.failure_level)))
        })?;
        each(&FALLBACK, &|n| Some(flag(n.fallback)))
    }

    fn runs(&self, out: &mut Writer<'_, '_>) -> Done {
        let runs = self.numbers.runs.iter();
        out.metric(
            &RUNS,
            runs.map(|((outcome, reason), count)| {
                (
                    [("outcome", *outcome), ("reason", reason.as_str())],
                    Value::Counter(*count),
                )
            }),
        )?;
        out.single(&RECLAIMED, Value::Counter(self.numbers.reclaimed))?;
        out.single(&MEMBER_SECONDS, self.numbers.member_seconds.value())
    }

    fn targets(&self, out: &mut Writer<'_, '_>) -> Done {
        let targets = self.numbers.targets.iter();
        out.metric(
            &OBSERVED,
            targets.map(|(key, (at, _))| {
                (
                    [
                        ("namespace", key.namespace.as_str()),
                        ("name", key.name.as_str()),
                    ],
                    time(*at),
                )
            }),
        )?;
        let members = || {
            self.numbers.targets.iter().flat_map(|(key, (_, members))| {
                members
                    .iter()
                    .map(move |member| (key, member.id.to_string(), member))
            })
        };
        let mut each =
            |metric: &Metric, value: &dyn Fn(&MemberNumbers) -> Option<Value<'static>>| {
                out.metric(
                    metric,
                    members().filter_map(|(key, id, member)| {
                        let labels = vec![
                            ("namespace", key.namespace.clone()),
                            ("name", key.name.clone()),
                            ("member", member.name.clone()),
                            ("member_id", id),
                        ];
                        Some((labels, value(member)?))
                    }),
                )
            };
        each(&MEMBER_UP, &|m| Some(flag(m.up)))?;
        each(&MEMBER_DB_SIZE, &|m| m.db_size.map(bytes))?;
        each(&MEMBER_IN_USE, &|m| m.in_use.map(bytes))?;
        each(&MEMBER_QUOTA, &|m| m.quota.map(bytes))?;
        each(&MEMBER_LAG, &|m| m.apply_lag.map(bytes))?;
        out.metric(
            &MEMBER_ALARM,
            members().flat_map(|(key, id, member)| {
                let alarms = [("NOSPACE", member.no_space), ("CORRUPT", member.corrupt)];
                alarms.into_iter().filter_map(move |(alarm, raised)| {
                    let labels = vec![
                        ("namespace", key.namespace.clone()),
                        ("name", key.name.clone()),
                        ("member", member.name.clone()),
                        ("member_id", id.clone()),
                        ("alarm", alarm.to_owned()),
                    ];
                    Some((labels, flag(raised?)))
                })
            }),
        )
    }

    fn sources(&self, out: &mut Writer<'_, '_>) -> Done {
        out.metric(
            &SOURCE_REQUESTS,
            self.sources.iter().flat_map(|(source, stats)| {
                stats.requests.iter().map(move |(code, count)| {
                    (
                        [("source", source.as_str()), ("code", code.as_str())],
                        Value::Counter(*count),
                    )
                })
            }),
        )?;
        out.metric(
            &SOURCE_SHARED,
            self.sources.iter().map(|(source, stats)| {
                ([("source", source.as_str())], Value::Counter(stats.shared))
            }),
        )?;
        let histograms: Vec<(&str, Histogram)> = self
            .sources
            .iter()
            .map(|(source, stats)| {
                let bounds = LATENCY_BUCKETS.into_iter().chain([f64::INFINITY]);
                let histogram = Histogram {
                    sum: stats.latency.sum_seconds,
                    count: stats.latency.count,
                    buckets: bounds.zip(stats.latency.buckets).collect(),
                };
                (source.as_str(), histogram)
            })
            .collect();
        out.metric(
            &SOURCE_SECONDS,
            histograms
                .iter()
                .map(|(source, histogram)| ([("source", *source)], histogram.value())),
        )
    }

    fn process(&self, out: &mut Writer<'_, '_>) -> Done {
        let errors = self.numbers.errors.iter();
        out.metric(
            &ERRORS,
            errors.map(|(what, count)| ([("what", *what)], Value::Counter(*count))),
        )?;
        let writes = [
            ("done", self.numbers.writes_done),
            ("failed", self.numbers.writes_failed),
        ];
        out.metric(
            &STATE_WRITES,
            writes.map(|(result, count)| ([("result", result)], Value::Counter(count))),
        )?;
        self.numbers
            .last_round
            .map_or(Ok(()), |at| out.single(&LAST_ROUND, time(at)))
    }
}

#[cfg(test)]
mod tests;
