//! A blocker that turns on while a run waits in line. The source is a fake, which
//! turns it on between two questions.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use defragd::core::decide::{Blocker, OnNoData};
use defragd::core::promql::PromQuery;
use defragd::core::quantity::Quantity;
use defragd::core::reason::Reason;
use defragd::core::signal::{PrometheusSignal, Signal, Threshold};
use defragd::engine::{Limits, now};
use defragd::signals::config::{SourceConfig, SourceSpec, validate};
use defragd_harness::install_tls_provider;
use jiff::SignedDuration;
use serde_json::json;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::memory::{Memory, NOWHERE, Working, on, policy, put_target};

/// The signal is always on. The blocker is off when it is asked for the first time,
/// and then as it is set.
#[derive(Clone, Debug, Default)]
struct Answers {
    blocks: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Respond for Answers {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let about_blocker = String::from_utf8_lossy(&request.body).contains("upgrade");
        let on = !about_blocker
            || (self.asked.fetch_add(1, Ordering::SeqCst) > 0
                && self.blocks.load(Ordering::SeqCst));
        ResponseTemplate::new(200).set_body_json(json!({"status": "success", "data": {
            "resultType": "vector",
            "result": [{"metric": {}, "value": [1, if on { "7" } else { "0" }]}]}}))
    }
}

impl Answers {
    async fn serve(&self) -> (MockServer, Vec<SourceConfig>) {
        install_tls_provider();
        let server = MockServer::start().await;
        Mock::given(path("/api/v1/query"))
            .respond_with(self.clone())
            .mount(&server)
            .await;
        let text = format!(
            "[{{name: main, prometheus: {{url: '{}', requestsPerSecond: 1000}}}}]",
            server.uri()
        );
        let specs: Vec<SourceSpec> = serde_yaml::from_str(&text).unwrap();
        (server, validate(specs).unwrap())
    }

    fn block(&self, on: bool) {
        self.blocks.store(on, Ordering::SeqCst);
    }
}

/// Fires above 5.
fn query(text: &str) -> Signal {
    Signal::Prometheus(PrometheusSignal {
        source: "main".to_owned(),
        query: PromQuery::parse(text).unwrap(),
        threshold: Some(Threshold::Above(Quantity::parse("5").unwrap())),
        reduce: None,
    })
}

/// A policy that has fired for so many seconds.
fn put(host: &Memory, name: &str, fires_for: i64, blocked: bool) {
    put_target(host, name, &[NOWHERE.to_owned()]);
    let mut view = policy(name, name, |policy| {
        policy.signal = query("fragmented");
        policy.interval = SignedDuration::from_secs(1);
        if blocked {
            policy.blockers = vec![Blocker {
                name: "upgrade".to_owned(),
                signal: query("upgrade"),
                no_data: OnNoData::Block,
            }];
        }
    });
    view.state.firing_since = Some(now() - SignedDuration::from_secs(fires_for));
    host.views.put_policy(Arc::new(view));
}

fn says(host: &Memory, name: &str, reason: Reason) -> bool {
    let view = host.views.policy(&on(name, name)).unwrap();
    let decision = view.state.decision.as_ref();
    decision.is_some_and(|note| note.reason == reason)
}

fn one_an_hour() -> Limits {
    Limits {
        runs_per_hour: NonZeroU32::new(1),
        ..Limits::default()
    }
}

/// The policy `old` that its blocker holds back at the second look.
struct Held {
    answers: Answers,
    host: Arc<Memory>,
    working: Working,
    _server: MockServer,
}

async fn held() -> Held {
    let answers = Answers::default();
    answers.block(true);
    let (server, sources) = answers.serve().await;
    let host = Memory::new();
    host.ends_at_once.store(true, Ordering::SeqCst);
    put(&host, "old", 600, true);
    let working = Working::with(&host, one_an_hour(), sources);
    host.until("the second look to hold it back", |host| {
        says(host, "old", Reason::Blocked)
    })
    .await;
    Held {
        answers,
        host,
        working,
        _server: server,
    }
}

/// T84: the answer as of the tick let it pass, the one in its turn does not. What it had been
/// given is given back, or its own later run would be one too many.
#[tokio::test(flavor = "multi_thread")]
async fn t84_a_blocker_that_turns_on_in_line_holds_the_run_back_until_it_ends() {
    let Held {
        answers,
        host,
        working,
        _server,
    } = held().await;
    assert!(answers.asked.load(Ordering::SeqCst) >= 2);
    assert_eq!(host.made(), 0);
    let view = host.views.policy(&on("old", "old")).unwrap();
    assert!(view.state.blocked.is_some());
    let since = view.state.firing_since;

    answers.block(false);
    host.until("the run", |host| host.made() == 1).await;
    assert_eq!(host.heard().made_for[0].0, since, "of the same firing");
    working.stop().await;
}

/// T84: who is held back in its turn keeps neither the place nor the turn from others.
#[tokio::test(flavor = "multi_thread")]
async fn t84_the_next_in_line_gets_the_turn_of_one_that_is_blocked() {
    let Held {
        answers,
        host,
        working,
        _server,
    } = held().await;
    put(&host, "young", 10, false);
    host.until("the run of the other one", |host| host.made() == 1)
        .await;
    assert_eq!(host.heard().made_for[0].1.name, "young");
    assert!(says(&host, "old", Reason::Blocked));

    answers.block(false);
    host.until("it to wait for the hour to be over", |host| {
        says(host, "old", Reason::CreationLimited)
    })
    .await;
    assert_eq!(host.made(), 1);
    working.stop().await;
}
