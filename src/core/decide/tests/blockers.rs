//! Blockers: what holds a run back, since when, and what never does.

use super::*;

fn blocker(name: &str) -> Blocker {
    Blocker {
        name: name.to_owned(),
        signal: Signal::Probe(Rule::default()),
        no_data: OnNoData::Block,
    }
}

fn blocked_by(names: &[&str]) -> Policy {
    Policy {
        hold_for: secs(0),
        blockers: names.iter().map(|name| blocker(name)).collect(),
        ..policy()
    }
}

fn nan() -> Reading {
    Reading::new(SignalState::Inconclusive, Reason::Inconclusive, "NaN")
}

#[test]
fn t84_a_blocker_holds_the_run_back_and_says_since_when() {
    let mut w = World::new(blocked_by(&["upgrade"]));
    w.blockers = vec![firing()];
    assert_eq!(w.eval(firing()), Reason::Blocked);
    assert_eq!(
        w.message(),
        "blocker \"upgrade\" fires: 150 is above 100; a run has waited for that since 2025-06-15T15:06:40Z"
    );
    for _ in 0..10 {
        assert_eq!(w.pass(10).eval(firing()), Reason::Blocked);
    }
    assert_eq!(w.state.blocked.as_ref().unwrap().since, t(0));
    assert_eq!(blocked_since(&w.policy, &w.state, w.now), Some(t(0)));
    assert_eq!(w.state.next_eligible, None, "nobody knows when it ends");
    w.blockers = vec![quiet()];
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
    assert_eq!((w.creates.len(), &w.state.blocked), (1, &None));
}

/// T85, and the other four states.
#[test]
fn t85_only_a_plain_no_lets_a_run_pass() {
    for (reading, holds, words) in [
        (firing(), true, "fires: 150 is above 100"),
        (quiet(), false, ""),
        (no_data(), true, "has no data: no series"),
        (nan(), true, "proves nothing: NaN"),
        (
            down(),
            true,
            "cannot be read (SourceUnavailable): connection refused",
        ),
    ] {
        let reason = reading.reason;
        let mut w = World::new(blocked_by(&["backup"]));
        w.blockers = vec![reading];
        let decided = w.eval(firing());
        if holds {
            assert_eq!(decided, Reason::Blocked, "{reason}");
            assert!(w.message().contains(words), "{}", w.message());
            let by = &w.state.blocked.as_ref().unwrap().by;
            assert_eq!((by[0].name.as_str(), by[0].reason), ("backup", reason));
        } else {
            assert_eq!(decided, Reason::RunCreated, "{reason}");
        }
    }
    let mut w = World::new(blocked_by(&["backup"]));
    w.policy.blockers[0].no_data = OnNoData::Pass;
    w.blockers = vec![no_data()];
    assert_eq!(w.eval(firing()), Reason::RunCreated, "the policy says so");
}

#[test]
fn an_answer_that_is_missing_blocks() {
    let mut w = World::new(blocked_by(&["a", "b"]));
    w.blockers = vec![quiet()];
    assert_eq!(w.eval(firing()), Reason::Blocked);
    assert!(w.message().contains("blocker \"b\" cannot be read"));
}

#[test]
fn every_blocker_counts_and_three_are_quoted() {
    let mut w = World::new(blocked_by(&["a", "b", "c", "d", "e"]));
    w.blockers = vec![quiet(), firing(), down(), nan(), no_data()];
    assert_eq!(w.eval(firing()), Reason::Blocked);
    let blocked = w.state.blocked.clone().unwrap();
    let names: Vec<&str> = blocked.by.iter().map(|by| by.name.as_str()).collect();
    assert_eq!(names, ["b", "c", "d", "e"]);
    assert!(blocked.message.ends_with("; and e"), "{}", blocked.message);
}

#[test]
fn they_are_asked_only_when_a_run_would_start() {
    let mut w = World::new(Policy {
        hold_for: secs(60),
        ..blocked_by(&["upgrade"])
    });
    w.blockers = vec![firing()];
    w.eval(quiet());
    w.hold(50, firing);
    assert_eq!(w.asked, 0, "`for` is not over");
    w.pass(10).eval(firing());
    assert_eq!(w.asked, 1);
    w.blockers = vec![quiet()];
    w.pass(10).eval(firing());
    w.pass(10).eval(firing());
    w.finish(500 * MIB);
    w.pass(10).eval(firing());
    assert_eq!(w.asked, 2, "neither beside a run nor in the cooldown");
    assert_eq!(w.creates.len(), 1);
}

#[test]
fn a_value_that_wobbles_is_not_written_each_time() {
    let mut w = World::new(blocked_by(&["upgrade"]));
    let says = |n: i64| {
        Reading::new(
            SignalState::Firing,
            Reason::SignalFiring,
            format!("{n} is above 0"),
        )
    };
    w.blockers = vec![says(3)];
    w.eval(firing());
    let before = w.state.clone();
    w.blockers = vec![says(2)];
    w.pass(10).eval(firing());
    assert_eq!(
        (&w.state.decision, &w.state.blocked, &w.state.timeline),
        (&before.decision, &before.blocked, &before.timeline)
    );
    w.blockers = vec![down()];
    w.pass(10).eval(firing());
    assert!(
        w.message().contains("SourceUnavailable"),
        "another reason is news"
    );
    assert_eq!(w.state.blocked.as_ref().unwrap().since, t(0));
}

#[test]
fn max_blocked_for_says_so_in_time_and_overrides_nothing() {
    let mut w = World::new(Policy {
        max_blocked_for: Some(secs(3600)),
        ..blocked_by(&["upgrade"])
    });
    w.blockers = vec![firing()];
    w.eval(firing());
    assert_eq!(w.last.as_ref().unwrap().recheck, Some(t(3600)));
    w.hold(3590, firing);
    assert!(!w.state.blocked.as_ref().unwrap().too_long);
    assert_eq!(w.pass(10).eval(firing()), Reason::Blocked);
    assert!(w.state.blocked.as_ref().unwrap().too_long);
    assert!(
        w.message()
            .contains("longer than maxBlockedFor (1h); nothing is overridden"),
        "{}",
        w.message()
    );
    w.hold(100_000, firing);
    assert!(w.creates.is_empty());
}

/// It is the run that waits: closed windows and silence of the signal in between do not
/// make it wait anew, the end of the firing does.
#[test]
fn since_when_survives_silence_and_ends_with_the_firing() {
    let mut w = World::new(blocked_by(&["upgrade"]));
    w.blockers = vec![firing()];
    w.eval(firing());
    assert_eq!(w.pass(10).eval(down()), Reason::SourceUnavailable);
    assert_eq!(w.pass(10).eval(firing()), Reason::Blocked);
    assert_eq!(w.state.blocked.as_ref().unwrap().since, t(0));
    w.pass(10).eval(quiet());
    assert_eq!(w.state.blocked, None);
    w.pass(10).eval(firing());
    assert_eq!(w.state.blocked.as_ref().unwrap().since, t(40));
    // A clock that jumps back.
    w.pass(-1000).eval(firing());
    assert_eq!(w.state.blocked.as_ref().unwrap().since, w.now);
    w.policy.blockers.clear();
    w.pass(10).eval(firing());
    assert_eq!(w.state.blocked, None);
}

#[test]
fn a_triggered_run_waits_for_blockers_and_is_not_lost() {
    let mut w = World::new(blocked_by(&["backup"]));
    w.eval(quiet());
    w.policy.trigger = Some("now".into());
    w.blockers = vec![firing()];
    for _ in 0..3 {
        assert_eq!(w.pass(10).eval(quiet()), Reason::Blocked);
        assert!(w.message().starts_with("the triggered run waits: blocker"));
    }
    assert_eq!(w.state.blocked.as_ref().unwrap().since, t(10));
    w.blockers = vec![quiet()];
    assert_eq!(w.pass(10).eval(quiet()), Reason::RunCreated);
    assert_eq!(w.creates[0].note.reason, Reason::Triggered);
}

#[test]
fn a_dry_run_is_blocked_too_and_a_run_in_progress_is_not_stopped() {
    let mut w = World::new(blocked_by(&["backup"]));
    w.policy.dry_run = true;
    w.blockers = vec![firing()];
    assert_eq!(w.eval(firing()), Reason::Blocked);
    w.blockers = vec![quiet()];
    assert_eq!(w.pass(10).eval(firing()), Reason::DryRun);
    w.policy.dry_run = false;
    assert_eq!(w.pass(10).eval(firing()), Reason::RunCreated);
    w.blockers = vec![firing()];
    assert_eq!(w.pass(10).eval(firing()), Reason::RunInProgress);
}
