//! `EtcdTarget`: where a cluster is.
#![expect(
    clippy::duplicated_attributes,
    reason = "clippy takes equal types of two printer columns for a repetition"
)]
#![expect(
    unreachable_pub,
    reason = "kube's derive repeats each public struct inside a function"
)]

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::{self, Condition, types};
use super::defrag::MemberRole;
use super::scalar::IntOrString;
use super::schema;
use crate::core::reason::Reason;
use crate::core::view::Observation;

/// Where an etcd cluster is and how to reach it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "defragd.dev",
    version = "v1alpha1",
    kind = "EtcdTarget",
    namespaced,
    status = "EtcdTargetStatus",
    derive = "PartialEq",
    category = "defragd",
    doc = "Where an etcd cluster is and how to reach it.",
    printcolumn(name = "Members", type_ = "integer", json_path = ".status.voters"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.endpoints.all(url, url.startsWith('https://') == has(self.tls))")
    .message("https endpoints need tls, http endpoints must not have it"))]
pub struct EtcdTargetSpec {
    /// Client URLs of the members, with scheme and port. One is enough to find
    /// the others; give all of them where the advertised URLs do not work from
    /// here.
    #[schemars(
        length(min = 1, max = 64),
        inner(length(max = 2048), regex(pattern = "^https?://"))
    )]
    pub endpoints: Vec<String>,
    /// How many voters the cluster must have. Absent: as many as the member
    /// list names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 63))]
    pub member_count: Option<i64>,
    /// The backend quota, used when the servers do not tell theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::positive_size())]
    pub quota_bytes: Option<IntOrString>,
    /// TLS towards the members. Read again for each run and each probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TargetTls>,
    /// The etcd user. Read again for each run and each probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<TargetAuth>,
    /// Where the members serve `/metrics`. Absent: at their client URLs.
    #[serde(default, rename = "metricsURLs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 2048), regex(pattern = "^https?://"))
    )]
    pub metrics_urls: Vec<String>,
}

/// Files with certificates in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.certFile) == has(self.keyFile)")
    .message("certFile and keyFile go together"))]
pub struct TargetTls {
    /// The authority that signed the servers' certificates. The machine's own
    /// authorities are not used.
    #[schemars(length(min = 1, max = 4096))]
    pub ca_file: String,
    /// The client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub cert_file: Option<String>,
    /// The client certificate's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub key_file: Option<String>,
    /// The name to look for in the servers' certificates instead of the
    /// endpoint's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}

/// Files with the user's name and password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetAuth {
    /// Holds the user's name.
    #[schemars(length(min = 1, max = 4096))]
    pub username_file: String,
    /// Holds the password.
    #[schemars(length(min = 1, max = 4096))]
    pub password_file: String,
}

/// The cluster as it was last seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdTargetStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The cluster's id, in hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Members that vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub voters: Option<u32>,
    /// The members by id. Sizes are left to the metrics and to the runs: they
    /// change all the time, and a status is written when something happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["memberID".into()]))]
    pub members: Vec<TargetMember>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A member as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct TargetMember {
    /// The member's id, in hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// Its name; empty while it has never started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it is; absent when it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<MemberRole>,
    /// Its version; absent when it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl EtcdTargetStatus {
    /// What is shown of an observation. When the members could not be read, the
    /// last known ones stay, and `Ready` says why.
    pub fn from_observation(
        seen: &Observation,
        generation: Option<i64>,
        previous: &EtcdTargetStatus,
        now: Timestamp,
    ) -> EtcdTargetStatus {
        let mut status = previous.clone();
        status.observed_generation = generation;
        let mut ids = seen.cluster_ids.iter();
        if let (Some(id), None) = (ids.next(), ids.next()) {
            status.cluster_id = Some(id.to_string());
        }
        let (ready, reason, message) = match &seen.members {
            Err(trouble) => (false, trouble.reason, trouble.message.clone()),
            Ok(members) => {
                let voters = members.iter().filter(|m| !m.learner).count();
                status.voters = u32::try_from(voters).ok();
                status.members = members.iter().map(TargetMember::from).collect();
                if seen.cluster_ids.len() > 1 {
                    let ids: Vec<String> =
                        seen.cluster_ids.iter().map(ToString::to_string).collect();
                    let message =
                        format!("the endpoints belong to the clusters {}", ids.join(", "));
                    (false, Reason::ClusterIdMismatch, message)
                } else if let Some(silent) = members.iter().find_map(|m| m.status.as_ref().err()) {
                    (false, silent.reason, silent.message.clone())
                } else {
                    (true, Reason::Accepted, format!("{voters} voters answer"))
                }
            }
        };
        conditions::set(
            &mut status.conditions,
            types::READY,
            ready,
            reason,
            message,
            now,
            generation,
        );
        status
    }
}

impl From<&crate::core::view::MemberView> for TargetMember {
    fn from(member: &crate::core::view::MemberView) -> Self {
        let answer = member.status.as_ref().ok();
        TargetMember {
            member_id: member.id.to_string(),
            name: member.name.clone(),
            role: if member.learner {
                Some(MemberRole::Learner)
            } else {
                answer.map(|status| {
                    if status.leader == Some(member.id) {
                        MemberRole::Leader
                    } else {
                        MemberRole::Follower
                    }
                })
            },
            version: answer.map(|status| status.version.clone()),
        }
    }
}
