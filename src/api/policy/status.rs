//! The status of a policy: what is remembered between its evaluations.
#![expect(
    unreachable_pub,
    reason = "kube's derive repeats each public struct inside a function"
)]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BlockedStatus, SpellStatus};
use crate::api::conditions::Condition;
use crate::api::defrag::NoteStatus;
use crate::api::scalar::{Number, Time, mirror};
use crate::api::schema;
use crate::core::{decide, signal};

/// What a policy saw, decided and remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdDefragPolicyStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// All clusters in a few words, for the columns of a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<SummaryStatus>,
    /// Series about no cluster of the policy; absent while there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmatched_series: Option<UnmatchedStatus>,
    /// The clusters, each name once. Atomic, because there is one writer, and
    /// who owns each field of a thousand clusters would take more room than they.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub clusters: Vec<ClusterStatus>,
    /// `Ready`, `Firing`, `Fallback`, `Blocked`, `CoolingDown`, `Degraded` and, of a
    /// policy that selects its clusters, `SeriesMatched`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// All clusters of a policy in a few words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct SummaryStatus {
    /// The name of the cluster, or how many there are.
    pub cluster: String,
    /// Of a policy that selects its clusters: how many it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub clusters: Option<u32>,
    /// Those of them that fire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub firing: Option<u32>,
    /// Those that fire while something keeps a run from starting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub blocked: Option<u32>,
    /// Those on which a run of the policy goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub running: Option<u32>,
    /// The state of the signal, or how many clusters have which.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signal: String,
    /// The reason of the decision, or how many clusters have which.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub decision: String,
    /// What the signal was last compared by; of one cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
    /// When the last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_time: Option<Time>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// What it gave back, such as 1.2 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimed: Option<String>,
    /// Before this no run starts; of one cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_eligible_time: Option<Time>,
    /// A sentence for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Series about no cluster of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct UnmatchedStatus {
    /// How many there are.
    #[schemars(schema_with = "schema::int64")]
    pub series: u64,
    /// How many of them lack the label.
    #[serde(default, skip_serializing_if = "is_none_at_all")]
    #[schemars(schema_with = "schema::int64")]
    pub unlabelled: u64,
    /// How many different values the others have.
    #[serde(default, skip_serializing_if = "is_none_at_all")]
    #[schemars(schema_with = "schema::int64")]
    pub values: u64,
    /// The first of these values, 20 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listed: Vec<String>,
}

/// What is remembered of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The name of its EtcdTarget, or `EtcdCluster.GROUP/NAME`.
    pub name: String,
    /// The last evaluation of the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalStatus>,
    /// Start of the firing episode, moved forward by gaps in the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing_since: Option<Time>,
    /// Since when the firing episode lacks evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_since: Option<Time>,
    /// When evidence for the episode was last seen; refreshed coarsely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_at: Option<Time>,
    /// Since when the source has given no usable answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Time>,
    /// The fallback decided the last evaluation.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fallback_active: bool,
    /// The policy's run in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run: Option<String>,
    /// The last finished run on the cluster, whoever made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRunStatus>,
    /// When the last run on the cluster that succeeded ended, also when others
    /// have ended since. A dry run of this policy does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Time>,
    /// Runs in a row that gave back too little.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::int32")]
    pub backoff_level: u32,
    /// Runs in a row that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::int32")]
    pub failure_level: u32,
    /// The runs of the last 24 hours, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_starts: Vec<RunStartStatus>,
    /// Names of finished runs that have been taken into account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounted: Vec<String>,
    /// The value of `spec.trigger` that has been dealt with. Absent: the policy
    /// has never been evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_trigger: Option<ObservedTrigger>,
    /// Before this no run starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_eligible_time: Option<Time>,
    /// The cooldown or back-off that is on, whatever else was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resting: Option<NoteStatus>,
    /// What holds back a run that is due; absent while nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<BlockedStatus>,
    /// What the last evaluation decided, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<NoteStatus>,
    /// The last decisions, oldest first; the last one is `decision`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<SpellStatus>,
    /// Since when the selector gives the policy this cluster no longer. What is
    /// remembered stays for a while, should it come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_since: Option<Time>,
}

/// The last evaluation of the signal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct SignalStatus {
    /// What it said.
    pub state: SignalStateStatus,
    /// Why.
    pub reason: String,
    /// The number that was compared, as text: NaN and infinities exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
    /// A sentence for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the newest evidence was sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_at: Option<Time>,
    /// Who was asked: the signal itself, or the fallback's probe.
    pub origin: SignalOrigin,
}

/// A run of this policy and when it was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct RunStartStatus {
    /// The run's name.
    pub name: String,
    /// When it was created.
    pub at: Time,
}

/// The last finished run on the cluster that counts for the cooldown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LastRunStatus {
    /// The run's name.
    pub name: String,
    /// How it ended.
    pub outcome: RunOutcome,
    /// Why.
    pub reason: String,
    /// Bytes it gave back; absent when they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int64")]
    pub reclaimed_bytes: Option<u64>,
    /// The same for a person, such as 1.2 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimed: Option<String>,
    /// When it ended.
    pub finished_at: Time,
    /// Made by this policy.
    #[serde(default)]
    pub own: bool,
    /// It may have changed the cluster.
    #[serde(default)]
    pub touched: bool,
}

/// How a finished run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum RunOutcome {
    Complete,
    Failed,
}

/// A value of `spec.trigger`; without `value` it was absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ObservedTrigger {
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

mirror! {
    /// The five states of a signal.
    SignalStateStatus = signal::SignalState { Firing, NotFiring, NoData, Inconclusive, Error }
}

mirror! {
    /// Who gave the reading that decided.
    SignalOrigin = decide::Origin { Primary, Fallback }
}

fn is_none_at_all(value: &u64) -> bool {
    *value == 0
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}
