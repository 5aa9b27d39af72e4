//! What prometheus-adapter never does, shown by a fake API server: answers about other objects,
//! old values, other versions, floods, silence, and a request to slow down.

use std::time::{Duration, Instant};

use defragd::core::reason::Reason;
use defragd::core::signal::{MetricSignal, Reading, SignalState};
use defragd::signals::metrics_api::{Limits, MetricsApi};
use defragd_harness::install_tls_provider;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, Config};
use serde_json::{Value, json};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{TEAM, above, external, of_pod};

const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/team/m";
const GROUP: &str = "/apis/custom.metrics.k8s.io";
const NEWEST: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/team/pods/etcd-0/m";

struct Fake {
    server: MockServer,
    api: MetricsApi,
}

impl Fake {
    async fn new() -> Self {
        install_tls_provider();
        let server = MockServer::start().await;
        let mut config = Config::new(server.uri().parse().expect("a URL"));
        // As the controller has it.
        config.default_retry = false;
        let limits = Limits {
            time: Duration::from_secs(2),
            ..Limits::default()
        };
        let client = Client::try_from(config).expect("plain HTTP");
        let api = MetricsApi::new(client, limits);
        Self { server, api }
    }

    async fn answers(&self, at: &str, answer: ResponseTemplate) {
        let mock = Mock::given(method("GET")).and(path(at));
        mock.respond_with(answer).mount(&self.server).await;
    }

    async fn says(&self, at: &str, body: Value) {
        let answer = ResponseTemplate::new(200).set_body_json(body);
        self.answers(at, answer).await;
    }

    async fn read(&self, signal: &MetricSignal) -> Reading {
        self.api.read(signal, TEAM, Timestamp::now(), true).await
    }

    async fn asked(&self) -> usize {
        let requests = self.server.received_requests().await;
        requests.expect("they are recorded").len()
    }
}

fn ago(time: SignedDuration) -> String {
    let at = Timestamp::now() - time;
    format!("{:.0}", at)
}

fn value(about: &str, age: SignedDuration) -> Value {
    json!({
        "describedObject": { "apiVersion": "/v1", "kind": "Pod", "namespace": TEAM, "name": about },
        "metric": { "name": "m", "selector": null },
        "timestamp": ago(age),
        "value": "5",
    })
}

#[tokio::test]
async fn s90_and_old_values_of_the_newest_version() {
    let pod = of_pod("m", above("1"));
    let second = SignedDuration::from_secs(1);
    for (item, wanted) in [
        (value("etcd-0", second), Reason::SignalFiring),
        (value("etcd-1", second), Reason::SourceAnswerUnusable),
        (
            value("etcd-0", SignedDuration::from_mins(6)),
            Reason::NoData,
        ),
    ] {
        let fake = Fake::new().await;
        let versions = json!([{ "version": "v1beta1" }, { "version": "v1beta2" }]);
        fake.says(GROUP, json!({ "versions": versions })).await;
        let pods = json!([{ "name": "pods", "kind": "Pod", "namespaced": true }]);
        fake.says("/api/v1", json!({ "resources": pods })).await;
        fake.says(NEWEST, json!({ "items": [item] })).await;
        let reading = fake.read(&pod).await;
        assert_eq!(reading.reason, wanted, "{reading:?}");
        assert_eq!(fake.asked().await, 3);
        fake.read(&pod).await;
        assert_eq!(
            fake.asked().await,
            4,
            "what a kind is called is known by now"
        );
    }
}

#[tokio::test]
async fn a_version_that_is_gone_is_looked_up_again() {
    let fake = Fake::new().await;
    let pod = of_pod("m", above("1"));
    let pods = json!([{ "name": "pods", "kind": "Pod", "namespaced": true }]);
    fake.says("/api/v1", json!({ "resources": pods })).await;
    let group = Mock::given(path(GROUP)).respond_with(
        ResponseTemplate::new(200).set_body_json(json!({ "versions": [{ "version": "v1beta1" }] })),
    );
    group.up_to_n_times(1).mount(&fake.server).await;
    fake.says(GROUP, json!({ "versions": [{ "version": "v1beta2" }] }))
        .await;
    let fresh = value("etcd-0", SignedDuration::from_secs(1));
    fake.says(NEWEST, json!({ "items": [fresh] })).await;
    assert_eq!(fake.read(&pod).await.state, SignalState::NoData);
    assert_eq!(fake.read(&pod).await.state, SignalState::Firing);
}

#[tokio::test]
async fn a_value_without_a_time_does_not_start_the_next_run() {
    let fake = Fake::new().await;
    let undated =
        json!({ "metricName": "m", "metricLabels": null, "timestamp": null, "value": "5" });
    fake.says(EXTERNAL, json!({ "items": [undated] })).await;
    let signal = external("m", "", above("1"));
    let reading = fake.read(&signal).await;
    assert_eq!(reading.state, SignalState::Inconclusive, "{reading:?}");
    let first = fake.api.read(&signal, TEAM, Timestamp::now(), false).await;
    assert_eq!(first.state, SignalState::Firing, "{first:?}");
}

#[tokio::test]
async fn s30_floods_and_silence_are_bounded() {
    let signal = external("m", "", above("1"));
    let fake = Fake::new().await;
    let flood = ResponseTemplate::new(200).set_body_bytes(vec![b' '; 5 << 20]);
    fake.answers(EXTERNAL, flood).await;
    let reading = fake.read(&signal).await;
    assert_eq!(reading.reason, Reason::SourceAnswerUnusable, "{reading:?}");

    let fake = Fake::new().await;
    let silence = ResponseTemplate::new(200).set_delay(Duration::from_secs(60));
    fake.answers(EXTERNAL, silence).await;
    let began = Instant::now();
    let reading = fake.read(&signal).await;
    assert_eq!(reading.reason, Reason::SourceUnavailable, "{reading:?}");
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(fake.api.stats().requests["timeout"], 1);
}

#[tokio::test]
async fn a_request_to_slow_down_is_respected_for_all_metrics() {
    let fake = Fake::new().await;
    let slower = ResponseTemplate::new(429).insert_header("retry-after", "30");
    fake.answers(EXTERNAL, slower).await;
    let signal = external("m", "", above("1"));
    let reading = fake.read(&signal).await;
    assert_eq!(reading.reason, Reason::RateLimited, "{reading:?}");
    let other = fake.read(&external("n", "", above("1"))).await;
    assert_eq!(other.reason, Reason::RateLimited, "{other:?}");
    assert_eq!(fake.asked().await, 1);
}

/// Each API has an adapter of its own: one that is away says nothing about the other.
#[tokio::test]
async fn an_api_that_wants_to_be_left_alone_delays_no_other() {
    let fake = Fake::new().await;
    let away = ResponseTemplate::new(503).insert_header("retry-after", "300");
    fake.answers(EXTERNAL, away).await;
    fake.says(GROUP, json!({ "versions": [] })).await;
    let signal = external("m", "", above("1"));
    for _ in 0..2 {
        let reading = fake.read(&signal).await;
        assert_eq!(reading.reason, Reason::SourceUnavailable, "{reading:?}");
    }
    assert_eq!(fake.asked().await, 1);
    let pod = of_pod("m", above("1"));
    fake.read(&pod).await;
    assert_eq!(fake.asked().await, 2);
}

#[tokio::test]
async fn a_request_to_slow_down_counts_wherever_it_is_made() {
    let fake = Fake::new().await;
    let slower = ResponseTemplate::new(429).insert_header("retry-after", "300");
    fake.answers(GROUP, slower).await;
    for signal in [of_pod("m", above("1")), external("m", "", above("1"))] {
        let reading = fake.read(&signal).await;
        assert_eq!(reading.reason, Reason::RateLimited, "{reading:?}");
    }
    assert_eq!(fake.asked().await, 1);
}

#[tokio::test]
async fn an_answer_without_a_list_is_no_empty_list() {
    let fake = Fake::new().await;
    fake.says(EXTERNAL, json!({})).await;
    let reading = fake.read(&external("m", "", above("1"))).await;
    assert_eq!(reading.reason, Reason::SourceAnswerUnusable, "{reading:?}");
}
