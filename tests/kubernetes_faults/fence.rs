//! A leader that was frozen past its lease wakes up and believes that it leads.
//!
//! What it did is read from the API server's audit log, where every replica has a name of its own.

use std::time::Duration;

use defragd_harness::{Error, Etcd, Fault, eventually};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{
    Replica, Scene, TAKEOVER, WAIT, members, outcomes, play, policy, run, shared_api,
};

/// Frozen between the record of an intent and the call: the next leader finds that the call never
/// took place and makes it, and the woken one does not make it again.
#[test]
fn a_leader_frozen_before_a_call_makes_it_no_more() -> Result<(), Error> {
    play(async {
        let scene = Scene::set(
            shared_api().await?,
            "frozen-before-call",
            Etcd::default().proxied(),
        )
        .await?;
        let (a, b) = scene.replicas().await?;
        open_connections(&scene, &a).await?;
        // The gate is closed until the member answers again.
        scene.cluster.pause(2)?;
        scene.apply(&[run("by-hand", &json!({}))]).await?;
        let closed = |run: &Value| run["status"]["gate"]["reason"] == "MemberUnreachable";
        scene
            .until_runs("the closed gate to be shown", |runs| {
                runs.iter().any(closed)
            })
            .await?;

        a.proxy.set(Fault::HoldAnswers);
        scene.cluster.resume(2)?;
        scene.until_intent().await?;
        // It waits for the answer to what it has just stored.
        a.process.pause()?;
        a.proxy.set(Fault::Pass);
        assert_eq!(scene.cluster.defragmentations().await?, [0.0; 3]);

        let took = scene.until_leader("b", TAKEOVER).await?;
        let done = scene.until_complete().await?;
        assert_eq!(
            scene.cluster.defragmentations().await?,
            [1.0; 3],
            "{done:#}"
        );
        let attempts: Vec<_> = members(&done).map(|m| m["attempts"].clone()).collect();
        println!("frozen before a call: the other led after {took:.1?}, attempts {attempts:?}");

        wake(&scene, &a).await?;
        assert_eq!(scene.cluster.defragmentations().await?, [1.0; 3]);

        // It is as good a leader as any when its turn comes.
        b.process.kill()?;
        scene.until_leader("a", TAKEOVER).await?;
        scene.apply(&[run("second", &json!({}))]).await?;
        scene
            .until_runs("both runs to be complete", |runs| {
                runs.len() == 2 && runs.iter().all(|run| run["status"]["phase"] == "Complete")
            })
            .await?;
        assert_eq!(scene.cluster.defragmentations().await?, [2.0; 3]);
        a.check()
    })
}

/// Frozen with the record of an outcome on its way: it arrives when the next leader has long been
/// at work, and is refused.
#[test]
fn a_record_that_arrives_too_late_is_refused() -> Result<(), Error> {
    play(async {
        let scene = Scene::set(
            shared_api().await?,
            "frozen-in-write",
            Etcd::default().proxied(),
        )
        .await?;
        // The requests themselves are logged too: one of them is waited for.
        let a = scene
            .replica(
                "a",
                &["--log-level", "info,kube_client::client::builder=debug"],
            )
            .await?;
        scene.until_leader("a", WAIT).await?;
        let b = scene.replica("b", &[]).await?;
        open_connections(&scene, &a).await?;
        scene.set_members(Fault::Delay(Duration::from_millis(500)));
        scene.apply(&[run("by-hand", &json!({}))]).await?;
        scene.until_finished(1.0).await?;
        // The member's answer is on its way, and what it says is not to be stored any more.
        a.proxy.set(Fault::BlackHole);
        let path = format!("{}/by-hand/status", scene.path("etcddefrags"));
        let sent = || {
            let log = a.process.logged();
            log.lines()
                .filter(|line| {
                    line.contains("requesting")
                        && line.contains("http.method=PATCH")
                        && line.contains(&path)
                })
                .count()
        };
        let before = sent();
        scene
            .until(WAIT, "the outcome to be sent", async || {
                let now = sent();
                (now > before)
                    .then_some(())
                    .ok_or(format!("{now} requests"))
            })
            .await?;
        a.process.pause()?;
        scene.set_members(Fault::Pass);

        let took = scene.until_leader("b", TAKEOVER).await?;
        let done = scene.until_complete().await?;
        assert_eq!(
            scene.cluster.defragmentations().await?,
            [1.0; 3],
            "{done:#}"
        );

        // While its sender is still frozen, so that nobody calls it off.
        let released = Timestamp::now();
        a.proxy.set(Fault::Pass);
        let late = eventually(WAIT, "the late record to be answered", async || {
            let writes = a.writes(&scene.api).map_err(|e| e.to_string())?;
            let late: Vec<_> = writes.into_iter().filter(|w| w.at >= released).collect();
            if late.iter().any(|write| write.is_status_of("by-hand")) {
                Ok(late)
            } else {
                Err(format!("{late:?}"))
            }
        })
        .await?;
        println!("frozen in a write: the other led after {took:.1?}, late requests: {late:?}");
        assert!(late.iter().all(|write| !write.is_done()), "{late:#?}");
        assert!(late.iter().any(|write| write.code == 409), "{late:#?}");
        assert_eq!(
            scene.runs().await?,
            std::slice::from_ref(&done),
            "nothing of it is stored"
        );

        wake(&scene, &a).await?;
        assert_eq!(scene.runs().await?, [done]);
        assert_eq!(scene.cluster.defragmentations().await?, [1.0; 3]);
        b.check()
    })
}

/// Makes the leader ask several things at once, so that it has connections to spare: a new one could
/// not be made any more once its way is blocked.
async fn open_connections(scene: &Scene, leader: &Replica) -> Result<(), Error> {
    leader.proxy.set(Fault::Delay(Duration::from_millis(300)));
    let names = ["one", "two", "three", "four", "five", "six"];
    let idle = names.map(|name| policy(name, &json!({ "suspend": true })));
    scene.apply(&idle).await?;
    for name in names {
        scene.until_decided(name, "Suspended").await?;
    }
    leader.proxy.set(Fault::Pass);
    Ok(())
}

/// Wakes the replica and watches it stand by: what it still asks for is refused.
async fn wake(scene: &Scene, frozen: &Replica) -> Result<(), Error> {
    let log = frozen.process.logged().len();
    let woken = Timestamp::now();
    frozen.process.resume()?;
    scene
        .until(WAIT, "the woken replica to stand by", async || {
            let said = &frozen.process.logged()[log..];
            let led = frozen.process.metric("defragd_leader").await;
            match led {
                Ok(Some(0.0)) if said.contains("b_") => Ok(()),
                other => Err(format!("{other:?}: {said}")),
            }
        })
        .await?;
    // Time in which it could have done something wrong.
    scene.until_renewed(3).await?;
    let writes = frozen.writes(&scene.api)?;
    let after: Vec<_> = writes.into_iter().filter(|w| w.at >= woken).collect();
    println!("asked for after it woke: {after:?}");
    assert!(after.iter().all(|write| !write.is_done()), "{after:#?}");
    let runs = scene.runs().await?;
    assert!(
        runs.iter().all(|run| outcomes(run) == ["Defragmented"; 3]),
        "{runs:#?}"
    );
    frozen.check()
}
