//! From the numbers on the wire to what they mean. Fields that a version does
//! not know arrive as zero, and zero means *unknown* there.

use std::collections::BTreeSet;

use crate::core::rule::{Quota, QuotaSource};
use crate::core::view::{Alarm, AlarmKind, MemberId, MemberStatus};

/// etcd's own quota when none is configured (`DefaultQuotaBytes` in
/// `server/storage/quota.go`).
const DEFAULT_QUOTA_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// A Status answer as it was on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Raw {
    pub(super) version: String,
    pub(super) db_size: i64,
    /// From 3.4.
    pub(super) db_size_in_use: i64,
    /// From 3.6; 3.6.0 to 3.6.5 send 0 when it is not configured.
    pub(super) db_size_quota: i64,
    pub(super) leader: u64,
    pub(super) raft_term: u64,
    pub(super) raft_index: u64,
    /// From 3.4.
    pub(super) raft_applied_index: u64,
    pub(super) revision: i64,
    /// From 3.4.
    pub(super) errors: Vec<String>,
}

/// Says what the numbers mean. The quota is taken from Status, else from the
/// member's metrics, else from the target, else etcd's default is assumed; its
/// source stays with it (R47).
pub(super) fn interpret(raw: Raw, metrics: Option<i64>, target: Option<u64>) -> MemberStatus {
    let Raw {
        version,
        db_size,
        db_size_in_use,
        db_size_quota,
        leader,
        raft_term,
        raft_index,
        raft_applied_index,
        revision,
        errors,
    } = raw;
    let mut alarms = BTreeSet::new();
    let mut others = Vec::new();
    for error in errors {
        match alarm(&error) {
            Some(alarm) => {
                alarms.insert(alarm);
            }
            None => others.push(error.trim().to_owned()),
        }
    }
    MemberStatus {
        version,
        db_size: u64::try_from(db_size).unwrap_or(0),
        db_size_in_use: positive(db_size_in_use),
        quota: quota(db_size_quota, metrics, target),
        leader: (leader != 0).then_some(MemberId(leader)),
        raft_term,
        raft_index,
        raft_applied_index: (raft_applied_index != 0).then_some(raft_applied_index),
        revision,
        alarms,
        errors: others,
    }
}

fn positive(value: i64) -> Option<u64> {
    u64::try_from(value).ok().filter(|v| *v > 0)
}

fn quota(status: i64, metrics: Option<i64>, target: Option<u64>) -> Quota {
    for (value, source) in [
        (status, QuotaSource::Status),
        (metrics.unwrap_or(0), QuotaSource::Metrics),
    ] {
        if value < 0 {
            return Quota::None;
        }
        if let Some(bytes) = positive(value) {
            return Quota::Known { bytes, source };
        }
    }
    match target {
        Some(bytes) => Quota::Known {
            bytes,
            source: QuotaSource::Target,
        },
        None => Quota::Known {
            bytes: DEFAULT_QUOTA_BYTES,
            source: QuotaSource::Default,
        },
    }
}

/// Reads `memberID:123 alarm:NOSPACE`, as `Status.errors` prints an alarm. The
/// spaces around the parts differ between etcd's protobuf libraries.
fn alarm(text: &str) -> Option<Alarm> {
    let text = text.replace(':', " ");
    let mut words = text.split_ascii_whitespace();
    let (mut member, mut kind) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "memberID" => member = Some(words.next()?.parse().ok()?),
            "alarm" => {
                kind = Some(match words.next()? {
                    "NOSPACE" => AlarmKind::NoSpace,
                    "CORRUPT" => AlarmKind::Corrupt,
                    _ => return None,
                });
            }
            _ => return None,
        }
    }
    Some(Alarm {
        member: MemberId(member?),
        kind: kind?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> Raw {
        Raw {
            version: "3.6.16".to_owned(),
            db_size: 1000,
            db_size_in_use: 400,
            db_size_quota: 5000,
            leader: 7,
            raft_term: 3,
            raft_index: 90,
            raft_applied_index: 88,
            revision: 40,
            errors: Vec::new(),
        }
    }

    #[test]
    fn a_full_answer_is_taken_as_it_is() {
        let status = interpret(raw(), Some(6000), Some(7000));
        assert_eq!(
            status.quota,
            Quota::Known {
                bytes: 5000,
                source: QuotaSource::Status
            }
        );
        assert_eq!(status.reclaimable(), Some(600));
        assert_eq!(status.apply_lag(), Some(2));
        assert_eq!(status.leader, Some(MemberId(7)));
    }

    #[test]
    fn t93_what_etcd_3_3_does_not_send_is_unknown() {
        let old = Raw {
            version: "3.3.27".to_owned(),
            db_size_in_use: 0,
            raft_applied_index: 0,
            leader: 0,
            ..raw()
        };
        let status = interpret(old, None, None);
        assert_eq!(status.db_size_in_use, None);
        assert_eq!(status.reclaimable(), None);
        assert_eq!(status.raft_applied_index, None);
        assert_eq!(status.apply_lag(), None);
        assert_eq!(status.leader, None);
    }

    #[test]
    fn r47_the_quota_comes_from_status_metrics_target_default_in_that_order() {
        let known = |bytes, source| Quota::Known { bytes, source };
        for (status, metrics, target, wanted) in [
            (5, Some(6), Some(7), known(5, QuotaSource::Status)),
            (0, Some(6), Some(7), known(6, QuotaSource::Metrics)),
            (0, Some(0), Some(7), known(7, QuotaSource::Target)),
            (0, None, Some(7), known(7, QuotaSource::Target)),
            (0, None, None, known(2_147_483_648, QuotaSource::Default)),
            (-1, Some(6), Some(7), Quota::None),
            (0, Some(-1), Some(7), Quota::None),
        ] {
            assert_eq!(
                quota(status, metrics, target),
                wanted,
                "{status} {metrics:?} {target:?}"
            );
        }
    }

    #[test]
    fn r38_alarms_are_read_from_the_errors_of_status() {
        let id = 8_925_027_824_743_593_106;
        let errors = [
            format!("memberID:{id} alarm:NOSPACE "),
            format!("memberID:{id}  alarm:CORRUPT"),
            format!("memberID: {id} alarm: NOSPACE"),
            "etcdserver: no leader".to_owned(),
            "memberID:1 alarm:NONE".to_owned(),
        ];
        let status = interpret(
            Raw {
                errors: errors.to_vec(),
                ..raw()
            },
            None,
            None,
        );
        let member = MemberId(id);
        assert_eq!(
            status.alarms.into_iter().collect::<Vec<_>>(),
            [
                Alarm {
                    member,
                    kind: AlarmKind::NoSpace
                },
                Alarm {
                    member,
                    kind: AlarmKind::Corrupt
                }
            ]
        );
        assert_eq!(
            status.errors,
            ["etcdserver: no leader", "memberID:1 alarm:NONE"]
        );
    }
}
