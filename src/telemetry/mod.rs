//! Logs, own metrics, health.
//!
//! The engine and the hosts tell [`Telemetry`] what happened; it keeps numbers
//! and nothing else, and never fails or waits.

pub mod http;
pub mod logs;
mod metrics;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::core::decide::ClusterState;
use crate::core::key::ObjectKey;
use crate::core::run::{Outcome, RunRecord};
use crate::core::view::{AlarmKind, Observation};
use crate::signals::Sources;

use self::metrics::{Histogram, MemberNumbers, Numbers, PolicyNumbers};

/// How long the engine may take for a round before the process counts as stuck.
/// A round takes 5 s when nothing happens, and waits for the disk at most.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// Upper bounds of a member's defragmentation time, in seconds: from an empty
/// file to the largest that etcd supports on a slow disk.
const MEMBER_SECONDS: [f64; 12] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
];

/// defragd's own metrics and health.
#[derive(Debug)]
pub struct Telemetry {
    sources: Option<Arc<Sources>>,
    numbers: Mutex<Numbers>,
    health: Mutex<Health>,
}

#[derive(Debug)]
struct Health {
    started: Instant,
    ready: bool,
    last_round: Option<Instant>,
}

impl Default for Telemetry {
    fn default() -> Self {
        let numbers = Numbers {
            member_seconds: Histogram::new(&MEMBER_SECONDS),
            ..Numbers::default()
        };
        Telemetry {
            sources: None,
            numbers: Mutex::new(numbers),
            health: Mutex::new(Health {
                started: Instant::now(),
                ready: false,
                last_round: None,
            }),
        }
    }
}

impl Telemetry {
    /// With the counts of these sources.
    pub fn new(sources: Arc<Sources>) -> Self {
        Telemetry {
            sources: Some(sources),
            ..Telemetry::default()
        }
    }

    // Numbers under a lock are written one by one; none depends on another.
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A policy was evaluated; `value` is what its signal just gave, exactly.
    pub fn policy_evaluated(&self, policy: &ObjectKey, state: &ClusterState, value: Option<f64>) {
        let mut numbers = self.numbers();
        let last = state.last_run.as_ref();
        let success = last.filter(|run| run.succeeded).map(|run| run.finished_at);
        // What was known of an earlier success stays when the last run failed.
        let earlier = numbers
            .policies
            .get(policy)
            .and_then(|known| known.last_success);
        numbers.policies.insert(
            policy.clone(),
            PolicyNumbers {
                signal: state.signal.as_ref().map(|signal| signal.state),
                value,
                decision: state.decision.as_ref().map(|note| note.reason),
                firing_since: state.firing_since,
                next_eligible: state.next_eligible,
                last_run: last.map(|run| run.finished_at),
                last_success: success.or(earlier),
                backoff_level: state.backoff_level,
                failure_level: state.failure_level,
                fallback: state.fallback_active,
            },
        );
    }

    /// The policy is gone, and with it its series.
    pub fn forget_policy(&self, policy: &ObjectKey) {
        self.numbers().policies.remove(policy);
    }

    /// A run reached its end.
    pub fn run_finished(&self, _run: &ObjectKey, record: &RunRecord) {
        let Some(result) = &record.result else { return };
        let mut numbers = self.numbers();
        *numbers
            .runs
            .entry((record.phase.as_str(), result.reason))
            .or_default() += 1;
        numbers.reclaimed += record.reclaimed_bytes();
        for member in record
            .members
            .iter()
            .filter(|m| m.outcome == Outcome::Defragmented)
        {
            if let (Some(started), Some(finished)) = (member.started_at, member.finished_at) {
                numbers
                    .member_seconds
                    .observe(finished.duration_since(started).as_secs_f64());
            }
        }
    }

    /// A target was looked at.
    pub fn target_observed(&self, target: &ObjectKey, seen: &Observation) {
        let raised = |id, kind| {
            let listed = seen.alarms.as_ref().ok();
            listed.map(|alarms| alarms.iter().any(|a| a.member == id && a.kind == kind))
        };
        let members = seen.members.iter().flatten().map(|member| {
            let status = member.status.as_ref().ok();
            MemberNumbers {
                name: member.name.clone(),
                id: member.id,
                up: status.is_some(),
                db_size: status.map(|s| s.db_size),
                in_use: status.and_then(|s| s.db_size_in_use),
                quota: status.and_then(|s| metrics::known_quota(s.quota)),
                apply_lag: status.and_then(crate::core::view::MemberStatus::apply_lag),
                no_space: raised(member.id, AlarmKind::NoSpace),
                corrupt: raised(member.id, AlarmKind::Corrupt),
            }
        });
        let members = members.collect();
        self.numbers()
            .targets
            .insert(target.clone(), (seen.at, members));
    }

    /// The target is gone, and with it its series.
    pub fn forget_target(&self, target: &ObjectKey) {
        self.numbers().targets.remove(target);
    }

    pub fn leader(&self, _leads: bool) {}

    pub fn api_request(&self, _v: &'static str, _r: &'static str, _c: Option<u16>, _d: Duration) {}

    pub fn watch_failed(&self, _kind: &'static str) {}

    pub fn watched(&self, _kind: &'static str, _count: usize) {}

    /// Something went wrong that is not an outcome of a run.
    pub fn error(&self, what: &'static str) {
        *self.numbers().errors.entry(what).or_default() += 1;
    }

    /// An object was written to the state folder, or could not be.
    pub fn state_written(&self, done: bool) {
        let mut numbers = self.numbers();
        if done {
            numbers.writes_done += 1;
        } else {
            numbers.writes_failed += 1;
        }
    }

    /// The engine has begun a round over all objects.
    pub fn round(&self, at: Timestamp) {
        self.numbers().last_round = Some(at);
        self.health().last_round = Some(Instant::now());
    }

    /// What was stored is known, and the objects have been read.
    pub fn ready(&self) {
        self.health().ready = true;
    }

    /// Whether the process is alive, or what is wrong.
    pub fn alive(&self) -> Result<(), Stuck> {
        let health = self.health();
        let since = health.last_round.unwrap_or(health.started).elapsed();
        if since <= STUCK_AFTER {
            Ok(())
        } else {
            Err(Stuck { since })
        }
    }

    /// Whether the process does its work.
    pub fn is_ready(&self) -> bool {
        self.health().ready
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// None in practice: writing to a `String` does not fail.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let stats = self
            .sources
            .as_ref()
            .map(|sources| sources.stats())
            .unwrap_or_default();
        let numbers = self.numbers().clone();
        metrics::render(numbers, stats)
    }
}

/// The engine has not come round for too long.
#[derive(Debug, thiserror::Error)]
#[error("the engine has not begun a round for {since:?}, at most {STUCK_AFTER:?} are expected")]
pub struct Stuck {
    since: Duration,
}

/// Counts by a label.
type Counts<K> = BTreeMap<K, u64>;
