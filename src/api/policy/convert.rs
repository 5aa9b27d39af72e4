//! Between what a policy remembers and its status, without loss but for what is
//! finer than a millisecond in a time.

use jiff::Timestamp;

use super::blocked::{BlockedStatus, SpellStatus, keep_small};
use super::status::{
    ClusterStatus, EtcdDefragPolicyStatus, LastRunStatus, ObservedTrigger, RunOutcome,
    RunStartStatus, SignalStatus, SummaryStatus,
};
use crate::api::conditions::{self, ConditionStatus, types};
use crate::api::defrag::NoteStatus;
use crate::api::defrag::convert::reason;
use crate::api::scalar::{Number, Time};
use crate::api::validate::{self, FieldError};
use crate::core::decide::{ClusterState, DEGRADED_AFTER, LastRun, RunStart, SignalRecord};
use crate::core::quantity::human_bytes;
use crate::core::reason::Reason;
use crate::core::signal::SignalState;

/// Clusters that a policy was about before and that are remembered, at most.
const MAX_OTHERS: usize = 50;

impl ClusterStatus {
    /// What is remembered of the cluster `name`, as it is stored.
    pub fn from_state(name: &str, state: &ClusterState) -> ClusterStatus {
        let ClusterState {
            signal,
            firing_since,
            gap_since,
            evidence_at,
            failing_since,
            fallback_active,
            active_run,
            last_run,
            last_success,
            backoff_level,
            failure_level,
            run_starts,
            accounted,
            observed_trigger,
            next_eligible,
            resting,
            blocked,
            decision,
            timeline,
        } = state;
        ClusterStatus {
            name: name.to_owned(),
            signal: signal.as_ref().map(SignalStatus::from),
            firing_since: firing_since.map(Time::from),
            gap_since: gap_since.map(Time::from),
            evidence_at: evidence_at.map(Time::from),
            failing_since: failing_since.map(Time::from),
            fallback_active: *fallback_active,
            active_run: active_run.clone(),
            last_run: last_run.as_ref().map(LastRunStatus::from),
            last_success_time: last_success.map(Time::from),
            backoff_level: *backoff_level,
            failure_level: *failure_level,
            run_starts: run_starts
                .iter()
                .map(|RunStart { name, at }| RunStartStatus {
                    name: name.clone(),
                    at: (*at).into(),
                })
                .collect(),
            accounted: accounted.clone(),
            observed_trigger: observed_trigger
                .clone()
                .map(|value| ObservedTrigger { value }),
            next_eligible_time: next_eligible.map(Time::from),
            resting: resting.as_ref().map(NoteStatus::from),
            blocked: blocked.as_ref().map(BlockedStatus::from),
            decision: decision.as_ref().map(NoteStatus::from),
            timeline: timeline.iter().map(SpellStatus::from).collect(),
            absent_since: None,
        }
    }
}

impl ClusterStatus {
    /// The columns of a policy that is about this cluster.
    fn summary(&self) -> SummaryStatus {
        let signal = self.signal.as_ref();
        let last = self.last_run.as_ref();
        let decision = self.decision.clone().unwrap_or_default();
        SummaryStatus {
            cluster: self.name.clone(),
            signal: signal
                .map_or("", |s| SignalState::from(s.state).as_str())
                .to_owned(),
            decision: decision.reason,
            value: signal.and_then(|signal| signal.value),
            last_run_time: last.map(|run| run.finished_at),
            outcome: last.map(|run| run.outcome),
            reclaimed: last.and_then(|run| run.reclaimed.clone()),
            next_eligible_time: self.next_eligible_time,
            message: decision.message,
            ..SummaryStatus::default()
        }
    }
}

impl From<&ClusterStatus> for ClusterState {
    /// What was stored.
    fn from(status: &ClusterStatus) -> Self {
        ClusterState {
            signal: status.signal.as_ref().map(SignalStatus::to_record),
            firing_since: status.firing_since.map(Time::timestamp),
            gap_since: status.gap_since.map(Time::timestamp),
            evidence_at: status.evidence_at.map(Time::timestamp),
            failing_since: status.failing_since.map(Time::timestamp),
            fallback_active: status.fallback_active,
            active_run: status.active_run.clone(),
            last_run: status.last_run.as_ref().map(LastRunStatus::to_last_run),
            last_success: status.last_success_time.map(Time::timestamp),
            backoff_level: status.backoff_level,
            failure_level: status.failure_level,
            run_starts: status
                .run_starts
                .iter()
                .map(|start| RunStart {
                    name: start.name.clone(),
                    at: start.at.into(),
                })
                .collect(),
            accounted: status.accounted.clone(),
            observed_trigger: status.observed_trigger.clone().map(|trigger| trigger.value),
            next_eligible: status.next_eligible_time.map(Time::timestamp),
            resting: status.resting.as_ref().map(NoteStatus::to_note),
            blocked: status.blocked.as_ref().map(BlockedStatus::to_blocked),
            decision: status.decision.as_ref().map(NoteStatus::to_note),
            timeline: status.timeline.iter().map(SpellStatus::to_spell).collect(),
        }
    }
}

impl From<&SignalRecord> for SignalStatus {
    fn from(record: &SignalRecord) -> Self {
        let SignalRecord {
            state,
            reason,
            value,
            message,
            sampled_at,
            origin,
        } = record;
        SignalStatus {
            state: (*state).into(),
            reason: reason.as_str().to_owned(),
            value: value.map(Number),
            message: message.clone(),
            sampled_at: sampled_at.map(Time::from),
            origin: (*origin).into(),
        }
    }
}

impl SignalStatus {
    fn to_record(&self) -> SignalRecord {
        SignalRecord {
            state: self.state.into(),
            reason: reason(&self.reason),
            value: self.value.map(|number| number.0),
            message: self.message.clone(),
            sampled_at: self.sampled_at.map(Time::timestamp),
            origin: self.origin.into(),
        }
    }
}

impl From<&LastRun> for LastRunStatus {
    fn from(run: &LastRun) -> Self {
        let LastRun {
            name,
            succeeded,
            reason,
            reclaimed,
            finished_at,
            own,
            touched,
        } = run;
        LastRunStatus {
            name: name.clone(),
            outcome: if *succeeded {
                RunOutcome::Complete
            } else {
                RunOutcome::Failed
            },
            reason: reason.as_str().to_owned(),
            reclaimed_bytes: *reclaimed,
            reclaimed: reclaimed.map(human_bytes),
            finished_at: (*finished_at).into(),
            own: *own,
            touched: *touched,
        }
    }
}

impl LastRunStatus {
    fn to_last_run(&self) -> LastRun {
        LastRun {
            name: self.name.clone(),
            succeeded: self.outcome == RunOutcome::Complete,
            reason: reason(&self.reason),
            reclaimed: self.reclaimed_bytes,
            finished_at: self.finished_at.into(),
            own: self.own,
            touched: self.touched,
        }
    }
}

/// What somebody has to put right, or what has to appear.
pub(super) fn broken(state: &ClusterState) -> Option<(Reason, &str)> {
    let decision = state.decision.as_ref().filter(|note| {
        matches!(
            note.reason,
            Reason::InvalidSpec | Reason::ClusterNotFound | Reason::MembersUnresolved
        ) || note.reason.is_configuration()
    });
    let signal = state.signal.as_ref();
    decision
        .map(|note| (note.reason, note.message.as_str()))
        .or_else(|| {
            signal
                .filter(|signal| signal.reason.is_configuration())
                .map(|signal| (signal.reason, signal.message.as_str()))
        })
}

impl EtcdDefragPolicyStatus {
    /// What is remembered of the cluster `name`.
    pub fn state(&self, name: &str) -> Option<ClusterState> {
        self.clusters
            .iter()
            .find(|c| c.name == name)
            .map(ClusterState::from)
    }

    /// The status of a valid policy after an evaluation of its cluster. Other
    /// clusters that the policy was about before stay: their cooldown still
    /// counts when the policy comes back to them. The current one stands first.
    pub fn from_state(
        name: &str,
        state: &ClusterState,
        generation: Option<i64>,
        previous: &EtcdDefragPolicyStatus,
        now: Timestamp,
    ) -> EtcdDefragPolicyStatus {
        let mut clusters = vec![ClusterStatus::from_state(name, state)];
        let others = previous.clusters.iter().filter(|c| c.name != name);
        clusters.extend(others.take(MAX_OTHERS).cloned());
        keep_small(&mut clusters);
        let summary = Some(clusters[0].summary());
        let mut list = previous.conditions.clone();
        // Of when it was about many clusters.
        list.retain(|condition| condition.type_ != types::SERIES_MATCHED);
        let mut set = |type_: &str, status: ConditionStatus, reason: Reason, message: &str| {
            conditions::set(&mut list, type_, status, reason, message, now, generation);
        };

        let signal = state.signal.as_ref();
        let broken = broken(state);
        match broken {
            Some((reason, message)) => set(types::READY, false.into(), reason, message),
            None => set(
                types::READY,
                true.into(),
                Reason::Accepted,
                Reason::Accepted.sentence(),
            ),
        }
        if let Some(signal) = signal {
            let firing = match signal.state {
                SignalState::Firing => ConditionStatus::True,
                SignalState::NotFiring => ConditionStatus::False,
                SignalState::NoData | SignalState::Inconclusive | SignalState::Error => {
                    ConditionStatus::Unknown
                }
            };
            set(types::FIRING, firing, signal.reason, &signal.message);
        }
        if state.fallback_active {
            set(
                types::FALLBACK,
                true.into(),
                Reason::FallbackActive,
                Reason::FallbackActive.sentence(),
            );
        } else if conditions::get(&previous.conditions, types::FALLBACK).is_some() {
            set(
                types::FALLBACK,
                false.into(),
                Reason::FallbackEnded,
                Reason::FallbackEnded.sentence(),
            );
        }
        match &state.blocked {
            Some(blocked) => {
                let reason = if blocked.too_long {
                    Reason::BlockedTooLong
                } else {
                    Reason::Blocked
                };
                let message = format!("since {}: {}", blocked.since, blocked.message);
                set(types::BLOCKED, true.into(), reason, &message);
            }
            None if conditions::get(&previous.conditions, types::BLOCKED).is_some() => set(
                types::BLOCKED,
                false.into(),
                Reason::Accepted,
                "no blocker holds a run back",
            ),
            None => {}
        }
        if state.last_run.is_some() {
            match &state.resting {
                Some(note) => set(types::COOLING_DOWN, true.into(), note.reason, &note.message),
                None => set(
                    types::COOLING_DOWN,
                    false.into(),
                    Reason::Accepted,
                    "the cluster has rested",
                ),
            }
            let degraded = state.failure_level >= DEGRADED_AFTER;
            let (reason, message) = if degraded {
                (
                    Reason::Degraded,
                    format!("{} runs in a row failed", state.failure_level),
                )
            } else {
                (
                    Reason::Accepted,
                    "the last runs did not fail repeatedly".to_owned(),
                )
            };
            set(types::DEGRADED, degraded.into(), reason, &message);
        }
        EtcdDefragPolicyStatus {
            observed_generation: generation,
            summary,
            unmatched_series: None,
            clusters,
            conditions: list,
        }
    }

    /// The status of a policy that is not valid. What is remembered stays: the
    /// cooldown counts again once the policy is put right.
    pub fn invalid(
        errors: &[FieldError],
        generation: Option<i64>,
        previous: &EtcdDefragPolicyStatus,
        now: Timestamp,
    ) -> EtcdDefragPolicyStatus {
        let mut status = previous.clone();
        status.observed_generation = generation;
        conditions::set(
            &mut status.conditions,
            types::READY,
            false,
            Reason::InvalidSpec,
            validate::summary(errors),
            now,
            generation,
        );
        status
    }
}
