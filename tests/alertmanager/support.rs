//! What the stories have in common.

use std::fs;
use std::path::Path;
use std::time::Duration;

use defragd_harness::{AlertmanagerServer, Cluster, Defragd, Error, Etcd, Status, objects};
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
    let target = objects::target("demo", &cluster.endpoints());
    let spec = objects::extended(json!({ "signal": signal, "cooldown": "1s" }), &spec);
    let policy = objects::policy("p", "demo", &spec);
    format!("{target}\n---\n{policy}\n")
}

pub(crate) fn asks(source: &str) -> Value {
    json!({ "alert": { "source": source, "matchers": [format!("alertname=\"{ALERT}\"")] } })
}

/// One alert as Prometheus posts it: it began so many seconds ago and has no end.
pub(crate) fn alert(began: i64, labels: Value) -> Value {
    let named = json!({ "alertname": ALERT, "severity": "warning" });
    let labels = objects::extended(named, &labels);
    let began = Timestamp::now() - SignedDuration::from_secs(began);
    json!([{ "labels": labels, "startsAt": began.to_string() }])
}

pub(crate) async fn until(
    defragd: &Defragd,
    what: &str,
    wanted: impl Fn(&Status) -> bool,
) -> Result<Status, Error> {
    defragd.until(WAIT, what, wanted).await
}

/// What the signal of the policy says.
pub(crate) fn said(status: &Status) -> (&str, &str) {
    let signal = &status.policy("p")["signal"];
    let text = |field: &str| signal[field].as_str().unwrap_or_default();
    (text("state"), text("message"))
}

/// Waits for so many more answers of the source `am`: time for a wrong decision.
pub(crate) async fn after_polls(defragd: &Defragd, more: f64) -> Result<Status, Error> {
    defragd.after_polls(WAIT, "am", more).await
}

pub(crate) fn source(servers: &[&AlertmanagerServer]) -> Value {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    json!({ "name": "am", "alertmanager": { "urls": urls, "timeout": "3s" } })
}
