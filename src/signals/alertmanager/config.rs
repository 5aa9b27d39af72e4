//! What an administrator may write about Alertmanager.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

use crate::signals::config::ConfigError;
use crate::signals::http::config::{BasicAuthSpec, HttpConfig, HttpSpec, Size};

/// What the client adds to each URL.
const API: &str = "/api/v2";

/// An Alertmanager, or all of one set, as it is written: the fields of
/// [`HttpSpec`], and several URLs.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AlertmanagerSpec {
    pub url: Option<String>,
    /// Those of one set; each is asked.
    pub urls: Option<Vec<String>>,
    pub basic_auth: Option<BasicAuthSpec>,
    pub bearer_token_file: Option<PathBuf>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    #[serde(default)]
    pub insecure_skip_verify: bool,
    pub timeout: Option<String>,
    pub max_body_bytes: Option<Size>,
    pub requests_per_second: Option<f64>,
    pub burst: Option<u32>,
}

/// As [`HttpSpec`] shows itself.
impl fmt::Debug for AlertmanagerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertmanagerSpec").finish_non_exhaustive()
    }
}

impl AlertmanagerSpec {
    /// Makes it ready, one for each URL; `at` is the path of these fields.
    ///
    /// # Errors
    /// The first field that cannot be used. Files are not opened here.
    pub(in crate::signals) fn validate(self, at: &str) -> Result<Vec<HttpConfig>, ConfigError> {
        let AlertmanagerSpec {
            url,
            urls,
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
        let fail = |field: String, problem: &str| ConfigError {
            field: format!("{at}.{field}"),
            problem: problem.to_owned(),
        };
        let urls: Vec<(String, String)> = match (url, urls) {
            (Some(url), None) => vec![("url".to_owned(), url)],
            (None, Some(urls)) if urls.is_empty() => {
                let problem = "empty, wanted one URL of each Alertmanager of the set";
                return Err(fail("urls".to_owned(), problem));
            }
            (None, Some(urls)) => (urls.into_iter().enumerate())
                .map(|(index, url)| (format!("urls[{index}]"), url))
                .collect(),
            (Some(_), Some(_)) => {
                let problem = "set beside url, wanted one of them: remove the other";
                return Err(fail("urls".to_owned(), problem));
            }
            (None, None) => {
                let problem = "missing: set it, or urls for a set of Alertmanagers";
                return Err(fail("url".to_owned(), problem));
            }
        };
        let mut seen = BTreeSet::new();
        let mut ready = Vec::with_capacity(urls.len());
        for (field, url) in urls {
            let spec = HttpSpec {
                url,
                basic_auth: basic_auth.clone(),
                bearer_token_file: bearer_token_file.clone(),
                headers: headers.clone(),
                ca_file: ca_file.clone(),
                cert_file: cert_file.clone(),
                key_file: key_file.clone(),
                insecure_skip_verify,
                timeout: timeout.clone(),
                max_body_bytes: max_body_bytes.clone(),
                requests_per_second,
                burst,
            };
            let config = spec.validate(at, API).map_err(|mut error| {
                if error.field == format!("{at}.url") {
                    error.field = format!("{at}.{field}");
                }
                error
            })?;
            if !seen.insert(config.url.as_str().trim_end_matches('/').to_owned()) {
                return Err(fail(
                    field,
                    "stands there twice, wanted each Alertmanager once",
                ));
            }
            ready.push(config);
        }
        Ok(ready)
    }
}
