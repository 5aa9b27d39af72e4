//! The firing episode: since when the signal has fired without a break, and
//! what a reading without an answer does to it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::core::duration;
use crate::core::reason::Reason;
use crate::core::signal::{Reading, SignalState};

use super::{
    ClusterState, Facts, GAP_TOLERANCE, OnSilence, Origin, Policy, RunSummary, SignalRecord,
    Verdict, wants_fallback,
};

/// The part by which a value has to change to be recorded again.
const NEWS: f64 = 0.1;

/// True when the age of the newest sample matters: a run has ended, and the next
/// episode has not begun. That is also so for a run whose end was not taken into
/// account yet, and for one that may end before the decision.
pub fn wants_sample_age(state: &ClusterState, runs: &[RunSummary]) -> bool {
    let accounted: BTreeSet<&str> = state.accounted.iter().map(String::as_str).collect();
    let ends_now = |run: &RunSummary| run.end.is_none() || !accounted.contains(run.name.as_str());
    (state.last_run.is_some() && state.firing_since.is_none()) || runs.iter().any(ends_now)
}

/// How long an episode survives without evidence.
fn tolerance(policy: &Policy) -> SignedDuration {
    policy.interval.saturating_mul(3).max(GAP_TOLERANCE)
}

/// The reading that decides: the primary's, the fallback's, or what the policy
/// says that silence counts as.
pub(super) fn effective(
    policy: &Policy,
    state: &mut ClusterState,
    primary: &Reading,
    facts: &Facts<'_>,
) -> Reading {
    let now = facts.now;
    let silence = policy.on_silence(primary);
    match (primary.state, silence) {
        (SignalState::Firing | SignalState::NotFiring, _) => state.failing_since = None,
        (_, Some(OnSilence::Fallback)) => {
            state.failing_since.get_or_insert(now);
        }
        _ => {}
    }
    let by_fallback = facts
        .fallback
        .as_ref()
        .filter(|_| wants_fallback(policy, state, primary, now));
    state.fallback_active = by_fallback.is_some();
    let mut reading = match (by_fallback, silence) {
        (Some(probe), _) => {
            let mut reading = probe.clone();
            reading.message = format!(
                "{} (the fallback decides, because: {})",
                reading.message, primary.message
            );
            reading
        }
        (None, Some(OnSilence::Fire)) => {
            let mut reading = primary.clone();
            reading.state = SignalState::Firing;
            reading.message = format!("{}; the policy says Fire", primary.message);
            reading
        }
        _ => primary.clone(),
    };
    let origin = if by_fallback.is_some() {
        Origin::Fallback
    } else {
        Origin::Primary
    };
    match &state.signal {
        Some(old) if no_news(old, &reading, origin) => reading.message.clone_from(&old.message),
        _ => {
            state.signal = Some(SignalRecord {
                state: reading.state,
                reason: reading.reason,
                value: reading.value,
                message: reading.message.clone(),
                sampled_at: reading.sampled_at,
                origin,
            });
        }
    }
    reading
}

/// A value that only wobbles, or a later time, is no news for the status: it would be
/// written at every evaluation. The metrics have every value.
fn no_news(old: &SignalRecord, reading: &Reading, origin: Origin) -> bool {
    let same = (old.state, old.reason, old.origin) == (reading.state, reading.reason, origin);
    same && match (old.value, reading.value) {
        (Some(was), Some(is)) => (was - is).abs() <= was.abs() * NEWS,
        (None, None) => old.message == reading.message,
        _ => false,
    }
}

/// Moves the episode on by one reading.
pub(super) fn advance(
    policy: &Policy,
    state: &mut ClusterState,
    reading: &Reading,
    now: Timestamp,
) {
    let tolerance = tolerance(policy);
    match reading.state {
        SignalState::NotFiring => {
            state.firing_since = None;
            state.gap_since = None;
            state.evidence_at = None;
        }
        SignalState::Firing if too_old(state, reading) => {}
        SignalState::Firing => {
            let lost = state
                .evidence_at
                .is_none_or(|at| now.duration_since(at) > tolerance);
            match (state.firing_since, state.gap_since) {
                // The source itself says that it fired meanwhile.
                (Some(_), Some(gap))
                    if !lost
                        && reading.firing_since <= Some(gap)
                        && reading.firing_since.is_some() => {}
                (Some(since), Some(gap)) if !lost => {
                    // The time without evidence does not count.
                    let shifted = since.checked_add(now.duration_since(gap)).unwrap_or(now);
                    state.firing_since = Some(shifted.min(now));
                }
                (Some(_), None) if !lost => {}
                _ => state.firing_since = Some(begin(state, reading, now)),
            }
            state.gap_since = None;
            // Refreshed coarsely, so that an idle status is not written each time.
            let refresh = state
                .evidence_at
                .is_none_or(|at| now.duration_since(at) >= tolerance / 2);
            if refresh || lost {
                state.evidence_at = Some(now);
            }
        }
        SignalState::NoData | SignalState::Inconclusive | SignalState::Error => {
            if state.firing_since.is_none() {
                return;
            }
            let gap = *state.gap_since.get_or_insert(now);
            if now.duration_since(gap) > tolerance {
                state.firing_since = None;
                state.gap_since = None;
                state.evidence_at = None;
            }
        }
    }
}

/// When a new episode begins: as early as the source says, but not before the end
/// of the last run, which ended all that was before it.
fn begin(state: &ClusterState, reading: &Reading, now: Timestamp) -> Timestamp {
    let ended = state.last_run.as_ref().map(|last| last.finished_at);
    reading
        .firing_since
        .max(ended.filter(|_| reading.firing_since.is_some()))
        .unwrap_or(now)
        .min(now)
}

fn too_old(state: &ClusterState, reading: &Reading) -> bool {
    match (&state.last_run, reading.sampled_at) {
        (Some(last), Some(sampled)) => state.firing_since.is_none() && sampled <= last.finished_at,
        _ => false,
    }
}

/// Why the signal does not start a run now; `None` once it has held for `for`.
pub(super) fn verdict(
    policy: &Policy,
    state: &mut ClusterState,
    reading: &Reading,
    now: Timestamp,
) -> Option<Verdict> {
    match reading.state {
        SignalState::Firing => {}
        SignalState::NotFiring => {
            return Some(Verdict::wait(
                Reason::SignalNotFiring,
                reading.message.clone(),
            ));
        }
        SignalState::NoData | SignalState::Inconclusive | SignalState::Error => {
            let mut message = reading.message.clone();
            if let Some(since_failing) = state.failing_since {
                message = match (&policy.fallback, policy.on_silence(reading)) {
                    (Some(fallback), Some(OnSilence::Fallback)) => format!(
                        "{message}; failing since {}, the fallback decides after {}",
                        since_failing,
                        duration::format(fallback.after)
                    ),
                    _ => message,
                };
            }
            return Some(Verdict::wait(reading.reason, message));
        }
    }
    if too_old(state, reading) {
        let ended = state
            .last_run
            .as_ref()
            .map(|last| last.finished_at.to_string())
            .unwrap_or_default();
        let sampled = reading
            .sampled_at
            .map(|at| at.to_string())
            .unwrap_or_default();
        return Some(Verdict::wait(
            Reason::SampleTooOld,
            format!(
                "the newest sample is of {sampled}, before the end of the last run at {ended}: it proves nothing"
            ),
        ));
    }
    let firing_since = state.firing_since?;
    let until = firing_since
        .checked_add(policy.hold_for)
        .unwrap_or(Timestamp::MAX);
    if now < until {
        state.next_eligible = Some(until);
        return Some(
            Verdict::wait(
                Reason::HoldingFor,
                format!(
                    "{}; firing since {firing_since}, must hold for {}",
                    reading.message,
                    duration::format(policy.hold_for)
                ),
            )
            .until(until),
        );
    }
    None
}
