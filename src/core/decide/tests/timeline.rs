//! The time line: last night explained today, bounded, and free when nothing changes.

use proptest::prelude::*;

use super::*;

fn line(w: &World) -> Vec<(Reason, i64, Option<i64>, u32)> {
    let second = |at: Timestamp| at.duration_since(t(0)).as_secs();
    w.state
        .timeline
        .iter()
        .map(|s| (s.reason, second(s.since), s.until.map(second), s.times))
        .collect()
}

#[test]
fn a_night_can_be_told_the_next_day() {
    let mut w = World::new(policy());
    w.eval(quiet());
    w.pass(3_000).eval(firing());
    w.hold(60, firing);
    w.pass(10).eval(firing());
    w.pass(600).finish(500 * MIB);
    w.pass(10).eval(firing());
    w.hold(100, firing);
    w.pass(3_000).eval(quiet());
    use Reason::*;
    assert_eq!(
        line(&w),
        [
            (SignalNotFiring, 0, Some(3_000), 1),
            (HoldingFor, 3_000, Some(3_060), 1),
            (RunCreated, 3_060, Some(3_070), 1),
            (RunInProgress, 3_070, Some(3_680), 1),
            (HoldingFor, 3_680, Some(3_740), 1),
            (CoolingDown, 3_740, Some(6_780), 1),
            (SignalNotFiring, 6_780, None, 1),
        ]
    );
}

#[test]
fn t102_a_decision_that_goes_on_changes_nothing() {
    let mut w = World::new(policy());
    w.eval(quiet());
    let before = w.state.timeline.clone();
    w.hold(100_000, quiet);
    assert_eq!(w.state.timeline, before);
}

/// T102: what was cut because others needed the room stays away until there is news.
#[test]
fn t102_a_spell_that_had_no_room_does_not_come_back() {
    let mut w = World::new(policy());
    w.eval(down());
    w.pass(3_000).eval(quiet());
    w.state.timeline.truncate(1);
    let before = w.state.timeline.clone();
    w.hold(100, quiet);
    assert_eq!(w.state.timeline, before);
    w.state.timeline.clear();
    w.hold(100, quiet);
    assert_eq!(line(&w), []);
    w.pass(3_000).eval(down());
    assert_eq!(line(&w).len(), 1);
}

#[test]
fn decisions_that_flap_do_not_push_out_what_was_before() {
    let mut w = World::new(policy());
    w.eval(down());
    w.pass(3_000);
    for _ in 0..500 {
        w.pass(10).eval(quiet());
        w.pass(10).eval(firing());
        w.pass(10).eval(no_data());
    }
    use Reason::*;
    let told = line(&w);
    let reasons: Vec<Reason> = told.iter().map(|spell| spell.0).collect();
    assert_eq!(
        reasons,
        [SourceUnavailable, SignalNotFiring, HoldingFor, NoData]
    );
    assert_eq!((told[1].1, told[1].3), (3_010, 500));
    // Back after a longer time, it is another spell.
    w.hold(700, no_data);
    w.pass(10).eval(quiet());
    assert_eq!(line(&w).len(), 5);
}

proptest! {
    #[test]
    fn it_is_ordered_bounded_and_ends_with_the_decision(
        steps in prop::collection::vec((0_u8..4, -3_000_i64..30_000), 1..200),
    ) {
        let mut w = World::new(policy());
        for (kind, seconds) in steps {
            w.pass(seconds).eval([firing, quiet, no_data, down][usize::from(kind)]());
            let timeline = &w.state.timeline;
            prop_assert!(timeline.len() <= TIMELINE);
            let last = timeline.last().unwrap();
            prop_assert_eq!(Some(last.reason), w.state.decision.as_ref().map(|note| note.reason));
            prop_assert!(last.until.is_none());
            for spell in &timeline[..timeline.len() - 1] {
                prop_assert!(spell.until.is_some_and(|until| until >= spell.since));
                prop_assert!(spell.message.chars().count() <= 201);
            }
        }
    }
}
