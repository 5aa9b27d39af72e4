//! Clocks that are apart from the API server's.

use defragd_harness::{Error, Etcd, servers};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Scene, TAKEOVER, WAIT, play, policy, run, shared_api, time};

/// S35: one replica is ten minutes ahead of the API server, the other ten minutes behind. Who leads is
/// a matter of time that passes, not of what a clock shows; and what the one recorded in the future of
/// the other does it no harm.
#[test]
fn clocks_that_are_ten_minutes_off_elect_a_leader_and_finish_runs() -> Result<(), Error> {
    play(async {
        let scene = Scene::set(shared_api().await?, "clocks", Etcd::default().members(1)).await?;
        let library = &servers::faketime().await?;
        let replica = |name, offset: &'static str| {
            scene.replica_as(name, move |controller| {
                controller
                    .env("LD_PRELOAD", library)
                    .env("FAKETIME", offset)
                    // Time passes as it does; only what the wall clock shows is off.
                    .env("DONT_FAKE_MONOTONIC", "1")
            })
        };
        let ahead = replica("a", "+10m").await?;
        scene.until_leader("a", WAIT).await?;
        let behind = replica("b", "-10m").await?;
        let spec = json!({ "for": "3s", "backoff": { "minReclaim": "1" } });
        scene.apply(&[policy("p", &spec)]).await?;
        let first = scene.until_complete().await?;
        let before = scene.until_decided("p", "CoolingDown").await?;
        let created: jiff::Timestamp =
            crate::support::time(&first["metadata"]["creationTimestamp"]);
        let ended = crate::support::time(&first["status"]["completedAt"]);
        let apart = ended.duration_since(created).as_secs();
        assert!(
            (540..720).contains(&apart),
            "the clock is not off: {first:#}"
        );

        ahead.process.kill()?;
        let took = scene.until_leader("b", TAKEOVER).await?;
        println!("the one that is behind led after {took:.1?}");
        scene.until_renewed(3).await?;
        let after = scene.remembered("p").await?;
        // An end in the future is taken for one just now: the pause is as long as it should be.
        for (remembered, offset) in [(before, 10), (after, -10)] {
            let shown = Timestamp::now() + SignedDuration::from_mins(offset);
            let left = time(&remembered["nextEligibleTime"]).duration_since(shown);
            assert!(
                (55..=60).contains(&left.as_mins()),
                "{left:#}: {remembered:#}"
            );
        }
        scene.apply(&[run("second", &json!({}))]).await?;
        let complete = |run: &Value| run["status"]["phase"] == "Complete";
        scene
            .until_runs("the second run to be complete", |runs| {
                runs.len() == 2 && runs.iter().all(complete)
            })
            .await?;

        ahead.process.start_again().await?;
        behind.process.kill()?;
        let took = scene.until_leader("a", TAKEOVER).await?;
        println!("the one that is ahead led after {took:.1?}");
        scene.apply(&[run("third", &json!({}))]).await?;
        scene
            .until_runs("the third run to be complete", |runs| {
                runs.len() == 3 && runs.iter().all(complete)
            })
            .await?;
        assert_eq!(scene.cluster.defragmentations().await?, [3.0]);
        ahead.check()
    })
}
