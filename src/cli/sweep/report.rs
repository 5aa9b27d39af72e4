//! The result of a sweep for people.

use super::narrate::{duration_of, label, leadership};
use crate::cli::Exit;
use crate::cli::output::{member_table, size, took};
use crate::core::reason::Reason;
use crate::core::run::{MemberRecord, Phase, RunRecord};

/// The exit code that a finished run stands for.
pub(super) fn exit(record: &RunRecord) -> Exit {
    let reason = record.result.as_ref().map(|note| note.reason);
    match record.phase {
        Phase::Complete => Exit::Done,
        _ if reason == Some(Reason::Interrupted) => Exit::Interrupted,
        _ if !record.touched() => Exit::Refused,
        _ => Exit::Failed,
    }
}

/// A table of the members, what else was changed, and the result.
pub(super) fn text(record: &RunRecord) -> String {
    let mut text = String::new();
    if !record.members.is_empty() {
        let rows: Vec<_> = record.members.iter().map(row).collect();
        text.push_str(&member_table(&rows));
        text.push('\n');
    }
    for transfer in &record.transfers {
        text.push_str(&format!("{}\n", leadership(record, transfer)));
    }
    for disarm in &record.disarms {
        let state = if disarm.gone {
            "disarmed"
        } else {
            "still armed"
        };
        text.push_str(&format!(
            "alarm: NOSPACE of {} is {state}\n",
            label(record, disarm.member)
        ));
    }
    text.push_str(&result(record));
    text.push('\n');
    text
}

fn row(member: &MemberRecord) -> [String; 8] {
    let reason = match member.message.as_str() {
        "" => member.reason.sentence(),
        message => message,
    };
    [
        member.label(),
        member.role.as_str().to_owned(),
        member.outcome.as_str().to_owned(),
        size(member.db_size_before),
        size(member.db_size_after),
        size(member.reclaimed()),
        duration_of(member).map_or_else(|| "-".to_owned(), took),
        reason.to_owned(),
    ]
}

/// The result in one line.
pub(super) fn result(record: &RunRecord) -> String {
    let word = match exit(record) {
        Exit::Done => "complete",
        Exit::Refused => "nothing was touched",
        Exit::Interrupted => "interrupted",
        Exit::Failed | Exit::Usage => "failed",
    };
    match &record.result {
        Some(note) => format!(
            "{word} ({}): {}",
            note.reason,
            super::args::in_flags(&note.message)
        ),
        None => word.to_owned(),
    }
}
