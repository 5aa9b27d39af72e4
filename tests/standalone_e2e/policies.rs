//! Policies that are edited, paused, triggered, and that share a cluster with others.

use std::time::Duration;

use defragd_harness::{Error, Etcd, Prometheus, Status, eventually};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde_json::json;

use crate::support::{MIB, World, is_complete, policy, quiet, run, target, time};

/// T56, T57: what is edited counts at the next evaluation and starts nothing by itself; resuming makes
/// up for nothing.
#[tokio::test]
async fn suspended_paused_and_edited() -> Result<(), Error> {
    let world = World::small().await?;
    world.cluster.fragment(40 * MIB, 2 * MIB).await?;
    let edit = |spec| world.write(&[policy("edited", spec)]);
    world
        .play(&[policy("edited", json!({ "suspend": true }))])
        .await?;
    world
        .until("the suspension", |s| s.decision("edited") == "Suspended")
        .await?;
    let requests = "defragd_source_requests_total{source=\"main\",code=\"200\"}";
    let asked = world.defragd.metric(requests).await?;
    assert_eq!(asked.unwrap_or(0.0), 0.0, "nobody is asked meanwhile");

    let later = Timestamp::now() + SignedDuration::from_hours(1);
    edit(json!({ "pausedUntil": later.to_string() }))?;
    let paused = world
        .until("the pause", |s| s.decision("edited") == "Paused")
        .await?;
    assert!(
        paused.policy("edited")["nextEligibleTime"].is_string(),
        "{paused:#?}"
    );
    assert_eq!(
        paused.policy("edited")["firingSince"],
        json!(null),
        "time in a pause counts for nothing"
    );

    edit(json!({ "signal": quiet() }))?;
    let quiet = world
        .until("the new query", |s| {
            s.decision("edited") == "SignalNotFiring"
        })
        .await?;
    let object = quiet.item("EtcdDefragPolicy", "edited");
    assert_eq!(
        object["status"]["observedGeneration"], object["metadata"]["generation"],
        "{object:#}"
    );
    assert_eq!(quiet.runs().len(), 0, "{quiet:#?}");

    let resumed = Timestamp::now();
    edit(json!({ "for": "2s" }))?;
    let status = world
        .until("the run to end", Status::one_is_complete)
        .await?;
    let began = time(&status.runs()[0]["status"]["startedAt"]);
    assert!(
        began.duration_since(resumed).as_millis() >= 2_000,
        "nothing is made up for: {began}"
    );
    assert_eq!(world.counts().await?, [1.0]);
    Ok(())
}

/// T59: a trigger starts exactly one run, also across a restart; one that stands there from the start
/// is no change.
#[tokio::test]
async fn a_trigger_starts_exactly_one_run() -> Result<(), Error> {
    let world = World::small().await?;
    world.cluster.fragment(40 * MIB, 2 * MIB).await?;
    let triggered = |value: &str| policy("asked", json!({ "signal": quiet(), "trigger": value }));
    world.play(&[triggered("monday")]).await?;
    world
        .until("a quiet signal", |s| {
            s.decision("asked") == "SignalNotFiring"
        })
        .await?;
    assert_eq!(world.after_polls(2.0).await?.runs().len(), 0);

    world.write(&[triggered("tuesday")])?;
    world
        .until("the run to be made", |s| s.runs().len() == 1)
        .await?;
    world.defragd.kill()?;
    world.defragd.start().await?;
    world
        .until("the run to end", Status::one_is_complete)
        .await?;
    assert_eq!(
        world.after_polls(3.0).await?.runs().len(),
        1,
        "the restart triggers nothing"
    );

    // A person's wish passes the cooldown.
    world.write(&[triggered("wednesday")])?;
    let two = |s: &Status| s.runs().len() == 2 && s.runs().into_iter().all(is_complete);
    world.until("the second run to end", two).await?;
    world.defragd.stop().await?;
    world.defragd.start().await?;
    assert_eq!(world.after_polls(3.0).await?.runs().len(), 2);
    assert_eq!(world.counts().await?, [2.0]);
    Ok(())
}

/// T53: two policies that fire at one moment make one run, and both cool down after it.
#[tokio::test]
async fn two_policies_on_one_cluster_make_one_run() -> Result<(), Error> {
    let world = World::small().await?;
    world.cluster.fragment(48 * MIB, 2 * MIB).await?;
    world
        .play(&[
            policy("castor", json!({ "for": "2s" })),
            policy("pollux", json!({ "for": "2s" })),
        ])
        .await?;
    let resting = |s: &Status| {
        ["castor", "pollux"]
            .iter()
            .all(|p| s.decision(p) == "CoolingDown")
    };
    world.until("both to cool down", resting).await?;
    let status = world.after_polls(4.0).await?;
    assert!(status.one_is_complete() && resting(&status), "{status:#?}");
    let last = |policy: &str| status.policy(policy)["lastRun"].clone();
    let (one, other) = (last("castor"), last("pollux"));
    assert_eq!(one["name"], other["name"]);
    assert_eq!(one["finishedAt"], other["finishedAt"]);
    assert_ne!(one["own"], other["own"], "{one} {other}");
    assert_eq!(world.counts().await?, [1.0]);
    Ok(())
}

/// T54: a hand-made run has the cluster first; what it gave back counts for the cooldown.
#[tokio::test]
async fn a_hand_written_run_goes_first_and_counts() -> Result<(), Error> {
    let world = World::small().await?;
    world.cluster.fragment(48 * MIB, 2 * MIB).await?;
    let by_hand = |suspend: bool| run("by-hand", "demo", json!({ "suspend": suspend }));
    world.play(&[by_hand(true)]).await?;
    world
        .until("the run to be known", |s| s.runs().len() == 1)
        .await?;
    world.write(&[by_hand(true), policy("polite", json!({}))])?;
    world
        .until("the policy to wait", |s| {
            s.decision("polite") == "ClusterBusy"
        })
        .await?;
    let status = world.after_polls(3.0).await?;
    assert_eq!(
        (status.runs().len(), status.decision("polite")),
        (1, "ClusterBusy"),
        "{status:#?}"
    );
    assert_eq!(
        world.counts().await?,
        [0.0],
        "a suspended run touches nothing"
    );

    world.write(&[by_hand(false), policy("polite", json!({}))])?;
    let status = world
        .until("the cooldown", |s| s.decision("polite") == "CoolingDown")
        .await?;
    assert!(status.one_is_complete(), "{status:#?}");
    let last = &status.policy("polite")["lastRun"];
    assert_eq!(
        (&last["name"], last["own"].as_bool().unwrap_or(false)),
        (&json!("by-hand"), false),
        "{last}"
    );
    // The file is still there; it must not start again.
    let status = world.after_polls(3.0).await?;
    assert_eq!(status.runs().len(), 1, "{status:#?}");
    assert_eq!(world.counts().await?, [1.0]);
    Ok(())
}

/// Two targets that are one etcd: their runs go one after the other.
#[tokio::test]
async fn two_targets_of_one_etcd_are_one_cluster() -> Result<(), Error> {
    let world = World::new().await?;
    world.cluster.fragment(64 * MIB, 2 * MIB).await?;
    let mut others = world.cluster.endpoints();
    others.reverse();
    let others: Vec<String> = others
        .into_iter()
        .map(|url| url.replace("127.0.0.1", "localhost"))
        .collect();
    world
        .play(&[
            target("alias", &others),
            run("one", "demo", json!({})),
            run("other", "alias", json!({})),
        ])
        .await?;
    let both = |s: &Status| s.runs().len() == 2 && s.runs().into_iter().all(is_complete);
    let status = world.until("both runs to end", both).await?;
    let span = |name: &str| {
        let status = &status.item("EtcdDefrag", name)["status"];
        (time(&status["startedAt"]), time(&status["completedAt"]))
    };
    let (one, other) = (span("one"), span("other"));
    assert!(
        one.1 <= other.0 || other.1 <= one.0,
        "at the same time: {one:?} {other:?}"
    );
    assert_eq!(world.counts().await?, [2.0; 3]);
    Ok(())
}

/// T69, T77, R38, R41: outside the window nothing starts; a declared emergency passes it and says so,
/// and NOSPACE is disarmed.
#[tokio::test]
async fn a_declared_emergency_passes_the_window() -> Result<(), Error> {
    let etcd = Etcd::default().quota_bytes(24 << 20);
    let world = World::of(etcd, Prometheus::default()).await?;
    let cluster = &world.cluster;
    let full = cluster.fill(48 * MIB, 512 << 10).await;
    assert!(matches!(full, Err(Error::Etcd { .. })), "{full:?}");
    eventually(Duration::from_secs(20), "the alarm", async || {
        cluster
            .alarms()
            .await
            .is_ok_and(|alarms| !alarms.is_empty())
    })
    .await?;
    let opens = (Timestamp::now() + SignedDuration::from_hours(6)).to_zoned(TimeZone::UTC);
    let spec = |emergency: bool| {
        let mut spec = json!({
            "windows": [{ "start": opens.strftime("%H:%M").to_string(), "length": "1h", "timeZone": "UTC" }],
        });
        if emergency {
            spec["emergency"] = json!({ "noSpace": true });
        }
        policy("nightly", spec)
    };
    world.play(&[spec(false)]).await?;
    let closed = world
        .until("the window to be missed", |s| {
            s.decision("nightly") == "OutsideWindow"
        })
        .await?;
    assert!(
        closed.policy("nightly")["nextEligibleTime"].is_string(),
        "{closed:#?}"
    );
    free_most(cluster).await?;
    assert_eq!(world.after_polls(2.0).await?.runs().len(), 0);

    world.write(&[spec(true)])?;
    let status = world
        .until("the run to end", Status::one_is_complete)
        .await?;
    let done = status.runs()[0];
    let disarmed = done["status"]["alarmsDisarmed"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert!(
        !disarmed.is_empty() && disarmed.iter().all(|alarm| alarm["gone"] == true),
        "{done:#}"
    );
    assert!(cluster.alarms().await?.is_empty());
    cluster.put("again", "written").await?;
    let log = world.defragd.logged();
    let created = log
        .lines()
        .find(|line| line.contains("RunCreated") && line.contains("event"));
    assert!(
        created.is_some_and(
            |line| line.contains("emergency passes windows") && line.contains("NOSPACE")
        ),
        "{log}"
    );
    Ok(())
}

/// Deletes most keys and compacts, which NOSPACE lets pass.
async fn free_most(cluster: &defragd_harness::Cluster) -> Result<(), Error> {
    cluster.etcdctl(&["del", "fill/00000010", "fill0"]).await?;
    let revision = cluster.status(0).await?.revision;
    cluster
        .etcdctl(&["compact", "--physical", &revision.to_string()])
        .await?;
    let mut next = 0;
    eventually(
        Duration::from_secs(20),
        "8 MiB to give back everywhere",
        async || {
            // What was freed is shown by later commits only.
            cluster
                .etcdctl(&["del", &format!("fill/{next:08}")])
                .await
                .map_err(|e| e.to_string())?;
            next += 1;
            let sizes = cluster.sizes().await.map_err(|e| e.to_string())?;
            if sizes.iter().all(|s| s.free() > 8 * MIB) {
                Ok(())
            } else {
                Err(format!("{sizes:?}"))
            }
        },
    )
    .await
}
