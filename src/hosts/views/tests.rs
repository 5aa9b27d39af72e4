//! What is found under which name, and who is told of what.

use jiff::Timestamp;

use super::*;
use crate::core::reason::Reason;
use crate::core::run::{Note, Phase, RunRecord, RunSpec};

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "default".into(),
        name: name.into(),
    }
}

fn cluster(name: &str) -> ClusterKey {
    ClusterKey::target(key(name))
}

fn target(name: &str, version: u64, id: Option<u64>) -> Arc<TargetView> {
    Arc::new(TargetView {
        key: cluster(name),
        generation: 1,
        version,
        spec: Err(Note::new(Reason::InvalidSpec, "nowhere")),
        cluster_id: id.map(ClusterId),
        busy: None,
        remarks: Vec::new(),
    })
}

fn policy(name: &str, on: &str, generation: i64) -> Arc<PolicyView> {
    Arc::new(PolicyView {
        key: key(name),
        uid: name.to_owned(),
        generation,
        cluster: cluster(on),
        series: None,
        spec: Err("none".to_owned()),
        state: crate::core::decide::ClusterState::default(),
    })
}

fn run(name: &str, on: &str) -> RunView {
    RunView {
        key: key(name),
        generation: 1,
        cluster: cluster(on),
        owner: None,
        created_at: Timestamp::UNIX_EPOCH,
        spec: Ok(Arc::new(RunSpec::default())),
        record: RunRecord::default(),
        deleting: false,
        removable: true,
    }
}

fn names(runs: &[Arc<RunView>]) -> Vec<&str> {
    runs.iter().map(|run| run.key.name.as_str()).collect()
}

/// Who was told since the last question: of everything, of `a`, of `b`.
struct Ears {
    all: watch::Receiver<u64>,
    near: [watch::Receiver<u64>; 2],
}

impl Ears {
    fn new(views: &Views) -> Self {
        Ears {
            all: views.changes(),
            near: ["a", "b"].map(|name| views.changes_on(&cluster(name))),
        }
    }

    fn heard(&mut self) -> [bool; 3] {
        let [a, b] = &mut self.near;
        [&mut self.all, a, b].map(|changes| {
            let heard = changes.has_changed().unwrap();
            changes.mark_unchanged();
            heard
        })
    }
}

#[test]
fn targets_of_one_cluster_share_their_runs_their_policies_and_their_news() {
    let views = Views::default();
    let mut ears = Ears::new(&views);
    views.put_target(target("a", 1, None));
    assert_eq!(ears.heard(), [true, true, false]);
    views.put_target(target("b", 1, Some(7)));
    assert_eq!(ears.heard(), [true, false, true]);
    views.put_policy(policy("p", "a", 1));
    assert_eq!(ears.heard(), [true, true, false]);
    views.put_run(Arc::new(run("r", "a")));
    assert_eq!(ears.heard(), [true, true, false]);
    assert!(views.runs_on(&cluster("b")).is_empty());

    views.put_target(target("a", 2, Some(7)));
    assert_eq!(
        ears.heard(),
        [false, true, true],
        "now they are known to be one"
    );
    assert_eq!(names(&views.runs_on(&cluster("b"))), ["r"]);
    assert_eq!(names(&views.runs_of(ClusterId(7))), ["r"]);
    assert_eq!(
        views.names_of(ClusterId(7)),
        [cluster("a"), cluster("b")].into()
    );
    assert_eq!(views.policies_on(&cluster("b")).len(), 1);
    views.put_policy(policy("p", "a", 2));
    assert_eq!(ears.heard(), [false, true, true]);
    views.remove_run(&key("r"));
    assert_eq!(ears.heard(), [true, true, true]);

    views.put_target(target("a", 3, Some(8)));
    assert_eq!(ears.heard(), [false, true, true], "and now they are not");
    assert!(views.policies_on(&cluster("b")).is_empty());
    views.remove_target(&cluster("a"));
    assert_eq!(ears.heard(), [true, true, false]);
    assert_eq!(views.policies_on(&cluster("a")).len(), 1);
}

#[test]
fn a_run_is_also_found_by_the_cluster_that_it_works_on() {
    let views = Views::default();
    views.put_target(target("b", 1, Some(7)));
    let mut begun = run("r", "gone");
    begun.record.cluster_id = Some(ClusterId(7));
    begun.record.started_at = Some(Timestamp::UNIX_EPOCH);
    let mut ears = Ears::new(&views);
    views.put_run(Arc::new(begun.clone()));
    assert_eq!(ears.heard(), [true, false, true]);
    assert_eq!(names(&views.runs_on(&cluster("b"))), ["r"]);
    assert_eq!(names(&views.runs_on(&cluster("gone"))), ["r"]);
    begun.cluster = cluster("b");
    views.put_run(Arc::new(begun));
    assert_eq!(names(&views.runs_on(&cluster("b"))), ["r"], "once");
    assert!(views.runs_on(&cluster("gone")).is_empty());
    views.remove_run(&key("r"));
    assert!(views.runs_on(&cluster("b")).is_empty());
    assert!(views.read().by_id[&ClusterId(7)].runs.is_empty());
}

#[test]
fn only_what_others_work_by_is_news() {
    let views = Views::default();
    views.put_policy(policy("p", "a", 1));
    views.put_run(Arc::new(run("r", "a")));
    views.put_target(target("a", 1, None));
    let mut ears = Ears::new(&views);

    let mut remembers = (*policy("p", "a", 1)).clone();
    remembers.state.backoff_level = 3;
    views.put_policy(Arc::new(remembers));
    views.put_target(target("a", 1, None));
    let mut waits = run("r", "a");
    waits.record.gate = Some(Note::new(Reason::NoLeader, "no leader"));
    views.put_run(Arc::new(waits.clone()));
    assert_eq!(ears.heard(), [false, false, false]);
    assert_eq!(
        views
            .policy(&policy("p", "a", 1).on())
            .unwrap()
            .state
            .backoff_level,
        3
    );
    assert_eq!(
        views.run(&key("r")).unwrap().record.gate,
        waits.record.gate,
        "though it is shown"
    );

    waits.deleting = true;
    views.put_run(Arc::new(waits.clone()));
    assert_eq!(ears.heard(), [true, true, false], "it is to end");
    waits.record.started_at = Some(Timestamp::UNIX_EPOCH);
    views.put_run(Arc::new(waits.clone()));
    assert_eq!(ears.heard(), [true, true, false], "it takes a slot");
    waits.record.phase = Phase::Running;
    views.put_run(Arc::new(waits.clone()));
    assert_eq!(ears.heard(), [false, true, false]);
    assert_eq!(views.unfinished_runs().len(), 1);
    waits.record.phase = Phase::Failed;
    views.put_run(Arc::new(waits));
    assert_eq!(ears.heard(), [true, true, false]);
    assert!(views.unfinished_runs().is_empty());

    views.put_policy(policy("p", "b", 2));
    assert_eq!(ears.heard(), [true, true, true], "it moved");
    views.wake();
    assert_eq!(ears.heard(), [true, true, true]);
}

#[test]
fn what_nobody_names_or_listens_to_takes_no_room() {
    let views = Views::default();
    let room = |views: &Views| {
        let inner = views.read();
        (inner.clusters.len(), inner.by_id.len())
    };
    views.put_target(target("a", 1, Some(7)));
    views.put_policy(policy("p", "a", 1));
    let mut begun = run("r", "a");
    begun.record.cluster_id = Some(ClusterId(9));
    views.put_run(Arc::new(begun));
    assert_eq!(room(&views), (1, 2));
    let listens = views.changes_on(&cluster("a"));
    views.remove_run(&key("r"));
    views.remove_policy(&key("p"));
    views.remove_target(&cluster("a"));
    assert_eq!(room(&views), (1, 0), "somebody still listens");
    assert!(listens.has_changed().unwrap());
    drop(listens);
    drop(views.changes_on(&cluster("b")));
    drop(views.changes_on(&cluster("c")));
    assert_eq!(room(&views), (1, 0));
}

#[test]
fn a_fleet_is_a_policy_on_each_of_its_clusters() {
    let views = Views::default();
    let mut ears = Ears::new(&views);
    let fleet = |generation| {
        Arc::new(FleetView {
            key: key("p"),
            uid: "p".to_owned(),
            generation,
            spec: Err("none".to_owned()),
            members: Vec::new(),
            excess: Vec::new(),
            unlisted: Vec::new(),
        })
    };
    views.put_policy(policy("o", "a", 1));
    views.put_policy(policy("q", "a", 1));
    ears.heard();
    views.put_fleet(fleet(1), vec![policy("p", "a", 1), policy("p", "b", 1)]);
    assert_eq!(ears.heard(), [true, true, true]);
    views.put_fleet(fleet(1), vec![policy("p", "a", 1), policy("p", "b", 1)]);
    assert_eq!(ears.heard(), [false, false, false], "nothing changed");
    assert_eq!(views.policies_on(&cluster("a")).len(), 3);
    assert_eq!(views.policy_keys().len(), 4);

    let on = policy("p", "b", 1).on();
    let remembers = crate::core::decide::ClusterState {
        backoff_level: 3,
        ..crate::core::decide::ClusterState::default()
    };
    views.remember(&on, "another", &remembers);
    assert_eq!(views.policy(&on).unwrap().state.backoff_level, 0);
    views.remember(&on, "p", &remembers);
    assert_eq!(views.policy(&on).unwrap().state.backoff_level, 3);
    assert_eq!(ears.heard(), [false, false, false]);

    views.put_fleet(fleet(1), vec![policy("p", "a", 1)]);
    assert_eq!(ears.heard(), [true, false, true], "b left");
    assert!(views.policy(&on).is_none() && views.policies_on(&cluster("b")).is_empty());
    assert_eq!(views.fleet_keys(), [key("p")]);
    views.put_policy(policy("p", "a", 2));
    assert!(views.fleet_keys().is_empty(), "it names its cluster now");
    views.put_fleet(fleet(3), Vec::new());
    views.remove_policy(&key("p"));
    assert!(!views.has_policy(&key("p")) && views.fleet_keys().is_empty());
    assert_eq!(views.policy_keys().len(), 2, "the others stay");
}
