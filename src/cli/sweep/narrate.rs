//! What is told while a sweep goes on: one line for each change of the record.

use jiff::SignedDuration;

use crate::cli::output::{size, took};
use crate::core::quantity::human_bytes;
use crate::core::reason::Reason;
use crate::core::run::{
    CompactionState, MemberRecord, Outcome, RunRecord, TransferOutcome, TransferRecord,
};
use crate::core::sweep::{Act, Step};
use crate::core::view::MemberId;

/// Compares each record with the one before.
#[derive(Default)]
pub(super) struct Narrator {
    before: RunRecord,
    /// What is being waited for, so that it is told once.
    waiting_for: Option<Reason>,
}

/// What is new.
#[derive(Debug, Default, PartialEq)]
pub(super) struct News {
    pub(super) lines: Vec<String>,
    /// What is going on now, for a line that is written over.
    pub(super) now: Option<String>,
    /// Members that need no more work, of all.
    pub(super) done: usize,
    pub(super) members: usize,
}

impl Narrator {
    /// The lines for a record and the step that follows it.
    pub(super) fn tell(&mut self, record: &RunRecord, step: &Step) -> News {
        let before = std::mem::replace(&mut self.before, record.clone());
        let mut lines = Vec::new();
        for warning in record
            .warnings
            .iter()
            .filter(|w| !before.warnings.contains(w))
        {
            lines.push(format!("warning: {warning}"));
        }
        compaction(&before, record, &mut lines);
        if before.members.is_empty() && !record.members.is_empty() {
            lines.push(plan(record));
        }
        // In the order in which it happened: what ended, then what begins.
        let moves = |begin: bool, lines: &mut Vec<String>| {
            for (i, transfer) in record.transfers.iter().enumerate() {
                let is_new = before.transfers.get(i).map(|t| t.outcome) != Some(transfer.outcome);
                if is_new && begin == (transfer.outcome == TransferOutcome::InProgress) {
                    lines.push(leadership(record, transfer));
                }
            }
        };
        let turns = |begin: bool, lines: &mut Vec<String>| {
            for member in &record.members {
                let last = before.member(member.id);
                let is_new = last.map(|m| (m.outcome, m.attempts))
                    != Some((member.outcome, member.attempts));
                if is_new && begin == (member.outcome == Outcome::InProgress) {
                    lines.extend(turn(member, last));
                }
            }
        };
        moves(false, &mut lines);
        turns(false, &mut lines);
        moves(true, &mut lines);
        turns(true, &mut lines);
        alarms(&before, record, &mut lines);
        // Of a run that touched nothing the result says it all.
        if let Some(stopping) = &record.stopping
            && before.stopping.is_none()
            && record.touched()
        {
            lines.push(format!("stopping: {}", stopping.message));
        }
        let now = self.wait(record, step, &mut lines);
        let done = record
            .members
            .iter()
            .filter(|m| is_settled(m.outcome))
            .count();
        News {
            lines,
            now,
            done,
            members: record.members.len(),
        }
    }

    fn wait(&mut self, record: &RunRecord, step: &Step, lines: &mut Vec<String>) -> Option<String> {
        let waiting_for = match step {
            Step::Hold { note, .. } | Step::Observe { note, .. } => Some(note),
            Step::Act(_) | Step::Finish => None,
        };
        let told = std::mem::replace(&mut self.waiting_for, waiting_for.map(|note| note.reason));
        match step {
            Step::Hold { note, .. } | Step::Observe { note, .. } => {
                // These have lines of their own when they begin and end.
                let quiet = matches!(
                    note.reason,
                    Reason::MovingLeader
                        | Reason::Compacting
                        | Reason::Disarming
                        | Reason::Settling
                );
                if !quiet && told != Some(note.reason) {
                    lines.push(format!("waiting: {}", note.message));
                }
                Some(note.message.clone())
            }
            Step::Act(act) => Some(activity(record, act)),
            Step::Finish => None,
        }
    }
}

const fn is_settled(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Pending | Outcome::InProgress | Outcome::Unknown => false,
        Outcome::Defragmented | Outcome::Skipped | Outcome::Failed => true,
    }
}

fn plan(record: &RunRecord) -> String {
    let id = record
        .cluster_id
        .map(|id| format!("cluster {id}: "))
        .unwrap_or_default();
    let gate = record
        .gate
        .as_ref()
        .map(|note| format!("{}; ", note.message))
        .unwrap_or_default();
    let due = record
        .members
        .iter()
        .filter(|m| !is_settled(m.outcome) || m.reason == Reason::DryRun)
        .count();
    format!(
        "{id}{gate}{due} of {} members are due",
        record.members.len()
    )
}

fn compaction(before: &RunRecord, record: &RunRecord, lines: &mut Vec<String>) {
    let Some(compaction) = &record.compaction else {
        return;
    };
    let was = before.compaction.as_ref().map(|c| c.state);
    if was == Some(compaction.state) {
        return;
    }
    lines.push(match compaction.state {
        CompactionState::InProgress => {
            format!(
                "compaction: to revision {}; {}",
                compaction.revision, compaction.message
            )
        }
        // Two moments of one wait.
        CompactionState::Settling if was == Some(CompactionState::Flushing) => return,
        CompactionState::Flushing | CompactionState::Settling => {
            "compaction: waiting until it is physical on every member".to_owned()
        }
        CompactionState::Done => format!("compaction: {}", compaction.message),
        CompactionState::Skipped => format!("compaction: not needed, {}", compaction.message),
        CompactionState::Failed => format!("compaction: failed: {}", compaction.message),
    });
}

/// What became of a member; nothing while it waits for its first turn.
fn turn(member: &MemberRecord, last: Option<&MemberRecord>) -> Option<String> {
    let label = member.label();
    Some(match member.outcome {
        Outcome::Pending if last.is_none() => return None,
        Outcome::Pending => format!("{label}: {}", member.message),
        Outcome::InProgress => format!(
            "{label}: defragmenting the {}, {} in its file; {}",
            member.role.as_str().to_lowercase(),
            size(member.db_size_before),
            member.message
        ),
        Outcome::Defragmented => {
            let span = duration_of(member)
                .map(|span| format!(" in {}", took(span)))
                .unwrap_or_default();
            let gain = member.reclaimed().map_or_else(
                || "size unknown".to_owned(),
                |bytes| format!("{} given back", human_bytes(bytes)),
            );
            format!(
                "{label}: defragmented{span}, {} → {}, {gain}",
                size(member.db_size_before),
                size(member.db_size_after)
            )
        }
        Outcome::Skipped if member.reason == Reason::DryRun => {
            format!("{label}: {}", member.message)
        }
        Outcome::Skipped => format!("{label}: skipped, {}", member.message),
        Outcome::Failed => format!("{label}: failed, {}", member.message),
        Outcome::Unknown => format!("{label}: outcome unknown, {}", member.message),
    })
}

/// From the announcement of its call to the moment it was known to be over.
pub(super) fn duration_of(member: &MemberRecord) -> Option<SignedDuration> {
    Some(member.finished_at?.duration_since(member.started_at?))
}

/// A transfer in words.
pub(super) fn leadership(record: &RunRecord, transfer: &TransferRecord) -> String {
    let (from, to) = (label(record, transfer.from), label(record, transfer.to));
    match transfer.outcome {
        TransferOutcome::InProgress => format!("leadership: moving from {from} to {to}"),
        TransferOutcome::Done => format!("leadership: moved from {from} to {to}"),
        TransferOutcome::Failed => {
            format!(
                "leadership: not moved from {from} to {to}: {}",
                transfer.message
            )
        }
    }
}

fn alarms(before: &RunRecord, record: &RunRecord, lines: &mut Vec<String>) {
    for disarm in &record.disarms {
        let last = before.disarms.iter().find(|d| d.member == disarm.member);
        let member = label(record, disarm.member);
        if last.is_none_or(|last| last.attempts < disarm.attempts) {
            lines.push(format!("alarm: disarming NOSPACE of {member}"));
        }
        if disarm.gone && last.is_none_or(|last| !last.gone) {
            lines.push(format!("alarm: NOSPACE of {member} is disarmed"));
        }
    }
}

fn activity(record: &RunRecord, act: &Act) -> String {
    match act {
        Act::Compact { revision, .. } => format!("compacting to revision {revision}"),
        Act::Defragment { member, .. } => format!("defragmenting {}", label(record, *member)),
        Act::MoveLeader { to, .. } => format!("moving leadership to {}", label(record, *to)),
        Act::Disarm { member, .. } => format!("disarming NOSPACE of {}", label(record, *member)),
    }
}

/// The member as people know it; an alarm may name one that no longer exists.
pub(super) fn label(record: &RunRecord, id: MemberId) -> String {
    record
        .member(id)
        .map_or_else(|| id.to_string(), MemberRecord::label)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::core::run::{DisarmRecord, Note, Phase, Role};
    use crate::core::view::ClusterId;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn member(id: u64, outcome: Outcome) -> MemberRecord {
        MemberRecord {
            id: MemberId(id),
            name: format!("m{id}"),
            role: Role::Follower,
            outcome,
            reason: Reason::WaitingForTurn,
            message: String::new(),
            db_size_before: Some(150 << 20),
            db_size_after: None,
            in_use_before: Some(20 << 20),
            in_use_after: None,
            started_at: None,
            finished_at: None,
            attempts: 0,
            call: None,
        }
    }

    fn defragment(id: u64) -> Step {
        Step::Act(Act::Defragment {
            member: MemberId(id),
            timeout: SignedDuration::from_mins(2),
        })
    }

    #[test]
    fn each_change_is_told_once() {
        let mut narrator = Narrator::default();
        let mut record = RunRecord {
            phase: Phase::Running,
            cluster_id: Some(ClusterId(0xabc)),
            gate: Some(Note::new(Reason::ClusterHealthy, "2 voters answer")),
            members: vec![member(1, Outcome::InProgress), member(2, Outcome::Pending)],
            ..RunRecord::default()
        };
        record.members[0].attempts = 1;
        record.members[0].message = "copying 20 MiB in use".to_owned();
        record.members[0].started_at = Some(at(10));
        let news = narrator.tell(&record, &defragment(1));
        assert_eq!(
            news.lines,
            [
                "cluster abc: 2 voters answer; 2 of 2 members are due",
                "m1 (1): defragmenting the follower, 150 MiB in its file; copying 20 MiB in use",
            ]
        );
        assert_eq!(
            (news.now.as_deref(), news.done, news.members),
            (Some("defragmenting m1 (1)"), 0, 2)
        );
        assert_eq!(narrator.tell(&record, &defragment(1)).lines, [""; 0]);

        record.members[0].settle(Outcome::Defragmented, Reason::Defragmented, "");
        record.members[0].db_size_after = Some(20 << 20);
        record.members[0].finished_at = Some(at(12));
        record.disarms.push(DisarmRecord {
            member: MemberId(9),
            at: at(12),
            attempts: 1,
            gone: false,
            message: String::new(),
        });
        record.transfers.push(TransferRecord {
            from: MemberId(2),
            to: MemberId(1),
            at: at(12),
            outcome: TransferOutcome::Done,
            message: String::new(),
        });
        let news = narrator.tell(&record, &Step::Finish);
        assert_eq!(
            news.lines,
            [
                "leadership: moved from m2 (2) to m1 (1)",
                "m1 (1): defragmented in 2.0s, 150 MiB → 20 MiB, 130 MiB given back",
                "alarm: disarming NOSPACE of 9",
            ]
        );
        assert_eq!((news.done, news.members), (1, 2));
    }

    /// R83: what is not known is not told as a number.
    #[test]
    fn an_unreadable_size_is_not_a_size() {
        let mut done = member(1, Outcome::Defragmented);
        done.db_size_before = Some(1 << 20);
        assert_eq!(
            turn(&done, None).unwrap(),
            "m1 (1): defragmented, 1 MiB → -, size unknown"
        );
    }

    #[test]
    fn a_wait_is_told_when_it_begins_and_when_its_reason_changes() {
        let mut narrator = Narrator::default();
        let record = RunRecord::default();
        let mut hold = |reason| {
            let step = Step::Hold {
                after: SignedDuration::ZERO,
                note: Note::new(reason, "because"),
            };
            narrator.tell(&record, &step).lines
        };
        assert_eq!(hold(Reason::NoLeader), ["waiting: because"]);
        assert_eq!(hold(Reason::NoLeader), [""; 0]);
        assert_eq!(hold(Reason::ApplyLag), ["waiting: because"]);
        assert_eq!(
            hold(Reason::Settling),
            [""; 0],
            "an expected moment after each member"
        );
        assert_eq!(hold(Reason::NoLeader), ["waiting: because"]);
    }
}
