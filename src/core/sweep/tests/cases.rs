//! Single decisions as tables.

use super::*;
use crate::core::rule::Rule;

fn gate_of(change: impl FnOnce(&mut Observation)) -> Result<(), Reason> {
    let mut seen = fragmented().see();
    change(&mut seen);
    gate(&RunSpec::default(), &RunRecord::default(), &seen).map_err(|closed| closed.note.reason)
}

fn status(seen: &mut Observation, i: usize) -> &mut MemberStatus {
    seen.members.as_mut().unwrap()[i].status.as_mut().unwrap()
}

#[test]
fn the_gate_names_what_is_wrong() {
    type Change = fn(&mut Observation);
    let table: [(&str, Change, Result<(), Reason>); 18] = [
        ("healthy", |_| {}, Ok(())),
        (
            "R61 member down",
            |s| s.members.as_mut().unwrap()[2].status = Err(trouble(Reason::MemberUnreachable)),
            Err(Reason::MemberUnreachable),
        ),
        (
            "R68 auth",
            |s| s.members.as_mut().unwrap()[2].status = Err(trouble(Reason::PermissionDenied)),
            Err(Reason::PermissionDenied),
        ),
        (
            "no list",
            |s| s.members = Err(trouble(Reason::MemberListUnavailable)),
            Err(Reason::MemberListUnavailable),
        ),
        (
            "two clusters",
            |s| {
                s.cluster_ids.insert(ClusterId(9));
            },
            Err(Reason::ClusterIdMismatch),
        ),
        (
            "memberCount",
            |s| s.expected_voters = Some(5),
            Err(Reason::MemberCountMismatch),
        ),
        (
            "no leader",
            |s| status(s, 1).leader = None,
            Err(Reason::NoLeader),
        ),
        (
            "two leaders",
            |s| status(s, 1).leader = Some(MemberId(0xa1)),
            Err(Reason::NoLeader),
        ),
        (
            "leader unknown to the list",
            |s| {
                for i in 0..3 {
                    status(s, i).leader = Some(MemberId(1));
                }
            },
            Err(Reason::NoLeader),
        ),
        (
            "CORRUPT listed",
            |s| {
                s.alarms.as_mut().unwrap().insert(Alarm {
                    member: MemberId(0xa1),
                    kind: AlarmKind::Corrupt,
                });
            },
            Err(Reason::CorruptAlarm),
        ),
        (
            "CORRUPT told by Status, alarms not listed",
            |s| {
                s.alarms = Err(trouble(Reason::AlarmsUnavailable));
                status(s, 0).alarms.insert(Alarm {
                    member: MemberId(0xa0),
                    kind: AlarmKind::Corrupt,
                });
            },
            Err(Reason::CorruptAlarm),
        ),
        (
            "alarms not listed",
            |s| s.alarms = Err(trouble(Reason::AlarmsUnavailable)),
            Err(Reason::AlarmsUnavailable),
        ),
        (
            "R38 NOSPACE admits",
            |s| {
                s.alarms.as_mut().unwrap().insert(Alarm {
                    member: MemberId(0xa1),
                    kind: AlarmKind::NoSpace,
                });
            },
            Ok(()),
        ),
        (
            "R73 apply lag",
            |s| status(s, 1).raft_applied_index = Some(9_000),
            Err(Reason::ApplyLag),
        ),
        (
            "R57 applied all it has, but has little",
            |s| {
                status(s, 1).raft_index = 9_000;
                status(s, 1).raft_applied_index = Some(9_000);
            },
            Err(Reason::ApplyLag),
        ),
        (
            "R55 version",
            |s| status(s, 1).version = "3.5.4".to_owned(),
            Err(Reason::VersionRefused),
        ),
        (
            "R78 somebody else defragments",
            |s| {
                s.members.as_mut().unwrap()[1]
                    .metrics
                    .as_mut()
                    .unwrap()
                    .inflight = Some(true);
            },
            Err(Reason::OtherDefragmentation),
        ),
        (
            "R78 and it does not answer meanwhile",
            |s| {
                let member = &mut s.members.as_mut().unwrap()[1];
                member.metrics.as_mut().unwrap().inflight = Some(true);
                member.status = Err(trouble(Reason::MemberUnreachable));
            },
            Err(Reason::OtherDefragmentation),
        ),
    ];
    for (what, change, want) in table {
        assert_eq!(gate_of(change), want, "{what}");
    }
}

#[test]
fn r26_different_revisions_at_one_index_stop_the_sweep_once_seen_thrice() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    while script.record.count(Outcome::Defragmented) == 0 {
        script.step(Fate::Done(2));
    }
    script.sim.member(1).revision = 999;
    assert!(matches!(script.look(), Step::Hold { .. }));
    assert!(matches!(script.look(), Step::Hold { .. }));
    assert_eq!(script.look(), Step::Finish);
    assert_eq!(
        script.record.result.unwrap().reason,
        Reason::RevisionMismatch
    );
}

#[test]
fn r26_one_sight_of_different_revisions_is_a_race_of_two_reads() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    script.sim.member(1).revision = 999;
    assert!(matches!(script.look(), Step::Hold { .. }));
    script.sim.member(1).revision = 1000;
    assert!(matches!(script.look(), Step::Act(_)));
}

#[test]
fn r72_the_deadline_is_stamped_once() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    script.sim.member(1).up = false;
    script.look();
    let deadline = script.record.deadline.unwrap();
    assert_eq!(deadline, t(45 * 60));
    for minute in 1..44 {
        script.sim.pass(SignedDuration::from_mins(1));
        script.sim.member(1).up = minute % 2 == 0;
        script.spec.suspend = true;
        script.look();
        assert_eq!(script.record.deadline, Some(deadline));
    }
}

#[test]
fn a_clock_that_jumped_back_does_not_put_the_deadline_out_of_reach() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    script.sim.member(1).up = false;
    script.look();
    script.sim.now = t(-86_400);
    script.look();
    assert_eq!(script.record.deadline, Some(t(-86_400 + 45 * 60)));
}

#[test]
fn r75_a_restart_right_after_the_call_left_does_not_repeat_it() {
    for metrics in [true, false] {
        let mut script = Script::new(fragmented(), RunSpec::default());
        script.sim.metrics = metrics;
        let Step::Act(act) = script.look() else {
            panic!("an act")
        };
        // The call leaves and defragd dies: nobody concludes.
        script.sim.act(&act, Fate::Lost(60));
        script.record = resume(script.record.clone());
        assert_eq!(script.record.count(Outcome::Unknown), 1);
        script.run(all_done);
        assert_eq!(script.record.phase, Phase::Complete);
        assert!(
            script.sim.members.iter().all(|m| m.begun == 1),
            "metrics {metrics}"
        );
    }
}

#[test]
fn a_restart_between_intent_and_call_tries_once_more_after_two_looks() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let Step::Act(_) = script.look() else {
        panic!("an act")
    };
    script.record = resume(script.record.clone());
    assert!(matches!(script.look(), Step::Observe { .. }));
    assert!(script.step(Fate::Done(2)));
    assert_eq!(script.record.member(MemberId(0xa2)).unwrap().attempts, 2);
    script.run(all_done);
    assert_eq!(script.record.phase, Phase::Complete);
}

#[test]
fn r71_roles_are_read_again_before_each_turn() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    while script.sim.member(2).begun == 0 {
        script.step(Fate::Done(2));
    }
    // a2 is done; leadership goes to a1 by itself, so a0 is a follower now.
    script.sim.leader = Some(MemberId(0xa1));
    script.run(all_done);
    let order: Vec<_> = script
        .lines
        .iter()
        .filter(|l| l.contains("act "))
        .map(|l| l[7..].to_owned())
        .collect();
    assert_eq!(order.len(), 4, "{order:?}");
    assert!(order[1].starts_with("act defragment a0"), "{order:?}");
    assert!(order[2].starts_with("act move leader a1"), "{order:?}");
    assert!(order[3].starts_with("act defragment a1"), "{order:?}");
}

#[test]
fn r01_the_next_member_waits_until_the_last_one_caught_up() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    while script.record.count(Outcome::Defragmented) == 0 {
        script.step(Fate::Done(2));
        if script.sim.member(2).begun > 0 {
            script.sim.member(2).lag = 4_000;
        }
    }
    for _ in 0..10 {
        let Step::Hold { note, after } = script.look() else {
            panic!("holds while it lags")
        };
        assert_eq!(note.reason, Reason::Settling);
        script.sim.pass(after);
    }
    script.sim.member(2).lag = 0;
    assert!(matches!(script.look(), Step::Act(Act::Defragment { .. })));
}

#[test]
fn a_member_that_never_catches_up_stops_the_sweep() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    while script.record.count(Outcome::Defragmented) == 0 {
        script.step(Fate::Done(2));
        if script.sim.member(2).begun > 0 {
            script.sim.member(2).lag = 4_000;
        }
    }
    script.run(all_done);
    assert_eq!(script.record.result.unwrap().reason, Reason::SettleTimeout);
}

#[test]
fn r07_the_target_not_answering_in_its_turn_is_expected_but_another_is_a_fault() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let Step::Act(act) = script.look() else {
        panic!("an act")
    };
    let result = script.sim.act(&act, Fate::Lost(30));
    script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
    let Step::Observe { note, .. } = script.look() else {
        panic!("observes")
    };
    assert_eq!(note.reason, Reason::OutcomeUnknown);
    script.sim.pass(SignedDuration::from_secs(60));
    script.sim.member(1).up = false;
    let Step::Hold { note, .. } = script.look() else {
        panic!("holds")
    };
    assert_eq!(note.reason, Reason::MemberUnreachable);
}

#[test]
fn r83_a_size_that_cannot_be_read_is_absent() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let Step::Act(act) = script.look() else {
        panic!("an act")
    };
    let result = script.sim.act(&act, Fate::Done(2));
    script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
    script.sim.member(2).up = false;
    for _ in 0..2_000 {
        if script.record.in_flight().is_none() {
            break;
        }
        script.step(Fate::Done(1));
    }
    let member = script.record.member(MemberId(0xa2)).unwrap();
    assert_eq!(member.outcome, Outcome::Defragmented);
    assert_eq!(member.db_size_after, None);
    assert_eq!(member.reclaimed(), None);
    assert_eq!(script.record.reclaimed_bytes(), 0);
}

#[test]
fn t93_an_unknown_size_is_not_due_and_not_zero() {
    let mut seen = fragmented().see();
    for i in 0..3 {
        status(&mut seen, i).db_size_in_use = None;
    }
    let next = next(
        &RunSpec::default(),
        RunRecord::default(),
        &seen,
        &Control::default(),
    );
    assert_eq!(next.step, Step::Finish);
    assert_eq!(next.record.result.unwrap().reason, Reason::NothingDue);
    assert!(
        next.record
            .members
            .iter()
            .all(|m| m.reason == Reason::NumbersUnknown)
    );
}

#[test]
fn all_is_due_whatever_the_numbers() {
    let spec = RunSpec {
        rule: Rule::All,
        ..RunSpec::default()
    };
    let mut script = Script::new(Sim::new(&[(100, 100), (100, 100), (100, 100)]), spec);
    script.run(all_done);
    assert_eq!(script.record.count(Outcome::Defragmented), 3);
    assert_eq!(script.record.reclaimed_bytes(), 0);
}

#[test]
fn r22_the_deadline_of_a_member_follows_its_live_bytes() {
    for (live, want) in [
        (None, 120),
        (Some(0), 120),
        (Some(4_000_000_000), 120),
        (Some(8_000_000_000), 190),
        (Some(100_000_000_000), 2030),
    ] {
        assert_eq!(
            member_timeout(live),
            SignedDuration::from_secs(want),
            "{live:?}"
        );
    }
}

#[test]
fn a_member_that_joins_during_the_run_gets_no_turn() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    while script.record.count(Outcome::Defragmented) == 0 {
        script.step(Fate::Done(2));
    }
    let mut joined = script.sim.members[1].clone();
    joined.id = MemberId(0xbb);
    script.sim.members.push(joined);
    script.run(all_done);
    let joined = script.record.member(MemberId(0xbb)).unwrap();
    assert_eq!(
        (joined.outcome, joined.reason),
        (Outcome::Skipped, Reason::JustJoined)
    );
    assert_eq!(script.record.phase, Phase::Complete);
}

#[test]
fn r74_the_deadline_starts_when_the_run_gets_the_cluster_not_when_it_was_made() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    // It waited in the queue for ten hours: nobody asked for a step.
    script.sim.pass(SignedDuration::from_hours(10));
    assert!(matches!(script.look(), Step::Act(_)));
    assert_eq!(script.record.deadline, Some(t(36_000 + 45 * 60)));
    script.run(all_done);
    assert_eq!(script.record.phase, Phase::Complete);
}

#[test]
fn r02_the_stall_is_announced_before_the_call_leaves() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    assert!(matches!(script.look(), Step::Act(_)));
    assert_eq!(
        script.record.in_flight().unwrap().message,
        "copying 100 MiB in use; the member stalls meanwhile, for at most 2m"
    );
}

#[test]
fn r23_a_call_that_ran_out_of_time_is_never_sent_again_while_it_may_still_work() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    script.run(|member| {
        if member == MemberId(0xa2) {
            Fate::Lost(600)
        } else {
            Fate::Done(2)
        }
    });
    assert_eq!(script.sim.member(2).begun, 1);
    assert_eq!(script.record.phase, Phase::Complete);
}

#[test]
fn without_metrics_a_full_file_is_not_copied_twice() {
    let spec = RunSpec {
        rule: Rule::All,
        ..RunSpec::default()
    };
    let mut sim = Sim::new(&[(100, 100), (100, 100), (100, 100)]);
    sim.metrics = false;
    let mut script = Script::new(sim, spec);
    script.run(|_| Fate::Lost(5));
    assert_eq!(script.sim.members.iter().map(|m| m.begun).sum::<u32>(), 1);
    assert_eq!(script.record.result.unwrap().reason, Reason::OutcomeUnknown);
}

#[test]
fn another_clusters_member_list_does_not_make_a_member_gone() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let Step::Act(act) = script.look() else {
        panic!("an act")
    };
    let result = script.sim.act(&act, Fate::Lost(60));
    script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
    let own = script.sim.clone();
    script.sim.id = ClusterId(0xbad);
    script.sim.members.remove(2);
    assert!(matches!(script.look(), Step::Observe { .. }));
    assert!(
        script.record.in_flight().is_some(),
        "the call is not forgotten"
    );
    script.sim = own;
    script.run(all_done);
    assert_eq!(script.record.phase, Phase::Complete);
    assert_eq!(script.sim.member(2).begun, 1);
}
