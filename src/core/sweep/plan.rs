//! Whose turn it is. The plan is not fixed in advance: roles, sizes and the
//! rule are looked at again before each member.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use crate::core::duration;
use crate::core::probe::numbers;
use crate::core::quantity::human_bytes;
use crate::core::reason::Reason;
use crate::core::rule::{Arm, Quota, QuotaSource, Verdict};
use crate::core::run::{
    CallRecord, CompactionRecord, CompactionState, LeaderMode, MemberRecord, Note, Outcome, Role,
    RunRecord, RunSpec, TransferOutcome, TransferRecord,
};
use crate::core::version::Version;
use crate::core::view::{MemberId, MemberStatus, MemberView, Observation};

use super::{Act, MAX_TRANSFERS, Step, ending, later, observe};

/// Pause between two looks at the members' in-use sizes after a compaction.
const COMPACTION_PAUSE: SignedDuration = SignedDuration::from_millis(250);
/// Revisions left for compactions of their own after the big one. A page that is
/// freed counts as free only some commits later, and an idle cluster commits
/// nothing else; seen on 3.6, where three are enough.
pub(super) const FLUSHES: u8 = 3;
/// Shortest time given to one Defragment.
const MIN_MEMBER_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// What every Defragment gets, before its live bytes are counted.
const BASE_MEMBER_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);
/// Seconds given per GB in use. The field sees 10 to 20 s per GB.
const SECONDS_PER_GB: u64 = 20;

/// The member whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) member: MemberId,
    pub(super) leads: bool,
    /// It is the only voter.
    pub(super) alone: bool,
}

/// Compaction before the first member. `Some` while it is not settled.
pub(super) fn compact(spec: &RunSpec, record: &mut RunRecord, seen: &Observation) -> Option<Step> {
    let keep = spec.keep_revisions.filter(|_| !spec.dry_run)?;
    match record.compaction.as_ref().map(|c| c.state) {
        None => {
            let (_, status) = seen.leader()?;
            let keep = i64::try_from(keep).unwrap_or(i64::MAX);
            let revision = status.revision.saturating_sub(keep);
            let nothing = revision < 1;
            record.compaction = Some(CompactionRecord {
                revision: revision.max(0),
                state: if nothing {
                    CompactionState::Skipped
                } else {
                    CompactionState::InProgress
                },
                attempts: 0,
                message: format!(
                    "the store is at revision {}, {keep} are kept",
                    status.revision
                ),
                at: seen.at,
            });
            if nothing {
                None
            } else {
                ask_to_compact(record, seen, i64::from(FLUSHES))
            }
        }
        Some(CompactionState::InProgress) => {
            let compaction = record.compaction.as_mut()?;
            if compaction.attempts as usize >= MAX_TRANSFERS {
                compaction.state = CompactionState::Failed;
                return compact(spec, record, seen);
            }
            ask_to_compact(record, seen, i64::from(FLUSHES))
        }
        Some(CompactionState::Flushing) => {
            // The commits of the last compaction have to be over.
            let sizes = in_use(seen);
            if record.transient.in_use_seen != sizes {
                record.transient.in_use_seen = sizes;
                return Some(wait_for_compaction());
            }
            record.transient.in_use_seen.clear();
            record.transient.flushes += 1;
            let left = FLUSHES.saturating_sub(record.transient.flushes);
            ask_to_compact(record, seen, i64::from(left))
        }
        Some(CompactionState::Settling) => settle_compaction(spec, record, seen),
        Some(CompactionState::Failed) => {
            let message = record
                .compaction
                .as_ref()
                .map(|c| c.message.clone())
                .unwrap_or_default();
            Some(ending::stop(
                spec,
                record,
                seen,
                Note::new(Reason::CompactionFailed, message),
            ))
        }
        Some(CompactionState::Done | CompactionState::Skipped) => None,
    }
}

/// Asks the leader to compact all but the last `short` of the revisions.
fn ask_to_compact(record: &mut RunRecord, seen: &Observation, short: i64) -> Option<Step> {
    let (leader, _) = seen.leader()?;
    let compaction = record.compaction.as_mut()?;
    compaction.attempts += 1;
    compaction.at = seen.at;
    let revision = (compaction.revision - short).max(1);
    Some(Step::Act(Act::Compact {
        member: leader.id,
        revision,
    }))
}

fn wait_for_compaction() -> Step {
    let message = "waiting until the compaction is physical on every member";
    observe(COMPACTION_PAUSE, Reason::Compacting, message)
}

fn in_use(seen: &Observation) -> Vec<(MemberId, Option<u64>)> {
    seen.statuses()
        .map(|(m, s)| (m.id, s.db_size_in_use))
        .collect()
}

/// Members other than the one asked compact on their own time: wait until no
/// in-use size moves between two looks.
fn settle_compaction(spec: &RunSpec, record: &mut RunRecord, seen: &Observation) -> Option<Step> {
    let sizes = in_use(seen);
    let still = !sizes.is_empty() && record.transient.in_use_seen == sizes;
    record.transient.in_use_seen = sizes;
    let compaction = record.compaction.as_mut()?;
    let waited = seen.at.duration_since(compaction.at);
    if still || waited >= spec.settle.timeout {
        compaction.state = CompactionState::Done;
        compaction.message = format!("compacted to revision {}", compaction.revision);
        return None;
    }
    Some(wait_for_compaction())
}

/// Brings the records up to what is seen: who is there, who leads, who is due.
pub(super) fn refresh(spec: &RunSpec, record: &mut RunRecord, seen: &Observation) {
    let Ok(members) = &seen.members else { return };
    let planned = !record.members.is_empty();
    if !planned {
        record.warnings = warnings(members);
    }
    for view in members {
        if record.member(view.id).is_none() {
            record.members.push(newcomer(view, planned));
        }
    }
    let leader = seen.leader().map(|(member, _)| member.id);
    for member in record
        .members
        .iter_mut()
        .filter(|m| m.outcome == Outcome::Pending)
    {
        match members.iter().find(|view| view.id == member.id) {
            None => member.settle(
                Outcome::Skipped,
                Reason::MemberGone,
                "it left the cluster before its turn",
            ),
            Some(view) if view.learner => {
                member.role = Role::Learner;
                member.settle(
                    Outcome::Skipped,
                    Reason::Learner,
                    Reason::Learner.sentence(),
                );
            }
            Some(view) => {
                member.role = if Some(view.id) == leader {
                    Role::Leader
                } else {
                    Role::Follower
                };
                view.name.clone_into(&mut member.name);
                if let Ok(status) = &view.status {
                    judge(spec, member, status);
                }
            }
        }
    }
}

fn newcomer(view: &MemberView, planned: bool) -> MemberRecord {
    let (outcome, reason, message) = match (view.learner, planned) {
        (true, _) => (
            Outcome::Skipped,
            Reason::Learner,
            Reason::Learner.sentence(),
        ),
        (false, true) => (
            Outcome::Skipped,
            Reason::JustJoined,
            Reason::JustJoined.sentence(),
        ),
        (false, false) => (Outcome::Pending, Reason::WaitingForTurn, ""),
    };
    MemberRecord {
        id: view.id,
        name: view.name.clone(),
        role: if view.learner {
            Role::Learner
        } else {
            Role::Follower
        },
        outcome,
        reason,
        message: message.to_owned(),
        db_size_before: None,
        db_size_after: None,
        in_use_before: None,
        in_use_after: None,
        started_at: None,
        finished_at: None,
        attempts: 0,
        call: None,
    }
}

fn judge(spec: &RunSpec, member: &mut MemberRecord, status: &MemberStatus) {
    member.db_size_before = Some(status.db_size);
    member.in_use_before = status.db_size_in_use;
    match spec.rule.judge(&numbers(status)) {
        Verdict::Due { why, .. } => member.message = why.message,
        Verdict::NotDue { why } => {
            let reason = if why.arm == Arm::FullButNotFragmented {
                Reason::FullButNotFragmented
            } else {
                Reason::BelowThreshold
            };
            member.settle(Outcome::Skipped, reason, why.message);
        }
        Verdict::Unknown { message, .. } => {
            member.settle(Outcome::Skipped, Reason::NumbersUnknown, message);
        }
    }
}

fn warnings(members: &[MemberView]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (view, status) in members
        .iter()
        .filter_map(|m| Some((m, m.status.as_ref().ok()?)))
    {
        for advice in Version::parse(&status.version)
            .map(Version::advice)
            .unwrap_or_default()
        {
            warnings.push(format!(
                "member {} runs etcd {}: {advice}",
                view.label(),
                status.version
            ));
        }
        if let Quota::Known {
            bytes,
            source: QuotaSource::Default,
        } = status.quota
        {
            warnings.push(format!(
                "member {} does not report its quota: etcd's default of {} is assumed",
                view.label(),
                human_bytes(bytes)
            ));
        }
    }
    warnings
}

/// A dry run stops here: what would be done stands in the members' messages.
pub(super) fn dry_run(record: &mut RunRecord) {
    for member in record
        .members
        .iter_mut()
        .filter(|m| m.outcome == Outcome::Pending)
    {
        let message = format!("would be defragmented: {}", member.message);
        member.settle(Outcome::Skipped, Reason::DryRun, message);
    }
}

/// Followers first by what they give back, the leader last.
pub(super) fn turn(spec: &RunSpec, record: &mut RunRecord, seen: &Observation) -> Option<Turn> {
    let leader = seen.leader().map(|(member, _)| member.id);
    let voters = seen
        .members
        .as_ref()
        .map_or(0, |all| all.iter().filter(|m| !m.learner).count());
    let next = record
        .members
        .iter_mut()
        .filter(|m| m.outcome == Outcome::Pending)
        .min_by_key(|m| (Some(m.id) == leader, Reverse(reclaimable(m)), m.id))?;
    let leads = Some(next.id) == leader;
    if leads && spec.leader == LeaderMode::Skip {
        next.settle(
            Outcome::Skipped,
            Reason::LeaderSkipped,
            "leader: Skip; it gets no turn while it leads",
        );
        return None;
    }
    Some(Turn {
        member: next.id,
        leads,
        alone: voters == 1,
    })
}

fn reclaimable(member: &MemberRecord) -> u64 {
    match (member.db_size_before, member.in_use_before) {
        (Some(size), Some(used)) => size.saturating_sub(used),
        _ => 0,
    }
}

/// A caught-up voter that is already done; rather one that was defragmented,
/// and rather one that no transfer to has failed.
pub(super) fn transferee(
    spec: &RunSpec,
    record: &RunRecord,
    seen: &Observation,
    leader: MemberId,
) -> Option<MemberId> {
    seen.statuses()
        .filter(|(view, status)| {
            view.id != leader && status.apply_lag().unwrap_or(0) <= spec.settle.max_raft_lag
        })
        .filter_map(|(view, status)| {
            let done = record.member(view.id)?;
            let fit = match done.outcome {
                Outcome::Defragmented => true,
                Outcome::Skipped => !matches!(
                    done.reason,
                    Reason::Learner | Reason::JustJoined | Reason::MemberGone
                ),
                Outcome::Pending | Outcome::InProgress | Outcome::Failed | Outcome::Unknown => {
                    false
                }
            };
            let failed = record
                .transfers
                .iter()
                .filter(|t| t.to == view.id && t.outcome == TransferOutcome::Failed)
                .count();
            fit.then_some((
                failed,
                done.outcome != Outcome::Defragmented,
                Reverse(status.raft_applied_index),
                view.id,
            ))
        })
        .min()
        .map(|(_, _, _, id)| id)
}

pub(super) fn intend_transfer(
    record: &mut RunRecord,
    from: MemberId,
    to: MemberId,
    now: Timestamp,
) -> Step {
    record.transfers.push(TransferRecord {
        from,
        to,
        at: now,
        outcome: TransferOutcome::InProgress,
        message: String::new(),
    });
    Step::Act(Act::MoveLeader { from, to })
}

pub(super) fn intend_defragment(
    spec: &RunSpec,
    record: &mut RunRecord,
    seen: &Observation,
    id: MemberId,
) -> Step {
    let view = seen.members.iter().flatten().find(|m| m.id == id);
    let live = view
        .and_then(|v| v.status.as_ref().ok())
        .map(|status| status.db_size_in_use.unwrap_or(status.db_size));
    let timeout = spec.member_timeout.unwrap_or_else(|| member_timeout(live));
    if let Some(member) = record.member_mut(id) {
        member.outcome = Outcome::InProgress;
        member.reason = Reason::Defragmenting;
        member.message = announcement(live, timeout);
        member.started_at = Some(seen.at);
        member.attempts += 1;
        member.call = Some(CallRecord {
            deadline: later(seen.at, timeout),
            metrics_before: view.and_then(|v| v.metrics),
            answered_at: None,
        });
    }
    Step::Act(Act::Defragment {
        member: id,
        timeout,
    })
}

/// How long one Defragment may take: `max(2 min, 30 s + 20 s per GB in use)`.
pub fn member_timeout(live_bytes: Option<u64>) -> SignedDuration {
    let millis = live_bytes.unwrap_or(0) / 1_000_000 * SECONDS_PER_GB;
    let live = SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
    BASE_MEMBER_TIMEOUT
        .saturating_add(live)
        .max(MIN_MEMBER_TIMEOUT)
}

fn announcement(live: Option<u64>, timeout: SignedDuration) -> String {
    match live {
        Some(bytes) => format!(
            "copying {} in use; the member stalls meanwhile, for at most {}",
            human_bytes(bytes),
            duration::human(timeout)
        ),
        None => format!(
            "the member stalls meanwhile, for at most {}",
            duration::human(timeout)
        ),
    }
}
