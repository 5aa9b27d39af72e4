//! The status of a run: a `RunRecord` as it is stored.
#![expect(
    unreachable_pub,
    reason = "kube's derive repeats each public struct inside a function"
)]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conditions::Condition;
use crate::api::scalar::{Number, Time, mirror};
use crate::api::schema;
use crate::core::run;

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdDefragStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Forward only; Complete and Failed stick. Absent: not looked at yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// The result, or what the run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the run got hold of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When `activeDeadline` ends; stamped once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// The cluster's id, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Members defragmented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub defragmented: Option<u32>,
    /// Bytes given back by all members whose sizes are known. Absent when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int64")]
    pub reclaimed_bytes: Option<u64>,
    /// The same for a person, such as 1.2 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaimed: Option<String>,
    /// The members; empty until planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["memberID".into()]))]
    pub members: Vec<MemberStatus>,
    /// The compaction before the first member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionStatus>,
    /// Transfers of leadership that the run asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leader_transfers: Vec<LeaderTransfer>,
    /// Alarms that the run asked to disarm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms_disarmed: Vec<AlarmDisarm>,
    /// The last verdict of the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<NoteStatus>,
    /// Why the sweep ends early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<NoteStatus>,
    /// How the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<NoteStatus>,
    /// What a person should know: version advice, assumed quotas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// `Admitted`, `Healthy` and `Succeeded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

mirror! {
    /// Phases go forward only; the last two stick.
    RunPhase = run::Phase { Pending, Running, Complete, Failed }
}

mirror! {
    /// What a member was when the run last looked.
    MemberRole = run::Role { Leader, Follower, Learner }
}

mirror! {
    /// What became of a member.
    MemberOutcome = run::Outcome { Pending, InProgress, Defragmented, Skipped, Failed, Unknown }
}

mirror! {
    /// How far the compaction is.
    CompactionStateStatus = run::CompactionState { InProgress, Flushing, Settling, Done, Skipped, Failed }
}

mirror! {
    /// What became of a transfer of leadership.
    TransferOutcomeStatus = run::TransferOutcome { InProgress, Done, Failed }
}

/// A reason and its particulars.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct NoteStatus {
    /// A word from defragd's closed list of reasons.
    pub reason: String,
    /// A sentence for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One member of a run. A size that could not be read is absent, not zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// The member's id, in hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// Its name; empty while it has never started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it was when last seen.
    pub role: MemberRole,
    /// What became of it.
    pub outcome: MemberOutcome,
    /// Why.
    pub reason: String,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The file's bytes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int64")]
    pub db_size_before: Option<u64>,
    /// The file's bytes after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int64")]
    pub db_size_after: Option<u64>,
    /// The bytes in use before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int64")]
    pub db_size_in_use_before: Option<u64>,
    /// The bytes in use after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int64")]
    pub db_size_in_use_after: Option<u64>,
    /// Bytes given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int64")]
    pub reclaimed_bytes: Option<u64>,
    /// When its turn began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When its turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Defragment calls that were announced.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::int32")]
    pub attempts: u32,
    /// The call under way, or the one whose outcome is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<DefragCall>,
}

/// The intent of a Defragment call, stored before it leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct DefragCall {
    /// Until when it is waited for.
    pub deadline: Time,
    /// What the member's metrics said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_before: Option<DefragMetricsStatus>,
    /// When a positive answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<Time>,
}

/// A member's own count of its defragmentations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct DefragMetricsStatus {
    /// Whether one was running; absent when the version does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inflight: Option<bool>,
    /// How many had finished since the process started.
    #[schemars(schema_with = "schema::int64")]
    pub finished: u64,
    /// When the process started, in seconds since 1970.
    pub process_start_seconds: Number,
}

/// The compaction before the first member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct CompactionStatus {
    /// The revision compacted to.
    pub revision: i64,
    /// How far it is.
    pub state: CompactionStateStatus,
    /// Calls that were announced.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::int32")]
    pub attempts: u32,
    /// A sentence for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the state was reached.
    pub at: Time,
}

/// A transfer of leadership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LeaderTransfer {
    /// The id of the leader before.
    pub from: String,
    /// The id of the leader wanted.
    pub to: String,
    /// When it was asked for.
    pub at: Time,
    /// What became of it.
    pub outcome: TransferOutcomeStatus,
    /// A sentence for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// An alarm that the run asked to disarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AlarmDisarm {
    /// The id that the alarm names; the member may be gone.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// When it was last asked for.
    pub at: Time,
    /// How often it was asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::int32")]
    pub attempts: u32,
    /// The alarm was seen to be gone.
    #[serde(default)]
    pub gone: bool,
    /// A sentence for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}
