//! `EtcdDefragPolicy`: when to run.
#![expect(
    clippy::duplicated_attributes,
    reason = "clippy takes equal types of two printer columns for a repetition"
)]
#![expect(
    unreachable_pub,
    reason = "kube's derive repeats each public struct inside a function"
)]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defrag::{ClusterRef, RuleSpec, RunTemplate};
use super::scalar::{IntOrString, mirror};
use super::schema;
use crate::core::key::ClusterKind;
use crate::core::{decide, signal};

mod blocked;
mod convert;
mod fleet;
mod metric;
mod status;

pub use blocked::{BlockedByStatus, BlockedStatus, BlockerNoData, BlockerSpec, SpellStatus};
pub use metric::{
    DescribedObjectSpec, ExternalMetricSpec, LabelConditionSpec, LabelOperatorSpec,
    MetricSelectorSpec, MetricSignalSpec, ObjectMetricSpec,
};
pub use status::{
    ClusterStatus, EtcdDefragPolicyStatus, LastRunStatus, ObservedTrigger, RunOutcome,
    RunStartStatus, SignalOrigin, SignalStateStatus, SignalStatus, SummaryStatus, UnmatchedStatus,
};

pub use fleet::{FleetNow, TooLarge};

/// Watches one signal of one cluster, or of many, and starts a run when it fires.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "defragd.dev",
    version = "v1alpha1",
    kind = "EtcdDefragPolicy",
    plural = "etcddefragpolicies",
    namespaced,
    status = "EtcdDefragPolicyStatus",
    derive = "PartialEq",
    shortname = "defragpolicy",
    category = "defragd",
    doc = "Watches one signal of one etcd cluster, or of many, and starts a defragmentation when it fires.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".status.summary.cluster",
        description = "its name, or how many there are"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        description = "valid, and can be evaluated"
    ),
    printcolumn(
        name = "Signal",
        type_ = "string",
        json_path = ".status.summary.signal"
    ),
    printcolumn(
        name = "Decision",
        type_ = "string",
        json_path = ".status.summary.decision",
        description = "why a run started, or why none does"
    ),
    printcolumn(
        name = "Last run",
        type_ = "date",
        json_path = ".status.summary.lastRunTime",
        description = "how long ago it ended"
    ),
    printcolumn(
        name = "Next eligible",
        type_ = "string",
        json_path = ".status.summary.nextEligibleTime",
        description = "no run starts before"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Kind",
        type_ = "string",
        json_path = ".spec.clusterRef.kind",
        description = "of the cluster; EtcdTarget when empty",
        priority = 1
    ),
    printcolumn(
        name = "Value",
        type_ = "string",
        json_path = ".status.summary.value",
        description = "what the signal was last compared by",
        priority = 1
    ),
    printcolumn(
        name = "Outcome",
        type_ = "string",
        json_path = ".status.summary.outcome",
        description = "of the last run",
        priority = 1
    ),
    printcolumn(
        name = "Reclaimed",
        type_ = "string",
        json_path = ".status.summary.reclaimed",
        description = "by the last run",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.summary.message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
        "has(self.fallback) || !((has(self.onError) && self.onError == 'Fallback') \
         || (has(self.noData) && self.noData == 'Fallback'))"
    ).message("onError: Fallback and noData: Fallback need a fallback"))]
#[x_kube(validation = Rule::new(
        "!has(self.fallback) || !has(self.onError) || self.onError == 'Fallback' \
         || (has(self.noData) && self.noData == 'Fallback')"
    ).message("the fallback is never used; set onError or noData to Fallback"))]
#[x_kube(validation = Rule::new("has(self.clusterRef) != has(self.clusterSelector)")
    .message("exactly one of clusterRef and clusterSelector is needed"))]
#[x_kube(validation = Rule::new(
        "!has(self.clusterSelector) || has(self.signal.prometheus) || has(self.signal.probe)"
    ).message("clusterSelector needs a prometheus or a probe signal: an alert or a metric does not say which \
                cluster it is about; use clusterRef with those"))]
#[x_kube(validation = Rule::new("!has(self.maxConcurrentRuns) || has(self.clusterSelector)")
    .message("maxConcurrentRuns needs clusterSelector: one cluster has one run at a time"))]
#[x_kube(validation = Rule::new(
        "!has(self.clusterSelector) || !has(self.signal.prometheus) \
         || has(self.signal.prometheus.clusterLabel) \
         || (has(self.signal.prometheus.sameForAll) && self.signal.prometheus.sameForAll)"
    ).message("with clusterSelector prometheus needs clusterLabel: which label of a series says which \
               cluster it is about"))]
#[x_kube(validation = Rule::new(
        "has(self.clusterSelector) || !has(self.signal.prometheus) \
         || (!has(self.signal.prometheus.clusterLabelFrom) && !has(self.signal.prometheus.sameForAll))"
    ).message("clusterLabelFrom and sameForAll need clusterSelector"))]
#[x_kube(validation = Rule::new("!has(self.fallback) || !has(self.signal.probe)")
    .message("a probe has no fallback: it is what a fallback would ask"))]
#[x_kube(validation = Rule::new("!has(self.maxBlockedFor) || (has(self.blockers) && size(self.blockers) > 0)")
    .message("maxBlockedFor needs blockers"))]
pub struct EtcdDefragPolicySpec {
    /// The cluster that runs are made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// The clusters that runs are made for, in place of `clusterRef`: those in
    /// the policy's namespace whose objects have these labels, 1000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<ClusterSelectorSpec>,
    /// Runs of this policy that go on at once, over all of its clusters; those
    /// that have fired for longest are first. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_concurrent_runs: Option<i64>,
    /// What says that a run is due.
    pub signal: SignalSpec,
    /// How long the signal must fire without a break. Absent: 0s.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub hold_for: Option<String>,
    /// How often the signal is evaluated, 1s to 1h. Absent: 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub interval: Option<String>,
    /// What a signal without data counts as. Hold (the default): nothing starts
    /// and nothing is cleared. Fallback: the probe decides. Fire: it fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_data: Option<OnSilenceSpec>,
    /// What a failing source counts as. Absent: Fallback when there is a
    /// `fallback`, else Hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnSilenceSpec>,
    /// The probe that decides while the source is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackSpec>,
    /// When runs may start: any open window permits. Absent: always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub windows: Vec<WindowSpec>,
    /// When runs must not start: a blackout wins over every window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub blackouts: Vec<WindowSpec>,
    /// Signals that hold a run back while one of them fires or cannot be read. They
    /// never stop a run that has begun, and no emergency passes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub blockers: Vec<BlockerSpec>,
    /// Held back by blockers for longer than this, up to 90d, is worth a warning
    /// event and is shown in the condition Blocked. Nothing is overridden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub max_blocked_for: Option<String>,
    /// Rest after the end of the last run on the cluster, whoever made it; up
    /// to 30d. Absent: 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub cooldown: Option<String>,
    /// A longer rest each time a run gives back too little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffSpec>,
    /// Runs started within any 24 hours. Absent: no limit but the cooldown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 48))]
    pub max_runs_per_day: Option<i64>,
    /// What lets a firing signal pass windows and cooldown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emergency: Option<EmergencySpec>,
    /// Start nothing. A run in progress ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Start nothing before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub paused_until: Option<String>,
    /// Say when a run would start; create none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Any text. When it changes, one run starts now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub trigger: Option<String>,
    /// How many finished runs stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_limit: Option<HistoryLimitSpec>,
    /// What the runs do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_template: Option<RunTemplate>,
}

/// Exactly one source of the signal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
        "[has(self.prometheus), has(self.metric), has(self.alert), has(self.probe)].exists_one(x, x)"
    ).message("exactly one signal is needed: prometheus, metric, alert or probe"))]
pub struct SignalSpec {
    /// A PromQL expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusSignalSpec>,
    /// A metric of Kubernetes' metrics APIs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<MetricSignalSpec>,
    /// An alert of an Alertmanager, asked for or pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertSignalSpec>,
    /// etcd's own numbers; no metrics stack is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeSpec>,
}

/// A PromQL expression, asked of a source that the administrator configured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.above) || !has(self.below)")
    .message("above and below exclude one another"))]
#[x_kube(validation = Rule::new("!has(self.reduce) || has(self.above) || has(self.below)")
    .message("reduce needs above or below"))]
#[x_kube(validation = Rule::new("!has(self.clusterLabelFrom) || has(self.clusterLabel)")
    .message("clusterLabelFrom needs clusterLabel"))]
#[x_kube(validation = Rule::new("!has(self.sameForAll) || !self.sameForAll || !has(self.clusterLabel)")
    .message("clusterLabel and sameForAll exclude one another"))]
pub struct PrometheusSignalSpec {
    /// The name of a source in defragd's own configuration.
    #[schemars(length(min = 1, max = 253))]
    pub source: String,
    /// The expression. Without `above` and `below` it is read as an alerting
    /// rule is: it fires when it returns series.
    #[schemars(length(min = 1, max = 8192))]
    pub query: String,
    /// Fires when the value is larger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::any_quantity())]
    pub above: Option<IntOrString>,
    /// Fires when the value is smaller than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::any_quantity())]
    pub below: Option<IntOrString>,
    /// How several series become one verdict. Absent: there must be only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce: Option<ReduceSpec>,
    /// The label of a series that says which cluster it is about: each cluster
    /// is judged by its own series only. Absent: every series is about the one
    /// cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub cluster_label: Option<String>,
    /// The label of a cluster's object that has the value of `clusterLabel`.
    /// Absent: the object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub cluster_label_from: Option<String>,
    /// With a `clusterSelector` and without `clusterLabel`: the answer is about
    /// all clusters alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_for_all: Option<bool>,
}

/// Clusters in the policy's namespace, by the labels of the objects that
/// describe them. Without any requirement all are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSelectorSpec {
    /// Labels with the value that they must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::optional_labels")]
    #[x_kube(validation = schema::label_keys())]
    pub match_labels: BTreeMap<String, String>,
    /// What else must be true of their labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<LabelConditionSpec>,
    /// The kinds of object that are meant. Absent: EtcdTarget. The others only
    /// in Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub kinds: Vec<ClusterKindSpec>,
}

/// What describes clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ClusterKindSpec {
    EtcdTarget,
    #[serde(rename = "EtcdCluster.etcd-operator.cozystack.io")]
    CozystackCluster,
    #[serde(rename = "EtcdCluster.operator.etcd.io")]
    EtcdIoCluster,
}

impl From<ClusterKindSpec> for ClusterKind {
    fn from(kind: ClusterKindSpec) -> Self {
        match kind {
            ClusterKindSpec::EtcdTarget => ClusterKind::EtcdTarget,
            ClusterKindSpec::CozystackCluster => ClusterKind::CozystackCluster,
            ClusterKindSpec::EtcdIoCluster => ClusterKind::EtcdIoCluster,
        }
    }
}

/// Alerts of a source that the administrator configured: the signal fires while
/// one of them is active.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertSignalSpec {
    /// The name of a source in defragd's own configuration.
    #[schemars(length(min = 1, max = 253))]
    pub source: String,
    /// Conditions on an alert's labels in Alertmanager's syntax, such as
    /// `alertname="etcdFragmented"`. All have to hold.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 1024)))]
    pub matchers: Vec<String>,
    /// Suppressed alerts that fire all the same. Absent: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub include: Vec<SuppressedSpec>,
}

/// What keeps Alertmanager from telling people of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum SuppressedSpec {
    /// A silence, or a mute time of a route.
    Silenced,
    /// Another alert.
    Inhibited,
}

/// etcd's own Status: the signal fires when the rule asks for a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSpec {
    /// Absent: `freeSpaceAbove: 200Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleSpec>,
}

/// The probe that decides while the source is silent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FallbackSpec {
    /// How long the source must have been silent, up to 30d.
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub after: String,
    /// What is asked instead. Absent: `freeSpaceAbove: 200Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeSpec>,
}

/// A recurring span of time: `days`, `start` and `length`, or `cron` and
/// `length`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.start) != has(self.cron)")
    .message("exactly one of start and cron is needed"))]
#[x_kube(validation = Rule::new("!has(self.days) || has(self.start)")
    .message("days go with start, not with cron"))]
pub struct WindowSpec {
    /// Days on which it starts, such as Fri. Absent: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7), inner(length(max = 16)))]
    pub days: Vec<String>,
    /// The time of day at which it starts, such as `22:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub start: Option<String>,
    /// A cron expression for its start, such as `0 22 * * 5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cron: Option<String>,
    /// How long it stays open; the end is not part of it.
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub length: String,
    /// An IANA name, such as Europe/Berlin. Absent: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
}

/// A longer rest each time a run gives back too little.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackoffSpec {
    /// By how much the rest grows each time, 1 to 10. Absent: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub factor: Option<i64>,
    /// The longest rest, from `cooldown` to 90d. Absent: 1d, or the cooldown
    /// when that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub max: Option<String>,
    /// What a run has to give back, over all members, to count as useful.
    /// Absent: 32Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::positive_size())]
    pub min_reclaim: Option<IntOrString>,
}

/// What lets a firing signal pass windows and cooldown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.quotaUsageAbove) || (has(self.noSpace) && self.noSpace)")
    .message("an emergency needs quotaUsageAbove or noSpace: true"))]
pub struct EmergencySpec {
    /// A member's file is larger than this part of its quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::percent")]
    pub quota_usage_above: Option<String>,
    /// A NOSPACE alarm is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_space: Option<bool>,
}

/// How many finished runs stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct HistoryLimitSpec {
    /// Complete ones. Absent: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub successful: Option<i64>,
    /// Failed ones. Absent: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub failed: Option<i64>,
}

mirror! {
    /// What a signal without a usable answer counts as.
    OnSilenceSpec = decide::OnSilence { Hold, Fallback, Fire }
}

mirror! {
    /// How several series become one verdict.
    ReduceSpec = signal::Reduce { Any, All, Max, Min, Avg, Sum }
}
