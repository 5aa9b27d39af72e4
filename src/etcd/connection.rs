//! How a cluster is reached: endpoints, TLS, user, time-outs. Parsed and
//! validated once; certificates and passwords are read only when connecting,
//! so that rotated ones are used without a restart.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::secret::{SecretError, SecretKey};
use crate::core::key::ObjectKey;
use crate::core::reason::Reason;

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
        certificate: Origin,
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

/// One client URL of a member: scheme, host and port, nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint(Url);

impl Endpoint {
    /// Parses a URL such as `https://10.0.0.1:2379`.
    pub fn parse(text: &str) -> Result<Self, ConnectError> {
        let value = || text.to_owned();
        if !text.contains("://") {
            return Err(ConnectError::NoScheme { value: value() });
        }
        let url = Url::parse(text).map_err(|source| match text.contains('@') {
            true => ConnectError::UserInUrl {
                host: text.rsplit('@').next().unwrap_or_default().to_owned(),
            },
            false => ConnectError::NotAUrl {
                value: value(),
                source,
            },
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ConnectError::UserInUrl {
                host: url.host_str().unwrap_or_default().to_owned(),
            });
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ConnectError::OtherScheme {
                value: value(),
                scheme: url.scheme().to_owned(),
            });
        }
        let extra = [
            Some(url.path()).filter(|path| *path != "/"),
            url.query(),
            url.fragment(),
        ];
        if let Some(extra) = extra.into_iter().flatten().next() {
            return Err(ConnectError::MoreThanAnAddress {
                value: value(),
                extra: extra.to_owned(),
            });
        }
        Ok(Endpoint(url))
    }

    /// Whether the endpoint speaks TLS.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The host as a socket address wants it: without the brackets of IPv6.
    pub(super) fn host(&self) -> &str {
        self.0
            .host_str()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
    }

    /// The same port at an address.
    pub(super) fn at(&self, address: IpAddr) -> Self {
        let mut url = self.0.clone();
        // Refused only by URLs without a host, which is none of http's.
        let _ = url.set_ip_host(address);
        Endpoint(url)
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// Where a member serves its metrics unless it was told otherwise.
    pub(super) fn metrics_url(&self) -> Url {
        self.page("/metrics")
    }

    /// Where a member tells its version over HTTP/1.
    pub(super) fn version_url(&self) -> Url {
        self.page("/version")
    }

    fn page(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        url.set_path(path);
        url
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl FromStr for Endpoint {
    type Err = ConnectError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Endpoint::parse(text)
    }
}

/// Bytes that appear in no message and no log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Secret(bytes.into().into())
    }

    pub(super) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where something comes from that is read at each connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Given(Secret),
    /// A key of a Secret in Kubernetes.
    Secret(SecretKey),
}

impl Source {
    pub fn file(path: impl AsRef<Path>) -> Self {
        Source::File(path.as_ref().to_owned())
    }

    pub fn given(bytes: impl Into<Vec<u8>>) -> Self {
        Source::Given(Secret::new(bytes))
    }

    /// For a message about what was read for `field`.
    pub(super) fn origin(&self, field: &'static str) -> Origin {
        match self {
            Source::File(_) | Source::Given(_) => Origin::Field {
                field,
                from: self.to_string(),
            },
            Source::Secret(SecretKey { secret, key, .. }) => Origin::Secret {
                secret: secret.clone(),
                key: key.clone(),
            },
        }
    }
}

/// The place, never the content.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{path:?}"),
            Source::Given(_) => f.write_str("(given)"),
            Source::Secret(key) => key.fmt(f),
        }
    }
}

/// TLS towards the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// PEM certificates of the authorities that are trusted; required, the
    /// machine's own are not used.
    pub ca: Option<Source>,
    /// PEM chain of the client's certificate.
    pub certificate: Option<Source>,
    /// PEM private key of the client's certificate.
    pub key: Option<Source>,
    /// The name to expect in the members' certificates instead of the
    /// endpoint's host.
    pub server_name: Option<String>,
}

/// User and password, each with at most one line end after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    pub username: Source,
    pub password: Source,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, and again for its TLS handshake.
    pub connect: Duration,
    /// For each call but Defragment and Compact, which are given their own.
    pub call: Duration,
}

impl Default for Timeouts {
    /// Two seconds to connect and five for a call, as etcdctl does.
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(2),
            call: Duration::from_secs(5),
        }
    }
}

/// How a cluster is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub endpoints: Vec<Endpoint>,
    pub tls: Option<Tls>,
    pub auth: Option<Auth>,
    pub timeouts: Timeouts,
    /// The target's `quotaBytes`, used when the server does not tell.
    pub quota_bytes: Option<u64>,
    /// The target's `memberCount`.
    pub expected_voters: Option<u32>,
    /// The target's `metricsURLs`; empty: each client URL's own `/metrics`.
    pub metrics_urls: Vec<Url>,
    /// Where hosts are, instead of what DNS says of them: the hosts of endpoints,
    /// of advertised client URLs, of metrics URLs. Certificates have to be for
    /// the host all the same.
    pub addresses: BTreeMap<String, IpAddr>,
    /// Whether members that no given endpoint leads to are looked for at the
    /// client URLs that they advertise.
    pub follow_member_urls: bool,
}

impl Connection {
    /// Plain endpoints, without TLS or user, with default time-outs; members
    /// are followed to their advertised URLs.
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        Connection {
            endpoints,
            tls: None,
            auth: None,
            timeouts: Timeouts::default(),
            quota_bytes: None,
            expected_voters: None,
            metrics_urls: Vec::new(),
            addresses: BTreeMap::new(),
            follow_member_urls: true,
        }
    }

    /// Checks what can be checked without reading a file.
    pub fn validate(&self) -> Result<(), ConnectError> {
        if self.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoints);
        }
        for endpoint in &self.endpoints {
            self.check_scheme(endpoint)?;
        }
        for url in &self.metrics_urls {
            match url.scheme() {
                "http" => {}
                "https" if self.tls.is_none() => {
                    return Err(ConnectError::HttpsWithoutTls {
                        endpoint: url.to_string(),
                    });
                }
                "https" => {}
                other => {
                    return Err(ConnectError::MetricsScheme {
                        url: url.to_string(),
                        scheme: other.to_owned(),
                    });
                }
            }
        }
        if let Some(tls) = &self.tls {
            match (&tls.certificate, &tls.key) {
                (Some(_), None) => {
                    return Err(ConnectError::HalfAnIdentity {
                        given: "tls.certFile",
                    });
                }
                (None, Some(_)) => {
                    return Err(ConnectError::HalfAnIdentity {
                        given: "tls.keyFile",
                    });
                }
                (Some(_), Some(_)) | (None, None) => {}
            }
            if tls.ca.is_none() {
                return Err(ConnectError::NoAuthority);
            }
            if let Some(name) = &tls.server_name {
                rustls::pki_types::ServerName::try_from(name.as_str()).map_err(|_| {
                    ConnectError::ServerName {
                        value: name.clone(),
                    }
                })?;
            }
        }
        for (field, value) in [
            ("connect", self.timeouts.connect),
            ("call", self.timeouts.call),
        ] {
            if value.is_zero() {
                return Err(ConnectError::ZeroTimeout { field });
            }
        }
        if self.quota_bytes == Some(0) {
            return Err(ConnectError::ZeroQuota);
        }
        Ok(())
    }

    /// The endpoint as it is dialled: at its address, when that is known.
    pub(super) fn dialled(&self, endpoint: &Endpoint) -> Endpoint {
        match self.addresses.get(endpoint.host()) {
            Some(address) => endpoint.at(*address),
            None => endpoint.clone(),
        }
    }

    /// An endpoint must speak as the credentials ask: a user's password never
    /// leaves over plain HTTP when TLS was asked for.
    pub(super) fn check_scheme(&self, endpoint: &Endpoint) -> Result<(), ConnectError> {
        match (endpoint.is_https(), &self.tls) {
            (true, None) => Err(ConnectError::HttpsWithoutTls {
                endpoint: endpoint.to_string(),
            }),
            (false, Some(_)) => Err(ConnectError::HttpWithTls {
                endpoint: endpoint.to_string(),
            }),
            (true, Some(_)) | (false, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Endpoint::parse(text).unwrap_err().to_string()
    }

    fn plain(text: &str) -> Connection {
        Connection::new(vec![Endpoint::parse(text).unwrap()])
    }

    fn tls() -> Tls {
        Tls {
            ca: Some(Source::file("/ca.pem")),
            certificate: None,
            key: None,
            server_name: None,
        }
    }

    #[test]
    fn endpoints_are_addresses_and_nothing_else() {
        for good in [
            "http://127.0.0.1:2379",
            "https://etcd-0.example:2379/",
            "http://[::1]:2379",
            "https://etcd.example",
        ] {
            let endpoint = Endpoint::parse(good).unwrap();
            assert_eq!(endpoint.to_string(), good.trim_end_matches('/'));
        }
        assert_eq!(
            refusal("10.0.0.1:2379"),
            "endpoint \"10.0.0.1:2379\" has no scheme, write http://10.0.0.1:2379 or https://10.0.0.1:2379"
        );
        assert!(refusal("localhost:2379").contains("has no scheme"));
        assert!(refusal("unix:///run/etcd.sock").contains("\"unix\""));
        assert!(refusal("http://a:2379/v3").contains("remove \"/v3\""));
        assert!(refusal("http://a:99999").contains("is not a URL"));
        assert!(refusal("http://").contains("is not a URL"));
    }

    #[test]
    fn a_password_in_a_url_is_refused_without_being_shown() {
        for text in ["http://root:hunter2@a:2379", "http://root:hunter2@a:99999"] {
            let message = refusal(text);
            assert!(
                message.contains("auth") && !message.contains("hunter2"),
                "{message}"
            );
        }
    }

    #[test]
    fn scheme_and_tls_must_agree() {
        let without = plain("https://a:2379").validate().unwrap_err().to_string();
        assert!(
            without.contains("https://a:2379") && without.contains("tls.caFile"),
            "{without}"
        );
        let mut with = plain("http://a:2379");
        with.tls = Some(tls());
        assert!(
            with.validate()
                .unwrap_err()
                .to_string()
                .contains("write https://")
        );
        let mut good = plain("https://a:2379");
        good.tls = Some(tls());
        good.validate().unwrap();
    }

    #[test]
    fn halves_zeroes_and_nonsense_are_refused() {
        let mut half = plain("https://a:2379");
        half.tls = Some(Tls {
            certificate: Some(Source::file("/c.pem")),
            ..tls()
        });
        assert!(
            half.validate()
                .unwrap_err()
                .to_string()
                .contains("tls.certFile is given without the other")
        );
        half.tls = Some(Tls { ca: None, ..tls() });
        assert!(
            half.validate()
                .unwrap_err()
                .to_string()
                .contains("tls.caFile: missing")
        );
        half.tls = Some(Tls {
            server_name: Some("not a name".to_owned()),
            ..tls()
        });
        assert!(
            half.validate()
                .unwrap_err()
                .to_string()
                .contains("\"not a name\"")
        );
        for name in ["*.example.com", "[::1]", ""] {
            half.tls = Some(Tls {
                server_name: Some(name.to_owned()),
                ..tls()
            });
            let message = half.validate().unwrap_err().to_string();
            assert!(
                message.contains("tls.serverName") && message.contains("write the name"),
                "{message}"
            );
        }

        let mut zero = plain("http://a:2379");
        zero.timeouts.call = Duration::ZERO;
        assert!(
            zero.validate()
                .unwrap_err()
                .to_string()
                .contains("timeouts.call")
        );
        zero = plain("http://a:2379");
        zero.quota_bytes = Some(0);
        assert!(zero.validate().is_err());
        zero = plain("http://a:2379");
        zero.metrics_urls = vec![Url::parse("ftp://a/metrics").unwrap()];
        assert!(zero.validate().unwrap_err().to_string().contains("\"ftp\""));
        assert!(Connection::new(Vec::new()).validate().is_err());
    }

    #[test]
    fn a_known_address_is_dialled_instead_of_the_name() {
        let mut connection = plain("https://etcd-0.etcd.shop.svc:2379");
        connection.addresses = [
            ("etcd-0.etcd.shop.svc", "fd00::1"),
            ("etcd-1.etcd.shop.svc", "10.0.0.1"),
        ]
        .map(|(host, address)| (host.to_owned(), address.parse().unwrap()))
        .into();
        for (endpoint, dialled) in [
            (
                "https://etcd-0.etcd.shop.svc:2379",
                "https://[fd00::1]:2379",
            ),
            ("http://etcd-1.etcd.shop.svc:1234", "http://10.0.0.1:1234"),
            ("https://etcd-1.etcd.shop.svc", "https://10.0.0.1"),
            (
                "https://etcd-2.etcd.shop.svc:2379",
                "https://etcd-2.etcd.shop.svc:2379",
            ),
            ("https://10.0.0.2:2379", "https://10.0.0.2:2379"),
        ] {
            let endpoint = Endpoint::parse(endpoint).unwrap();
            assert_eq!(connection.dialled(&endpoint).to_string(), dialled);
        }
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let auth = Auth {
            username: Source::file("/user"),
            password: Source::given("hunter2"),
        };
        let shown = format!("{auth:?} {}", auth.password);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
