//! An alert that holds runs back, on the Kubernetes host, with the rights that the chart gives and
//! no more.

use defragd_harness::objects::{object, time};
use defragd_harness::{
    Alertmanager, Error, Kube, KubeApi, Release, RunningController, Status, eventually,
};
use serde_json::{Value, json};

use crate::support::{WAIT, alert, fragmented, source};

const TEAM: &str = "team";
const LABELS: &str = "{namespace=\"team\",name=\"p\",cluster=\"demo\",cluster_kind=\"EtcdTarget\"}";

/// The condition `Blocked` of the policy: its status and reason.
fn condition(status: &Status) -> (&str, &str) {
    status
        .condition("EtcdDefragPolicy", "p", "Blocked")
        .unwrap_or_default()
}

async fn until(
    api: &KubeApi,
    leader: &RunningController,
    what: &str,
    wanted: impl Fn(&Status) -> bool,
) -> Result<Status, Error> {
    eventually(WAIT, what, async || {
        if let Err(ended) = leader.check() {
            return Ok(Err(ended));
        }
        let status = api.defragd(TEAM).await.map_err(|e| e.to_string())?;
        if wanted(&status) {
            Ok(Ok(status))
        } else {
            Err(status.outline())
        }
    })
    .await?
}

/// The policy's events of this reason.
async fn events(api: &KubeApi, reason: &str) -> Result<Vec<Value>, Error> {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{TEAM}/events");
    let list = api.get(&path).await?.unwrap_or_default();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let about = |event: &Value| event["regarding"]["name"] == "p" && event["reason"] == reason;
    Ok(items.into_iter().filter(about).collect())
}

/// Since when, by a metric of the policy on its cluster.
async fn since(leader: &RunningController, what: &str) -> Result<Option<f64>, Error> {
    let name = format!("defragd_policy_{what}_since_timestamp_seconds{LABELS}");
    leader.metric(&name).await
}

async fn put(api: &KubeApi, kind: &str, name: &str, spec: &Value) -> Result<(), Error> {
    let plural = match kind {
        "EtcdTarget" => "etcdtargets",
        _ => "etcddefragpolicies",
    };
    let path = KubeApi::defragd_path(TEAM, plural);
    api.create(&path, &object(kind, name, spec)).await.map(drop)
}

/// T84: said by status, condition, metrics and one event; a silence of the alert lets the run start.
#[tokio::test]
async fn t84_an_alert_holds_the_run_back_until_somebody_silences_it() -> Result<(), Error> {
    let (api, cluster, am) = tokio::try_join!(
        Kube::default().start(),
        fragmented(),
        Alertmanager::default().start()
    )?;
    let values = json!({ "config": { "sources": [source(&[&am])] } });
    let release = Release::install(&api, "defragd", "defragd", &values).await?;
    let binary = env!("CARGO_BIN_EXE_defragd");
    let leader = release.pod(&api, binary, "defragd-a").await?;
    let leader = leader.start().await?;
    am.post(&alert(60, json!({ "alertname": "Upgrade" })))
        .await?;

    api.kubectl(&["create", "namespace", TEAM]).await?;
    let target = json!({ "endpoints": cluster.endpoints() });
    put(&api, "EtcdTarget", "demo", &target).await?;
    let blocker = json!({ "alert": { "source": "am", "matchers": ["alertname=\"Upgrade\""] } });
    let policy = json!({
        "clusterRef": { "name": "demo" },
        "signal": { "probe": { "rule": { "freeSpaceAbove": "10Mi" } } },
        "interval": "1s",
        "cooldown": "6h",
        "blockers": [{ "name": "upgrade", "signal": blocker }],
        "maxBlockedFor": "3s",
        "runTemplate": { "rule": { "all": true }, "allowSingleMember": true },
    });
    put(&api, "EtcdDefragPolicy", "p", &policy).await?;

    let status = until(&api, &leader, "it to be blocked for too long", |s| {
        condition(s) == ("True", "BlockedTooLong")
    })
    .await?;
    let blocked = &status.policy("p")["blocked"];
    assert_eq!(
        blocked["by"],
        json!([{ "name": "upgrade", "reason": "SignalFiring" }])
    );
    assert_eq!(
        (status.decision("p"), status.runs().len()),
        ("Blocked", 0),
        "{status:#?}"
    );
    let message = status.policy("p")["decision"]["message"].to_string();
    assert!(message.contains("Upgrade"), "{message}");
    // It was due when it began to fire, and the blocker was asked after that.
    let due = &status.policy("p")["firingSince"];
    for (what, stored) in [("blockers", &blocked["since"]), ("blocked", due)] {
        let stored = time(stored).as_millisecond() as f64 / 1000.0;
        let shown = since(&leader, what).await?.unwrap_or_default();
        assert!((shown - stored).abs() < 0.01, "{what}: {shown}, {stored}");
    }
    let told = eventually(WAIT, "the event", async || {
        let told = events(&api, "BlockedTooLong").await;
        match told.map_err(|e| e.to_string())? {
            told if told.is_empty() => Err("none".to_owned()),
            told => Ok(told),
        }
    })
    .await?;
    assert_eq!(told[0]["type"], "Warning");

    am.silence("alertname=Upgrade", "ops", "go on").await?;
    until(&api, &leader, "the run", Status::one_is_complete).await?;
    let status = until(&api, &leader, "nothing to hold it back", |s| {
        condition(s) == ("False", "Accepted")
    })
    .await?;
    assert!(status.policy("p")["blocked"].is_null(), "{status:#?}");
    assert_eq!(cluster.defragmentations().await?, [1.0]);
    assert_eq!(since(&leader, "blockers").await?, None);
    assert_eq!(events(&api, "BlockedTooLong").await?.len(), 1);
    Ok(())
}
