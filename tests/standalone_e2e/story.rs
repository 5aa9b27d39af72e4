//! The outcome: the policy of the README, word for word, from a crossing to a cooldown.

use std::fs;
use std::path::Path;

use defragd::core::name;
use defragd_harness::pages::number;
use defragd_harness::{Error, Etcd, Prometheus, PrometheusVersion, Status};
use serde_json::json;

use crate::support::{MIB, World, fragmented, policy, time, turns};

const QUERY: &str =
    "max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)";

/// The manifest of the page with the endpoints of this cluster.
fn word_for_word(endpoints: &[String]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/demo.yaml");
    let mut text = fs::read_to_string(path).expect("the fixture can be read");
    for (written, real) in [2379, 2479, 2579].into_iter().zip(endpoints) {
        let written = format!("http://127.0.0.1:{written}");
        assert!(
            text.contains(&written),
            "the fixture has the endpoint {written}"
        );
        text = text.replace(&written, real);
    }
    text
}

/// R03, T38, T46, S37: the order of the turns, the transfer, the name, the cooldown in words.
#[tokio::test]
async fn the_policy_word_for_word() -> Result<(), Error> {
    let world = World::new().await?;
    let World {
        defragd,
        prometheus,
        cluster,
    } = &world;
    defragd.put("demo.yaml", &word_for_word(&cluster.endpoints()))?;
    defragd.start().await?;
    world
        .until("a quiet signal", |s| {
            s.policy("fragmented")["signal"]["state"] == "NotFiring"
        })
        .await?;
    let (leader, term) = (cluster.leader().await?, cluster.term().await?);
    cluster.fragment(150 * MIB, 8 * MIB).await?;

    let holding = world
        .until("`for` to hold", |s| {
            s.decision("fragmented") == "HoldingFor"
        })
        .await?;
    let episode = time(&holding.policy("fragmented")["firingSince"]);
    let status = world
        .until("the run to end", Status::one_is_complete)
        .await?;
    let run = status.runs()[0];

    // One run of that episode, owned by the policy.
    let uid = holding.item("EtcdDefragPolicy", "fragmented")["metadata"]["uid"]
        .as_str()
        .unwrap_or_default();
    let wanted = name::of_episode("fragmented", uid, "default/demo", episode, None);
    assert_eq!(run["metadata"]["name"], wanted, "{run:#}");
    let owner = &run["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("EtcdDefragPolicy"), &json!("fragmented"))
    );
    assert!(run["spec"]["rule"]["freeSpaceAbove"] == "50Mi", "{run:#}");
    let held = time(&run["status"]["startedAt"]).duration_since(episode);
    assert!(held.as_millis() >= 3_000, "held for {held:#} only");

    // From the first scrape that crosses to the run: interval + for + 1 s is wanted, and shown.
    let crossing = format!("min_over_time(timestamp(({QUERY}) > 104857600)[10m:100ms])");
    if let Some(sample) = prometheus.query(&crossing).await?.first() {
        let started = time(&run["status"]["startedAt"]).as_millisecond() as f64 / 1e3;
        eprintln!(
            "from the crossing to the run that holds the cluster: {:.2} s",
            started - sample.value
        );
    }

    // Followers first; the leader last, after leadership went to one that was done.
    let order = turns(run);
    let leader_id = format!("{:x}", cluster.member(leader).id());
    assert_eq!(order.len(), 3, "{run:#}");
    assert_eq!(order[2]["memberID"], leader_id, "{run:#}");
    for member in &order {
        assert_eq!(member["outcome"], "Defragmented", "{run:#}");
        let (before, after) = (
            member["dbSizeBefore"].as_u64(),
            member["dbSizeAfter"].as_u64(),
        );
        assert!(before > after.map(|after| after * 4), "{member:#}");
    }
    for (one, next) in order.iter().zip(&order[1..]) {
        assert!(
            time(&one["finishedAt"]) <= time(&next["startedAt"]),
            "one at a time: {run:#}"
        );
    }
    let transfers = run["status"]["leaderTransfers"]
        .as_array()
        .map_or(0, Vec::len);
    let transfer = &run["status"]["leaderTransfers"][0];
    assert_eq!(
        (transfers, &transfer["outcome"]),
        (1, &json!("Done")),
        "{run:#}"
    );
    assert_eq!(transfer["from"], leader_id);
    assert!(
        order[..2]
            .iter()
            .any(|member| member["memberID"] == transfer["to"]),
        "{run:#}"
    );
    assert_eq!(
        cluster.term().await?,
        term + 1,
        "only the transfer raised the term"
    );
    assert_eq!(world.counts().await?, [1.0; 3]);
    assert!(
        run["status"]["reclaimedBytes"].as_u64() > Some(300 * MIB),
        "{run:#}"
    );

    // A sample from before the run's end begins no other episode.
    world
        .until("a quiet signal again", |s| {
            s.policy("fragmented")["signal"]["state"] == "NotFiring"
        })
        .await?;
    let log = defragd.logged();
    let holding = log.lines().filter(|l| l.contains("HoldingFor")).count();
    assert_eq!(holding, 1, "{log}");

    // It fires again within the cooldown, and says why nothing happens.
    cluster.fragment(130 * MIB, 8 * MIB).await?;
    let cooling = world
        .until("the cooldown", |s| {
            s.policy("fragmented")["signal"]["state"] == "Firing"
                && s.decision("fragmented") == "CoolingDown"
        })
        .await?;
    let policy = cooling.policy("fragmented");
    assert!(policy["nextEligibleTime"].is_string(), "{policy:#}");
    assert_eq!(
        cooling.condition("EtcdDefragPolicy", "fragmented", "CoolingDown"),
        Some(("True", "CoolingDown"))
    );
    assert_eq!(
        cooling.condition("EtcdDefragPolicy", "fragmented", "Firing"),
        Some(("True", "SignalFiring"))
    );
    let said = defragd.status_text().await?;
    assert!(
        said.contains("CoolingDown: ") && said.contains(&wanted),
        "{said}"
    );
    let status = world.after_polls(5.0).await?;
    assert_eq!(status.runs().len(), 1, "{status:#?}");
    assert_eq!(world.counts().await?, [1.0; 3]);

    // What it serves names the run's end and the reason of the last decision.
    let page = defragd.page("/metrics").await?;
    let value = |name: &str| number(&page, name);
    assert_eq!(
        value("defragd_runs_total{outcome=\"Complete\",reason=\"SweepComplete\"}"),
        Some(1.0),
        "{page}"
    );
    let decision = "defragd_policy_decision{namespace=\"default\",name=\"fragmented\",cluster=\"demo\",cluster_kind=\"EtcdTarget\",reason=\"CoolingDown\"}";
    assert_eq!(value(decision), Some(1.0), "{page}");
    assert_eq!(
        value("defragd_member_defragmentation_duration_seconds_count"),
        Some(3.0),
        "{page}"
    );
    assert_eq!(defragd.page("/healthz").await?.trim(), "ok");
    assert_eq!(defragd.page("/readyz").await?.trim(), "ok");
    let ended = defragd.stop().await?;
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    Ok(())
}

/// The same question, asked of Prometheus 2 behind TLS and a password.
#[tokio::test]
async fn prometheus_2_with_tls_and_a_password() -> Result<(), Error> {
    let prometheus = Prometheus::version(PrometheusVersion::V2)
        .tls()
        .basic_auth("scrooge", "pa\"ss");
    let world = World::of(Etcd::default().members(1), prometheus).await?;
    let World {
        defragd,
        prometheus,
        cluster,
    } = &world;
    let password = defragd.folder().join("password");
    fs::write(&password, "pa\"ss\n").map_err(|source| Error::Io {
        doing: "write a password".to_owned(),
        source,
    })?;
    defragd.configure(&json!({ "sources": [{ "name": "main", "prometheus": {
        "url": prometheus.url(),
        "basicAuth": { "username": "scrooge", "passwordFile": password },
        "caFile": prometheus.pki().map(defragd_harness::Pki::ca),
    } }] }))?;
    world
        .play(&[policy(
            "fragmented",
            json!({ "signal": fragmented("30Mi"), "for": "2s" }),
        )])
        .await?;
    world
        .until("a quiet signal", |s| {
            s.policy("fragmented")["signal"]["state"] == "NotFiring"
        })
        .await?;
    cluster.fragment(48 * MIB, 2 * MIB).await?;
    world
        .until("the run to end", Status::one_is_complete)
        .await?;
    assert_eq!(world.counts().await?, [1.0]);
    let log = defragd.logged();
    assert!(
        !log.contains("pa\"ss") && !log.contains("pa\\\"ss"),
        "a password in the log"
    );
    Ok(())
}
