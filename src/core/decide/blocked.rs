//! Since when something stands between a due run and its start.

use jiff::Timestamp;

use crate::core::reason::Reason;
use crate::core::signal::SignalState;

use super::{ClusterState, Policy};

/// Since when the signal has fired for long enough while no run follows: a rest,
/// a window, another run, a fault. `None` while nothing is due, and while the run
/// goes on or would only have been reported.
///
/// It is made of what is remembered, so it survives a restart.
pub fn blocked_since(policy: &Policy, state: &ClusterState, now: Timestamp) -> Option<Timestamp> {
    let firing = state
        .signal
        .as_ref()
        .is_some_and(|signal| signal.state == SignalState::Firing);
    let due = state.firing_since?.checked_add(policy.hold_for).ok()?;
    let in_the_way = !matches!(
        state.decision.as_ref()?.reason,
        Reason::RunCreated | Reason::RunInProgress | Reason::HoldingFor | Reason::DryRun
    );
    (firing && in_the_way && due <= now).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;

    fn blocked(w: &World) -> Option<Timestamp> {
        blocked_since(&w.policy, &w.state, w.now)
    }

    #[test]
    fn r81_blocked_counts_from_the_moment_that_a_run_was_due() {
        let mut w = World::new(policy());
        w.hold(30, firing);
        assert_eq!(blocked(&w), None, "`for` is not over");
        w.hold(40, firing);
        assert_eq!(blocked(&w), None, "the run goes on");
        w.finish(500 * MIB);
        w.pass(10).eval(quiet());
        assert_eq!(blocked(&w), None, "nothing is due");
        let again = w.pass(10).now;
        assert_eq!(w.eval(firing()), Reason::HoldingFor);
        assert_eq!(w.hold(100, firing), Reason::CoolingDown);
        let due = again.checked_add(secs(60)).unwrap();
        assert_eq!(blocked(&w), Some(due));
        assert_eq!(w.hold(100, firing), Reason::CoolingDown);
        assert_eq!(blocked(&w), Some(due), "it does not move");
        w.pass(10).eval(no_data());
        assert_eq!(blocked(&w), None, "the signal says nothing");
    }

    #[test]
    fn another_run_blocks_only_once_a_run_is_due() {
        let mut w = World::new(policy());
        w.runs = vec![super::super::RunSummary {
            name: "by-hand".to_owned(),
            own: false,
            created_at: t(0),
            dry_run: false,
            end: None,
        }];
        assert_eq!(w.hold(30, firing), Reason::ClusterBusy);
        assert_eq!(blocked(&w), None);
        w.hold(40, firing);
        assert_eq!(blocked(&w), Some(t(60)));
    }

    #[test]
    fn a_dry_run_is_not_blocked() {
        let mut w = World::new(Policy {
            dry_run: true,
            ..policy()
        });
        assert_eq!(w.hold(100, firing), Reason::DryRun);
        assert_eq!(blocked(&w), None);
    }
}
