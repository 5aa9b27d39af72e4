//! `EtcdCluster` of cozystack's etcd-operator, as its API
//! `etcd-operator.cozystack.io/v1alpha2` and its controllers have it.
//!
//! Members are the `EtcdMember` objects, never what a Service or the cluster's
//! label selects: the pods of snapshot jobs carry that label too. They are
//! dialled by the short names that the operator itself uses, for those are in
//! the certificates that users bring.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use serde::Deserialize;

use crate::core::key::{ClusterKind, ObjectKey};
use crate::core::run::Note;
use crate::core::view::ClusterId;

use super::object::{Condition, Reference, or_default};
use super::pods::{PodView, locate};
use super::{
    Auth, Changes, MAX_MEMBERS, Members, Resolved, SecretValue, Tls, clip, list, names, object,
    unresolved,
};

const KIND: ClusterKind = ClusterKind::CozystackCluster;

/// On members and their pods: the cluster that they belong to.
const CLUSTER: &str = "etcd-operator.cozystack.io/cluster";

/// On members that were adopted from another operator: the Service that their
/// host names are below, instead of the one named like the cluster.
const SERVICE: &str = "etcd-operator.cozystack.io/headless-service-name";

const CLIENT_PORT: u16 = 2379;

/// `--listen-metrics-urls`, always set: plain, without user.
const METRICS_PORT: u16 = 2381;

/// The only user that the operator sets up.
const USER: &str = "root";

/// `spec.replicas`, when it is absent.
const DEFAULT_REPLICAS: u32 = 3;

/// etcd's own quota, in bytes, when none is configured.
const DEFAULT_QUOTA: u64 = 2 * 1024 * 1024 * 1024;

/// What the watches hold of one namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cozystack<'a> {
    /// Whether the API server knows the kind `EtcdCluster` of this group.
    pub(crate) installed: bool,
    pub(crate) cluster: Option<&'a DynamicObject>,
    /// Every `EtcdMember`, also those of other clusters.
    pub(crate) members: &'a [Arc<DynamicObject>],
    /// Every `EtcdDefrag` of the operator's own, also of other clusters.
    pub(crate) defrags: &'a [Arc<DynamicObject>],
    /// Every pod, also others; none when they are not watched.
    pub(crate) pods: &'a [Arc<PodView>],
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cluster {
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<u32>,
    tls: Option<TlsSpec>,
    auth: Option<AuthSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TlsSpec {
    client: Option<ClientTls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientTls {
    server_secret_ref: Option<Reference>,
    operator_client_secret_ref: Option<Reference>,
    cert_manager: Option<CertManager>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CertManager {
    operator_client_issuer_ref: Option<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AuthSpec {
    enabled: Option<bool>,
    root_credentials_secret_ref: Option<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(rename = "clusterID")]
    cluster_id: Option<String>,
    auth_enabled: Option<bool>,
    observed: Option<Observed>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
}

/// What the operator works towards. It looks at a changed spec only after it
/// got there.
#[derive(Debug, Deserialize)]
struct Observed {
    replicas: u32,
    options: Option<Options>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Options {
    quota_backend_bytes: Option<u64>,
}

impl Options {
    /// 0 asks for etcd's default.
    fn quota(options: Option<&Self>) -> Option<u64> {
        options?.quota_backend_bytes.filter(|bytes| *bytes > 0)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Member {
    #[serde(deserialize_with = "or_default")]
    spec: MemberSpec,
    #[serde(deserialize_with = "or_default")]
    status: MemberStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MemberSpec {
    cluster_name: Option<String>,
    dormant: Option<bool>,
    options: Option<Options>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MemberStatus {
    is_voter: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Defrag {
    #[serde(deserialize_with = "or_default")]
    spec: DefragSpec,
    #[serde(deserialize_with = "or_default")]
    status: DefragStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DefragSpec {
    #[serde(deserialize_with = "or_default")]
    cluster_ref: Reference,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DefragStatus {
    phase: Option<String>,
}

/// How the cluster's members are reached.
///
/// # Errors
/// `ClusterNotFound`, `MembersUnresolved`, `SecretUnusable`, or
/// `ClusterChanging` when the object is being deleted.
pub(crate) fn cozystack(key: &ObjectKey, seen: &Cozystack<'_>) -> Result<Resolved, Note> {
    let object = object::existing(KIND, key, seen.cluster, seen.installed)?;
    let label = object::label(KIND, key);
    let cluster: Cluster = object::read(&label, object)?;
    resolve(key, seen, &cluster)
        .map_err(|note| Note::new(note.reason, format!("{label}: {}", note.message)))
}

fn resolve(key: &ObjectKey, seen: &Cozystack<'_>, cluster: &Cluster) -> Result<Resolved, Note> {
    let Cluster { spec, status } = cluster;
    let observed = observed(status)?;
    let cluster_id = cluster_id(status)?;
    let mut changes = Changes::default();
    let mut remarks = Vec::new();
    let wanted = spec.replicas.unwrap_or(DEFAULT_REPLICAS);
    if wanted != observed.replicas {
        changes.add(format!(
            "spec.replicas is {wanted} and its operator still works towards {}",
            observed.replicas
        ));
    }
    if let Some(said) = object::progressing(&status.conditions) {
        changes.add(said);
    }
    let members = members(key, seen.members, observed.replicas, &mut changes)?;
    other_defrags(key, seen.defrags, &mut changes, &mut remarks);

    let tls = tls(key, spec.tls.as_ref().and_then(|tls| tls.client.as_ref()))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut hosts = BTreeMap::new();
    let mut endpoints = Vec::new();
    let mut metrics_urls = Vec::new();
    for (object, _) in &members {
        let annotations = object.metadata.annotations.as_ref();
        let service = annotations
            .and_then(|annotations| annotations.get(SERVICE))
            .map_or(&*key.name, String::as_str);
        let name = object::name(object);
        let host = names::host(name, service, &key.namespace, "svc")?;
        endpoints.push(names::url(scheme, &host, CLIENT_PORT, "")?);
        metrics_urls.push(names::url("http", &host, METRICS_PORT, "/metrics")?);
        hosts.insert(name, host);
    }
    let own = [
        (CLUSTER, key.name.as_str()),
        ("app.kubernetes.io/name", "etcd"),
    ];
    let pods = seen.pods.iter().map(|pod| &**pod);
    let addresses = locate(pods.filter(|pod| pod.has_labels(own)), &hosts, &mut changes);
    Ok(Resolved {
        addresses,
        tls,
        auth: auth(spec.auth.as_ref(), status.auth_enabled == Some(true))?,
        expected_voters: observed.replicas,
        quota_bytes: quota(&members, observed, &mut remarks),
        metrics_urls,
        cluster_id: Some(cluster_id),
        members: Members {
            endpoints,
            busy: changes.note(),
            remarks,
        },
    })
}

fn observed(status: &Status) -> Result<&Observed, Note> {
    let Some(observed) = &status.observed else {
        return Err(unresolved(
            "status.observed is not set: its operator has not looked at it yet",
        ));
    };
    match observed.replicas {
        0 => Err(unresolved(
            "status.observed.replicas is 0: the cluster is parked and no member runs",
        )),
        n if n as usize > MAX_MEMBERS => Err(unresolved(format!(
            "status.observed.replicas is {n}, want at most {MAX_MEMBERS}"
        ))),
        _ => Ok(observed),
    }
}

fn cluster_id(status: &Status) -> Result<ClusterId, Note> {
    let id = status.cluster_id.as_deref().unwrap_or_default();
    if id.is_empty() {
        return Err(unresolved(
            "status.clusterID is not set: the cluster has never been bootstrapped",
        ));
    }
    id.parse().map_err(|_| {
        unresolved(format!(
            "status.clusterID {:?} is not a cluster's id, want up to 16 hexadecimal digits",
            clip(id)
        ))
    })
}

/// Its members by name, without those that rest or leave. Whatever is not as it
/// will be is a change.
fn members<'a>(
    key: &ObjectKey,
    objects: &'a [Arc<DynamicObject>],
    expected: u32,
    changes: &mut Changes,
) -> Result<Vec<(&'a DynamicObject, Member)>, Note> {
    let mut members = Vec::new();
    let (mut dormant, mut leaving) = (Vec::new(), Vec::new());
    for object in objects {
        if !object::has_label(object, CLUSTER, &key.name) {
            continue;
        }
        let name = object::name(object);
        let label = format!("EtcdMember.{}/{}/{name}", KIND.group(), key.namespace);
        let member: Member = object::read(&label, object)?;
        // Labels can be put on anything.
        if member
            .spec
            .cluster_name
            .as_ref()
            .is_some_and(|cluster| *cluster != key.name)
        {
            continue;
        }
        if object.metadata.deletion_timestamp.is_some() {
            leaving.push(name);
        } else if member.spec.dormant == Some(true) {
            dormant.push(name);
        } else {
            members.push((&**object, member));
        }
    }
    members.sort_by(|(a, _), (b, _)| object::name(a).cmp(object::name(b)));
    leaving.sort_unstable();
    dormant.sort_unstable();
    if members.is_empty() || members.len() > MAX_MEMBERS {
        let mut others = Vec::new();
        if !dormant.is_empty() {
            others.push(format!("dormant: {}", list(&dormant, ", ")));
        }
        if !leaving.is_empty() {
            others.push(format!("being deleted: {}", list(&leaving, ", ")));
        }
        let others = match others.as_slice() {
            [] => String::new(),
            others => format!(" ({})", others.join("; ")),
        };
        return Err(unresolved(format!(
            "{} EtcdMembers of it run{others}, want {expected}",
            members.len()
        )));
    }
    if members.len() != expected as usize {
        changes.add(format!(
            "it has {} members and its operator works towards {expected}",
            members.len()
        ));
    }
    if !leaving.is_empty() {
        changes.add(format!(
            "{} is being deleted, its member is about to be removed",
            list(&leaving, ", ")
        ));
    }
    let joining: Vec<&str> = members
        .iter()
        .filter(|(_, member)| member.status.is_voter != Some(true))
        .map(|(object, _)| object::name(object))
        .collect();
    if !joining.is_empty() {
        changes.add(format!("{} is not a voter yet", list(&joining, ", ")));
    }
    Ok(members)
}

/// The operator's own defragmentations of this cluster. One without a phase is
/// not waited for: versions that have the kind and no controller for it leave
/// it so for ever, and the others give a phase at once.
fn other_defrags(
    key: &ObjectKey,
    objects: &[Arc<DynamicObject>],
    changes: &mut Changes,
    remarks: &mut Vec<String>,
) {
    let (mut active, mut inert) = (Vec::new(), Vec::new());
    for object in objects {
        let name = object::name(object);
        // One that cannot be read may be of this cluster, and may be at work.
        let defrag: Defrag = match object::read(name, object) {
            Ok(defrag) => defrag,
            Err(note) => {
                active.push(note.message);
                continue;
            }
        };
        if defrag.spec.cluster_ref.name.as_deref() != Some(key.name.as_str()) {
            continue;
        }
        match defrag.status.phase.as_deref() {
            Some("Complete" | "Failed") => {}
            None | Some("") => inert.push(name.to_owned()),
            Some(phase) => active.push(format!("{name} is {}", clip(phase))),
        }
    }
    active.sort_unstable();
    inert.sort_unstable();
    let kind = format!("EtcdDefrag.{}", KIND.group());
    if !active.is_empty() {
        changes.add(format!("{kind} {}", list(&active, ", ")));
    }
    if !inert.is_empty() {
        remarks.push(format!(
            "{kind} {} has no phase: no operator acts on it, it is not waited for",
            list(&inert, ", ")
        ));
    }
}

fn tls(key: &ObjectKey, client: Option<&ClientTls>) -> Result<Option<Tls>, Note> {
    let Some(client) = client else {
        return Ok(None);
    };
    let manager = client.cert_manager.as_ref();
    let server = match (&client.server_secret_ref, manager) {
        (None, Some(_)) => format!("{}-server-tls", key.name),
        (reference, _) => {
            let name = reference.as_ref().and_then(|r| r.name.as_deref());
            names::secret("spec.tls.client.serverSecretRef.name", name)?.to_owned()
        }
    };
    let issued = manager.is_some_and(|m| m.operator_client_issuer_ref.is_some());
    let identity = match (&client.operator_client_secret_ref, issued) {
        (Some(reference), _) => {
            let field = "spec.tls.client.operatorClientSecretRef.name";
            Some(names::secret(field, reference.name.as_deref())?.to_owned())
        }
        (None, true) => Some(format!("{}-operator-client-tls", key.name)),
        (None, false) => None,
    };
    Ok(Some(Tls::new(&server, identity.as_deref())))
}

/// Nobody may name a user before etcd asks for one: the operator turns that on
/// some time after the bootstrap, and says so in the status.
fn auth(spec: Option<&AuthSpec>, asked_for: bool) -> Result<Option<Auth>, Note> {
    let Some(spec) = spec.filter(|spec| asked_for && spec.enabled == Some(true)) else {
        return Ok(None);
    };
    let reference = spec.root_credentials_secret_ref.as_ref();
    let secret = names::secret(
        "spec.auth.rootCredentialsSecretRef.name",
        reference.and_then(|r| r.name.as_deref()),
    )?;
    Ok(Some(Auth {
        user: USER,
        password: SecretValue {
            secret: secret.to_owned(),
            key: "password",
        },
    }))
}

/// A member keeps the options that it was made with. When they differ, the
/// smallest quota counts: that member is the first to be full.
fn quota(
    members: &[(&DynamicObject, Member)],
    observed: &Observed,
    remarks: &mut Vec<String>,
) -> Option<u64> {
    let target = Options::quota(observed.options.as_ref());
    let quotas: Vec<Option<u64>> = members
        .iter()
        .map(|(_, member)| Options::quota(member.spec.options.as_ref()).or(target))
        .collect();
    let first = *quotas.first()?;
    if quotas.iter().all(|quota| *quota == first) {
        return first;
    }
    let smallest = quotas
        .iter()
        .map(|quota| quota.unwrap_or(DEFAULT_QUOTA))
        .min()?;
    remarks.push(format!(
        "its members have different quotas, {smallest} bytes is the smallest"
    ));
    Some(smallest)
}

#[cfg(test)]
mod tests;
