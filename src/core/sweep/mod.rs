//! What next: from an observation and the recorded run to exactly one step.
//!
//! [`next`] never acts and never waits. It returns the record as it must be
//! stored *before* the step is carried out (the intent is already in it), and
//! the step. What the step led to goes through [`conclude`]; what is seen
//! afterwards is the next observation. After a restart [`resume`] turns every
//! call whose answer was lost into an unknown one, and observing goes on.

mod conclude;
mod ending;
mod gate;
mod plan;
mod resolve;

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};

use super::reason::Reason;
use super::run::{LeaderMode, Note, Outcome, Phase, RunRecord, RunSpec};
use super::view::{MemberId, Observation};

pub use conclude::{conclude, resume, withdraw};
pub use ending::abandon;
pub use gate::{Closed, Consequence, gate};
pub use plan::member_timeout;

/// Pause between two looks at something that changes within moments: apply lag
/// after a defragmentation, a transfer of leadership.
pub const SOON: SignedDuration = SignedDuration::from_millis(50);
/// Pause between two looks at a call whose answer was lost. Two looks have to
/// agree before the call counts as not executed.
pub const RESOLVE_PAUSE: SignedDuration = SignedDuration::from_secs(2);
/// Pause before a closed gate is tried again.
pub const GATE_PAUSE: SignedDuration = SignedDuration::from_secs(2);
/// Defragment calls announced for one member, at most.
pub const MAX_ATTEMPTS: u32 = 2;
/// Failed members after which a sweep stops.
pub const MAX_FAILURES: usize = 2;
/// Transfers of leadership, and compactions, tried at most.
pub const MAX_TRANSFERS: usize = 3;
/// Times one alarm is asked to be disarmed.
pub const MAX_DISARMS: u32 = 3;
/// How long leadership may take to arrive; a transfer takes about 0.1 s.
pub const TRANSFER_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// The one next step of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Look again after a while: something expected is under way.
    Observe { after: SignedDuration, note: Note },
    /// Nothing may be done now. Waiting is not an error.
    Hold { after: SignedDuration, note: Note },
    /// One mutating call. Its intent is in the record.
    Act(Act),
    /// The record is terminal.
    Finish,
}

/// A mutating call.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Sent to the leader; waits until it is physical there.
    Compact {
        member: MemberId,
        revision: i64,
    },
    Defragment {
        member: MemberId,
        timeout: SignedDuration,
    },
    MoveLeader {
        from: MemberId,
        to: MemberId,
    },
    /// NOSPACE of `member`, which may no longer exist, asked of the voter `via`.
    Disarm {
        member: MemberId,
        via: MemberId,
    },
}

/// What somebody asked of the run from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Control {
    /// End after the member in progress: a deletion, an interrupt.
    pub stop: Option<Note>,
    /// Touch nothing for now: somebody else is changing the cluster.
    pub hold: Option<Note>,
    /// Nobody describes the cluster any more and the run is to go: a call whose
    /// outcome cannot be seen is waited for until its own deadline, no longer.
    pub forsaken: bool,
}

/// A step and the record to store before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    pub record: RunRecord,
    pub step: Step,
}

/// Decides the next step. Must be called only while the run holds the cluster:
/// it is the oldest unfinished run there.
pub fn next(spec: &RunSpec, mut record: RunRecord, seen: &Observation, control: &Control) -> Next {
    let step = decide(spec, &mut record, seen, control);
    Next { record, step }
}

fn decide(spec: &RunSpec, record: &mut RunRecord, seen: &Observation, control: &Control) -> Step {
    if record.phase.is_terminal() {
        return Step::Finish;
    }
    let now = seen.at;
    hold_cluster(spec, record, now);

    if let Some(step) = resolve::member_in_flight(record, seen, control) {
        return step;
    }
    if let Some(step) = resolve::transfer_in_flight(record, seen) {
        return step;
    }
    note_early_stop(record, now, control);
    if record.stopping.is_some() {
        return ending::end(spec, record, seen);
    }
    if let Some(note) = &control.hold {
        // A cluster that is being changed passes no gate, and is refused by none.
        record.transient.revision_suspicions = 0;
        record.gate = Some(note.clone());
        return hold(GATE_PAUSE, note.reason, note.message.clone());
    }

    match gate(spec, record, seen) {
        Ok(()) => {
            record.transient.revision_suspicions = 0;
            record.gate = Some(Note::new(Reason::ClusterHealthy, healthy_sentence(seen)));
        }
        Err(closed) => return gate::close(spec, record, seen, closed),
    }
    if spec.suspend {
        let note = Note::new(
            Reason::Suspended,
            "spec.suspend is set; it goes on when this is cleared",
        );
        record.gate = Some(note.clone());
        return Step::Hold {
            after: GATE_PAUSE,
            note,
        };
    }
    if !spec.dry_run {
        record.phase = record.phase.max(Phase::Running);
    }
    record.cluster_id = record
        .cluster_id
        .or_else(|| seen.cluster_ids.first().copied());

    if let Some(step) = plan::compact(spec, record, seen) {
        return step;
    }
    plan::refresh(spec, record, seen);
    if spec.dry_run {
        plan::dry_run(record);
        return ending::end(spec, record, seen);
    }
    match plan::turn(spec, record, seen) {
        Some(turn) => take_turn(spec, record, seen, turn),
        None => ending::end(spec, record, seen),
    }
}

/// Stamps start and deadline when the run gets hold of the cluster, once. Only
/// when the clock has jumped back behind the start does the span move with it:
/// otherwise the deadline would be out of reach.
fn hold_cluster(spec: &RunSpec, record: &mut RunRecord, now: Timestamp) {
    let stamp = match (record.started_at, record.deadline) {
        (Some(started), Some(_)) => started > now,
        _ => true,
    };
    if stamp {
        record.started_at = Some(now);
        record.deadline = Some(later(now, spec.active_deadline));
    }
}

/// Decides whether the sweep ends before its work is done.
fn note_early_stop(record: &mut RunRecord, now: Timestamp, control: &Control) {
    if record.stopping.is_some() {
        return;
    }
    let failures = record.count(Outcome::Failed);
    record.stopping = if let Some(failed) = record.members.iter().find(|m| {
        m.outcome == Outcome::Failed
            && matches!(m.reason, Reason::MemberRestarted | Reason::PermissionDenied)
    }) {
        Some(Note::new(
            failed.reason,
            format!("member {}: {}", failed.label(), failed.message),
        ))
    } else if failures >= MAX_FAILURES {
        let names: Vec<_> = failed_labels(record);
        Some(Note::new(
            Reason::TooManyFailures,
            format!(
                "{failures} members failed ({}); the sweep stops",
                names.join(", ")
            ),
        ))
    } else if let Some(unknown) = record
        .members
        .iter()
        .find(|m| m.outcome == Outcome::Unknown)
    {
        Some(Note::new(
            Reason::OutcomeUnknown,
            format!("member {}: {}", unknown.label(), unknown.message),
        ))
    } else if let Some(stop) = &control.stop {
        Some(stop.clone())
    } else if record.deadline.is_some_and(|deadline| now >= deadline) {
        Some(deadline_note(record))
    } else {
        None
    };
}

fn deadline_note(record: &RunRecord) -> Note {
    let last = record
        .gate
        .as_ref()
        .filter(|gate| gate.reason != Reason::ClusterHealthy)
        .map(|gate| format!("; last seen: {}", gate.message))
        .unwrap_or_default();
    if record.touched() {
        Note::new(
            Reason::DeadlineExceeded,
            format!("activeDeadline passed during the sweep{last}"),
        )
    } else {
        Note::new(
            Reason::Deferred,
            format!("activeDeadline passed and nothing was touched{last}"),
        )
    }
}

/// Carries out the turn of one member: move leadership away first, or defragment it.
fn take_turn(spec: &RunSpec, record: &mut RunRecord, seen: &Observation, turn: plan::Turn) -> Step {
    if turn.leads && !turn.alone && spec.leader == LeaderMode::Move {
        return match plan::transferee(spec, record, seen, turn.member) {
            Some(to) if record.failed_transfers() < MAX_TRANSFERS => {
                plan::intend_transfer(record, turn.member, to, seen.at)
            }
            Some(_) => fail_leader(
                record,
                spec,
                seen,
                turn.member,
                "every attempt to move leadership failed",
            ),
            None => fail_leader(
                record,
                spec,
                seen,
                turn.member,
                "no voter that is done and caught up can take the leadership",
            ),
        };
    }
    plan::intend_defragment(spec, record, seen, turn.member)
}

fn fail_leader(
    record: &mut RunRecord,
    spec: &RunSpec,
    seen: &Observation,
    member: MemberId,
    why: &str,
) -> Step {
    if let Some(leader) = record.member_mut(member) {
        leader.settle(Outcome::Failed, Reason::LeaderMoveFailed, why);
        leader.finished_at = Some(seen.at);
    }
    ending::end(spec, record, seen)
}

fn failed_labels(record: &RunRecord) -> Vec<String> {
    record
        .members
        .iter()
        .filter(|m| m.outcome == Outcome::Failed)
        .map(super::run::MemberRecord::label)
        .collect()
}

fn healthy_sentence(seen: &Observation) -> String {
    let voters = seen
        .members
        .as_ref()
        .map_or(0, |all| all.iter().filter(|m| !m.learner).count());
    let noun = if voters == 1 {
        "voter answers"
    } else {
        "voters answer and agree on a leader"
    };
    format!("{voters} {noun}")
}

fn hold(after: SignedDuration, reason: Reason, message: impl Into<String>) -> Step {
    Step::Hold {
        after,
        note: Note::new(reason, message),
    }
}

fn observe(after: SignedDuration, reason: Reason, message: impl Into<String>) -> Step {
    Step::Observe {
        after,
        note: Note::new(reason, message),
    }
}

/// `at + span`, held at the end of time instead of failing.
fn later(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
