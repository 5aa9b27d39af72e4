//! What the cases have in common.

use std::path::{Path, PathBuf};

pub(crate) use defragd_harness::Case;
pub(crate) use defragd_harness::case::{WAIT, asked, condition, in_short, items, outline, writes};
pub(crate) use defragd_harness::objects::{list, named, time};
use defragd_harness::{Cluster, Controller, Error, Kube, KubeApi, case, objects};
use serde_json::{Value, json};

pub(crate) const MIB: u64 = 1 << 20;
/// The binary of this build.
pub(crate) const DEFRAGD: &str = env!("CARGO_BIN_EXE_defragd");

/// A file of the checkout.
pub(crate) fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// An API server that knows our kinds, with a place for defragd.
pub(crate) async fn api(kube: Kube) -> Result<KubeApi, Error> {
    let crds = std::fs::read_to_string(checkout("docs/reference/crds.yaml")).expect("it is there");
    case::api(kube, &crds).await
}

/// A replica for all namespaces, with the chart's rights.
pub(crate) async fn controller(api: &KubeApi) -> Result<Controller, Error> {
    case::controller(api, DEFRAGD, &checkout("charts/defragd")).await
}

/// How many requests for its lease defragd made that change it.
pub(crate) fn renewals(api: &KubeApi) -> Result<usize, Error> {
    let asked = asked(api)?;
    let renewals = asked
        .iter()
        .filter(|event| event["objectRef"]["resource"] == "leases" && event["verb"] != "get");
    Ok(renewals.count())
}

pub(crate) fn target(name: &str, cluster: &Cluster) -> Value {
    objects::target(name, &cluster.endpoints())
}

/// A target where nobody answers.
pub(crate) fn nowhere(name: &str) -> Value {
    objects::target(name, &["http://127.0.0.1:9".to_owned()])
}

/// A target by the label `app`.
pub(crate) fn target_by_pods(name: &str, app: &str) -> Value {
    let selector = json!({ "matchLabels": { "app": app } });
    objects::object("EtcdTarget", name, &json!({ "podSelector": selector }))
}

/// A policy that always fires, quick, with a long cooldown. `spec` adds and replaces fields.
pub(crate) fn policy(name: &str, target: &str, spec: Value) -> Value {
    objects::policy(name, target, &spec)
}

/// A run by hand of everything that there is.
pub(crate) fn run(name: &str, target: &str, spec: Value) -> Value {
    objects::run(name, target, &spec)
}

/// Whether the policy rests after a run on its cluster.
pub(crate) fn rests(policy: &Value) -> bool {
    let reason = &policy["status"]["clusters"][0]["decision"]["reason"];
    reason == "CoolingDown" || reason == "BackingOff"
}

/// Whether the run waits for this reason, and says this.
pub(crate) fn waits(run: &Value, reason: &str, words: &str) -> bool {
    let message = run["status"]["message"].as_str().unwrap_or_default();
    run["status"]["reason"] == reason && message.contains(words)
}
