//! Policies and the sources that they ask: who waits for whom, and how often a
//! source is asked. The sources here are fakes: a real one is neither as slow nor
//! as busy on demand.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use defragd::core::decide::{Blocker, Fallback, OnNoData, OnSilence, Policy};
use defragd::core::promql::PromQuery;
use defragd::core::quantity::Quantity;
use defragd::core::rule::Rule;
use defragd::core::signal::{PrometheusSignal, Signal, SignalState, Threshold};
use defragd::engine::{Limits, PolicyView};
use defragd::signals::Sources;
use defragd::signals::config::{SourceSpec, validate};
use defragd_harness::install_tls_provider;
use jiff::SignedDuration;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::memory::{Memory, NOWHERE, Working, key, on, policy, put_target};

fn sources(text: &str) -> Arc<Sources> {
    install_tls_provider();
    let specs: Vec<SourceSpec> = serde_yaml::from_str(text).unwrap();
    Arc::new(Sources::from_config(validate(specs).unwrap()).unwrap())
}

/// Asks this source for this query; fires above 5.
fn asking(name: &str, source: &str, query: &str, every: SignedDuration) -> PolicyView {
    policy(name, "c", |policy| {
        policy.interval = every;
        policy.hold_for = SignedDuration::from_hours(1);
        policy.signal = above_five(source, query);
    })
}

fn above_five(source: &str, query: &str) -> Signal {
    Signal::Prometheus(PrometheusSignal {
        source: source.to_owned(),
        query: PromQuery::parse(query).unwrap(),
        threshold: Some(Threshold::Above(Quantity::parse("5").unwrap())),
        reduce: None,
    })
}

fn edited(view: PolicyView, edit: impl FnOnce(&mut Policy)) -> PolicyView {
    let mut policy = (**view.spec.as_ref().unwrap()).clone();
    edit(&mut policy);
    PolicyView {
        spec: Ok(Arc::new(policy)),
        ..view
    }
}

/// Holds its run back as long as that fires or cannot be read.
fn blocked_by(view: PolicyView, signal: Signal) -> PolicyView {
    edited(view, |policy| {
        policy.hold_for = SignedDuration::ZERO;
        policy.blockers = vec![Blocker {
            name: "other".to_owned(),
            signal,
            no_data: OnNoData::Block,
        }];
    })
}

fn put(host: &Memory, policies: impl IntoIterator<Item = PolicyView>) {
    put_target(host, "c", &[NOWHERE.to_owned()]);
    for policy in policies {
        host.views.put_policy(Arc::new(policy));
    }
}

fn evaluated(host: &Memory, name: &str) -> u32 {
    let heard = host.heard();
    heard.evaluations.get(&key(name)).copied().unwrap_or(0)
}

fn state(host: &Memory, name: &str) -> Option<SignalState> {
    let view = host.views.policy(&on(name, "c"))?;
    Some(view.state.signal.as_ref()?.state)
}

fn one_series() -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({"status": "success", "data": {
        "resultType": "vector", "result": [{"metric": {}, "value": [1, "7"]}]}}))
}

async fn answering(answer: impl Respond + 'static) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(path("/api/v1/query"))
        .respond_with(answer)
        .mount(&server)
        .await;
    server
}

/// Answers one byte a second, and never comes to an end.
async fn one_byte_a_second() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
                let _ = stream.write_all(head).await;
                // The pace of the fault itself; nothing waits for it.
                while stream.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn s30_a_source_of_one_byte_a_second_delays_no_policy_of_another_source() {
    let slow = one_byte_a_second().await;
    let quick = answering(one_series()).await;
    let sources = sources(&format!(
        "[{{name: slow, prometheus: {{url: '{slow}', timeout: 2m, requestsPerSecond: 1000}}}}, \
         {{name: quick, prometheus: {{url: '{}'}}}}]",
        quick.uri()
    ));
    let host = Memory::new();
    let second = SignedDuration::from_secs(1);
    let waiting: Vec<String> = (0..100).map(|i| format!("slow{i}")).collect();
    put(
        &host,
        waiting
            .iter()
            .map(|name| asking(name, "slow", name, second)),
    );
    put(&host, [asking("quick", "quick", "x", second)]);
    let began = Instant::now();
    let working = Working::asking(&host, Limits::default(), sources);
    host.until("five evaluations by the quick source", |host| {
        evaluated(host, "quick") >= 5
    })
    .await;
    assert_eq!(state(&host, "quick"), Some(SignalState::Firing));
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    for name in &waiting {
        assert_eq!(evaluated(&host, name), 0, "{name} has no answer yet");
    }
    // Nor does it keep the process.
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s30_policies_of_a_slow_source_say_so_within_its_time_limit() {
    let sources = sources(&format!(
        "[{{name: slow, prometheus: {{url: '{}', timeout: 1500ms}}}}]",
        one_byte_a_second().await
    ));
    let host = Memory::new();
    put(
        &host,
        [asking("p", "slow", "x", SignedDuration::from_hours(1))],
    );
    let working = Working::asking(&host, Limits::default(), sources);
    host.until("the slow source to be reported", |host| {
        state(host, "p") == Some(SignalState::Error)
    })
    .await;
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t101_policies_of_differing_intervals_ask_no_more_than_the_fastest_alone() {
    let server = answering(one_series()).await;
    let sources = sources(&format!(
        "[{{name: main, prometheus: {{url: '{}'}}}}]",
        server.uri()
    ));
    let host = Memory::new();
    // 1.5 s is no multiple of 1 s: by itself it would ask in between.
    let names = ["fast", "between", "double", "odd"];
    let millis = [1000, 1500, 2000, 3700];
    put(
        &host,
        names
            .iter()
            .zip(millis)
            .map(|(name, millis)| asking(name, "main", "x", SignedDuration::from_millis(millis))),
    );
    let working = Working::asking(&host, Limits::default(), sources.clone());
    host.until("evaluations of all", |host| {
        let slow = names.map(|name| evaluated(host, name));
        slow[0] >= 12 && slow[1] >= 8 && slow[2] >= 5 && slow[3] >= 3
    })
    .await;
    let asked = sources.stats()["main"].requests["200"];
    let fast = u64::from(evaluated(&host, "fast"));
    // At the start each may come once before it knows of the others.
    assert!(asked <= fast + 3, "{asked} requests, {fast} evaluations");
    assert!(sources.stats()["main"].shared >= 12);
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t101_blockers_of_differing_intervals_are_asked_no_more_than_by_the_fastest_alone() {
    let server = answering(one_series()).await;
    let sources = sources(&format!(
        "[{{name: main, prometheus: {{url: '{0}'}}}}, {{name: guard, prometheus: {{url: '{0}'}}}}]",
        server.uri()
    ));
    let host = Memory::new();
    let names = ["fast", "between", "double", "odd"];
    let millis = [1000, 1500, 2000, 3700];
    let policies = names.iter().zip(millis).map(|(name, millis)| {
        // Each asks something else, so that they do not come at the same moment.
        let policy = asking(name, "main", name, SignedDuration::from_millis(millis));
        blocked_by(policy, above_five("guard", "x"))
    });
    put(&host, policies);
    let working = Working::asking(&host, Limits::default(), sources.clone());
    host.until("evaluations of all", |host| {
        let slow = names.map(|name| evaluated(host, name));
        slow[0] >= 16 && slow[1] >= 11 && slow[2] >= 8 && slow[3] >= 4
    })
    .await;
    let asked = sources.stats()["guard"].requests["200"];
    let fast = u64::from(evaluated(&host, "fast"));
    // At the start each may come once before it knows of the others.
    assert!(asked <= fast + 3, "{asked} requests, {fast} evaluations");
    working.stop().await;
}

/// The pause is the source's own: what others say and what time brings goes on.
#[tokio::test(flavor = "multi_thread")]
async fn s19_a_source_that_wants_to_be_left_alone_delays_neither_the_fallback_nor_another() {
    for status in [429, 503] {
        let wait = ResponseTemplate::new(status).insert_header("Retry-After", "3600");
        let busy = answering(wait).await;
        let quick = answering(one_series()).await;
        let sources = sources(&format!(
            "[{{name: busy, prometheus: {{url: '{}'}}}}, {{name: quick, prometheus: {{url: '{}'}}}}]",
            busy.uri(),
            quick.uri()
        ));
        let host = Memory::new();
        let second = SignedDuration::from_secs(1);
        let falls_back = edited(asking("falls-back", "busy", "x", second), |policy| {
            policy.on_error = OnSilence::Fallback;
            policy.fallback = Some(Fallback {
                after: SignedDuration::from_secs(3),
                rule: Rule::All,
            });
        });
        let blocked = asking("blocked", "quick", "x", second);
        let blocked = blocked_by(blocked, above_five("busy", "y"));
        put(&host, [falls_back, blocked]);
        let working = Working::asking(&host, Limits::default(), sources);
        host.until("the fallback to decide", |host| {
            let view = host.views.policy(&on("falls-back", "c"));
            view.is_some_and(|view| view.state.fallback_active)
        })
        .await;
        host.until("the signal of the blocked policy to be read", |host| {
            evaluated(host, "blocked") >= 5
        })
        .await;
        assert_eq!(state(&host, "blocked"), Some(SignalState::Firing));
        assert_eq!(host.made(), 0);
        working.stop().await;
        let asked = busy.received_requests().await.unwrap().len();
        assert!(
            asked <= 2,
            "each may ask once before the other was told: {asked}"
        );
    }
}

/// Asks to be left alone, and remembers when it was asked.
struct Busy(Arc<Mutex<Vec<Instant>>>);

impl Respond for Busy {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        self.0.lock().unwrap().push(Instant::now());
        ResponseTemplate::new(429).insert_header("Retry-After", "3")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s19_a_source_that_asks_for_it_is_left_alone_by_all_its_policies() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let server = answering(Busy(asked.clone())).await;
    let sources = sources(&format!(
        "[{{name: main, prometheus: {{url: '{}'}}}}]",
        server.uri()
    ));
    let host = Memory::new();
    let names: Vec<String> = (0..20).map(|i| format!("p{i}")).collect();
    let every = SignedDuration::from_secs(1);
    put(
        &host,
        names.iter().map(|name| asking(name, "main", "x", every)),
    );
    let working = Working::asking(&host, Limits::default(), sources);
    host.until("three questions", |_| asked.lock().unwrap().len() >= 3)
        .await;
    working.stop().await;
    let asked = asked.lock().unwrap().clone();
    for pair in asked.windows(2) {
        let pause = pair[1].duration_since(pair[0]);
        assert!(pause >= Duration::from_millis(2900), "{pause:?}");
    }
}
