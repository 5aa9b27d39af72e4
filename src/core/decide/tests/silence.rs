//! A source that gives no answer: hold, fallback, fire.

use super::*;

#[test]
fn time_in_which_the_fallback_was_not_asked_for_does_not_count_for_it() {
    let mut w = World::new(Policy {
        on_error: OnSilence::Fallback,
        fallback: Some(Fallback {
            after: secs(120),
            rule: Rule::default(),
        }),
        ..policy()
    });
    w.hold(600, no_data);
    assert_eq!(
        w.pass(10).eval_with(down(), Some(firing())),
        Reason::SourceUnavailable
    );
    w.policy.suspend = true;
    w.pass(600).eval(down());
    w.policy.suspend = false;
    assert_eq!(
        w.pass(10).eval_with(down(), Some(firing())),
        Reason::SourceUnavailable
    );
    assert!(!w.state.fallback_active);
}

#[test]
fn t91_the_fallback_decides_only_after_its_time_and_goes_at_the_first_good_answer() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        on_error: OnSilence::Fallback,
        fallback: Some(Fallback {
            after: secs(120),
            rule: Rule::default(),
        }),
        ..policy()
    });
    assert_eq!(
        w.eval_with(down(), Some(firing())),
        Reason::SourceUnavailable
    );
    assert!(
        w.message().contains("the fallback decides after 2m"),
        "{}",
        w.message()
    );
    for _ in 0..11 {
        assert_eq!(
            w.pass(10).eval_with(down(), Some(firing())),
            Reason::SourceUnavailable
        );
        assert!(!w.state.fallback_active);
    }
    assert_eq!(
        w.pass(10).eval_with(down(), Some(quiet())),
        Reason::SignalNotFiring
    );
    assert!(w.state.fallback_active);
    assert_eq!(w.state.signal.as_ref().unwrap().origin, Origin::Fallback);
    assert_eq!(
        w.pass(10).eval_with(quiet(), Some(firing())),
        Reason::SignalNotFiring
    );
    assert!(!w.state.fallback_active);
    assert_eq!(
        w.pass(10).eval_with(down(), Some(firing())),
        Reason::SourceUnavailable,
        "it counts from anew"
    );
}

#[test]
fn a_restart_does_not_make_the_fallback_wait_again() {
    let mut w = World::new(Policy {
        on_error: OnSilence::Fallback,
        fallback: Some(Fallback {
            after: secs(120),
            rule: Rule::default(),
        }),
        ..policy()
    });
    w.eval(down());
    w.pass(120);
    assert!(wants_fallback(&w.policy, &w.state.clone(), &down(), w.now));
}

#[test]
fn s17_a_refused_query_is_not_masked_by_the_fallback() {
    let mut w = World::new(Policy {
        hold_for: secs(0),
        on_error: OnSilence::Fire,
        fallback: Some(Fallback {
            after: secs(1),
            rule: Rule::default(),
        }),
        no_data: OnSilence::Fallback,
        ..policy()
    });
    let refused = || Reading::error(Reason::QueryInvalid, "parse error");
    for _ in 0..10 {
        assert_eq!(
            w.pass(10).eval_with(refused(), Some(firing())),
            Reason::QueryInvalid
        );
    }
    assert!(w.creates.is_empty());
}

#[test]
fn silence_that_is_said_to_fire_fires_through_for() {
    let mut w = World::new(Policy {
        no_data: OnSilence::Fire,
        ..policy()
    });
    assert_eq!(w.eval(no_data()), Reason::HoldingFor);
    assert_eq!(w.pass(10).hold(50, no_data), Reason::RunCreated);
    let mut w = World::new(Policy {
        no_data: OnSilence::Fire,
        hold_for: secs(0),
        ..policy()
    });
    assert_eq!(
        w.eval(down()),
        Reason::SourceUnavailable,
        "an error is not NoData"
    );
}
