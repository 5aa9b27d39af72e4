//! Signals in mid-sweep.

use defragd_harness::{Cluster, Error, Etcd};
use rustix::process::Signal;

use crate::running::{MIB, Started, defragmentations, reason};

/// Long enough to copy that a test can step in.
const LIVE: u64 = 48 * MIB;

/// Starts a sweep, stops the process of its first member when its turn begins, and interrupts. The
/// member's turn ends when the member is let go on.
async fn interrupt_in_first_turn(cluster: &Cluster) -> Result<(Started, usize), Error> {
    cluster.fill(LIVE, 1 << 20).await?;
    let mut sweep = Started::new(cluster, &["--rule", "all", "--output", "json"]);
    let announced = sweep.until(": defragmenting the ");
    let member = cluster
        .members()
        .iter()
        .position(|m| announced.starts_with(m.name()))
        .expect("a member of the cluster");
    cluster.pause(member)?;
    sweep.signal(Signal::INT);
    sweep.until("interrupted: it ends after the member in progress");
    Ok((sweep, member))
}

#[tokio::test]
async fn the_first_signal_ends_after_the_member_in_progress() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let (sweep, member) = interrupt_in_first_turn(&cluster).await?;
    cluster.resume(member)?;
    let object = sweep.end().expect(130).object();
    assert_eq!(
        (&object["status"]["phase"], reason(&object)),
        (&"Failed".into(), "Interrupted")
    );
    assert_eq!(object["status"]["defragmented"], 1, "{object:#}");
    let members = object["status"]["members"].as_array().expect("members");
    let ended = members.iter().filter(|m| m["reason"] == "SweepEnded");
    assert_eq!(ended.count(), 2);
    let mut expected = [0.0; 3];
    expected[member] = 1.0;
    assert_eq!(defragmentations(&cluster).await?, expected);
    Ok(())
}

#[tokio::test]
async fn the_second_signal_aborts_at_once() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let (sweep, member) = interrupt_in_first_turn(&cluster).await?;
    sweep.signal(Signal::TERM);
    let ran = sweep.end().expect(130);
    assert_eq!(ran.stdout, "", "no result: {ran:#?}");
    ran.says("aborted: ").says(cluster.member(member).name());
    cluster.resume(member)
}
