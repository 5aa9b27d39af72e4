//! The end of a run: NOSPACE is disarmed where there is room, then the result
//! is written. Also after a partial failure: sizes decide, not outcomes.

use jiff::{SignedDuration, Timestamp};

use crate::core::quantity::human_bytes;
use crate::core::reason::Reason;
use crate::core::rule::{Quota, QuotaSource};
use crate::core::run::{DisarmRecord, Note, Outcome, Phase, RunRecord, RunSpec, TransferOutcome};
use crate::core::view::{AlarmKind, MemberId, Observation};

use super::{Act, MAX_DISARMS, SOON, Step, failed_labels, observe};

/// How long the ending waits for numbers that it needs to disarm.
const ENDING_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// Ends the run early.
pub(super) fn stop(spec: &RunSpec, record: &mut RunRecord, seen: &Observation, note: Note) -> Step {
    record.stopping.get_or_insert(note);
    end(spec, record, seen)
}

/// Ends a run whose cluster nobody can look at any more, and says what is not
/// known of it.
pub fn abandon(mut record: RunRecord, why: &str, now: Timestamp) -> RunRecord {
    if record.phase.is_terminal() {
        return record;
    }
    let mut unknown = Vec::new();
    for member in &mut record.members {
        if member.call.is_some() {
            unknown.push(format!("what became of member {}", member.label()));
            member.settle(
                Outcome::Unknown,
                Reason::OutcomeUnknown,
                "the cluster cannot be looked at any more; the call may have taken place",
            );
            member.finished_at = Some(now);
        }
    }
    skip_pending(&mut record);
    for transfer in &mut record.transfers {
        if transfer.outcome == TransferOutcome::InProgress {
            transfer.outcome = TransferOutcome::Failed;
            "whether leadership moved is not known".clone_into(&mut transfer.message);
        }
    }
    if record.touched() {
        unknown.push("whether a NOSPACE alarm is raised".to_owned());
    }
    let mut message = format!("removed, and its cluster cannot be looked at any more: {why}");
    if !unknown.is_empty() {
        message.push_str(&format!("; not known: {}", unknown.join(", ")));
    }
    record.phase = Phase::Failed;
    record.completed_at = Some(now);
    record.result = Some(Note::new(Reason::Interrupted, message));
    record
}

fn skip_pending(record: &mut RunRecord) {
    for member in record
        .members
        .iter_mut()
        .filter(|m| m.outcome == Outcome::Pending)
    {
        member.settle(
            Outcome::Skipped,
            Reason::SweepEnded,
            Reason::SweepEnded.sentence(),
        );
    }
}

/// Disarms what is due, then finishes.
pub(super) fn end(spec: &RunSpec, record: &mut RunRecord, seen: &Observation) -> Step {
    skip_pending(record);
    let disarm = if may_disarm(spec, record) {
        disarm(record, seen)
    } else {
        Disarm::Over(None)
    };
    match disarm {
        Disarm::Step(step) => step,
        Disarm::Over(note) => {
            finish(spec, record, seen.at, note);
            Step::Finish
        }
    }
}

/// A run that was refused or deferred, or that met another cluster, changes nothing.
fn may_disarm(spec: &RunSpec, record: &RunRecord) -> bool {
    let stopped_clean = record.stopping.as_ref().is_none_or(|note| {
        record.touched()
            && !matches!(
                note.reason,
                Reason::ClusterIdMismatch | Reason::CorruptAlarm
            )
    });
    spec.disarm_no_space && !spec.dry_run && stopped_clean
}

enum Disarm {
    Step(Step),
    /// Nothing more to do; the note says what is left or was done.
    Over(Option<Note>),
}

fn disarm(record: &mut RunRecord, seen: &Observation) -> Disarm {
    let alarms = match &seen.alarms {
        Ok(alarms) => alarms,
        Err(trouble) => {
            return wait_or_give_up(
                record,
                seen.at,
                format!("the alarms cannot be listed: {}", trouble.message),
            );
        }
    };
    let armed: Vec<MemberId> = alarms
        .iter()
        .filter(|a| a.kind == AlarmKind::NoSpace)
        .map(|a| a.member)
        .collect();
    for disarm in record
        .disarms
        .iter_mut()
        .filter(|d| !armed.contains(&d.member))
    {
        disarm.gone = true;
    }
    if armed.is_empty() {
        let note = (!record.disarms.is_empty())
            .then(|| Note::new(Reason::NoSpaceDisarmed, Reason::NoSpaceDisarmed.sentence()));
        return Disarm::Over(note);
    }
    let told = seen.statuses().flat_map(|(_, status)| &status.alarms);
    if alarms
        .iter()
        .chain(told)
        .any(|a| a.kind == AlarmKind::Corrupt)
    {
        let why = "NOSPACE stays armed while CORRUPT is raised: nobody should write now";
        return Disarm::Over(Some(Note::new(Reason::NoSpaceStillArmed, why)));
    }
    match room(record, seen) {
        Room::Yes => {}
        Room::No(why) => return Disarm::Over(Some(Note::new(Reason::NoSpaceStillArmed, why))),
        Room::Unknown(why) => return wait_or_give_up(record, seen.at, why),
    }
    let Some(via) = via(seen) else {
        return wait_or_give_up(record, seen.at, "no voter answers".to_owned());
    };
    let tries = |id: MemberId| {
        record
            .disarms
            .iter()
            .find(|d| d.member == id)
            .map_or(0, |d| d.attempts)
    };
    let Some(member) = armed.iter().copied().find(|id| tries(*id) < MAX_DISARMS) else {
        let last = record
            .disarms
            .iter()
            .find(|d| !d.message.is_empty())
            .map(|d| format!(": {}", d.message));
        return Disarm::Over(Some(Note::new(
            Reason::NoSpaceStillArmed,
            format!(
                "NOSPACE is still armed after {MAX_DISARMS} attempts{}",
                last.unwrap_or_default()
            ),
        )));
    };
    match record.disarms.iter_mut().find(|d| d.member == member) {
        Some(disarm) => {
            disarm.attempts += 1;
            disarm.at = seen.at;
            disarm.gone = false;
        }
        None => record.disarms.push(DisarmRecord {
            member,
            at: seen.at,
            attempts: 1,
            gone: false,
            message: String::new(),
        }),
    }
    Disarm::Step(Step::Act(Act::Disarm { member, via }))
}

fn wait_or_give_up(record: &mut RunRecord, now: Timestamp, why: String) -> Disarm {
    let since = *record.transient.ending_blocked_since.get_or_insert(now);
    let waited = now.duration_since(since);
    if waited >= ENDING_TIMEOUT || waited.is_negative() {
        Disarm::Over(Some(Note::new(
            Reason::NoSpaceStillArmed,
            format!("NOSPACE was not disarmed: {why}"),
        )))
    } else {
        Disarm::Step(observe(SOON.saturating_mul(10), Reason::Disarming, why))
    }
}

/// The leader, or else any voter that answers.
fn via(seen: &Observation) -> Option<MemberId> {
    let any = seen.statuses().next().map(|(member, _)| member.id);
    seen.leader().map(|(member, _)| member.id).or(any)
}

enum Room {
    Yes,
    No(String),
    Unknown(String),
}

/// Whether every member's file is below its quota. A member above it raises the
/// alarm again with the next write.
fn room(record: &RunRecord, seen: &Observation) -> Room {
    let Ok(members) = &seen.members else {
        return Room::Unknown("the member list cannot be read".to_owned());
    };
    for member in members {
        let status = match &member.status {
            Ok(status) => status,
            // A learner answers Status too; one that was only just added does not yet.
            Err(_) if member.learner => continue,
            Err(trouble) => {
                return Room::Unknown(format!(
                    "the size of member {} is not known: {}",
                    member.label(),
                    trouble.message
                ));
            }
        };
        match status.quota {
            Quota::Known { bytes, .. } if status.db_size >= bytes => {
                return Room::No(format!(
                    "NOSPACE stays armed: member {} still has {} of a quota of {}; \
                     raise the quota (--quota-backend-bytes), delete keys or compact, then run again",
                    member.label(),
                    human_bytes(status.db_size),
                    human_bytes(bytes)
                ));
            }
            Quota::Known {
                bytes,
                source: QuotaSource::Default,
            } if !was_near(record, bytes) => {
                return Room::No(format!(
                    "NOSPACE stays armed: member {} does not tell its quota, and with etcd's default of {} \
                     no file was large enough to raise the alarm; set quotaBytes of the target",
                    member.label(),
                    human_bytes(bytes)
                ));
            }
            Quota::Known { .. } | Quota::None => {}
            Quota::Unknown => {
                return Room::No(format!(
                    "NOSPACE stays armed: the quota of member {} is not known; set quotaBytes of the target",
                    member.label()
                ));
            }
        }
    }
    Room::Yes
}

/// Whether some member's file came near an assumed quota before the run.
fn was_near(record: &RunRecord, quota: u64) -> bool {
    let sizes = record.members.iter().filter_map(|m| m.db_size_before);
    sizes.max().is_some_and(|size| size >= quota / 10 * 9)
}

fn finish(spec: &RunSpec, record: &mut RunRecord, now: Timestamp, disarm: Option<Note>) {
    let failed = record.count(Outcome::Failed);
    // A cluster in which nothing was due is left alone, with advice. One that was
    // worked on, or in which the alarm itself resisted, should be writable now.
    let failed_disarm = disarm.as_ref().is_some_and(|note| {
        let worked = record.count(Outcome::Defragmented) > 0;
        let resisted = record.disarms.iter().any(|d| !d.gone);
        note.reason == Reason::NoSpaceStillArmed && (worked || resisted)
    });
    let (phase, mut note) = match record.stopping.clone() {
        Some(stopping) => (Phase::Failed, stopping),
        None if failed > 0 => (
            Phase::Failed,
            Note::new(
                Reason::MemberFailed,
                format!(
                    "{} failed, {} defragmented",
                    failed_labels(record).join(", "),
                    count(record)
                ),
            ),
        ),
        None if failed_disarm => (
            Phase::Failed,
            Note::new(Reason::NoSpaceStillArmed, success(spec, record).message),
        ),
        None => (Phase::Complete, success(spec, record)),
    };
    if let Some(disarm) = disarm.filter(|d| d.message != note.message) {
        note.message = format!("{}; {}", note.message, disarm.message);
    }
    record.phase = phase;
    record.completed_at = Some(now);
    record.result = Some(note);
}

fn count(record: &RunRecord) -> String {
    format!(
        "{} of {} members",
        record.count(Outcome::Defragmented),
        record
            .members
            .iter()
            .filter(|m| m.reason != Reason::Learner)
            .count()
    )
}

fn success(spec: &RunSpec, record: &RunRecord) -> Note {
    if spec.dry_run {
        let would = record
            .members
            .iter()
            .filter(|m| m.reason == Reason::DryRun)
            .count();
        return Note::new(
            Reason::DryRun,
            format!("{would} members would be defragmented; nothing was changed"),
        );
    }
    if record.count(Outcome::Defragmented) > 0 {
        return Note::new(
            Reason::SweepComplete,
            format!(
                "{} defragmented, {} given back",
                count(record),
                human_bytes(record.reclaimed_bytes())
            ),
        );
    }
    // One full, unfragmented member is the message that matters most.
    let advice = record
        .members
        .iter()
        .find(|m| m.reason == Reason::FullButNotFragmented)
        .or_else(|| {
            record
                .members
                .iter()
                .find(|m| m.reason == Reason::NumbersUnknown)
        })
        .or_else(|| {
            record
                .members
                .iter()
                .find(|m| m.reason == Reason::BelowThreshold)
        })
        .map(|m| format!("; member {}: {}", m.label(), m.message))
        .unwrap_or_default();
    Note::new(Reason::NothingDue, format!("no member was due{advice}"))
}
