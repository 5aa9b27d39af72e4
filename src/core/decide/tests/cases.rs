use super::*;
use crate::core::rule::Percent;
use crate::core::window::Window;

#[test]
fn only_a_signal_that_held_for_for_starts_a_run_and_only_one() {
    let mut w = World::new(policy());
    assert_eq!(w.eval(quiet()), Reason::SignalNotFiring);
    assert_eq!(w.pass(10).hold(50, firing), Reason::HoldingFor);
    assert_eq!(w.state.next_eligible, Some(t(70)));
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
    assert_eq!(w.pass(10).eval(firing()), Reason::RunInProgress);
    assert_eq!(w.creates.len(), 1);
}

#[test]
fn t55_created_while_already_true_goes_through_for() {
    let mut w = World::new(policy());
    assert_eq!(w.eval(firing()), Reason::HoldingFor);
    assert_eq!(w.last.as_ref().unwrap().recheck, Some(t(60)));
}

#[test]
fn without_for_the_first_firing_reading_starts_the_run() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    assert_eq!(w.eval(firing()), Reason::RunCreated);
}

#[test]
fn t40_flapping_never_runs() {
    let mut w = World::new(policy());
    for i in 0..200 {
        w.pass(10).eval(if i % 4 == 3 { quiet() } else { firing() });
    }
    assert!(w.creates.is_empty());
}

#[test]
fn t41_no_data_inside_for_neither_resets_nor_advances() {
    let mut w = World::new(policy());
    w.hold(30, firing);
    for _ in 0..4 {
        assert_eq!(w.pass(10).eval(no_data()), Reason::NoData);
    }
    assert_eq!(w.pass(10).eval(firing()), Reason::HoldingFor);
    // 40 s passed without evidence: those do not count.
    assert_eq!(w.state.firing_since, Some(t(40)));
    assert_eq!(w.pass(10).eval(firing()), Reason::HoldingFor);
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
}

#[test]
fn t41_beyond_the_tolerance_the_episode_starts_over() {
    let mut w = World::new(policy());
    w.hold(50, firing);
    for _ in 0..40 {
        w.pass(10).eval(no_data());
    }
    assert_eq!(w.state.firing_since, None);
    assert_eq!(w.pass(10).eval(firing()), Reason::HoldingFor);
    assert_eq!(w.state.firing_since, Some(w.now));
}

#[test]
fn s03_an_inconclusive_reading_resets_nothing() {
    let mut w = World::new(policy());
    w.hold(30, firing);
    let nan = || Reading::new(SignalState::Inconclusive, Reason::Inconclusive, "NaN");
    assert_eq!(w.pass(10).eval(nan()), Reason::Inconclusive);
    assert_eq!(w.state.firing_since, Some(t(0)));
}

#[test]
fn t42_a_restart_inside_for_goes_on_from_what_is_remembered() {
    let mut w = World::new(policy());
    w.hold(30, firing);
    // The process is gone for 20 s; state and runs are what was stored.
    assert_eq!(w.pass(20).eval(firing()), Reason::HoldingFor);
    assert_eq!(w.state.firing_since, Some(t(0)));
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
}

#[test]
fn t44_days_of_outage_backfill_nothing() {
    let mut w = World::new(policy());
    w.hold(30, firing);
    assert_eq!(w.pass(3 * 86_400).eval(firing()), Reason::HoldingFor);
    assert_eq!(w.state.firing_since, Some(w.now));
    assert_eq!(w.pass(10).hold(50, firing), Reason::RunCreated);
    assert_eq!(w.creates.len(), 1);
}

#[test]
fn a_long_firing_episode_is_not_lost_to_its_own_coarse_record() {
    let mut w = World::new(Policy {
        hold_for: secs(1200),
        ..policy()
    });
    assert_eq!(w.hold(1190, firing), Reason::HoldingFor);
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
}

#[test]
fn t102_evaluations_that_change_only_a_time_leave_the_state_as_it_is() {
    let mut w = World::new(policy());
    w.eval(quiet());
    let state = w.state.clone();
    for i in 1..50 {
        let mut reading = quiet();
        reading.sampled_at = Some(t(i * 10));
        w.pass(10).eval(reading);
        assert_eq!(w.state, state);
    }
}

#[test]
fn t102_a_value_that_wobbles_and_a_wait_that_shrinks_are_no_news() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    w.eval(firing());
    w.pass(10).finish(500 * MIB);
    let reading = |value: f64| Reading {
        value: Some(value),
        message: format!("{value} is above 100"),
        ..firing()
    };
    w.pass(10).eval(reading(150.0));
    let state = w.state.clone();
    for value in [151.0, 149.0, 160.0, 140.0] {
        assert_eq!(w.pass(10).eval(reading(value)), Reason::CoolingDown);
        assert_eq!(w.state, state);
    }
    w.pass(10).eval(reading(200.0));
    assert_eq!(w.state.signal.as_ref().unwrap().value, Some(200.0));
}

/// The episode is stored, the run of the returned name is not, then it crashes.
fn crashed_before_the_run() -> (World, String) {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    let decision = w.facts(firing(), None);
    w.state = decision.state;
    let name = decision.create.unwrap().name;
    (w, name)
}

#[test]
fn t46_created_then_the_record_was_lost_asks_for_the_same_run_or_sees_it() {
    let (mut w, first) = crashed_before_the_run();
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
    assert_eq!(w.creates[0].name, first);
    // The run is there, the second record is lost.
    w.state.active_run = None;
    w.state.run_starts.clear();
    assert_eq!(w.pass(10).eval(firing()), Reason::RunInProgress);
    assert_eq!(w.state.run_starts.len(), 1);
}

/// A finalizer keeps a run that somebody removes in sight until its end is known.
#[test]
fn t48_a_run_of_its_name_that_is_going_away_is_waited_for() {
    let (mut w, first) = crashed_before_the_run();
    w.runs.push(RunSummary {
        name: first.clone(),
        own: true,
        created_at: w.now,
        dry_run: false,
        end: None,
    });
    assert_eq!(w.pass(10).eval(firing()), Reason::RunInProgress);
    assert_eq!(w.hold(600, firing), Reason::RunInProgress);
    assert!(w.creates.is_empty());
    // Its end is stored, and its object is not gone yet.
    w.pass(10).end(false, Reason::Interrupted, 0, false);
    w.hold(7_200, firing);
    assert!(!w.creates.is_empty(), "{}", w.message());
    assert!(
        w.creates.iter().all(|run| run.name != first),
        "its name is not asked for again"
    );
}

#[test]
fn t51_runs_that_cannot_be_listed_mean_no_run() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    w.runs_broken = true;
    assert_eq!(w.eval(firing()), Reason::RunsUnreadable);
    w.runs_broken = false;
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
}

#[test]
fn t53_t54_somebody_elses_run_is_waited_for_and_counts_once_it_touched() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    let foreign = |end| RunSummary {
        name: "hand".into(),
        own: false,
        created_at: t(0),
        dry_run: false,
        end,
    };
    w.runs.push(foreign(None));
    assert_eq!(w.eval(firing()), Reason::ClusterBusy);
    w.pass(100);
    w.runs[0].end = Some(RunEnd {
        at: w.now,
        succeeded: true,
        reason: Reason::SweepComplete,
        reclaimed: 900 * MIB,
        touched: true,
    });
    assert_eq!(w.pass(10).eval(firing()), Reason::CoolingDown);
    assert!(w.message().contains("hand"), "{}", w.message());
    assert_eq!(w.state.backoff_level, 0);
}

#[test]
fn t54_somebody_elses_run_that_touched_nothing_does_not_count() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    w.runs.push(RunSummary {
        name: "hand".into(),
        own: false,
        created_at: t(-10),
        dry_run: true,
        end: Some(RunEnd {
            at: t(-5),
            succeeded: true,
            reason: Reason::DryRun,
            reclaimed: 0,
            touched: false,
        }),
    });
    assert_eq!(w.eval(firing()), Reason::RunCreated);
}

#[test]
fn t56_an_edited_policy_is_used_at_the_next_evaluation() {
    let mut w = World::new(policy());
    w.hold(30, firing);
    w.policy.hold_for = secs(30);
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
}

#[test]
fn a_policy_rests_whatever_else_is_decided() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    w.eval(firing());
    w.pass(10).finish(0);
    let until = Some(t(10 + 7_200));
    for (reading, suspend) in [(quiet(), false), (down(), false), (firing(), true)] {
        w.policy.suspend = suspend;
        w.pass(10).eval(reading);
        assert_eq!(
            w.state.resting.as_ref().map(|note| note.reason),
            Some(Reason::BackingOff)
        );
        assert_eq!(w.state.next_eligible, until);
    }
    w.policy.suspend = false;
    w.pass(7_200).eval(quiet());
    assert_eq!((&w.state.resting, w.state.next_eligible), (&None, None));
}

#[test]
fn t60_a_run_that_is_gone_keeps_its_cooldown() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    w.eval(firing());
    w.pass(10).finish(500 * MIB);
    w.pass(10).eval(firing());
    w.runs.clear();
    assert_eq!(w.pass(10).eval(firing()), Reason::CoolingDown);
}

#[test]
fn a_run_whose_end_nobody_saw_counts_from_when_it_was_missed() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    w.eval(firing());
    w.runs.clear();
    assert_eq!(w.pass(100).eval(firing()), Reason::CoolingDown);
    assert_eq!(
        w.state.last_run.as_ref().unwrap().reason,
        Reason::RunVanished
    );
    assert_eq!(w.state.next_eligible, Some(t(100 + 3600)));
}

#[test]
fn t65_a_stuck_run_is_shown_and_no_second_one_made() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    w.eval(firing());
    assert_eq!(w.pass(90 * 86_400).eval(firing()), Reason::RunInProgress);
    assert_eq!(w.creates.len(), 1);
}

#[test]
fn s37_a_sample_from_before_the_end_of_the_last_run_proves_nothing() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        cooldown: secs(5),
        ..policy()
    });
    w.eval(firing());
    w.pass(10).finish(500 * MIB);
    w.pass(10);
    assert!(
        wants_sample_age(&w.state, &w.runs),
        "the end is not taken into account yet"
    );
    w.eval(quiet());
    assert!(wants_sample_age(&w.state, &w.runs));
    let aged = |at| Reading {
        sampled_at: Some(at),
        ..firing()
    };
    assert_eq!(w.pass(10).eval(aged(t(9))), Reason::SampleTooOld);
    assert_eq!(w.pass(10).eval(aged(t(10))), Reason::SampleTooOld);
    assert_eq!(w.pass(10).eval(aged(t(11))), Reason::RunCreated);
}

#[test]
fn right_after_a_run_the_pause_is_said_and_not_the_age_of_the_sample() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        ..policy()
    });
    w.eval(firing());
    w.pass(10).finish(500 * MIB);
    let old = Reading {
        sampled_at: Some(t(9)),
        ..firing()
    };
    assert_eq!(w.pass(10).eval(old), Reason::CoolingDown);
    assert_eq!(
        w.state.firing_since, None,
        "an old sample begins nothing all the same"
    );
}

fn nightly() -> Schedule {
    // t(0) is 2025-06-15 15:06:40 UTC, a Sunday.
    let window = Window::weekly(&["Sun"], "22:00", "2h", "UTC").unwrap();
    Schedule {
        windows: vec![window],
        blackouts: Vec::new(),
    }
}

#[test]
fn t75_outside_a_window_it_waits_and_decides_afresh_at_the_opening() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        schedule: nightly(),
        ..policy()
    });
    assert_eq!(w.eval(firing()), Reason::OutsideWindow);
    let opens = w.state.next_eligible.unwrap();
    assert_eq!(w.last.as_ref().unwrap().recheck, Some(opens));
    w.now = opens;
    assert_eq!(
        w.eval(quiet()),
        Reason::SignalNotFiring,
        "nothing is owed from before"
    );
    assert_eq!(w.eval(firing()), Reason::RunCreated);
}

#[test]
fn t74_a_blackout_wins_also_over_a_trigger_and_an_emergency() {
    let mut schedule = nightly();
    schedule.windows.clear();
    schedule
        .blackouts
        .push(Window::weekly(&["Sun"], "12:00", "6h", "UTC").unwrap());
    let mut w = World::new(Policy {
        hold_for: secs(0),
        schedule,
        emergency: Some(Emergency {
            quota_usage_above: None,
            no_space: true,
        }),
        ..policy()
    });
    w.emergency = Some("NOSPACE".into());
    assert_eq!(w.eval(firing()), Reason::Blackout);
    w.policy.trigger = Some("now".into());
    assert_eq!(w.pass(10).eval(firing()), Reason::Blackout);
    w.now = w.state.next_eligible.unwrap();
    assert_eq!(w.eval(quiet()), Reason::RunCreated);
    assert_eq!(w.creates[0].note.reason, Reason::Triggered);
}

#[test]
fn t77_an_emergency_passes_windows_and_cooldown_if_declared_and_says_so() {
    let emergency = Emergency {
        quota_usage_above: Some(Percent::parse("90%").unwrap()),
        no_space: true,
    };
    let base = Policy {
        hold_for: secs(0),
        schedule: nightly(),
        ..policy()
    };
    let mut w = World::new(Policy {
        emergency: Some(emergency),
        ..base.clone()
    });
    w.emergency = Some("member m0 has raised NOSPACE".into());
    assert_eq!(w.eval(firing()), Reason::RunCreated);
    assert_eq!(w.creates[0].note.reason, Reason::Emergency);
    assert!(
        w.creates[0]
            .note
            .message
            .contains("windows (member m0 has raised NOSPACE)")
    );
    w.pass(10).finish(500 * MIB);
    assert_eq!(
        w.pass(10).eval(firing()),
        Reason::RunCreated,
        "and the cooldown"
    );
    w.pass(10).finish(0);
    assert_eq!(
        w.pass(10).eval(firing()),
        Reason::BackingOff,
        "but never the back-off"
    );
    let mut undeclared = World::new(base);
    assert_eq!(undeclared.eval(firing()), Reason::OutsideWindow);
}

#[test]
fn an_emergency_alone_starts_nothing() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        emergency: Some(Emergency {
            quota_usage_above: None,
            no_space: true,
        }),
        ..policy()
    });
    w.emergency = Some("NOSPACE".into());
    assert_eq!(w.eval(quiet()), Reason::SignalNotFiring);
}

/// A firing alert as of a moment: since when by its own word, last said when.
fn alert(since: i64, said: i64) -> Reading {
    Reading {
        firing_since: Some(t(since)),
        sampled_at: Some(t(said)),
        ..firing()
    }
}

#[test]
fn an_alert_counts_since_it_started_by_its_own_word() {
    let mut world = World::new(policy());
    world.pass(100);
    assert_eq!(world.eval(alert(70, 100)), Reason::HoldingFor);
    assert_eq!(world.state.firing_since, Some(t(70)));
    assert_eq!(world.pass(30).eval(alert(70, 130)), Reason::RunCreated);
    let mut world = World::new(policy());
    world.pass(100);
    assert_eq!(world.eval(alert(0, 100)), Reason::RunCreated, "long enough");
}

#[test]
fn s37_an_alert_from_before_the_end_of_a_run_counts_once_it_is_said_again() {
    let mut world = World::new(Policy {
        cooldown: secs(1),
        ..policy()
    });
    world.pass(100);
    assert_eq!(world.eval(alert(0, 100)), Reason::RunCreated);
    world.pass(50).finish(500 * MIB);
    assert_eq!(world.pass(10).eval(alert(0, 140)), Reason::SampleTooOld);
    // Said again: it counts from the end of the run, not from its start.
    assert_eq!(world.pass(10).eval(alert(0, 170)), Reason::HoldingFor);
    assert_eq!(world.state.firing_since, Some(t(150)));
    assert_eq!(world.pass(40).eval(alert(0, 200)), Reason::RunCreated);
    assert_eq!(world.names().len(), 2);
}

#[test]
fn an_alert_that_went_on_while_its_source_was_away_loses_no_time() {
    let mut world = World::new(policy());
    world.pass(100);
    assert_eq!(world.eval(alert(90, 100)), Reason::HoldingFor);
    assert_eq!(world.pass(10).eval(down()), Reason::SourceUnavailable);
    assert_eq!(world.pass(10).eval(alert(90, 120)), Reason::HoldingFor);
    assert_eq!(world.state.firing_since, Some(t(90)));
    // One that began meanwhile is another one.
    world.pass(10).eval(down());
    world.pass(10).eval(alert(135, 140));
    assert_eq!(world.state.firing_since, Some(t(100)));
}
