//! What the last evaluation or look said of each object: numbers that go when
//! the object goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Telemetry;
use crate::core::decide::ClusterState;
use crate::core::key::{ClusterKey, ObjectKey, PolicyOn};
use crate::core::reason::Reason;
use crate::core::rule::{Quota, QuotaSource};
use crate::core::run::{Phase, RunRecord};
use crate::core::signal::SignalState;
use crate::core::view::{AlarmKind, MemberView, Observation};

/// What an evaluation of a policy came to.
#[derive(Clone, Copy, Debug)]
pub struct Evaluated<'a> {
    pub state: &'a ClusterState,
    /// What the signal just gave, exactly; the state keeps a coarser number.
    pub value: Option<f64>,
    /// See [`crate::core::decide::blocked_since`].
    pub blocked_since: Option<Timestamp>,
}

/// A run that has not reached its end.
#[derive(Clone, Copy, Debug)]
pub struct Unfinished<'a> {
    pub cluster: &'a ClusterKey,
    pub created_at: Timestamp,
    pub record: &'a RunRecord,
}

/// While it lives, the object may have series; with the last one they go.
///
/// A worker holds it, so that what a worker of a removed object still says, or
/// one that lost its leadership, does not stay for ever.
#[must_use = "the series go with it"]
#[derive(Debug)]
pub struct Series {
    telemetry: Arc<Telemetry>,
    of: Subject,
}

#[derive(Clone, Debug)]
enum Subject {
    Policy(PolicyOn),
    Fleet(ObjectKey),
    Cluster(ClusterKey),
}

impl Series {
    pub(super) fn of_policy(telemetry: Arc<Telemetry>, policy: PolicyOn) -> Self {
        telemetry.numbers().objects.policies.hold(&policy);
        Series {
            telemetry,
            of: Subject::Policy(policy),
        }
    }

    pub(super) fn of_fleet(telemetry: Arc<Telemetry>, fleet: ObjectKey) -> Self {
        telemetry.numbers().objects.fleets.hold(&fleet);
        Series {
            telemetry,
            of: Subject::Fleet(fleet),
        }
    }

    pub(super) fn of_cluster(telemetry: Arc<Telemetry>, cluster: ClusterKey) -> Self {
        telemetry.numbers().objects.clusters.hold(&cluster);
        Series {
            telemetry,
            of: Subject::Cluster(cluster),
        }
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        let objects = &mut self.telemetry.numbers().objects;
        match &self.of {
            Subject::Policy(policy) => objects.policies.release(policy),
            Subject::Fleet(fleet) => objects.fleets.release(fleet),
            Subject::Cluster(cluster) => objects.clusters.release(cluster),
        }
    }
}

/// Numbers by object. Keys and numbers are shared, so that a copy for a scrape
/// costs little more than counting references.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) policies: Shown<PolicyOn, Option<PolicyNumbers>>,
    pub(super) fleets: Shown<ObjectKey, FleetNumbers>,
    pub(super) clusters: Shown<ClusterKey, ClusterNumbers>,
    pub(super) unfinished: BTreeMap<ClusterKey, UnfinishedNumbers>,
}

/// Numbers by key, as long as somebody holds the key.
#[derive(Clone, Debug)]
pub(super) struct Shown<K, N>(BTreeMap<Arc<K>, (usize, Arc<N>)>);

impl<K, N> Default for Shown<K, N> {
    fn default() -> Self {
        Shown(BTreeMap::new())
    }
}

impl<K: Ord + Clone, N: Default> Shown<K, N> {
    fn hold(&mut self, key: &K) {
        match self.0.get_mut(key) {
            Some((holders, _)) => *holders += 1,
            None => drop(self.0.insert(Arc::new(key.clone()), (1, Arc::default()))),
        }
    }

    fn release(&mut self, key: &K) {
        if let Some((holders, _)) = self.0.get_mut(key) {
            *holders -= 1;
            if *holders == 0 {
                self.0.remove(key);
            }
        }
    }

    /// The numbers of a key that somebody holds.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut Arc<N>> {
        self.0.get_mut(key).map(|(_, numbers)| numbers)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<K>, &Arc<N>)> {
        self.0.iter().map(|(key, (_, numbers))| (key, numbers))
    }
}

/// Of a policy that selects its clusters.
#[derive(Clone, Debug, Default)]
pub(super) struct FleetNumbers {
    pub(super) clusters: u64,
    /// Clusters that match beyond the most that a policy serves.
    pub(super) excess: u64,
    /// Series about no cluster of it; `None` when nobody can say.
    pub(super) unmatched: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct PolicyNumbers {
    pub(super) signal: Option<SignalState>,
    pub(super) value: Option<f64>,
    pub(super) decision: Option<Reason>,
    pub(super) firing_since: Option<Timestamp>,
    pub(super) blocked_since: Option<Timestamp>,
    pub(super) blockers_since: Option<Timestamp>,
    pub(super) next_eligible: Option<Timestamp>,
    pub(super) last_run: Option<Timestamp>,
    pub(super) last_success: Option<Timestamp>,
    pub(super) backoff_level: u32,
    pub(super) failure_level: u32,
    pub(super) fallback: bool,
}

impl From<Evaluated<'_>> for PolicyNumbers {
    fn from(evaluated: Evaluated<'_>) -> Self {
        let Evaluated {
            state,
            value,
            blocked_since,
        } = evaluated;
        PolicyNumbers {
            signal: state.signal.as_ref().map(|signal| signal.state),
            value,
            decision: state.decision.as_ref().map(|note| note.reason),
            firing_since: state.firing_since,
            blocked_since,
            blockers_since: state.blocked.as_ref().map(|blocked| blocked.since),
            next_eligible: state.next_eligible,
            last_run: state.last_run.as_ref().map(|run| run.finished_at),
            last_success: state.last_success,
            backoff_level: state.backoff_level,
            failure_level: state.failure_level,
            fallback: state.fallback_active,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ClusterNumbers {
    pub(super) health: Option<Reason>,
    pub(super) observed_at: Option<Timestamp>,
    pub(super) members: Vec<MemberNumbers>,
    pub(super) complete: u64,
    pub(super) failed: u64,
    /// Bytes.
    pub(super) reclaimed: u64,
}

/// A member as last seen; what was not told is absent.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberNumbers {
    pub(super) name: String,
    pub(super) id: String,
    pub(super) up: bool,
    pub(super) db_size: Option<u64>,
    pub(super) in_use: Option<u64>,
    pub(super) quota: Option<u64>,
    pub(super) apply_lag: Option<u64>,
    pub(super) no_space: Option<bool>,
    pub(super) corrupt: Option<bool>,
}

impl ClusterNumbers {
    /// Takes over what was just found out. Without a member list the members that
    /// were known do not vanish: none of them answers, which somebody should hear.
    pub(super) fn observe(&mut self, health: Reason, seen: Option<&Observation>) {
        self.health = Some(health);
        let Some(seen) = seen else {
            self.members.clear();
            return;
        };
        self.observed_at = Some(seen.at);
        match &seen.members {
            Ok(members) => {
                self.members = members.iter().map(|m| member_numbers(m, seen)).collect();
            }
            Err(_) => {
                for member in &mut self.members {
                    *member = MemberNumbers {
                        name: std::mem::take(&mut member.name),
                        id: std::mem::take(&mut member.id),
                        ..MemberNumbers::default()
                    };
                }
            }
        }
    }

    pub(super) fn finish(&mut self, record: &RunRecord) {
        match record.phase {
            Phase::Complete => self.complete += 1,
            _ => self.failed += 1,
        }
        self.reclaimed += record.reclaimed_bytes();
    }
}

fn member_numbers(member: &MemberView, seen: &Observation) -> MemberNumbers {
    let raised = |kind| {
        let alarms = seen.alarms.as_ref().ok()?;
        Some(
            alarms
                .iter()
                .any(|a| a.member == member.id && a.kind == kind),
        )
    };
    let status = member.status.as_ref().ok();
    MemberNumbers {
        name: member.name.clone(),
        id: member.id.to_string(),
        up: status.is_some(),
        db_size: status.map(|s| s.db_size),
        in_use: status.and_then(|s| s.db_size_in_use),
        quota: status.and_then(|s| known_quota(s.quota)),
        apply_lag: status.and_then(crate::core::view::MemberStatus::apply_lag),
        no_space: raised(AlarmKind::NoSpace),
        corrupt: raised(AlarmKind::Corrupt),
    }
}

/// The quota, unless it is etcd's default taken for want of a better number.
fn known_quota(quota: Quota) -> Option<u64> {
    match quota {
        Quota::Known {
            source: QuotaSource::Default,
            ..
        }
        | Quota::None
        | Quota::Unknown => None,
        Quota::Known { bytes, .. } => Some(bytes),
    }
}

/// The unfinished runs on one cluster.
#[derive(Clone, Debug)]
pub(super) struct UnfinishedNumbers {
    pub(super) count: u64,
    pub(super) oldest: Timestamp,
    /// What the run whose turn it is met at the gate.
    pub(super) gate: Option<Reason>,
    /// Whose turn it is: one that began, else the oldest.
    rank: (bool, Timestamp),
}

/// The runs by cluster.
pub(super) fn unfinished<'a>(
    runs: impl Iterator<Item = Unfinished<'a>>,
) -> BTreeMap<ClusterKey, UnfinishedNumbers> {
    let mut by_cluster: BTreeMap<ClusterKey, UnfinishedNumbers> = BTreeMap::new();
    for run in runs {
        let Unfinished {
            cluster,
            created_at,
            record,
        } = run;
        let rank = (record.started_at.is_none(), created_at);
        let gate = record.gate.as_ref().map(|note| note.reason);
        match by_cluster.get_mut(cluster) {
            Some(numbers) => {
                numbers.count += 1;
                numbers.oldest = numbers.oldest.min(created_at);
                if rank < numbers.rank {
                    (numbers.rank, numbers.gate) = (rank, gate);
                }
            }
            None => {
                let numbers = UnfinishedNumbers {
                    count: 1,
                    oldest: created_at,
                    gate,
                    rank,
                };
                by_cluster.insert(cluster.clone(), numbers);
            }
        }
    }
    by_cluster
}
