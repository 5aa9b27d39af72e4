//! Running the binary and looking at what came of it.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use defragd_harness::{Cluster, Error};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const MIB: u64 = 1 << 20;
/// How long an unfit cluster is waited for where a test does not say.
const WAIT: &str = "1s";

fn command(endpoints: &[String], flags: &[&str]) -> Command {
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

/// A sweep that is looked at while it goes on. Killed when a test ends early.
pub(crate) struct Started {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Started {
    pub(crate) fn new(cluster: &Cluster, flags: &[&str]) -> Self {
        let mut child = command(&cluster.endpoints(), flags)
            .spawn()
            .expect("the binary starts");
        let stderr = child.stderr.take().expect("piped");
        let lines = BufReader::new(stderr).lines();
        Started { child, lines }
    }

    /// Reads on to the first line with these words.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines
            .find(|line| line.contains(words))
            .unwrap_or_else(|| panic!("{words:?} is never said"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits for its end; of standard error only what has not been read before.
    pub(crate) fn end(mut self) -> Ran {
        let lines: Vec<_> = self.lines.by_ref().map_while(Result::ok).collect();
        let mut stdout = String::new();
        let mut pipe = self.child.stdout.take().expect("piped");
        pipe.read_to_string(&mut stdout).expect("UTF-8");
        let status = self.child.wait().expect("it ends");
        Ran {
            code: status.code(),
            stdout,
            stderr: lines.join("\n"),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Both fail when it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
