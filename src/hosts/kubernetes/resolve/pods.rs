//! Pods that run members.
//!
//! A pod that is not ready is still a member: a defragmentation makes a member
//! unready, and etcd itself is asked. Left out is what cannot be asked: a pod
//! without an address, one that has not begun or has ended, one that is being
//! deleted.
//!
//! A pod that is being deleted makes the cluster busy: in a moment a member
//! goes away, and no member may be made to stall meanwhile (R11). That ends by
//! itself when the pod is gone. Pods of different revisions beside each other do
//! not make it busy: with a partition or `OnDelete` that lasts as long as
//! somebody likes, and etcd is asked before each member anyway.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::core::run::Note;

use super::{Changes, MAX_MEMBERS, Members, clip, list, names, unresolved};

/// What is kept of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodView {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    /// `status.phase`; empty when nobody has set it.
    pub(crate) phase: String,
    /// `status.podIP`, else the first of `status.podIPs`: of the family that the
    /// cluster prefers. For a pod on the host's network it is the host's.
    pub(crate) address: Option<String>,
    /// Command and arguments of the container `etcd`.
    pub(crate) arguments: Vec<String>,
}

impl From<&Pod> for PodView {
    fn from(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let addresses = status.into_iter().flat_map(|status| {
            let others = status.pod_ips.iter().flatten().map(|ip| &ip.ip);
            status.pod_ip.iter().chain(others)
        });
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let etcd = containers.into_iter().find(|c| c.name == "etcd");
        PodView {
            name: pod.metadata.name.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            created: pod.metadata.creation_timestamp.as_ref().map(|t| t.0),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            phase: status.and_then(|s| s.phase.clone()).unwrap_or_default(),
            address: addresses.into_iter().find(|ip| !ip.is_empty()).cloned(),
            arguments: etcd
                .into_iter()
                .flat_map(|c| c.command.iter().chain(&c.args).flatten())
                .cloned()
                .collect(),
        }
    }
}

impl PodView {
    pub(super) fn has_labels<'a>(
        &self,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> bool {
        labels
            .into_iter()
            .all(|(key, value)| self.labels.get(key).is_some_and(|v| v == value))
    }

    /// Whether it is going away while it may still run.
    pub(super) fn leaves(&self) -> bool {
        self.deleting && !self.ended()
    }

    fn ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Where it can be asked, or why it cannot.
    pub(super) fn address(&self) -> Result<IpAddr, String> {
        if self.ended() || self.phase == "Pending" {
            return Err(format!("is {}", self.phase));
        }
        if self.deleting {
            return Err("is being deleted".to_owned());
        }
        let Some(text) = &self.address else {
            return Err("has no address".to_owned());
        };
        text.parse()
            .map_err(|_| format!("has the address {:?}, which is none", clip(text)))
    }
}

/// Which pods an `EtcdTarget` means, and how etcd is reached in them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodSelector<'a> {
    /// The target's own.
    pub(crate) namespace: &'a str,
    pub(crate) match_labels: &'a BTreeMap<String, String>,
    pub(crate) port: u16,
    /// `http` or `https`.
    pub(crate) scheme: &'a str,
}

/// The members in the selected pods; `pods` are those of the namespace, also
/// ones that are not meant. Of several pods at one address (the network of one
/// host) the newest is taken.
///
/// # Errors
/// No pod that can be asked, or more than any cluster has.
pub(crate) fn pods<'a>(
    selector: &PodSelector<'_>,
    pods: impl IntoIterator<Item = &'a PodView>,
) -> Result<Members, Note> {
    let PodSelector {
        namespace,
        match_labels,
        port,
        scheme,
    } = *selector;
    if match_labels.is_empty() {
        return Err(unresolved(
            "spec.podSelector.matchLabels is empty, name the labels of the members' pods",
        ));
    }
    let wanted = match_labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",");
    let mut looked_at = 0_usize;
    let mut matching: Vec<&PodView> = Vec::new();
    for pod in pods {
        looked_at += 1;
        let labels = match_labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        if pod.has_labels(labels) {
            matching.push(pod);
        }
    }
    // The newest first; the name decides where times do not.
    matching.sort_by(|a, b| (b.created, &a.name).cmp(&(a.created, &b.name)));

    let mut found: BTreeMap<IpAddr, &PodView> = BTreeMap::new();
    let mut left_out = Vec::new();
    let mut changes = Changes::default();
    for pod in &matching {
        if pod.leaves() {
            changes.add(format!("pod {} is being deleted", pod.name));
        }
        match pod.address() {
            Ok(address) => match found.get(&address) {
                None => {
                    found.insert(address, pod);
                }
                Some(newer) => left_out.push(format!(
                    "{} is older than {} at {address}",
                    pod.name, newer.name
                )),
            },
            Err(why) => left_out.push(format!("{} {why}", pod.name)),
        }
    }
    let at = format!("etcd was looked for at port {port} over {scheme}");
    if found.is_empty() {
        return Err(unresolved(match matching.len() {
            0 => format!(
                "no pod in namespace {namespace} matches {wanted} ({looked_at} pods looked at); {at}"
            ),
            _ => format!(
                "no pod in namespace {namespace} that matches {wanted} can be asked ({}); {at}",
                list(&left_out, ", ")
            ),
        }));
    }
    if found.len() > MAX_MEMBERS {
        return Err(unresolved(format!(
            "{} pods in namespace {namespace} match {wanted}, want at most {MAX_MEMBERS}: name more labels",
            found.len()
        )));
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let endpoints = found
        .into_iter()
        .map(|(address, _)| names::url(scheme, &in_url(address), port, ""))
        .collect::<Result<_, _>>()?;
    let remarks = match left_out.as_slice() {
        [] => Vec::new(),
        left_out => vec![format!("left out: {}", list(left_out, ", "))],
    };
    Ok(Members {
        endpoints,
        busy: changes.note(),
        remarks,
    })
}

/// The addresses of an operator's members, by the hosts that they are reached
/// at; `hosts` has these by the pods' names. A pod that goes away is a change.
pub(super) fn locate<'a>(
    pods: impl IntoIterator<Item = &'a PodView>,
    hosts: &BTreeMap<&str, String>,
    changes: &mut Changes,
) -> BTreeMap<String, IpAddr> {
    let mut addresses = BTreeMap::new();
    for pod in pods {
        let Some(host) = hosts.get(pod.name.as_str()) else {
            continue;
        };
        if pod.leaves() {
            changes.add(format!("pod {} is being deleted", pod.name));
        }
        if let Ok(address) = pod.address() {
            addresses.insert(host.clone(), address);
        }
    }
    addresses
}

fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests;
