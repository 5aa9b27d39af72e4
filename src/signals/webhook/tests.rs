//! Deliveries by HTTP into a store in memory, which can be made to fail as no real one does on cue.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::core::alert::{Matcher, Matchers};
use crate::core::signal::SignalState;
use crate::signals::Sources;
use crate::signals::config::{SourceSpec, validate};

mod held;

/// Keeps by version and no more than a ConfigMap holds, as the Kubernetes API does.
#[derive(Debug, Default)]
struct Memory {
    kept: Mutex<BTreeMap<String, (u64, String)>>,
    broken: std::sync::atomic::AtomicBool,
    conflicts: AtomicU64,
    loads: AtomicU64,
}

impl AlertStore for Memory {
    fn load<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Kept, StoreError>> {
        async move {
            self.loads.fetch_add(1, SeqCst);
            // Others get their turn between a look and a write.
            let kept = self.kept.lock().unwrap().get(source).cloned();
            tokio::task::yield_now().await;
            Ok(kept.map_or_else(Kept::default, |(version, content)| Kept {
                content: Some(content),
                version: Some(version.to_string()),
            }))
        }
        .boxed()
    }

    fn save<'a>(
        &'a self,
        source: &'a str,
        content: String,
        version: Option<String>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            if self.broken.load(SeqCst) {
                return Err(StoreError::Failed("disk full".to_owned()));
            }
            if content.len() > 1 << 20 {
                return Err(StoreError::Failed("too long".to_owned()));
            }
            let mut kept = self.kept.lock().unwrap();
            let is = kept.get(source).map(|(version, _)| *version);
            if is.map(|version| version.to_string()) != version {
                self.conflicts.fetch_add(1, SeqCst);
                return Err(StoreError::Conflict);
            }
            kept.insert(source.to_owned(), (is.unwrap_or(0) + 1, content));
            Ok(())
        }
        .boxed()
    }
}

/// One replica: its door, and what it reads.
struct Replica {
    sources: Arc<Sources>,
    url: String,
    _dir: TempDir,
}

impl Replica {
    async fn new<S: AlertStore>(store: Option<&Arc<S>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "open sesame\n").unwrap();
        let sources = Arc::new(sources(dir.path()));
        if let Some(store) = store {
            sources.keep_alerts_in(&(store.clone() as Arc<dyn AlertStore>));
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "http://{}/api/v1/alerts/pushed",
            listener.local_addr().unwrap()
        );
        let pages = router(sources.clone());
        tokio::spawn(async move { axum::serve(listener, pages).await });
        Replica {
            sources,
            url,
            _dir: dir,
        }
    }

    async fn post(&self, body: impl Into<reqwest::Body>) -> (u16, String) {
        self.post_as("Bearer open sesame", &self.url, body).await
    }

    async fn post_as(
        &self,
        header: &str,
        url: &str,
        body: impl Into<reqwest::Body>,
    ) -> (u16, String) {
        let request = reqwest::Client::new()
            .post(url)
            .header("Authorization", header);
        let answer = request.body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn read(&self) -> Reading {
        let signal = AlertSignal {
            source: "pushed".to_owned(),
            matchers: Matchers::new(vec![Matcher::parse("alertname=x").unwrap()]),
            silenced: false,
            inhibited: false,
        };
        self.sources.alert(&signal, Timestamp::now(), true).await
    }

    fn counted(&self, delivery: Delivery) -> u64 {
        let stats = self.sources.deliveries();
        let of = |source: &str| stats[source].deliveries.get(&delivery).copied();
        of("pushed").or(of("")).unwrap_or_default()
    }
}

fn sources(dir: &Path) -> Sources {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let spec = json!([{ "name": "pushed", "webhook": {
        "bearerTokenFile": dir.join("token"), "maxBodyBytes": 64 << 10,
    } }]);
    let specs: Vec<SourceSpec> = serde_json::from_value(spec).unwrap();
    Sources::from_config(validate(specs).unwrap()).unwrap()
}

fn message(status: &str, instance: &str, began: SignedDuration) -> String {
    let at = (Timestamp::now() - began).to_string();
    let ended = if status == "resolved" {
        Timestamp::now().to_string()
    } else {
        "0001-01-01T00:00:00Z".to_owned()
    };
    json!({
        "version": "4", "status": status, "truncatedAlerts": 0,
        "alerts": [{
            "status": status, "labels": { "alertname": "x", "instance": instance },
            "annotations": {}, "startsAt": at, "endsAt": ended,
        }],
    })
    .to_string()
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// T80, T81: what one replica took, another knows; a repetition changes nothing, an end starts nothing.
#[tokio::test]
async fn t80_every_replica_takes_deliveries_and_all_know_them() {
    let store = Arc::new(Memory::default());
    let (leader, other) = (
        Replica::new(Some(&store)).await,
        Replica::new(Some(&store)).await,
    );
    assert_eq!(leader.read().await.state, SignalState::NoData);
    let firing = message("firing", "a", HOUR);
    assert_eq!(other.post(firing.clone()).await, (200, String::new()));
    assert_eq!(
        leader.post(firing.clone()).await.0,
        200,
        "the other Alertmanager"
    );
    assert_eq!(other.post(firing).await.0, 200, "a repetition");
    let reading = leader.read().await;
    assert_eq!(
        (reading.state, reading.value),
        (SignalState::Firing, Some(1.0))
    );
    let resolved = message("resolved", "a", SignedDuration::ZERO);
    assert_eq!(leader.post(resolved).await.0, 200);
    assert_eq!(leader.read().await.state, SignalState::NotFiring);
    let stats = leader.sources.deliveries();
    assert_eq!(stats["pushed"].alerts["resolved"], 1);
    assert_eq!(stats["pushed"].alerts["repeated"], 1);
    assert_eq!(other.sources.deliveries()["pushed"].alerts["new"], 1);
}

/// T80: two replicas that write at the same moment lose nothing.
#[tokio::test(flavor = "multi_thread")]
async fn t80_deliveries_at_one_moment_are_all_kept() {
    let store = Arc::new(Memory::default());
    let replicas = [
        Replica::new(Some(&store)).await,
        Replica::new(Some(&store)).await,
    ];
    let posts = (0..20).map(|n| {
        let body = message("firing", &n.to_string(), HOUR);
        replicas[n % 2].post(body)
    });
    let answers = join_all(posts).await;
    assert!(answers.iter().all(|(code, _)| *code == 200), "{answers:?}");
    for replica in &replicas {
        tokio::time::sleep(FRESH).await;
        assert_eq!(replica.read().await.value, Some(20.0));
    }
}

/// T82: each refusal has its code, is counted, says why, and changes nothing.
#[tokio::test]
async fn t82_what_is_refused_is_counted_and_changes_nothing() {
    let store = Arc::new(Memory::default());
    let replica = Replica::new(Some(&store)).await;
    let good = message("firing", "a", HOUR);
    let changed = |change: fn(&mut Value)| {
        let mut value: Value = serde_json::from_str(&message("firing", "a", HOUR)).unwrap();
        change(&mut value);
        value.to_string()
    };
    let huge = vec![b'x'; 2 << 20];
    for (header, body, code, delivery, words) in [
        (
            "Bearer wrong",
            good.clone().into_bytes(),
            401,
            Delivery::Unauthorized,
            "missing or wrong",
        ),
        (
            "Basic b3Blbg==",
            good.clone().into_bytes(),
            401,
            Delivery::Unauthorized,
            "missing or wrong",
        ),
        (
            "Bearer open sesame",
            huge,
            413,
            Delivery::TooLarge,
            "raise maxBodyBytes",
        ),
        (
            "Bearer open sesame",
            b"{".to_vec(),
            400,
            Delivery::Malformed,
            "not a message",
        ),
        (
            "Bearer open sesame",
            changed(|v| v["version"] = json!("3")).into_bytes(),
            400,
            Delivery::WrongVersion,
            "wanted \"4\"",
        ),
        (
            "Bearer open sesame",
            changed(|v| v["truncatedAlerts"] = json!(2)).into_bytes(),
            422,
            Delivery::Truncated,
            "max_alerts",
        ),
        (
            "Bearer open sesame",
            changed(|v| v["alerts"][0]["labels"] = json!({})).into_bytes(),
            400,
            Delivery::Malformed,
            "no labels",
        ),
    ] {
        let before = replica.counted(delivery);
        let (seen, said) = replica.post_as(header, &replica.url, body).await;
        assert_eq!(seen, code, "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(replica.counted(delivery), before + 1, "{delivery:?}");
    }
    let elsewhere = replica.url.replace("pushed", "nobody");
    let (code, _) = replica
        .post_as("Bearer open sesame", &elsewhere, good.clone())
        .await;
    assert_eq!((code, replica.counted(Delivery::UnknownSource)), (404, 1));
    let got = reqwest::get(&replica.url).await.unwrap();
    assert_eq!(got.status().as_u16(), 405);
    assert!(store.kept.lock().unwrap().is_empty());
    assert_eq!(replica.read().await.state, SignalState::NoData);
}

/// T80: what is not stored is not answered with success, and can be delivered again.
#[tokio::test]
async fn t80_success_is_answered_only_once_it_is_stored() {
    let early = Replica::new(None::<&Arc<Memory>>).await;
    let good = message("firing", "a", HOUR);
    assert_eq!(
        early.post(good.clone()).await.0,
        503,
        "there is no store yet"
    );
    assert_eq!(early.read().await.state, SignalState::Error);

    let store = Arc::new(Memory::default());
    let replica = Replica::new(Some(&store)).await;
    store.broken.store(true, SeqCst);
    let (code, said) = replica.post(good.clone()).await;
    assert_eq!(
        (code, replica.counted(Delivery::NotStored)),
        (503, 1),
        "{said}"
    );
    assert_eq!(replica.read().await.state, SignalState::NoData);
    store.broken.store(false, SeqCst);
    tokio::time::sleep(FRESH).await;
    assert_eq!(replica.post(good).await.0, 200);
    assert_eq!(replica.read().await.state, SignalState::Firing);

    store
        .kept
        .lock()
        .unwrap()
        .insert("pushed".to_owned(), (9, "{}".to_owned()));
    tokio::time::sleep(FRESH).await;
    let reading = replica.read().await;
    assert_eq!(
        reading.state,
        SignalState::Error,
        "what cannot be read clears nothing"
    );
    assert!(
        reading.message.contains("remove them to start over"),
        "{}",
        reading.message
    );
}

/// A secret that is gone is no open door.
#[tokio::test]
async fn without_its_secret_nobody_may_deliver() {
    let store = Arc::new(Memory::default());
    let replica = Replica::new(Some(&store)).await;
    std::fs::remove_file(replica._dir.path().join("token")).unwrap();
    let (code, said) = replica.post(message("firing", "a", HOUR)).await;
    assert_eq!((code, replica.counted(Delivery::NoSecret)), (503, 1));
    assert!(
        !said.contains("token"),
        "the path is nothing for a stranger: {said}"
    );
}

/// However many ask at one moment, what is stored is read once, and so is what cannot be used.
#[tokio::test]
async fn who_asks_at_the_same_moment_shares_one_read() {
    let unusable = || (1, "{}".to_owned());
    for (kept, state) in [
        (None, SignalState::NoData),
        (Some(unusable()), SignalState::Error),
    ] {
        let store = Arc::new(Memory::default());
        let stored = kept.map(|kept| ("pushed".to_owned(), kept));
        store.kept.lock().unwrap().extend(stored);
        let replica = Replica::new(Some(&store)).await;
        for reading in join_all((0..50).map(|_| replica.read())).await {
            assert_eq!(reading.state, state, "{}", reading.message);
        }
        // More than one only where this machine stands still for longer than an answer is known.
        let loads = store.loads.load(SeqCst);
        assert!(loads < 5, "{loads} reads");
    }
}

/// What is kept is bounded as it is stored: it fits a ConfigMap whatever the labels are made of, and
/// what does not is said to be too much, not tried for ever.
#[tokio::test]
async fn what_is_stored_fits_whatever_labels_are_made_of() {
    let control: Value = json!({ "x": "\u{1}".repeat(7900) });
    let short: BTreeMap<String, &str> = (0..2000).map(|n| (format!("{n:04}"), "")).collect();
    for labels in [control, json!(short)] {
        let store = Arc::new(Memory::default());
        let replica = Replica::new(Some(&store)).await;
        let fills = async |n: usize| {
            let mut body: Value = serde_json::from_str(&message("firing", "a", HOUR)).unwrap();
            body["alerts"][0]["labels"] = labels.clone();
            body["alerts"][0]["labels"]["n"] = json!(n.to_string());
            let (code, said) = replica.post(body.to_string()).await;
            assert!([200, 507].contains(&code), "{n}: {code} {said}");
            code == 200
        };
        let mut kept = 0;
        while fills(kept).await {
            kept += 1;
        }
        assert_eq!(replica.counted(Delivery::Full), 1);
        assert!(kept > 10, "only {kept} fit");
    }
}

/// An alert with labels that are too long is left out and counted; its neighbours are kept.
#[tokio::test]
async fn one_alert_that_is_too_long_takes_no_other_with_it() {
    let store = Arc::new(Memory::default());
    let replica = Replica::new(Some(&store)).await;
    let mut body: Value = serde_json::from_str(&message("firing", "a", HOUR)).unwrap();
    let mut long = body["alerts"][0].clone();
    long["labels"]["trace"] = json!("x".repeat(9000));
    long["labels"]["alertname"] = json!("chatty\u{202e}");
    let good = body["alerts"][0].clone();
    body["alerts"] = json!([long, good]);
    let (code, said) = replica.post(body.to_string()).await;
    assert_eq!(code, 200, "{said}");
    assert!(
        said.starts_with("1 of 2 alerts are left out, the first of them is \"chatty")
            && said.contains("bytes of labels, at most 8192 are kept"),
        "{said}"
    );
    assert!(!said.contains('\u{202e}'), "{said}");
    let reading = replica.read().await;
    assert_eq!(
        (reading.state, reading.value),
        (SignalState::Firing, Some(1.0))
    );
    let stats = replica.sources.deliveries();
    assert_eq!(stats["pushed"].alerts["too_long"], 1);
    assert_eq!(stats["pushed"].alerts["new"], 1);

    body["alerts"] = json!([long]);
    let (code, said) = replica.post(body.to_string()).await;
    assert_eq!(
        (code, replica.counted(Delivery::Malformed)),
        (400, 1),
        "nothing of it is kept: {said}"
    );
}
