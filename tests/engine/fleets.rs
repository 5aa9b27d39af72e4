//! One policy on many clusters in one engine.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use defragd::core::decide::{OnSilence, Policy};
use defragd::core::fleet::{Fleet, Member, Selector};
use defragd::core::key::ClusterKind;
use defragd::core::reason::Reason;
use defragd::core::run::{Note, Phase};
use defragd::engine::{FleetView, Limits, ObjectKey, PolicyView, RunView, now};
use jiff::SignedDuration;
use tokio::sync::Barrier;

use crate::memory::{Memory, NOWHERE, Working, key, policy, put_target, run};

const CLUSTERS: usize = 12;
const AT_ONCE: u32 = 2;

/// A policy that fires on every cluster: nobody answers, and it says that this counts as firing.
fn fires_everywhere(policy: &mut Policy) {
    policy.on_error = OnSilence::Fire;
    policy.fleet = Some(Fleet {
        selector: Selector {
            kinds: BTreeSet::from([ClusterKind::EtcdTarget]),
            labels: Default::default(),
        },
        max_concurrent_runs: NonZeroU32::new(AT_ONCE).unwrap(),
    });
}

/// The policy on one of its clusters, where it has fired for so many minutes.
fn on(cluster: &str, minutes: i64) -> PolicyView {
    let mut view = policy("fleet", cluster, fires_everywhere);
    view.state.firing_since = Some(now() - SignedDuration::from_mins(minutes));
    view.state.evidence_at = Some(now());
    view.state.decision = Some(Note::new(Reason::PolicyBusy, "waits"));
    view
}

fn show(host: &Memory, units: &[PolicyView]) {
    let fleet = FleetView {
        key: key("fleet"),
        uid: "fleet".to_owned(),
        generation: 1,
        spec: units[0].spec.clone(),
        members: units
            .iter()
            .map(|unit| Member {
                cluster: unit.cluster.clone(),
                series: None,
            })
            .collect(),
        excess: Vec::new(),
        unlisted: Vec::new(),
    };
    let units = units.iter().cloned().map(Arc::new).collect();
    host.views.put_fleet(Arc::new(fleet), units);
}

fn unfinished(host: &Memory) -> Vec<Arc<RunView>> {
    host.views.unfinished_runs()
}

fn cluster_of(host: &Memory, run: &ObjectKey) -> String {
    host.views.run(run).unwrap().cluster.object.name.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_n_runs_at_once_the_oldest_first_and_none_lost() {
    let host = Memory::new();
    // The one with the last name has fired for longest.
    let names: Vec<String> = (0..CLUSTERS).map(|i| format!("c{i:02}")).collect();
    let mut units = Vec::new();
    for (i, name) in names.iter().enumerate() {
        put_target(&host, name, &[NOWHERE.to_owned()]);
        units.push(on(name, i64::try_from(i).unwrap() + 1));
    }
    show(&host, &units);
    let working = Working::start(&host, Limits::default());

    for ended in 0..CLUSTERS {
        let wanted = CLUSTERS.min(ended + AT_ONCE as usize);
        host.until("as many runs as allowed", |host| {
            assert!(unfinished(host).len() <= AT_ONCE as usize);
            host.heard().created.len() == wanted
        })
        .await;
        // Whoever began first ends first.
        let first = host.heard().created[ended].name.clone();
        host.edit_run(&first, |run| {
            run.record.phase = Phase::Complete;
            run.record.completed_at = Some(now());
            run.record.result = Some(Note::new(Reason::SweepComplete, "done"));
        });
    }
    let created = host.heard().created;
    let order: Vec<String> = created.iter().map(|run| cluster_of(&host, run)).collect();
    let mut oldest_first = names.clone();
    oldest_first.reverse();
    // Those that may run at once may begin in any order.
    let pairs = |names: &[String]| -> Vec<BTreeSet<String>> {
        names[..AT_ONCE as usize]
            .iter()
            .cloned()
            .map(|name| BTreeSet::from([name]))
            .collect()
    };
    let at_once = |names: &[String]| pairs(names).into_iter().flatten().collect::<BTreeSet<_>>();
    assert_eq!(at_once(&order), at_once(&oldest_first), "{order:?}");
    assert_eq!(order[AT_ONCE as usize..], oldest_first[AT_ONCE as usize..]);
    working.stop().await;
}

/// As many as are allowed are made side by side, since each takes several requests to the API
/// server; and never more.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_may_go_on_at_once_are_made_at_once() {
    let host = Memory::new();
    host.together.set(Barrier::new(AT_ONCE as usize)).unwrap();
    let units: Vec<PolicyView> = (0..CLUSTERS).map(|i| on(&format!("c{i:02}"), 1)).collect();
    for unit in &units {
        put_target(&host, &unit.cluster.object.name, &[NOWHERE.to_owned()]);
    }
    show(&host, &units);
    let working = Working::start(&host, Limits::default());
    host.until("runs that waited for each other", |host| {
        host.made() == AT_ONCE as usize
    })
    .await;
    let others = |host: &Memory| {
        let looked = units.iter().filter(|unit| {
            let view = host.views.policy(&unit.on()).unwrap();
            let message = |note: &Note| note.message.starts_with("maxConcurrentRuns is 2 ");
            view.state.decision.as_ref().is_some_and(message)
        });
        looked.count()
    };
    host.until("all others to wait", |host| {
        others(host) == CLUSTERS - AT_ONCE as usize
    })
    .await;
    assert_eq!(host.made(), AT_ONCE as usize);
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_leaves_loses_its_worker_and_its_run_goes_on() {
    let host = Memory::new();
    for name in ["a", "b"] {
        put_target(&host, name, &[NOWHERE.to_owned()]);
    }
    let units = [on("a", 2), on("b", 1)];
    show(&host, &units);
    // Somebody else's run keeps the other one waiting for its cluster.
    host.views.put_run(Arc::new(run("by-hand", "b")));
    let working = Working::start(&host, Limits::default());
    host.until("a run on a", |host| host.heard().created.len() == 1)
        .await;
    show(&host, &units[1..]);
    host.until("no worker on a", |host| {
        host.views.policy(&units[0].on()).is_none()
    })
    .await;
    let own: Vec<_> = unfinished(&host)
        .into_iter()
        .filter(|run| run.owner == Some(key("fleet")))
        .collect();
    assert_eq!(own.len(), 1, "it ends by itself");
    assert_eq!(own[0].cluster.object.name, "a");
    host.until("a report of the fleet", |host| {
        host.heard().fleets.contains_key(&key("fleet"))
    })
    .await;
    working.stop().await;
}
