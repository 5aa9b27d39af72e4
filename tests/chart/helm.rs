//! `helm` without a cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use defragd_harness::servers;
use serde::Deserialize;
use serde_json::Value;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn chart() -> PathBuf {
    root().join("charts/defragd")
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Values for a test: a file of `tests/chart/values`, without the ending.
pub(crate) fn values(name: &str) -> PathBuf {
    root().join(format!("tests/chart/values/{name}.yaml"))
}

/// What a command printed, or all its words when it failed.
pub(crate) async fn helm(args: &[&str]) -> Result<String, String> {
    let program = servers::helm().await.expect("helm can be had");
    let home = tempfile::tempdir().expect("a temporary folder");
    let output: Output = Command::new(program)
        .args(args)
        // Nobody's own configuration, and no cluster that happens to be near.
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .output()
        .expect("helm can be started");
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(words(&output.stdout))
    } else {
        Err(words(&output.stdout) + &words(&output.stderr))
    }
}

/// `helm template` for a release named `defragd` in `defragd-system`, with these values as YAML text.
pub(crate) async fn template(values: &str, args: &[&str]) -> Result<String, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("values.yaml");
    std::fs::write(&file, values).expect("a temporary file can be written");
    let chart = chart();
    let fixed = ["template", "defragd", &text(&chart), "--namespace"];
    let file = text(&file);
    let rest = ["defragd-system", "--values", &file];
    let all: Vec<&str> = fixed.iter().chain(&rest).chain(args).copied().collect();
    helm(&all).await
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// The objects of a rendered chart.
pub(crate) fn objects(rendered: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(rendered)
        .map(|document| Value::deserialize(document).expect("rendered text is YAML"))
        .filter(|object| !object.is_null())
        .collect()
}

/// The objects of a kind.
pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|o| o["kind"] == kind).collect()
}
