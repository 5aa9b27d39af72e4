//! What an observation says of each etcd version, and how members are found.

use std::time::Duration;

use defragd::core::reason::Reason;
use defragd::core::rule::{Quota, QuotaSource};
use defragd_harness::{Etcd, EtcdVersion, eventually};

use crate::{
    cluster_id, connect, connection, id, metrics, observe, only, single, status, to, view,
};

const MIB: u64 = 1 << 20;

/// Sees a fragmented cluster, defragments one follower, and sees the difference.
async fn plain(version: EtcdVersion, number: &str, quota: QuotaSource) {
    let cluster = Etcd::version(version)
        .quota_bytes(64 << 20)
        .start()
        .await
        .unwrap();
    cluster.fragment(16 * MIB, 2 * MIB).await.unwrap();
    let client = connect(connection(&cluster)).await;
    let seen = observe(&client).await;

    assert_eq!(seen.cluster_ids, only(&cluster));
    assert_eq!(seen.alarms.as_ref().unwrap().len(), 0);
    assert_eq!(seen.members.as_ref().unwrap().len(), 3);
    let leader = id(&cluster, cluster.leader().await.unwrap());
    for (i, member) in cluster.members().iter().enumerate() {
        assert_eq!(view(&seen, id(&cluster, i)).name, member.name());
        assert!(!view(&seen, id(&cluster, i)).learner);
        let said = status(&seen, id(&cluster, i));
        assert!(said.version.starts_with(number), "{}", said.version);
        assert_eq!(said.leader, Some(leader));
        assert!(said.reclaimable().unwrap() > 8 * MIB, "{said:?}");
        assert!(said.apply_lag().unwrap() < 100, "{said:?}");
        assert!(said.revision > 1);
        assert_eq!(
            said.quota,
            Quota::Known {
                bytes: 64 * MIB,
                source: quota
            }
        );
        let told = metrics(&seen, id(&cluster, i));
        assert_eq!((told.inflight, told.finished), (Some(false), 0));
    }

    let follower = (0..3)
        .map(|i| id(&cluster, i))
        .find(|m| *m != leader)
        .unwrap();
    let limit = Duration::from_secs(30);
    let done = client
        .defragment(cluster_id(&cluster), follower, limit)
        .await
        .unwrap();
    assert!(done.elapsed < limit);
    let after = observe(&client).await;
    assert!(
        status(&after, follower).db_size < 8 * MIB,
        "{:?}",
        status(&after, follower)
    );
    assert!(status(&after, leader).db_size > 12 * MIB);
    assert_eq!(metrics(&after, follower).finished, 1);
    assert_eq!(metrics(&after, leader).finished, 0);
    let start = |seen| metrics(seen, follower).process_start.to_bits();
    assert_eq!(start(&seen), start(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_3_4_is_observed_and_defragmented() {
    plain(EtcdVersion::V3_4, "3.4.", QuotaSource::Metrics).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_3_5_is_observed_and_defragmented() {
    plain(EtcdVersion::V3_5, "3.5.", QuotaSource::Metrics).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_3_6_is_observed_and_defragmented() {
    plain(EtcdVersion::V3_6, "3.6.", QuotaSource::Status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_3_7_is_observed_and_defragmented() {
    plain(EtcdVersion::V3_7, "3.7.", QuotaSource::Status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_urls_of_one_member_are_one_member() {
    let cluster = single().await;
    let port = cluster.member(0).address().port();
    let [by_address, by_name] = ["127.0.0.1", "localhost"].map(|h| format!("http://{h}:{port}"));
    let client = connect(to(&[&by_address, &by_name, &by_address])).await;
    let seen = observe(&client).await;
    assert_eq!(seen.members.as_ref().unwrap().len(), 1);
    assert_eq!(seen.cluster_ids, only(&cluster));
    assert_eq!(status(&seen, id(&cluster, 0)).leader, Some(id(&cluster, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_followed_to_their_advertised_urls_when_asked() {
    let cluster = Etcd::version(EtcdVersion::V3_6).start().await.unwrap();
    let mut one = to(&[cluster.member(0).url()]);
    let followed = observe(&connect(one.clone()).await).await;
    for i in 0..3 {
        assert!(status(&followed, id(&cluster, i)).leader.is_some());
        assert_eq!(metrics(&followed, id(&cluster, i)).finished, 0);
    }

    one.follow_member_urls = false;
    let alone = observe(&connect(one).await).await;
    assert!(view(&alone, id(&cluster, 0)).status.is_ok());
    for i in 1..3 {
        let trouble = view(&alone, id(&cluster, i)).status.as_ref().unwrap_err();
        assert_eq!(trouble.reason, Reason::MemberUnreachable);
        assert!(
            trouble.message.contains("no given endpoint answers as"),
            "{}",
            trouble.message
        );
        assert!(
            trouble.message.contains(cluster.member(i).url()),
            "{}",
            trouble.message
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_urls_replace_the_client_urls_own() {
    let cluster = Etcd::version(EtcdVersion::V3_6).start().await.unwrap();
    let mut given = connection(&cluster);
    // Only one page is named, and it says itself whose it is.
    given.metrics_urls = vec![
        format!("{}/metrics", cluster.member(1).url())
            .parse()
            .unwrap(),
    ];
    let seen = observe(&connect(given).await).await;
    let with: Vec<bool> = (0..3)
        .map(|i| view(&seen, id(&cluster, i)).metrics.is_some())
        .collect();
    assert_eq!(with, [false, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn r62_a_learner_is_reported_as_one() {
    let mut cluster = single().await;
    let learner = cluster.add_learner().await.unwrap();
    let client = connect(connection(&cluster)).await;
    let seen = eventually(
        crate::DEADLINE,
        "the learner to know its leader",
        async || {
            let seen = observe(&client).await;
            let view = view(&seen, id(&cluster, learner)).clone();
            view.status
                .is_ok_and(|s| s.leader.is_some())
                .then_some(seen)
        },
    )
    .await
    .unwrap();
    assert!(view(&seen, id(&cluster, learner)).learner);
    assert!(!view(&seen, id(&cluster, 0)).learner);
    assert!(seen.alarms.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_two_clusters_show_both_ids() {
    let (one, two) = tokio::join!(single(), single());
    let client = connect(to(&[one.member(0).url(), two.member(0).url()])).await;
    let seen = observe(&client).await;
    let both = [cluster_id(&one), cluster_id(&two)];
    assert_eq!(seen.cluster_ids, both.into_iter().collect());
}
