//! What an emergency passes, and the daily limit, in every combination.

use super::*;
use crate::core::window::Window;

/// What stands in the way of a signal that has held.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Obstacle {
    None,
    Cooldown,
    BackOff,
    FailureBackOff,
    DailyLimit,
    WindowClosed,
    Blackout,
    Blocker,
}

use Obstacle::*;

const ALL: [Obstacle; 8] = [
    None,
    Cooldown,
    BackOff,
    FailureBackOff,
    DailyLimit,
    WindowClosed,
    Blackout,
    Blocker,
];

/// In the order in which they are judged.
fn reason(obstacle: Obstacle) -> Reason {
    match obstacle {
        None => Reason::RunCreated,
        Cooldown => Reason::CoolingDown,
        BackOff => Reason::BackingOff,
        FailureBackOff => Reason::FailureBackingOff,
        DailyLimit => Reason::DailyLimit,
        WindowClosed => Reason::OutsideWindow,
        Blackout => Reason::Blackout,
        Blocker => Reason::Blocked,
    }
}

/// t(0) is 15:06:40 UTC.
fn span(start: &str) -> Window {
    Window::weekly(&[], start, "2h", "").unwrap()
}

fn world(obstacles: &[Obstacle]) -> World {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        blockers: vec![super::super::Blocker {
            name: "b".to_owned(),
            signal: Signal::Probe(Rule::default()),
            no_data: OnNoData::Block,
        }],
        ..policy()
    });
    w.blockers = vec![quiet()];
    let ended = |succeeded: bool| LastRun {
        name: "before".to_owned(),
        succeeded,
        reason: Reason::SweepComplete,
        reclaimed: Some(0),
        finished_at: t(-60),
        own: true,
        touched: true,
    };
    // The last run is of one kind: the one that rests longest.
    let mut obstacles = obstacles.to_vec();
    obstacles.sort_by_key(|o| ALL.iter().position(|known| known == o));
    for obstacle in obstacles {
        match obstacle {
            None => {}
            Cooldown => w.state.last_run = Some(ended(true)),
            BackOff => {
                w.state.last_run = Some(ended(true));
                w.state.backoff_level = 1;
            }
            FailureBackOff => {
                w.state.last_run = Some(ended(false));
                w.state.failure_level = 1;
            }
            DailyLimit => {
                w.policy.max_runs_per_day = Some(1);
                w.state.run_starts = vec![RunStart {
                    name: "before".to_owned(),
                    at: t(-80_000),
                }];
            }
            WindowClosed => w.policy.schedule.windows = vec![span("02:00")],
            Blackout => w.policy.schedule.blackouts = vec![span("14:30")],
            Blocker => w.blockers = vec![firing()],
        }
    }
    w
}

/// T77: what an emergency is, is judged by the probe; here it is on or off.
#[test]
fn t77_an_emergency_passes_the_window_and_the_cooldown_and_nothing_else() {
    for first in ALL {
        for second in ALL {
            for evidence in ["NOSPACE is raised", "m1 uses 95% of its quota", ""] {
                let mut w = world(&[first, second]);
                w.emergency = (!evidence.is_empty()).then(|| evidence.to_owned());
                let passed =
                    |o: &Obstacle| w.emergency.is_some() && matches!(o, Cooldown | WindowClosed);
                // Only one pause lasts at a time: the back-offs are longer than the cooldown.
                let pauses = [FailureBackOff, BackOff];
                let mut both = [first, second];
                if both.iter().any(|o| pauses.contains(o)) {
                    both = both.map(|o| if o == Cooldown { None } else { o });
                }
                let order: Vec<Obstacle> = [
                    FailureBackOff,
                    BackOff,
                    Cooldown,
                    DailyLimit,
                    Blackout,
                    WindowClosed,
                    Blocker,
                ]
                .into_iter()
                .filter(|o| both.contains(o) && !passed(o))
                .collect();
                let expected = order.first().copied().unwrap_or(None);
                let passes = both.iter().any(passed);
                let got = w.eval(firing());
                assert_eq!(
                    got,
                    reason(expected),
                    "{first:?} and {second:?}, emergency {evidence:?}: {}",
                    w.message()
                );
                assert_eq!(w.creates.len(), usize::from(expected == None));
                if expected == None && passes {
                    let note = &w.creates[0].note;
                    assert_eq!(note.reason, Reason::Emergency);
                    assert!(note.message.contains(evidence), "{}", note.message);
                } else if expected == None {
                    assert_eq!(w.creates[0].note.reason, Reason::SignalFiring);
                }
            }
        }
    }
}

#[test]
fn t77_an_emergency_starts_nothing_by_itself() {
    let mut w = world(&[]);
    w.policy.hold_for = secs(60);
    w.emergency = Some("NOSPACE is raised".to_owned());
    assert_eq!(w.eval(quiet()), Reason::SignalNotFiring);
    assert_eq!(w.pass(10).eval(firing()), Reason::HoldingFor);
    for silent in [no_data(), down()] {
        w.pass(10).eval(silent);
        assert!(w.creates.is_empty());
    }
}

#[test]
fn t66_max_runs_per_day_counts_any_24_hours() {
    const HOUR: i64 = 3600;
    // Starts in hours before now, the limit, and in how many hours the next one may start.
    let table: &[(&[i64], u32, Option<i64>)] = &[
        (&[], 1, Option::None),
        (&[1], 1, Some(23)),
        (&[23], 1, Some(1)),
        (&[24], 1, Option::None),
        (&[25], 1, Option::None),
        (&[23, 1], 2, Some(1)),
        (&[25, 1], 2, Option::None),
        (&[20, 10, 1], 2, Some(14)),
        (&[20, 10, 1], 3, Some(4)),
        (&[20, 10, 1], 4, Option::None),
        (&[23, 22, 21, 20], 1, Some(4)),
    ];
    for (starts, limit, wait) in table {
        let mut w = world(&[]);
        w.policy.max_runs_per_day = Some(*limit);
        w.state.run_starts = starts
            .iter()
            .map(|hours| RunStart {
                name: format!("r{hours}"),
                at: t(-hours * HOUR),
            })
            .collect();
        let got = w.eval(firing());
        match wait {
            Some(hours) => {
                assert_eq!(got, Reason::DailyLimit, "{starts:?}, {limit}");
                assert_eq!(
                    w.state.next_eligible,
                    Some(t(hours * HOUR)),
                    "{starts:?}, {limit}"
                );
                assert_eq!(w.last.as_ref().unwrap().recheck, Some(t(hours * HOUR)));
                w.now = t(hours * HOUR);
                assert_eq!(w.eval(firing()), Reason::RunCreated, "{starts:?}, {limit}");
            }
            Option::None => assert_eq!(got, Reason::RunCreated, "{starts:?}, {limit}"),
        }
    }
}
