//! Objects from before an upgrade.

use std::fs;

use defragd_harness::{Error, Etcd, Kube, KubeApi};
use serde_json::json;

use crate::support::{Case, checkout, controller, list, named, policy, rests, run, target};

/// They are stored under the definitions of the time, with a status of the time, and are used under
/// those of today as they are.
#[tokio::test]
async fn old_objects_are_used() -> Result<(), Error> {
    let api = Kube::default().start().await?;
    let read = |path: &str| fs::read_to_string(checkout(path)).expect("it is there");
    api.install_crds(&read("tests/fixtures/crds-before-kubernetes.yaml"))
        .await?;
    api.apply(&named("Namespace", "defragd-system").to_string())
        .await?;
    let cluster = Etcd::default().members(1).start().await?;
    let other = Etcd::default().members(1).start().await?;
    let objects = [
        target("demo", &cluster),
        target("other", &other),
        run("resumed", "other", json!({ "suspend": true })),
        run("ended", "demo", json!({})),
        policy("after", "demo", json!({ "cooldown": "30d" })),
    ];
    let namespace = "before";
    api.apply(&named("Namespace", namespace).to_string())
        .await?;
    api.apply(&list(namespace, &objects).to_string()).await?;
    let path =
        |kind: &str, name: &str| format!("{}/{name}", KubeApi::defragd_path(namespace, kind));
    let ended = json!({
        "phase": "Failed",
        "reason": "Deferred",
        "message": "the cluster was not fit before the deadline",
        "completedAt": "2026-01-01T00:00:00Z",
        "result": { "reason": "Deferred", "message": "the cluster was not fit before the deadline" },
    });
    let status = json!({ "status": ended });
    api.patch(&format!("{}/status", path("etcddefrags", "ended")), &status)
        .await?;
    let stored = [
        "etcdtargets/demo",
        "etcddefrags/ended",
        "etcddefragpolicies/after",
    ];
    let mut specs = Vec::new();
    for object in stored {
        let (kind, name) = object.split_once('/').expect("there is a slash");
        let object = api.get(&path(kind, name)).await?.expect("it is stored");
        specs.push(object["spec"].clone());
    }

    api.install_crds(&read("docs/reference/crds.yaml")).await?;
    let defragd = controller(&api).await?.start().await?;
    let case = Case {
        api: &api,
        defragd: &defragd,
        namespace,
    };
    case.until("etcddefragpolicies", "after", "its run to end", rests)
        .await?;
    assert_eq!(cluster.defragmentations().await?, [1.0]);
    api.patch(
        &path("etcddefrags", "resumed"),
        &json!({ "spec": { "suspend": false } }),
    )
    .await?;
    case.until_complete("resumed").await?;
    assert_eq!(other.defragmentations().await?, [1.0]);
    for (object, spec) in stored.iter().zip(specs) {
        let (kind, name) = object.split_once('/').expect("there is a slash");
        let object = api.get(&path(kind, name)).await?.expect("it is stored");
        assert_eq!(object["spec"], spec);
    }
    let kept = api.get(&path("etcddefrags", "ended")).await?;
    let kept = kept.expect("it is stored");
    assert_eq!(kept["status"]["completedAt"], "2026-01-01T00:00:00Z");
    Ok(())
}
