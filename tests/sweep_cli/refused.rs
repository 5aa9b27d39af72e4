//! What is left untouched, and what is said about it.

use std::net::TcpListener;

use defragd_harness::{Error, Etcd};

use crate::running::{Started, defragmentations, reason, sweep, sweep_at};

/// R11b: a single member is refused, and accepted on demand.
#[tokio::test]
async fn a_single_member_is_downtime_to_be_accepted() -> Result<(), Error> {
    let mut cluster = Etcd::default().members(1).start().await?;
    sweep(&cluster, &["--rule", "all"])
        .await
        .expect(3)
        .says("nothing was touched (SingleMember)")
        .says("--allow-single-member");
    assert_eq!(defragmentations(&cluster).await?, [0.0]);
    sweep(&cluster, &["--rule", "all", "--allow-single-member"])
        .await
        .expect(0)
        .says("1 of 1 members");
    assert_eq!(defragmentations(&cluster).await?, [1.0]);

    sweep(
        &cluster,
        &[
            "--rule",
            "all",
            "--allow-single-member",
            "--member-count",
            "3",
        ],
    )
    .await
    .expect(3)
    .says("MemberCountMismatch")
    .says("--member-count says 3");
    assert_eq!(defragmentations(&cluster).await?, [1.0]);

    // R62: a learner counts for nothing and is left alone.
    let learner = cluster.add_learner().await?;
    let flags = ["--rule", "all", "--allow-single-member", "--output", "json"];
    let object = sweep(&cluster, &flags).await.expect(0).object();
    assert_eq!(object["status"]["defragmented"], 1, "{object:#}");
    let id = format!("{:x}", cluster.member(learner).id());
    let members = object["status"]["members"].as_array().expect("members");
    let told = members
        .iter()
        .find(|m| m["memberID"] == id)
        .expect("it is reported");
    assert_eq!(
        (&told["outcome"], &told["reason"]),
        (&"Skipped".into(), &"Learner".into())
    );
    assert_eq!(defragmentations(&cluster).await?, [2.0, 0.0]);
    Ok(())
}

/// R61: a member is down; the sweep that waits for it begins when it is back.
#[tokio::test]
async fn an_unhealthy_cluster_is_left_untouched() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let leader = cluster.leader().await?;
    let down = (leader + 1) % 3;
    cluster.kill(down)?;
    let ran = sweep(&cluster, &["--rule", "all", "--output", "json"])
        .await
        .expect(3);
    let object = ran.object();
    assert_eq!(
        (&object["status"]["phase"], reason(&object)),
        (&"Failed".into(), "MemberUnreachable")
    );
    assert!(
        object["status"]["message"]
            .as_str()
            .is_some_and(|m| m.contains(cluster.member(down).name()))
    );
    assert_eq!(object["status"]["reclaimedBytes"], 0);
    ran.says("waiting: ").says("waited for 1s, see --wait");

    // It comes back while it is waited for.
    let mut patient = Started::new(&cluster, &["--rule", "all", "--wait", "1m"]);
    patient.until("waiting: ");
    cluster.restart(down).await?;
    let ended = tokio::task::spawn_blocking(|| patient.end());
    ended.await.expect("it does not panic").expect(0);
    assert_eq!(defragmentations(&cluster).await?, [1.0; 3]);
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
    let free = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port");
    let nobody = format!("http://{free}");
    sweep_at(std::slice::from_ref(&nobody), &[])
        .await
        .expect(3)
        .says("nothing was touched (MemberListUnavailable)")
        .says(&nobody)
        .says("Connection refused");

    // TLS where there is none.
    let https = one.endpoints()[0].replace("http:", "https:");
    sweep_at(std::slice::from_ref(&https), &[])
        .await
        .expect(2)
        .says("--cacert");

    let web = wiremock::MockServer::start().await;
    sweep_at(&[web.uri()], &[])
        .await
        .expect(3)
        .says("not an etcd v3")
        .says(&web.uri());
    Ok(())
}
