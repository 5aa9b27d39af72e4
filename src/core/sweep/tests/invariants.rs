//! Random clusters, random events in random order. The simulated servers panic
//! when an invariant is broken; see the parent's text.

use proptest::prelude::*;

use super::*;
use crate::core::rule::Rule;

#[derive(Clone, Debug)]
enum Event {
    Down(usize),
    Up(usize),
    Lag(usize, u64),
    Leader(usize),
    NoLeader,
    Remove(usize),
    Grow(usize, u64),
    Join,
    NoSpace(usize),
    Corrupt(usize),
    Restart,
    Clock(i64),
    Suspend(bool),
    Metrics(bool),
    Stop,
    Hold(bool),
    Forsaken,
}

fn event() -> impl Strategy<Value = Event> {
    let member = 0..5_usize;
    prop_oneof![
        1 => member.clone().prop_map(Event::Down),
        4 => member.clone().prop_map(Event::Up),
        1 => (member.clone(), prop_oneof![Just(0_u64), Just(5_000)]).prop_map(|(m, l)| Event::Lag(m, l)),
        1 => member.clone().prop_map(Event::Leader),
        1 => Just(Event::NoLeader),
        1 => member.clone().prop_map(Event::Remove),
        1 => Just(Event::Join),
        2 => (member.clone(), 1_u64..2_000).prop_map(|(m, mib)| Event::Grow(m, mib)),
        1 => member.clone().prop_map(Event::NoSpace),
        1 => member.prop_map(Event::Corrupt),
        3 => Just(Event::Restart),
        1 => (-3_600_i64..3_600).prop_map(Event::Clock),
        1 => any::<bool>().prop_map(Event::Suspend),
        1 => any::<bool>().prop_map(Event::Metrics),
        1 => Just(Event::Stop),
        1 => any::<bool>().prop_map(Event::Hold),
        1 => Just(Event::Forsaken),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => (1_i64..30).prop_map(Fate::Done),
        1 => (2_i64..600).prop_map(Fate::Lost),
        1 => Just(Fate::LostUnsent),
        1 => Just(Fate::Refused),
        1 => Just(Fate::NotSent),
        1 => Just(Fate::Killed),
        1 => Just(Fate::NotPermitted),
    ]
}

fn apply(script: &mut Script, event: &Event, control: &mut Control) {
    let sim = &mut script.sim;
    let n = sim.members.len();
    let id = |sim: &Sim, i: usize| sim.members[i % n].id;
    match *event {
        Event::Down(i) => sim.members[i % n].up = false,
        Event::Up(i) => sim.members[i % n].up = true,
        Event::Lag(i, lag) => sim.members[i % n].lag = lag,
        Event::Leader(i) => sim.leader = Some(id(sim, i)),
        Event::NoLeader => sim.leader = None,
        Event::Remove(i) if n > 1 && sim.members[i % n].busy_until.is_none() => {
            let gone = sim.members.remove(i % n).id;
            if sim.leader == Some(gone) {
                sim.leader = sim.members.first().map(|m| m.id);
            }
        }
        Event::Remove(_) => {}
        Event::Grow(i, mib) => {
            // Writes fill what is free, then the file.
            let member = &mut sim.members[i % n];
            member.in_use += mib * MIB;
            if member.busy_until.is_none() {
                member.size = member.size.max(member.in_use);
            }
        }
        Event::Join => {
            let mut joined = sim.members[0].clone();
            joined.id = MemberId(0x1000 + sim.now.as_second().unsigned_abs() % 1000);
            joined.busy_until = None;
            joined.begun = 0;
            joined.done = 0;
            if sim.members.iter().all(|m| m.id != joined.id) {
                sim.members.push(joined);
            }
        }
        Event::NoSpace(i) => {
            let member = id(sim, i);
            sim.alarms.insert(Alarm {
                member,
                kind: AlarmKind::NoSpace,
            });
        }
        Event::Corrupt(i) => {
            let member = id(sim, i);
            sim.alarms.insert(Alarm {
                member,
                kind: AlarmKind::Corrupt,
            });
        }
        Event::Restart => script.record = resume(script.record.clone()),
        Event::Clock(by) => {
            // Only our clock jumps: what the servers are at goes on as long as before.
            let by = SignedDuration::from_secs(by);
            sim.now = sim.now.checked_add(by).unwrap();
            for m in &mut sim.members {
                m.busy_until = m.busy_until.map(|until| until.checked_add(by).unwrap());
            }
        }
        Event::Suspend(on) => script.spec.suspend = on,
        Event::Metrics(on) => sim.metrics = on,
        Event::Stop => control.stop = Some(Note::new(Reason::Interrupted, "stop")),
        Event::Hold(on) => {
            control.hold = on.then(|| Note::new(Reason::ClusterChanging, "it scales"));
        }
        Event::Forsaken => control.forsaken = true,
    }
}

fn check_step(script: &Script, step: &Step, control: &Control) {
    let seen = script.sim.see();
    let Step::Act(act) = step else { return };
    assert!(
        control.hold.is_none() || matches!(act, Act::Disarm { .. }),
        "only an end may do anything while the cluster is being changed: {act:?}"
    );
    let voters = script.sim.members.iter().filter(|m| !m.learner).count();
    let announced = script
        .record
        .members
        .iter()
        .filter(|m| m.call.is_some())
        .count();
    match act {
        Act::Defragment { member, .. } => {
            assert_eq!(
                announced, 1,
                "exactly one member is announced as in progress"
            );
            assert!(script.record.member(*member).unwrap().outcome == Outcome::InProgress);
            if script.spec.leader == LeaderMode::Move && voters > 1 {
                assert_ne!(
                    script.sim.leader,
                    Some(*member),
                    "the leader is never stalled in place"
                );
            }
            assert!(
                seen.alarms
                    .unwrap()
                    .iter()
                    .all(|a| a.kind != AlarmKind::Corrupt),
                "CORRUPT blocks"
            );
        }
        Act::MoveLeader { to, .. } => {
            assert_eq!(announced, 0);
            assert_ne!(script.record.member(*to).unwrap().outcome, Outcome::Pending);
        }
        Act::Compact { .. } | Act::Disarm { .. } => assert_eq!(announced, 0),
    }
}

/// One step under watch. Returns false at the end of the run.
fn watched(script: &mut Script, control: &Control, fate: Fate, call_survives: bool) -> bool {
    let before = script.record.clone();
    let next = next(&script.spec, before.clone(), &script.sim.see(), control);
    assert!(next.record.phase >= before.phase, "phases go forward only");
    if before.phase.is_terminal() {
        assert_eq!(
            (&next.record, &next.step),
            (&before, &Step::Finish),
            "a terminal record sticks"
        );
    }
    for member in &next.record.members {
        let was = before.member(member.id).map(|m| m.outcome);
        if was == Some(Outcome::Defragmented) {
            assert_eq!(
                member.outcome,
                Outcome::Defragmented,
                "what is done stays done"
            );
        }
    }
    script.record = next.record;
    check_step(script, &next.step, control);
    match next.step {
        Step::Finish => return false,
        Step::Observe { after, .. } | Step::Hold { after, .. } => {
            assert!(after > SignedDuration::ZERO);
            script.sim.pass(after);
        }
        Step::Act(act) if fate == Fate::NotPermitted => {
            script.record = withdraw(script.record.clone(), &before, &act);
            assert_eq!(
                script.record.touched(),
                before.touched(),
                "what was not sent touched nothing"
            );
            script.sim.pass(SignedDuration::from_secs(1));
        }
        Step::Act(act) => {
            let result = script.sim.act(&act, fate);
            script.record = if call_survives {
                conclude(script.record.clone(), &act, &result, script.sim.now)
            } else {
                resume(script.record.clone())
            };
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_one_member_at_a_time_and_never_blindly_again(
        sizes in prop::collection::vec((300_u64..4_000, 1_u64..300, any::<bool>()), 1..6),
        all in any::<bool>(),
        single in any::<bool>(),
        mode in prop_oneof![Just(LeaderMode::Move), Just(LeaderMode::InPlace), Just(LeaderMode::Skip)],
        keep in prop::option::of(1_u64..2_000),
        metrics in any::<bool>(),
        events in prop::collection::vec((event(), 1_usize..12), 0..25),
        fates in prop::collection::vec((fate(), prop::bool::weighted(0.9)), 1..40),
    ) {
        // Some files are full: there is nothing to see of a defragmentation.
        let sizes: Vec<(u64, u64)> =
            sizes.into_iter().map(|(size, used, full)| (size, if full { size } else { used })).collect();
        let mut sim = Sim::new(&sizes);
        sim.metrics = metrics;
        let rule = if all { Rule::All } else { Rule::default() };
        let spec = RunSpec { rule, allow_single_member: single, leader: mode, keep_revisions: keep, ..RunSpec::default() };
        let mut script = Script::new(sim, spec);
        let mut control = Control::default();
        let mut fates = fates.into_iter().cycle();
        let mut ended = false;
        for (event, steps) in &events {
            for _ in 0..*steps {
                let (fate, survives) = fates.next().unwrap();
                ended |= !watched(&mut script, &control, fate, survives);
            }
            apply(&mut script, event, &mut control);
        }
        // Left alone from here on, every run ends by its deadline.
        script.spec.suspend = false;
        for _ in 0..20_000 {
            if ended { break }
            let (fate, survives) = fates.next().unwrap();
            ended = !watched(&mut script, &control, fate, survives);
        }
        prop_assert!(ended, "the run does not end: {:#?}", script.record);
        prop_assert!(script.record.phase.is_terminal());
        prop_assert!(script.record.result.is_some());
        prop_assert!(script.record.members.iter().all(|m| m.call.is_none() && m.outcome != Outcome::InProgress));
        watched(&mut script, &control, Fate::Done(1), true);
    }
}
