//! Secrets from files, as headers.

use std::path::Path;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::config::Username;
use super::hidden::Hidden;
use crate::core::reason::Reason;
use crate::signals::failure::Failure;

/// Bytes of a file with a secret; a larger one is the wrong file.
const MAX_SECRET: usize = 64 * 1024;

/// What one request carries of secrets. No `Debug`.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Secrets {
    pub(super) headers: HeaderMap,
    /// What must not be shown of an answer that repeats them.
    pub(super) hidden: Hidden,
}

impl Secrets {
    pub(super) fn add(&mut self, name: HeaderName, value: HeaderValue) {
        let whole = value.as_bytes();
        self.hidden.add(whole);
        // Also by itself what stands behind a scheme, such as `Bearer`.
        if let Some(at) = whole.iter().position(|byte| *byte == b' ') {
            self.hidden.add(&whole[at + 1..]);
        }
        self.headers.insert(name, value);
    }
}

/// The header for the token in this file.
pub(super) async fn bearer(token_file: &Path) -> Result<HeaderValue, Failure> {
    let token = read(token_file).await?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| unusable(token_file, "it holds characters that no token has"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Adds the header for a user and the password in this file. The password is not to
/// be read from an answer by itself either.
pub(super) async fn basic(
    client: &reqwest::Client,
    url: &Url,
    username: &Username,
    password_file: &Path,
    secrets: &mut Secrets,
) -> Result<(), Failure> {
    let username = match username {
        Username::Given(name) => name.clone(),
        Username::File(file) => read(file).await?,
    };
    let password = read(password_file).await?;
    secrets.hidden.add(password.as_bytes());
    // The client's own encoding of the pair, taken from a request that is not
    // sent.
    let request = client
        .get(url.clone())
        .basic_auth(username, Some(password))
        .build();
    let header = request
        .ok()
        .and_then(|request| request.headers().get(AUTHORIZATION).cloned())
        .ok_or_else(|| unusable(password_file, "no header can be made of it"))?;
    secrets.add(AUTHORIZATION, header);
    Ok(())
}

/// The text of this file as a header's value.
pub(super) async fn header(file: &Path) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&read(file).await?)
        .map_err(|_| unusable(file, "it holds characters that a header cannot carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn unusable(file: &Path, what: &str) -> Failure {
    Failure::new(
        Reason::AuthFailed,
        format!("the secret in {} cannot be used: {what}", file.display()),
    )
}

/// The text of a file without the white space around it.
pub(in crate::signals) async fn read(file: &Path) -> Result<String, Failure> {
    let fail = |problem: String| {
        Failure::new(
            Reason::AuthFailed,
            format!("failed to read the secret in {}: {problem}", file.display()),
        )
    };
    let bytes = tokio::fs::read(file)
        .await
        .map_err(|error| fail(error.to_string()))?;
    if bytes.len() > MAX_SECRET {
        return Err(fail(format!(
            "it has {} bytes, at most {MAX_SECRET} are read",
            bytes.len()
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| fail("it is not UTF-8".to_owned()))?;
    match text.trim_matches(['\r', '\n', ' ', '\t']) {
        "" => Err(fail("it is empty".to_owned())),
        secret => Ok(secret.to_owned()),
    }
}
