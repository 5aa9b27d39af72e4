//! What holds a run back, asked of a real Prometheus.

use defragd_harness::pages::number;
use defragd_harness::{Error, Status};
use serde_json::{Value, json};

use crate::support::{World, policy, time};

fn by(status: &Status) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    status.policy("careful")["blocked"]["by"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|by| (text(&by["name"]), text(&by["reason"])))
        .collect()
}

fn condition(status: &Status) -> Option<(String, String)> {
    status
        .condition("EtcdDefragPolicy", "careful", "Blocked")
        .map(|(status, reason)| (status.to_owned(), reason.to_owned()))
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

/// T84, T85: a blocker that is on, that is on for too long, whose source is down; and lifted, the
/// run follows.
#[tokio::test]
async fn a_run_waits_for_its_blockers() -> Result<(), Error> {
    let world = World::small().await?;
    let World {
        defragd,
        prometheus,
        cluster,
    } = &world;
    // Nobody has written to this cluster yet, and that is what the run waits for.
    let spec = json!({
        "signal": { "probe": { "rule": { "all": true } } },
        "maxBlockedFor": "4s",
        "blockers": [
            { "name": "alerts", "signal": { "prometheus": {
                "source": "main", "query": "ALERTS{alertname=\"Upgrade\", alertstate=\"firing\"}" } } },
            { "name": "untouched", "signal": { "prometheus": {
                "source": "main", "query": "max(etcd_mvcc_put_total)", "below": 1 } } },
        ],
    });
    world.play(&[policy("careful", spec)]).await?;
    let status = world
        .until("the blocker to hold", |s| {
            by(s) == [pair("untouched", "SignalFiring")]
        })
        .await?;
    assert_eq!(status.decision("careful"), "Blocked", "{status:#?}");
    let since = status.policy("careful")["blocked"]["since"].clone();
    let name = "defragd_policy_blockers_since_timestamp_seconds{namespace=\"default\",name=\"careful\",cluster=\"demo\",cluster_kind=\"EtcdTarget\"}";
    let page = defragd.page("/metrics").await?;
    let shown = number(&page, name).unwrap_or_default();
    assert!(
        (shown - time(&since).as_millisecond() as f64 / 1000.0).abs() < 0.01,
        "{shown}"
    );
    assert!(page.contains("reason=\"Blocked\"} 1.0"), "{page}");

    let status = world
        .until("too long", |s| {
            condition(s) == Some(pair("True", "BlockedTooLong"))
        })
        .await?;
    assert_eq!(status.runs().len(), 0, "nothing is overridden: {status:#?}");

    prometheus.stop().await?;
    let down = [
        pair("alerts", "SourceUnavailable"),
        pair("untouched", "SourceUnavailable"),
    ];
    world
        .until("the silence to hold", |s| by(s) == down)
        .await?;
    defragd.kill()?;
    defragd.start().await?;
    let status = world.until("the silence again", |s| by(s) == down).await?;
    assert_eq!(status.policy("careful")["blocked"]["since"], since);
    let message = status.policy("careful")["decision"]["message"].to_string();
    assert!(
        message.contains("cannot be read (SourceUnavailable)"),
        "{message}"
    );
    let events = defragd.logged();
    let events = events
        .lines()
        .filter(|line| line.contains("event=true") && line.contains("BlockedTooLong"));
    assert_eq!(events.count(), 1, "told once, also over a restart");

    cluster.put("key", "value").await?;
    prometheus.start_again().await?;
    let status = world
        .until("the run to end", Status::one_is_complete)
        .await?;
    assert_eq!(world.counts().await?, [1.0]);
    assert_eq!(condition(&status), Some(pair("False", "Accepted")));
    let status = world
        .until("the rest", |s| s.decision("careful") == "BackingOff")
        .await?;
    let told: Vec<&str> = status.policy("careful")["timeline"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|spell| spell["reason"].as_str())
        .filter(|reason| ["Blocked", "RunCreated", "BackingOff"].contains(reason))
        .collect();
    assert_eq!(told, ["Blocked", "RunCreated", "BackingOff"], "{status:#?}");
    let text = defragd.status_text().await?;
    assert!(text.contains("time line"), "{text}");
    assert!(text.contains("blocker \"untouched\""), "{text}");
    Ok(())
}
