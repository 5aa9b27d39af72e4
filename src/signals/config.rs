//! The `sources:` part of the administrator's file.
//!
//! ```yaml
//! sources:
//!   - name: main
//!     prometheus:
//!       url: https://prometheus.example:9090/prefix
//!       bearerTokenFile: /etc/defragd/token
//! ```
//!
//! Policies name a source; what it is, where it is and who asks it is settled
//! here and nowhere else (S32). Secrets stand in files, never in this one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::core::duration;
use crate::core::quantity::Quantity;
use crate::core::signal::bounded;

/// The total time limit of one question, retries included.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// A hundred thousand series with a few labels each; more is a mistake.
const DEFAULT_MAX_BODY: u64 = 8 * 1024 * 1024;
const SMALLEST_MAX_BODY: u64 = 1024;
const LARGEST_MAX_BODY: u64 = 256 * 1024 * 1024;
const DEFAULT_RATE: f64 = 10.0;
const LOWEST_RATE: f64 = 0.01;
const HIGHEST_RATE: f64 = 10_000.0;
const LARGEST_BURST: u32 = 100_000;
/// As long as a label of DNS: the name becomes a metric label.
const LONGEST_NAME: usize = 63;

/// Headers that the client sets itself.
const OWN_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers that carry secrets and so belong into files.
const SECRET_HEADERS: &[&str] = &["authorization", "cookie", "proxy-authorization"];

/// Why the administrator's sources cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The path of the field, such as `sources[0].prometheus.url`.
    pub field: String,
    /// What was seen, what was wanted, and what to do.
    pub problem: String,
}

/// One entry of `sources:` as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceSpec {
    /// The name that policies use.
    pub name: String,
    pub prometheus: PrometheusSpec,
}

/// A source that speaks the Prometheus HTTP API, as it is written.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrometheusSpec {
    /// Where the API is, without `/api/v1`; a path prefix is kept.
    pub url: String,
    pub basic_auth: Option<BasicAuthSpec>,
    pub bearer_token_file: Option<PathBuf>,
    /// Sent with each request, for example a tenant: `X-Scope-OrgID: team-a`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The only authorities trusted; absent: those of the system.
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// A Prometheus duration; 10s.
    pub timeout: Option<String>,
    /// Bytes or a Kubernetes quantity; 8Mi.
    pub max_body_bytes: Option<Size>,
    /// 10.
    pub requests_per_second: Option<f64>,
    /// How many requests may leave at once; as many as in a second.
    pub burst: Option<u32>,
}

/// Header values, and a URL not yet checked, may carry secrets.
impl fmt::Debug for PrometheusSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusSpec").finish_non_exhaustive()
    }
}

/// A user whose password stands in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BasicAuthSpec {
    pub username: Option<String>,
    pub username_file: Option<PathBuf>,
    pub password_file: PathBuf,
}

/// A number of bytes, written as a number or as a quantity such as `8Mi`.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "wanted a number of bytes or a quantity such as 8Mi"
)]
pub enum Size {
    Bytes(u64),
    Quantity(String),
}

/// A source, ready to be used.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    pub name: String,
    pub prometheus: PrometheusConfig,
}

/// See [`PrometheusSpec`].
#[derive(Clone, Debug)]
pub struct PrometheusConfig {
    /// `http` or `https`, without user, query and fragment.
    pub url: Url,
    pub credentials: Credentials,
    /// Their values are marked sensitive: they are not shown.
    pub headers: HeaderMap,
    pub tls: Tls,
    pub timeout: Duration,
    pub max_body: usize,
    pub requests_per_second: f64,
    pub burst: u32,
}

/// Where the credentials stand; they are read again for each request (S26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    None,
    Basic {
        username: Username,
        password_file: PathBuf,
    },
    Bearer {
        token_file: PathBuf,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Username {
    Given(String),
    File(PathBuf),
}

/// How a server on https is trusted, and what it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tls {
    pub trust: Trust,
    pub identity: Option<IdentityFiles>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Trust {
    #[default]
    System,
    /// Only the authorities of this file.
    CaFile(PathBuf),
    /// Whatever the server shows.
    Anything,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// Turns the written sources into ready ones.
///
/// # Errors
/// The first field that cannot be used. Files are not opened here.
pub fn validate(specs: Vec<SourceSpec>) -> Result<Vec<SourceConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut ready = Vec::with_capacity(specs.len());
    for (index, spec) in specs.into_iter().enumerate() {
        let at = format!("sources[{index}]");
        check_name(&at, &spec.name)?;
        if !names.insert(spec.name.clone()) {
            return Err(ConfigError {
                field: format!("{at}.name"),
                problem: format!("{:?} is used twice, wanted a unique name", spec.name),
            });
        }
        let prometheus = spec.prometheus.validate(&format!("{at}.prometheus"))?;
        ready.push(SourceConfig {
            name: spec.name,
            prometheus,
        });
    }
    Ok(ready)
}

fn check_name(at: &str, name: &str) -> Result<(), ConfigError> {
    let fits = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if fits {
        return Ok(());
    }
    Err(ConfigError {
        field: format!("{at}.name"),
        problem: format!(
            "{:?} is no name, wanted 1 to {LONGEST_NAME} letters, digits, dots, hyphens or \
             underscores",
            bounded(name, LONGEST_NAME)
        ),
    })
}

impl PrometheusSpec {
    fn validate(self, at: &str) -> Result<PrometheusConfig, ConfigError> {
        // Taken apart in full: a field that is forgotten here is an error.
        let PrometheusSpec {
            url,
            basic_auth,
            bearer_token_file,
            headers,
            ca_file,
            cert_file,
            key_file,
            insecure_skip_verify,
            timeout,
            max_body_bytes,
            requests_per_second,
            burst,
        } = self;
        let fail = |field: &str, problem: String| ConfigError {
            field: format!("{at}.{field}"),
            problem,
        };

        let url = parse_url(&url).map_err(|problem| fail("url", problem))?;
        let credentials = credentials(basic_auth, bearer_token_file)
            .map_err(|(field, problem)| fail(field, problem))?;
        let headers = parse_headers(headers)
            .map_err(|(name, problem)| fail(&format!("headers.{name}"), problem))?;
        let tls = tls(&url, ca_file, cert_file, key_file, insecure_skip_verify)
            .map_err(|(field, problem)| fail(field, problem))?;
        let timeout = match timeout {
            None => DEFAULT_TIMEOUT,
            Some(text) => parse_timeout(&text).map_err(|problem| fail("timeout", problem))?,
        };
        let max_body = match max_body_bytes {
            None => DEFAULT_MAX_BODY,
            Some(size) => parse_size(&size).map_err(|problem| fail("maxBodyBytes", problem))?,
        };
        let max_body = usize::try_from(max_body).map_err(|_| {
            fail(
                "maxBodyBytes",
                format!("{max_body} bytes do not fit this machine"),
            )
        })?;
        let requests_per_second = requests_per_second.unwrap_or(DEFAULT_RATE);
        if !(LOWEST_RATE..=HIGHEST_RATE).contains(&requests_per_second) {
            return Err(fail(
                "requestsPerSecond",
                format!(
                    "{requests_per_second} is out of bounds, wanted {LOWEST_RATE} to {HIGHEST_RATE}"
                ),
            ));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0.01 and 10000, as checked above"
        )]
        let burst = burst.unwrap_or(requests_per_second.ceil() as u32);
        if !(1..=LARGEST_BURST).contains(&burst) {
            return Err(fail(
                "burst",
                format!("{burst} is out of bounds, wanted 1 to {LARGEST_BURST}"),
            ));
        }
        Ok(PrometheusConfig {
            url,
            credentials,
            headers,
            tls,
            timeout,
            max_body,
            requests_per_second,
            burst,
        })
    }
}

fn parse_url(text: &str) -> Result<Url, String> {
    const EXAMPLE: &str = "wanted a URL such as http://prometheus:9090";
    // Not echoed as it stands: it may carry a password.
    let url = Url::parse(text.trim()).map_err(|error| format!("not a URL ({error}), {EXAMPLE}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the scheme {:?} is not http or https, {EXAMPLE}",
            bounded(url.scheme(), 20)
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL carries a user or a password: use basicAuth and its files".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "the URL carries a query or a fragment, wanted none: parameters go into headers or a \
                    path prefix"
                .to_owned(),
        );
    }
    if url.path().trim_end_matches('/').ends_with("/api/v1") {
        return Err("the URL ends in /api/v1, which is added to it: leave it out".to_owned());
    }
    Ok(url)
}

type FieldProblem = (&'static str, String);

fn credentials(
    basic: Option<BasicAuthSpec>,
    token_file: Option<PathBuf>,
) -> Result<Credentials, FieldProblem> {
    match (basic, token_file) {
        (None, None) => Ok(Credentials::None),
        (Some(_), Some(_)) => Err((
            "bearerTokenFile",
            "set beside basicAuth, wanted one of them: remove the other".to_owned(),
        )),
        (None, Some(token_file)) => {
            check_path("bearerTokenFile", &token_file)?;
            Ok(Credentials::Bearer { token_file })
        }
        (
            Some(BasicAuthSpec {
                username,
                username_file,
                password_file,
            }),
            None,
        ) => {
            check_path("basicAuth.passwordFile", &password_file)?;
            let username = match (username, username_file) {
                (Some(name), None) if name.contains(':') || name.is_empty() => {
                    return Err((
                        "basicAuth.username",
                        "empty or with a colon, which basic authentication does not allow"
                            .to_owned(),
                    ));
                }
                (Some(name), None) => Username::Given(name),
                (None, Some(file)) => {
                    check_path("basicAuth.usernameFile", &file)?;
                    Username::File(file)
                }
                (Some(_), Some(_)) => {
                    return Err((
                        "basicAuth.usernameFile",
                        "set beside username, wanted one of them: remove the other".to_owned(),
                    ));
                }
                (None, None) => {
                    return Err((
                        "basicAuth.username",
                        "missing: set it, or usernameFile".to_owned(),
                    ));
                }
            };
            Ok(Credentials::Basic {
                username,
                password_file,
            })
        }
    }
}

fn check_path(field: &'static str, path: &std::path::Path) -> Result<(), FieldProblem> {
    if path.as_os_str().is_empty() {
        return Err((field, "empty, wanted the path of a file".to_owned()));
    }
    Ok(())
}

fn parse_headers(headers: BTreeMap<String, String>) -> Result<HeaderMap, (String, String)> {
    let mut ready = HeaderMap::new();
    for (name, value) in headers {
        let shown = bounded(&name, 60);
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| (shown.clone(), "not the name of an HTTP header".to_owned()))?;
        if SECRET_HEADERS.contains(&parsed.as_str()) {
            return Err((
                shown,
                "carries a secret: use bearerTokenFile or basicAuth".to_owned(),
            ));
        }
        if OWN_HEADERS.contains(&parsed.as_str()) {
            return Err((shown, "is set by the client itself: remove it".to_owned()));
        }
        let mut value = HeaderValue::from_str(&value).map_err(|_| {
            (
                shown.clone(),
                "its value holds characters that a header cannot carry".to_owned(),
            )
        })?;
        value.set_sensitive(true);
        if ready.insert(parsed, value).is_some() {
            return Err((
                shown,
                "set twice in different cases, wanted once".to_owned(),
            ));
        }
    }
    Ok(ready)
}

/// S29: every option given is honoured, or the combination is refused.
fn tls(
    url: &Url,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    insecure: bool,
) -> Result<Tls, FieldProblem> {
    if url.scheme() == "http" {
        let useless = [
            ("caFile", ca_file.is_some()),
            ("certFile", cert_file.is_some()),
            ("keyFile", key_file.is_some()),
            ("insecureSkipVerify", insecure),
        ];
        if let Some((field, _)) = useless.iter().find(|(_, given)| *given) {
            return Err((
                field,
                "set for a url on http, where it has no effect: use https or remove it".to_owned(),
            ));
        }
    }
    let trust = match (ca_file, insecure) {
        (Some(_), true) => {
            return Err((
                "insecureSkipVerify",
                "set beside caFile, which then proves nothing: remove one of them".to_owned(),
            ));
        }
        (Some(file), false) => {
            check_path("caFile", &file)?;
            Trust::CaFile(file)
        }
        (None, true) => Trust::Anything,
        (None, false) => Trust::System,
    };
    let identity = match (cert_file, key_file) {
        (None, None) => None,
        (Some(cert_file), Some(key_file)) => {
            check_path("certFile", &cert_file)?;
            check_path("keyFile", &key_file)?;
            Some(IdentityFiles {
                cert_file,
                key_file,
            })
        }
        (Some(_), None) => {
            return Err((
                "keyFile",
                "missing beside certFile: set both or none".to_owned(),
            ));
        }
        (None, Some(_)) => {
            return Err((
                "certFile",
                "missing beside keyFile: set both or none".to_owned(),
            ));
        }
    };
    Ok(Tls { trust, identity })
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let parsed = duration::parse(text).map_err(|error| error.to_string())?;
    Duration::try_from(parsed)
        .ok()
        .filter(|timeout| (SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(timeout))
        .ok_or_else(|| {
            format!(
                "{:?} is out of bounds, wanted 100ms to 5m",
                bounded(text, 40)
            )
        })
}

fn parse_size(size: &Size) -> Result<u64, String> {
    let bytes = match size {
        Size::Bytes(bytes) => *bytes,
        Size::Quantity(text) => Quantity::parse(text)
            .map_err(|error| error.to_string())?
            .to_bytes()
            .ok_or_else(|| {
                format!(
                    "{:?} is no whole number of bytes, wanted a size such as 8Mi",
                    bounded(text, 40)
                )
            })?,
    };
    if (SMALLEST_MAX_BODY..=LARGEST_MAX_BODY).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!(
            "{bytes} bytes are out of bounds, wanted 1Ki to 256Mi"
        ))
    }
}

#[cfg(test)]
mod tests;
