//! Where the members are: in pods, and in the clusters of two other operators, whose definitions
//! come later than defragd. etcd is real; each member has a loopback address of its own, which is
//! its pod's, and nobody knows the names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use defragd_harness::operators::{
    self, COZYSTACK, ETCD_IO, address, cozystack_labels, cozystack_member_status, cozystack_status,
    etcd_io_status, pod, pod_runs, say,
};
use defragd_harness::{
    Cluster, Error, Etcd, Kube, KubeApi, Place, RunningController, Tls, own_address,
};
use serde_json::{Value, json};

use crate::support::{
    Case, api, asked, condition, controller, in_short, named, policy, rests, run, target_by_pods,
    waits,
};

const NAMES: [&str; 3] = ["etcd-0", "etcd-fx2lq", "etcd-w9m4k"];

#[tokio::test]
async fn members_are_found_where_others_put_them() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    let defragd = controller(&api).await?.start().await?;
    futures::try_join!(
        pods_by_their_labels(&api, &defragd),
        clusters_of_cozystack(&api, &defragd),
        clusters_of_etcd_io(&api, &defragd),
    )?;

    let theirs = |event: &&Value| {
        let group = event["objectRef"]["apiGroup"].as_str();
        group.is_some_and(|group| [COZYSTACK, ETCD_IO].contains(&group))
    };
    let all = asked(&api)?;
    let verbs: BTreeSet<&str> = all
        .iter()
        .filter(theirs)
        .filter_map(|event| event["verb"].as_str())
        .collect();
    let read = |verb: &str| matches!(verb, "get" | "list" | "watch");
    let written: Vec<String> = all
        .iter()
        .filter(theirs)
        .filter(|event| !event["verb"].as_str().is_some_and(read))
        .map(in_short)
        .collect();
    assert!(written.is_empty(), "{written:?}");
    assert!(verbs.contains("watch"), "{verbs:?}");
    each_request_is_counted(&defragd).await
}

/// Whoever makes it.
async fn each_request_is_counted(defragd: &RunningController) -> Result<(), Error> {
    let page = defragd.metrics().await?;
    for labels in [
        r#"verb="update",resource="leases",code="200""#,
        r#"verb="create",resource="events",code="201""#,
        r#"verb="list",resource="etcddefrags",code="200""#,
        r#"verb="watch",resource="etcdtargets",code="200""#,
        r#"verb="watch",resource="pods",code="200""#,
        r#"verb="get",resource="secrets",code="200""#,
        r#"verb="list",resource="etcdclusters.operator.etcd.io",code="404""#,
        r#"verb="patch",resource="etcddefragpolicies",code="200""#,
    ] {
        let series = format!("defragd_api_requests_total{{{labels}}} ");
        assert!(page.contains(&series), "{series}: {page}");
    }
    Ok(())
}

/// No pod, some pods, one that is not ready, and one more.
async fn pods_by_their_labels(api: &KubeApi, defragd: &RunningController) -> Result<(), Error> {
    let case = Case::new(api, defragd, "by-pods").await?;
    let cluster = members("", |_| None, Etcd::default()).await?;
    case.apply(&[target_by_pods("demo", "etcd")]).await?;
    let unresolved = |target: &Value| {
        let ready = condition(target, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["status"] == "False"
            && ready["reason"] == "MembersUnresolved"
            && message.contains("app=etcd")
    };
    case.until("etcdtargets", "demo", "no pod", unresolved)
        .await?;

    let label = json!({ "app": "etcd" });
    let mut pods: Vec<Value> = NAMES.map(|name| pod(name, &label, &[])).to_vec();
    pods.push(pod("client", &json!({ "app": "shop" }), &[]));
    case.apply(&pods).await?;
    let url = |i: usize| cluster.endpoints()[i].clone();
    pod_runs(&case, "client", "127.0.0.1", true).await?;
    pod_runs(&case, NAMES[0], &address(&cluster, 0), false).await?;
    pod_runs(&case, NAMES[1], &address(&cluster, 1), true).await?;
    let sees = |target: &Value, urls: &[String]| {
        condition(target, "Ready")["status"] == "True"
            && target["status"]["endpoints"] == json!(urls)
    };
    // The third has no kubelet yet.
    let two = |target: &Value| {
        let message = condition(target, "Ready")["message"].clone();
        let message = message.as_str().unwrap_or_default();
        let left_out = format!("left out: {} is Pending", NAMES[2]);
        sees(target, &[url(0), url(1)]) && message.ends_with(&left_out)
    };
    case.until("etcdtargets", "demo", "two pods", two).await?;
    pod_runs(&case, NAMES[2], &address(&cluster, 2), true).await?;
    let three = |target: &Value| {
        let message = condition(target, "Ready")["message"].clone();
        let message = message.as_str().unwrap_or_default();
        sees(target, &[url(0), url(1), url(2)]) && !message.contains("left out")
    };
    case.until("etcdtargets", "demo", "three pods", three)
        .await?;

    case.apply(&[run("by-hand", "demo", json!({}))]).await?;
    case.until_complete("by-hand").await?;
    assert_eq!(cluster.defragmentations().await?, [1.0; 3]);
    Ok(())
}

/// With TLS by names that only the certificate knows, Secrets that its users brought, a snapshot's
/// pod under the cluster's label, and an operator at work.
async fn clusters_of_cozystack(api: &KubeApi, defragd: &RunningController) -> Result<(), Error> {
    let case = Case::new(api, defragd, "cozy").await?;
    let reference = json!({
        "apiVersion": format!("{COZYSTACK}/v1alpha2"), "kind": "EtcdCluster", "name": "etcd",
    });
    let by_hand = run("by-hand", "etcd", json!({ "clusterRef": reference }));
    case.apply(&[by_hand]).await?;
    until_waits(&case, "ClusterNotFound", "is not installed").await?;

    let service = "etcd.cozy.svc";
    let etcd = Etcd::default()
        .tls(Tls::Mutual)
        .server_names([service.to_owned(), format!("*.{service}")]);
    let host = |name: &str| Some(format!("{name}.{service}"));
    let cluster = members("metrics", host, etcd).await?;
    secrets(&case, &cluster).await?;
    api.apply(&operators::cozystack()).await?;
    until_waits(&case, "ClusterNotFound", "does not exist").await?;

    let labels = |name: &str| cozystack_labels("etcd", name);
    let kind = |kind: &str, name: &str, spec: Value| {
        operators::theirs(COZYSTACK, kind, name, &labels(name), &spec)
    };
    let mut objects = vec![
        kind(
            "EtcdCluster",
            "etcd",
            json!({
                "replicas": 3,
                "version": "3.6.16",
                "tls": { "client": {
                    "serverSecretRef": { "name": "server-tls" },
                    "operatorClientSecretRef": { "name": "client-tls" },
                } },
            }),
        ),
        kind(
            "EtcdDefrag",
            "theirs",
            json!({ "clusterRef": { "name": "etcd" } }),
        ),
        pod(
            "etcd-snapshot-1",
            &json!({ "etcd-operator.cozystack.io/cluster": "etcd" }),
            &[],
        ),
    ];
    for name in NAMES {
        objects.push(kind("EtcdMember", name, json!({ "clusterName": "etcd" })));
        objects.push(pod(name, &labels(name), &[]));
    }
    case.apply_once_served(&objects).await?;
    pod_runs(&case, "etcd-snapshot-1", "127.0.0.1", true).await?;
    for (i, name) in NAMES.iter().enumerate() {
        pod_runs(&case, name, &address(&cluster, i), true).await?;
        let status = cozystack_member_status(&cluster, i, name);
        say(&case, COZYSTACK, "etcdmembers", name, &status).await?;
    }
    until_waits(&case, "MembersUnresolved", "status.observed").await?;

    let status = async |changing: bool| {
        let status = cozystack_status(&cluster, changing);
        say(&case, COZYSTACK, "etcdclusters", "etcd", &status).await
    };
    status(true).await?;
    until_waits(&case, "ClusterChanging", "SpecChanged").await?;
    let log = defragd.logged();
    let remark = format!("EtcdDefrag.{COZYSTACK} theirs has no phase");
    assert_eq!(log.matches(&remark).count(), 1, "{log}");
    let defrag = async |phase: &str| {
        let status = json!({ "phase": phase });
        say(&case, COZYSTACK, "etcddefrags", "theirs", &status).await
    };
    defrag("Running").await?;
    status(false).await?;
    until_waits(&case, "ClusterChanging", "theirs is Running").await?;
    assert_eq!(cluster.defragmentations().await?, [0.0; 3]);
    defrag("Complete").await?;
    let run = case.until_complete("by-hand").await?;
    assert_eq!(
        run["status"]["clusterID"],
        json!(format!("{:x}", cluster.id()))
    );
    assert_eq!(cluster.defragmentations().await?, [1.0; 3]);
    Ok(())
}

/// A policy waits for it too, and finds it again after it was away.
async fn clusters_of_etcd_io(api: &KubeApi, defragd: &RunningController) -> Result<(), Error> {
    let case = Case::new(api, defragd, "io-team").await?;
    let reference = json!({
        "apiVersion": format!("{ETCD_IO}/v1alpha1"), "kind": "EtcdCluster", "name": "etcd",
    });
    let spec = json!({ "clusterRef": reference });
    case.apply(&[policy("auto", "etcd", spec.clone())]).await?;
    let absent = |policy: &Value| {
        let text = policy["status"].to_string();
        text.contains("ClusterNotFound") && text.contains("is not installed")
    };
    case.until("etcddefragpolicies", "auto", "no such kind", absent)
        .await?;

    let names: Vec<String> = (0..3).map(|i| format!("etcd-{i}")).collect();
    let places = names.iter().map(|name| Place {
        name: name.clone(),
        address: own_address(),
        host: Some(format!("{name}.etcd.io-team.svc.cluster.local")),
        metrics: false,
    });
    let cluster = Etcd::default().places(places).start().await?;
    api.apply(&operators::etcd_io()).await?;
    let spec_of_theirs = json!({ "size": 3, "version": "v3.6.16" });
    let theirs_is = operators::theirs(ETCD_IO, "EtcdCluster", "etcd", &json!({}), &spec_of_theirs);
    let labels = json!({ "app": "etcd", "controller": "etcd" });
    let listens = ["--listen-client-urls=http://0.0.0.0:2379"];
    let mut objects = vec![theirs_is.clone()];
    objects.extend(names.iter().map(|name| pod(name, &labels, &listens)));
    case.apply_once_served(&objects).await?;
    for (i, name) in names.iter().enumerate() {
        pod_runs(&case, name, &address(&cluster, i), true).await?;
    }
    let status = async |changing: bool| {
        let status = etcd_io_status(&cluster, changing);
        say(&case, ETCD_IO, "etcdclusters", "etcd", &status).await
    };
    status(true).await?;
    let changing = |runs: &[Value]| matches!(runs, [run] if waits(run, "ClusterChanging", "ScalingInProgress"));
    case.until_runs("the run to wait for the change", changing)
        .await?;
    assert_eq!(cluster.defragmentations().await?, [0.0; 3]);
    status(false).await?;
    case.until("etcddefragpolicies", "auto", "its run to end", rests)
        .await?;
    assert_eq!(cluster.defragmentations().await?, [1.0; 3]);

    let inside = ["--namespace", case.namespace];
    let kind = format!("etcdclusters.{ETCD_IO}");
    let delete = ["delete", kind.as_str(), "etcd"];
    api.kubectl(&[&delete[..], &inside[..]].concat()).await?;
    case.apply(&[run("by-hand", "etcd", spec)]).await?;
    until_waits(&case, "ClusterNotFound", "does not exist").await?;
    case.apply(&[theirs_is]).await?;
    status(false).await?;
    case.until_complete("by-hand").await?;
    assert_eq!(cluster.defragmentations().await?, [2.0; 3]);
    Ok(())
}

/// Three members, each at an address of its own.
async fn members(
    metrics: &str,
    host: impl Fn(&str) -> Option<String>,
    etcd: Etcd,
) -> Result<Cluster, Error> {
    let places = NAMES.map(|name| Place {
        name: name.to_owned(),
        address: own_address(),
        host: host(name),
        metrics: !metrics.is_empty(),
    });
    etcd.places(places).start().await
}

async fn until_waits(case: &Case<'_>, reason: &str, words: &str) -> Result<(), Error> {
    let what = format!("{reason}: {words}");
    let so = |run: &Value| waits(run, reason, words);
    let waited = case.until("etcddefrags", "by-hand", &what, so).await;
    waited.map(drop)
}

/// As a user of cozystack brings them.
async fn secrets(case: &Case<'_>, cluster: &Cluster) -> Result<(), Error> {
    let pki = cluster.pki().expect("it speaks TLS");
    let read = |path: &Path| fs::read_to_string(path).expect("a file of the harness");
    let secret = |name: &str, data: Value| {
        let mut secret = named("Secret", name);
        secret["stringData"] = data;
        secret
    };
    let (server, server_key) = pki.server();
    let (client, client_key) = pki.client();
    case.apply(&[
        secret(
            "server-tls",
            json!({
                "ca.crt": read(&pki.ca()),
                "tls.crt": read(&server),
                "tls.key": read(&server_key),
            }),
        ),
        secret(
            "client-tls",
            json!({ "tls.crt": read(&client), "tls.key": read(&client_key) }),
        ),
    ])
    .await
}
