//! From `helm install` to a run that is collected with its policy.

use defragd_harness::{Error, Etcd, KubeApi, Prometheus};
use serde_json::{Value, json};
use std::time::Duration;

use crate::support::{MIB, TEAM, WAIT, golden, install, only_run, source, start, until};

#[tokio::test]
async fn probe() -> Result<(), Error> {
    let (api, cluster) = tokio::try_join!(
        KubeApi::start(),
        Etcd::default().raft_log_entries(100).start()
    )?;
    let prometheus = Prometheus::default()
        .scrape_etcd(&cluster, Duration::from_millis(500))
        .start()
        .await?;
    let release = install(&api, &source(prometheus.url())).await?;
    api.start_controller_manager().await?;
    cluster.fragment(150 * MIB, 8 * MIB).await?;
    let endpoints = json!(cluster.endpoints());
    api.apply(&format!(
        "
apiVersion: defragd.dev/v1alpha1
kind: EtcdTarget
metadata: {{name: main, namespace: team}}
spec: {{endpoints: {endpoints}}}
"
    ))
    .await?;
    let defragd = start(&api, &release, "defragd-0").await?;
    until(&api, &defragd, "the target", |s| {
        s.condition("EtcdTarget", "main", "Ready").is_some()
    })
    .await?;
    api.apply(
        "
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
",
    )
    .await?;
    let status = until(&api, &defragd, "a run", |s| !s.runs().is_empty()).await?;
    let (_, name) = only_run(&status);
    let condition = ["wait", "--for=condition=Succeeded", "--timeout=60s"];
    let object = format!("defrag/{name}");
    let said = api
        .kubectl(&[&condition[..], &["--namespace", TEAM, &object]].concat())
        .await?;
    eprintln!("{said}");
    eprintln!(
        "{}",
        api.kubectl(&["get", "defragd", "--namespace", TEAM])
            .await?
    );
    eprintln!(
        "{}",
        api.kubectl(&["get", "defragd", "--namespace", TEAM, "-o", "wide"])
            .await?
    );
    eprintln!(
        "{}",
        api.kubectl(&["describe", "defrag", "--namespace", TEAM])
            .await?
    );
    eprintln!(
        "{}",
        api.kubectl(&["describe", "defragpolicy", "--namespace", TEAM])
            .await?
    );
    eprintln!(
        "{}",
        api.kubectl(&["describe", "etcdtarget", "--namespace", TEAM])
            .await?
    );
    let _ = (WAIT, golden("", |_| None), Value::Null);
    for e in api.audit()? {
        if e["user"]["username"] == release.user(&api).await?.as_str() {
            eprintln!(
                "{} {} {} {} {}",
                e["stage"],
                e["verb"],
                e["requestURI"],
                e["responseStatus"]["code"],
                e["annotations"]
            );
        }
    }
    eprintln!("{}", defragd.logged());
    Ok(())
}
