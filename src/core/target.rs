//! Where a cluster is: a validated `EtcdTarget` spec.

use std::path::PathBuf;

use url::Url;

/// How a cluster is reached. Files are named, not read: whoever connects reads
/// them each time, so that a rotated credential works without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Client URLs, at least one: scheme, host and port, all different. All are
    /// https when `tls` is set, else all are http.
    pub endpoints: Vec<Url>,
    /// Voters that the cluster must have; `None`: as many as it says.
    pub expected_voters: Option<u32>,
    /// The backend quota in bytes, when the servers do not tell theirs.
    pub quota_bytes: Option<u64>,
    pub tls: Option<Tls>,
    pub auth: Option<Auth>,
    /// Where `/metrics` is served; empty: at the client URLs.
    pub metrics_urls: Vec<Url>,
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub ca_file: PathBuf,
    /// The client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Looked for in the servers' certificates instead of the endpoint's host.
    pub server_name: Option<String>,
}

/// Files with the user's name and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    pub username_file: PathBuf,
    pub password_file: PathBuf,
}
