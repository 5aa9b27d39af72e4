//! What the engine reports, as the status of an object.

use jiff::Timestamp;

use crate::api::conditions::{self, types};
use crate::api::policy::EtcdDefragPolicyStatus;
use crate::api::target::EtcdTargetStatus;
use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::engine::{PolicyReport, TargetReport};

/// The policy's status after the report. `cluster` is its name within the
/// namespace; without one only the object itself can be spoken about.
pub(super) fn policy_status(
    cluster: Option<&str>,
    report: &PolicyReport,
    before: &EtcdDefragPolicyStatus,
    now: Timestamp,
) -> EtcdDefragPolicyStatus {
    let generation = Some(report.generation);
    let mut status = match cluster {
        Some(cluster) => {
            EtcdDefragPolicyStatus::from_state(cluster, &report.state, generation, before, now)
        }
        None => EtcdDefragPolicyStatus {
            observed_generation: generation,
            ..before.clone()
        },
    };
    set_ready(
        &mut status.conditions,
        &before.conditions,
        &report.ready,
        Reason::Accepted,
        generation,
        now,
    );
    status
}

/// The target's status after the report.
pub(super) fn target_status(
    report: &TargetReport,
    before: &EtcdTargetStatus,
    now: Timestamp,
) -> EtcdTargetStatus {
    let generation = Some(report.generation);
    let mut status = match &report.seen {
        Some(seen) => EtcdTargetStatus::from_observation(seen, generation, before, now),
        None => EtcdTargetStatus {
            observed_generation: generation,
            ..before.clone()
        },
    };
    set_ready(
        &mut status.conditions,
        &before.conditions,
        &report.ready,
        Reason::ClusterHealthy,
        generation,
        now,
    );
    status
}

/// `Ready` as the engine says it. Its time comes from before: what the status
/// said by itself meanwhile does not count.
fn set_ready(
    list: &mut Vec<conditions::Condition>,
    before: &[conditions::Condition],
    ready: &Note,
    good: Reason,
    generation: Option<i64>,
    now: Timestamp,
) {
    let old = conditions::get(before, types::READY).cloned();
    match (list.iter_mut().find(|c| c.type_ == types::READY), old) {
        (Some(current), Some(old)) => *current = old,
        (Some(_), None) => list.retain(|c| c.type_ != types::READY),
        (None, _) => {}
    }
    conditions::set(
        list,
        types::READY,
        ready.reason == good,
        ready.reason,
        ready.message.clone(),
        now,
        generation,
    );
}
