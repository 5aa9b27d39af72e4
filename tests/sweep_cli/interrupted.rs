//! Signals in mid-sweep.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStderr};

use defragd_harness::{Cluster, Error, Etcd};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::running::{command, defragmentations, reason};

/// A sweep that is interrupted while its first member is at work.
struct Interrupted {
    child: Child,
    member: usize,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Interrupted {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn until(&mut self, words: &str) {
        let found = self
            .lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains(words));
        assert!(found, "{words:?} is never said");
    }

    fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        let rest = self.lines.map_while(Result::ok).collect();
        let mut stdout = String::new();
        let mut pipe = self.child.stdout.take().expect("piped");
        pipe.read_to_string(&mut stdout).expect("UTF-8");
        (self.child.wait().expect("it ends").code(), rest, stdout)
    }
}

/// Starts a sweep and stops the process of its first member when its turn begins: the call is
/// then under way, or just over, until the member is let go on.
fn interrupt_in_first_turn(cluster: &Cluster) -> Result<Interrupted, Error> {
    let mut child = command(&cluster.endpoints(), &["--rule", "all", "--output", "json"])
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let announced = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.contains(": defragmenting the "))
        .expect("the first member's turn");
    let member = cluster
        .members()
        .iter()
        .position(|m| announced.starts_with(m.name()))
        .expect("a member of the cluster");
    cluster.pause(member)?;
    let mut sweep = Interrupted {
        child,
        member,
        lines,
    };
    kill_process(sweep.pid(), Signal::INT).expect("it runs");
    sweep.until("interrupted: it ends after the member in progress");
    Ok(sweep)
}

#[tokio::test]
async fn the_first_signal_ends_after_the_member_in_progress() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let sweep = interrupt_in_first_turn(&cluster)?;
    let member = sweep.member;
    cluster.resume(member)?;
    let (code, lines, stdout) = sweep.end();
    assert_eq!(code, Some(130), "{lines:#?}");
    let object: Value = serde_json::from_str(&stdout).expect("one object");
    assert_eq!(
        (&object["status"]["phase"], reason(&object)),
        (&"Failed".into(), "Interrupted")
    );
    assert_eq!(object["status"]["defragmented"], 1);
    let members = object["status"]["members"].as_array().expect("members");
    assert_eq!(
        members
            .iter()
            .filter(|m| m["reason"] == "SweepEnded")
            .count(),
        2
    );
    let mut expected = [0.0; 3];
    expected[member] = 1.0;
    assert_eq!(defragmentations(&cluster).await?, expected);
    Ok(())
}

#[tokio::test]
async fn the_second_signal_aborts_at_once() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let sweep = interrupt_in_first_turn(&cluster)?;
    kill_process(sweep.pid(), Signal::TERM).expect("it runs");
    let (name, member) = (cluster.member(sweep.member).name(), sweep.member);
    let (code, lines, stdout) = sweep.end();
    assert_eq!((code, stdout.as_str()), (Some(130), ""), "{lines:#?}");
    assert!(
        lines.iter().any(|l| l.starts_with("aborted")),
        "{name}: {lines:#?}"
    );
    cluster.resume(member)
}
