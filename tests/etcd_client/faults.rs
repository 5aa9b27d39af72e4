//! Members that die, stall or lose a call's answer.

use std::time::Duration;

use defragd::core::reason::Reason;
use defragd::etcd::{CallErrorKind, Timeouts};
use defragd_harness::{Cluster, Etcd, EtcdVersion, Fault, eventually};

use crate::{
    DEADLINE, cluster_id, connect, connection, id, metrics, observe, single, status, view,
};

const LIMIT: Duration = Duration::from_secs(30);
/// Long enough for a busy machine, short enough to wait for.
const SHORT: Timeouts = Timeouts {
    connect: Duration::from_secs(1),
    call: Duration::from_millis(1500),
};

/// A member whose defragmentation takes long enough to be watched: all of its
/// file is live.
async fn slow() -> Cluster {
    let cluster = single().await;
    cluster.fill(192 << 20, 1 << 20).await.unwrap();
    cluster
}

async fn await_inflight(cluster: &Cluster) {
    eventually(DEADLINE, "the defragmentation to begin", async || {
        cluster
            .metric(0, "etcd_disk_defrag_inflight")
            .await
            .is_ok_and(|v| v == Some(1.0))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_refuses_and_nothing_is_sent() {
    let cluster = Etcd::version(EtcdVersion::V3_6).start().await.unwrap();
    let client = connect(connection(&cluster)).await;
    observe(&client).await;
    let dead = (cluster.leader().await.unwrap() + 1) % 3;
    cluster.kill(dead).unwrap();

    let seen = observe(&client).await;
    let trouble = view(&seen, id(&cluster, dead)).status.as_ref().unwrap_err();
    assert_eq!(trouble.reason, Reason::MemberUnreachable);
    assert!(trouble.message.contains("refused"), "{}", trouble.message);
    assert!(
        trouble.message.contains(cluster.member(dead).url()),
        "{}",
        trouble.message
    );
    assert!(seen.alarms.is_ok());
    let alive = seen
        .members
        .as_ref()
        .unwrap()
        .iter()
        .filter(|m| m.status.is_ok());
    assert_eq!(alive.count(), 2);

    let error = client
        .defragment(cluster_id(&cluster), id(&cluster, dead), LIMIT)
        .await
        .unwrap_err();
    assert_eq!(error.kind, CallErrorKind::NotSent, "{error}");
    assert_eq!(error.reason, Reason::MemberUnreachable);

    // The kept client finds it again.
    cluster.restart(dead).await.unwrap();
    eventually(DEADLINE, "the member to be seen again", async || {
        view(&observe(&client).await, id(&cluster, dead))
            .status
            .is_ok()
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r07_a_stalled_member_is_named_and_delays_only_itself() {
    let cluster = Etcd::version(EtcdVersion::V3_6).start().await.unwrap();
    let mut given = connection(&cluster);
    given.timeouts = SHORT;
    let client = connect(given).await;
    observe(&client).await;
    let stalled = (cluster.leader().await.unwrap() + 1) % 3;
    cluster.pause(stalled).unwrap();

    // The signal takes a moment to stop every thread.
    let seen = eventually(DEADLINE, "the member to stall", async || {
        let seen = observe(&client).await;
        view(&seen, id(&cluster, stalled))
            .status
            .is_err()
            .then_some(seen)
    })
    .await
    .unwrap();
    let trouble = view(&seen, id(&cluster, stalled))
        .status
        .as_ref()
        .unwrap_err();
    assert_eq!(trouble.reason, Reason::MemberUnreachable);
    assert!(
        trouble.message.contains("no answer within"),
        "{}",
        trouble.message
    );
    assert_eq!(view(&seen, id(&cluster, stalled)).metrics, None);
    for other in (0..3).filter(|i| *i != stalled) {
        assert!(view(&seen, id(&cluster, other)).status.is_ok());
    }
    assert!(seen.alarms.is_ok(), "{:?}", seen.alarms);
    // Its identity cannot be checked, so nothing is sent.
    let error = client
        .defragment(cluster_id(&cluster), id(&cluster, stalled), LIMIT)
        .await
        .unwrap_err();
    assert_eq!(error.kind, CallErrorKind::NotSent, "{error}");
    cluster.resume(stalled).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r18_a_call_whose_time_is_up_is_unknown_and_the_server_goes_on() {
    let cluster = slow().await;
    let client = connect(connection(&cluster)).await;
    let member = id(&cluster, 0);
    observe(&client).await;
    let cut_short = Duration::from_millis(100);
    let send = async || {
        let call = client
            .defragment(cluster_id(&cluster), member, cut_short)
            .await;
        let error = call.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
        assert_eq!(error.reason, Reason::MemberUnreachable);
        assert!(
            error.to_string().contains("no answer within 100ms"),
            "{error}"
        );
    };
    send().await;
    let mut sent = 1;

    // While it runs, Status waits; the list and the metrics do not. Each look
    // is a new client's, which remembers nothing. On a busy machine a look may
    // come too late; then there is another call to look at.
    eventually(DEADLINE, "a look while it runs", async || {
        let mut given = connection(&cluster);
        given.timeouts.call = Duration::from_millis(300);
        let seen = observe(&connect(given).await).await;
        let view = seen.members.ok()?.pop()?;
        let running = view.metrics?.inflight == Some(true);
        match view.status {
            Err(trouble) if running => {
                assert_eq!(trouble.reason, Reason::MemberUnreachable);
                return Some(());
            }
            Ok(_) if !running => {
                send().await;
                sent += 1;
            }
            Ok(_) | Err(_) => {}
        }
        None
    })
    .await
    .unwrap();

    // A Status that answers says that none is running, and the metrics beside
    // it are not from before that.
    let finished = eventually(DEADLINE, "the server to finish", async || {
        let seen = observe(&client).await;
        let view = view(&seen, member);
        let told = view.metrics?;
        assert!(view.status.is_err() || told.inflight == Some(false));
        view.status.is_ok().then_some(told.finished)
    })
    .await
    .unwrap();
    assert!((1..=sent).contains(&finished), "{finished} of {sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r59_a_member_stopped_or_killed_while_it_defragments_leaves_the_outcome_unknown() {
    let cluster = slow().await;
    let client = connect(connection(&cluster)).await;
    let member = id(&cluster, 0);
    let before = observe(&client).await;

    let limit = Duration::from_secs(3);
    let (call, ()) = tokio::join!(
        client.defragment(cluster_id(&cluster), member, limit),
        async {
            await_inflight(&cluster).await;
            cluster.pause(0).unwrap();
        }
    );
    let error = call.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
    cluster.resume(0).unwrap();
    eventually(DEADLINE, "the server to finish", async || {
        let seen = observe(&client).await;
        view(&seen, member).metrics.is_some_and(|m| m.finished == 1)
    })
    .await
    .unwrap();

    let (call, ()) = tokio::join!(
        client.defragment(cluster_id(&cluster), member, LIMIT),
        async {
            await_inflight(&cluster).await;
            cluster.kill(0).unwrap();
        }
    );
    let error = call.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unknown, "{error}");
    cluster.restart(0).await.unwrap();
    let after = observe(&client).await;
    assert_ne!(
        metrics(&before, member).process_start.to_bits(),
        metrics(&after, member).process_start.to_bits()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_network_is_told_from_a_refusing_one() {
    let cluster = Etcd::version(EtcdVersion::V3_6)
        .members(1)
        .proxied()
        .start()
        .await
        .unwrap();
    let mut given = connection(&cluster);
    given.timeouts = SHORT;
    let member = id(&cluster, 0);
    let client = connect(given.clone()).await;
    assert!(view(&observe(&client).await, member).status.is_ok());

    cluster.proxy(0).set(Fault::BlackHole);
    let silent = observe(&client).await.members.unwrap_err();
    assert_eq!(silent.reason, Reason::MemberListUnavailable);
    assert!(
        silent.message.contains("no answer within"),
        "{}",
        silent.message
    );

    cluster.proxy(0).set(Fault::Cut);
    let cut = observe(&connect(given).await).await.members.unwrap_err();
    assert_eq!(cut.reason, Reason::MemberListUnavailable, "{}", cut.message);

    cluster.proxy(0).set(Fault::Pass);
    eventually(DEADLINE, "the member to be seen again", async || {
        observe(&client).await.members.is_ok()
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_status_still_answers_and_alarms_do_not() {
    let cluster = Etcd::version(EtcdVersion::V3_6).start().await.unwrap();
    let client = connect(connection(&cluster)).await;
    observe(&client).await;
    cluster.kill(1).unwrap();
    cluster.kill(2).unwrap();
    let seen = eventually(DEADLINE, "the last member to miss its leader", async || {
        let seen = observe(&client).await;
        let lost = status(&seen, id(&cluster, 0)).leader.is_none();
        lost.then_some(seen)
    })
    .await
    .unwrap();
    let trouble = seen.alarms.clone().unwrap_err();
    assert_eq!(trouble.reason, Reason::AlarmsUnavailable);
    let errors = &status(&seen, id(&cluster, 0)).errors;
    assert!(errors.iter().any(|e| e.contains("no leader")), "{errors:?}");
}
