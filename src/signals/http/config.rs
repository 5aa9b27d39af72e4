//! What an administrator may write about a source that is reached by HTTP, and
//! the same made ready: one set of fields for every kind of source.

mod credentials;
mod headers;
mod oauth2;
mod params;
mod tls;
mod urls;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName};
use serde::Deserialize;

pub(in crate::signals) use self::credentials::ready as credentials;
pub use self::credentials::{BasicAuthSpec, Credentials, Username};
pub use self::oauth2::{OAuth2Config, OAuth2Spec};
pub use self::params::{ParamSpec, Params};
pub use self::tls::{IdentityFiles, Tls, TlsSpec, Trust};
use crate::core::duration;
use crate::core::quantity::Quantity;
use crate::core::signal::bounded;
use crate::signals::config::ConfigError;

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

/// How a source is reached by HTTP, as it is written.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpSpec {
    /// Where the API is, without its own path such as `/api/v1`; a path prefix is
    /// kept.
    pub url: Option<String>,
    /// In place of `url`: where several answer for one, as an HA pair does. One
    /// is asked, another one when that is out of order.
    pub urls: Option<Vec<String>>,
    pub basic_auth: Option<BasicAuthSpec>,
    pub bearer_token_file: Option<PathBuf>,
    pub oauth2: Option<OAuth2Spec>,
    /// Sent with each request, for example a tenant: `X-Scope-OrgID: team-a`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The same, their values read from files for each request.
    #[serde(default)]
    pub header_files: BTreeMap<String, PathBuf>,
    /// Further parameters of each request, for example `dedup: true`.
    #[serde(default)]
    pub params: BTreeMap<String, ParamSpec>,
    /// The only authorities trusted; absent: those of the system.
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// Go by way of the proxy that `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`
    /// name; otherwise they are not looked at.
    #[serde(default)]
    pub proxy_from_environment: bool,
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
impl fmt::Debug for HttpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSpec").finish_non_exhaustive()
    }
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

/// See [`HttpSpec`].
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// At least one, all on `http` or all on `https`, without user, query and
    /// fragment.
    pub urls: Vec<Url>,
    pub credentials: Credentials,
    /// Their values are marked sensitive: they are not shown.
    pub headers: HeaderMap,
    pub header_files: Vec<(HeaderName, PathBuf)>,
    pub params: Params,
    pub tls: Tls,
    pub proxy_from_environment: bool,
    pub timeout: Duration,
    pub max_body: usize,
    pub requests_per_second: f64,
    pub burst: u32,
}

impl HttpSpec {
    /// Makes it ready; `at` is the path of these fields, `api` what the client
    /// adds to the URL, such as `/api/v1`.
    ///
    /// # Errors
    /// The first field that cannot be used. Files are not opened here.
    pub(in crate::signals) fn validate(
        self,
        at: &str,
        api: &str,
    ) -> Result<HttpConfig, ConfigError> {
        // Taken apart in full: a field that is forgotten here is an error.
        let HttpSpec {
            url,
            urls,
            basic_auth,
            bearer_token_file,
            oauth2,
            headers,
            header_files,
            params,
            ca_file,
            cert_file,
            key_file,
            insecure_skip_verify,
            proxy_from_environment,
            timeout,
            max_body_bytes,
            requests_per_second,
            burst,
        } = self;
        let fail = |field: &str, problem: String| ConfigError {
            field: format!("{at}.{field}"),
            problem,
        };

        let urls = urls::ready(url, urls, api).map_err(|(field, problem)| fail(&field, problem))?;
        let is_https = urls.iter().all(|url| url.scheme() == "https");
        let credentials = credentials::of_any_kind(basic_auth, bearer_token_file, oauth2)
            .map_err(|(field, problem)| fail(&field, problem))?;
        let headers = headers::ready(headers)
            .map_err(|(name, problem)| fail(&format!("headers.{name}"), problem))?;
        let header_files = headers::files(header_files, &headers, &credentials)
            .map_err(|(name, problem)| fail(&format!("headerFiles.{name}"), problem))?;
        let params = params::ready(params).map_err(|(field, problem)| fail(&field, problem))?;
        let written = TlsSpec {
            ca_file,
            cert_file,
            key_file,
            insecure_skip_verify,
        };
        let tls = tls::ready(is_https, written).map_err(|(field, problem)| fail(field, problem))?;
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
        Ok(HttpConfig {
            urls,
            credentials,
            headers,
            header_files,
            params,
            tls,
            proxy_from_environment,
            timeout,
            max_body,
            requests_per_second,
            burst,
        })
    }
}

/// A field and what is wrong with it.
pub(in crate::signals) type FieldProblem = (&'static str, String);

fn check_path(field: &'static str, path: &Path) -> Result<(), FieldProblem> {
    if path.as_os_str().is_empty() {
        return Err((field, "empty, wanted the path of a file".to_owned()));
    }
    Ok(())
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

pub(in crate::signals) fn parse_size(size: &Size) -> Result<u64, String> {
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
