//! `EtcdTarget`: where a cluster is.
#![expect(
    clippy::duplicated_attributes,
    reason = "clippy takes equal types of two printer columns for a repetition"
)]
#![expect(
    unreachable_pub,
    reason = "kube's derive repeats each public struct inside a function"
)]

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::{self, Condition, types};
use super::defrag::MemberRole;
use super::scalar::IntOrString;
use super::schema;
use crate::core::reason::Reason;
use crate::core::target::Scheme;
use crate::core::view::Observation;

/// More URLs than the largest cluster has members; the schema says the same.
pub(super) const MAX_URLS: usize = 64;

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
    printcolumn(
        name = "Members",
        type_ = "integer",
        json_path = ".status.voters",
        description = "members that vote"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Cluster ID",
        type_ = "string",
        json_path = ".status.clusterID",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.endpoints) != has(self.podSelector)")
    .message("exactly one of endpoints and podSelector is needed: remove one, or add one"))]
#[x_kube(validation = Rule::new(
        "!has(self.endpoints) || self.endpoints.all(url, url.startsWith('https://') == has(self.tls))"
    ).message("https endpoints need tls, http endpoints must not have it"))]
#[x_kube(validation = Rule::new(
        "!has(self.podSelector) \
         || (has(self.podSelector.scheme) && self.podSelector.scheme == 'https') == has(self.tls)"
    ).message("podSelector.scheme: https needs tls, and with tls the scheme must be https"))]
#[x_kube(validation = Rule::new(
        "!has(self.metricsURLs) || has(self.tls) || self.metricsURLs.all(url, !url.startsWith('https://'))"
    ).message("https metricsURLs need tls"))]
#[x_kube(validation = Rule::new(
        "!has(self.podSelector) || ((!has(self.tls) || has(self.tls.secretRef)) \
         && (!has(self.auth) || has(self.auth.secretRef)))"
    ).message("podSelector needs secretRef in tls and auth: pods are found in Kubernetes, files are read in standalone"))]
#[x_kube(validation = Rule::new(
        "!has(self.tls) || !has(self.auth) || has(self.tls.secretRef) == has(self.auth.secretRef)"
    ).message("tls and auth must both use secretRef (Kubernetes) or both use files (standalone)"))]
pub struct EtcdTargetSpec {
    /// Client URLs of the members, with scheme and port. One is enough to find
    /// the others; give all of them where the advertised URLs do not work from
    /// here. This or `podSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(max = 2048), regex(pattern = "^https?://"))
    )]
    pub endpoints: Option<Vec<String>>,
    /// The members' pods, such as the static pods of kubeadm. Only in
    /// Kubernetes. This or `endpoints`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<PodSelector>,
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

/// Pods in the target's own namespace, one a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSelector {
    /// Labels that every pod of the cluster carries, and no other pod.
    #[schemars(schema_with = "schema::labels")]
    #[x_kube(validation = schema::label_keys())]
    pub match_labels: BTreeMap<String, String>,
    /// The pods' client port, 1 to 65535. Absent: 2379.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: Option<i64>,
    /// How the port is spoken to. Absent: http. https needs `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<SchemeSpec>,
}

/// How a member's client port is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "lowercase")]
pub enum SchemeSpec {
    Http,
    Https,
}

impl From<SchemeSpec> for Scheme {
    fn from(scheme: SchemeSpec) -> Self {
        match scheme {
            SchemeSpec::Http => Scheme::Http,
            SchemeSpec::Https => Scheme::Https,
        }
    }
}

/// A Secret in the namespace of the object that names it. There is no way to
/// name one of another namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The Secret's name.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// Certificates in PEM: from a Secret in Kubernetes, from files in standalone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretRef) != has(self.caFile)")
    .message("exactly one of secretRef (Kubernetes) and caFile (standalone) is needed"))]
#[x_kube(validation = Rule::new("!has(self.secretRef) || !(has(self.certFile) || has(self.keyFile))")
    .message("secretRef excludes certFile and keyFile: put both into the Secret as tls.crt and tls.key"))]
#[x_kube(validation = Rule::new("has(self.certFile) == has(self.keyFile)")
    .message("certFile and keyFile go together"))]
pub struct TargetTls {
    /// A Secret with the authority in `ca.crt` and, for a client certificate,
    /// `tls.crt` and `tls.key`. Only in Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// The authority that signed the servers' certificates. The machine's own
    /// authorities are not used. Only in standalone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub ca_file: Option<String>,
    /// The client certificate. Only in standalone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub cert_file: Option<String>,
    /// The client certificate's key. Only in standalone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub key_file: Option<String>,
    /// The name to look for in the servers' certificates instead of the
    /// endpoint's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}

/// The user's name and password: from a Secret in Kubernetes, from files in
/// standalone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretRef) != (has(self.usernameFile) || has(self.passwordFile))")
    .message("exactly one of secretRef (Kubernetes) and usernameFile with passwordFile (standalone) is needed"))]
#[x_kube(validation = Rule::new("has(self.usernameFile) == has(self.passwordFile)")
    .message("usernameFile and passwordFile go together"))]
pub struct TargetAuth {
    /// A Secret of the type kubernetes.io/basic-auth, with `username` and
    /// `password`. Only in Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Holds the user's name. Only in standalone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub username_file: Option<String>,
    /// Holds the password. Only in standalone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub password_file: Option<String>,
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
    /// Client URLs of the pods that `podSelector` found. Absent with `endpoints`,
    /// which say it themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub endpoints: Vec<String>,
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
    /// With the client URLs that `podSelector` led to, as many as a status holds.
    /// None, when the target gives its endpoints itself.
    #[must_use]
    pub fn with_endpoints(mut self, found: impl IntoIterator<Item = String>) -> Self {
        self.endpoints = found.into_iter().take(MAX_URLS).collect();
        self
    }

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
