//! `EtcdDefrag`: one run, start to finish.
#![expect(
    clippy::duplicated_attributes,
    reason = "clippy takes equal types of two printer columns for a repetition"
)]
#![expect(
    unreachable_pub,
    reason = "kube's derive repeats each public struct inside a function"
)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::API_VERSION;
use super::scalar::{IntOrString, mirror};
use super::schema;
use crate::core::key::{ClusterKey, ClusterKind, Name, ObjectKey};
use crate::core::run;

pub(super) mod convert;
mod status;

pub use status::{
    AlarmDisarm, CompactionStateStatus, CompactionStatus, DefragCall, DefragMetricsStatus,
    EtcdDefragStatus, LeaderTransfer, MemberOutcome, MemberRole, MemberStatus, NoteStatus,
    RunPhase, TransferOutcomeStatus,
};

/// What describes clusters, by the `apiVersion` that has it.
pub(super) const CLUSTER_APIS: [(&str, ClusterKind); 3] = [
    (API_VERSION, ClusterKind::EtcdTarget),
    (
        "etcd-operator.cozystack.io/v1alpha2",
        ClusterKind::CozystackCluster,
    ),
    ("operator.etcd.io/v1alpha1", ClusterKind::EtcdIoCluster),
];

/// The cluster that a run or a policy is about, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.kind) || self.kind != 'EtcdCluster' || has(self.apiVersion)")
    .message("kind EtcdCluster needs apiVersion: etcd-operator.cozystack.io/v1alpha2 or operator.etcd.io/v1alpha1"))]
#[x_kube(validation = Rule::new(
        "!has(self.apiVersion) || (self.apiVersion == 'defragd.dev/v1alpha1') \
         == (!has(self.kind) || self.kind == 'EtcdTarget')"
    ).message("apiVersion and kind do not fit each other: EtcdTarget is of defragd.dev/v1alpha1, \
               EtcdCluster of etcd-operator.cozystack.io/v1alpha2 or operator.etcd.io/v1alpha1"))]
pub struct ClusterRef {
    /// The API of the kind. Absent: `defragd.dev/v1alpha1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [
        "defragd.dev/v1alpha1",
        "etcd-operator.cozystack.io/v1alpha2",
        "operator.etcd.io/v1alpha1",
    ]))]
    pub api_version: Option<String>,
    /// `EtcdTarget`, which is also the default, or the `EtcdCluster` of one of
    /// the two etcd operators, which needs its `apiVersion`. EtcdCluster only in
    /// Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["EtcdTarget", "EtcdCluster"]))]
    pub kind: Option<String>,
    /// The object's name.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

impl ClusterRef {
    /// The kind that is meant; `None` when `apiVersion` and `kind` name none,
    /// which validation refuses.
    pub fn cluster_kind(&self) -> Option<ClusterKind> {
        let default = ClusterKind::EtcdTarget.kind();
        let kind = self.kind.as_deref().unwrap_or(default);
        let version = match self.api_version.as_deref() {
            None if kind == default => API_VERSION,
            None => return None,
            Some(version) => version,
        };
        CLUSTER_APIS
            .into_iter()
            .find(|(api, known)| version == *api && kind == known.kind())
            .map(|(_, known)| known)
    }

    /// The reference to a cluster of the same namespace.
    pub fn to(cluster: &ClusterKey) -> Self {
        let ClusterKey { kind, object } = cluster;
        let foreign = *kind != ClusterKind::EtcdTarget;
        ClusterRef {
            api_version: foreign.then(|| format!("{}/{}", kind.group(), kind.version())),
            kind: foreign.then(|| kind.kind().to_owned()),
            name: object.name.to_string(),
        }
    }

    /// The cluster that an object in `namespace` means. A reference that
    /// validation refuses counts as one to an `EtcdTarget`.
    pub fn key(&self, namespace: Name) -> ClusterKey {
        ClusterKey {
            kind: self.cluster_kind().unwrap_or(ClusterKind::EtcdTarget),
            object: ObjectKey {
                namespace,
                name: self.name.as_str().into(),
            },
        }
    }
}

/// One defragmentation of a cluster, member by member.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "defragd.dev",
    version = "v1alpha1",
    kind = "EtcdDefrag",
    namespaced,
    status = "EtcdDefragStatus",
    derive = "PartialEq",
    shortname = "defrag",
    category = "defragd",
    doc = "One defragmentation of an etcd cluster, member by member.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterRef.name"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "the result, or what the run waits for"
    ),
    printcolumn(name = "Reclaimed", type_ = "string", json_path = ".status.reclaimed"),
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
        name = "Defragmented",
        type_ = "integer",
        json_path = ".status.defragmented",
        description = "members",
        priority = 1
    ),
    printcolumn(
        name = "Started",
        type_ = "date",
        json_path = ".status.startedAt",
        priority = 1
    ),
    printcolumn(
        name = "Ended",
        type_ = "date",
        json_path = ".status.completedAt",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = schema::immutable(&[
    "clusterRef", "rule", "compaction", "leader", "disarmNoSpace", "settle", "memberTimeout",
    "activeDeadline", "allowSingleMember", "dryRun",
]))]
pub struct EtcdDefragSpec {
    /// The cluster to defragment.
    pub cluster_ref: ClusterRef,
    /// How to go about it.
    #[serde(flatten)]
    pub run: RunTemplate,
}

/// What a run does; a policy's `runTemplate` and, with a cluster, a run's spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunTemplate {
    /// Which members are due. Absent: `freeSpaceAbove: 200Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleSpec>,
    /// A compaction before the first member. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionSpec>,
    /// What to do about the leader. Move (the default) gives leadership to a
    /// member that is done and then takes the old leader; InPlace defragments
    /// it while it leads; Skip leaves it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderModeSpec>,
    /// Whether a NOSPACE alarm is disarmed once every member has room. Absent:
    /// true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disarm_no_space: Option<bool>,
    /// When a member counts as caught up, before the next one has its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<SettleSpec>,
    /// How long one member may take, 5s to 6h. Absent: computed from the bytes
    /// in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub member_timeout: Option<String>,
    /// How long the run may hold the cluster, 1m to 24h, counted from the
    /// moment it does. Absent: 45m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub active_deadline: Option<String>,
    /// Permits a cluster of one member, whose defragmentation is downtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_single_member: Option<bool>,
    /// Say what would be done; change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Stop between two members. May be changed at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Seconds after its end at which the run is removed. May be changed at any
    /// time. Absent: it stays until the policy's `historyLimit` or a person
    /// removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 315_360_000))]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// Which members are due: `all`, or an `expression`, or the thresholds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
        "[has(self.all), has(self.expression), \
          has(self.freeSpaceAbove) || has(self.quotaUsageAbove) || has(self.minReclaim)].exists_one(given, given)"
    ).message("all, expression and the thresholds exclude one another; one of them is needed"))]
#[x_kube(validation = Rule::new("!has(self.minReclaim) || has(self.freeSpaceAbove) || has(self.quotaUsageAbove)")
    .message("minReclaim alone asks for nothing; add freeSpaceAbove or quotaUsageAbove"))]
#[x_kube(validation = Rule::new(
        "!has(self.minReclaim) || !has(self.freeSpaceAbove) || !isQuantity(string(self.minReclaim)) \
         || !isQuantity(string(self.freeSpaceAbove)) \
         || quantity(string(self.minReclaim)).compareTo(quantity(string(self.freeSpaceAbove))) <= 0"
    ).message("minReclaim must not be larger than freeSpaceAbove"))]
pub struct RuleSpec {
    /// Every member, fragmented or not. Only true makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self").message("all can only be true; leave it out instead"))]
    pub all: Option<bool>,
    /// A member is due when it would give back more than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::positive_size())]
    pub free_space_above: Option<IntOrString>,
    /// A member is due when its file is larger than this part of the quota, and
    /// it would give back at least `minReclaim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::percent")]
    pub quota_usage_above: Option<String>,
    /// The least that `quotaUsageAbove` has to give back. Absent: 32Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::positive_size())]
    pub min_reclaim: Option<IntOrString>,
    /// CEL over dbSize, dbSizeInUse, dbSizeFree, dbQuota (bytes) and
    /// dbQuotaUsage (0 to 1), such as
    /// `dbQuotaUsage > 0.8 || dbSizeFree > 200*1024*1024`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub expression: Option<String>,
}

/// A compaction before the first member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct CompactionSpec {
    /// How many revisions stay, so that watchers and paged lists that still
    /// read them do not break.
    #[schemars(range(min = 1))]
    pub keep_revisions: i64,
}

/// When a member counts as caught up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettleSpec {
    /// Raft entries received and not yet applied. Absent: 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 5000))]
    pub max_raft_lag: Option<i64>,
    /// How long to wait for that, 1s to 1h. Absent: 2m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    #[x_kube(validation = schema::positive_duration())]
    pub timeout: Option<String>,
}

mirror! {
    /// What to do about the leader.
    LeaderModeSpec = run::LeaderMode { Move, InPlace, Skip }
}
