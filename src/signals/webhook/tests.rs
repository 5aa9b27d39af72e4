//! Deliveries by HTTP into a store in memory, which can be made to fail as no real one does on cue.

use std::collections::BTreeMap;
use std::path::Path;

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

/// Keeps by version, as the Kubernetes API does.
#[derive(Debug, Default)]
struct Memory {
    kept: Mutex<BTreeMap<String, (u64, String)>>,
    broken: std::sync::atomic::AtomicBool,
    conflicts: std::sync::atomic::AtomicU64,
}

impl AlertStore for Memory {
    fn load<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Kept, StoreError>> {
        async move {
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
            use std::sync::atomic::Ordering::SeqCst;
            if self.broken.load(SeqCst) {
                return Err(StoreError::Failed("disk full".to_owned()));
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
    async fn new(store: Option<&Arc<Memory>>) -> Self {
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
    use std::sync::atomic::Ordering::SeqCst;
    let early = Replica::new(None).await;
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
