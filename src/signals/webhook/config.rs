//! What an administrator may write about a webhook.

use std::fmt;
use std::path::PathBuf;

use jiff::SignedDuration;
use serde::Deserialize;

use crate::core::duration;
use crate::core::signal::bounded;
use crate::signals::config::ConfigError;
use crate::signals::http::config::{BasicAuthSpec, Credentials, Size, credentials, parse_size};

/// Longer than an Alertmanager waits before it says again that an alert fires
/// (`repeat_interval`, 4h unless configured).
const DEFAULT_EXPIRE_AFTER: SignedDuration = SignedDuration::from_hours(5);
const SHORTEST_EXPIRE_AFTER: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_EXPIRE_AFTER: SignedDuration = SignedDuration::from_hours(24 * 14);
const DEFAULT_MAX_BODY: u64 = 1024 * 1024;

/// A source that others deliver to, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookSpec {
    /// Who delivers shows this user and password.
    pub basic_auth: Option<BasicAuthSpec>,
    /// Who delivers shows this token.
    pub bearer_token_file: Option<PathBuf>,
    /// How long an alert counts as firing that nobody speaks about; 5h.
    pub expire_after: Option<String>,
    /// Bytes or a Kubernetes quantity; 1Mi.
    pub max_body_bytes: Option<Size>,
}

/// See [`WebhookSpec`].
#[derive(Clone)]
pub struct WebhookConfig {
    /// Never none.
    pub credentials: Credentials,
    pub expire_after: SignedDuration,
    pub max_body: usize,
}

impl fmt::Debug for WebhookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookConfig").finish_non_exhaustive()
    }
}

impl WebhookSpec {
    /// Makes it ready; `at` is the path of these fields.
    ///
    /// # Errors
    /// The first field that cannot be used. Files are not opened here.
    pub(in crate::signals) fn validate(self, at: &str) -> Result<WebhookConfig, ConfigError> {
        let WebhookSpec {
            basic_auth,
            bearer_token_file,
            expire_after,
            max_body_bytes,
        } = self;
        let fail = |field: &str, problem: String| ConfigError {
            field: format!("{at}.{field}"),
            problem,
        };
        let credentials = credentials(basic_auth, bearer_token_file)
            .map_err(|(field, problem)| fail(field, problem))?;
        if credentials == Credentials::None {
            return Err(fail(
                "bearerTokenFile",
                "missing: anybody could make runs start; set it, or basicAuth".to_owned(),
            ));
        }
        let expire_after = match &expire_after {
            None => DEFAULT_EXPIRE_AFTER,
            Some(text) => parse_age(text).map_err(|problem| fail("expireAfter", problem))?,
        };
        let max_body = match &max_body_bytes {
            None => DEFAULT_MAX_BODY,
            Some(size) => parse_size(size).map_err(|problem| fail("maxBodyBytes", problem))?,
        };
        let max_body = usize::try_from(max_body).map_err(|_| {
            fail(
                "maxBodyBytes",
                format!("{max_body} bytes do not fit this machine"),
            )
        })?;
        Ok(WebhookConfig {
            credentials,
            expire_after,
            max_body,
        })
    }
}

fn parse_age(text: &str) -> Result<SignedDuration, String> {
    let age = duration::parse(text).map_err(|error| error.to_string())?;
    if (SHORTEST_EXPIRE_AFTER..=LONGEST_EXPIRE_AFTER).contains(&age) {
        Ok(age)
    } else {
        Err(format!(
            "{:?} is out of bounds, wanted 10s to 14d",
            bounded(text, 40)
        ))
    }
}
