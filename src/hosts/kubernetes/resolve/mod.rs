//! From objects in Kubernetes to the members of a cluster.
//!
//! Nothing in here waits or asks anybody: what the watches hold goes in, and
//! either the way to the members comes out, or a note that says why nobody can
//! tell. Objects of other operators are read leniently: what is not needed may
//! have any shape, and what is needed and has none that can be understood is a
//! note that names field and value.
//!
//! | file | what |
//! | --- | --- |
//! | `pods` | pods that an `EtcdTarget` selects, or that run an operator's members |
//! | `cozystack` | `EtcdCluster` of `etcd-operator.cozystack.io/v1alpha2` |
//! | `etcd_io` | `EtcdCluster` of `operator.etcd.io/v1alpha1` |
//! | `object` | objects of kinds that are not known when this is compiled |
//! | `names` | names that become a part of a URL or of a request |
//! | `flags` | the command line of etcd |
//!
//! Whether the members are *healthy* is asked of etcd, never of these objects.
//! They can veto, though: a cluster that its operator is changing is `busy`.

mod cozystack;
mod etcd_io;
#[cfg(test)]
mod fixtures;
mod flags;
mod names;
mod object;
mod pods;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use url::Url;

use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::view::ClusterId;

pub(super) use cozystack::{Cozystack, cozystack};
pub(super) use etcd_io::{EtcdIo, etcd_io};
pub(super) use pods::{PodSelector, PodView, pods};

/// More members than the largest cluster has; beyond it, the objects are wrong.
const MAX_MEMBERS: usize = 64;

/// So many particulars of one kind are named; the others are counted.
const NAMED: usize = 5;

/// Where members are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Members {
    /// Client URLs, at least one, all different, in a stable order: equal
    /// objects give equal members, however a watch lists them.
    pub(super) endpoints: Vec<Url>,
    /// What is changing the cluster at the moment.
    pub(super) busy: Option<Note>,
    /// What a person should know: who was left out and why, what was assumed.
    pub(super) remarks: Vec<String>,
}

/// How the cluster of another operator's object is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) members: Members,
    /// The pods' addresses, by the host of an endpoint or a metrics URL. Empty
    /// when no pods were given. They save nobody from verifying the name.
    pub(super) addresses: BTreeMap<String, IpAddr>,
    /// Set exactly when the endpoints are https.
    pub(super) tls: Option<Tls>,
    pub(super) auth: Option<Auth>,
    /// Voters that the operator keeps the cluster at.
    pub(super) expected_voters: u32,
    /// The backend quota in bytes, when the members do not tell theirs.
    pub(super) quota_bytes: Option<u64>,
    /// Where `/metrics` is served; empty: at the client URLs.
    pub(super) metrics_urls: Vec<Url>,
    /// The cluster that must answer.
    pub(super) cluster_id: Option<ClusterId>,
}

/// A value in a Secret of the cluster's own namespace. The Secret's name is one
/// that a Secret can have, so that no request for it leads anywhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretValue {
    pub(super) secret: String,
    pub(super) key: &'static str,
}

/// Certificates in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) ca: SecretValue,
    /// The client's certificate and its key.
    pub(super) identity: Option<(SecretValue, SecretValue)>,
}

impl Tls {
    /// The keys of a Secret of the type `kubernetes.io/tls`.
    fn new(ca: &str, identity: Option<&str>) -> Self {
        let value = |secret: &str, key| SecretValue {
            secret: secret.to_owned(),
            key,
        };
        Tls {
            ca: value(ca, "ca.crt"),
            identity: identity.map(|secret| (value(secret, "tls.crt"), value(secret, "tls.key"))),
        }
    }
}

/// The user that etcd asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Auth {
    pub(super) user: &'static str,
    pub(super) password: SecretValue,
}

/// Why the cluster is busy, gathered.
#[derive(Debug, Default)]
struct Changes(Vec<String>);

impl Changes {
    fn add(&mut self, what: impl Into<String>) {
        self.0.push(what.into());
    }

    fn note(self) -> Option<Note> {
        (!self.0.is_empty()).then(|| Note::new(Reason::ClusterChanging, list(&self.0, "; ")))
    }
}

/// The first few, and how many more there are.
fn list<S: AsRef<str>>(items: &[S], separator: &str) -> String {
    let named: Vec<&str> = items.iter().take(NAMED).map(AsRef::as_ref).collect();
    let named = named.join(separator);
    match items.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Text of somebody else, fit for one line of a message.
fn clip(text: &str) -> String {
    const LONGEST: usize = 160;
    let mut line: String = text
        .chars()
        .take(LONGEST)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}

fn unresolved(message: impl Into<String>) -> Note {
    Note::new(Reason::MembersUnresolved, message)
}
