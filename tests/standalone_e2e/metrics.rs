//! What real Prometheus servers make of defragd's own metrics, and of what `docs/metrics.md` says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use defragd_harness::{Error, Metadata, Prometheus, PrometheusServer, PrometheusVersion, Status};
use serde_json::json;

use crate::support::{World, firing, policy, quiet, run};

const DOCUMENT: &str = include_str!("../../docs/metrics.md");

/// Only the other host has them.
const OF_KUBERNETES: [&str; 3] = [
    "defragd_api_request_duration_seconds",
    "defragd_api_requests",
    "defragd_watch_restarts",
];

/// Only there while a blocker holds a run back or while alerts are delivered; read by the tests of
/// these.
const OF_OTHERS: [&str; 3] = [
    "defragd_policy_blockers_since_timestamp_seconds",
    "defragd_webhook_alerts",
    "defragd_webhook_deliveries",
];

/// The documented families, as Prometheus shall know them.
fn documented() -> BTreeMap<String, Metadata> {
    let rows = DOCUMENT.lines().filter(|line| line.starts_with("| `"));
    let families = rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, kind, _labels, help] = cells[..] else {
            panic!("{row} has other than four cells");
        };
        let name = name.trim_matches('`');
        let family = match kind {
            "counter" => name.trim_end_matches("_total"),
            "info" => name.trim_end_matches("_info"),
            _ => name,
        };
        let unit = ["seconds", "bytes"]
            .into_iter()
            .find(|unit| family.ends_with(&format!("_{unit}")));
        let metadata = Metadata {
            kind: kind.to_owned(),
            unit: unit.unwrap_or_default().to_owned(),
            help: help.to_owned(),
        };
        (family.to_owned(), metadata)
    });
    families.collect()
}

/// The queries of the document.
fn queries() -> Vec<&'static str> {
    let blocks = DOCUMENT.split("```promql\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap_or_default())
        .collect()
}

async fn scrape(world: &World, version: PrometheusVersion) -> Result<PrometheusServer, Error> {
    let targets = [world.defragd.address()];
    Prometheus::version(version)
        .scrape("defragd", targets, Duration::from_millis(500))
        .start()
        .await
}

/// R79, R81, T103: Prometheus understands all of it, the document's queries are answered, what is
/// removed is gone, and a restart forgets no success.
#[tokio::test]
async fn prometheus_reads_everything() -> Result<(), Error> {
    let world = World::small().await?;
    let eager = policy("eager", json!({ "signal": firing() }));
    let calm = policy("calm", json!({ "signal": quiet() }));
    world.play(&[eager.clone(), calm.clone()]).await?;
    world
        .until("the run to end", Status::one_is_complete)
        .await?;
    // One more that goes on for ever, so that there is something to tell of.
    let held = run("held", "demo", json!({ "suspend": true }));
    // And a fleet without clusters, whose only series is about nobody.
    let mut fleet = policy(
        "fleet",
        json!({
            "clusterSelector": { "matchLabels": { "tier": "nowhere" } },
            "signal": { "prometheus": {
                "source": "main", "query": "up", "above": 1, "clusterLabel": "instance",
            } },
        }),
    );
    if let Some(spec) = fleet["spec"].as_object_mut() {
        spec.remove("clusterRef");
    }
    world.write(&[eager.clone(), calm, held.clone(), fleet])?;
    world
        .until("the held run to be in the way", |s| {
            s.decision("eager") == "ClusterBusy"
        })
        .await?;

    for version in PrometheusVersion::ALL {
        let prometheus = scrape(&world, version).await?;
        everything_is_read(&world, &prometheus).await?;
    }

    // T103: at the next scrape, not after the look-back of five minutes.
    let prometheus = scrape(&world, PrometheusVersion::V3).await?;
    let calm = "defragd_policy_info{name=\"calm\"}";
    prometheus.wait_for(calm, |found| found.len() == 1).await?;
    world.write(&[eager, held])?;
    prometheus.wait_for(calm, <[_]>::is_empty).await?;

    let success = "defragd_policy_last_success_timestamp_seconds{namespace=\"default\",name=\"eager\",cluster=\"demo\",cluster_kind=\"EtcdTarget\"}";
    let before = world.defragd.metric(success).await?;
    assert!(before.is_some());
    world.defragd.stop().await?;
    world.defragd.start().await?;
    world.after_polls(1.0).await?;
    let after = world.defragd.metric(success).await?;
    assert_eq!(after, before);
    Ok(())
}

async fn everything_is_read(world: &World, prometheus: &PrometheusServer) -> Result<(), Error> {
    // The gate of the held run is told of a little later than the run.
    let gate = "defragd_cluster_run_gate{name=\"demo\"} == 1";
    let gates = prometheus.wait_for(gate, |found| found.len() == 1).await?;
    assert_eq!(gates[0].labels["reason"], "Suspended");

    let mut wanted = documented();
    assert!(
        OF_KUBERNETES
            .iter()
            .chain(&OF_OTHERS)
            .all(|name| wanted.remove(*name).is_some())
    );
    let read: BTreeMap<String, Metadata> = prometheus
        .metadata()
        .await?
        .into_iter()
        .filter(|(name, _)| name.starts_with("defragd_") || name.starts_with("process_"))
        .collect();
    assert_eq!(read, wanted);

    for query in queries() {
        prometheus.query(query).await?;
    }
    let decisions = prometheus.query(queries()[0]).await?;
    let reasons: BTreeSet<(&str, &str)> = decisions
        .iter()
        .map(|s| (s.labels["name"].as_str(), s.labels["reason"].as_str()))
        .collect();
    let wanted = [("calm", "ClusterBusy"), ("eager", "ClusterBusy")];
    assert_eq!(reasons, BTreeSet::from(wanted));
    let fragmentation = prometheus.query(queries()[1]).await?;
    let names: BTreeSet<&str> = fragmentation
        .iter()
        .map(|s| s.labels["name"].as_str())
        .collect();
    assert_eq!(
        names,
        BTreeSet::from(["calm", "eager"]),
        "{fragmentation:?}"
    );
    let blocked = "time() - defragd_policy_blocked_since_timestamp_seconds >= 0";
    assert_eq!(prometheus.query(blocked).await?.len(), 1);

    // What is told of the member is what it tells of itself.
    let quota = world
        .cluster
        .metric(0, "etcd_server_quota_backend_bytes")
        .await?;
    let told = prometheus
        .query("defragd_cluster_member_quota_bytes")
        .await?;
    assert_eq!(told.first().map(|sample| sample.value), quota, "{told:?}");
    assert_eq!(told[0].labels["kind"], "EtcdTarget");
    Ok(())
}
