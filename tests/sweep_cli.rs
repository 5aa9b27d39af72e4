//! `defragd sweep` against real etcd servers.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use defragd_harness::{Cluster, Error, Etcd, EtcdVersion, Tls, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// How long an unfit cluster is waited for where a test does not say.
const WAIT: &str = "1s";

fn command(endpoints: &[String], flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_defragd"));
    command.args(["sweep", "--endpoints", &endpoints.join(",")]).args(flags);
    if !flags.contains(&"--wait") {
        command.args(["--wait", WAIT]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a finished sweep said and left.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    fn says(self, words: &str) -> Self {
        assert!(self.stdout.contains(words) || self.stderr.contains(words), "no {words:?} in {self:#?}");
        self
    }

    #[track_caller]
    fn object(&self) -> Value {
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
async fn sweep_at(endpoints: &[String], flags: &[&str]) -> Ran {
    let mut command = command(endpoints, flags);
    tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("it does not panic")
        .expect("the binary starts")
        .into()
}

async fn sweep(cluster: &Cluster, flags: &[&str]) -> Ran {
    sweep_at(&cluster.endpoints(), flags).await
}

/// Of each member: finished defragmentations since its start.
async fn defragmentations(cluster: &Cluster) -> Result<Vec<f64>, Error> {
    let mut counts = Vec::new();
    for i in 0..cluster.members().len() {
        let count = cluster.metric(i, "etcd_disk_backend_defrag_duration_seconds_count").await?;
        counts.push(count.unwrap_or(0.0));
    }
    Ok(counts)
}

/// In two steps, so that a compaction that keeps one revision frees all but one value.
async fn delete_filled(cluster: &Cluster) -> Result<(), Error> {
    for keys in [&["del", "fill/00000001", "fill0"][..], &["del", "fill/00000000"]] {
        let output = cluster.etcdctl(keys).await?;
        assert!(output.status.success(), "{output:?}");
    }
    Ok(())
}

fn reason(object: &Value) -> &str {
    object["status"]["result"]["reason"].as_str().unwrap_or_default()
}

/// A dry run that changes nothing, a sweep, and a second one with nothing to do.
async fn plain_sweep(version: EtcdVersion) -> Result<(), Error> {
    let cluster = Etcd::version(version).start().await?;
    cluster.fragment(40 * MIB, 4 * MIB).await?;
    let (before, leader, term) = (cluster.sizes().await?, cluster.leader().await?, cluster.term().await?);

    let flags = ["--free-space-above", "16Mi", "--output", "json"];
    let dry = sweep(&cluster, &[&flags[..], &["--dry-run"]].concat()).await.expect(0).object();
    assert_eq!((&dry["status"]["phase"], reason(&dry)), (&"Complete".into(), "DryRun"));
    assert_eq!(defragmentations(&cluster).await?, [0.0; 3]);
    assert_eq!((cluster.leader().await?, cluster.term().await?), (leader, term));

    let object = sweep(&cluster, &flags).await.expect(0).object();
    assert_eq!(object["apiVersion"], "defragd.dev/v1alpha1");
    assert_eq!(object["kind"], "EtcdDefrag");
    assert_eq!(object["metadata"]["name"], "sweep");
    assert_eq!(object["spec"]["rule"]["freeSpaceAbove"], "16Mi");
    let status = &object["status"];
    assert_eq!((&status["phase"], reason(&object)), (&"Complete".into(), "SweepComplete"));
    assert_eq!(status["defragmented"], 3);
    assert_eq!(status["clusterID"], format!("{:x}", cluster.id()));
    assert!(status["reclaimedBytes"].as_u64() > Some(3 * 28 * MIB), "{status:#}");
    assert_eq!(defragmentations(&cluster).await?, [1.0; 3], "each member once");
    for (before, after) in before.iter().zip(cluster.sizes().await?) {
        assert!(after.db < before.db / 2, "{before:?} → {after:?}");
    }

    // R03: leadership moved once, to a member that was done; the leader came last.
    assert_ne!(cluster.leader().await?, leader);
    assert_eq!(cluster.term().await?, term + 1, "no term but the transfer's");
    let old_leader = format!("{:x}", cluster.member(leader).id());
    let transfers = status["leaderTransfers"].as_array().expect("transfers");
    assert_eq!(transfers.len(), 1);
    assert_eq!((&transfers[0]["from"], &transfers[0]["outcome"]), (&old_leader.clone().into(), &"Done".into()));
    let members = status["members"].as_array().expect("members");
    let last = members.iter().max_by_key(|m| m["startedAt"].as_str()).expect("three members");
    assert_eq!(last["memberID"], old_leader);
    for member in members {
        assert_eq!((&member["outcome"], &member["attempts"]), (&"Defragmented".into(), &1.into()));
        assert!(member["dbSizeAfter"].as_u64() < member["dbSizeBefore"].as_u64(), "{member:#}");
    }
    for condition in status["conditions"].as_array().expect("conditions") {
        assert_eq!(condition["status"], "True", "{condition:#}");
        assert_eq!(condition["observedGeneration"], 1);
    }

    // R31: nothing to give back, nothing is touched.
    let again = sweep(&cluster, &["--free-space-above", "16Mi"]).await.expect(0);
    again.says("complete (NothingDue)").says("OUTCOME").says("not more than freeSpaceAbove 16 MiB");
    assert_eq!(defragmentations(&cluster).await?, [1.0; 3]);
    Ok(())
}

#[tokio::test]
async fn sweeps_etcd_3_4() -> Result<(), Error> {
    plain_sweep(EtcdVersion::V3_4).await
}

#[tokio::test]
async fn sweeps_etcd_3_5() -> Result<(), Error> {
    plain_sweep(EtcdVersion::V3_5).await
}

#[tokio::test]
async fn sweeps_etcd_3_6() -> Result<(), Error> {
    plain_sweep(EtcdVersion::V3_6).await
}

#[tokio::test]
async fn sweeps_etcd_3_7() -> Result<(), Error> {
    plain_sweep(EtcdVersion::V3_7).await
}

/// The leader's modes, a compaction and a CEL rule, on one cluster.
#[tokio::test]
async fn leader_modes_compaction_and_expressions() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let (leader, term) = (cluster.leader().await?, cluster.term().await?);
    let leader_id = format!("{:x}", cluster.member(leader).id());

    // R05: told, not silently left out.
    let skipping = ["--rule", "dbSize > 0", "--leader", "skip", "--output", "json"];
    let object = sweep(&cluster, &skipping).await.expect(0).object();
    let members = object["status"]["members"].as_array().expect("members");
    let skipped = members.iter().find(|m| m["memberID"] == leader_id).expect("the leader");
    assert_eq!((&skipped["outcome"], &skipped["reason"]), (&"Skipped".into(), &"LeaderSkipped".into()));
    assert_eq!(object["status"]["defragmented"], 2);

    // R29: deleted values are given back only when the compaction is physical.
    cluster.fill(12 * MIB, 256 << 10).await?;
    delete_filled(&cluster).await?;
    let in_place = ["--rule", "all", "--leader", "inplace", "--keep-revisions", "1", "--output", "json"];
    let object = sweep(&cluster, &in_place).await.expect(0).object();
    assert_eq!(object["status"]["compaction"]["state"], "Done");
    assert_eq!(object["status"]["defragmented"], 3);
    assert!(object["status"].get("leaderTransfers").is_none());
    for sizes in cluster.sizes().await? {
        assert!(sizes.db < 4 * MIB, "{sizes:?}");
    }
    assert_eq!((cluster.leader().await?, cluster.term().await?), (leader, term), "nothing moved");
    Ok(())
}

/// R11b: a single member is refused, and accepted on demand.
#[tokio::test]
async fn a_single_member_is_downtime_to_be_accepted() -> Result<(), Error> {
    let cluster = Etcd::default().members(1).start().await?;
    sweep(&cluster, &["--rule", "all"])
        .await
        .expect(3)
        .says("nothing was touched (SingleMember)")
        .says("--allow-single-member");
    assert_eq!(defragmentations(&cluster).await?, [0.0]);
    sweep(&cluster, &["--rule", "all", "--allow-single-member"]).await.expect(0).says("1 of 1 members");
    assert_eq!(defragmentations(&cluster).await?, [1.0]);

    sweep(&cluster, &["--rule", "all", "--allow-single-member", "--member-count", "3"])
        .await
        .expect(3)
        .says("MemberCountMismatch")
        .says("--member-count says 3");
    assert_eq!(defragmentations(&cluster).await?, [1.0]);
    Ok(())
}

/// R61: a member is down, then the quorum is gone.
#[tokio::test]
async fn an_unhealthy_cluster_is_left_untouched() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let leader = cluster.leader().await?;
    let down = (leader + 1) % 3;
    cluster.kill(down)?;
    let ran = sweep(&cluster, &["--rule", "all", "--output", "json"]).await.expect(3);
    let object = ran.object();
    assert_eq!((&object["status"]["phase"], reason(&object)), (&"Failed".into(), "MemberUnreachable"));
    assert!(object["status"]["message"].as_str().is_some_and(|m| m.contains(cluster.member(down).name())));
    assert_eq!(object["status"]["reclaimedBytes"], 0);
    ran.says("waiting: ").says("waited for 1s, see --wait");

    // It comes back while it is waited for.
    let mut patient = command(&cluster.endpoints(), &["--rule", "all", "--wait", "1m"]);
    let mut child = patient.args(["--output", "json"]).spawn().expect("the binary starts");
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut lines = stderr.lines();
    let waiting = tokio::task::spawn_blocking(move || {
        let line = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("waiting: "));
        (line, lines)
    });
    let (line, lines) = waiting.await.expect("it does not panic");
    assert!(line.is_some());
    cluster.restart(down).await?;
    let ended = tokio::task::spawn_blocking(move || {
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        (child.wait().expect("it ends").code(), rest)
    });
    let (code, rest) = ended.await.expect("it does not panic");
    assert_eq!(code, Some(0), "{rest:#?}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_etcd_cluster_is_told_as_what_it_is() -> Result<(), Error> {
    let (one, two) = tokio::try_join!(
        Etcd::default().members(1).start(),
        Etcd::default().members(1).start()
    )?;
    let both = [one.endpoints(), two.endpoints()].concat();
    sweep_at(&both, &["--rule", "all", "--allow-single-member"])
        .await
        .expect(3)
        .says("ClusterIdMismatch")
        .says(&format!("{:x}", one.id()))
        .says(&format!("{:x}", two.id()));
    assert_eq!(defragmentations(&one).await?, [0.0]);
    assert_eq!(defragmentations(&two).await?, [0.0]);

    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let nobody = format!("http://{free}");
    sweep_at(std::slice::from_ref(&nobody), &[])
        .await
        .expect(3)
        .says("nothing was touched (MemberListUnavailable)")
        .says(&nobody)
        .says("Connection refused");

    // TLS where there is none.
    let https = one.endpoints()[0].replace("http:", "https:");
    sweep_at(std::slice::from_ref(&https), &[]).await.expect(2).says("--cacert");

    let web = wiremock::MockServer::start().await;
    sweep_at(&[web.uri()], &[]).await.expect(3).says("not an etcd v3").says(&web.uri());
    Ok(())
}

/// R66, R68: certificates and passwords, right and wrong.
#[tokio::test]
async fn mutual_tls_with_a_user() -> Result<(), Error> {
    let cluster = Etcd::default().tls(Tls::Mutual).auth("root", "hunter2").start().await?;
    let pki = cluster.pki().expect("a cluster with TLS has one");
    let path = |path: std::path::PathBuf| path.to_str().expect("UTF-8").to_owned();
    let (ca, other_ca) = (path(pki.ca()), path(pki.other_ca()));
    let (cert, key) = pki.client();
    let (cert, key) = (path(cert), path(key));
    let file = |name: &str, text: &str| {
        let file = cluster.scratch().join(name);
        std::fs::write(&file, text).expect("the folder is ours");
        path(file)
    };
    let (right, wrong) = (file("right", "hunter2\n"), file("wrong", "hunter3\n"));
    let tls = ["--cacert", ca.as_str(), "--cert", &cert, "--key", &key];
    let with = |flags: &[&'static str]| [&tls[..], flags].concat();
    let user = |file| [&with(&["--rule", "all", "--user", "root", "--password-file"])[..], &[file]].concat();

    for (flags, code, words) in [
        (user(wrong.as_str()), 3, "check auth's user and password"),
        ([&["--cacert", other_ca.as_str()], &tls[2..]].concat(), 3, "invalid peer certificate"),
        (vec!["--cacert", ca.as_str()], 3, "--cert"),
        (with(&["--servername", "etcd.elsewhere"]), 3, "etcd.elsewhere"),
        (user("/nowhere"), 2, "--password-file"),
        ([&["--cacert", right.as_str()], &tls[2..]].concat(), 2, "--cacert"),
    ] {
        let ran = sweep(&cluster, &flags).await.expect(code).says(words);
        assert!(!format!("{ran:?}").contains("hunter"), "a secret in {ran:#?}");
    }
    assert_eq!(defragmentations(&cluster).await?, [0.0; 3]);

    let object = sweep(&cluster, &[&user(&right)[..], &["--output", "json"]].concat()).await.expect(0).object();
    assert_eq!(object["status"]["defragmented"], 3);
    assert_eq!(defragmentations(&cluster).await?, [1.0; 3]);
    Ok(())
}

/// R68: nothing is touched for want of a user.
#[tokio::test]
async fn a_user_is_asked_for_where_one_is_needed() -> Result<(), Error> {
    let cluster = Etcd::default().members(1).auth("root", "hunter2").start().await?;
    sweep(&cluster, &["--rule", "all", "--allow-single-member"])
        .await
        .expect(3)
        .says("PermissionDenied")
        .says("--user and --password-file");
    assert_eq!(defragmentations(&cluster).await?, [0.0]);
    Ok(())
}

/// R38, R39, R41: NOSPACE admits the sweep and is disarmed after it.
#[tokio::test]
async fn nospace_is_swept_away_and_disarmed() -> Result<(), Error> {
    let cluster = Etcd::default().quota_bytes(24 << 20).start().await?;
    let full = cluster.fill(48 * MIB, 512 << 10).await;
    assert!(matches!(full, Err(Error::Etcd { .. })), "{full:?}");
    eventually(Duration::from_secs(10), "the alarm", async || {
        cluster.alarms().await.is_ok_and(|alarms| !alarms.is_empty())
    })
    .await?;

    // Full and not fragmented: no defragmentation helps, and the alarm stays.
    let advice = ["--quota-usage-above", "80%", "--output", "json"];
    let object = sweep(&cluster, &advice).await.object();
    assert_eq!(object["status"]["defragmented"], 0, "{object:#}");
    assert!(!cluster.alarms().await?.is_empty());
    assert_eq!(defragmentations(&cluster).await?, [0.0; 3]);

    // Deletes and compactions pass a NOSPACE alarm. What they free is reported by later commits
    // only, so there are a few more deletes.
    cluster.etcdctl(&["del", "fill/00000010", "fill0"]).await?;
    let revision = cluster.client(0).await?.status().await.ok();
    let revision = revision.as_ref().and_then(|s| s.header()).map_or(0, |header| header.revision());
    cluster.etcdctl(&["compact", "--physical", &revision.to_string()]).await?;
    let mut next = 0;
    eventually(Duration::from_secs(20), "8 MiB to give back everywhere", async || {
        cluster.etcdctl(&["del", &format!("fill/{next:08}")]).await.map_err(|e| e.to_string())?;
        next += 1;
        let sizes = cluster.sizes().await.map_err(|e| e.to_string())?;
        if sizes.iter().all(|s| s.free() > 8 * MIB) { Ok(()) } else { Err(format!("{sizes:?}")) }
    })
    .await?;
    let flags = ["--free-space-above", "8Mi", "--output", "json"];
    let ran = sweep(&cluster, &flags).await.expect(0).says("is disarmed");
    let object = ran.object();
    assert_eq!(object["status"]["defragmented"], 3);
    let disarmed = object["status"]["alarmsDisarmed"].as_array().expect("alarms");
    assert!(!disarmed.is_empty() && disarmed.iter().all(|alarm| alarm["gone"] == true), "{object:#}");
    assert!(cluster.alarms().await?.is_empty());
    cluster.put("again", "written").await
}

/// R32: a full file without free pages is left alone, with the right advice.
#[tokio::test]
async fn a_full_unfragmented_cluster_is_left_alone() -> Result<(), Error> {
    let cluster = Etcd::default().quota_bytes(48 << 20).start().await?;
    cluster.fill(32 * MIB, 1 << 20).await?;
    eventually(Duration::from_secs(20), "every member to be more than half full", async || {
        let sizes = cluster.sizes().await.map_err(|e| e.to_string())?;
        if sizes.iter().all(|s| s.db > 25 * MIB) { Ok(()) } else { Err(format!("{sizes:?}")) }
    })
    .await?;
    let ran = sweep(&cluster, &["--quota-usage-above", "50%"]).await.expect(0);
    ran.says("complete (NothingDue)").says("full but not fragmented").says("raise the quota, delete keys");
    assert_eq!(defragmentations(&cluster).await?, [0.0; 3]);
    Ok(())
}

/// A sweep that is interrupted while its first member is at work.
struct Interrupted {
    child: std::process::Child,
    member: usize,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Interrupted {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn until(&mut self, words: &str) {
        let found = self.lines.by_ref().map_while(Result::ok).any(|line| line.contains(words));
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
    let mut sweep = Interrupted { child, member, lines };
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
    assert_eq!((&object["status"]["phase"], reason(&object)), (&"Failed".into(), "Interrupted"));
    assert_eq!(object["status"]["defragmented"], 1);
    let members = object["status"]["members"].as_array().expect("members");
    assert_eq!(members.iter().filter(|m| m["reason"] == "SweepEnded").count(), 2);
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
    assert!(lines.iter().any(|l| l.starts_with("aborted")), "{name}: {lines:#?}");
    cluster.resume(member)
}
