//! The gate: may anything be done to this cluster now? Asked again before each
//! member.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::core::reason::Reason;
use crate::core::run::{Note, Outcome, RunRecord, RunSpec};
use crate::core::version::Version;
use crate::core::view::{AlarmKind, MemberStatus, MemberView, Observation};

use super::{GATE_PAUSE, SOON, Step, ending, hold, later};

/// Consecutive observations with different revisions at one applied index that
/// prove a divergence. Status does not read both numbers at one instant, so one
/// observation proves nothing.
const DIVERGED_AFTER: u8 = 3;

/// Why nothing may be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    pub note: Note,
    pub consequence: Consequence,
}

/// What a closed gate means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// It may pass by itself: wait, until the deadline.
    Wait,
    /// A sweep that has begun stops; one that has not waits.
    StopIfTouched,
    /// It cannot pass by itself: refused.
    Refuse,
}

impl Closed {
    fn wait(reason: Reason, message: impl Into<String>) -> Self {
        Closed {
            note: Note::new(reason, message),
            consequence: Consequence::Wait,
        }
    }

    fn stop(reason: Reason, message: impl Into<String>) -> Self {
        Closed {
            note: Note::new(reason, message),
            consequence: Consequence::StopIfTouched,
        }
    }

    fn refuse(reason: Reason, message: impl Into<String>) -> Self {
        Closed {
            note: Note::new(reason, message),
            consequence: Consequence::Refuse,
        }
    }
}

/// Every voter present, answering, agreeing on a leader; one cluster id; no
/// CORRUPT alarm; apply lag small; nobody else defragmenting; versions known to
/// be safe. Learners count for nothing.
pub fn gate(spec: &RunSpec, record: &RunRecord, seen: &Observation) -> Result<(), Closed> {
    identity(record, seen)?;
    let members = seen
        .members
        .as_ref()
        .map_err(|trouble| Closed::wait(trouble.reason, &trouble.message))?;
    let voters: Vec<&MemberView> = members.iter().filter(|m| !m.learner).collect();
    count(spec, record, seen, &voters)?;
    // Before the answers: a member that somebody else defragments gives none.
    others_work(members)?;
    let answers = answers(&voters)?;
    versions(&answers)?;
    alarms(seen, &answers)?;
    leader(&voters, &answers)?;
    lag(spec, record, seen, &answers)?;
    revisions(&answers)
}

fn identity(record: &RunRecord, seen: &Observation) -> Result<(), Closed> {
    if seen.cluster_ids.len() > 1 {
        let ids: Vec<String> = seen.cluster_ids.iter().map(ToString::to_string).collect();
        return Err(Closed::refuse(
            Reason::ClusterIdMismatch,
            format!(
                "the endpoints answer for clusters {}; list the endpoints of one cluster",
                ids.join(" and ")
            ),
        ));
    }
    match (record.cluster_id, seen.cluster_ids.first()) {
        (Some(known), Some(now)) if known != *now => Err(Closed::refuse(
            Reason::ClusterIdMismatch,
            format!("the run began on cluster {known}, and now cluster {now} answers"),
        )),
        _ => Ok(()),
    }
}

fn count(
    spec: &RunSpec,
    record: &RunRecord,
    seen: &Observation,
    voters: &[&MemberView],
) -> Result<(), Closed> {
    if let Some(expected) = seen.expected_voters
        && voters.len() != expected as usize
    {
        return Err(Closed::wait(
            Reason::MemberCountMismatch,
            format!(
                "{} voters are listed, memberCount says {expected}",
                voters.len()
            ),
        ));
    }
    match voters {
        [] => Err(Closed::wait(
            Reason::MemberListUnavailable,
            "the member list names no voter",
        )),
        // Once begun, a cluster that shrank to one member is not refused but
        // waited for: its members changed under the run.
        [_] if !spec.allow_single_member && !record.touched() => Err(Closed::refuse(
            Reason::SingleMember,
            "the cluster has a single member, so a defragmentation is an outage; \
             set allowSingleMember (--allow-single-member) to accept that",
        )),
        [_] if !spec.allow_single_member => Err(Closed::wait(
            Reason::MembershipChanged,
            "the cluster shrank to a single member during the run",
        )),
        _ => Ok(()),
    }
}

fn answers<'a>(
    voters: &[&'a MemberView],
) -> Result<Vec<(&'a MemberView, &'a MemberStatus)>, Closed> {
    let mut answers = Vec::with_capacity(voters.len());
    for voter in voters {
        match &voter.status {
            Ok(status) => answers.push((*voter, status)),
            Err(trouble) => {
                return Err(Closed::wait(
                    trouble.reason,
                    format!("member {}: {}", voter.label(), trouble.message),
                ));
            }
        }
    }
    Ok(answers)
}

fn versions(answers: &[(&MemberView, &MemberStatus)]) -> Result<(), Closed> {
    for (member, status) in answers {
        if let Some(why) = Version::parse(&status.version).and_then(Version::refusal) {
            return Err(Closed::refuse(
                Reason::VersionRefused,
                format!(
                    "member {} runs etcd {}: {why}",
                    member.label(),
                    status.version
                ),
            ));
        }
    }
    Ok(())
}

fn alarms(seen: &Observation, answers: &[(&MemberView, &MemberStatus)]) -> Result<(), Closed> {
    // Status carries alarms without raft, so CORRUPT is found even without quorum.
    let listed = seen.alarms.iter().flatten();
    let told = answers.iter().flat_map(|(_, status)| &status.alarms);
    if let Some(corrupt) = listed
        .chain(told)
        .find(|alarm| alarm.kind == AlarmKind::Corrupt)
    {
        return Err(Closed::stop(
            Reason::CorruptAlarm,
            format!(
                "member {} has raised CORRUPT; restore it before anything else",
                corrupt.member
            ),
        ));
    }
    match &seen.alarms {
        Ok(_) => Ok(()),
        Err(trouble) => Err(Closed::wait(trouble.reason, &trouble.message)),
    }
}

fn leader(voters: &[&MemberView], answers: &[(&MemberView, &MemberStatus)]) -> Result<(), Closed> {
    let mut agreed = None;
    for (member, status) in answers {
        match (status.leader, agreed) {
            (None, _) => {
                return Err(Closed::wait(
                    Reason::NoLeader,
                    format!("member {} knows no leader", member.label()),
                ));
            }
            (Some(leader), None) => agreed = Some(leader),
            (Some(leader), Some(other)) if leader != other => {
                return Err(Closed::wait(
                    Reason::NoLeader,
                    format!("the members name different leaders ({other} and {leader})"),
                ));
            }
            _ => {}
        }
    }
    match agreed {
        Some(leader) if voters.iter().all(|m| m.id != leader) => Err(Closed::wait(
            Reason::NoLeader,
            format!("the leader {leader} is not among the voters"),
        )),
        _ => Ok(()),
    }
}

fn others_work(members: &[MemberView]) -> Result<(), Closed> {
    let busy = members.iter().find(|m| {
        m.metrics
            .is_some_and(|metrics| metrics.inflight == Some(true))
    });
    busy.map_or(Ok(()), |member| {
        Err(Closed::wait(
            Reason::OtherDefragmentation,
            format!(
                "member {} is being defragmented by somebody else",
                member.label()
            ),
        ))
    })
}

fn lag(
    spec: &RunSpec,
    record: &RunRecord,
    seen: &Observation,
    answers: &[(&MemberView, &MemberStatus)],
) -> Result<(), Closed> {
    let max = spec.settle.max_raft_lag;
    // A member is compared with itself and with the one that is furthest: a
    // fresh or lagging one has received little and applied all of it.
    let head = answers
        .iter()
        .filter_map(|(_, s)| s.raft_applied_index)
        .max();
    for (member, status) in answers {
        let behind_head = head
            .zip(status.raft_applied_index)
            .map(|(head, own)| head.saturating_sub(own));
        let behind = status.apply_lag().max(behind_head).unwrap_or(0);
        if behind <= max {
            continue;
        }
        let message = format!(
            "member {} is {behind} raft entries behind, settle.maxRaftLag allows {max}",
            member.label()
        );
        let done_at = record
            .member(member.id)
            .filter(|m| m.outcome == Outcome::Defragmented)
            .and_then(|m| m.finished_at);
        return Err(match done_at {
            Some(done) if seen.at >= later(done, spec.settle.timeout) => {
                Closed::stop(Reason::SettleTimeout, message)
            }
            Some(_) => Closed::wait(Reason::Settling, message),
            None => Closed::wait(Reason::ApplyLag, message),
        });
    }
    Ok(())
}

fn revisions(answers: &[(&MemberView, &MemberStatus)]) -> Result<(), Closed> {
    let mut by_index: BTreeMap<u64, (&MemberView, i64)> = BTreeMap::new();
    for (member, status) in answers {
        let Some(applied) = status.raft_applied_index else {
            continue;
        };
        match by_index.get(&applied) {
            Some((other, revision)) if *revision != status.revision => {
                return Err(Closed::stop(
                    Reason::RevisionMismatch,
                    format!(
                        "at applied index {applied} member {} is at revision {} and member {} at {revision}",
                        member.label(),
                        status.revision,
                        other.label()
                    ),
                ));
            }
            Some(_) => {}
            None => {
                by_index.insert(applied, (member, status.revision));
            }
        }
    }
    Ok(())
}

/// Catching up takes moments as a rule; what takes longer is looked at less often.
fn settle_pause(record: &RunRecord, seen: &Observation) -> SignedDuration {
    let last = record.members.iter().filter_map(|m| m.finished_at).max();
    let just_now = last.is_some_and(|at| {
        let ago = seen.at.duration_since(at);
        !ago.is_negative() && ago < SOON.saturating_mul(100)
    });
    if just_now { SOON } else { GATE_PAUSE }
}

/// What a closed gate leads to.
pub(super) fn close(
    spec: &RunSpec,
    record: &mut RunRecord,
    seen: &Observation,
    closed: Closed,
) -> Step {
    let Closed { note, consequence } = closed;
    let touched = record.touched();
    if note.reason == Reason::RevisionMismatch {
        record.transient.revision_suspicions =
            record.transient.revision_suspicions.saturating_add(1);
        if record.transient.revision_suspicions < DIVERGED_AFTER {
            return hold(SOON, note.reason, note.message);
        }
    } else {
        record.transient.revision_suspicions = 0;
    }
    record.gate = Some(note.clone());
    match consequence {
        Consequence::Refuse => ending::stop(spec, record, seen, note),
        Consequence::StopIfTouched if touched => ending::stop(spec, record, seen, note),
        Consequence::Wait | Consequence::StopIfTouched => {
            let after = if note.reason == Reason::Settling {
                settle_pause(record, seen)
            } else {
                GATE_PAUSE
            };
            hold(after, note.reason, note.message)
        }
    }
}
