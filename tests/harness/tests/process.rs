//! Nothing survives the harness.

use std::process::{Command, Stdio};
use std::time::Duration;

use defragd_harness::{Error, Etcd, eventually};

/// Set in the process that this test starts and kills.
const VICTIM: &str = "DEFRAGD_HARNESS_VICTIM";

fn exists(pid: u32) -> bool {
    // A zombie has an empty command line.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[tokio::test]
async fn servers_end_with_their_handle() -> Result<(), Error> {
    let cluster = Etcd::default().members(1).start().await?;
    let pid = cluster.member(0).pid().expect("the member runs");
    let folder = cluster.scratch().to_owned();
    assert!(exists(pid) && folder.exists());
    drop(cluster);
    assert!(!exists(pid) && !folder.exists());
    Ok(())
}

/// The process that is killed in the test below: it starts a member, says so, and waits.
#[tokio::test]
async fn victim() -> Result<(), Error> {
    let Some(report) = std::env::var_os(VICTIM) else {
        return Ok(());
    };
    let cluster = Etcd::default().members(1).start().await?;
    let pid = cluster.member(0).pid().expect("the member runs");
    let text = format!("{pid}\n{}\n", cluster.scratch().display());
    let unfinished = std::path::Path::new(&report).with_extension("new");
    std::fs::write(&unfinished, text).expect("the report is written");
    std::fs::rename(&unfinished, &report).expect("the report is renamed");
    std::future::pending().await
}

#[tokio::test]
async fn servers_and_folders_go_when_the_process_is_killed() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = folder.path().join("report");
    let mut victim = Command::new(std::env::current_exe().expect("the test binary"))
        .args(["--exact", "victim", "--nocapture"])
        .env(VICTIM, &report)
        .stdout(Stdio::null())
        .spawn()
        .expect("the test binary starts");
    let minute = Duration::from_secs(60);
    let text = eventually(minute, "the victim's server", async || {
        std::fs::read_to_string(&report)
    });
    let text = text.await;
    victim.kill().expect("the victim runs");
    victim.wait().expect("the victim is ours");
    let text = text?;
    let (pid, scratch) = text.trim().split_once('\n').expect("two lines");
    let pid = pid.parse().expect("a process id");
    eventually(minute, "the server to be gone", async || !exists(pid)).await?;
    eventually(minute, "the folder to be gone", async || {
        !std::path::Path::new(scratch).exists()
    })
    .await
}
