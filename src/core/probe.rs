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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;

    use super::*;
    use crate::core::rule::{Percent, QuotaSource};
    use crate::core::view::{Alarm, ClusterId, MemberId, Trouble};

    const MIB: u64 = 1 << 20;

    fn member(id: u64, told: Result<(u64, Option<u64>), Reason>) -> MemberView {
        MemberView {
            id: MemberId(id),
            name: format!("m{id}"),
            learner: false,
            status: told
                .map(|(size, in_use)| MemberStatus {
                    version: "3.6.16".to_owned(),
                    db_size: size * MIB,
                    db_size_in_use: in_use.map(|used| used * MIB),
                    quota: Quota::Known {
                        bytes: 1000 * MIB,
                        source: QuotaSource::Status,
                    },
                    leader: Some(MemberId(1)),
                    raft_term: 2,
                    raft_index: 10,
                    raft_applied_index: Some(10),
                    revision: 5,
                    alarms: BTreeSet::new(),
                    errors: Vec::new(),
                })
                .map_err(|reason| Trouble {
                    reason,
                    message: "no answer within 5s".to_owned(),
                }),
            metrics: None,
        }
    }

    fn seen(members: Vec<MemberView>) -> Observation {
        Observation {
            at: Timestamp::UNIX_EPOCH,
            members: Ok(members),
            alarms: Ok(BTreeSet::new()),
            cluster_ids: BTreeSet::from([ClusterId(7)]),
            expected_voters: None,
        }
    }

    fn down() -> Result<(u64, Option<u64>), Reason> {
        Err(Reason::MemberUnreachable)
    }

    #[test]
    fn t96_one_fragmented_member_fires_and_is_named() {
        let reading = judge(
            &Rule::default(),
            &seen(vec![
                member(1, Ok((100, Some(90)))),
                member(2, Ok((500, Some(100)))),
            ]),
        );
        assert_eq!(reading.state, SignalState::Firing);
        assert!(
            reading.message.starts_with("m2 (2): "),
            "{}",
            reading.message
        );
        assert_eq!(reading.value, Some(400.0 * 1_048_576.0));
    }

    #[test]
    fn t95_a_member_that_does_not_answer_makes_the_probe_partial() {
        let quiet = judge(
            &Rule::default(),
            &seen(vec![member(1, Ok((100, Some(90)))), member(2, down())]),
        );
        assert_eq!(
            (quiet.state, quiet.reason),
            (SignalState::Inconclusive, Reason::ProbePartial),
            "the silent one may be the one that is due"
        );
        assert!(
            quiet.message.contains("m2 (2): no answer"),
            "{}",
            quiet.message
        );
        let due = judge(
            &Rule::default(),
            &seen(vec![member(1, Ok((500, Some(90)))), member(2, down())]),
        );
        assert_eq!(due.state, SignalState::Firing);
        assert!(
            due.message.contains("no answer from m2 (2)"),
            "{}",
            due.message
        );
        let none = judge(&Rule::default(), &seen(vec![member(1, down())]));
        assert_eq!(
            (none.state, none.reason),
            (SignalState::Error, Reason::ProbeFailed)
        );
    }

    #[test]
    fn t93_a_size_that_is_not_reported_is_no_data() {
        let reading = judge(&Rule::default(), &seen(vec![member(1, Ok((500, None)))]));
        assert_eq!(
            (reading.state, reading.reason),
            (SignalState::NoData, Reason::NumbersUnknown)
        );
        assert_eq!(reading.value, None);
    }

    #[test]
    fn a_healthy_cluster_does_not_fire_and_learners_do_not_count() {
        let mut learner = member(3, Ok((900, Some(1))));
        learner.learner = true;
        let reading = judge(
            &Rule::default(),
            &seen(vec![member(1, Ok((100, Some(90)))), learner]),
        );
        assert_eq!(reading.state, SignalState::NotFiring);
    }

    #[test]
    fn t77_an_emergency_is_on_only_with_evidence_for_what_was_declared() {
        let quota = Emergency {
            quota_usage_above: Some(Percent::parse("90%").unwrap()),
            no_space: false,
        };
        let full = seen(vec![member(1, Ok((901, Some(1))))]);
        let evidence = emergency(&quota, &full).unwrap();
        assert!(
            evidence.contains("m1 (1)") && evidence.contains("90%"),
            "{evidence}"
        );
        assert_eq!(
            emergency(&quota, &seen(vec![member(1, Ok((900, Some(1))))])),
            None
        );

        let alarm = Emergency {
            quota_usage_above: None,
            no_space: true,
        };
        let mut raised = full.clone();
        raised.alarms = Ok(BTreeSet::from([Alarm {
            member: MemberId(1),
            kind: AlarmKind::NoSpace,
        }]));
        assert!(emergency(&alarm, &raised).is_some());
        assert_eq!(emergency(&alarm, &full), None);
        // Without quorum the alarms cannot be listed, and Status still tells them.
        let mut told = seen(vec![member(1, Ok((1, Some(1))))]);
        told.alarms = Err(Trouble {
            reason: Reason::AlarmsUnavailable,
            message: String::new(),
        });
        if let Ok(members) = &mut told.members
            && let Ok(status) = &mut members[0].status
        {
            status.alarms.insert(Alarm {
                member: MemberId(1),
                kind: AlarmKind::NoSpace,
            });
        }
        assert!(emergency(&alarm, &told).is_some());
    }
}
