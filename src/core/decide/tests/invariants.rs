//! Random readings, ends of runs, crashes and clocks.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Read(u8),
    Pass(i64),
    Jump(i64),
    End { succeeded: bool, reclaimed: u64 },
    Forget,
    Foreign,
    Crash,
    Suspend(bool),
    Trigger(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0_u8..8).prop_map(Event::Read),
        6 => (1_i64..4_000).prop_map(Event::Pass),
        1 => (-200_000_i64..200_000).prop_map(Event::Jump),
        4 => (any::<bool>(), 0_u64..100 * MIB).prop_map(|(succeeded, reclaimed)| Event::End { succeeded, reclaimed }),
        1 => Just(Event::Forget),
        1 => Just(Event::Foreign),
        2 => Just(Event::Crash),
        1 => any::<bool>().prop_map(Event::Suspend),
        1 => (0_u8..3).prop_map(Event::Trigger),
    ]
}

fn reading(kind: u8, now: Timestamp) -> Reading {
    // An alert knows since when it fires, and was last spoken about some time ago.
    let alert = |since: i64, said: i64| Reading {
        firing_since: Some(now - secs(since)),
        sampled_at: Some(now - secs(said)),
        ..firing()
    };
    match kind {
        0 | 1 => firing(),
        5 => alert(100, 0),
        6 => alert(50_000, 60),
        7 => alert(0, 0),
        2 => quiet(),
        3 => no_data(),
        _ => down(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn at_most_one_run_at_a_time_and_no_wait_negative_or_endless(
        events in prop::collection::vec(event(), 1..120),
        hold_for in 0_i64..200,
        cooldown in 1_i64..20_000,
    ) {
        let mut w = World::new(Policy { hold_for: secs(hold_for), cooldown: secs(cooldown), ..policy() });
        let longest = w.policy.backoff.max.max(w.policy.cooldown);
        let mut stored = w.state.clone();
        let mut foreign = 0;
        for event in events {
            match event {
                Event::Read(kind) => {
                    // A crash loses what was not stored before the run was made.
                    stored = w.state.clone();
                    let busy = w.runs.iter().any(|r| r.end.is_none());
                    let before = w.creates.len();
                    w.eval(reading(kind, w.now));
                    if busy {
                        prop_assert_eq!(w.creates.len(), before, "a second run beside one that goes on");
                    }
                    if let Some(next) = w.state.next_eligible {
                        let wait = next.duration_since(w.now);
                        prop_assert!(wait > SignedDuration::ZERO, "{:?}", w.last);
                        prop_assert!(wait <= longest, "{wait:?} {:?}", w.last);
                    }
                    prop_assert!(w.state.firing_since.is_none_or(|since| since <= w.now));
                    let ended = w.state.last_run.as_ref().map(|run| run.finished_at);
                    prop_assert!(
                        w.state.firing_since.is_none_or(|since| Some(since) >= ended),
                        "an episode from before the end of a run"
                    );
                }
                Event::Pass(s) | Event::Jump(s) => { w.pass(s); }
                Event::End { succeeded, reclaimed } => {
                    if w.runs.iter().any(|r| r.end.is_none()) {
                        let reason = if succeeded { Reason::SweepComplete } else { Reason::MemberFailed };
                        w.end(succeeded, reason, reclaimed, true);
                    }
                }
                Event::Forget => w.runs.retain(|r| r.end.is_none()),
                Event::Foreign => {
                    foreign += 1;
                    w.runs.push(RunSummary {
                        name: format!("hand-{foreign}"), own: false, created_at: w.now, dry_run: false, end: None,
                    });
                }
                Event::Crash => w.state = stored.clone(),
                Event::Suspend(on) => w.policy.suspend = on,
                Event::Trigger(n) => w.policy.trigger = Some(n.to_string()),
            }
        }
        // Whatever came before: left firing and idle, the next run comes.
        w.policy.suspend = false;
        for run in &mut w.runs {
            run.end.get_or_insert(RunEnd {
                at: w.now, succeeded: true, reason: Reason::SweepComplete, reclaimed: 50 * MIB, touched: true,
            });
        }
        let before = w.creates.len();
        for _ in 0..3_000 {
            w.eval(firing());
            if w.creates.len() > before { break }
            w.pass(60);
        }
        prop_assert!(w.creates.len() > before, "no run comes any more: {:?}", w.last);
    }

    #[test]
    fn the_wait_after_useless_runs_only_grows_and_is_bounded(
        cooldown in 1_i64..2_592_000, factor in 1_u32..=10, max in 1_i64..7_776_000, level in 0_u32..200,
    ) {
        let policy = Policy {
            cooldown: secs(cooldown),
            backoff: Backoff { factor, max: secs(max), min_reclaim: MIB },
            ..policy()
        };
        let wait = wait_after_useless(&policy, level);
        prop_assert!(wait >= policy.cooldown);
        prop_assert!(wait <= policy.backoff.max.max(policy.cooldown));
        prop_assert!(wait_after_useless(&policy, level + 1) >= wait);
    }
}
