use super::*;

fn immediate() -> Policy {
    Policy {
        hold_for: secs(0),
        ..policy()
    }
}

#[test]
fn t38_the_cooldown_counts_from_the_end_of_the_run() {
    let mut w = World::new(immediate());
    w.eval(firing());
    w.pass(7_200).finish(500 * MIB);
    assert_eq!(w.pass(10).eval(firing()), Reason::CoolingDown);
    assert_eq!(w.state.next_eligible, Some(t(7_200 + 3_600)));
    assert_eq!(
        w.message()
            .split("run ")
            .nth(1)
            .unwrap()
            .split_once(' ')
            .unwrap()
            .1,
        "ended at 2025-06-15T17:06:40Z and gave back 500 MiB; the cooldown of 1h ends at 2025-06-15T18:06:40Z"
    );
    assert_eq!(w.pass(3_590).eval(firing()), Reason::RunCreated);
    assert_eq!(w.names().len(), 2, "another firing, another name");
}

#[test]
fn t45_a_restart_in_the_cooldown_changes_nothing() {
    let mut w = World::new(immediate());
    w.eval(firing());
    w.pass(10).finish(500 * MIB);
    w.pass(10).eval(firing());
    w.runs.clear();
    assert_eq!(w.pass(3_000).eval(firing()), Reason::CoolingDown);
}

#[test]
fn t39_t63_runs_that_give_back_too_little_wait_longer_each_time_up_to_max() {
    let mut w = World::new(Policy {
        backoff: Backoff {
            factor: 2,
            max: secs(5 * 3_600),
            min_reclaim: 32 * MIB,
        },
        ..immediate()
    });
    let mut waits = Vec::new();
    for reclaimed in [0, MIB, 31 * MIB, 5 * MIB, 32 * MIB, 0] {
        assert_eq!(w.eval(firing()), Reason::RunCreated);
        w.pass(60).finish(reclaimed);
        let reason = w.eval(firing());
        let until = w.state.next_eligible.unwrap();
        waits.push((reason, until.duration_since(w.now).as_secs() / 3_600));
        w.now = until;
    }
    assert_eq!(
        waits,
        [
            (Reason::BackingOff, 2),
            (Reason::BackingOff, 4),
            (Reason::BackingOff, 5),
            (Reason::BackingOff, 5),
            (Reason::CoolingDown, 1),
            (Reason::BackingOff, 2),
        ]
    );
}

#[test]
fn t64_failed_runs_have_their_own_back_off_and_are_still_tried() {
    let mut w = World::new(Policy {
        cooldown: secs(60),
        ..immediate()
    });
    let mut waits = Vec::new();
    for _ in 0..4 {
        assert_eq!(w.eval(firing()), Reason::RunCreated);
        w.pass(60).end(false, Reason::MemberFailed, 0, true);
        assert_eq!(w.eval(firing()), Reason::FailureBackingOff);
        let until = w.state.next_eligible.unwrap();
        waits.push(until.duration_since(w.now).as_secs());
        w.now = until;
    }
    assert_eq!(waits, [300, 600, 1_200, 2_400]);
    assert_eq!(w.state.failure_level, 4);
    assert_eq!(
        w.state.backoff_level, 0,
        "a failure is no proof that nothing can be gained"
    );
    w.eval(firing());
    w.pass(60).finish(500 * MIB);
    assert_eq!(w.eval(firing()), Reason::CoolingDown);
    assert_eq!(w.state.failure_level, 0);
}

#[test]
fn a_failed_run_that_touched_the_cluster_waits_at_least_the_cooldown() {
    for (touched, want) in [(true, 3_600), (false, 300)] {
        let mut w = World::new(immediate());
        w.eval(firing());
        w.pass(60).end(false, Reason::Deferred, 0, touched);
        w.eval(firing());
        assert_eq!(
            w.state.next_eligible.unwrap().duration_since(w.now),
            secs(want),
            "touched {touched}"
        );
    }
}

#[test]
fn t66_the_daily_limit_names_the_next_time() {
    let mut w = World::new(Policy {
        max_runs_per_day: Some(2),
        cooldown: secs(60),
        ..immediate()
    });
    for _ in 0..2 {
        assert_eq!(w.eval(firing()), Reason::RunCreated);
        w.pass(100).finish(500 * MIB);
        w.eval(firing());
        w.pass(100);
    }
    assert_eq!(w.eval(firing()), Reason::DailyLimit);
    assert_eq!(w.state.next_eligible, Some(t(86_400)));
    w.now = t(86_400);
    assert_eq!(w.eval(firing()), Reason::RunCreated);
}

#[test]
fn a_dry_run_by_template_cools_down_like_any_other_and_proves_nothing() {
    let mut w = World::new(immediate());
    w.policy.template.dry_run = true;
    w.eval(firing());
    w.pass(10).end(true, Reason::DryRun, 0, false);
    assert_eq!(w.pass(10).eval(firing()), Reason::CoolingDown);
    assert_eq!(w.state.backoff_level, 0);
}

#[test]
fn a_clock_that_jumps_back_makes_no_wait_longer_than_it_is() {
    let mut w = World::new(immediate());
    w.eval(firing());
    w.pass(10).finish(500 * MIB);
    w.pass(10).eval(firing());
    w.pass(-30 * 86_400);
    assert_eq!(w.eval(firing()), Reason::CoolingDown);
    assert_eq!(
        w.state.next_eligible.unwrap().duration_since(w.now),
        secs(3_600)
    );
    for _ in 0..10 {
        w.pass(350).eval(firing());
    }
    assert_eq!(
        w.pass(100).eval(firing()),
        Reason::RunCreated,
        "and it ends"
    );
}

#[test]
fn r81_the_last_success_is_remembered_past_failures_and_restarts() {
    let mut w = World::new(immediate());
    w.eval(firing());
    w.pass(10).finish(500 * MIB);
    w.pass(10).eval(quiet());
    assert_eq!(w.state.last_success, Some(t(10)));
    w.pass(3_600).eval(firing());
    w.end(false, Reason::MemberFailed, 0, true);
    w.pass(10).eval(quiet());
    assert!(!w.state.last_run.as_ref().unwrap().succeeded);
    assert_eq!(w.state.last_success, Some(t(10)));
}

#[test]
fn a_run_that_only_reports_is_no_success() {
    let mut w = World::new(immediate());
    w.policy.template.dry_run = true;
    w.eval(firing());
    w.pass(10).finish(0);
    w.pass(10).eval(quiet());
    assert!(w.state.last_run.as_ref().unwrap().succeeded);
    assert_eq!(w.state.last_success, None);
}
