//! What the cases have in common: one exporter for all clusters, and who asks about them.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use defragd_harness::{
    Error, Kube, KubeApi, Prometheus, PrometheusServer, RunningController, case,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// An API server that knows our kinds, with a place for defragd.
pub(crate) async fn api() -> Result<KubeApi, Error> {
    case::api(
        Kube::default(),
        include_str!("../../docs/reference/crds.yaml"),
    )
    .await
}

/// A defragd that has this Prometheus as `main`.
pub(crate) async fn controller(
    api: &KubeApi,
    prometheus: &PrometheusServer,
) -> Result<RunningController, Error> {
    let config = json!({
        "sources": [{ "name": "main", "prometheus": { "url": prometheus.url() } }],
    });
    let file = api.scratch().join("defragd.yaml");
    std::fs::write(&file, config.to_string()).expect("the folder is the test's own");
    let args = ["--config".into(), file.into_os_string()];
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/defragd");
    let controller = case::controller(api, env!("CARGO_BIN_EXE_defragd"), &chart).await?;
    controller.args(args).start().await
}

/// A Prometheus that knows how much each of these clusters would give back, in bytes.
pub(crate) async fn prometheus(
    clusters: impl IntoIterator<Item = (String, u64)>,
) -> Result<PrometheusServer, Error> {
    let mut page = String::from("# TYPE fragmented_bytes gauge\n");
    for (cluster, bytes) in clusters {
        writeln!(
            page,
            "fragmented_bytes{{cluster=\"{cluster}\",instance=\"10.0.0.1:2379\"}} {bytes}"
        )
        .expect("a text takes everything");
    }
    let exporter = exporter(page).await;
    let prometheus = Prometheus::default().scrape("fleet", [exporter], Duration::from_secs(1));
    prometheus.start().await
}

/// Serves a page of metrics, as an exporter of all clusters would.
async fn exporter(page: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{page}",
                page.len()
            );
            tokio::spawn(async move {
                let mut asked = [0; 4096];
                // Prometheus may have gone away meanwhile.
                let _ = stream.read(&mut asked).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

/// The policy `fleet` over all clusters with the label `tier: prod`, by what the exporter says.
/// `spec` adds and replaces fields.
pub(crate) fn fleet(spec: &Value) -> Value {
    let whole = json!({
        "clusterSelector": { "matchLabels": { "tier": "prod" } },
        "signal": { "prometheus": {
            "source": "main",
            "query": "max by (cluster) (fragmented_bytes)",
            "above": "100Mi",
            "clusterLabel": "cluster",
        } },
        "cooldown": "1h",
    });
    let spec = defragd_harness::objects::extended(whole, spec);
    defragd_harness::objects::object("EtcdDefragPolicy", "fleet", &spec)
}

/// The object with the label that the policy selects by.
pub(crate) fn selected(mut object: Value) -> Value {
    object["metadata"]["labels"]["tier"] = json!("prod");
    object
}

/// What the policy says about a cluster.
pub(crate) fn entry<'a>(policy: &'a Value, name: &str) -> &'a Value {
    let clusters = policy["status"]["clusters"].as_array();
    let mut clusters = clusters.into_iter().flatten();
    let found = clusters.find(|cluster| cluster["name"] == name);
    found.unwrap_or(&Value::Null)
}
