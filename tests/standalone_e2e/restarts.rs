//! defragd ends at the worst moments and goes on.

use std::time::Duration;

use defragd::core::name;
use defragd_harness::{Error, Etcd, Fault, Status, eventually};
use serde_json::{Value, json};

use crate::support::{MIB, World, counts, defragd, policy, run, target, time, turns, until};

/// T42, T45: `for` goes on from what is stored, and so does the cooldown; T46: the same name.
#[tokio::test]
async fn a_restart_goes_on_with_for_and_with_the_cooldown() -> Result<(), Error> {
    let world = World::small().await?;
    let defragd = &world.defragd;
    world.cluster.fragment(40 * MIB, 2 * MIB).await?;
    world
        .play(&[policy("patient", json!({ "for": "12s" }))])
        .await?;
    let holding = |s: &Status| s.decision("patient") == "HoldingFor";
    let first = world.until("`for` to hold", holding).await?;
    let episode = time(&first.policy("patient")["firingSince"]);

    defragd.kill()?;
    defragd.start().await?;
    let ended = {
        world.after_polls(1.0).await?;
        defragd.stop().await?
    };
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    defragd.start().await?;

    let status = world
        .until("the run to end", Status::one_is_complete)
        .await?;
    let done = status.runs()[0];
    let uid = first.item("EtcdDefragPolicy", "patient")["metadata"]["uid"]
        .as_str()
        .unwrap_or_default();
    let wanted = name::of_episode("patient", uid, "default/demo", episode, None);
    assert_eq!(
        done["metadata"]["name"], wanted,
        "the episode that began before the restarts: {done:#}"
    );
    let held = time(&done["status"]["startedAt"]).duration_since(episode);
    assert!(
        (12_000..40_000).contains(&held.as_millis()),
        "held for {held:#}"
    );

    let cooling = |s: &Status| s.decision("patient") == "CoolingDown";
    let before = world.until("the cooldown", cooling).await?;
    defragd.kill()?;
    defragd.start().await?;
    world.after_polls(3.0).await?;
    defragd.stop().await?;
    defragd.start().await?;
    let after = world.after_polls(3.0).await?;
    assert!(cooling(&after), "{after:#?}");
    for field in ["nextEligibleTime", "lastRun"] {
        assert_eq!(
            after.policy("patient")[field],
            before.policy("patient")[field],
            "{field}"
        );
    }
    assert_eq!(after.runs().len(), 1, "{after:#?}");
    assert_eq!(world.counts().await?, [1.0]);
    Ok(())
}

fn outcomes(status: &Status) -> Vec<&Value> {
    let members = status.item("EtcdDefrag", "by-hand")["status"]["members"].as_array();
    members
        .into_iter()
        .flatten()
        .map(|member| &member["outcome"])
        .collect()
}

/// R18, R25: killed while a member's answer is on its way, then stopped in order while the next is at
/// work: nobody is defragmented twice, and the leader is last all the same.
#[tokio::test]
async fn killed_between_two_members_nobody_is_defragmented_twice() -> Result<(), Error> {
    let cluster = Etcd::default()
        .proxied()
        .raft_log_entries(100)
        .start()
        .await?;
    let term = cluster.term().await?;
    cluster.fragment(64 * MIB, 2 * MIB).await?;
    let set = |fault| (0..3).for_each(|i| cluster.proxy(i).set(fault));
    let defragd = defragd()?;
    defragd.put(
        "target.yaml",
        &target("demo", &cluster.endpoints()).to_string(),
    )?;
    defragd.put("run.yaml", &run("by-hand", "demo", json!({})).to_string())?;

    // A member has finished, and its answer is a quarter of a second away.
    set(Fault::Delay(Duration::from_millis(250)));
    defragd.start().await?;
    finished(&cluster, 1.0).await?;
    defragd.kill()?;
    let status = defragd.status().await?;
    assert!(
        outcomes(&status).contains(&&json!("InProgress")),
        "the intent was stored first: {status:#?}"
    );

    // The next is on its way when the process is asked to stop.
    defragd.start().await?;
    finished(&cluster, 2.0).await?;
    let ended = defragd.stop().await?;
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    let status = defragd.status().await?;
    assert!(
        outcomes(&status).contains(&&json!("Defragmented")),
        "{status:#?}"
    );
    let members = status.runs()[0]["status"]["members"].as_array();
    assert!(
        members
            .into_iter()
            .flatten()
            .filter(|m| m["outcome"] == "InProgress")
            .all(|m| m["call"]["answeredAt"].is_string()),
        "an answer that came before the end is stored: {status:#?}"
    );
    assert_ne!(
        status.runs()[0]["status"]["phase"],
        "Complete",
        "{status:#?}"
    );

    set(Fault::Pass);
    defragd.start().await?;
    let status = until(&defragd, "the run to end", Status::one_is_complete).await?;
    let done = status.runs()[0];
    assert_eq!(counts(&cluster).await?, [1.0; 3], "{done:#}");
    let order = turns(done);
    assert!(
        order
            .iter()
            .all(|m| m["outcome"] == "Defragmented" && m["attempts"] == 1),
        "{done:#}"
    );
    assert_eq!(
        order[2]["memberID"], done["status"]["leaderTransfers"][0]["from"],
        "{done:#}"
    );
    assert_eq!(cluster.term().await?, term + 1);
    Ok(())
}

/// Waits until the members count so many defragmentations together, without a pause between looks.
async fn finished(cluster: &defragd_harness::Cluster, wanted: f64) -> Result<(), Error> {
    eventually(
        Duration::from_secs(60),
        format!("{wanted} defragmentations"),
        async || {
            // More often than `eventually` would: what follows has to be quick.
            for _ in 0..100 {
                let seen: f64 = match counts(cluster).await {
                    Ok(counts) => counts.iter().sum(),
                    Err(error) => return Err(error.to_string()),
                };
                if seen >= wanted {
                    return Ok(());
                }
            }
            Err("fewer".to_owned())
        },
    )
    .await
}
