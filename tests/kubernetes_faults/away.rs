//! The API server goes away while runs and policies are at different points.
//!
//! One scene for each point; the fault comes to all of them at once. Nobody ends, nothing is begun
//! that could not be recorded, and afterwards everything goes on from where it was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use defragd::core::name;
use defragd_harness::{Error, Etcd, Fault, Kube, KubeApi, eventually};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::support::{
    Replica, Scene, members, outcomes, own_api, play, policy, run, shared_api, time,
};

const MINUTE: Duration = Duration::from_secs(60);
/// Where things are when the API goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// The signal fires, and has not for long enough.
    Holding,
    /// The run may not begin, because a member is away.
    Pending,
    /// A member has finished, and its answer is on its way.
    InTurn,
    /// A member is done, and the next is about to begin.
    BetweenTurns,
    /// A run has ended.
    CoolingDown,
}

const POINTS: [Point; 5] = [
    Point::Holding,
    Point::Pending,
    Point::InTurn,
    Point::BetweenTurns,
    Point::CoolingDown,
];

/// A scene at its point.
struct Act {
    point: Point,
    scene: Scene,
    replicas: [Replica; 2],
    /// How long the signal has to hold.
    hold: &'static str,
    /// What its policy remembered when the fault came.
    before: Value,
}

impl Act {
    /// Brings a scene of its own to the point.
    async fn begin(
        api: Arc<KubeApi>,
        story: &str,
        point: Point,
        hold: &'static str,
    ) -> Result<Self, Error> {
        let name = format!("{story}-{point:?}").to_lowercase();
        let etcd = match point {
            Point::Holding | Point::CoolingDown => Etcd::default().members(1),
            Point::Pending | Point::InTurn | Point::BetweenTurns => Etcd::default().proxied(),
        };
        let scene = Scene::set(api, &name, etcd).await?;
        let (a, b) = scene.replicas().await?;
        Ok(Self {
            point,
            scene,
            replicas: [a, b],
            hold,
            before: Value::Null,
        })
    }

    async fn reach(&mut self) -> Result<(), Error> {
        let scene = &self.scene;
        match self.point {
            Point::Holding => {
                scene
                    .apply(&[policy("p", &json!({ "for": self.hold }))])
                    .await?;
                self.before = scene.until_decided("p", "HoldingFor").await?;
            }
            Point::CoolingDown => {
                let spec = json!({ "backoff": { "minReclaim": "1" } });
                scene.apply(&[policy("p", &spec)]).await?;
                self.before = scene.until_decided("p", "CoolingDown").await?;
            }
            Point::Pending => {
                scene.cluster.pause(2)?;
                scene.apply(&[run("by-hand", &json!({}))]).await?;
                let waits = |run: &Value| run["status"]["gate"]["reason"] == "MemberUnreachable";
                scene
                    .until_runs("a closed gate", |runs| runs.iter().any(waits))
                    .await?;
            }
            Point::InTurn => {
                scene.set_members(Fault::Delay(Duration::from_secs(1)));
                scene.apply(&[run("by-hand", &json!({}))]).await?;
                scene.until_intent().await?;
                scene.until_finished(1.0).await?;
                scene.set_members(Fault::HoldAnswers);
            }
            Point::BetweenTurns => {
                scene.set_members(Fault::Delay(Duration::from_millis(250)));
                scene.apply(&[run("by-hand", &json!({}))]).await?;
                scene
                    .until_runs("a member to be done", |runs| {
                        runs.iter()
                            .any(|run| outcomes(run).contains(&"Defragmented"))
                    })
                    .await?;
            }
        }
        Ok(())
    }

    fn set(&self, leader: Fault, follower: Fault) {
        self.replicas[0].proxy.set(leader);
        self.replicas[1].proxy.set(follower);
    }

    /// What would open the way for something that nobody could record.
    fn tempt(&self) -> Result<(), Error> {
        match self.point {
            Point::Pending => self.scene.cluster.resume(2),
            Point::InTurn | Point::BetweenTurns => {
                self.scene.set_members(Fault::Pass);
                Ok(())
            }
            Point::Holding | Point::CoolingDown => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.replicas.iter().try_for_each(Replica::check)
    }

    /// Nothing has begun that is not on record. (`scene` has its own way to the API.)
    async fn nothing_is_unrecorded(&self) -> Result<(), Error> {
        let done: f64 = self.scene.cluster.defragmentations().await?.iter().sum();
        let runs = self.scene.runs().await?;
        let recorded = runs.iter().flat_map(outcomes).filter(|o| *o != "Pending");
        let recorded = recorded.count();
        println!("{:?}: {done} finished, {recorded} on record", self.point);
        assert!(done <= recorded as f64, "{:?}: {runs:#?}", self.point);
        match self.point {
            Point::Holding => assert!(runs.is_empty(), "{runs:#?}"),
            Point::Pending => assert_eq!(recorded, 0, "{runs:#?}"),
            Point::InTurn => assert_eq!(recorded, 1, "{runs:#?}"),
            Point::BetweenTurns => assert!((1..=2).contains(&recorded), "{runs:#?}"),
            Point::CoolingDown => assert_eq!(recorded, 1, "{runs:#?}"),
        }
        Ok(())
    }

    /// Everything goes on and comes to its end, once.
    async fn end(&self) -> Result<(), Error> {
        let (scene, point) = (&self.scene, self.point);
        let began = Instant::now();
        let done = scene.until_complete().await?;
        println!("{point:?}: complete {:.1?} later", began.elapsed());
        match point {
            Point::Holding => {
                let since = time(&self.before["firingSince"]);
                let stored = scene.object("etcddefragpolicies", "p").await?;
                let text = |pointer| stored.pointer(pointer).and_then(Value::as_str);
                let uid = text("/metadata/uid").unwrap_or_default();
                let cluster = format!("{}/demo", text("/metadata/namespace").unwrap_or_default());
                let wanted = name::of_episode("p", uid, &cluster, since, None);
                assert_eq!(done["metadata"]["name"], wanted, "{done:#}");
            }
            Point::CoolingDown => {
                scene.until_renewed(3).await?;
                let after = scene.remembered("p").await?;
                for field in ["nextEligibleTime", "lastRun", "resting"] {
                    assert!(!self.before[field].is_null(), "{:#}", self.before);
                    assert_eq!(after[field], self.before[field], "{field}");
                }
                scene.until_complete().await?;
            }
            Point::Pending | Point::InTurn | Point::BetweenTurns => {}
        }
        let each = vec![1.0; scene.cluster.members().len()];
        assert_eq!(scene.cluster.defragmentations().await?, each, "{done:#}");
        assert!(
            members(&done).all(|m| m["outcome"] == "Defragmented"),
            "{done:#}"
        );
        self.check()
    }
}

async fn begin(api: &Arc<KubeApi>, story: &str, hold: &'static str) -> Result<Vec<Act>, Error> {
    try_join_all(POINTS.map(|point| Act::begin(api.clone(), story, point, hold))).await
}

/// R25, T49: neither replica reaches the API for a minute, one because its connections are cut, the
/// other because nothing is answered.
#[test]
fn the_api_is_out_of_reach_for_a_minute() -> Result<(), Error> {
    play(async {
        let mut acts = begin(&shared_api().await?, "minute", "50s").await?;
        // Each is cut off at its own moment.
        let stories = acts.iter_mut().enumerate().map(async |(i, act)| {
            act.reach().await?;
            if i % 2 == 0 {
                act.set(Fault::BlackHole, Fault::Cut);
            } else {
                act.set(Fault::Cut, Fault::BlackHole);
            }
            act.tempt()?;
            let began = Instant::now();
            eventually(MINUTE * 2, "a minute to pass", async || {
                act.check().map_err(|e| e.to_string())?;
                (began.elapsed() >= MINUTE)
                    .then_some(())
                    .ok_or("not yet".to_owned())
            })
            .await?;
            act.nothing_is_unrecorded().await?;
            act.set(Fault::Pass, Fault::Pass);
            act.end().await
        });
        try_join_all(stories).await.map(drop)
    })
}

/// The API server is killed and started again.
#[test]
fn the_api_server_is_restarted() -> Result<(), Error> {
    play(async {
        let api = own_api(Kube::default()).await?;
        let mut acts = begin(&api, "restart", "15s").await?;
        // Two of them pass by themselves.
        let (passing, lasting) = acts.iter_mut().partition::<Vec<_>, _>(|act| {
            matches!(act.point, Point::BetweenTurns | Point::Holding)
        });
        try_join_all(lasting.into_iter().map(Act::reach)).await?;
        try_join_all(passing.into_iter().map(Act::reach)).await?;
        api.kill_api_server()?;
        acts.iter().try_for_each(Act::tempt)?;
        api.start_api_server().await?;
        try_join_all(acts.iter().map(Act::end)).await.map(drop)
    })
}
