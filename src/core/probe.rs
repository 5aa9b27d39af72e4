//! etcd's own numbers as a signal: the rule language of runs, asked of what was
//! observed.

use super::decide::Emergency;
use super::quantity::human_bytes;
use super::reason::Reason;
use super::rule::{Numbers, Quota, Rule, Verdict};
use super::signal::{Reading, SignalState};
use super::view::{AlarmKind, MemberStatus, MemberView, Observation};

/// The numbers that the rule language speaks about.
pub fn numbers(status: &MemberStatus) -> Numbers {
    Numbers {
        db_size: Some(status.db_size),
        db_size_in_use: status.db_size_in_use,
        quota: status.quota,
    }
}

/// One voter that is due makes the signal fire. It does not fire only when every
/// voter has told its numbers and none is due.
pub fn judge(rule: &Rule, seen: &Observation) -> Reading {
    let members = match &seen.members {
        Ok(members) => members,
        Err(trouble) => return Reading::error(Reason::ProbeFailed, trouble.message.clone()),
    };
    let mut due: Vec<String> = Vec::new();
    let mut largest: Option<u64> = None;
    let mut silent: Vec<String> = Vec::new();
    let mut unknown: Vec<String> = Vec::new();
    let mut answered = 0_usize;
    for member in members.iter().filter(|m| !m.learner) {
        let status = match &member.status {
            Ok(status) => status,
            Err(trouble) => {
                silent.push(format!("{}: {}", member.label(), trouble.message));
                continue;
            }
        };
        answered += 1;
        largest = largest.max(status.reclaimable());
        match rule.judge(&numbers(status)) {
            Verdict::Due { why, .. } => due.push(format!("{}: {}", member.label(), why.message)),
            Verdict::NotDue { .. } => {}
            Verdict::Unknown { message, .. } => {
                unknown.push(format!("{}: {message}", member.label()));
            }
        }
    }
    let partial = if silent.is_empty() {
        String::new()
    } else {
        format!(" (no answer from {})", silent.join("; "))
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "shown to people and in a gauge, not compared"
    )]
    let value = largest.map(|bytes| bytes as f64);
    let reading = if !due.is_empty() {
        Reading::new(
            SignalState::Firing,
            Reason::SignalFiring,
            format!("{}{partial}", due.join("; ")),
        )
    } else if answered == 0 {
        Reading::error(Reason::ProbeFailed, format!("no voter answered{partial}"))
    } else if !silent.is_empty() {
        Reading::new(
            SignalState::Inconclusive,
            Reason::ProbePartial,
            format!("none of the members that answered is due{partial}"),
        )
    } else if !unknown.is_empty() {
        Reading::new(
            SignalState::NoData,
            Reason::NumbersUnknown,
            unknown.join("; "),
        )
    } else {
        Reading::new(
            SignalState::NotFiring,
            Reason::SignalNotFiring,
            format!(
                "no member is due; a defragmentation would give back at most {}",
                human_bytes(largest.unwrap_or(0))
            ),
        )
    };
    Reading { value, ..reading }
}

/// The evidence of a declared emergency, in words; `None` when it is not on.
pub fn emergency(declared: &Emergency, seen: &Observation) -> Option<String> {
    let members: Vec<&MemberView> = seen.members.iter().flatten().collect();
    if declared.no_space {
        let listed = seen.alarms.iter().flatten();
        let told = members
            .iter()
            .filter_map(|m| m.status.as_ref().ok())
            .flat_map(|s| &s.alarms);
        if let Some(alarm) = listed
            .chain(told)
            .find(|alarm| alarm.kind == AlarmKind::NoSpace)
        {
            return Some(format!("member {} has raised NOSPACE", alarm.member));
        }
    }
    let limit = declared.quota_usage_above?;
    members.iter().find_map(|member| {
        let status = member.status.as_ref().ok()?;
        let Quota::Known { bytes, .. } = status.quota else {
            return None;
        };
        limit.is_exceeded_by(status.db_size, bytes).then(|| {
            format!(
                "member {} has {} of a quota of {}, above {limit}",
                member.label(),
                human_bytes(status.db_size),
                human_bytes(bytes)
            )
        })
    })
}
