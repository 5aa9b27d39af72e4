//! Running the binary and looking at what came of it.

use std::process::{Command, Output, Stdio};

use defragd_harness::{Cluster, Error};
use serde_json::Value;

pub(crate) const MIB: u64 = 1 << 20;
/// How long an unfit cluster is waited for where a test does not say.
const WAIT: &str = "1s";

/// The binary with its output piped.
pub(crate) fn command(endpoints: &[String], flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_defragd"));
    command
        .args(["sweep", "--endpoints", &endpoints.join(",")])
        .args(flags);
    if !flags.contains(&"--wait") {
        command.args(["--wait", WAIT]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a finished sweep said and left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        assert!(
            self.stdout.contains(words) || self.stderr.contains(words),
            "no {words:?} in {self:#?}"
        );
        self
    }

    #[track_caller]
    pub(crate) fn object(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in {self:#?}"))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs to the end, off the runtime: proxies of the harness live there.
pub(crate) async fn sweep_at(endpoints: &[String], flags: &[&str]) -> Ran {
    let mut command = command(endpoints, flags);
    tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("it does not panic")
        .expect("the binary starts")
        .into()
}

/// Sweeps every member of the cluster.
pub(crate) async fn sweep(cluster: &Cluster, flags: &[&str]) -> Ran {
    sweep_at(&cluster.endpoints(), flags).await
}

/// Of each member: finished defragmentations since its start.
pub(crate) async fn defragmentations(cluster: &Cluster) -> Result<Vec<f64>, Error> {
    let mut counts = Vec::new();
    for i in 0..cluster.members().len() {
        let count = cluster
            .metric(i, "etcd_disk_backend_defrag_duration_seconds_count")
            .await?;
        counts.push(count.unwrap_or(0.0));
    }
    Ok(counts)
}

/// In two steps, so that a compaction that keeps one revision frees all but one value.
pub(crate) async fn delete_filled(cluster: &Cluster) -> Result<(), Error> {
    for keys in [
        &["del", "fill/00000001", "fill0"][..],
        &["del", "fill/00000000"],
    ] {
        let output = cluster.etcdctl(keys).await?;
        assert!(output.status.success(), "{output:?}");
    }
    Ok(())
}

/// Why it ended as it did.
pub(crate) fn reason(object: &Value) -> &str {
    object["status"]["result"]["reason"]
        .as_str()
        .unwrap_or_default()
}
