//! Several processes, one of which may act (T49): what is stored before a call,
//! what is checked right before it, and what is never overwritten.

use defragd::core::run::Phase;
use defragd::engine::Limits;
use defragd_harness::{Cluster, Etcd};
use std::sync::Arc;

use crate::memory::{Fault, Memory, Permit, Working, finished, foreign, put_target, run};

async fn scene() -> (Cluster, Arc<Memory>) {
    let cluster = Etcd::default().members(1).start().await.unwrap();
    let host = Memory::new();
    put_target(&host, "demo", &cluster.endpoints());
    host.views.put_run(Arc::new(run("r", "demo")));
    (cluster, host)
}

async fn completes(cluster: &Cluster, host: &Arc<Memory>, attempts: u32) {
    host.until("the run's end", |host| {
        host.record("r").phase == Phase::Complete
    })
    .await;
    assert_eq!(host.record("r").members[0].attempts, attempts);
    assert_eq!(finished(cluster).await.unwrap(), 1.0, "it was done once");
}

#[tokio::test(flavor = "multi_thread")]
async fn t49_a_call_that_may_not_leave_any_more_is_not_sent_and_costs_nothing() {
    let (cluster, host) = scene().await;
    host.permit_is(Permit::NotForCalls);
    let working = Working::start(&host, Limits::default());
    host.until("a refusal", |host| host.heard().refused > 1)
        .await;
    assert_eq!(finished(&cluster).await.unwrap(), 0.0);
    assert!(
        host.record("r").in_flight().is_some(),
        "nothing is written without a permit"
    );

    host.permit_is(Permit::Given);
    completes(&cluster, &host, 1).await;
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t49_what_another_replica_stored_meanwhile_is_what_counts() {
    let (cluster, host) = scene().await;
    host.permit_is(Permit::NotForCalls);
    let working = Working::start(&host, Limits::default());
    host.until("a refusal", |host| host.heard().refused > 0)
        .await;
    host.edit_run("r", |run| foreign(&mut run.record));
    let written = host.heard().records;
    host.permit_is(Permit::Given);

    // The other one may have sent it: that is looked into before it is sent again.
    completes(&cluster, &host, 2).await;
    let record = host.record("r");
    assert_eq!(record.warnings, ["another replica was here"]);
    assert!(host.heard().records > written);
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t50_an_intent_whose_storing_is_in_doubt_is_not_taken_for_a_call() {
    let (cluster, host) = scene().await;
    host.fail_next([Fault::AnswerLost, Fault::Conflict, Fault::AnswerLost]);
    let working = Working::start(&host, Limits::default());
    completes(&cluster, &host, 1).await;
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_vanished_is_not_brought_back() {
    let (cluster, host) = scene().await;
    host.permit_is(Permit::NotForCalls);
    let working = Working::start(&host, Limits::default());
    host.until("a refusal", |host| host.heard().refused > 0)
        .await;
    host.views.remove_run(&crate::memory::key("r"));
    host.permit_is(Permit::Given);
    working.stop().await;
    assert!(host.views.runs().is_empty());
    assert_eq!(finished(&cluster).await.unwrap(), 0.0);
}
