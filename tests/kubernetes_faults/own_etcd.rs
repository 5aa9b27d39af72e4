//! The etcd that is swept is the one behind the very API server that keeps the objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use defragd_harness::{Error, Etcd, Kube, KubeApi};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::support::{MIB, Scene, WAIT, own_api, play, policy};

/// How often somebody asks for the runs.
const PERIOD: Duration = Duration::from_millis(200);
/// What is left of it after the sweep, and has to be copied.
const LIVE: u64 = 192 * MIB;
const GARBAGE: u64 = 512 * MIB;

/// T49, R25: requests wait while a member stands still; defragd waits too, keeps its plan and repeats
/// nothing. `docs/benchmarks.md` has what was measured.
#[test]
fn the_api_servers_own_etcd_is_swept() -> Result<(), Error> {
    play(async {
        let cluster = Etcd::default().raft_log_entries(100).start().await?;
        // Before there is a watch that a compaction would end.
        cluster.fragment(LIVE + GARBAGE, LIVE).await?;
        let api = own_api(Kube::default().on_etcd(&cluster)).await?;
        let scene = Scene::around(api.clone(), "own-etcd", cluster).await?;
        let (a, b) = scene.replicas().await?;
        let term = scene.cluster.term().await?;

        let calm = User::begin(&api);
        calm.has_asked(10).await?;
        let calm = calm.end().await?;
        let user = User::begin(&api);
        let spec = json!({ "signal": { "probe": { "rule": { "freeSpaceAbove": "256Mi" } } } });
        scene.apply(&[policy("greedy", &spec)]).await?;
        scene.until_intent().await?;
        let sweeping = Instant::now();
        let done = scene.until_complete().await?;
        let swept = Instant::now();
        user.has_asked(5).await?;
        let asked = user.end().await?;

        println!("kubectl get before the sweep: {calm}\nkubectl get during the sweep: {asked}");
        println!("{:#}", done["status"]["members"]);
        let during = |(from, to, answered): &(Instant, Instant, bool)| {
            *answered && *from > sweeping && *to < swept
        };
        assert!(asked.all.iter().any(during), "nobody was answered: {asked}");
        for (replica, name) in [(&a, "a"), (&b, "b")] {
            let leads = replica.process.metric("defragd_leader").await?;
            println!("replica {name}: defragd_leader {leads:?}");
            replica.check()?;
        }
        println!(
            "terms of raft passed: {}; transfers {}",
            scene.cluster.term().await? - term,
            done["status"]["leaderTransfers"]
        );
        assert_eq!(
            scene.cluster.defragmentations().await?,
            [1.0; 3],
            "{done:#}"
        );
        let reclaimed = done["status"]["reclaimedBytes"].as_u64().unwrap_or(0);
        assert!(reclaimed > 3 * GARBAGE / 4 * 3, "{done:#}");
        scene.until_decided("greedy", "SignalNotFiring").await?;
        for reason in ["RunCreated", "SweepComplete"] {
            until_told_once(&scene, reason).await?;
        }
        Ok(())
    })
}

/// Waits until the event is stored, and no other for the same thing.
async fn until_told_once(scene: &Scene, reason: &str) -> Result<(), Error> {
    let path = "/apis/events.k8s.io/v1/namespaces/own-etcd/events";
    let what = format!("the event {reason}");
    scene
        .until(WAIT, &what, async || {
            let list = scene.api.get(path).await.map_err(|e| e.to_string())?;
            let events = list.unwrap_or_default()["items"].clone();
            let events = events.as_array().into_iter().flatten();
            let told: Vec<_> = events.filter(|event| event["reason"] == reason).collect();
            match told.as_slice() {
                [event] if event["series"].is_null() => Ok(()),
                told => Err(format!("{told:?}")),
            }
        })
        .await
}

/// Somebody who asks `kubectl get` again and again, with little patience.
struct User {
    enough: Arc<AtomicBool>,
    count: tokio::sync::watch::Receiver<usize>,
    asking: tokio::task::JoinHandle<Answers>,
}

/// How it was answered.
#[derive(Default)]
struct Answers {
    /// When each was asked, when it was answered, and whether with success.
    all: Vec<(Instant, Instant, bool)>,
}

impl User {
    fn begin(api: &Arc<KubeApi>) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let (counted, count) = tokio::sync::watch::channel(0);
        let (api, stop) = (api.clone(), enough.clone());
        let asking = tokio::spawn(async move {
            let mut answers = Answers::default();
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            while !stop.load(Ordering::Relaxed) {
                ticks.tick().await;
                let asked = Instant::now();
                let get = [
                    "get",
                    "etcddefrags",
                    "--all-namespaces",
                    "--request-timeout=2s",
                ];
                let answered = api.kubectl(&get).await.is_ok();
                answers.all.push((asked, Instant::now(), answered));
                counted.send_modify(|count| *count += 1);
            }
            answers
        });
        Self {
            enough,
            count,
            asking,
        }
    }

    /// Waits until so many more questions have been answered.
    async fn has_asked(&self, more: usize) -> Result<(), Error> {
        let mut count = self.count.clone();
        let before = *count.borrow();
        let asked = count.wait_for(|count| *count >= before + more).await;
        asked.map(drop).map_err(|_| stopped())
    }

    async fn end(self) -> Result<Answers, Error> {
        self.enough.store(true, Ordering::Relaxed);
        self.asking.await.map_err(|_| stopped())
    }
}

fn stopped() -> Error {
    Error::Timeout {
        what: "kubectl get".to_owned(),
        waited: Duration::ZERO,
        last: "the one who asked is gone".to_owned(),
    }
}

impl std::fmt::Display for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let failed = self.all.iter().filter(|(_, _, answered)| !answered).count();
        let mut times: Vec<Duration> = self.all.iter().map(|(from, to, _)| *to - *from).collect();
        times.sort();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        // How long somebody who began at that moment waited for the first answer.
        let waits = self
            .all
            .iter()
            .enumerate()
            .filter_map(|(i, (asked, _, _))| {
                let next = self.all[i..].iter().find(|(_, _, answered)| *answered)?;
                Some(next.1 - *asked)
            });
        write!(
            f,
            "{} times, {failed} failed, median {median:.2?}, longest wait for an answer {:.2?}",
            self.all.len(),
            waits.max().unwrap_or_default()
        )
    }
}
