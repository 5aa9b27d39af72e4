//! The source fails, the probe decides, the source is back; and no source at all.

use defragd_harness::{Error, Etcd, Status};
use serde_json::json;

use crate::support::{MIB, World, counts, defragd, fragmented, policy, target, time, until};

/// T91: nothing starts while Prometheus is down, until the fallback's time has come; back at the first
/// good answer; a condition, and one event each.
#[tokio::test]
async fn the_fallback_decides_while_prometheus_is_down() -> Result<(), Error> {
    let world = World::new().await?;
    let World {
        defragd,
        prometheus,
        cluster,
    } = &world;
    let spec = json!({
        "signal": fragmented("30Mi"),
        "for": "1s",
        "onError": "Fallback",
        "fallback": { "after": "6s", "probe": { "rule": { "freeSpaceAbove": "30Mi" } } },
    });
    world.play(&[policy("watched", spec)]).await?;
    world
        .until("a quiet signal", |s| {
            s.policy("watched")["signal"]["state"] == "NotFiring"
        })
        .await?;

    prometheus.stop().await?;
    let failing = world
        .until("the source to fail", |s| {
            s.policy("watched")["failingSince"].is_string()
        })
        .await?;
    let since = time(&failing.policy("watched")["failingSince"]);
    assert_eq!(
        failing.decision("watched"),
        "SourceUnavailable",
        "{failing:#?}"
    );
    cluster.fragment(64 * MIB, 2 * MIB).await?;

    let status = world
        .until("the run to end", Status::one_is_complete)
        .await?;
    let done = status.runs()[0];
    let waited = time(&done["status"]["startedAt"]).duration_since(since);
    assert!(
        waited.as_millis() >= 7_000,
        "6s of failure and `for` of 1s, but {waited:#}"
    );
    assert_eq!(world.counts().await?, [1.0; 3]);
    let fallback = |s: &Status| {
        s.condition("EtcdDefragPolicy", "watched", "Fallback")
            .map(|c| (c.0.to_owned(), c.1.to_owned()))
    };
    let on = Some(("True".to_owned(), "FallbackActive".to_owned()));
    let status = world
        .until("the fallback to be shown", |s| fallback(s) == on)
        .await?;
    assert_eq!(
        status.policy("watched")["signal"]["origin"],
        "Fallback",
        "{status:#?}"
    );

    prometheus.start_again().await?;
    let status = world
        .until("the source to decide again", |s| {
            s.policy("watched")["signal"]["origin"] == "Primary"
        })
        .await?;
    assert_eq!(
        fallback(&status),
        Some(("False".to_owned(), "FallbackEnded".to_owned())),
        "{status:#?}"
    );
    let log = defragd.logged();
    let events = |reason: &str| {
        log.lines()
            .filter(|line| {
                line.contains("event") && line.contains("reason") && line.contains(reason)
            })
            .count()
    };
    assert_eq!(
        (events("FallbackActive"), events("FallbackEnded")),
        (1, 1),
        "{log}"
    );
    Ok(())
}

/// T92, T96: without any source the probe is the signal, and nobody complains.
#[tokio::test]
async fn a_probe_needs_no_source() -> Result<(), Error> {
    let cluster = Etcd::default().raft_log_entries(100).start().await?;
    cluster.fragment(64 * MIB, 2 * MIB).await?;
    let defragd = defragd()?;
    let spec = json!({
        "signal": { "probe": { "rule": { "expression": "dbSize - dbSizeInUse > 30*1024*1024" } } },
        "for": "2s",
    });
    let target = target("demo", &cluster.endpoints());
    defragd.put(
        "all.yaml",
        &format!("{target}\n---\n{}", policy("own-numbers", spec)),
    )?;
    defragd.start().await?;
    until(&defragd, "the run to end", Status::one_is_complete).await?;
    let quiet = |s: &Status| s.decision("own-numbers") == "SignalNotFiring";
    let status = until(&defragd, "a quiet signal", quiet).await?;
    assert_eq!(status.runs().len(), 1);
    assert_eq!(
        status.condition("EtcdDefragPolicy", "own-numbers", "Ready"),
        Some(("True", "Accepted"))
    );
    assert_eq!(counts(&cluster).await?, [1.0; 3]);
    let log = defragd.logged();
    assert!(!log.contains(" WARN ") && !log.contains(" ERROR "), "{log}");
    Ok(())
}
