//! The columns of `kubectl get` when nothing comes of what was asked for: they say why.

use defragd_harness::{Error, KubeApi};
use serde_json::{Value, json};

use crate::support::{install, kubectl, object, run, start, target, until};
use crate::tables::golden;

const NOWHERE: &str = "http://127.0.0.1:9";

fn policy(name: &str, spec: Value) -> Value {
    object("EtcdDefragPolicy", name, spec)
}

/// Objects each of which has another reason to stand still.
fn objects() -> Vec<Value> {
    let endpoints = json!({ "endpoints": [NOWHERE] });
    let probe = json!({ "probe": { "rule": { "all": true } } });
    let elsewhere = json!({ "prometheus": { "source": "elsewhere", "query": "up", "above": 1 } });
    let on = |cluster: &str| json!({ "name": cluster });
    let mut suspended = run("suspended", "queue");
    suspended["spec"]["suspend"] = json!(true);
    vec![
        target("silent", endpoints.clone()),
        target("queue", endpoints),
        run("first", "queue"),
        run("unknown", "not-there"),
        suspended,
        policy(
            "no-cluster",
            json!({ "clusterRef": on("not-there"), "signal": probe }),
        ),
        policy(
            "no-source",
            json!({ "clusterRef": on("silent"), "signal": elsewhere }),
        ),
        policy(
            "silent",
            json!({ "clusterRef": on("silent"), "signal": probe }),
        ),
        policy(
            "suspended",
            json!({ "clusterRef": on("silent"), "signal": probe, "suspend": true }),
        ),
    ]
}

#[tokio::test]
async fn the_columns_say_why_nothing_happens() -> Result<(), Error> {
    let api = KubeApi::start().await?;
    let release = install(&api, &json!({})).await?;
    let defragd = start(&api, &release, "defragd-0").await?;
    let objects = objects();
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    api.apply(&documents.join("\n---\n")).await?;
    until(&api, &defragd, "a word about each object", |status| {
        let names = |kind: &'static str| {
            let of_kind = objects.iter().filter(move |object| object["kind"] == kind);
            of_kind.filter_map(|object| object["metadata"]["name"].as_str())
        };
        names("EtcdTarget").all(|name| status.condition("EtcdTarget", name, "Ready").is_some())
            && names("EtcdDefragPolicy").all(|name| !status.decision(name).is_empty())
            && names("EtcdDefrag")
                .all(|name| status.item("EtcdDefrag", name)["status"]["reason"].is_string())
    })
    .await?;
    let table = kubectl(&api, &["get", "defragd"]).await?;
    insta::assert_snapshot!("kubectl_get_defragd_waiting", golden(&table, &[]));
    Ok(())
}
