//! Conditions, as Kubernetes shapes them.
#![expect(
    unreachable_pub,
    reason = "kube's derive repeats each public struct inside a function"
)]

use jiff::Timestamp;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalar::Time;
use crate::core::reason::Reason;

/// Longest message of a condition, in bytes, as `metav1.Condition` allows.
pub const MAX_MESSAGE: usize = 32 * 1024;

/// The types of condition that the three kinds carry.
pub mod types {
    /// Target, policy: the object is valid and used.
    pub const READY: &str = "Ready";
    /// Policy: the signal fires.
    pub const FIRING: &str = "Firing";
    /// Policy: the probe decides because the source fails.
    pub const FALLBACK: &str = "Fallback";
    /// Policy: blockers hold back a run that is due.
    pub const BLOCKED: &str = "Blocked";
    /// Policy: the cluster rests after a run.
    pub const COOLING_DOWN: &str = "CoolingDown";
    /// Policy: several runs in a row failed.
    pub const DEGRADED: &str = "Degraded";
    /// Policy of many clusters: every series is about one of them.
    pub const SERIES_MATCHED: &str = "SeriesMatched";
    /// Run: it holds the cluster.
    pub const ADMITTED: &str = "Admitted";
    /// Run: the verdict of the gate.
    pub const HEALTHY: &str = "Healthy";
    /// Run: the result.
    pub const SUCCEEDED: &str = "Succeeded";
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        }
    }
}

/// One condition of an object, with the meaning of `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// A word from defragd's closed list of reasons.
    pub reason: String,
    /// A sentence for a person.
    pub message: String,
    /// When the status last changed.
    pub last_transition_time: Time,
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Sets the condition `type_`. `lastTransitionTime` moves only when the status
/// changes; the list keeps its order, new types go to the end.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: impl Into<ConditionStatus>,
    reason: Reason,
    message: impl Into<String>,
    now: Timestamp,
    generation: Option<i64>,
) {
    let status = status.into();
    let mut message = message.into();
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    }
    let mut condition = Condition {
        type_: type_.to_owned(),
        status,
        reason: reason.as_str().to_owned(),
        message,
        last_transition_time: now.into(),
        observed_generation: generation,
    };
    match conditions.iter_mut().find(|c| c.type_ == type_) {
        Some(existing) => {
            if existing.status == status {
                condition.last_transition_time = existing.last_transition_time;
            }
            *existing = condition;
        }
        None => conditions.push(condition),
    }
}

/// The condition of that type, when it has been set.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn transition_time_moves_with_the_status_only() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            types::READY,
            true,
            Reason::Accepted,
            "a",
            at(1),
            Some(1),
        );
        set(
            &mut conditions,
            types::FIRING,
            false,
            Reason::SignalNotFiring,
            "b",
            at(1),
            Some(1),
        );
        set(
            &mut conditions,
            types::READY,
            true,
            Reason::Accepted,
            "c",
            at(2),
            Some(2),
        );
        let ready = get(&conditions, types::READY).unwrap();
        assert_eq!(ready.last_transition_time, Time::from(at(1)));
        assert_eq!(
            (ready.message.as_str(), ready.observed_generation),
            ("c", Some(2))
        );

        set(
            &mut conditions,
            types::READY,
            false,
            Reason::InvalidSpec,
            "d",
            at(3),
            Some(3),
        );
        let ready = get(&conditions, types::READY).unwrap();
        assert_eq!(ready.last_transition_time, Time::from(at(3)));
        assert_eq!(conditions.len(), 2);
        assert_eq!(conditions[0].type_, types::READY, "the order stays");
    }
}
