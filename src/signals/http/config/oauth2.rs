//! A client of a token server: OAuth2 client credentials (RFC 6749, section 4.4).
//! The fields are those of Prometheus' own `oauth2`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use reqwest::Url;
use serde::Deserialize;

use super::tls::{self, Tls, TlsSpec};
use super::{Params, check_path};
use crate::core::signal::bounded;

/// What the grant says itself.
const OWN_PARAMS: &[&str] = &["grant_type", "scope", "client_id", "client_secret"];
const MOST_SCOPES: usize = 32;
const MOST_PARAMS: usize = 32;
const LONGEST: usize = 1024;

/// As it is written.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuth2Spec {
    #[serde(rename = "tokenURL")]
    pub token_url: String,
    #[serde(rename = "clientID")]
    pub client_id: String,
    pub client_secret_file: PathBuf,
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Further parameters of the request for a token, for example `audience`.
    #[serde(default)]
    pub endpoint_params: BTreeMap<String, String>,
    /// How the token server is trusted; absent: by the system's authorities.
    #[serde(default)]
    pub tls: TlsSpec,
}

/// A URL not yet checked, and parameters, may carry secrets.
impl fmt::Debug for OAuth2Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth2Spec").finish_non_exhaustive()
    }
}

/// See [`OAuth2Spec`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth2Config {
    /// `http` or `https`, without user and fragment.
    pub token_url: Url,
    pub client_id: String,
    pub client_secret_file: PathBuf,
    /// Joined by blanks; empty when none is asked for.
    pub scope: String,
    pub endpoint_params: Params,
    pub tls: Tls,
}

/// The client, or the field and what is wrong with it.
pub(super) fn ready(written: OAuth2Spec) -> Result<OAuth2Config, (String, String)> {
    let OAuth2Spec {
        token_url,
        client_id,
        client_secret_file,
        scopes,
        endpoint_params,
        tls,
    } = written;
    let fail = |field: &str, problem: String| (format!("oauth2.{field}"), problem);
    let token_url = parse_url(&token_url).map_err(|problem| fail("tokenURL", problem))?;
    if client_id.is_empty() || client_id.len() > LONGEST {
        let problem = format!("wanted 1 to {LONGEST} bytes: the name of the client");
        return Err(fail("clientID", problem));
    }
    check_path("clientSecretFile", &client_secret_file)
        .map_err(|(field, problem)| fail(field, problem))?;
    // A scope is made of printable ASCII (RFC 6749, section 3.3).
    let is_scope = |scope: &String| {
        !scope.is_empty() && scope.len() <= LONGEST && scope.bytes().all(|b| b.is_ascii_graphic())
    };
    if let Some(index) = scopes.iter().position(|scope| !is_scope(scope)) {
        let problem = "no scope, wanted printable characters without blanks: one scope a line";
        return Err(fail(&format!("scopes[{index}]"), problem.to_owned()));
    }
    if scopes.len() > MOST_SCOPES {
        let problem = format!("{} scopes, wanted at most {MOST_SCOPES}", scopes.len());
        return Err(fail("scopes", problem));
    }
    if endpoint_params.len() > MOST_PARAMS {
        let problem = format!("more than {MOST_PARAMS} parameters: remove some");
        return Err(fail("endpointParams", problem));
    }
    for (name, value) in &endpoint_params {
        let field = format!("endpointParams.{}", bounded(name, 60));
        if OWN_PARAMS.contains(&name.as_str()) {
            return Err(fail(
                &field,
                "is set by the request itself: remove it".to_owned(),
            ));
        }
        if name.is_empty() || name.len() > LONGEST || value.len() > LONGEST {
            let problem = format!("empty or too long, wanted at most {LONGEST} bytes");
            return Err(fail(&field, problem));
        }
    }
    let tls = tls::ready(token_url.scheme() == "https", tls)
        .map_err(|(field, problem)| fail(&format!("tls.{field}"), problem))?;
    Ok(OAuth2Config {
        token_url,
        client_id,
        client_secret_file,
        scope: scopes.join(" "),
        endpoint_params: Params(endpoint_params.into_iter().collect()),
        tls,
    })
}

fn parse_url(text: &str) -> Result<Url, String> {
    const EXAMPLE: &str = "wanted a URL such as https://login.example/oauth2/token";
    // Not echoed as it stands: it may carry a password.
    let url = Url::parse(text.trim()).map_err(|error| format!("not a URL ({error}), {EXAMPLE}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the scheme {:?} is not http or https, {EXAMPLE}",
            bounded(url.scheme(), 20)
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "the URL carries a user or a password: use clientID and clientSecretFile".to_owned(),
        );
    }
    if url.fragment().is_some() {
        return Err("the URL carries a fragment: remove what follows #".to_owned());
    }
    Ok(url)
}
