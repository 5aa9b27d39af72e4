//! The verdict on a target. What needs a file, a Secret or a connection is found
//! later, by those who connect.

use std::collections::BTreeMap;
use std::path::PathBuf;

// What the client takes: the verdict here must be the one at the connection.
use rustls::pki_types::ServerName;
use url::Url;

use super::check::{Check, is_dns_name};
use super::{FieldError, Place, quoted};
use crate::api::schema::{MAX_LABEL_KEY, MAX_LABEL_VALUE, MAX_LABELS};
use crate::api::target::{
    EtcdTarget, EtcdTargetSpec, MAX_URLS, PodSelector, SchemeSpec, SecretRef, TargetAuth, TargetTls,
};
use crate::core::target::{Auth, DEFAULT_PORT, Members, Scheme, Target, Tls, TlsFrom};

/// Where the cluster is.
///
/// # Errors
/// Everything that is wrong with the object.
pub fn target(object: &EtcdTarget, place: Place) -> Result<Target, Vec<FieldError>> {
    let EtcdTargetSpec {
        endpoints,
        pod_selector,
        member_count,
        quota_bytes,
        tls,
        auth,
        metrics_urls,
    } = &object.spec;
    let mut check = Check::default();
    let c = &mut check;
    c.name("metadata.name", object.metadata.name.as_deref());
    let mut hosts = Hosts::new(place);
    let members = match (endpoints, pod_selector) {
        (Some(endpoints), None) => Members::Endpoints(given(c, endpoints, tls.is_some())),
        (None, Some(selector)) => {
            let remedy = "give the members' client URLs in spec.endpoints";
            hosts.only(Place::Kubernetes, c, "spec.podSelector", "", remedy);
            pods(c, selector, tls.is_some())
        }
        (Some(endpoints), Some(selector)) => {
            c.fail(
                "spec.podSelector",
                "",
                "it is given beside spec.endpoints, and either says where the members are",
                "remove one of them",
            );
            pods(c, selector, tls.is_some());
            Members::Endpoints(given(c, endpoints, tls.is_some()))
        }
        (None, None) => {
            c.fail(
                "spec.endpoints",
                "",
                "neither it nor spec.podSelector is given",
                "give at least one URL, such as \"https://10.0.0.1:2379\", or the labels of the members' pods",
            );
            Members::Endpoints(Vec::new())
        }
    };
    let metrics = urls(c, "spec.metricsURLs", metrics_urls, true);
    for (i, url) in metrics
        .iter()
        .filter(|(_, url)| url.scheme() == "https" && tls.is_none())
    {
        needs_tls(c, format!("spec.metricsURLs[{i}]"), url.as_str());
    }
    let tls = tls.as_ref().map(|tls| tls_of(c, tls, &mut hosts));
    let auth = auth.as_ref().map(|auth| auth_of(c, auth, &mut hosts));
    let expected_voters = c.count("spec.memberCount", *member_count, 1..=63);
    let quota_bytes = c.size("spec.quotaBytes", quota_bytes.as_ref());
    hosts.fit_together(c);
    check.finish(Target {
        members,
        expected_voters,
        quota_bytes,
        tls,
        auth,
        metrics_urls: metrics.into_iter().map(|(_, url)| url).collect(),
    })
}

/// What only one of the hosts can do, by host: the first field of a target that
/// needs it.
struct Hosts {
    place: Place,
    kubernetes: Option<(String, String)>,
    standalone: Option<(String, String)>,
}

impl Hosts {
    const fn new(place: Place) -> Self {
        Hosts {
            place,
            kubernetes: None,
            standalone: None,
        }
    }

    /// Refuses the field where `needed` is not the place.
    fn only(
        &mut self,
        needed: Place,
        check: &mut Check,
        path: impl Into<String>,
        value: impl Into<String>,
        remedy: &str,
    ) {
        let (path, value) = (path.into(), value.into());
        match needed {
            Place::Kubernetes => self.kubernetes.get_or_insert((path.clone(), value.clone())),
            Place::Standalone => self.standalone.get_or_insert((path.clone(), value.clone())),
            Place::Anywhere => return,
        };
        check.place(self.place, needed, path, value, remedy);
    }

    /// What neither host takes as a whole is wrong wherever it goes.
    fn fit_together(self, check: &mut Check) {
        if self.place == Place::Anywhere
            && let (Some((theirs, _)), Some((file, value))) = (self.kubernetes, self.standalone)
        {
            check.fail(
                file,
                value,
                format!("is for defragd standalone, and {theirs} for Kubernetes"),
                "use podSelector and secretRef in Kubernetes, endpoints and files in standalone",
            );
        }
    }
}

fn needs_tls(check: &mut Check, path: impl Into<String>, value: &str) {
    check.fail(
        path,
        quoted(value),
        "needs spec.tls",
        "set spec.tls to the authority that signed its certificate (secretRef in Kubernetes, caFile in standalone), \
         or write http",
    );
}

/// The endpoints that can be used.
fn given(check: &mut Check, texts: &[String], tls: bool) -> Vec<Url> {
    if texts.is_empty() {
        check.fail(
            "spec.endpoints",
            "",
            "no endpoint is given",
            "give at least one, such as \"https://10.0.0.1:2379\"",
        );
    }
    let parsed = urls(check, "spec.endpoints", texts, false);
    for (i, url) in &parsed {
        let path = format!("spec.endpoints[{i}]");
        match (url.scheme(), tls) {
            ("https", false) => needs_tls(check, path, url.as_str()),
            ("http", true) => check.fail(
                path,
                quoted(url.as_str()),
                "is not encrypted although spec.tls is set",
                "write https://, or remove spec.tls",
            ),
            _ => {}
        }
    }
    parsed.into_iter().map(|(_, url)| url).collect()
}

fn pods(check: &mut Check, selector: &PodSelector, tls: bool) -> Members {
    let PodSelector {
        match_labels,
        port,
        scheme,
    } = selector;
    labels(check, "spec.podSelector.matchLabels", match_labels);
    let port = check.number("spec.podSelector.port", *port, 1..=65_535);
    let path = "spec.podSelector.scheme";
    match (scheme, tls) {
        (Some(SchemeSpec::Https), false) => needs_tls(check, path, "https"),
        (Some(SchemeSpec::Http), true) => check.fail(
            path,
            quoted("http"),
            "is not encrypted although spec.tls is set",
            "write https, or remove spec.tls",
        ),
        (None, true) => check.fail(
            path,
            "",
            "it is missing, which means http, although spec.tls is set",
            "write https, or remove spec.tls",
        ),
        (Some(SchemeSpec::Https), true) | (Some(SchemeSpec::Http) | None, false) => {}
    }
    Members::Pods {
        match_labels: match_labels.clone(),
        port: port
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(DEFAULT_PORT),
        scheme: scheme.map_or(Scheme::default(), Scheme::from),
    }
}

/// Labels as Kubernetes takes them; anything else matches no pod.
fn labels(check: &mut Check, path: &str, labels: &BTreeMap<String, String>) {
    if labels.is_empty() {
        check.fail(
            path,
            "",
            "no label is given, which would mean every pod",
            "give at least one, such as component: etcd",
        );
    } else if labels.len() > MAX_LABELS {
        let remedy = format!("give at most {MAX_LABELS}");
        check.fail(
            path,
            labels.len().to_string(),
            "labels are too many",
            remedy,
        );
    }
    for (key, value) in labels.iter().take(MAX_LABELS) {
        if !is_label_key(key) {
            check.fail(
                path,
                quoted(key),
                "is not the key of a label",
                "write one such as \"component\" or \"app.kubernetes.io/name\"",
            );
        } else if !(value.is_empty() || is_label_name(value)) {
            check.fail(
                format!("{path}.{key}"),
                quoted(value),
                "is not the value of a label",
                format!(
                    "write at most {MAX_LABEL_VALUE} letters, digits, '-', '_' and '.', \
                     with a letter or a digit at both ends"
                ),
            );
        }
    }
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    key.len() <= MAX_LABEL_KEY && prefix.is_none_or(is_dns_name) && is_label_name(name)
}

/// The name of a label, and a value that is not empty.
fn is_label_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL_VALUE
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn tls_of(check: &mut Check, spec: &TargetTls, hosts: &mut Hosts) -> Tls {
    let TargetTls {
        secret_ref,
        ca_file,
        cert_file,
        key_file,
        server_name,
    } = spec;
    let files = [
        ("spec.tls.caFile", ca_file),
        ("spec.tls.certFile", cert_file),
        ("spec.tls.keyFile", key_file),
    ];
    sources(check, "spec.tls", secret_ref.as_ref(), &files, hosts);
    if secret_ref.is_none() {
        if ca_file.is_none() {
            check.fail(
                "spec.tls.caFile",
                "",
                "neither it nor spec.tls.secretRef is given",
                "name the authority that signed the members' certificates: a file in standalone, a Secret in Kubernetes",
            );
        }
        let half = match (cert_file, key_file) {
            (Some(cert), None) => Some(("spec.tls.certFile", cert, "is given without keyFile")),
            (None, Some(key)) => Some(("spec.tls.keyFile", key, "is given without certFile")),
            _ => None,
        };
        if let Some((path, value, problem)) = half {
            check.fail(path, quoted(value), problem, "give both or none");
        }
    }
    if let Some(name) = server_name.as_deref()
        && ServerName::try_from(name).is_err()
    {
        check.fail(
            "spec.tls.serverName",
            quoted(name),
            "is neither a DNS name nor an IP address",
            "write the name that stands in the servers' certificates",
        );
    }
    let path = |file: &Option<String>| file.as_ref().map(PathBuf::from);
    Tls {
        from: match secret_ref {
            Some(SecretRef { name }) => TlsFrom::Secret { name: name.clone() },
            None => TlsFrom::Files {
                ca: path(ca_file).unwrap_or_default(),
                identity: path(cert_file).zip(path(key_file)),
            },
        },
        server_name: server_name.clone(),
    }
}

fn auth_of(check: &mut Check, spec: &TargetAuth, hosts: &mut Hosts) -> Auth {
    let TargetAuth {
        secret_ref,
        username_file,
        password_file,
    } = spec;
    let files = [
        ("spec.auth.usernameFile", username_file),
        ("spec.auth.passwordFile", password_file),
    ];
    sources(check, "spec.auth", secret_ref.as_ref(), &files, hosts);
    if secret_ref.is_none() {
        for (path, file) in files {
            if file.is_none() {
                check.fail(
                    path,
                    "",
                    "neither it nor spec.auth.secretRef is given",
                    "name both files in standalone, a Secret in Kubernetes",
                );
            }
        }
    }
    let path = |file: &Option<String>| file.as_ref().map(PathBuf::from).unwrap_or_default();
    match secret_ref {
        Some(SecretRef { name }) => Auth::Secret { name: name.clone() },
        None => Auth::Files {
            username: path(username_file),
            password: path(password_file),
        },
    }
}

/// A Secret or files below `path`, never both, and each where it can be read.
fn sources(
    check: &mut Check,
    path: &'static str,
    secret: Option<&SecretRef>,
    files: &[(&'static str, &Option<String>)],
    hosts: &mut Hosts,
) {
    let given = files
        .iter()
        .filter_map(|(path, file)| Some((*path, file.as_ref()?)));
    if let Some(secret) = secret {
        let path = format!("{path}.secretRef");
        check.name(&format!("{path}.name"), Some(&secret.name));
        for (file, value) in given {
            check.fail(
                file,
                quoted(value),
                format!("is given beside {path}"),
                "keep secretRef in Kubernetes, the files in standalone",
            );
        }
        let remedy = "name files instead, they are read again at each connect";
        hosts.only(Place::Kubernetes, check, path, quoted(&secret.name), remedy);
        return;
    }
    for (i, (file, value)) in given.enumerate() {
        if value.trim().is_empty() {
            check.fail(
                file,
                quoted(""),
                "names no file",
                "write the path of a file",
            );
        } else if i == 0 {
            let remedy = format!("put its content into a Secret and name that in {path}.secretRef");
            hosts.only(Place::Standalone, check, file, quoted(value), &remedy);
        }
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
