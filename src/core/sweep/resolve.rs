//! What became of a call. A call whose answer was lost is observed until its
//! outcome is known; it is never repeated blindly.

use jiff::Timestamp;

use crate::core::quantity::human_bytes;
use crate::core::reason::Reason;
use crate::core::run::{MemberRecord, Outcome, RunRecord, TransferOutcome};
use crate::core::view::{MemberStatus, MemberView, Observation};

use super::{Control, MAX_ATTEMPTS, RESOLVE_PAUSE, SOON, Step, TRANSFER_TIMEOUT, later, observe};

/// How long a member that has answered may take to tell its size.
const SIZE_TIMEOUT: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

/// What a file may keep free, beside a tenth, without having much to lose. Bytes.
const SLACK: u64 = 1 << 20;

enum Found {
    /// It finished; sizes as far as they can be read.
    Finished,
    /// Still going on, or it cannot be told yet.
    Open(&'static str),
    /// As far as can be seen in this one look, it did not take place.
    NotExecuted,
    /// Nothing is going on, and nothing tells whether it took place.
    Untold,
    /// The process that was at it is gone.
    Restarted,
    /// The member left the cluster.
    Gone,
}

/// Settles the member whose call is under way. `Some` while it cannot be settled.
pub(super) fn member_in_flight(
    record: &mut RunRecord,
    seen: &Observation,
    control: &Control,
) -> Option<Step> {
    let now = seen.at;
    let run_deadline = record.deadline;
    let not_executed_before = record.transient.not_executed_seen;
    let index = record.members.iter().position(|m| m.call.is_some())?;
    let member = &mut record.members[index];
    // Another cluster's member list says nothing about this member.
    let foreign = record
        .cluster_id
        .is_some_and(|known| seen.cluster_ids.iter().any(|id| *id != known));
    let list = seen.members.as_ref().ok().filter(|_| !foreign);
    let view = list.map(|all| all.iter().find(|m| m.id == member.id));

    let found = look(member, view, now);
    record.transient.not_executed_seen = match found {
        Found::NotExecuted | Found::Untold => not_executed_before.saturating_add(1),
        _ => 0,
    };
    match found {
        Found::Finished => {
            finish(member, view.flatten(), now);
            None
        }
        Found::Gone => {
            member.settle(
                Outcome::Skipped,
                Reason::MemberGone,
                "it left the cluster during its turn",
            );
            member.finished_at = Some(now);
            None
        }
        Found::Restarted => {
            member.settle(
                Outcome::Failed,
                Reason::MemberRestarted,
                "its process restarted during the defragmentation",
            );
            member.finished_at = Some(now);
            None
        }
        Found::NotExecuted if record.transient.not_executed_seen >= 2 => {
            record.transient.not_executed_seen = 0;
            if member.attempts < MAX_ATTEMPTS {
                member.settle(
                    Outcome::Pending,
                    Reason::CallNotExecuted,
                    "the call did not take place, as observed; it gets one more turn",
                );
            } else {
                member.settle(
                    Outcome::Failed,
                    Reason::CallNotExecuted,
                    format!("{} calls did not take place, as observed", member.attempts),
                );
                member.finished_at = Some(now);
            }
            None
        }
        Found::Untold if record.transient.not_executed_seen >= 2 => {
            record.transient.not_executed_seen = 0;
            member.settle(
                Outcome::Unknown,
                Reason::OutcomeUnknown,
                "nothing is going on any more, and neither metrics nor sizes tell whether it took place",
            );
            member.finished_at = Some(now);
            None
        }
        Found::Untold => Some(still_unknown(member, "nothing tells whether it took place")),
        Found::NotExecuted => Some(still_unknown(
            member,
            "it looks as if the call did not take place",
        )),
        Found::Open(what) => {
            let call_deadline = member.call.as_ref().map(|call| call.deadline);
            // Without its Secret nobody looks, and in a namespace that goes it does not
            // come back.
            let locked = control.stop.is_some()
                && matches!(&seen.members, Err(trouble) if trouble.reason == Reason::SecretUnusable);
            let patience_ends =
                control.forsaken || locked || run_deadline.is_some_and(|d| now >= d);
            let given_up = patience_ends && call_deadline.is_some_and(|d| now >= d);
            if given_up {
                member.settle(
                    Outcome::Unknown,
                    Reason::OutcomeUnknown,
                    format!(
                        "{what} when the deadline passed; look at the member before another run"
                    ),
                );
                member.finished_at = Some(now);
                return None;
            }
            Some(still_unknown(member, what))
        }
    }
}

fn still_unknown(member: &MemberRecord, what: &str) -> Step {
    let answered = member
        .call
        .as_ref()
        .is_some_and(|call| call.answered_at.is_some());
    if answered {
        observe(
            SOON,
            Reason::Settling,
            format!("member {}: {what}", member.label()),
        )
    } else {
        observe(
            RESOLVE_PAUSE,
            Reason::OutcomeUnknown,
            format!("member {}: {what}", member.label()),
        )
    }
}

/// Reads one observation. `view` is `None` without a member list, and
/// `Some(None)` when the list does not name the member.
fn look(member: &MemberRecord, view: Option<Option<&MemberView>>, now: Timestamp) -> Found {
    let Some(call) = &member.call else {
        return Found::Finished;
    };
    if let Some(answered) = call.answered_at {
        let readable = view.flatten().is_some_and(|v| v.status.is_ok());
        let gone = matches!(view, Some(None));
        return if readable || gone || now >= later(answered, SIZE_TIMEOUT) {
            Found::Finished
        } else {
            Found::Open("defragmented; waiting for it to tell its size")
        };
    }
    let view = match view {
        None => return Found::Open("no member list of this cluster can be read"),
        Some(None) => return Found::Gone,
        Some(Some(view)) => view,
    };
    let answers = view.status.as_ref().ok();
    if let (Some(before), Some(metrics)) = (call.metrics_before, view.metrics) {
        if metrics.process_start != before.process_start {
            return Found::Restarted;
        }
        if metrics.inflight == Some(true) {
            return Found::Open("the defragmentation is still running");
        }
        if metrics.finished > before.finished {
            return Found::Finished;
        }
        return match answers {
            Some(_) => Found::NotExecuted,
            None => Found::Open("it does not answer and reports no finished defragmentation"),
        };
    }
    if view
        .metrics
        .is_some_and(|metrics| metrics.inflight == Some(true))
    {
        return Found::Open("the defragmentation is still running");
    }
    // Status waits while one runs, so an answer means that none was running.
    match answers {
        None => Found::Open("it does not answer, as is normal while it is being defragmented"),
        Some(status) => by_size(member, status),
    }
}

/// What the sizes tell once nothing is running. A file becomes smaller by
/// nothing but a defragmentation, and one that had much to lose becomes smaller.
fn by_size(member: &MemberRecord, status: &MemberStatus) -> Found {
    let Some(before) = member.db_size_before else {
        return Found::Untold;
    };
    if status.db_size < before {
        return Found::Finished;
    }
    let had_to_lose = |in_use: u64| before.saturating_sub(in_use) > in_use / 10 + SLACK;
    match (member.in_use_before, status.db_size_in_use) {
        (Some(was), Some(is)) if had_to_lose(was) && had_to_lose(is) => Found::NotExecuted,
        _ => Found::Untold,
    }
}

fn finish(member: &mut MemberRecord, view: Option<&MemberView>, now: Timestamp) {
    if let Some(status) = view.and_then(|v| v.status.as_ref().ok()) {
        member.db_size_after = Some(status.db_size);
        member.in_use_after = status.db_size_in_use;
    }
    let answered = member.call.as_ref().and_then(|call| call.answered_at);
    member.finished_at = Some(answered.unwrap_or(now));
    member.settle(Outcome::Defragmented, Reason::Defragmented, "");
    member.message = match member.reclaimed() {
        Some(bytes) => format!("gave back {}", human_bytes(bytes)),
        None => "done; its size could not be read".to_owned(),
    };
}

/// Settles a transfer of leadership. `Some` while it cannot be settled.
pub(super) fn transfer_in_flight(record: &mut RunRecord, seen: &Observation) -> Option<Step> {
    let transfer = record
        .transfers
        .iter_mut()
        .find(|t| t.outcome == TransferOutcome::InProgress)?;
    let leaders: Vec<_> = seen
        .members
        .iter()
        .flatten()
        .filter(|m| !m.learner)
        .filter_map(|m| m.status.as_ref().ok()?.leader)
        .collect();
    let moved = !leaders.is_empty() && leaders.iter().all(|leader| *leader != transfer.from);
    if moved {
        transfer.outcome = TransferOutcome::Done;
        transfer.message.clear();
        return None;
    }
    // A clock that jumped back must not make this wait endless.
    let waited = seen.at.duration_since(transfer.at);
    if waited >= TRANSFER_TIMEOUT || waited.is_negative() {
        transfer.outcome = TransferOutcome::Failed;
        if transfer.message.is_empty() {
            transfer.message = format!("leadership did not leave {}", transfer.from);
        }
        return None;
    }
    Some(observe(
        SOON,
        Reason::MovingLeader,
        format!("leadership moves from {} to {}", transfer.from, transfer.to),
    ))
}
