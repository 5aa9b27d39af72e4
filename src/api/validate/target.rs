//! The verdict on a target. What needs a file or a connection is found later,
//! by those who connect.

use std::path::PathBuf;

// What the client takes: the verdict here must be the one at the connection.
use rustls::pki_types::ServerName;
use url::Url;

use super::check::Check;
use super::{FieldError, quoted};
use crate::api::target::{EtcdTarget, EtcdTargetSpec};
use crate::core::target::{Auth, Target, Tls};

/// More URLs than the largest cluster has members.
const MAX_URLS: usize = 64;

/// Where the cluster is.
///
/// # Errors
/// Everything that is wrong with the object.
pub fn target(object: &EtcdTarget) -> Result<Target, Vec<FieldError>> {
    let EtcdTargetSpec {
        endpoints,
        member_count,
        quota_bytes,
        tls,
        auth,
        metrics_urls,
    } = &object.spec;
    let mut check = Check::default();
    let c = &mut check;
    c.name("metadata.name", object.metadata.name.as_deref());
    if endpoints.is_empty() {
        c.fail(
            "spec.endpoints",
            "",
            "no endpoint is given",
            "give at least one, such as \"https://10.0.0.1:2379\"",
        );
    }
    let parsed = urls(c, "spec.endpoints", endpoints, false);
    for (i, url) in &parsed {
        let path = format!("spec.endpoints[{i}]");
        match (url.scheme(), tls) {
            ("https", None) => c.fail(
                path,
                quoted(url.as_str()),
                "needs spec.tls",
                "set spec.tls.caFile to the authority that signed its certificate, or write http://",
            ),
            ("http", Some(_)) => c.fail(
                path,
                quoted(url.as_str()),
                "is not encrypted although spec.tls is set",
                "write https://, or remove spec.tls",
            ),
            _ => {}
        }
    }
    let metrics = urls(c, "spec.metricsURLs", metrics_urls, true);
    for (i, url) in metrics
        .iter()
        .filter(|(_, url)| url.scheme() == "https" && tls.is_none())
    {
        c.fail(
            format!("spec.metricsURLs[{i}]"),
            quoted(url.as_str()),
            "needs spec.tls",
            "set spec.tls.caFile to the authority that signed its certificate, or write http://",
        );
    }
    let tls = tls.as_ref().map(|spec| {
        file(c, "spec.tls.caFile", Some(&spec.ca_file));
        file(c, "spec.tls.certFile", spec.cert_file.as_ref());
        file(c, "spec.tls.keyFile", spec.key_file.as_ref());
        match (&spec.cert_file, &spec.key_file) {
            (Some(cert), None) => {
                c.fail(
                    "spec.tls.certFile",
                    quoted(cert),
                    "is given without keyFile",
                    "give both or none",
                );
            }
            (None, Some(key)) => {
                c.fail(
                    "spec.tls.keyFile",
                    quoted(key),
                    "is given without certFile",
                    "give both or none",
                );
            }
            _ => {}
        }
        if let Some(name) = spec.server_name.as_deref()
            && ServerName::try_from(name).is_err()
        {
            c.fail(
                "spec.tls.serverName",
                quoted(name),
                "is neither a DNS name nor an IP address",
                "write the name that stands in the servers' certificates",
            );
        }
        Tls {
            ca_file: PathBuf::from(&spec.ca_file),
            identity: spec
                .cert_file
                .as_ref()
                .zip(spec.key_file.as_ref())
                .map(|(cert, key)| (PathBuf::from(cert), PathBuf::from(key))),
            server_name: spec.server_name.clone(),
        }
    });
    let auth = auth.as_ref().map(|spec| {
        file(c, "spec.auth.usernameFile", Some(&spec.username_file));
        file(c, "spec.auth.passwordFile", Some(&spec.password_file));
        Auth {
            username_file: PathBuf::from(&spec.username_file),
            password_file: PathBuf::from(&spec.password_file),
        }
    });
    let expected_voters = c.count("spec.memberCount", *member_count, 1..=63);
    let quota_bytes = c.size("spec.quotaBytes", quota_bytes.as_ref());
    check.finish(Target {
        endpoints: parsed.into_iter().map(|(_, url)| url).collect(),
        expected_voters,
        quota_bytes,
        tls,
        auth,
        metrics_urls: metrics.into_iter().map(|(_, url)| url).collect(),
    })
}

fn file(check: &mut Check, path: &str, value: Option<&String>) {
    if value.is_some_and(|text| text.trim().is_empty()) {
        check.fail(
            path,
            quoted(""),
            "names no file",
            "write the path of a file",
        );
    }
}

/// The URLs that parse, each with its place in the list.
fn urls(check: &mut Check, path: &str, texts: &[String], may_have_path: bool) -> Vec<(usize, Url)> {
    if texts.len() > MAX_URLS {
        check.fail(
            path,
            texts.len().to_string(),
            "URLs are too many",
            format!("give at most {MAX_URLS}"),
        );
    }
    let mut seen: Vec<(usize, Url)> = Vec::new();
    for (i, text) in texts.iter().take(MAX_URLS).enumerate() {
        let path = format!("{path}[{i}]");
        match parse_url(text, may_have_path) {
            Err((value, problem, remedy)) => check.fail(path, value, problem, remedy),
            Ok(url) if seen.iter().any(|(_, other)| *other == url) => {
                check.fail(path, quoted(text), "is given twice", "remove one of them");
            }
            Ok(url) => seen.push((i, url)),
        }
    }
    seen
}

/// Value to show, problem and remedy, when it is no URL to connect to.
fn parse_url(text: &str, may_have_path: bool) -> Result<Url, (String, String, String)> {
    // A user part or a query may carry a secret, which no message repeats.
    let shown = if text.contains('@') {
        "a URL with \"@\"".to_owned()
    } else {
        quoted(text.split(['?', '#']).next().unwrap_or_default())
    };
    let wrong =
        |problem: &str, remedy: &str| Err((shown.clone(), problem.to_owned(), remedy.to_owned()));
    let example = "write one such as \"https://10.0.0.1:2379\"";
    if !text.contains("://") {
        let remedy = if text.contains('@') {
            example.to_owned()
        } else {
            format!(
                "write {} or {}",
                quoted(&format!("http://{text}")),
                quoted(&format!("https://{text}"))
            )
        };
        return wrong("has no scheme", &remedy);
    }
    let Ok(url) = Url::parse(text) else {
        return wrong("is not a URL", example);
    };
    if !matches!(url.scheme(), "http" | "https") {
        return wrong("has neither the scheme http nor https", example);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong(
            "carries a user or a password",
            "put them into the files of spec.auth",
        );
    }
    if url.port_or_known_default().is_none_or(|port| port == 0) {
        return wrong("has no port", example);
    }
    if may_have_path && (url.query().is_some() || url.fragment().is_some()) {
        return wrong(
            "goes on with a query or a fragment",
            "end it after the path",
        );
    }
    if !may_have_path && (url.query().is_some() || url.fragment().is_some() || url.path() != "/") {
        return wrong("has more than scheme, host and port", example);
    }
    Ok(url)
}
