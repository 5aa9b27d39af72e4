//! What the stories have in common.

use std::time::Duration;

use defragd_harness::{Error, KubeApi, Release, RunningController, Status, objects};
use serde_json::{Value, json};

pub(crate) const MIB: u64 = 1 << 20;
/// How long one thing is waited for, on a machine that is busy with other tests.
pub(crate) const WAIT: Duration = Duration::from_secs(90);
/// Where people's objects are. The release is in a namespace of its own.
pub(crate) const TEAM: &str = "team";

/// The chart as `helm install defragd` makes it, and the namespace of the people's objects.
pub(crate) async fn install(api: &KubeApi, values: &Value) -> Result<Release, Error> {
    let release = Release::install(api, "defragd", "defragd", values).await?;
    api.kubectl(&["create", "namespace", TEAM]).await?;
    Ok(release)
}

/// A pod of the release with the binary of this build.
pub(crate) async fn start(
    api: &KubeApi,
    release: &Release,
    pod: &str,
) -> Result<RunningController, Error> {
    let controller = release.pod(api, env!("CARGO_BIN_EXE_defragd"), pod).await?;
    controller.start().await
}

/// Waits until defragd's objects of the namespace are as wanted, and returns them.
pub(crate) async fn until(
    api: &KubeApi,
    defragd: &RunningController,
    what: &str,
    wanted: impl Fn(&Status) -> bool,
) -> Result<Status, Error> {
    Status::until(|| defragd.check(), WAIT, what, || api.defragd(TEAM), wanted).await
}

/// `kubectl` in the namespace of the people's objects.
pub(crate) async fn kubectl(api: &KubeApi, args: &[&str]) -> Result<String, Error> {
    api.kubectl(&[&["--namespace", TEAM], args].concat()).await
}

/// `kubectl wait`, as one waits for the end of a run in a script.
pub(crate) async fn wait_for_success(api: &KubeApi, run: &str) -> Result<(), Error> {
    let run = format!("defrag/{run}");
    let said = kubectl(
        api,
        &["wait", "--for=condition=Succeeded", &run, "--timeout=90s"],
    )
    .await?;
    assert_eq!(
        said.trim(),
        format!(
            "etcddefrag.defragd.dev/{} condition met",
            &run["defrag/".len()..]
        )
    );
    Ok(())
}

pub(crate) fn target(name: &str, spec: Value) -> Value {
    object("EtcdTarget", name, spec)
}

/// A hand-written run on this target that takes every member.
pub(crate) fn run(name: &str, target: &str) -> Value {
    let spec = json!({ "clusterRef": { "name": target }, "rule": { "all": true } });
    object("EtcdDefrag", name, spec)
}

pub(crate) fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = objects::object(kind, name, &spec);
    object["metadata"]["namespace"] = json!(TEAM);
    object
}
