//! The verdict on a target. What needs a file, a Secret or a connection is found
//! later, by those who connect.

use std::path::PathBuf;

// What the client takes: the verdict here must be the one at the connection.
use rustls::pki_types::ServerName;
use url::Url;

use super::check::Check;
use super::{FieldError, Place, labels, quoted};
use crate::api::target::{
    EtcdTarget, EtcdTargetSpec, MAX_URLS, PodSelector, SchemeSpec, SecretRef, TargetAuth, TargetTls,
};
use crate::core::target::{Auth, DEFAULT_PORT, Members, Scheme, Target, Tls, TlsFrom};

/// Longest URL and longest path of a file, in characters, as in the schema.
const MAX_URL: usize = 2048;
const MAX_PATH: usize = 4096;

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
    let mut check = Check::at(place);
    let c = &mut check;
    c.name("metadata.name", object.metadata.name.as_deref());
    let mut needs = Needs::default();
    let members = match (endpoints, pod_selector) {
        (Some(endpoints), None) => Members::Endpoints(given(c, endpoints, tls.is_some())),
        (None, Some(selector)) => {
            let remedy = "give the members' client URLs in spec.endpoints";
            needs.kubernetes(c, "spec.podSelector", String::new(), remedy);
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
        needs_tls(c, format!("spec.metricsURLs[{i}]"), url);
    }
    let tls = tls.as_ref().map(|tls| tls_of(c, tls, &mut needs));
    let auth = auth.as_ref().map(|auth| auth_of(c, auth, &mut needs));
    let expected_voters = c.count("spec.memberCount", *member_count, 1..=63);
    let quota_bytes = c.size("spec.quotaBytes", quota_bytes.as_ref());
    needs.fit_together(c, place);
    check.finish(Target {
        members,
        expected_voters,
        quota_bytes,
        tls,
        auth,
        metrics_urls: metrics.into_iter().map(|(_, url)| url).collect(),
    })
}

/// What only one of the hosts can do: the first field of a target that needs
/// Kubernetes, and the first with its value that needs standalone.
#[derive(Default)]
struct Needs {
    kubernetes: Option<String>,
    standalone: Option<(String, String)>,
}

impl Needs {
    fn kubernetes(&mut self, check: &mut Check, path: &str, value: String, remedy: &str) {
        self.kubernetes.get_or_insert_with(|| path.to_owned());
        check.only(Place::Kubernetes, path, value, remedy);
    }

    fn standalone(&mut self, check: &mut Check, path: &str, value: String, remedy: &str) {
        self.standalone
            .get_or_insert_with(|| (path.to_owned(), value.clone()));
        check.only(Place::Standalone, path, value, remedy);
    }

    /// What neither host takes as a whole is wrong wherever it goes.
    fn fit_together(self, check: &mut Check, place: Place) {
        if place == Place::Anywhere
            && let (Some(theirs), Some((path, value))) = (self.kubernetes, self.standalone)
        {
            check.fail(
                path,
                value,
                format!("works in defragd standalone only, and {theirs} in Kubernetes only"),
                "use podSelector and secretRef in Kubernetes, endpoints and files in standalone",
            );
        }
    }
}

const SET_SECRET: &str = "set spec.tls.secretRef to a Secret that has the authority that signed its certificate in ca.crt";
const SET_FILE: &str = "set spec.tls.caFile to the authority that signed its certificate";

fn needs_tls(check: &mut Check, path: String, url: &Url) {
    let remedy = check.remedy(SET_SECRET, SET_FILE);
    let remedy = format!("{remedy}; or write http://");
    check.fail(path, quoted(url.as_str()), "needs spec.tls", remedy);
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
            ("https", false) => needs_tls(check, path, url),
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
    let path = "spec.podSelector.matchLabels";
    if match_labels.is_empty() {
        check.fail(
            path,
            "",
            "no label is given, which would mean every pod",
            "give at least one, such as component: etcd",
        );
    }
    labels::equal(check, path, match_labels);
    let port = check.number("spec.podSelector.port", *port, 1..=65_535);
    let path = "spec.podSelector.scheme";
    match (scheme, tls) {
        (Some(SchemeSpec::Https), false) => {
            let remedy = format!("{SET_SECRET}, or write http");
            check.fail(path, quoted("https"), "needs spec.tls", remedy);
        }
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

fn tls_of(check: &mut Check, spec: &TargetTls, needs: &mut Needs) -> Tls {
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
    sources(check, "spec.tls", secret_ref.as_ref(), &files, needs);
    if secret_ref.is_none() {
        if ca_file.is_none() {
            let remedy = check.remedy(
                "name a Secret that has the authority in ca.crt in spec.tls.secretRef",
                "name the file of the authority in spec.tls.caFile",
            );
            let problem = "neither secretRef nor caFile is given";
            check.fail("spec.tls", "", problem, remedy);
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

fn auth_of(check: &mut Check, spec: &TargetAuth, needs: &mut Needs) -> Auth {
    let TargetAuth {
        secret_ref,
        username_file,
        password_file,
    } = spec;
    let files = [
        ("spec.auth.usernameFile", username_file),
        ("spec.auth.passwordFile", password_file),
    ];
    sources(check, "spec.auth", secret_ref.as_ref(), &files, needs);
    let missing = match (secret_ref, username_file, password_file) {
        (None, None, None) => Some(("spec.auth", "neither secretRef nor files are given")),
        (None, None, Some(_)) => Some(("spec.auth.usernameFile", "it is missing")),
        (None, Some(_), None) => Some(("spec.auth.passwordFile", "it is missing")),
        _ => None,
    };
    if let Some((path, problem)) = missing {
        let remedy = check.remedy(
            "name a Secret with username and password in spec.auth.secretRef",
            "name both files below spec.auth",
        );
        check.fail(path, "", problem, remedy);
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
    needs: &mut Needs,
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
        needs.kubernetes(check, &path, quoted(&secret.name), remedy);
        return;
    }
    for (i, (file, value)) in given.enumerate() {
        const REMEDY: &str = "write the path of a file";
        if value.trim().is_empty() {
            check.fail(file, quoted(""), "names no file", REMEDY);
        } else if value.chars().count() > MAX_PATH {
            let problem = format!("is longer than {MAX_PATH} characters");
            check.fail(file, quoted(value), problem, REMEDY);
        } else if i == 0 {
            let remedy = format!("put its content into a Secret and name that in {path}.secretRef");
            needs.standalone(check, file, quoted(value), &remedy);
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
    // The parser takes capitals, and blanks in front; the API server does not.
    if !(text.starts_with("http://") || text.starts_with("https://")) {
        return wrong("does not begin with http:// or https://", example);
    }
    if text.chars().count() > MAX_URL {
        let problem = format!("is longer than {MAX_URL} characters");
        return wrong(&problem, "shorten it");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("carries a user or a password", "put them into spec.auth");
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
