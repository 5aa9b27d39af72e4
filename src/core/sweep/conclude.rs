//! What a step led to, put into the record.

use jiff::Timestamp;

use crate::core::reason::Reason;
use crate::core::run::{
    ActResult, CompactionState, MemberRecord, Note, Outcome, RunRecord, TransferOutcome,
};

use super::plan::FLUSHES;
use super::{Act, MAX_ATTEMPTS, MAX_TRANSFERS};

/// Records what became of an act, as its caller saw it. To be stored before the
/// next observation; when that fails, observing finds out as after a restart.
pub fn conclude(mut record: RunRecord, act: &Act, result: &ActResult, now: Timestamp) -> RunRecord {
    match act {
        Act::Defragment { member, .. } => {
            if let Some(member) = record.member_mut(*member) {
                defragment(member, result, now);
            }
        }
        Act::MoveLeader { .. } => transfer(&mut record, result),
        Act::Compact { .. } => compaction(&mut record, result, now),
        Act::Disarm { member, .. } => {
            if let Some(disarm) = record.disarms.iter_mut().find(|d| d.member == *member) {
                // Whatever was answered, the list of alarms tells next.
                disarm.message = match result {
                    ActResult::Done => String::new(),
                    ActResult::Refused(note)
                    | ActResult::NotSent(note)
                    | ActResult::Unknown(note) => note.message.clone(),
                };
            }
        }
    }
    record
}

fn defragment(member: &mut MemberRecord, result: &ActResult, now: Timestamp) {
    match result {
        ActResult::Done => {
            if let Some(call) = &mut member.call {
                call.answered_at = Some(now);
            }
        }
        ActResult::Refused(note) => {
            member.settle(Outcome::Failed, failure(note), note.message.clone());
            member.finished_at = Some(now);
        }
        ActResult::NotSent(note) if member.attempts < MAX_ATTEMPTS => {
            member.settle(Outcome::Pending, note.reason, note.message.clone());
        }
        ActResult::NotSent(note) => {
            member.settle(Outcome::Failed, note.reason, note.message.clone());
            member.finished_at = Some(now);
        }
        ActResult::Unknown(note) => lose_answer(member, &note.message),
    }
}

/// A member's own reason stays when it tells more than that the call failed.
fn failure(note: &Note) -> Reason {
    match note.reason {
        Reason::PermissionDenied | Reason::ClusterIdMismatch | Reason::MemberIdMismatch => {
            note.reason
        }
        _ => Reason::CallFailed,
    }
}

fn lose_answer(member: &mut MemberRecord, message: &str) {
    member.outcome = Outcome::Unknown;
    member.reason = Reason::OutcomeUnknown;
    message.clone_into(&mut member.message);
}

fn transfer(record: &mut RunRecord, result: &ActResult) {
    let Some(transfer) = record
        .transfers
        .iter_mut()
        .find(|t| t.outcome == TransferOutcome::InProgress)
    else {
        return;
    };
    match result {
        // The members' own word is waited for.
        ActResult::Done => {}
        ActResult::Unknown(note) => transfer.message.clone_from(&note.message),
        ActResult::Refused(note) | ActResult::NotSent(note) => {
            transfer.outcome = TransferOutcome::Failed;
            transfer.message.clone_from(&note.message);
        }
    }
}

fn compaction(record: &mut RunRecord, result: &ActResult, now: Timestamp) {
    let Some(compaction) = &mut record.compaction else {
        return;
    };
    compaction.at = now;
    match (compaction.state, result) {
        (CompactionState::InProgress, ActResult::Done) => {
            compaction.state = CompactionState::Flushing;
            compaction.message.clear();
        }
        // What counts was compacted before; this one only makes it show.
        (CompactionState::Flushing, _) if record.transient.flushes < FLUSHES => {}
        (CompactionState::Flushing, _) => compaction.state = CompactionState::Settling,
        (_, ActResult::Done) => {}
        (_, ActResult::Refused(note) | ActResult::NotSent(note) | ActResult::Unknown(note)) => {
            compaction.message.clone_from(&note.message);
            // Compaction of one revision can be asked for again without harm.
            let enough = compaction.attempts as usize >= MAX_TRANSFERS;
            if enough || note.reason == Reason::PermissionDenied {
                compaction.state = CompactionState::Failed;
            }
        }
    }
}

/// Takes back the intent of an act that was not sent, and that nobody else can
/// have sent: the record was `before`, and was announced as `announced`. What
/// goes forward only has gone forward.
pub fn withdraw(mut announced: RunRecord, before: &RunRecord, act: &Act) -> RunRecord {
    match act {
        Act::Defragment { member: id, .. } => {
            let Some(member) = announced.member_mut(*id) else {
                return announced;
            };
            match before.member(*id) {
                Some(old) => old.clone_into(member),
                None => {
                    let reason = Reason::WaitingForTurn;
                    member.settle(Outcome::Pending, reason, reason.sentence());
                    member.attempts = member.attempts.saturating_sub(1);
                    member.started_at = None;
                }
            }
        }
        Act::MoveLeader { .. } => {
            announced
                .transfers
                .pop_if(|last| last.outcome == TransferOutcome::InProgress);
        }
        Act::Compact { .. } => {
            if let Some(compaction) = &mut announced.compaction {
                compaction.attempts = compaction.attempts.saturating_sub(1);
            }
            // The flush that was counted did not take place either.
            announced.transient.clone_from(&before.transient);
        }
        Act::Disarm { member, .. } => {
            if let Some(disarm) = announced.disarms.iter_mut().find(|d| d.member == *member) {
                disarm.attempts = disarm.attempts.saturating_sub(1);
            }
            announced.disarms.retain(|disarm| disarm.attempts > 0);
        }
    }
    announced
}

/// After a restart: no answer will come any more for what was under way.
pub fn resume(mut record: RunRecord) -> RunRecord {
    if record.phase.is_terminal() {
        return record;
    }
    for member in &mut record.members {
        let open = member
            .call
            .as_ref()
            .is_some_and(|call| call.answered_at.is_none());
        if open {
            lose_answer(member, "the answer was lost in a restart of defragd");
        }
    }
    record
}
