//! What a person asks of a policy: suspend, pause, trigger, dry run.

use super::*;

#[test]
fn t57_suspend_starts_nothing_and_resuming_makes_up_for_nothing() {
    let mut w = World::new(policy());
    w.hold(60, firing);
    assert_eq!(w.creates.len(), 1);
    w.policy.suspend = true;
    w.policy.trigger = Some("while suspended".into());
    assert_eq!(w.pass(10).eval(firing()), Reason::Suspended);
    w.finish(500 * MIB);
    assert_eq!(w.pass(10_000).eval(firing()), Reason::Suspended);
    w.policy.suspend = false;
    assert_eq!(w.pass(10).eval(firing()), Reason::HoldingFor);
    assert_eq!(w.creates.len(), 1);
}

#[test]
fn paused_until_holds_and_names_the_time() {
    let mut w = World::new(Policy {
        paused_until: Some(t(500)),
        hold_for: secs(0),
        ..policy()
    });
    assert_eq!(w.eval(firing()), Reason::Paused);
    assert_eq!(w.state.next_eligible, Some(t(500)));
    assert_eq!(w.pass(500).eval(firing()), Reason::RunCreated);
}

#[test]
fn t59_a_changed_trigger_is_exactly_one_run() {
    let mut w = World::new(Policy {
        trigger: Some("one".into()),
        ..policy()
    });
    assert_eq!(
        w.eval(quiet()),
        Reason::SignalNotFiring,
        "a value from the start is no change"
    );
    w.policy.trigger = Some("two".into());
    // The run is asked for; the record that it was is lost in a crash.
    let lost = w.state.clone();
    assert_eq!(w.pass(10).eval(quiet()), Reason::RunCreated);
    assert_eq!(w.creates[0].note.reason, Reason::Triggered);
    w.state = lost;
    assert_eq!(w.pass(10).eval(quiet()), Reason::RunInProgress);
    w.finish(500 * MIB);
    for _ in 0..5 {
        assert_eq!(w.pass(10).eval(quiet()), Reason::SignalNotFiring);
    }
    w.policy.trigger = Some("three".into());
    assert_eq!(
        w.pass(10).eval(quiet()),
        Reason::RunCreated,
        "it passes the cooldown"
    );
    assert_eq!(w.creates.len(), 2);
}

#[test]
fn a_trigger_value_that_comes_back_is_a_change_too() {
    let mut w = World::new(Policy {
        trigger: Some("one".into()),
        ..policy()
    });
    w.eval(quiet());
    for value in ["two", "one", "two", "one"] {
        w.policy.trigger = Some(value.into());
        assert_eq!(w.pass(10).eval(quiet()), Reason::RunCreated, "{value}");
        w.pass(10).finish(500 * MIB);
        assert_eq!(w.pass(10).eval(quiet()), Reason::SignalNotFiring);
    }
    assert_eq!(w.names().len(), 4);
}

#[test]
fn a_removed_trigger_asks_for_nothing() {
    let mut w = World::new(Policy {
        trigger: Some("one".into()),
        ..policy()
    });
    w.eval(quiet());
    w.policy.trigger = None;
    assert_eq!(w.pass(10).eval(quiet()), Reason::SignalNotFiring);
}

#[test]
fn t67_a_dry_run_says_that_it_would() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        dry_run: true,
        ..policy()
    });
    assert_eq!(w.eval(firing()), Reason::DryRun);
    w.policy.trigger = Some("now".into());
    assert_eq!(w.pass(10).eval(quiet()), Reason::DryRun);
    assert_eq!(
        w.pass(10).eval(quiet()),
        Reason::SignalNotFiring,
        "said once"
    );
    assert!(w.creates.is_empty());
}
