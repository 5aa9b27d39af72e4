//! The calls that change something, and the check before them.

use std::time::Duration;

use defragd::core::reason::Reason;
use defragd::core::view::{Alarm, AlarmKind, ClusterId, MemberId};
use defragd::etcd::{Call, CallErrorKind};
use defragd_harness::{Etcd, EtcdVersion, eventually};
use tonic::Code;

use crate::{DEADLINE, cluster_id, connect, connection, id, metrics, observe, single, status, to};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_to_another_cluster_or_member() {
    let (one, two) = tokio::join!(single(), single());
    let client = connect(to(&[one.member(0).url(), two.member(0).url()])).await;
    observe(&client).await;

    let error = client
        .defragment(cluster_id(&one), id(&two, 0), LIMIT)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.reason),
        (CallErrorKind::NotSent, Reason::ClusterIdMismatch)
    );
    assert!(
        error.message.contains(&cluster_id(&two).to_string()),
        "{error}"
    );

    let error = client
        .defragment(cluster_id(&one), MemberId(1), LIMIT)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.call),
        (CallErrorKind::NotSent, Call::Defragment)
    );
    let error = client
        .compact(ClusterId(1), id(&one, 0), 1, LIMIT)
        .await
        .unwrap_err();
    assert_eq!(error.reason, Reason::ClusterIdMismatch);

    for cluster in [&one, &two] {
        let seen = observe(&connect(connection(cluster)).await).await;
        assert_eq!(metrics(&seen, id(cluster, 0)).finished, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r03_leadership_moves_from_the_leader_and_from_nobody_else() {
    let cluster = Etcd::version(EtcdVersion::V3_6).start().await.unwrap();
    let client = connect(connection(&cluster)).await;
    observe(&client).await;
    let leader = cluster.leader().await.unwrap();
    let term = cluster.term().await.unwrap();
    let (from, to) = (id(&cluster, leader), id(&cluster, (leader + 1) % 3));

    let error = client
        .move_leader(cluster_id(&cluster), to, from)
        .await
        .unwrap_err();
    assert_eq!(
        error.kind,
        CallErrorKind::Refused(Code::FailedPrecondition),
        "{error}"
    );
    assert_eq!(error.reason, Reason::CallFailed);

    client
        .move_leader(cluster_id(&cluster), from, to)
        .await
        .unwrap();
    eventually(
        DEADLINE,
        "every member to follow the new leader",
        async || {
            let seen = observe(&client).await;
            (0..3).all(|i| status(&seen, id(&cluster, i)).leader == Some(to))
        },
    )
    .await
    .unwrap();
    assert_eq!(cluster.term().await.unwrap(), term + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn r29_a_compaction_is_physical_when_it_answers() {
    let cluster = single().await;
    cluster.fill(4 << 20, 64 << 10).await.unwrap();
    cluster.fill(4 << 20, 64 << 10).await.unwrap();
    let client = connect(connection(&cluster)).await;
    let member = id(&cluster, 0);
    let before = observe(&client).await;
    let revision = status(&before, member).revision;
    let compacted = client
        .compact(cluster_id(&cluster), member, revision, LIMIT)
        .await;
    compacted.unwrap();
    eventually(
        DEADLINE,
        "the old revisions' room to be shown as free",
        async || {
            // An idle member does not show what it has freed.
            cluster.put("something", "to commit").await.unwrap();
            let after = observe(&client).await;
            status(&after, member).reclaimable() > Some(3 << 20)
        },
    )
    .await
    .unwrap();

    // What somebody else has compacted already is as good as done.
    client
        .compact(cluster_id(&cluster), member, revision, LIMIT)
        .await
        .unwrap();
    let future = client
        .compact(cluster_id(&cluster), member, revision + 99, LIMIT)
        .await;
    assert_eq!(
        future.unwrap_err().kind,
        CallErrorKind::Refused(Code::OutOfRange)
    );
}

/// Fills a cluster up, makes room again, and disarms by member id.
async fn no_space(version: EtcdVersion) {
    let cluster = Etcd::version(version)
        .quota_bytes(8 << 20)
        .start()
        .await
        .unwrap();
    let client = connect(connection(&cluster)).await;
    // Far more than fits: etcd looks at what it has committed.
    assert!(cluster.fill(64 << 20, 256 << 10).await.is_err());

    // R38: both the list and Status say it.
    let alarms = eventually(DEADLINE, "every member to know every alarm", async || {
        let seen = observe(&client).await;
        let alarms = seen.alarms.clone().ok()?;
        let known = (0..3).all(|i| status(&seen, id(&cluster, i)).alarms == alarms);
        let quiet = (0..3).all(|i| status(&seen, id(&cluster, i)).errors.is_empty());
        (known && quiet && !alarms.is_empty()).then_some(alarms)
    })
    .await
    .unwrap();
    assert!(
        alarms.iter().all(|a| a.kind == AlarmKind::NoSpace),
        "{alarms:?}"
    );

    // R41: room first, then disarm.
    let leader = cluster.leader().await.unwrap();
    let all = etcd_client::DeleteOptions::new().with_all_keys();
    let deleted = cluster
        .client(leader)
        .await
        .unwrap()
        .delete("", Some(all))
        .await
        .unwrap();
    let revision = deleted.header().unwrap().revision();
    let via = id(&cluster, leader);
    client
        .compact(cluster_id(&cluster), via, revision, LIMIT)
        .await
        .unwrap();
    // The followers compact in their own time, and an idle member does not
    // show what it has freed, so the file is what tells.
    for i in 0..3 {
        eventually(DEADLINE, "the member to have room", async || {
            let done = client
                .defragment(cluster_id(&cluster), id(&cluster, i), LIMIT)
                .await;
            done.unwrap();
            status(&observe(&client).await, id(&cluster, i)).db_size < 4 << 20
        })
        .await
        .unwrap();
    }
    for Alarm { member, .. } in alarms {
        // Through another member than the one that raised it.
        let via = (0..3)
            .map(|i| id(&cluster, i))
            .find(|m| *m != member)
            .unwrap();
        client
            .disarm_no_space(cluster_id(&cluster), via, member)
            .await
            .unwrap();
    }
    assert!(observe(&client).await.alarms.unwrap().is_empty());
    cluster.put("after", "room").await.unwrap();

    let error = client
        .disarm_no_space(cluster_id(&cluster), via, MemberId(0))
        .await;
    assert_eq!(error.unwrap_err().kind, CallErrorKind::NotSent);
}

#[tokio::test(flavor = "multi_thread")]
async fn r38_r41_no_space_is_seen_and_disarmed_by_id_on_3_4() {
    no_space(EtcdVersion::V3_4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r38_r41_no_space_is_seen_and_disarmed_by_id_on_3_6() {
    no_space(EtcdVersion::V3_6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r38_r41_no_space_is_seen_and_disarmed_by_id_on_3_7() {
    no_space(EtcdVersion::V3_7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r62_a_learner_refuses_a_defragmentation() {
    let mut cluster = single().await;
    let learner = cluster.add_learner().await.unwrap();
    let client = connect(connection(&cluster)).await;
    observe(&client).await;
    let learner = id(&cluster, learner);
    let error = client
        .defragment(cluster_id(&cluster), learner, LIMIT)
        .await
        .unwrap_err();
    // The code differs between versions, the text does not.
    assert!(matches!(error.kind, CallErrorKind::Refused(_)), "{error:?}");
    assert!(
        error.message.contains("not supported for learner"),
        "{error}"
    );
}
