//! The Prometheus source against faults that no real server shows on demand:
//! wiremock and small TCP servers stand in for proxies, other makes and broken
//! networks. What real Prometheus servers do is tested elsewhere.

mod access;
mod makes;
mod meaning;
mod network;
mod replicas;
mod requests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use defragd::core::promql::PromQuery;
use defragd::core::quantity::Quantity;
use defragd::core::reason::Reason;
use defragd::core::signal::{PrometheusSignal, Reading, SignalState, Threshold};
use defragd::signals::Sources;
use defragd::signals::config::{SourceSpec, validate};
use defragd::signals::http::SourceError;
use defragd::signals::prometheus::PrometheusSource;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use wiremock::matchers::{header, method, path};
use wiremock::{Match, Mock, MockServer, Request, Respond, ResponseTemplate};

const QUERY: &str = "/api/v1/query";

fn sources(url: &str, more: &str) -> Result<Sources, SourceError> {
    let specs: Vec<SourceSpec> = serde_yaml::from_str(&format!(
        "[{{name: main, prometheus: {{url: '{url}' {more}}}}}]"
    ))
    .expect("the test's own configuration");
    Sources::from_config(validate(specs).expect("the test's own configuration"))
}

fn source(url: &str, more: &str) -> Arc<PrometheusSource> {
    sources(url, more)
        .expect("a client")
        .prometheus("main")
        .expect("the only source")
        .clone()
}

fn signal(query: &str, above: Option<&str>) -> PrometheusSignal {
    PrometheusSignal {
        source: "main".to_owned(),
        query: PromQuery::parse(query).expect("the test's own query"),
        threshold: above.map(|limit| Threshold::Above(Quantity::parse(limit).expect("a quantity"))),
        reduce: None,
    }
}

async fn read(source: &PrometheusSource, query: &str) -> Reading {
    source
        .read(&signal(query, Some("5")), Timestamp::now(), false)
        .await
}

fn vector(values: &[&str]) -> Value {
    let result: Vec<Value> = values
        .iter()
        .map(|v| json!({"metric": {"instance": "a"}, "value": [1, v]}))
        .collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": result}})
}

fn ok(values: &[&str]) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(vector(values))
}

/// The parameters of a request, from the body of a POST or the URL of a GET.
fn parameters(request: &Request) -> BTreeMap<String, String> {
    let pairs = |text: &[u8]| -> BTreeMap<String, String> {
        url::form_urlencoded::parse(text)
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect()
    };
    match request.url.query() {
        Some(query) => pairs(query.as_bytes()),
        None => pairs(&request.body),
    }
}

/// Matches requests that ask exactly this query.
struct Asks(&'static str);

impl Match for Asks {
    fn matches(&self, request: &Request) -> bool {
        parameters(request)
            .get("query")
            .is_some_and(|query| query == self.0)
    }
}

async fn requests(server: &MockServer) -> Vec<Request> {
    server.received_requests().await.expect("recording is on")
}

/// A server with these answers.
async fn serving(mocks: impl IntoIterator<Item = Mock>) -> MockServer {
    let server = MockServer::start().await;
    for mock in mocks {
        mock.mount(&server).await;
    }
    server
}

/// A server that answers every question in this way.
async fn answering(answer: impl Respond + 'static) -> MockServer {
    serving([Mock::given(path(QUERY)).respond_with(answer)]).await
}

/// A server that says 7 to those who send this header, and something else to the others.
async fn answering_those_with(
    name: &'static str,
    value: &str,
    others: impl Respond + 'static,
) -> MockServer {
    serving([
        Mock::given(header(name, value)).respond_with(ok(&["7"])),
        Mock::given(path(QUERY))
            .respond_with(others)
            .with_priority(9),
    ])
    .await
}

/// A server that says 7, by either method or by GET only.
async fn answering_by(refuses_post: bool) -> MockServer {
    let refusal = Mock::given(method("POST")).respond_with(ResponseTemplate::new(405));
    let answer = Mock::given(path(QUERY)).respond_with(ok(&["7"]));
    serving(refuses_post.then_some(refusal).into_iter().chain([answer])).await
}

/// A file with a secret, in a folder that goes with the first value.
fn secret_file(secret: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret-file");
    std::fs::write(&file, secret).expect("a file");
    (folder, file)
}

/// The field of a token that stands in this file.
fn bearer(token: &Path) -> String {
    format!(", bearerTokenFile: '{}'", token.display())
}

#[track_caller]
fn assert_error(reading: &Reading, reason: Reason, word: &str) {
    assert_eq!(reading.state, SignalState::Error, "{reading:?}");
    assert_eq!(reading.reason, reason, "{reading:?}");
    assert!(reading.message.contains(word), "{reading:?}");
}
