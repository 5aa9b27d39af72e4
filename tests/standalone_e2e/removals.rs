//! What is removed, corrected or stopped while something goes on.

use std::time::{Duration, Instant};

use defragd_harness::{Cluster, Error, Etcd, Fault, Prometheus, Status, eventually};
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{MIB, WAIT, World, counts, defragd, is_complete, policy, run, target, until};

/// A run that is not kept is removed only after its end counts: for the cooldown, and for the limit on
/// runs an hour. What cannot be created is not said to be.
#[tokio::test]
async fn a_run_that_is_not_kept_is_remembered() -> Result<(), Error> {
    let world = World::small().await?;
    world.cluster.fragment(40 * MIB, 2 * MIB).await?;
    world.defragd.configure(&json!({
        "sources": [{ "name": "main", "prometheus": { "url": world.prometheus.url() } }],
        "limits": { "runsPerHour": 1 },
    }))?;
    let spec = |cooldown: &str| {
        let limit = json!({ "successful": 0, "failed": 0 });
        policy(
            "forgetful",
            json!({ "historyLimit": limit, "cooldown": cooldown }),
        )
    };
    world.play(&[spec("1h")]).await?;
    let gone = |s: &Status| s.decision("forgetful") == "CoolingDown" && s.runs().is_empty();
    let status = world.until("the run to be removed", gone).await?;
    let last = &status.policy("forgetful")["lastRun"];
    assert_eq!(
        (&last["outcome"], &last["reason"]),
        (&json!("Complete"), &json!("SweepComplete")),
        "{last}"
    );
    assert!(last["reclaimedBytes"].as_u64() > Some(30 * MIB), "{last}");

    world.write(&[spec("1s")])?;
    world
        .until("the limit", |s| {
            s.decision("forgetful") == "CreationLimited"
        })
        .await?;
    let status = world.after_polls(4.0).await?;
    assert!(status.runs().is_empty(), "{status:#?}");
    let message = status.policy("forgetful")["decision"]["message"].to_string();
    assert!(message.contains("limits.runsPerHour is 1"), "{message}");
    assert_eq!(world.counts().await?, [1.0]);
    let log = world.defragd.logged();
    let said = |reason: &str, event: bool| {
        log.lines()
            .filter(|l| l.contains(reason) && l.contains("event=true") == event)
            .count()
    };
    assert_eq!(
        (said("RunCreated", true), said("RunCreated", false)),
        (1, 1),
        "{log}"
    );
    assert_eq!(
        (
            said("CreationLimited", true),
            said("CreationLimited", false)
        ),
        (0, 1),
        "{log}"
    );
    Ok(())
}

/// Three members behind proxies, of which one has just been defragmented and cannot say so.
async fn in_the_middle(world: &World) -> Result<(), Error> {
    set(&world.cluster, Fault::Delay(Duration::from_millis(250)));
    world.defragd.start().await?;
    eventually(WAIT, "the first defragmentation", async || {
        match counts(&world.cluster).await {
            Ok(counts) if counts.iter().sum::<f64>() >= 1.0 => Ok(()),
            Ok(counts) => Err(format!("{counts:?}")),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    set(&world.cluster, Fault::BlackHole);
    Ok(())
}

fn set(cluster: &Cluster, fault: Fault) {
    for i in 0..cluster.members().len() {
        cluster.proxy(i).set(fault);
    }
}

async fn proxied() -> Result<World, Error> {
    let etcd = Etcd::default().proxied().raft_log_entries(100);
    let world = World::of(etcd, Prometheus::default()).await?;
    world.cluster.fragment(64 * MIB, 2 * MIB).await?;
    let target = target("demo", &world.cluster.endpoints());
    world.defragd.put("target.yaml", &target.to_string())?;
    Ok(world)
}

/// R77: the file of a run is removed in mid-run: the member in progress is the last, the run goes, and
/// what it did counts.
#[tokio::test]
async fn a_hand_written_run_is_removed_in_mid_run() -> Result<(), Error> {
    let world = proxied().await?;
    let defragd = &world.defragd;
    let by_hand = run("by-hand", "demo", json!({}));
    defragd.put("run.yaml", &by_hand.to_string())?;
    in_the_middle(&world).await?;
    world.write(&[policy("polite", json!({}))])?;
    defragd.take_out("run.yaml")?;
    world
        .until("the removal to be noticed", |s| {
            s.item("EtcdDefrag", "by-hand")["metadata"]["deletionTimestamp"].is_string()
                && s.decision("polite") == "ClusterBusy"
        })
        .await?;
    set(&world.cluster, Fault::Pass);

    let gone = |s: &Status| s.decision("polite") == "CoolingDown" && s.runs().is_empty();
    let status = world.until("the run to be gone", gone).await?;
    let last = &status.policy("polite")["lastRun"];
    assert_eq!(
        (&last["name"], &last["reason"], &last["touched"]),
        (&json!("by-hand"), &json!("Interrupted"), &json!(true)),
        "{last}"
    );
    assert!(last["reclaimedBytes"].as_u64() > Some(30 * MIB), "{last}");
    assert!(!defragd.state().join("runs/default_by-hand.json").exists());
    let status = world.after_polls(3.0).await?;
    assert!(status.runs().is_empty(), "{status:#?}");
    let counts = world.counts().await?;
    assert!(
        counts.iter().all(|n| *n <= 1.0) && counts.contains(&0.0),
        "it ended early, and nobody had two turns: {counts:?}"
    );
    Ok(())
}

/// T61: a policy goes while its run goes on: the run goes on to its end.
#[tokio::test]
async fn t61_a_policy_is_removed_in_mid_run() -> Result<(), Error> {
    let world = proxied().await?;
    world.write(&[policy("gone", json!({}))])?;
    in_the_middle(&world).await?;
    world.defragd.take_out("objects.yaml")?;
    world
        .until("the policy to be gone", |s| {
            s.items("EtcdDefragPolicy").count() == 0
        })
        .await?;
    set(&world.cluster, Fault::Pass);
    world
        .until("the run to end", Status::one_is_complete)
        .await?;
    assert_eq!(world.counts().await?, [1.0; 3]);
    Ok(())
}

/// A wrong address is corrected under a run that has the cluster already, and under the one that waits
/// for it, which says whom it waits for.
#[tokio::test]
async fn a_corrected_target_is_used_by_the_run_that_waits_for_it() -> Result<(), Error> {
    let cluster = Etcd::default().members(1).start().await?;
    let defragd = defragd()?;
    let nobody = target("demo", &["http://127.0.0.1:9".to_owned()]);
    defragd.put("target.yaml", &nobody.to_string())?;
    let runs = ["one", "two"].map(|name| run(name, "demo", json!({})).to_string());
    defragd.put("runs.yaml", &runs.join("\n---\n"))?;
    defragd.start().await?;
    let said = |s: &Status, name: &str| {
        let status = &s.item("EtcdDefrag", name)["status"];
        (status["reason"] == "Queued", status["message"].to_string())
    };
    let waiting = |s: &Status| match (said(s, "one"), said(s, "two")) {
        ((false, one), (true, two)) => one.contains("127.0.0.1:9") && two.contains("default/one"),
        ((true, one), (false, two)) => two.contains("127.0.0.1:9") && one.contains("default/two"),
        _ => false,
    };
    until(&defragd, "one to hold and one to wait", waiting).await?;

    let right = target("demo", &cluster.endpoints());
    defragd.put("target.yaml", &right.to_string())?;
    let both = |s: &Status| s.runs().into_iter().all(is_complete);
    until(&defragd, "both to end", both).await?;
    assert_eq!(counts(&cluster).await?, [2.0]);
    Ok(())
}

/// A source that accepts and never answers does not hold up the end of the process.
#[tokio::test]
async fn a_silent_source_does_not_delay_the_stop() -> Result<(), Error> {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = silent.local_addr().expect("it has an address");
    let defragd = defragd()?;
    defragd.configure(&json!({
        "sources": [{ "name": "main", "prometheus": { "url": format!("http://{address}"), "timeout": "60s" } }]
    }))?;
    let target = target("demo", &["http://127.0.0.1:9".to_owned()]);
    let objects = format!("{target}\n---\n{}\n", policy("patient", json!({})));
    defragd.put("objects.yaml", &objects)?;
    defragd.start().await?;
    let _asked = tokio::time::timeout(WAIT, silent.accept())
        .await
        .expect("the source is asked")
        .expect("a connection");
    let asked = Instant::now();
    let ended = defragd.stop().await?;
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    assert!(
        asked.elapsed() < Duration::from_secs(20),
        "{:?}",
        asked.elapsed()
    );
    Ok(())
}
