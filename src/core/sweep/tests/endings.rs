//! How a run ends, and what it leaves behind.

use super::*;

#[test]
fn suspend_stops_between_members_only() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let Step::Act(act) = script.look() else {
        panic!("an act")
    };
    script.spec.suspend = true;
    let result = script.sim.act(&act, Fate::Lost(10));
    script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
    assert!(
        matches!(script.look(), Step::Observe { .. }),
        "the member in progress is seen to its end"
    );
    script.sim.pass(SignedDuration::from_secs(20));
    let Step::Hold { note, .. } = script.look() else {
        panic!("holds")
    };
    assert_eq!(note.reason, Reason::Suspended);
    script.spec.suspend = false;
    script.run(all_done);
    assert_eq!(script.record.phase, Phase::Complete);
}

#[test]
fn r77_a_stop_finishes_the_member_disarms_and_goes() {
    let mut sim = fragmented();
    sim.alarms.insert(Alarm {
        member: MemberId(0xa2),
        kind: AlarmKind::NoSpace,
    });
    let mut script = Script::new(sim, RunSpec::default());
    let Step::Act(act) = script.look() else {
        panic!("an act")
    };
    let result = script.sim.act(&act, Fate::Lost(10));
    script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
    let control = Control {
        stop: Some(Note::new(Reason::Interrupted, "removed")),
        ..Control::default()
    };
    let mut disarmed = false;
    for _ in 0..100 {
        let next = next(
            &script.spec,
            script.record.clone(),
            &script.sim.see(),
            &control,
        );
        script.record = next.record;
        match next.step {
            Step::Finish => break,
            Step::Observe { after, .. } | Step::Hold { after, .. } => script.sim.pass(after),
            Step::Act(act) => {
                assert!(
                    matches!(act, Act::Disarm { .. }),
                    "no other member is begun: {act:?}"
                );
                disarmed = true;
                let result = script.sim.act(&act, Fate::Done(1));
                script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
            }
        }
    }
    assert!(disarmed);
    assert_eq!(
        script.record.result.as_ref().unwrap().reason,
        Reason::Interrupted
    );
    assert_eq!(script.record.count(Outcome::Defragmented), 1);
}

#[test]
fn r43_r44_a_disarm_that_does_not_help_is_bounded_and_shown() {
    let mut sim = fragmented();
    sim.alarms.insert(Alarm {
        member: MemberId(0xa2),
        kind: AlarmKind::NoSpace,
    });
    sim.disarms_ignored = true;
    let mut script = Script::new(sim, RunSpec::default());
    script.run(all_done);
    assert_eq!(script.record.disarms[0].attempts, MAX_DISARMS);
    assert_eq!(script.record.phase, Phase::Failed);
    assert_eq!(
        script.record.result.unwrap().reason,
        Reason::NoSpaceStillArmed
    );
}

#[test]
fn a_refused_run_disarms_nothing() {
    let mut sim = Sim::new(&[(1200, 100)]);
    sim.alarms.insert(Alarm {
        member: MemberId(0xa0),
        kind: AlarmKind::NoSpace,
    });
    let mut script = Script::new(sim, RunSpec::default());
    assert_eq!(script.look(), Step::Finish);
    assert!(!script.record.touched());
    assert_eq!(script.record.result.unwrap().reason, Reason::SingleMember);
}

#[test]
fn a_terminal_record_sticks() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    script.run(all_done);
    let done = script.record.clone();
    script.sim.member(0).size = 3 * GIB;
    script.sim.pass(SignedDuration::from_hours(100));
    assert_eq!(script.look(), Step::Finish);
    assert_eq!(script.record, done);
    assert_eq!(resume(done.clone()), done);
}

#[test]
fn r47_an_assumed_quota_and_a_faulty_version_are_said() {
    let mut sim = fragmented();
    sim.quota = Quota::Known {
        bytes: 2 * GIB,
        source: QuotaSource::Default,
    };
    sim.member(1).version = "3.5.16";
    let mut script = Script::new(sim, RunSpec::default());
    script.run(all_done);
    let warnings = script.record.warnings.join("\n");
    assert!(warnings.contains("etcd's default of 2"), "{warnings}");
    assert!(warnings.contains("full disk"), "{warnings}");
}

#[test]
fn a_suspended_run_says_so_and_its_end_names_it() {
    let spec = RunSpec {
        suspend: true,
        ..RunSpec::default()
    };
    let mut script = Script::new(fragmented(), spec);
    script.look();
    assert_eq!(
        script.record.gate.as_ref().unwrap().reason,
        Reason::Suspended
    );
    script.run(all_done);
    let result = script.record.result.unwrap();
    assert_eq!(result.reason, Reason::Deferred);
    assert!(
        result.message.contains("spec.suspend"),
        "{}",
        result.message
    );
}

#[test]
fn r47_an_assumed_quota_that_does_not_fit_the_alarm_disarms_nothing() {
    for (size, disarmed) in [(300, false), (2_000, true)] {
        let mut sim = Sim::new(&[(size, 10), (size, 10), (size, 10)]);
        sim.quota = Quota::Known {
            bytes: 2 * GIB,
            source: QuotaSource::Default,
        };
        sim.alarms.insert(Alarm {
            member: MemberId(0xa1),
            kind: AlarmKind::NoSpace,
        });
        let mut script = Script::new(sim, RunSpec::default());
        script.run(all_done);
        assert_eq!(script.sim.alarms.is_empty(), disarmed, "{size} MiB");
        assert_eq!(script.record.phase == Phase::Complete, disarmed);
    }
}

fn changing() -> Control {
    Control {
        hold: Some(Note::new(Reason::ClusterChanging, "it scales from 3 to 5")),
        ..Control::default()
    }
}

fn asked(script: &mut Script, control: &Control) -> Step {
    let next = next(
        &script.spec,
        script.record.clone(),
        &script.sim.see(),
        control,
    );
    script.record = next.record;
    next.step
}

#[test]
fn r11_a_cluster_that_is_being_changed_is_left_alone_until_it_is_not() {
    // Not even what would otherwise be refused is judged meanwhile.
    let mut script = Script::new(Sim::new(&[(1200, 100)]), RunSpec::default());
    let Step::Hold { note, .. } = asked(&mut script, &changing()) else {
        panic!("holds")
    };
    assert_eq!(note.reason, Reason::ClusterChanging);
    assert_eq!(script.record.gate, changing().hold);
    assert_eq!(script.record.phase, Phase::Pending);
    assert!(script.record.deadline.is_some(), "the deadline counts");

    script.sim = fragmented();
    script.run(all_done);
    assert_eq!(script.record.phase, Phase::Complete);
}

#[test]
fn r11_a_run_that_met_a_changing_cluster_until_its_deadline_is_deferred() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    asked(&mut script, &changing());
    script.sim.pass(SignedDuration::from_mins(45));
    assert_eq!(asked(&mut script, &changing()), Step::Finish);
    let result = script.record.result.unwrap();
    assert_eq!(result.reason, Reason::Deferred);
    assert!(
        result.message.contains("it scales from 3 to 5"),
        "{}",
        result.message
    );
}

#[test]
fn r11_a_change_of_the_cluster_holds_a_sweep_between_two_members() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let Step::Act(act) = script.look() else {
        panic!("an act")
    };
    let result = script.sim.act(&act, Fate::Lost(10));
    script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
    assert!(
        matches!(asked(&mut script, &changing()), Step::Observe { .. }),
        "the member in progress is seen to its end"
    );
    script.sim.pass(SignedDuration::from_secs(20));
    let Step::Hold { note, .. } = asked(&mut script, &changing()) else {
        panic!("holds")
    };
    assert_eq!(note.reason, Reason::ClusterChanging);
    assert_eq!(script.record.phase, Phase::Running);
    script.run(all_done);
    assert_eq!(script.record.phase, Phase::Complete);
}

#[test]
fn r77_a_call_that_nobody_can_look_at_is_waited_for_until_its_deadline_only() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let Step::Act(act) = script.look() else {
        panic!("an act")
    };
    let result = script.sim.act(&act, Fate::Lost(600));
    script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
    for member in &mut script.sim.members {
        member.up = false;
    }
    script.sim.metrics = false;
    let control = Control {
        stop: Some(Note::new(Reason::Interrupted, "removed")),
        forsaken: true,
        ..Control::default()
    };
    let began = script.sim.now;
    loop {
        match asked(&mut script, &control) {
            Step::Finish => break,
            Step::Observe { after, .. } | Step::Hold { after, .. } => script.sim.pass(after),
            Step::Act(act) => panic!("{act:?}"),
        }
    }
    let took = script.sim.now.duration_since(began);
    assert!(
        took < SignedDuration::from_mins(4),
        "45 minutes are not waited for: {took:?}"
    );
    assert_eq!(script.record.count(Outcome::Unknown), 1);
}

#[test]
fn r77_an_abandoned_run_says_what_is_not_known() {
    let mut script = Script::new(fragmented(), RunSpec::default());
    let Step::Act(_) = script.look() else {
        panic!("an act")
    };
    let record = abandon(script.record, "there is no EtcdTarget a/b", script.sim.now);
    assert_eq!(record.phase, Phase::Failed);
    assert_eq!(record.count(Outcome::Unknown), 1);
    assert_eq!(record.count(Outcome::Skipped), 2);
    assert!(record.in_flight().is_none());
    let result = record.result.clone().unwrap();
    assert_eq!(result.reason, Reason::Interrupted);
    for part in [
        "there is no EtcdTarget a/b",
        "member m2 (a2)",
        "NOSPACE alarm",
    ] {
        assert!(result.message.contains(part), "{}", result.message);
    }
    assert_eq!(
        abandon(record.clone(), "other", script.sim.now),
        record,
        "it sticks"
    );

    let untouched = abandon(RunRecord::default(), "gone", script.sim.now);
    assert!(!untouched.result.unwrap().message.contains("not known"));
}

#[test]
fn an_intent_that_was_not_sent_is_taken_back_without_a_trace() {
    let mut script = Script::new(
        fragmented(),
        RunSpec {
            keep_revisions: Some(10),
            ..RunSpec::default()
        },
    );
    script.sim.alarms.insert(Alarm {
        member: MemberId(0xa2),
        kind: AlarmKind::NoSpace,
    });
    let mut kinds = BTreeSet::new();
    for _ in 0..200 {
        let before = script.record.clone();
        let act = match script.look() {
            Step::Finish => break,
            Step::Observe { after, .. } | Step::Hold { after, .. } => {
                script.sim.pass(after);
                continue;
            }
            Step::Act(act) => act,
        };
        let announced = script.record.clone();
        script.record = withdraw(announced.clone(), &before, &act);
        assert_eq!(script.record.phase, announced.phase);
        assert_eq!(script.record.touched(), before.touched());
        assert!(script.record.in_flight().is_none());
        let again = script.look();
        assert_eq!(again, Step::Act(act.clone()), "the same step is due");
        assert_eq!(
            script.record, announced,
            "and is announced as if it were the first time"
        );
        kinds.insert(describe(&act).split(' ').next().unwrap().to_owned());
        let result = script.sim.act(&act, Fate::Done(2));
        script.record = conclude(script.record.clone(), &act, &result, script.sim.now);
    }
    assert_eq!(script.record.phase, Phase::Complete);
    assert_eq!(kinds.len(), 4, "every kind of call");
}
