//! Objects that no schema kept out: made before it, or by somebody who loosened it.

use defragd_harness::{Error, Etcd, Kube, KubeApi, eventually, objects};
use serde_json::{Value, json};

use crate::support::{Case, WAIT, api, condition, controller, policy, rests, run, target, waits};

/// One of our kinds with anything in its spec.
fn nonsense(kind: &str, name: &str, spec: Value) -> Value {
    objects::object(kind, name, &spec)
}

/// They are said on the object where it can be written and in the log where not, and the others
/// go on.
#[tokio::test]
async fn nonsense_is_said_and_stops_nobody() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    loosen(&api).await?;
    let defragd = controller(&api).await?.start().await?;
    let case = Case::new(&api, &defragd, "nonsense").await?;
    let mistaken = json!({ "clusterRef": { "name": "demo" }, "rule": { "all": "yes" } });
    let mut nothing = nonsense("EtcdTarget", "nothing", Value::Null);
    nothing.as_object_mut().and_then(|map| map.remove("spec"));
    case.apply(&[
        nothing,
        nonsense("EtcdTarget", "number", json!(7)),
        nonsense("EtcdDefragPolicy", "text", json!("whenever")),
        nonsense("EtcdDefragPolicy", "list", json!([])),
        nonsense("EtcdDefrag", "number", json!(-1)),
        nonsense("EtcdDefrag", "mistaken", mistaken),
    ])
    .await?;
    for (kind, name) in [
        ("etcdtargets", "nothing"),
        ("etcdtargets", "number"),
        ("etcddefragpolicies", "text"),
        ("etcddefragpolicies", "list"),
    ] {
        let said = |object: &Value| {
            let ready = condition(object, "Ready");
            ready["status"] == "False" && ready["reason"] == "InvalidSpec"
        };
        case.until(kind, name, "to be called invalid", said).await?;
    }
    for name in ["number", "mistaken"] {
        let refused = |run: &Value| {
            run["status"]["phase"] == "Failed" && run["status"]["reason"] == "InvalidSpec"
        };
        case.until("etcddefrags", name, "to be refused", refused)
            .await?;
    }

    // What was remembered of one cluster is lost, and nobody knows what happened to it.
    let lost = Etcd::default().members(1).start().await?;
    let suspended = json!({ "suspend": true });
    case.apply(&[
        target("lost", &lost),
        run("lost", "lost", suspended.clone()),
        policy("lost", "lost", suspended),
    ])
    .await?;
    for (kind, nonsense) in [
        ("etcddefrags", json!({ "phase": 17 })),
        ("etcddefragpolicies", json!({ "clusters": "all" })),
        ("etcdtargets", json!([])),
    ] {
        let path = format!("{}/status", case.path(kind, "lost"));
        api.patch(&path, &json!({ "status": nonsense })).await?;
    }
    case.apply(&[
        run("behind", "lost", json!({})),
        policy("lost", "lost", json!({})),
    ])
    .await?;

    // What is as it should be goes on.
    let cluster = Etcd::default().members(1).start().await?;
    case.apply(&[target("demo", &cluster), policy("good", "demo", json!({}))])
        .await?;
    case.until("etcddefragpolicies", "good", "its run to end", rests)
        .await?;
    assert_eq!(cluster.defragmentations().await?, [1.0]);
    assert_eq!(lost.defragmentations().await?, [0.0]);
    let log = defragd.logged();
    for words in ["unable to read the run's record", "phase", "clusters"] {
        let told = |line: &str| line.contains("nonsense/lost") && line.contains(words);
        assert!(log.lines().any(told), "{words}: {log}");
    }

    // Once it is gone, who waited behind it has its turn.
    case.delete("etcddefrags.defragd.dev", "lost").await?;
    case.until_complete("behind").await?;
    assert_eq!(lost.defragmentations().await?, [1.0]);
    Ok(())
}

/// A cluster of two names has one run that nobody can read: it may be in the middle of a member.
#[tokio::test]
async fn a_run_that_cannot_be_read_holds_up_its_cluster_by_every_name() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    let defragd = controller(&api).await?.start().await?;
    let case = Case::new(&api, &defragd, "twins").await?;
    let cluster = Etcd::default().members(1).start().await?;
    let suspended = json!({ "suspend": true });
    case.apply(&[
        target("one", &cluster),
        target("two", &cluster),
        run("half", "one", suspended),
    ])
    .await?;
    let known = |target: &Value| target["status"]["clusterID"].is_string();
    for name in ["one", "two"] {
        case.until("etcdtargets", name, "its id", known).await?;
    }
    let member = json!({
        "memberID": "nobody", "name": "?", "role": "Leader", "outcome": "InProgress",
        "reason": "NoSuchReason",
    });
    let patch = json!({ "status": { "phase": "Running", "members": [member] } });
    let path = format!("{}/status", case.path("etcddefrags", "half"));
    api.patch(&path, &patch).await?;
    case.apply(&[run("other", "two", json!({}))]).await?;
    let held = |run: &Value| waits(run, "RunsUnreadable", "twins/half");
    case.until("etcddefrags", "other", "to wait", held).await?;
    assert_eq!(cluster.defragmentations().await?, [0.0]);

    case.delete("etcddefrags.defragd.dev", "half").await?;
    case.until_complete("other").await?;
    assert_eq!(cluster.defragmentations().await?, [1.0]);
    Ok(())
}

/// What the schema takes and still means nothing: ids that are none, members without a run.
#[tokio::test]
async fn a_status_that_fits_the_schema_may_still_be_nonsense() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    let defragd = controller(&api).await?.start().await?;
    let case = Case::new(&api, &defragd, "patched").await?;
    let cluster = Etcd::default().members(1).start().await?;
    let waiting = run("waiting", "demo", json!({ "suspend": true }));
    let quiet = json!({ "signal": { "probe": { "rule": { "freeSpaceAbove": "1Ti" } } } });
    case.apply(&[
        target("demo", &cluster),
        policy("quiet", "demo", quiet),
        waiting,
    ])
    .await?;
    let known = |target: &Value| target["status"]["clusterID"].is_string();
    case.until("etcdtargets", "demo", "its id", known).await?;

    // Somebody else's words about the cluster are corrected by the next look.
    let patch = json!({ "status": { "clusterID": "not an id", "voters": 77 } });
    api.patch(
        &format!("{}/status", case.path("etcdtargets", "demo")),
        &patch,
    )
    .await?;
    let right = |target: &Value| {
        target["status"]["clusterID"] == json!(format!("{:x}", cluster.id()))
            && target["status"]["voters"] == 1
    };
    case.until("etcdtargets", "demo", "its own id again", right)
        .await?;

    let member = json!({
        "memberID": "nobody", "name": "?", "role": "Leader", "outcome": "InProgress",
        "reason": "NoSuchReason",
    });
    let patch = json!({ "status": { "phase": "Running", "members": [member] } });
    let path = format!("{}/status", case.path("etcddefrags", "waiting"));
    api.patch(&path, &patch).await?;
    case.watch("the log to tell", async || {
        let log = defragd.logged();
        if log
            .lines()
            .any(|l| l.contains("patched/waiting") && l.contains("unable to read"))
        {
            Ok(())
        } else {
            Err("nothing".to_owned())
        }
    })
    .await?;
    case.delete("etcddefrags.defragd.dev", "waiting").await?;
    case.until_gone(&case.path("etcddefrags", "waiting"))
        .await?;
    case.apply(&[run("next", "demo", json!({}))]).await?;
    case.until_complete("next").await?;
    assert_eq!(cluster.defragmentations().await?, [1.0]);
    Ok(())
}

/// Lets everything in, as an administrator can.
async fn loosen(api: &KubeApi) -> Result<(), Error> {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let patch = json!([{
        "op": "replace",
        "path": "/spec/versions/0/schema",
        "value": { "openAPIV3Schema": anything },
    }])
    .to_string();
    for (kind, plural) in [
        ("EtcdTarget", "etcdtargets"),
        ("EtcdDefragPolicy", "etcddefragpolicies"),
        ("EtcdDefrag", "etcddefrags"),
    ] {
        let name = format!("{plural}.defragd.dev");
        api.kubectl(&["patch", "crd", &name, "--type=json", "--patch", &patch])
            .await?;
        // The old schema is in force until the server has seen the new one.
        let object = nonsense(kind, "probe", json!(0));
        eventually(WAIT, "the schema to be loose", async || {
            let args = ["create", "--dry-run=server", "-f", "-"];
            api.kubectl_with_input(&args, &object.to_string()).await
        })
        .await?;
    }
    Ok(())
}
