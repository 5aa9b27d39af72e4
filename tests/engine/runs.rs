//! When runs begin, wait and end.

use std::num::NonZeroU32;
use std::sync::Arc;

use defragd::core::key::{ClusterKey, ClusterKind};
use defragd::core::reason::Reason;
use defragd::core::run::{
    CallRecord, DisarmRecord, MemberRecord, Note, Outcome, Phase, Role, RunRecord,
};
use defragd::core::view::MemberId;
use defragd::engine::{Limits, RunView, TargetView};
use defragd_harness::Etcd;
use jiff::{SignedDuration, Timestamp};

use crate::memory::{
    Memory, NOWHERE, Working, at, cluster, finished, key, put_target, run, target,
};

fn gate(host: &Memory, name: &str) -> Option<Reason> {
    host.record(name).gate.map(|note| note.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_a_run_waits_while_the_clusters_own_operator_changes_it() {
    let etcd = Etcd::default().members(1).start().await.unwrap();
    let host = Memory::new();
    let changing = Note::new(Reason::ClusterChanging, "it scales from 1 to 3");
    let on = ClusterKey {
        kind: ClusterKind::CozystackCluster,
        object: key("demo"),
    };
    let described = TargetView {
        key: on.clone(),
        busy: Some(changing.clone()),
        ..target("demo", &etcd.endpoints())
    };
    host.views.put_target(Arc::new(described.clone()));
    host.views.put_run(Arc::new(RunView {
        cluster: on.clone(),
        ..run("r", "demo")
    }));
    let working = Working::start(&host, Limits::default());
    host.until("the run's wait", |host| {
        host.record("r").gate == Some(changing.clone())
    })
    .await;
    host.until("the cluster's condition", |host| {
        host.heard().targets.get(&on) == Some(&changing)
    })
    .await;
    assert_eq!(finished(&etcd).await.unwrap(), 0.0);
    assert_eq!(host.record("r").phase, Phase::Pending);
    assert!(
        host.record("r").deadline.is_some(),
        "as when it is unhealthy, activeDeadline counts"
    );

    host.views.put_target(Arc::new(TargetView {
        busy: None,
        version: 2,
        ..described
    }));
    host.until("the run's end", |host| {
        host.record("r").phase == Phase::Complete
    })
    .await;
    host.until("the cluster's condition", |host| {
        host.heard().targets[&on].reason == Reason::ClusterHealthy
    })
    .await;
    working.stop().await;
}

/// A sweep that has begun, on a cluster that does not answer.
fn in_mid_sweep(run: &mut RunView) {
    run.record = RunRecord {
        phase: Phase::Running,
        started_at: Some(at(9)),
        deadline: Some(Timestamp::now() + SignedDuration::from_hours(1)),
        disarms: vec![DisarmRecord {
            member: MemberId(7),
            at: at(9),
            attempts: 1,
            gone: true,
            message: String::new(),
        }],
        ..RunRecord::default()
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_runs_than_allowed_go_on_and_the_oldest_is_next() {
    let etcd = Etcd::default().members(1).start().await.unwrap();
    let host = Memory::new();
    let names = ["a", "b", "c", "d"];
    for (age, name) in names.iter().enumerate() {
        put_target(&host, name, &[NOWHERE.to_owned()]);
        host.views.put_run(Arc::new(RunView {
            created_at: at(age as i64),
            ..run(name, name)
        }));
    }
    put_target(&host, "c", &etcd.endpoints());
    // What had begun goes on, whatever is allowed now.
    host.edit_run("d", in_mid_sweep);
    // What cannot begin keeps nobody from it.
    host.edit_target("a", |target| {
        target.spec = Err(Note::new(Reason::MembersUnresolved, "no pod is ready"));
    });
    let limits = Limits {
        max_concurrent_runs: NonZeroU32::new(1),
        ..Limits::default()
    };
    let working = Working::start(&host, limits);
    host.until("three waits", |host| {
        gate(host, "a") == Some(Reason::MembersUnresolved)
            && gate(host, "b") == Some(Reason::TooManyRuns)
            && gate(host, "c") == Some(Reason::TooManyRuns)
            && gate(host, "d").is_some_and(|reason| reason != Reason::TooManyRuns)
    })
    .await;
    let begun = |name: &str| host.record(name).started_at.is_some();
    assert_eq!(names.map(begun), [false, false, false, true]);

    // The oldest is next. Its cluster does not answer either, and while it only waits for that
    // the one behind it goes on.
    host.edit_run("d", |run| run.deleting = true);
    host.until("the end of the one with a healthy cluster", |host| {
        host.record("c").phase == Phase::Complete
    })
    .await;
    let waiting = host.record("b");
    assert_eq!(
        (waiting.phase, waiting.started_at.is_some()),
        (Phase::Pending, true)
    );
    assert!(waiting.started_at < host.record("c").started_at);
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_cluster_becomes_healthy_needs_a_place_as_everybody() {
    let etcd = Etcd::default().members(1).start().await.unwrap();
    let host = Memory::new();
    for name in ["sick", "swept"] {
        put_target(&host, name, &[NOWHERE.to_owned()]);
        host.views.put_run(Arc::new(run(name, name)));
    }
    host.edit_run("swept", in_mid_sweep);
    // It has looked at its cluster before, when there was a place.
    let looked = at(8);
    host.edit_run("sick", |run| {
        run.record.started_at = Some(looked);
        run.record.deadline = Some(Timestamp::now() + SignedDuration::from_hours(1));
        run.record.gate = Some(Note::new(Reason::MemberUnreachable, "it does not answer"));
    });
    let limits = Limits {
        max_concurrent_runs: NonZeroU32::new(1),
        ..Limits::default()
    };
    let working = Working::start(&host, limits);
    host.edit_target("sick", |target_view| {
        let healthy = target("sick", &etcd.endpoints());
        target_view.spec = healthy.spec;
    });
    host.until("the healthy one's wait for a place", |host| {
        gate(host, "sick") == Some(Reason::TooManyRuns)
    })
    .await;
    assert_eq!(finished(&etcd).await.unwrap(), 0.0);
    assert_eq!(host.record("sick").phase, Phase::Pending);
    assert_eq!(host.record("sick").started_at, Some(looked));

    host.edit_run("swept", |run| run.deleting = true);
    host.until("its end", |host| {
        host.record("sick").phase == Phase::Complete
    })
    .await;
    assert_eq!(finished(&etcd).await.unwrap(), 1.0);
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r77_a_removed_run_whose_cluster_nobody_describes_ends_and_goes() {
    let host = Memory::new();
    let member = MemberRecord {
        id: MemberId(7),
        name: "m0".to_owned(),
        role: Role::Leader,
        outcome: Outcome::InProgress,
        reason: Reason::Defragmenting,
        message: String::new(),
        db_size_before: None,
        db_size_after: None,
        in_use_before: None,
        in_use_after: None,
        started_at: Some(at(0)),
        finished_at: None,
        attempts: 1,
        call: Some(CallRecord {
            deadline: at(120),
            metrics_before: None,
            answered_at: None,
        }),
    };
    let record = RunRecord {
        phase: Phase::Running,
        started_at: Some(at(0)),
        deadline: Some(at(9_999)),
        members: vec![member],
        ..RunRecord::default()
    };
    let begun = RunView {
        record,
        removable: false,
        ..run("begun", "gone")
    };
    host.views.put_run(Arc::new(begun.clone()));
    // Kept until somebody asks for its removal, and so is what is known of it.
    let kept = RunView {
        key: key("kept"),
        cluster: cluster("gone-too"),
        ..begun
    };
    host.views.put_run(Arc::new(kept));
    let working = Working::start(&host, Limits::default());
    host.until("both waits", |host| {
        ["begun", "kept"].map(|name| gate(host, name)) == [Some(Reason::ClusterNotFound); 2]
    })
    .await;
    host.edit_run("begun", |run| run.deleting = true);
    host.until("its removal", |host| !host.heard().removed.is_empty())
        .await;
    let last = host.heard().removed[0].record.clone();
    let result = last.result.unwrap();
    assert_eq!(
        (last.phase, result.reason),
        (Phase::Failed, Reason::Interrupted)
    );
    assert_eq!(last.members[0].outcome, Outcome::Unknown);
    assert!(
        result
            .message
            .contains("there is no EtcdTarget default/gone"),
        "{}",
        result.message
    );
    assert!(
        result.message.contains("member m0 (7)"),
        "{}",
        result.message
    );
    assert!(!host.record("kept").phase.is_terminal());
    working.stop().await;
}
