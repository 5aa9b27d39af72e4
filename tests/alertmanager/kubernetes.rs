//! Deliveries on the Kubernetes host, with the rights that the chart gives and no more.

use std::fs;

use defragd_harness::{Error, Kube, Release, eventually};
use serde_json::{Value, json};

use crate::support::{ALERT, TOKEN, WAIT, fragmented};

/// T80: two replicas, of which one leads. The other takes the delivery, both know it, the leader acts.
#[tokio::test]
async fn t80_the_one_that_stands_by_takes_a_delivery_and_the_leader_acts() -> Result<(), Error> {
    let (api, cluster) = tokio::try_join!(Kube::default().start(), fragmented())?;
    let token = api.scratch().join("token");
    fs::write(&token, TOKEN).expect("a file in a folder of the test");
    let values = json!({ "config": { "sources": [
        { "name": "pushed", "webhook": { "bearerTokenFile": token, "expireAfter": "1h" } },
    ] } });
    let release = Release::install(&api, "defragd", "defragd", &values).await?;
    let binary = env!("CARGO_BIN_EXE_defragd");
    let leader = release
        .pod(&api, binary, "defragd-a")
        .await?
        .start()
        .await?;
    eventually(WAIT, "a leader", async || {
        match leader.metric("defragd_leader").await {
            Ok(Some(1.0)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let other = release
        .pod(&api, binary, "defragd-b")
        .await?
        .start()
        .await?;

    api.kubectl(&["create", "namespace", "team"]).await?;
    for (kind, plural, name, spec) in [
        (
            "EtcdTarget",
            "etcdtargets",
            "demo",
            json!({ "endpoints": cluster.endpoints() }),
        ),
        (
            "EtcdDefragPolicy",
            "etcddefragpolicies",
            "p",
            json!({
                "clusterRef": { "name": "demo" },
                "signal": { "alert": { "source": "pushed", "matchers": [format!("alertname=\"{ALERT}\"")] } },
                "interval": "1s",
                "cooldown": "6h",
                "runTemplate": { "rule": { "all": true }, "allowSingleMember": true },
            }),
        ),
    ] {
        let path = format!("/apis/defragd.dev/v1alpha1/namespaces/team/{plural}");
        let object = json!({
            "apiVersion": "defragd.dev/v1alpha1", "kind": kind,
            "metadata": { "name": name, "namespace": "team" }, "spec": spec,
        });
        api.create(&path, &object).await?;
    }
    let state = |status: &Value| {
        status["signal"]["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    eventually(WAIT, "no delivery", async || {
        let status = api.defragd("team").await.map_err(|e| e.to_string())?;
        if state(status.policy("p")) == "NoData" {
            Ok(())
        } else {
            Err(status.outline())
        }
    })
    .await?;

    let began = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(5);
    let message = json!({
        "version": "4", "status": "firing", "truncatedAlerts": 0,
        "alerts": [{
            "status": "firing", "labels": { "alertname": ALERT }, "annotations": {},
            "startsAt": began.to_string(), "endsAt": "0001-01-01T00:00:00Z",
        }],
    });
    let url = format!("{}/api/v1/alerts/pushed", other.url());
    let http = reqwest::Client::new();
    for _ in 0..2 {
        let request = http.post(&url).bearer_auth(TOKEN).body(message.to_string());
        let answer = request.send().await.expect("it answers");
        let status = answer.status();
        assert!(
            status.is_success(),
            "{status}: {}",
            answer.text().await.unwrap_or_default()
        );
    }
    eventually(WAIT, "one run to be complete", async || {
        let status = api.defragd("team").await.map_err(|e| e.to_string())?;
        match status.runs()[..] {
            [run] if run["status"]["phase"] == "Complete" => Ok(()),
            _ => Err(status.outline()),
        }
    })
    .await?;
    assert_eq!(cluster.defragmentations().await?, [1.0]);
    let map = api
        .get("/api/v1/namespaces/defragd/configmaps/defragd-alerts-pushed")
        .await?;
    let kept = map.unwrap_or_default()["data"]["alerts.json"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(kept.contains(ALERT) && !kept.contains(TOKEN), "{kept}");
    Ok(())
}
