//! Headers that are sent with each request.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

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
