//! From a metric to a run, by `defragd controller`.

use std::fs;
use std::path::PathBuf;

use defragd_harness::{Controller, Error, KubeApi, RunningController, Status, eventually, servers};
use serde_json::{Value, json};

use crate::support::{TEAM, WAIT, World};

const DEFRAGD: &str = env!("CARGO_BIN_EXE_defragd");

async fn install_crds(api: &KubeApi) -> Result<(), Error> {
    let crds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/crds.yaml");
    let crds = std::fs::read_to_string(crds).expect("it is there");
    let server_side = ["apply", "--server-side", "-f", "-"];
    api.kubectl_with_input(&server_side, &crds).await?;
    for kind in ["etcdtargets", "etcddefragpolicies", "etcddefrags"] {
        let path = format!("/apis/defragd.dev/v1alpha1/{kind}");
        api.wait_for(&path, |_| true).await?;
    }
    Ok(())
}

async fn create(
    api: &KubeApi,
    kind: &str,
    plural: &str,
    name: &str,
    spec: Value,
) -> Result<(), Error> {
    let object = json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": kind,
        "metadata": { "name": name },
        "spec": spec,
    });
    let list = KubeApi::defragd_path(TEAM, plural);
    api.create(&list, &object).await.map(drop)
}

async fn policy(world: &World, name: &str, signal: Value, dry_run: bool) -> Result<(), Error> {
    let spec = json!({
        "clusterRef": { "name": "main" },
        "signal": { "metric": signal },
        "interval": "1s",
        "dryRun": dry_run,
        "runTemplate": { "rule": { "all": true }, "allowSingleMember": true },
    });
    create(
        &world.api,
        "EtcdDefragPolicy",
        "etcddefragpolicies",
        name,
        spec,
    )
    .await
}

async fn until(
    world: &World,
    defragd: &RunningController,
    what: &str,
    wanted: impl Fn(&Status) -> bool,
) -> Result<Status, Error> {
    eventually(WAIT, what, async || {
        if let Err(ended) = defragd.check() {
            return Ok(Err(ended));
        }
        let status = world.api.defragd(TEAM).await.map_err(|e| e.to_string())?;
        if wanted(&status) {
            Ok(Ok(status))
        } else {
            Err(status.0.to_string())
        }
    })
    .await?
}

/// The reason of the signal of this policy.
fn signal(status: &Status, name: &str) -> Option<String> {
    let items = status.0["items"].as_array()?;
    let policy = items
        .iter()
        .find(|item| item["kind"] == "EtcdDefragPolicy" && item["metadata"]["name"] == name)?;
    let reason = &policy["status"]["clusters"][0]["signal"]["reason"];
    reason.as_str().map(str::to_owned)
}

fn says(status: &Status, name: &str, reason: &str) -> bool {
    signal(status, name).as_deref() == Some(reason)
}

#[tokio::test]
async fn from_a_metric_to_a_run() -> Result<(), Error> {
    let world = World::new().await?;
    install_crds(&world.api).await?;
    // S89: nobody serves the APIs yet.
    let defragd = Controller::new(DEFRAGD, &world.api.kubeconfig_admin())
        .pod("default", "defragd-0")
        .start()
        .await?;
    let endpoints = json!({ "endpoints": world.cluster.endpoints() });
    create(&world.api, "EtcdTarget", "etcdtargets", "main", endpoints).await?;
    let selector = json!({ "matchLabels": { "cluster": "main" } });
    let external = json!({ "name": "ext_reclaimable", "selector": selector });
    let main = json!({ "external": external, "above": "20Mi" });
    policy(&world, "outside", main, true).await?;
    let pod = json!({ "kind": "Pod", "name": "etcd-0" });
    let object = json!({ "describedObject": pod, "name": "pod_reclaimable" });
    let of_pod = json!({ "object": object, "above": "20Mi" });
    policy(&world, "of-pod", of_pod, true).await?;
    until(&world, &defragd, "no data without an API", |status| {
        says(status, "outside", "NoData") && says(status, "of-pod", "NoData")
    })
    .await?;

    // The API service is known, and down.
    world.adapter.register(&world.api).await?;
    until(&world, &defragd, "errors without an adapter", |status| {
        says(status, "outside", "SourceUnavailable") && says(status, "of-pod", "SourceUnavailable")
    })
    .await?;

    world.adapter.start_again(&world.api).await?;
    until(&world, &defragd, "both to fire", |status| {
        says(status, "outside", "SignalFiring") && says(status, "of-pod", "SignalFiring")
    })
    .await?;

    // T84: another metric holds the run back, until it no longer says so.
    let path = KubeApi::defragd_path(TEAM, "etcddefragpolicies");
    let path = format!("{path}/outside");
    let blockers = |above: &str| {
        let metric = json!({ "external": { "name": "ext_ratio" }, "above": above });
        json!([{ "name": "busy", "signal": { "metric": metric } }])
    };
    let for_real = json!({ "spec": { "dryRun": false, "blockers": blockers("0.2") } });
    world.api.patch(&path, &for_real).await?;
    let by = json!([{ "name": "busy", "reason": "SignalFiring" }]);
    let status = until(&world, &defragd, "the blocker to hold", |status| {
        status.policy("outside")["blocked"]["by"] == by
    })
    .await?;
    assert_eq!(
        status.condition("EtcdDefragPolicy", "outside", "Blocked"),
        Some(("True", "Blocked"))
    );
    assert_eq!(status.runs().len(), 0, "{status:#?}");
    let lifted = json!({ "spec": { "blockers": blockers("0.5") } });
    world.api.patch(&path, &lifted).await?;
    let status = until(&world, &defragd, "a run that ends", |status| {
        status
            .runs()
            .iter()
            .any(|run| run["status"]["phase"] == "Complete")
    })
    .await?;
    let run = &status.runs()[0];
    let reclaimed = run["status"]["reclaimedBytes"].as_u64();
    assert!(reclaimed.is_some_and(|bytes| bytes > 20 << 20), "{run}");
    until(
        &world,
        &defragd,
        "what the run gave back to show",
        |status| {
            says(status, "outside", "SignalNotFiring") && says(status, "of-pod", "SignalNotFiring")
        },
    )
    .await?;
    assert_eq!(world.api.defragd(TEAM).await?.runs().len(), 1);

    // S89: down and back.
    world.adapter.kill()?;
    until(&world, &defragd, "an error", |status| {
        says(status, "outside", "SourceUnavailable")
    })
    .await?;
    world.adapter.start_again(&world.api).await?;
    until(&world, &defragd, "an answer again", |status| {
        says(status, "outside", "SignalNotFiring")
    })
    .await?;
    let counted = r#"defragd_source_requests_total{source="kubernetes/metrics",code="200"}"#;
    let answered = defragd.metric(counted).await?;
    assert!(answered.is_some_and(|count| count > 0.0), "{answered:?}");
    defragd.stop().await?;
    s86_a_metric_that_stays_missing_is_an_error_after_15_minutes(&world).await
}

/// The adapter serves none of that name. What passes of the quarter of an hour is the process's own time.
async fn s86_a_metric_that_stays_missing_is_an_error_after_15_minutes(
    world: &World,
) -> Result<(), Error> {
    let clock = Clock::new(world);
    clock.show("+0");
    let defragd = Controller::new(DEFRAGD, &world.api.kubeconfig_admin())
        .pod("default", "defragd-1")
        .env("LD_PRELOAD", servers::faketime().await?)
        .env("FAKETIME_TIMESTAMP_FILE", &clock.file)
        .env("FAKETIME_NO_CACHE", "1")
        .start()
        .await?;
    let outside = |name: &str| json!({ "external": { "name": name }, "above": 1 });
    let pod = json!({ "kind": "Pod", "name": "etcd-0" });
    let of_pod = json!({ "describedObject": pod, "name": "pod_nothing" });
    let of_pod = json!({ "object": of_pod, "above": 1 });
    policy(world, "no-such-outside", outside("ext_nothing"), true).await?;
    policy(world, "no-such-of-pod", of_pod, true).await?;
    let old = ["no-such-outside", "no-such-of-pod"];
    let all_say = |status: &Status, reason: &str| old.iter().all(|p| says(status, p, reason));
    until(world, &defragd, "no data at first", |status| {
        all_say(status, "NoData")
    })
    .await?;

    clock.show("+14m");
    policy(world, "no-such-later", outside("ext_nothing_later"), true).await?;
    until(world, &defragd, "no data of one more", |status| {
        says(status, "no-such-later", "NoData")
    })
    .await?;
    let status = after_not_found(world, &defragd, 6.0).await?;
    assert!(all_say(&status, "NoData"), "{}", status.outline());

    clock.show("+16m");
    until(world, &defragd, "errors in the end", |status| {
        all_say(status, "MetricNotFound")
    })
    .await?;
    let status = after_not_found(world, &defragd, 6.0).await?;
    assert!(all_say(&status, "MetricNotFound"), "{}", status.outline());
    for name in old {
        let message = status.policy(name)["signal"]["message"].as_str();
        let tells = |message: &str| message.contains("for more than 15m: check the metric's name");
        assert!(message.is_some_and(tells), "{message:?}");
    }
    // For two minutes only.
    assert!(
        says(&status, "no-such-later", "NoData"),
        "{}",
        status.outline()
    );
    // The jumps themselves did no harm to others.
    assert!(
        says(&status, "outside", "SignalNotFiring"),
        "{}",
        status.outline()
    );
    Ok(())
}

/// The clocks of a process, both of them: the one on the wall, and that of time that passes.
struct Clock {
    file: PathBuf,
}

impl Clock {
    fn new(world: &World) -> Self {
        let file = world.api.scratch().join("clock");
        Self { file }
    }

    /// Shows so much more than real time from now on.
    fn show(&self, more: &str) {
        // In one piece: it is read all the time.
        let next = self.file.with_extension("next");
        fs::write(&next, more).expect("a file of the test's own");
        fs::rename(&next, &self.file).expect("a file of the test's own");
    }
}

/// The objects after so many more answers that there is no such metric.
async fn after_not_found(
    world: &World,
    defragd: &RunningController,
    more: f64,
) -> Result<Status, Error> {
    let counted = r#"defragd_source_requests_total{source="kubernetes/metrics",code="404"}"#;
    let count = async || defragd.metric(counted).await;
    let before = count().await?.unwrap_or(0.0);
    eventually(
        WAIT,
        format!("{more} more answers"),
        async || match count().await {
            Ok(Some(now)) if now >= before + more => Ok(()),
            other => Err(format!("{other:?}, before {before}")),
        },
    )
    .await?;
    world.api.defragd(TEAM).await
}
