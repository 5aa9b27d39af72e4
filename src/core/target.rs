//! Where a cluster is: a validated `EtcdTarget` spec.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use url::Url;

/// The port at which etcd serves clients unless it was told otherwise.
pub const DEFAULT_PORT: u16 = 2379;

/// How a cluster is reached. Files and Secrets are named, not read: whoever
/// connects reads them each time, so that a rotated credential works without a
/// restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// All of it is https when `tls` is set, else all is http.
    pub members: Members,
    /// Voters that the cluster must have; `None`: as many as it says.
    pub expected_voters: Option<u32>,
    /// The backend quota in bytes, when the servers do not tell theirs.
    pub quota_bytes: Option<u64>,
    pub tls: Option<Tls>,
    pub auth: Option<Auth>,
    /// Where `/metrics` is served; empty: at the client URLs.
    pub metrics_urls: Vec<Url>,
}

/// How the members are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// Client URLs, at least one: scheme, host and port, all different.
    Endpoints(Vec<Url>),
    /// Pods in the target's own namespace that carry every one of the labels.
    Pods {
        /// At least one; keys and values are what Kubernetes takes as labels.
        match_labels: BTreeMap<String, String>,
        /// The client port of every pod, not 0.
        port: u16,
        scheme: Scheme,
    },
}

/// How a member's client port is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheme {
    #[default]
    Http,
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// TLS towards the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub from: TlsFrom,
    /// Looked for in the servers' certificates instead of the endpoint's host.
    pub server_name: Option<String>,
}

/// Where certificates in PEM are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsFrom {
    Files {
        ca: PathBuf,
        /// The client's certificate and its key.
        identity: Option<(PathBuf, PathBuf)>,
    },
    /// A Secret in the target's own namespace: `ca.crt`, and `tls.crt` with
    /// `tls.key` or neither.
    Secret { name: String },
}

/// Where the user's name and password are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    Files {
        username: PathBuf,
        password: PathBuf,
    },
    /// A Secret in the target's own namespace: `username` and `password`.
    Secret { name: String },
}
