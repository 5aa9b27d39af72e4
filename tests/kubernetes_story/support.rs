//! What the stories have in common.

use std::time::Duration;

use defragd_harness::{Error, KubeApi, Release, RunningController, Status, eventually};
use serde_json::{Value, json};

pub(crate) const MIB: u64 = 1 << 20;
/// How long one thing is waited for, on a machine that is busy with other tests.
pub(crate) const WAIT: Duration = Duration::from_secs(90);
/// Where people's objects are. The release is in a namespace of its own.
pub(crate) const TEAM: &str = "team";

/// Values with Prometheus at this URL as the source `main`.
pub(crate) fn source(url: &str) -> Value {
    json!({ "config": { "sources": [{ "name": "main", "prometheus": { "url": url } }] } })
}

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
    eventually(WAIT, what, async || {
        if let Err(ended) = defragd.check() {
            return Ok(Err(ended));
        }
        let status = api.defragd(TEAM).await.map_err(|e| e.to_string())?;
        if wanted(&status) {
            Ok(Ok(status))
        } else {
            Err(status.outline())
        }
    })
    .await?
}

/// The only run that there is, and its name.
pub(crate) fn only_run(status: &Status) -> (&Value, &str) {
    let runs = status.runs();
    assert_eq!(runs.len(), 1, "{}", status.outline());
    let name = runs[0]["metadata"]["name"].as_str();
    (runs[0], name.expect("objects have names"))
}

/// A table of kubectl, or several, without what differs from one time to the next: the columns are
/// two spaces apart, and each word that `volatile` knows is replaced by what it says.
pub(crate) fn golden(table: &str, volatile: impl Fn(&str) -> Option<&'static str>) -> String {
    let row = |line: &str| {
        let cells = line.split("  ").map(str::trim).filter(|c| !c.is_empty());
        let cells = cells.map(|cell| volatile(cell).unwrap_or(cell));
        cells.collect::<Vec<_>>().join("  ")
    };
    table.lines().map(row).collect::<Vec<_>>().join("\n")
}
