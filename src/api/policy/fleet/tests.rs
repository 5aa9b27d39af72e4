//! What stands in the status of a policy of many clusters, and how much room it takes.

use super::*;
use crate::core::decide::{
    Blocked, BlockedBy, LastRun, Origin, RunStart, SignalRecord, TIMELINE_TOTAL, note_decision,
};
use crate::core::run::Note;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn read(state: SignalState, reason: Reason, message: &str) -> ClusterState {
    ClusterState {
        signal: Some(SignalRecord {
            state,
            reason,
            value: Some(209_715_200.0),
            message: message.to_owned(),
            sampled_at: None,
            origin: Origin::Primary,
        }),
        observed_trigger: Some(None),
        decision: Some(Note::new(reason, message)),
        ..ClusterState::default()
    }
}

fn quiet() -> ClusterState {
    read(
        SignalState::NotFiring,
        Reason::SignalNotFiring,
        "3 is not above 100Mi",
    )
}

/// A cluster of which much is remembered: it fires, waits for its turn, and has had
/// several runs.
fn busy(number: usize) -> ClusterState {
    let run = |i: usize| format!("fragmented-everywhere-{number:04}{i:06x}");
    ClusterState {
        firing_since: Some(at(10)),
        evidence_at: Some(at(100)),
        last_run: Some(LastRun {
            name: run(3),
            succeeded: true,
            reason: Reason::SweepComplete,
            reclaimed: Some(4 << 30),
            finished_at: at(-4000),
            own: true,
            touched: true,
        }),
        last_success: Some(at(-4000)),
        run_starts: (0..4)
            .map(|i| RunStart {
                name: run(i),
                at: at(-5000),
            })
            .collect(),
        accounted: (0..4).map(run).collect(),
        decision: Some(Note::new(
            Reason::PolicyBusy,
            "maxConcurrentRuns is 1 and that many are going on; of those that wait, the one that has fired for \
             longest is next",
        )),
        ..read(
            SignalState::Firing,
            Reason::SignalFiring,
            "the value of etcd_mvcc_db_total_size_in_bytes{cluster=\"etcd-0001\", instance=\"10.0.0.1:2379\"} is \
             200Mi (209715200), above 100Mi",
        )
    }
}

fn fleet<'a>(states: &'a [(&str, ClusterState)]) -> FleetNow<'a> {
    FleetNow {
        generation: 1,
        invalid: None,
        members: states.iter().map(|(name, _)| (*name).to_owned()).collect(),
        excess: Vec::new(),
        unlisted: &[],
        states: states
            .iter()
            .map(|(name, state)| ((*name).to_owned(), state))
            .collect(),
        labelled: true,
        unmatched: None,
        remember: SignedDuration::from_hours(1),
    }
}

fn reason<'a>(status: &'a EtcdDefragPolicyStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    let condition = conditions::get(&status.conditions, type_)?;
    Some((&condition.reason, &condition.message))
}

#[test]
fn the_summary_counts_and_the_conditions_name() {
    let states = [
        ("a", busy(1)),
        ("b", quiet()),
        ("c", read(SignalState::NoData, Reason::NoData, "no series")),
    ];
    let none = EtcdDefragPolicyStatus::default();
    let status = EtcdDefragPolicyStatus::of_fleet(&fleet(&states), &none, at(0)).unwrap();
    let summary = status.summary.clone().unwrap();
    assert_eq!(summary.cluster, "3 clusters");
    assert_eq!(summary.signal, "1 Firing, 1 NoData, 1 NotFiring");
    assert_eq!(
        summary.decision,
        "1 NoData, 1 PolicyBusy, 1 SignalNotFiring"
    );
    assert_eq!(
        (
            summary.clusters,
            summary.firing,
            summary.blocked,
            summary.running
        ),
        (Some(3), Some(1), Some(1), Some(0))
    );
    assert_eq!(summary.message, "firing: a");
    assert_eq!(reason(&status, types::FIRING), Some(("SignalFiring", "a")));
    assert_eq!(reason(&status, types::READY).unwrap().0, "Accepted");

    let states = &states[1..];
    let status = EtcdDefragPolicyStatus::of_fleet(&fleet(states), &none, at(0)).unwrap();
    assert_eq!(
        reason(&status, types::FIRING),
        Some(("NoData", "nobody knows of c"))
    );
}

#[test]
fn t84_blocked_is_said_of_the_fleet_with_the_clusters() {
    let held = |too_long: bool| ClusterState {
        blocked: Some(Blocked {
            since: at(0),
            by: vec![BlockedBy {
                name: "upgrade".to_owned(),
                reason: Reason::SignalFiring,
            }],
            message: "blocker \"upgrade\" fires".to_owned(),
            too_long,
        }),
        ..busy(1)
    };
    let none = EtcdDefragPolicyStatus::default();
    let of = |states: &[(&str, ClusterState)], before: &EtcdDefragPolicyStatus| {
        EtcdDefragPolicyStatus::of_fleet(&fleet(states), before, at(0)).unwrap()
    };
    let said = |status: &EtcdDefragPolicyStatus| {
        let condition = conditions::get(&status.conditions, types::BLOCKED).unwrap();
        format!(
            "{:?} {} {}",
            condition.status, condition.reason, condition.message
        )
    };
    let quiet = of(&[("a", quiet()), ("b", busy(1))], &none);
    assert!(conditions::get(&quiet.conditions, types::BLOCKED).is_none());
    let blocked = of(&[("a", held(false)), ("b", held(false))], &quiet);
    assert_eq!(said(&blocked), "True Blocked on a, b");
    let late = of(&[("a", held(false)), ("b", held(true))], &blocked);
    assert_eq!(said(&late), "True BlockedTooLong on b");
    let over = of(&[("a", busy(1)), ("b", busy(1))], &late);
    assert_eq!(said(&over), "False Accepted no blocker holds a run back");
}

#[test]
fn what_keeps_it_from_its_work_is_said_with_the_remedy() {
    let none = EtcdDefragPolicyStatus::default();
    let of = |fleet: &FleetNow<'_>| {
        let status = EtcdDefragPolicyStatus::of_fleet(fleet, &none, at(0)).unwrap();
        let (reason, message) = reason(&status, types::READY).unwrap();
        (reason.to_owned(), message.to_owned())
    };
    assert_eq!(of(&fleet(&[])).0, "NoClusters");

    let states = [("a", quiet())];
    let too_many = FleetNow {
        excess: (0..7).map(|i| format!("x{i}")).collect(),
        ..fleet(&states)
    };
    let (reason, message) = of(&too_many);
    assert_eq!(reason, "TooManyClusters");
    assert!(
        message
            .contains("nothing is done for x0, x1, x2, x3, x4 and 2 more; select fewer by labels"),
        "{message}"
    );

    let unknown = read(
        SignalState::Error,
        Reason::SourceUnknown,
        "the source \"x\" is not configured",
    );
    let states = [("a", quiet()), ("b", unknown.clone()), ("c", unknown)];
    assert_eq!(
        of(&fleet(&states)),
        (
            "SourceUnknown".to_owned(),
            "b: the source \"x\" is not configured; 1 more clusters cannot be evaluated".to_owned()
        )
    );
    let invalid = FleetNow {
        invalid: Some("spec.for: too long"),
        ..fleet(&states)
    };
    assert_eq!(of(&invalid).0, "InvalidSpec");
}

#[test]
fn a_cluster_that_left_is_remembered_for_a_while() {
    let states = [("a", busy(1)), ("b", quiet())];
    let none = EtcdDefragPolicyStatus::default();
    let both = EtcdDefragPolicyStatus::of_fleet(&fleet(&states), &none, at(0)).unwrap();
    let alone = fleet(&states[1..]);
    let left = EtcdDefragPolicyStatus::of_fleet(&alone, &both, at(10)).unwrap();
    let a = left.clusters.iter().find(|c| c.name == "a").unwrap();
    assert_eq!(a.absent_since.map(Time::timestamp), Some(at(10)));
    assert_eq!(left.summary.as_ref().unwrap().signal, "1 NotFiring");
    let later = EtcdDefragPolicyStatus::of_fleet(&alone, &left, at(3000)).unwrap();
    assert_eq!(
        later.clusters, left.clusters,
        "nothing is written meanwhile"
    );

    let state = later.state("a").unwrap();
    assert_eq!(
        state.last_run,
        busy(1).last_run,
        "its cooldown counts when it comes back"
    );
    assert_eq!(state.run_starts, busy(1).run_starts);
    let members = fleet(&states);
    let no_news = FleetNow {
        states: HashMap::new(),
        ..members
    };
    let back = EtcdDefragPolicyStatus::of_fleet(&no_news, &later, at(3100)).unwrap();
    assert!(back.clusters.iter().all(|c| c.absent_since.is_none()));

    let gone = EtcdDefragPolicyStatus::of_fleet(&alone, &left, at(3611)).unwrap();
    assert_eq!(gone.clusters.len(), 1);

    let unlisted = ["etcdclusters: forbidden".to_owned()];
    let nobody_knows = FleetNow {
        unlisted: &unlisted,
        ..fleet(&states[1..])
    };
    let kept = EtcdDefragPolicyStatus::of_fleet(&nobody_knows, &both, at(10)).unwrap();
    assert!(kept.clusters.iter().all(|c| c.absent_since.is_none()));
    assert_eq!(reason(&kept, types::READY).unwrap().0, "ClustersUnlisted");
}

#[test]
fn unknown_series_are_listed_until_there_are_none() {
    let states = [("a", quiet())];
    let unmatched = Unmatched {
        series: 9,
        unlabelled: 2,
        values: 7,
        listed: (0..7).map(|i| format!("x{i}")).collect(),
    };
    let none = EtcdDefragPolicyStatus::default();
    let with = |unmatched, before: &EtcdDefragPolicyStatus| {
        let fleet = FleetNow {
            unmatched: Some(unmatched),
            ..fleet(&states)
        };
        EtcdDefragPolicyStatus::of_fleet(&fleet, before, at(0)).unwrap()
    };
    let status = with(Some(&unmatched), &none);
    assert_eq!(status.unmatched_series.as_ref().unwrap().listed.len(), 7);
    let (why, message) = reason(&status, types::SERIES_MATCHED).unwrap();
    assert_eq!(why, "SeriesUnmatched");
    assert!(
        message.starts_with(
            "9 series are about no cluster of the policy: x0, x1, x2, x3, x4 and 2 more; 2 of them lack the label"
        ),
        "{message}"
    );
    assert_eq!(with(None, &status), status, "nobody could say");
    let status = with(Some(&Unmatched::default()), &status);
    assert_eq!(status.unmatched_series, None);
    assert_eq!(
        reason(&status, types::SERIES_MATCHED).unwrap().0,
        "SeriesMatched"
    );
}

/// Otherwise they would be listed for ever.
#[test]
fn unknown_series_are_forgotten_when_nobody_asks_whose_they_are() {
    let states = [("a", quiet())];
    let unmatched = Unmatched {
        series: 1,
        unlabelled: 0,
        values: 1,
        listed: vec!["x".to_owned()],
    };
    let asking = FleetNow {
        unmatched: Some(Some(&unmatched)),
        ..fleet(&states)
    };
    let none = EtcdDefragPolicyStatus::default();
    let before = EtcdDefragPolicyStatus::of_fleet(&asking, &none, at(0)).unwrap();
    assert!(before.unmatched_series.is_some());
    let by_probe = FleetNow {
        labelled: false,
        unmatched: Some(None),
        ..fleet(&states)
    };
    let of_one = EtcdDefragPolicyStatus::from_state("a", &quiet(), Some(2), &before, at(1));
    for status in [
        EtcdDefragPolicyStatus::of_fleet(&by_probe, &before, at(1)).unwrap(),
        of_one,
    ] {
        assert_eq!(status.unmatched_series, None);
        assert_eq!(reason(&status, types::SERIES_MATCHED), None);
    }
}

/// The cluster with one more decision, as the engine notes it.
fn decided(state: &ClusterState, reason: Reason, second: i64) -> ClusterState {
    let before = state.decision.as_ref().map(|note| note.reason);
    let mut state = ClusterState {
        decision: Some(Note::new(reason, reason.sentence())),
        ..state.clone()
    };
    note_decision(&mut state, before, at(second));
    state
}

/// One more look at every cluster that finds nothing new.
fn looked_again(status: &EtcdDefragPolicyStatus, second: i64) -> EtcdDefragPolicyStatus {
    let states: Vec<(&str, ClusterState)> = status
        .clusters
        .iter()
        .map(|cluster| {
            let state = ClusterState::from(cluster);
            let reason = state.decision.as_ref().unwrap().reason;
            let message = state.decision.clone().unwrap().message;
            let mut state = decided(&state, reason, second);
            state.decision = Some(Note::new(reason, message));
            (cluster.name.as_str(), state)
        })
        .collect();
    EtcdDefragPolicyStatus::of_fleet(&fleet(&states), status, at(second)).unwrap()
}

/// What is stored is all that a restart and another replica know.
#[test]
fn last_night_is_told_of_the_few_that_did_something() {
    const NIGHT: [Reason; 5] = [
        Reason::HoldingFor,
        Reason::RunCreated,
        Reason::RunInProgress,
        Reason::CoolingDown,
        Reason::SignalNotFiring,
    ];
    let names: Vec<String> = (0..MAX_CLUSTERS).map(|i| format!("etcd-{i:04}")).collect();
    let states: Vec<(&str, ClusterState)> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let mut state = decided(&ClusterState::default(), Reason::SignalNotFiring, 0);
            // Five clusters have a night of their own, each a while after the other.
            let began = 100 * i64::try_from(i).unwrap();
            for (k, reason) in (0..).zip(NIGHT).filter(|_| i % 200 == 7) {
                state = decided(&state, reason, began + 1_000 * k + 1_000);
            }
            (name.as_str(), state)
        })
        .collect();
    let none = EtcdDefragPolicyStatus::default();
    let status = EtcdDefragPolicyStatus::of_fleet(&fleet(&states), &none, at(0)).unwrap();
    let told = |status: &EtcdDefragPolicyStatus| -> usize {
        status.clusters.iter().map(|c| c.timeline.len()).sum()
    };
    assert_eq!(told(&status), TIMELINE_TOTAL);
    for i in [7, 207, 407, 607, 807] {
        let stored = status.state(&names[i]).unwrap().timeline;
        let reasons: Vec<Reason> = stored.iter().map(|spell| spell.reason).collect();
        assert!(reasons.ends_with(&NIGHT), "{i}: {reasons:?}");
        assert!(stored.ends_with(&states[i].1.timeline[1..]), "{i}");
    }
    // T102: what has no room is not stored anew with each look.
    assert_eq!(looked_again(&status, 200_000), status);

    // In the next night all want a run, and the newest are told.
    let states: Vec<(&str, ClusterState)> = states
        .iter()
        .enumerate()
        .map(|(i, (name, state))| {
            let second = 300_000 + i64::try_from(i).unwrap();
            (*name, decided(state, Reason::PolicyBusy, second))
        })
        .collect();
    let status = EtcdDefragPolicyStatus::of_fleet(&fleet(&states), &status, at(301_000)).unwrap();
    assert_eq!(told(&status), TIMELINE_TOTAL);
    let told: Vec<usize> = status.clusters.iter().map(|c| c.timeline.len()).collect();
    assert_eq!(told[MAX_CLUSTERS - TIMELINE_TOTAL..], [1; TIMELINE_TOTAL]);
    assert_eq!(looked_again(&status, 400_000), status);
}

#[test]
fn the_time_line_of_a_cluster_that_left_ends_there() {
    let states = [
        ("a", decided(&busy(1), Reason::CoolingDown, 5)),
        ("b", quiet()),
    ];
    let none = EtcdDefragPolicyStatus::default();
    let both = EtcdDefragPolicyStatus::of_fleet(&fleet(&states), &none, at(6)).unwrap();
    let left = EtcdDefragPolicyStatus::of_fleet(&fleet(&states[1..]), &both, at(10)).unwrap();
    let told = left.state("a").unwrap().timeline;
    assert_eq!(
        (told[0].reason, told[0].until),
        (Reason::CoolingDown, Some(at(10)))
    );
}

/// Within what an API server passes on to etcd, whatever fires.
#[test]
fn a_thousand_busy_clusters_have_room() {
    let names: Vec<String> = (0..MAX_CLUSTERS).map(|i| format!("etcd-{i:04}")).collect();
    let states: Vec<(&str, ClusterState)> = names
        .iter()
        .enumerate()
        .map(|(i, name)| (name.as_str(), busy(i)))
        .collect();
    let none = EtcdDefragPolicyStatus::default();
    let status = EtcdDefragPolicyStatus::of_fleet(&fleet(&states), &none, at(0)).unwrap();
    let size = serde_json::to_vec(&status).unwrap().len();
    eprintln!("{} bytes a cluster", size / MAX_CLUSTERS);
    assert!(size < 1 << 20, "{size}");
    for (name, state) in &states {
        let stored = status.state(name).unwrap();
        assert_eq!(
            (
                &stored.last_run,
                &stored.run_starts,
                &stored.accounted,
                stored.firing_since
            ),
            (
                &state.last_run,
                &state.run_starts,
                &state.accounted,
                state.firing_since
            )
        );
    }
    // The same once more is no news.
    let again = EtcdDefragPolicyStatus::of_fleet(&fleet(&states), &status, at(30)).unwrap();
    assert_eq!(again, status);
}

#[test]
fn what_has_no_room_is_refused_and_said() {
    let mut states: Vec<(String, ClusterState)> = (0..MAX_CLUSTERS)
        .map(|i| (format!("etcd-{i:04}"), busy(i)))
        .collect();
    for (_, state) in &mut states {
        state.accounted = (0..40)
            .map(|i| format!("a-run-made-by-hand-number-{i:04}"))
            .collect();
    }
    let states: Vec<(&str, ClusterState)> = states
        .iter()
        .map(|(name, state)| (name.as_str(), state.clone()))
        .collect();
    let none = EtcdDefragPolicyStatus::default();
    let fleet = fleet(&states);
    let too_large = EtcdDefragPolicyStatus::of_fleet(&fleet, &none, at(0)).unwrap_err();
    let status = EtcdDefragPolicyStatus::too_large(&fleet, too_large, &none, at(0));
    let (why, message) = reason(&status, types::READY).unwrap();
    assert_eq!(why, "TooManyClusters");
    assert!(
        message.ends_with("select fewer by labels, in several policies"),
        "{message}"
    );
}
