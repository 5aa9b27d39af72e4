//! The harness itself, on real etcd.

use std::time::Duration;

use etcd_client::AlarmType;

use defragd_harness::{Error, Etcd, EtcdVersion, Fault, Tls, eventually};

const MIB: u64 = 1 << 20;

async fn starts_and_fragments(version: EtcdVersion, reported: &str) -> Result<(), Error> {
    let cluster = Etcd::version(version).start().await?;
    cluster.fragment(12 * MIB, 2 * MIB).await?;
    for (i, sizes) in cluster.sizes().await?.into_iter().enumerate() {
        assert!(
            sizes.db >= 12 * MIB && sizes.free() >= 8 * MIB,
            "member {i}: {sizes:?}"
        );
        assert!(cluster.status(i).await?.version.starts_with(reported));
    }
    let leader = cluster.leader().await?;
    let mut client = cluster.client(leader).await?;
    client
        .defragment()
        .await
        .expect("a healthy member defragments");
    let after = cluster.status(leader).await?.sizes;
    assert!(after.db < 6 * MIB, "{after:?}");
    let count = cluster
        .metric(leader, "etcd_disk_backend_defrag_duration_seconds_count")
        .await?;
    assert_eq!(count, Some(1.0));
    assert!(cluster.alarms().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn etcd_3_4_starts_and_fragments() -> Result<(), Error> {
    starts_and_fragments(EtcdVersion::V3_4, "3.4.").await
}

#[tokio::test]
async fn etcd_3_5_starts_and_fragments() -> Result<(), Error> {
    starts_and_fragments(EtcdVersion::V3_5, "3.5.").await
}

#[tokio::test]
async fn etcd_3_6_starts_and_fragments() -> Result<(), Error> {
    starts_and_fragments(EtcdVersion::V3_6, "3.6.").await
}

#[tokio::test]
async fn etcd_3_7_starts_and_fragments() -> Result<(), Error> {
    starts_and_fragments(EtcdVersion::V3_7, "3.7.").await
}

#[tokio::test]
async fn a_killed_leader_is_replaced_and_comes_back() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let (leader, term) = (cluster.leader().await?, cluster.term().await?);
    cluster.kill(leader)?;
    assert_eq!(cluster.member(leader).pid(), None);
    let next = cluster.leader().await?;
    assert_ne!(next, leader);
    assert!(cluster.term().await? > term);
    cluster.put("k", "v").await?;
    cluster.restart(leader).await?;
    cluster.await_healthy().await?;
    Ok(())
}

#[tokio::test]
async fn a_paused_member_is_silent_until_resumed() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let follower = (cluster.leader().await? + 1) % 3;
    cluster.pause(follower)?;
    let statuses = cluster.statuses().await;
    assert!(statuses[follower].is_err());
    assert_eq!(statuses.iter().filter(|s| s.is_ok()).count(), 2);
    cluster.resume(follower)?;
    cluster.await_healthy().await
}

#[tokio::test]
async fn mutual_tls_with_a_user_works_through_etcdctl_too() -> Result<(), Error> {
    let cluster = Etcd::default()
        .members(1)
        .tls(Tls::Mutual)
        .auth("root", "pa:ss")
        .start()
        .await?;
    cluster.put("k", "v").await?;
    let output = cluster.etcdctl(&["get", "k", "--print-value-only"]).await?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "v\n", "{output:?}");
    assert!(cluster.metric(0, "etcd_server_has_leader").await? == Some(1.0));
    Ok(())
}

#[tokio::test]
async fn every_version_wants_the_user_and_password() -> Result<(), Error> {
    for version in EtcdVersion::ALL {
        let cluster = Etcd::version(version)
            .members(1)
            .auth("scrooge", "secret")
            .start()
            .await?;
        cluster.put("k", "v").await?;
        let mut stranger = etcd_client::Client::connect(cluster.endpoints(), None)
            .await
            .expect("the connection is made later");
        let refused = stranger.get("k", None).await;
        assert!(refused.is_err(), "{version:?}: {refused:?}");
        assert!(!format!("{cluster:?}").contains("secret"));
    }
    Ok(())
}

#[tokio::test]
async fn a_certificate_for_another_name_is_usable_under_that_name() -> Result<(), Error> {
    let names = ["etcd.internal"];
    let cluster = Etcd::default()
        .members(1)
        .tls(Tls::Server)
        .server_names(names)
        .start()
        .await?;
    cluster.put("k", "v").await
}

#[tokio::test]
async fn a_learner_joins_and_stays_one() -> Result<(), Error> {
    let mut cluster = Etcd::default().members(1).start().await?;
    let learner = cluster.add_learner().await?;
    assert!(cluster.status(learner).await?.is_learner);
    assert_eq!(cluster.endpoints().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_small_quota_raises_nospace() -> Result<(), Error> {
    let cluster = Etcd::default()
        .members(1)
        .quota_bytes(4 << 20)
        .start()
        .await?;
    let full = cluster.fill(16 * MIB, 256 << 10).await;
    assert!(matches!(full, Err(Error::Etcd { .. })), "{full:?}");
    eventually(Duration::from_secs(10), "the alarm", async || {
        cluster.alarms().await.is_ok_and(|alarms| alarms.len() == 1)
    })
    .await
}

#[tokio::test]
async fn leadership_moves_and_alarms_are_raised_on_request() -> Result<(), Error> {
    let cluster = Etcd::any().await?.start().await?;
    let (leader, term) = (cluster.leader().await?, cluster.term().await?);
    let next = (leader + 1) % 3;
    cluster.move_leader(next).await?;
    assert_eq!(cluster.leader().await?, next);
    assert_eq!(cluster.term().await?, term + 1);
    cluster.raise_alarm(leader, AlarmType::Corrupt).await?;
    let alarms = cluster.alarms().await?;
    assert_eq!(alarms.len(), 1);
    assert_eq!(alarms[0].member_id(), cluster.member(leader).id());
    assert_eq!(alarms[0].alarm(), AlarmType::Corrupt);
    Ok(())
}

#[tokio::test]
async fn a_proxy_stalls_and_cuts_only_its_clients() -> Result<(), Error> {
    let cluster = Etcd::default().members(1).proxied().start().await?;
    let mut client = etcd_client::Client::connect(cluster.endpoints(), None)
        .await
        .expect("the connection is made later");
    let limit = Duration::from_millis(500);
    assert!(client.status().await.is_ok());
    cluster.proxy(0).set(Fault::BlackHole);
    assert!(tokio::time::timeout(limit, client.status()).await.is_err());
    cluster.status(0).await?;
    cluster.proxy(0).set(Fault::Cut);
    assert!(client.status().await.is_err());
    cluster.proxy(0).set(Fault::Delay(limit));
    let start = std::time::Instant::now();
    eventually(Duration::from_secs(20), "a late answer", async || {
        client.status().await
    })
    .await?;
    assert!(start.elapsed() >= limit);
    Ok(())
}

#[tokio::test]
async fn a_member_that_cannot_start_is_reported_with_its_log() {
    let failed = Etcd::default()
        .members(1)
        .extra_args(["--no-such-flag"])
        .start()
        .await;
    let message = failed
        .expect_err("etcd refuses an unknown flag")
        .to_string();
    assert!(message.contains("no-such-flag"), "{message}");
}
