//! Logs, own metrics, health.

use crate::core::decide::ClusterState;
use crate::core::run::RunRecord;
use crate::core::view::Observation;
use crate::engine::ObjectKey;

/// defragd's own metrics.
#[derive(Debug, Default)]
pub struct Telemetry {}

impl Telemetry {
    pub fn policy_evaluated(&self, _policy: &ObjectKey, _state: &ClusterState) {}
    pub fn forget_policy(&self, _policy: &ObjectKey) {}
    pub fn run_finished(&self, _run: &ObjectKey, _record: &RunRecord) {}
    pub fn target_observed(&self, _target: &ObjectKey, _seen: &Observation) {}
    pub fn forget_target(&self, _target: &ObjectKey) {}
    pub fn error(&self, _what: &'static str) {}
}
