//! What the cases have in common.

use std::path::Path;
use std::time::Duration;

use defragd::core::quantity::Quantity;
use defragd::core::signal::{DescribedObject, Metric, MetricSignal, Reduce, Threshold};
use defragd_harness::{
    Adapter, Cluster, Error, Etcd, KubeApi, Prometheus, PrometheusServer, install_tls_provider,
};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

pub(crate) const MIB: u64 = 1 << 20;
/// How long one thing is waited for, on a machine that is busy with other tests.
pub(crate) const WAIT: Duration = Duration::from_secs(120);
/// Where the policies are, and what the series are about.
pub(crate) const TEAM: &str = "team";

/// What Prometheus makes of what etcd says, and of nothing: series for the adapter to serve.
const RULES: &str = r#"
groups:
- name: metrics
  interval: 1s
  rules:
  - {record: ext_reclaimable, labels: {namespace: team, cluster: main}, expr: max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)}
  - {record: ext_reclaimable, labels: {namespace: team, cluster: other}, expr: vector(1)}
  - {record: ext_nan, labels: {namespace: team}, expr: vector(0) / 0}
  - {record: ext_infinite, labels: {namespace: team}, expr: vector(1) / 0}
  - {record: ext_ratio, labels: {namespace: team}, expr: vector(0.3)}
  - {record: pod_reclaimable, labels: {namespace: team, pod: etcd-0}, expr: max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)}
  - {record: pod_reclaimable, labels: {namespace: team, pod: etcd-0, disk: slow}, expr: vector(7)}
  - {record: set_reclaimable, labels: {namespace: team, statefulset: etcd}, expr: vector(8)}
  - {record: ns_reclaimable, labels: {namespace: team}, expr: vector(9)}
  - {record: pod_nan, labels: {namespace: team, pod: etcd-0}, expr: vector(0) / 0}
"#;

/// The API server, and all that is behind it.
pub(crate) struct World {
    // The order matters: the adapter ends before what it talks to.
    pub(crate) adapter: Adapter,
    pub(crate) api: KubeApi,
    pub(crate) _prometheus: PrometheusServer,
    pub(crate) cluster: Cluster,
}

impl World {
    /// A fragmented cluster; the adapter neither runs nor is it known.
    pub(crate) async fn new() -> Result<Self, Error> {
        install_tls_provider();
        let etcd = Etcd::default().members(1).raft_log_entries(100).start();
        let (api, cluster) = tokio::try_join!(KubeApi::start(), etcd)?;
        let rules = api.scratch().join("rules.yaml");
        std::fs::write(&rules, RULES).expect("a file of the test's own");
        let prometheus = Prometheus::default()
            .scrape_etcd(&cluster, Duration::from_millis(500))
            .rules(rules)
            .start()
            .await?;
        cluster.fragment(80 * MIB, 8 * MIB).await?;
        for series in [
            "ext_reclaimable",
            "pod_reclaimable",
            "ext_nan",
            "pod_nan",
            "ns_reclaimable",
        ] {
            let there = |samples: &[_]| !samples.is_empty();
            prometheus.wait_for(series, there).await?;
        }
        let adapter = Adapter::prepare(&api, &prometheus, &adapter_config()).await?;
        for namespace in [TEAM, "other"] {
            let namespace = json!({ "metadata": { "name": namespace } });
            api.create("/api/v1/namespaces", &namespace).await?;
        }
        let container = json!({ "name": "etcd", "image": "etcd" });
        let pod = json!({
            "metadata": { "name": "etcd-0" },
            "spec": { "containers": [container] },
        });
        api.create(&format!("/api/v1/namespaces/{TEAM}/pods"), &pod)
            .await?;
        Ok(Self {
            adapter,
            api,
            _prometheus: prometheus,
            cluster,
        })
    }

    /// With the adapter at work.
    pub(crate) async fn with_adapter() -> Result<Self, Error> {
        let world = Self::new().await?;
        world.adapter.register(&world.api).await?;
        world.adapter.start_again(&world.api).await?;
        Ok(world)
    }
}

/// Namespaces are told by a label, so that each sees its own series alone.
fn adapter_config() -> Value {
    let namespace = json!({ "namespace": { "resource": "namespace" } });
    let rule = |prefix: &str, label: &str, group: &str| {
        let mut overrides = namespace.clone();
        overrides[label] = json!({ "group": group, "resource": label });
        json!({
            "seriesQuery": format!("{{__name__=~\"^{prefix}_.*\",{label}!=\"\"}}"),
            "resources": { "overrides": overrides },
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        })
    };
    json!({
        "rules": [
            rule("pod", "pod", ""),
            rule("set", "statefulset", "apps"),
            rule("ns", "namespace", ""),
        ],
        "externalRules": [{
            "seriesQuery": "{__name__=~\"^ext_.*\",namespace!=\"\"}",
            "resources": { "overrides": namespace },
            "metricsQuery": "<<.Series>>{<<.LabelMatchers>>}",
        }],
    })
}

/// A client as the user of this kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("written by the harness");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("of an API server")).expect("with a certificate to trust")
}

pub(crate) fn above(limit: &str) -> Threshold {
    Threshold::Above(Quantity::parse(limit).expect("a quantity"))
}

pub(crate) fn below(limit: &str) -> Threshold {
    Threshold::Below(Quantity::parse(limit).expect("a quantity"))
}

pub(crate) fn external(name: &str, selector: &str, threshold: Threshold) -> MetricSignal {
    MetricSignal {
        metric: Metric::External {
            name: name.to_owned(),
            selector: selector.to_owned(),
        },
        threshold,
        reduce: None,
    }
}

pub(crate) fn of_pod(name: &str, threshold: Threshold) -> MetricSignal {
    of_object(("v1", "Pod", "etcd-0"), name, threshold)
}

/// `apiVersion`, kind and name of the object.
pub(crate) fn of_object(
    (api_version, kind, object): (&str, &str, &str),
    name: &str,
    threshold: Threshold,
) -> MetricSignal {
    MetricSignal {
        metric: Metric::Object {
            described: DescribedObject {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                name: object.to_owned(),
            },
            name: name.to_owned(),
            selector: String::new(),
        },
        threshold,
        reduce: None,
    }
}

pub(crate) fn reduced(signal: MetricSignal, reduce: Reduce) -> MetricSignal {
    MetricSignal {
        reduce: Some(reduce),
        ..signal
    }
}
