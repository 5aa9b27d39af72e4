//! What the stories have in common.

use std::fs;
use std::path::Path;
use std::time::Duration;

use defragd_harness::{AlertmanagerServer, Cluster, Defragd, Error, Etcd, Status, eventually};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(crate) const MIB: u64 = 1 << 20;
/// How long one thing is waited for, on a machine that is busy with other tests.
pub(crate) const WAIT: Duration = Duration::from_secs(90);
pub(crate) const ALERT: &str = "etcdDatabaseHighFragmentationRatio";
pub(crate) const TOKEN: &str = "open-sesame-7d1f";

pub(crate) fn defragd() -> Result<Defragd, Error> {
    Defragd::new(env!("CARGO_BIN_EXE_defragd"))
}

/// A fragmented cluster of one member.
pub(crate) async fn fragmented() -> Result<Cluster, Error> {
    let cluster = Etcd::default().members(1).start().await?;
    cluster.fragment(40 * MIB, 2 * MIB).await?;
    Ok(cluster)
}

/// An example as a reader finds it, with these texts in place of others.
pub(crate) fn example(file: &str, changes: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(file);
    let mut text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for (old, new) in changes {
        assert!(text.contains(old), "{file} does not say {old:?}");
        text = text.replace(old, new);
    }
    text
}

pub(crate) fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A target and a policy for it with this signal. `spec` adds and replaces fields.
pub(crate) fn objects(cluster: &Cluster, signal: &Value, spec: Value) -> String {
    let target = json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": "EtcdTarget",
        "metadata": { "name": "demo" },
        "spec": { "endpoints": cluster.endpoints() },
    });
    let mut whole = json!({
        "clusterRef": { "name": "demo" },
        "signal": signal,
        "interval": "1s",
        "cooldown": "1s",
        "runTemplate": { "rule": { "all": true }, "allowSingleMember": true },
    });
    if let (Some(whole), Some(spec)) = (whole.as_object_mut(), spec.as_object()) {
        whole.extend(spec.clone());
    }
    let policy = json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": "EtcdDefragPolicy",
        "metadata": { "name": "p" },
        "spec": whole,
    });
    format!("{target}\n---\n{policy}\n")
}

pub(crate) fn asks(source: &str) -> Value {
    json!({ "alert": { "source": source, "matchers": [format!("alertname=\"{ALERT}\"")] } })
}

/// One alert as Prometheus posts it: it began so many seconds ago and has no end.
pub(crate) fn alert(began: i64, labels: Value) -> Value {
    let mut whole = json!({ "alertname": ALERT, "severity": "warning" });
    if let (Some(whole), Some(labels)) = (whole.as_object_mut(), labels.as_object()) {
        whole.extend(labels.clone());
    }
    let began = Timestamp::now() - SignedDuration::from_secs(began);
    json!([{ "labels": whole, "startsAt": began.to_string() }])
}

pub(crate) async fn until(
    defragd: &Defragd,
    what: &str,
    wanted: impl Fn(&Status) -> bool,
) -> Result<Status, Error> {
    eventually(WAIT, what, async || {
        if let Err(ended) = defragd.check() {
            return Ok(Err(ended));
        }
        let status = defragd.status().await.map_err(|e| e.to_string())?;
        if wanted(&status) {
            Ok(Ok(status))
        } else {
            Err(format!(
                "{} {}",
                status.outline(),
                status.policy("p")["signal"]
            ))
        }
    })
    .await?
}

/// What the signal of the policy says.
pub(crate) fn said(status: &Status) -> (&str, &str) {
    let signal = &status.policy("p")["signal"];
    let text = |field: &str| signal[field].as_str().unwrap_or_default();
    (text("state"), text("message"))
}

pub(crate) fn one_is_complete(status: &Status) -> bool {
    let runs = status.runs();
    runs.len() == 1 && runs[0]["status"]["phase"] == "Complete"
}

/// One number of a page of metrics: `name` with its labels as they are written there.
pub(crate) fn metric(page: &str, name: &str) -> f64 {
    let found = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

/// Waits for so many more answers of the source `am`: time for a wrong decision.
pub(crate) async fn after_polls(defragd: &Defragd, more: f64) -> Result<Status, Error> {
    let name = "defragd_source_requests_total{source=\"am\",code=\"200\"}";
    let count = async || Ok::<_, Error>(metric(&defragd.page("/metrics").await?, name));
    let before = count().await?;
    eventually(WAIT, format!("{more} more polls"), async || {
        match count().await {
            Ok(now) if now >= before + more => Ok(()),
            Ok(now) => Err(format!("{} more", now - before)),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    defragd.status().await
}

pub(crate) fn source(servers: &[&AlertmanagerServer]) -> Value {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    json!({ "name": "am", "alertmanager": { "urls": urls, "timeout": "3s" } })
}
