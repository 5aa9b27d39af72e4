//! What can be wrong with a connection's description, or with what it names.

use std::fmt;
use std::path::PathBuf;

use crate::core::key::ObjectKey;
use crate::core::reason::Reason;
use crate::etcd::secret::SecretError;

/// What is wrong with a connection's description or its files. Every message
/// names the field, the value seen and the remedy; none carries a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("endpoints: none given, at least one URL like https://10.0.0.1:2379 is needed")]
    NoEndpoints,
    #[error("endpoint {value:?} has no scheme, write http://{value} or https://{value}")]
    NoScheme { value: String },
    #[error("endpoint {value:?} has the scheme {scheme:?}, only http and https are supported")]
    OtherScheme { value: String, scheme: String },
    #[error("endpoint {value:?} is not a URL ({source}), write one like https://10.0.0.1:2379")]
    NotAUrl {
        value: String,
        #[source]
        source: url::ParseError,
    },
    /// The value may hold a password, so only its host is shown.
    #[error("endpoint at host {host:?} carries a user or a password, put them into auth instead")]
    UserInUrl { host: String },
    #[error("endpoint {value:?} has more than scheme, host and port, remove {extra:?}")]
    MoreThanAnAddress { value: String, extra: String },
    #[error(
        "endpoint {endpoint} is https and tls is not set, set tls.caFile (in Kubernetes tls.secretRef) to the authority that signed its certificate (or write http://)"
    )]
    HttpsWithoutTls { endpoint: String },
    #[error("endpoint {endpoint} is http and tls is set, write https:// (or remove tls)")]
    HttpWithTls { endpoint: String },
    #[error(
        "tls.caFile: missing, set it to the authority that signed the members' certificates (/etc/ssl/certs/ca-certificates.crt for a public one)"
    )]
    NoAuthority,
    #[error("tls.certFile and tls.keyFile: {given} is given without the other, give both or none")]
    HalfAnIdentity { given: &'static str },
    #[error(
        "tls.serverName {value:?} is neither a DNS name nor an IP address, write the name that stands in the servers' certificates"
    )]
    ServerName { value: String },
    #[error(
        "{field} {path:?}: unable to read the file ({source}), check the path and its permissions"
    )]
    Unreadable {
        field: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{origin} holds no PEM {wanted} ({detail}), it needs a line such as -----BEGIN {label}-----",
        label = wanted.to_uppercase()
    )]
    NotPem {
        origin: Origin,
        wanted: &'static str,
        detail: String,
    },
    #[error(
        "{key} does not belong to {certificate} ({detail}), give the key that the certificate was made for"
    )]
    KeyMismatch {
        /// Where the certificate was read from.
        certificate: String,
        key: Origin,
        detail: String,
    },
    #[error("{origin} is {problem}, give exactly one line of UTF-8 text")]
    BadText {
        origin: Origin,
        problem: &'static str,
    },
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("Secret {secret} has no key {key:?}; add it")]
    NoSecretKey { secret: ObjectKey, key: String },
    #[error(
        "Secret {secret} has no key {missing:?} to go with {given:?}; add it, or remove {given:?}"
    )]
    HalfASecret {
        secret: ObjectKey,
        given: String,
        missing: String,
    },
    #[error("{field}: works in Kubernetes only, name files instead")]
    NoSecretsHere { field: &'static str },
    #[error("{field}: works in defragd standalone only, name a Secret in secretRef instead")]
    NoFilesHere { field: &'static str },
    #[error("podSelector: works in Kubernetes only, give endpoints instead")]
    NoPodsHere,
    #[error("timeouts.{field}: is zero, which would let no call succeed, write one like 5s")]
    ZeroTimeout { field: &'static str },
    #[error("quotaBytes: is zero, leave it out when the quota is not known")]
    ZeroQuota,
    #[error("metricsURLs: {url:?} has the scheme {scheme:?}, only http and https are supported")]
    MetricsScheme { url: String, scheme: String },
    #[error("failed to set up TLS: {0}")]
    Tls(String),
}

impl ConnectError {
    /// What kind of trouble it is for the one who reads it.
    pub fn reason(&self) -> Reason {
        match self {
            ConnectError::Secret(_)
            | ConnectError::NoSecretKey { .. }
            | ConnectError::HalfASecret { .. } => Reason::SecretUnusable,
            ConnectError::NotPem { origin, .. }
            | ConnectError::BadText { origin, .. }
            | ConnectError::KeyMismatch { key: origin, .. } => match origin {
                Origin::Secret { .. } => Reason::SecretUnusable,
                Origin::Field { .. } => Reason::EndpointUnusable,
            },
            _ => Reason::EndpointUnusable,
        }
    }
}

/// Where something was read from, for messages. Never what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A field, and the file that it names.
    Field { field: &'static str, from: String },
    /// A key of a Secret.
    Secret { secret: ObjectKey, key: String },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Field { field, from } => write!(f, "{field} {from}"),
            Origin::Secret { secret, key } => write!(f, "key {key:?} of Secret {secret}"),
        }
    }
}
