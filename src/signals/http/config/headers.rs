//! Headers that are sent with each request.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::Credentials;
use crate::core::signal::bounded;

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

pub(super) fn ready(headers: BTreeMap<String, String>) -> Result<HeaderMap, (String, String)> {
    let mut ready = HeaderMap::new();
    for (name, value) in headers {
        let (shown, parsed) = parse_name(&name)?;
        if SECRET_HEADERS.contains(&parsed.as_str()) {
            return Err((
                shown,
                "carries a secret: use bearerTokenFile, basicAuth, oauth2 or headerFiles"
                    .to_owned(),
            ));
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

/// Headers whose values stand in files; a name stands in one place only.
pub(super) fn files(
    files: BTreeMap<String, PathBuf>,
    headers: &HeaderMap,
    credentials: &Credentials,
) -> Result<Vec<(HeaderName, PathBuf)>, (String, String)> {
    let mut ready: Vec<(HeaderName, PathBuf)> = Vec::with_capacity(files.len());
    for (name, file) in files {
        let (shown, parsed) = parse_name(&name)?;
        let fail = |problem: &str| Err((shown.clone(), problem.to_owned()));
        if file.as_os_str().is_empty() {
            return fail("empty, wanted the path of a file");
        }
        if headers.contains_key(&parsed) {
            return fail("set in headers too, wanted one of them: remove the other");
        }
        if ready.iter().any(|(other, _)| *other == parsed) {
            return fail("set twice in different cases, wanted once");
        }
        if parsed == AUTHORIZATION && *credentials != Credentials::None {
            return fail(
                "set beside basicAuth, bearerTokenFile or oauth2, wanted one of them: remove the \
                 other",
            );
        }
        ready.push((parsed, file));
    }
    Ok(ready)
}

fn parse_name(name: &str) -> Result<(String, HeaderName), (String, String)> {
    let shown = bounded(name, 60);
    let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
        return Err((shown, "not the name of an HTTP header".to_owned()));
    };
    if OWN_HEADERS.contains(&parsed.as_str()) {
        return Err((shown, "is set by the client itself: remove it".to_owned()));
    }
    Ok((shown, parsed))
}
