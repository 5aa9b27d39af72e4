//! `EtcdCluster` of etcd-io's etcd-operator, as its API
//! `operator.etcd.io/v1alpha1` and both lines of its controller have it: the one
//! with a StatefulSet (v0.2.0) and the one that manages pods itself.
//!
//! Members are `<cluster>-0` and so on, dialled by their full names, for those
//! are in the certificates. The members in `status` are no help: their numbers
//! may be another member's. Only what holds for the whole list is used.
//!
//! Whether the members speak TLS is seen in their pods' arguments. v0.2.0 makes
//! the Secrets for `spec.tls` and serves plain HTTP all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::DynamicObject;
use serde::Deserialize;

use crate::core::key::{ClusterKind, ObjectKey};
use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::version::Version;

use super::object::{Condition, or_default};
use super::pods::{PodView, locate};
use super::{
    Changes, MAX_MEMBERS, Members, Resolved, Tls, clip, flags, list, names, object, unresolved,
};

const KIND: ClusterKind = ClusterKind::EtcdIoCluster;

const CLIENT_PORT: u16 = 2379;

/// The domain that the operator puts into arguments and certificates, whatever
/// the cluster's domain is.
const SUFFIX: &str = "svc.cluster.local";

/// What the watches hold of one namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EtcdIo<'a> {
    /// Whether the API server knows the kind `EtcdCluster` of this group.
    pub(crate) installed: bool,
    pub(crate) cluster: Option<&'a DynamicObject>,
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
#[serde(default, rename_all = "camelCase")]
struct Spec {
    size: Option<u32>,
    version: Option<String>,
    tls: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "or_default")]
    etcd_options: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: Option<i64>,
    current_replicas: Option<u32>,
    member_count: Option<u32>,
    current_version: Option<String>,
    #[serde(deserialize_with = "or_default")]
    members: Vec<Member>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Member {
    version: Option<String>,
    is_learner: Option<bool>,
}

/// How the cluster's members are reached.
///
/// # Errors
/// `ClusterNotFound`, `MembersUnresolved`, `SecretUnusable`, or
/// `ClusterChanging` when the object is being deleted.
pub(crate) fn etcd_io(key: &ObjectKey, seen: &EtcdIo<'_>) -> Result<Resolved, Note> {
    let object = object::existing(KIND, key, seen.cluster, seen.installed)?;
    let label = object::label(KIND, key);
    let cluster: Cluster = object::read(&label, object)?;
    resolve(key, seen, object, &cluster)
        .map_err(|note| Note::new(note.reason, format!("{label}: {}", note.message)))
}

fn resolve(
    key: &ObjectKey,
    seen: &EtcdIo<'_>,
    object: &DynamicObject,
    cluster: &Cluster,
) -> Result<Resolved, Note> {
    let Cluster { spec, status } = cluster;
    let size = size(spec)?;
    if status.member_count.unwrap_or(0) == 0 {
        return Err(unresolved(
            "status.memberCount is not set: its operator has not seen a member of it yet \
             (before v0.2.0 it never says; an EtcdTarget with a podSelector describes such a cluster)",
        ));
    }
    let mut changes = Changes::default();
    let mut remarks = Vec::new();
    in_status(object, spec, status, size, &mut changes);

    let mut hosts = BTreeMap::new();
    let members: Vec<String> = (0..size).map(|i| format!("{}-{i}", key.name)).collect();
    for member in &members {
        let host = names::host(member, &key.name, &key.namespace, SUFFIX)?;
        hosts.insert(member.as_str(), host);
    }
    let own = [
        ("app", key.name.as_str()),
        ("controller", key.name.as_str()),
    ];
    let pods: Vec<&PodView> = seen
        .pods
        .iter()
        .map(|pod| &**pod)
        .filter(|pod| pod.has_labels(own) && hosts.contains_key(pod.name.as_str()))
        .collect();
    let addresses = locate(pods.iter().copied(), &hosts, &mut changes);

    let tls = serves_tls(spec, &pods, &mut changes, &mut remarks);
    if tls && spec.tls.is_none() {
        return Err(Note::new(
            Reason::SecretUnusable,
            "its members serve https and spec.tls is not set, so no Secret holds their authority; \
             describe the cluster by an EtcdTarget instead",
        ));
    }
    let scheme = if tls { "https" } else { "http" };
    let endpoints = members
        .iter()
        .filter_map(|member| hosts.get(member.as_str()))
        .map(|host| names::url(scheme, host, CLIENT_PORT, ""))
        .collect::<Result<_, _>>()?;
    // The operator's own way in. The pair in `<cluster>-client-tls` is, without
    // cert-manager, its own authority, which no server trusts.
    let server = format!("{}-server-tls", key.name);
    Ok(Resolved {
        addresses,
        tls: tls.then(|| Tls::new(&server, Some(&server))),
        auth: None,
        expected_voters: size,
        quota_bytes: quota(spec, &mut remarks),
        metrics_urls: Vec::new(),
        cluster_id: None,
        members: Members {
            endpoints,
            busy: changes.note(),
            remarks,
        },
    })
}

fn size(spec: &Spec) -> Result<u32, Note> {
    match spec.size {
        None => Err(unresolved(
            "spec.size is not set, want the number of members",
        )),
        Some(0) => Err(unresolved("spec.size is 0: no member runs")),
        Some(n) if n as usize > MAX_MEMBERS => Err(unresolved(format!(
            "spec.size is {n}, want at most {MAX_MEMBERS}"
        ))),
        Some(n) => Ok(n),
    }
}

/// What the object itself tells of changes.
fn in_status(
    object: &DynamicObject,
    spec: &Spec,
    status: &Status,
    size: u32,
    changes: &mut Changes,
) {
    if let (Some(now), Some(seen)) = (object.metadata.generation, status.observed_generation)
        && seen < now
    {
        changes.add(format!(
            "its operator has seen generation {seen} of it and not {now}"
        ));
    }
    if let Some(said) = object::progressing(&status.conditions) {
        changes.add(said);
    }
    for (what, number) in [
        ("members", status.member_count),
        ("pods", status.current_replicas),
    ] {
        if let Some(number) = number.filter(|number| *number != size) {
            changes.add(format!("it has {number} {what} and spec.size is {size}"));
        }
    }
    if status.members.iter().any(|m| m.is_learner == Some(true)) {
        changes.add("one of its members is a learner");
    }
    versions(spec, status, changes);
}

/// Versions that are being left or that are to come. An image's tag that is no
/// version (`latest`, a digest) proves nothing.
fn versions(spec: &Spec, status: &Status, changes: &mut Changes) {
    let parse = |text: &Option<String>| text.as_deref().and_then(Version::parse);
    let running: BTreeSet<Version> = status
        .members
        .iter()
        .filter_map(|m| parse(&m.version))
        .collect();
    if running.len() > 1 {
        let running: Vec<String> = running.iter().map(ToString::to_string).collect();
        changes.add(format!("its members run {}", list(&running, " and ")));
    } else if let (Some(wanted), Some(current)) =
        (parse(&spec.version), parse(&status.current_version))
        && wanted != current
    {
        changes.add(format!(
            "spec.version is {wanted} and its members run {current}"
        ));
    }
}

/// Whether the members serve TLS: as their pods were told, else as the options
/// say, else as `spec.tls` asks.
fn serves_tls(
    spec: &Spec,
    pods: &[&PodView],
    changes: &mut Changes,
    remarks: &mut Vec<String>,
) -> bool {
    const FLAG: &str = "listen-client-urls";
    let asked = spec.tls.is_some();
    let told: BTreeSet<bool> = pods
        .iter()
        .filter_map(|pod| flags::value(pod.arguments.iter().map(String::as_str), FLAG))
        .map(has_https)
        .collect();
    match (told.contains(&true), told.contains(&false)) {
        (true, true) => {
            changes.add("some of its pods serve TLS and some do not");
            return asked;
        }
        (true, false) => return true,
        (false, true) => {
            if asked {
                remarks
                    .push("spec.tls is set, and its pods serve plain HTTP all the same".to_owned());
            }
            return false;
        }
        (false, false) => {}
    }
    if let Some(urls) = flags::value(spec.etcd_options.iter().map(String::as_str), FLAG) {
        return has_https(urls);
    }
    if asked {
        remarks.push(
            "its members are taken to serve TLS because spec.tls is set; \
             v0.2.0 of its operator serves plain HTTP all the same, which only the pods tell"
                .to_owned(),
        );
    }
    asked
}

/// A member that listens on both is asked over TLS.
fn has_https(urls: &str) -> bool {
    urls.split(',')
        .any(|url| url.trim().starts_with("https://"))
}

/// What `etcdOptions` say, when etcd itself does not (before 3.6). 0 asks for
/// etcd's default; a negative number is no quota at all.
fn quota(spec: &Spec, remarks: &mut Vec<String>) -> Option<u64> {
    let options = spec.etcd_options.iter().map(String::as_str);
    let text = flags::value(options, "quota-backend-bytes")?;
    match text.parse::<i64>() {
        Ok(bytes) => u64::try_from(bytes).ok().filter(|bytes| *bytes > 0),
        Err(_) => {
            remarks.push(format!(
                "--quota-backend-bytes {:?} in spec.etcdOptions is not a decimal number and is passed over",
                clip(text)
            ));
            None
        }
    }
}

#[cfg(test)]
mod tests;
