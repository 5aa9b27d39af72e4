//! The outcome: from `helm install` to a run that is collected with its policy.

use std::time::Duration;

use defragd_harness::{
    Cluster, Error, Etcd, KubeApi, Prometheus, PrometheusServer, Release, RunningController,
    Status, eventually,
};
use serde_json::{Value, json};

use crate::support::{MIB, TEAM, WAIT, install, kubectl, start, until, wait_for_success};
use crate::tables::golden;

const POLICY: &str = "
apiVersion: defragd.dev/v1alpha1
kind: EtcdDefragPolicy
metadata: {name: fragmented, namespace: team}
spec:
  clusterRef: {name: main}
  signal:
    prometheus:
      source: main
      query: max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)
      above: 100Mi
  for: 2s
  interval: 1s
  cooldown: 1h
  runTemplate:
    rule: {freeSpaceAbove: 50Mi}
";

/// Everything that the story needs, and the release's two pods, of which the first one leads.
struct World {
    // The order matters: defragd ends before what it watches.
    pods: Vec<RunningController>,
    release: Release,
    api: KubeApi,
    _prometheus: PrometheusServer,
    cluster: Cluster,
}

impl World {
    /// A fragmented cluster, and a release that knows nothing of it.
    async fn new() -> Result<Self, Error> {
        let (api, cluster) = tokio::try_join!(
            KubeApi::start(),
            Etcd::default().raft_log_entries(100).start()
        )?;
        let interval = Duration::from_millis(500);
        let prometheus = Prometheus::default()
            .scrape_etcd(&cluster, interval)
            .start()
            .await?;
        let source = json!({ "name": "main", "prometheus": { "url": prometheus.url() } });
        let values = json!({ "config": { "sources": [source] } });
        let release = install(&api, &values).await?;
        // After the CRDs: kinds that come later are minded half a minute later.
        let (fragmented, started) = tokio::join!(
            cluster.fragment(150 * MIB, 8 * MIB),
            api.start_controller_manager()
        );
        fragmented.and(started)?;
        let mut pods = Vec::new();
        for pod in release.pods(&api).await? {
            pods.push(start(&api, &release, &pod).await?);
        }
        Ok(Self {
            pods,
            release,
            api,
            _prometheus: prometheus,
            cluster,
        })
    }

    fn leader(&self) -> &RunningController {
        &self.pods[0]
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Result<Status, Error> {
        until(&self.api, self.leader(), what, wanted).await
    }

    /// The requests of defragd that change something, but for those about its own lease.
    async fn writes(&self) -> Result<Vec<Value>, Error> {
        let user = self.release.user(&self.api).await?;
        let mut requests = self.api.audit()?;
        requests.retain(|request| {
            request["user"]["username"] == user.as_str()
                && !["get", "list", "watch"]
                    .map(Value::from)
                    .contains(&request["verb"])
                && request["objectRef"]["resource"] != "leases"
        });
        Ok(requests)
    }
}

#[tokio::test]
async fn from_helm_install_to_the_collected_run() -> Result<(), Error> {
    let world = World::new().await?;
    one_of_the_pods_leads(&world).await?;
    without_a_policy_nothing_is_defragmented(&world).await?;

    world.api.apply(POLICY).await?;
    let status = world.until("a run", |s| !s.runs().is_empty()).await?;
    let name = status.runs()[0]["metadata"]["name"].clone();
    let name = name.as_str().expect("objects have names");
    wait_for_success(&world.api, name).await?;
    // What the policy then says is from after the run.
    let status = world
        .until("a quiet signal", |s| {
            s.decision("fragmented") == "SignalNotFiring"
        })
        .await?;
    let runs = status.runs();
    assert_eq!(runs.len(), 1, "exactly one run of one firing: {runs:#?}");
    the_run_belongs_to_the_policy(&status, runs[0]);
    assert_eq!(world.cluster.defragmentations().await?, [1.0; 3]);
    kubectl_tells_the_story(&world, &status, name).await?;
    a_second_run_has_an_event_of_its_own(&world, name).await?;
    the_run_goes_with_its_policy(&world, name).await?;

    for pod in &world.pods {
        let ended = pod.stop().await?;
        let log = pod.log_tail();
        assert!(
            ended.is_some_and(|status| status.success()),
            "{ended:?}: {log}"
        );
    }
    let path = "/apis/coordination.k8s.io/v1/namespaces/defragd/leases/defragd";
    let lease = world.api.get(path).await?.unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str();
    assert!(holder.is_none_or(str::is_empty), "it was let go: {lease:#}");
    Ok(())
}

/// Both are ready. The one that leads calls itself in the lease as the downward API called it.
async fn one_of_the_pods_leads(world: &World) -> Result<(), Error> {
    let path = "/apis/coordination.k8s.io/v1/namespaces/defragd/leases/defragd";
    let is_held = |lease: &Value| lease["spec"]["holderIdentity"].is_string();
    let lease = world.api.wait_for(path, is_held).await?;
    let pods = world.release.pods(&world.api).await?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    assert!(
        holder.starts_with(&format!("{}_", pods[0])),
        "{holder} of {pods:?}"
    );
    for (pod, leads) in world.pods.iter().zip([1.0, 0.0]) {
        eventually(WAIT, "the replica to know", async || {
            pod.metric("defragd_leader")
                .await
                .is_ok_and(|now| now == Some(leads))
        })
        .await?;
        assert_eq!(pod.page("/readyz").await?.trim(), "ok");
    }
    Ok(())
}

/// A target alone is watched, and nothing else.
async fn without_a_policy_nothing_is_defragmented(world: &World) -> Result<(), Error> {
    let endpoints = json!(world.cluster.endpoints());
    let target = format!(
        "
apiVersion: defragd.dev/v1alpha1
kind: EtcdTarget
metadata: {{name: main, namespace: team}}
spec: {{endpoints: {endpoints}}}
"
    );
    world.api.apply(&target).await?;
    world
        .until("the target", |s| {
            s.condition("EtcdTarget", "main", "Ready") == Some(("True", "ClusterHealthy"))
        })
        .await?;
    // It has seen that there is much to give back, and has gone over all objects since.
    let page = world.leader().metrics().await?;
    let free = |name: &str| -> f64 {
        let name = format!("defragd_cluster_member_db_{name}_bytes{{");
        let lines = page.lines().filter(|line| line.starts_with(&name));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    };
    assert!(free("size") - free("in_use") > (300 * MIB) as f64, "{page}");
    let round = "defragd_engine_last_round_timestamp_seconds";
    let before = world.leader().metric(round).await?;
    eventually(WAIT, "another round", async || {
        let now = world.leader().metric(round).await;
        now.is_ok_and(|now| now > before)
    })
    .await?;
    let status = world.api.defragd(TEAM).await?;
    assert!(status.runs().is_empty(), "{}", status.outline());
    assert_eq!(world.cluster.defragmentations().await?, [0.0; 3]);
    for write in world.writes().await? {
        let about = &write["objectRef"];
        assert_eq!(
            (&write["verb"], &about["resource"], &about["subresource"]),
            (&json!("patch"), &json!("etcdtargets"), &json!("status")),
            "{write:#}"
        );
    }
    Ok(())
}

fn the_run_belongs_to_the_policy(status: &Status, run: &Value) {
    let policy = status.item("EtcdDefragPolicy", "fragmented");
    let metadata = &run["metadata"];
    let owner = json!([{
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": "EtcdDefragPolicy",
        "name": "fragmented",
        "uid": policy["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    assert_eq!(metadata["ownerReferences"], owner);
    let labels = json!({ "defragd.dev/policy": "fragmented", "defragd.dev/cluster": "main" });
    assert_eq!(metadata["labels"], labels);
    let cause = metadata["annotations"]["defragd.dev/cause"].as_str();
    assert!(
        cause.is_some_and(|cause| cause.starts_with("SignalFiring: the value is ")),
        "{metadata:#}"
    );
    assert_eq!(metadata["finalizers"], Value::Null, "its end is recorded");
    assert_eq!(run["spec"]["rule"]["freeSpaceAbove"], "50Mi");
    let members = run["status"]["members"].as_array();
    let outcomes = members.into_iter().flatten().map(|m| &m["outcome"]);
    assert!(outcomes.eq([&json!("Defragmented"); 3]), "{run:#}");
}

async fn kubectl_tells_the_story(world: &World, status: &Status, run: &str) -> Result<(), Error> {
    let by_label = [
        "get",
        "defrag",
        "--selector=defragd.dev/policy=fragmented",
        "--output=name",
    ];
    let found = kubectl(&world.api, &by_label).await?;
    assert_eq!(found.trim(), format!("etcddefrag.defragd.dev/{run}"));

    let policy = status.policy("fragmented");
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let reclaimed = text(&status.runs()[0]["status"]["reclaimed"]);
    let eligible = text(&policy["nextEligibleTime"]);
    let cluster_id = text(&status.item("EtcdTarget", "main")["status"]["clusterID"]);
    let (value, message) = (
        text(&policy["signal"]["value"]),
        text(&policy["signal"]["message"]),
    );
    let volatile = [
        (run, "fragmented-(digest)"),
        (&reclaimed, "(size)"),
        (&eligible, "(time)"),
        (&cluster_id, "(cluster id)"),
        (&message, "(the value in words)"),
        (&value, "(value)"),
    ];
    if let Some((_, what)) = volatile.iter().find(|(seen, _)| seen.is_empty()) {
        panic!("no {what} in {}", status.outline());
    }
    for (snapshot, words) in [
        ("kubectl_get_defragd", &["defragd"][..]),
        ("kubectl_get_defragd_wide", &["defragd", "--output=wide"]),
        ("kubectl_get_defrag_wide", &["defrag", "--output=wide"]),
        (
            "kubectl_get_defragpolicy_wide",
            &["defragpolicy", "--output=wide"],
        ),
        ("kubectl_get_etcdtarget", &["etcdtarget"]),
    ] {
        let table = kubectl(&world.api, &[&["get"], words].concat()).await?;
        insta::assert_snapshot!(snapshot, golden(&table, &volatile));
    }

    let events = [
        (
            "defrag",
            run,
            "SweepComplete",
            "3 of 3 members defragmented",
        ),
        (
            "defragpolicy",
            "fragmented",
            "RunCreated",
            &format!("run {run}: the value is "),
        ),
    ];
    for (kind, name, reason, message) in events {
        tells(world, kind, name, reason, message).await?;
    }
    Ok(())
}

/// Waits until `kubectl describe` shows this event.
async fn tells(
    world: &World,
    kind: &str,
    name: &str,
    reason: &str,
    message: &str,
) -> Result<(), Error> {
    let what = format!("{kind} {name} to tell {reason}: {message}");
    eventually(WAIT, what, async || {
        let said = kubectl(&world.api, &["describe", kind, name]).await;
        let said = said.map_err(|e| e.to_string())?;
        let (_, events) = said.split_once("\nEvents:").unwrap_or_default();
        let told = events.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.starts_with(&["Normal", reason]) && line.contains(message)
        });
        if told { Ok(()) } else { Err(said) }
    })
    .await
}

/// It is another run, not the first one again. There is nothing left to give back.
async fn a_second_run_has_an_event_of_its_own(world: &World, first: &str) -> Result<(), Error> {
    let trigger = "{\"spec\":{\"trigger\":\"now\"}}";
    let patch = [
        "patch",
        "defragpolicy",
        "fragmented",
        "--type=merge",
        "--patch",
        trigger,
    ];
    kubectl(&world.api, &patch).await?;
    let ended = |run: &&Value| run["status"]["phase"] == "Complete";
    let status = world
        .until("a second run to end", |s| {
            s.runs().iter().filter(|run| ended(run)).count() == 2
        })
        .await?;
    let names = status.runs();
    let names = names
        .iter()
        .filter_map(|run| run["metadata"]["name"].as_str());
    for run in names {
        let message = format!("run {run}: ");
        tells(world, "defragpolicy", "fragmented", "RunCreated", &message).await?;
        if run != first {
            kubectl(&world.api, &["delete", "defrag", run]).await?;
        }
    }
    assert_eq!(world.cluster.defragmentations().await?, [1.0; 3]);
    Ok(())
}

async fn the_run_goes_with_its_policy(world: &World, run: &str) -> Result<(), Error> {
    let [leader, follower] = &world.pods[..] else {
        panic!("{} pods", world.pods.len());
    };
    assert!(series_of_policies(leader).await? > 0);
    assert_eq!(series_of_policies(follower).await?, 0, "it does not lead");
    kubectl(&world.api, &["delete", "defragpolicy", "fragmented"]).await?;
    let path = KubeApi::defragd_path(TEAM, "etcddefrags");
    world.api.wait_until_gone(&format!("{path}/{run}")).await?;
    let count = "defragd_objects{kind=\"etcddefrags\"}";
    eventually(WAIT, "defragd to know that it is gone", async || {
        world
            .leader()
            .metric(count)
            .await
            .is_ok_and(|now| now == Some(0.0))
    })
    .await?;
    for pod in &world.pods {
        assert_eq!(series_of_policies(pod).await?, 0, "it is gone");
    }
    assert_eq!(world.cluster.defragmentations().await?, [1.0; 3]);
    Ok(())
}

/// How many series a replica has about policies.
async fn series_of_policies(pod: &RunningController) -> Result<usize, Error> {
    let page = pod.metrics().await?;
    let of_policy = |line: &&str| line.starts_with("defragd_policy_");
    Ok(page.lines().filter(of_policy).count())
}
