//! A policy in words: why did it (not) run?

use jiff::{SignedDuration, Timestamp};

use super::{complaint, field, heading, key, note, relative};
use crate::api::conditions::{self, ConditionStatus, types};
use crate::api::policy::{
    ClusterStatus, EtcdDefragPolicySpec, EtcdDefragPolicyStatus, LastRunStatus, RunOutcome,
    SignalStatus, SpellStatus, SummaryStatus,
};
use crate::api::scalar::Time;
use crate::core::duration;
use crate::core::quantity::human_bytes;
use crate::core::reason::Reason;
use crate::core::signal::SignalState;
use crate::hosts::standalone::Item;

pub(super) fn policy(
    text: &mut String,
    item: &Item<EtcdDefragPolicySpec, EtcdDefragPolicyStatus>,
    now: Timestamp,
) {
    let spec = item.spec.as_ref();
    heading(text, &format!("Policy {}", key(&item.metadata)));
    if let Some(problem) = complaint(&item.status.conditions, types::READY) {
        field(text, "not ready", problem);
    }
    if item.status.clusters.is_empty() {
        if let Some(named) = spec.and_then(|spec| spec.cluster_ref.as_ref()) {
            field(text, "cluster", &named.name);
        }
        field(text, "decision", "not evaluated yet");
    }
    let hold_for = spec.and_then(|spec| spec.hold_for.as_deref());
    match item
        .status
        .summary
        .as_ref()
        .filter(|s| s.clusters.is_some())
    {
        Some(summary) => fleet(text, &item.status, summary, hold_for, now),
        None => {
            for cluster in &item.status.clusters {
                policy_on(text, cluster, hold_for, now);
            }
        }
    }
    if let Some(degraded) = conditions::get(&item.status.conditions, types::DEGRADED)
        && degraded.status == ConditionStatus::True
    {
        field(text, "degraded", note(&degraded.reason, &degraded.message));
    }
}

/// Clusters of one policy that are shown in words.
const SHOWN: usize = 20;

/// All clusters in a few words, and in full those of which there is more to say than
/// that they are quiet.
fn fleet(
    text: &mut String,
    status: &EtcdDefragPolicyStatus,
    summary: &SummaryStatus,
    hold_for: Option<&str>,
    now: Timestamp,
) {
    field(text, "clusters", &summary.cluster);
    for (name, counts) in [
        ("signals", &summary.signal),
        ("decisions", &summary.decision),
    ] {
        if !counts.is_empty() {
            field(text, name, counts);
        }
    }
    if let Some(problem) = complaint(&status.conditions, types::SERIES_MATCHED) {
        field(text, "series", problem);
    }
    let quiet = |cluster: &&ClusterStatus| {
        let decision = cluster.decision.as_ref().map(|note| note.reason.as_str());
        decision == Some(Reason::SignalNotFiring.as_str()) || cluster.absent_since.is_some()
    };
    let (quiet, others): (Vec<_>, Vec<_>) = status.clusters.iter().partition(quiet);
    for cluster in others.iter().take(SHOWN) {
        policy_on(text, cluster, hold_for, now);
    }
    if let Some(more) = others.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        field(
            text,
            "more",
            format_args!("{more} clusters; --output json has them all"),
        );
    }
    let left = quiet
        .iter()
        .filter(|cluster| cluster.absent_since.is_some());
    let left = left.count();
    if quiet.len() > left {
        field(
            text,
            "quiet",
            format_args!("{} clusters", quiet.len() - left),
        );
    }
    if left > 0 {
        field(
            text,
            "left",
            format_args!("{left} clusters that match no longer and are remembered for a while"),
        );
    }
}

/// Why did it not run on this cluster, in words.
fn policy_on(text: &mut String, cluster: &ClusterStatus, hold_for: Option<&str>, now: Timestamp) {
    field(text, "cluster", &cluster.name);
    match &cluster.decision {
        Some(decision) => field(text, "decision", note(&decision.reason, &decision.message)),
        None => field(text, "decision", "not evaluated yet"),
    }
    signal(text, cluster.signal.as_ref(), now);
    if let Some(since) = cluster.firing_since {
        let wanted = hold_for
            .map(|span| format!(", must hold for {span}"))
            .unwrap_or_default();
        field(
            text,
            "firing",
            format_args!("since {since} ({}){wanted}", relative(since, now)),
        );
    }
    if let Some(since) = cluster.failing_since {
        let who = if cluster.fallback_active {
            "; the fallback decides"
        } else {
            ""
        };
        field(
            text,
            "failing",
            format_args!(
                "no usable answer since {since} ({}){who}",
                relative(since, now)
            ),
        );
    }
    if let Some(at) = cluster.next_eligible_time.filter(|at| at.timestamp() > now) {
        field(
            text,
            "eligible",
            format_args!("not before {at} ({})", relative(at, now)),
        );
    }
    if let Some(blocked) = &cluster.blocked {
        let long = if blocked.too_long {
            ", longer than maxBlockedFor"
        } else {
            ""
        };
        field(
            text,
            "blocked",
            format_args!(
                "since {} ({}){long}: {}",
                blocked.since,
                relative(blocked.since, now),
                blocked.message
            ),
        );
    }
    if let Some(name) = &cluster.active_run {
        field(text, "running", name);
    }
    last_run(text, cluster.last_run.as_ref(), now);
    if cluster.backoff_level > 0 || cluster.failure_level > 0 {
        field(
            text,
            "back-off",
            format_args!(
                "runs in a row that gave back too little: {}; that failed: {}",
                cluster.backoff_level, cluster.failure_level
            ),
        );
    }
    for (i, spell) in cluster.timeline.iter().enumerate() {
        field(
            text,
            if i == 0 { "time line" } else { "" },
            told(spell, now),
        );
    }
}

fn signal(text: &mut String, signal: Option<&SignalStatus>, now: Timestamp) {
    match signal {
        Some(signal) => {
            let value = signal.value.map(|v| format!(" at {v}")).unwrap_or_default();
            let sampled = signal
                .sampled_at
                .map(|at| format!(" (sampled {})", relative(at, now)))
                .unwrap_or_default();
            field(
                text,
                "signal",
                format_args!(
                    "{}{value}{sampled}: {}",
                    SignalState::from(signal.state).as_str(),
                    note(&signal.reason, &signal.message)
                ),
            );
        }
        None => field(text, "signal", "not read yet"),
    }
}

fn last_run(text: &mut String, last: Option<&LastRunStatus>, now: Timestamp) {
    match last {
        Some(last) => {
            let gain = last
                .reclaimed_bytes
                .map(|bytes| format!(", {} given back", human_bytes(bytes)))
                .unwrap_or_default();
            let own = if last.own {
                ""
            } else {
                ", made by somebody else"
            };
            field(
                text,
                "last run",
                format_args!(
                    "{}: {} ({}){gain}, ended {}{own}",
                    last.name,
                    match last.outcome {
                        RunOutcome::Complete => "complete",
                        RunOutcome::Failed => "failed",
                    },
                    last.reason,
                    relative(last.finished_at, now)
                ),
            );
        }
        None => field(text, "last run", "none known"),
    }
}

/// A line of the time line: when, for how long, what.
fn told(spell: &SpellStatus, now: Timestamp) -> String {
    let until = spell.until.map_or(now, Time::timestamp);
    let lasted = until.duration_since(spell.since.timestamp());
    let lasted = duration::human(lasted.max(SignedDuration::ZERO));
    let times = match spell.times {
        1 => String::new(),
        n => format!(", {n} times"),
    };
    let sofar = if spell.until.is_some() { "" } else { " so far" };
    format!(
        "{} for {lasted}{sofar}{times}  {}",
        spell.since,
        note(&spell.reason, &spell.message)
    )
}

#[cfg(test)]
mod tests;
