//! The pauses after a run: cooldown, back-off, failure back-off.

use jiff::{SignedDuration, Timestamp};

use crate::core::duration;
use crate::core::reason::Reason;

use super::{Backoff, ClusterState, FAILURE_BACKOFF_BASE, Policy, gave_back};

pub(super) struct Pause {
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) until: Timestamp,
}

/// The pause that still lasts, if any.
pub(super) fn after_last_run(
    policy: &Policy,
    state: &ClusterState,
    now: Timestamp,
) -> Option<Pause> {
    let last = state.last_run.as_ref()?;
    let failed = state.failure_level > 0 && last.own && !last.succeeded;
    let (reason, wait) = if failed {
        let wait = wait_after_failure(&policy.backoff, state.failure_level);
        // A run that touched nothing left nothing to cool down from.
        let wait = if last.touched {
            wait.max(policy.cooldown)
        } else {
            wait
        };
        (Reason::FailureBackingOff, wait)
    } else if state.backoff_level > 0 {
        (
            Reason::BackingOff,
            wait_after_useless(policy, state.backoff_level),
        )
    } else {
        (Reason::CoolingDown, policy.cooldown)
    };
    let finished = last.finished_at.min(now);
    let until = finished.checked_add(wait).unwrap_or(Timestamp::MAX);
    if until <= now {
        return None;
    }
    // Absolute times: a message that changes with the clock would be written at
    // each evaluation.
    let wait = duration::format(wait);
    let message = match reason {
        Reason::FailureBackingOff => format!(
            "run {} failed at {finished} ({}), failure {} in a row; waiting {wait}, until {until}",
            last.name, last.reason, state.failure_level
        ),
        Reason::BackingOff => format!(
            "run {} ended at {finished} and gave back {}, less than backoff.minReclaim; \
             waiting {wait}, until {until}",
            last.name,
            gave_back(last.reclaimed)
        ),
        _ => format!(
            "run {} ended at {finished} and gave back {}; the cooldown of {wait} ends at {until}",
            last.name,
            gave_back(last.reclaimed)
        ),
    };
    Some(Pause {
        reason,
        message,
        until,
    })
}

/// `cooldown × factor^level`, at most `backoff.max`, never less than the cooldown.
pub fn wait_after_useless(policy: &Policy, level: u32) -> SignedDuration {
    grow(
        policy.cooldown,
        policy.backoff.factor,
        level,
        policy.backoff.max,
    )
    .max(policy.cooldown)
}

fn wait_after_failure(backoff: &Backoff, failures: u32) -> SignedDuration {
    grow(
        FAILURE_BACKOFF_BASE,
        2,
        failures.saturating_sub(1),
        backoff.max,
    )
}

fn grow(base: SignedDuration, factor: u32, times: u32, max: SignedDuration) -> SignedDuration {
    let factor = i32::try_from(factor.max(1)).unwrap_or(i32::MAX);
    let mut wait = base;
    for _ in 0..times {
        if wait >= max || factor == 1 {
            break;
        }
        wait = wait.saturating_mul(factor);
    }
    wait.min(max)
}
