//! One replica follows the other.

use std::time::{Duration, Instant};

use defragd::core::name;
use defragd_harness::{Error, Etcd, Fault};
use jiff::Timestamp;
use serde_json::json;

use crate::support::{
    Scene, TAKEOVER, WAIT, members, outcomes, play, policy, run, shared_api, time,
};

/// An orderly stop lets go of the lease; the follower looks every two seconds.
const HANDOVER: Duration = Duration::from_secs(6);

/// T42: `for` goes on from what the dead leader stored.
#[test]
fn a_leader_dies_while_the_signal_holds() -> Result<(), Error> {
    play(async {
        let scene = Scene::set(shared_api().await?, "dies-in-for", single()).await?;
        let (a, b) = scene.replicas().await?;
        let patient = policy("patient", &json!({ "for": "22s" }));
        scene.apply(&[patient]).await?;
        let before = scene.until_decided("patient", "HoldingFor").await?;

        a.process.kill()?;
        let took = scene.until_leader("b", TAKEOVER).await?;
        println!("killed while the signal held: the other led after {took:.1?}");
        let after = scene.remembered("patient").await?;
        assert_eq!(after["firingSince"], before["firingSince"], "{after:#}");

        let done = scene.until_complete().await?;
        let since = time(&before["firingSince"]);
        let stored = scene.object("etcddefragpolicies", "patient").await?;
        let uid = stored["metadata"]["uid"].as_str().unwrap_or_default();
        let wanted = name::of_episode("patient", uid, "dies-in-for/demo", since, None);
        assert_eq!(done["metadata"]["name"], wanted, "{done:#}");
        let held = time(&done["status"]["startedAt"]).duration_since(since);
        assert!((22..60).contains(&held.as_secs()), "held for {held:#}");
        assert_eq!(scene.cluster.defragmentations().await?, [1.0]);
        b.check()
    })
}

/// T45: a cooldown goes on, and starts nothing.
#[test]
fn a_leader_dies_in_the_cooldown() -> Result<(), Error> {
    play(async {
        let scene = Scene::set(shared_api().await?, "dies-in-cooldown", single()).await?;
        let (a, b) = scene.replicas().await?;
        scene
            .apply(&[policy(
                "eager",
                &json!({ "backoff": { "minReclaim": "1" } }),
            )])
            .await?;
        let before = scene.until_decided("eager", "CoolingDown").await?;

        a.process.kill()?;
        let took = scene.until_leader("b", TAKEOVER).await?;
        println!("killed in the cooldown: the other led after {took:.1?}");
        scene.until_renewed(3).await?;
        let after = scene.remembered("eager").await?;
        for field in ["nextEligibleTime", "lastRun", "resting"] {
            assert!(!before[field].is_null(), "{before:#}");
            assert_eq!(after[field], before[field], "{field}");
        }
        scene.until_complete().await?;
        assert_eq!(scene.cluster.defragmentations().await?, [1.0]);
        b.check()
    })
}

/// R18, R75: nobody repeats a call whose answer died with the leader.
#[test]
fn a_leader_dies_with_a_member_in_its_turn() -> Result<(), Error> {
    play(async {
        let scene = Scene::set(
            shared_api().await?,
            "dies-in-turn",
            Etcd::default().proxied(),
        )
        .await?;
        let (a, b) = scene.replicas().await?;
        scene.set_members(Fault::Delay(Duration::from_millis(500)));
        scene.apply(&[run("by-hand", &json!({}))]).await?;
        scene.until_intent().await?;
        scene.until_finished(1.0).await?;
        // The member has finished, and its answer is on its way.
        a.process.kill()?;
        let stored = scene.runs().await?;
        assert!(outcomes(&stored[0]).contains(&"InProgress"), "{stored:#?}");
        scene.set_members(Fault::Pass);
        let took = scene.until_leader("b", TAKEOVER).await?;
        println!("killed in a member's turn: the other led after {took:.1?}");
        let done = scene.until_complete().await?;
        assert_eq!(
            scene.cluster.defragmentations().await?,
            [1.0; 3],
            "{done:#}"
        );
        assert!(
            members(&done).all(|m| m["outcome"] == "Defragmented" && m["attempts"] == 1),
            "{done:#}"
        );
        b.check()
    })
}

/// An orderly stop records the answer that it waited for, and hands over at once.
#[test]
fn a_leader_that_is_stopped_in_order_is_followed_at_once() -> Result<(), Error> {
    play(async {
        let scene = Scene::set(shared_api().await?, "stopped", Etcd::default().proxied()).await?;
        let (a, b) = scene.replicas().await?;
        scene.set_members(Fault::Delay(Duration::from_millis(250)));
        scene.apply(&[run("by-hand", &json!({}))]).await?;
        scene.until_intent().await?;
        let began = Instant::now();
        let ended = a.process.stop().await?;
        assert!(
            ended.is_some_and(|status| status.success()),
            "{ended:?}: {}",
            a.process.logged()
        );
        let (stopping, handover) = (began.elapsed(), scene.until_leader("b", HANDOVER).await?);
        println!("stopped in order within {stopping:.1?}; the other led {handover:.1?} after that");
        scene.set_members(Fault::Pass);
        let done = scene.until_complete().await?;
        assert_eq!(
            scene.cluster.defragmentations().await?,
            [1.0; 3],
            "{done:#}"
        );
        b.check()
    })
}

/// T50: a follower whose way was cut knows nothing of a run that began meanwhile. When it leads, it
/// looks before it makes one of its own.
#[test]
fn a_follower_that_was_cut_off_begins_with_what_is_stored() -> Result<(), Error> {
    play(async {
        let scene = Scene::set(shared_api().await?, "cut-off", Etcd::default().proxied()).await?;
        let (a, b) = scene.replicas().await?;
        scene
            .apply(&[policy("p", &json!({ "for": "10s" }))])
            .await?;
        scene.until_decided("p", "HoldingFor").await?;
        b.proxy.set(Fault::Cut);
        scene
            .until(WAIT, "the follower to notice", async || {
                let log = b.process.logged();
                log.contains("unable to watch").then_some(()).ok_or(log)
            })
            .await?;
        scene.set_members(Fault::Delay(Duration::from_millis(500)));
        scene.apply(&[run("by-hand", &json!({}))]).await?;
        scene.until_finished(1.0).await?;
        // The follower must not come too late for its own run.
        scene.set_members(Fault::HoldAnswers);
        scene
            .until(WAIT, "the time of the policy to have come", async || {
                let seen = scene.remembered("p").await.map_err(|e| e.to_string())?;
                let since = time(&seen["firingSince"]);
                let held = Timestamp::now().duration_since(since);
                (held.as_secs() >= 10).then_some(()).ok_or(held.to_string())
            })
            .await?;
        let ended = a.process.stop().await?;
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        scene.set_members(Fault::Pass);
        b.proxy.set(Fault::Pass);
        scene.until_leader("b", TAKEOVER).await?;
        scene.until_decided("p", "CoolingDown").await?;
        let done = scene.until_complete().await?;
        assert_eq!(done["metadata"]["name"], "by-hand", "{done:#}");
        assert_eq!(
            scene.cluster.defragmentations().await?,
            [1.0; 3],
            "{done:#}"
        );
        b.check()
    })
}

fn single() -> Etcd {
    Etcd::default().members(1)
}
