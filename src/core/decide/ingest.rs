//! What the list of runs adds to what is remembered.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::core::reason::Reason;

use super::{
    ClusterState, DAY, Facts, LastRun, Policy, RunEnd, RunStart, RunSummary, pending_trigger,
    trigger_run,
};

/// Starts remembered at most; more than any `maxRunsPerDay` may ask for.
const MAX_STARTS: usize = 64;

/// Takes in every run that ended since the last look, and forgets what is over.
pub(super) fn runs(
    policy: &Policy,
    state: &mut ClusterState,
    runs: &[RunSummary],
    facts: &Facts<'_>,
) {
    let now = facts.now;
    mend_clock(state, now);
    // Before anything is taken in: the name is made of what was remembered then.
    if let Some(trigger) = pending_trigger(policy, state) {
        let name = trigger_run(state, facts, trigger);
        if runs.iter().any(|run| run.own && run.name == name) {
            // Created, then the record of it was lost.
            state.observed_trigger = Some(policy.trigger.clone());
        }
    }
    let mut ended: Vec<(&RunSummary, &RunEnd)> = runs
        .iter()
        .filter_map(|run| Some((run, run.end.as_ref()?)))
        .collect();
    // By name, not by time: times may lie in the future when the clock was wrong.
    let accounted = std::mem::take(&mut state.accounted);
    let accounted: BTreeSet<&str> = accounted.iter().map(String::as_str).collect();
    ended.sort_by(|a, b| (a.1.at, &a.0.name).cmp(&(b.1.at, &b.0.name)));
    for (run, end) in &ended {
        if counts(run, end) && !accounted.contains(run.name.as_str()) {
            take_in(policy, state, run, end, now);
        }
    }
    state.accounted = ended.iter().map(|(run, _)| run.name.clone()).collect();
    follow_active(state, runs, now);
    state
        .run_starts
        .retain(|start| now.duration_since(start.at) < DAY);
}

/// Somebody else's run counts once it has touched the cluster.
fn counts(run: &RunSummary, end: &RunEnd) -> bool {
    run.own || end.touched
}

fn take_in(
    policy: &Policy,
    state: &mut ClusterState,
    run: &RunSummary,
    end: &RunEnd,
    now: Timestamp,
) {
    let finished_at = end.at.min(now);
    let useful = end.reclaimed >= policy.backoff.min_reclaim;
    if useful {
        state.backoff_level = 0;
    }
    if run.own {
        match (end.succeeded, end.reason) {
            (true, _) => {
                state.failure_level = 0;
                // A dry run cannot give anything back.
                if !useful && !run.dry_run {
                    state.backoff_level = state.backoff_level.saturating_add(1);
                }
            }
            // Nobody's fault: it neither counts nor clears.
            (false, Reason::Interrupted) => {}
            (false, _) => state.failure_level = state.failure_level.saturating_add(1),
        }
        note_start(state, &run.name, run.created_at);
    }
    if end.succeeded && !run.dry_run {
        state.last_success = state.last_success.max(Some(finished_at));
    }
    if state
        .last_run
        .as_ref()
        .is_some_and(|last| last.finished_at > finished_at)
    {
        return;
    }
    state.last_run = Some(LastRun {
        name: run.name.clone(),
        succeeded: end.succeeded,
        reason: end.reason,
        reclaimed: Some(end.reclaimed),
        finished_at,
        own: run.own,
        touched: end.touched,
    });
    end_episode(state);
}

/// Evidence from before the end of a run does not start the next one.
fn end_episode(state: &mut ClusterState) {
    state.firing_since = None;
    state.gap_since = None;
    state.evidence_at = None;
}

fn follow_active(state: &mut ClusterState, runs: &[RunSummary], now: Timestamp) {
    let active = runs.iter().find(|run| run.own && run.end.is_none());
    if let Some(run) = active {
        state.active_run = Some(run.name.clone());
        note_start(state, &run.name, run.created_at);
        return;
    }
    let Some(name) = state.active_run.take() else {
        return;
    };
    let ended = runs.iter().any(|run| run.name == name);
    if !ended && state.last_run.as_ref().is_none_or(|last| last.name != name) {
        // Its object went before its end was seen: it may have done anything.
        state.last_run = Some(LastRun {
            name,
            succeeded: false,
            reason: Reason::RunVanished,
            reclaimed: None,
            finished_at: now,
            own: true,
            touched: true,
        });
        end_episode(state);
    }
}

pub(super) fn note_start(state: &mut ClusterState, name: &str, at: Timestamp) {
    if state.run_starts.iter().any(|start| start.name == name) {
        return;
    }
    state.run_starts.push(RunStart {
        name: name.to_owned(),
        at,
    });
    state.run_starts.sort_by_key(|start| start.at);
    let excess = state.run_starts.len().saturating_sub(MAX_STARTS);
    state.run_starts.drain(..excess);
}

/// Nothing remembered lies in the future: a clock that jumped back must not make
/// a wait longer than it was meant to be.
fn mend_clock(state: &mut ClusterState, now: Timestamp) {
    if let Some(last) = &mut state.last_run {
        last.finished_at = last.finished_at.min(now);
    }
    for start in &mut state.run_starts {
        start.at = start.at.min(now);
    }
    for time in [
        &mut state.last_success,
        &mut state.gap_since,
        &mut state.evidence_at,
        &mut state.failing_since,
    ] {
        *time = time.map(|at| at.min(now));
    }
    if let Some(blocked) = &mut state.blocked {
        blocked.since = blocked.since.min(now);
    }
    if state.firing_since.is_some_and(|since| since > now) {
        state.firing_since = Some(now);
    }
}
