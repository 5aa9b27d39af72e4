//! Runs that policies make.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::host::{Inner, StandaloneHost};
use super::stored::{CAUSE, Kind, StoredRun};
use crate::api::API_VERSION;
use crate::api::defrag::{EtcdDefragSpec, EtcdDefragStatus};
use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord};
use crate::engine::{HostError, ObjectKey, PolicyView};

impl StandaloneHost {
    /// The administrator's limit on new runs of all policies together.
    pub(super) fn within_limit(&self, at: Timestamp) -> Result<(), HostError> {
        let Some(limit) = self.limits.runs_per_hour else {
            return Ok(());
        };
        let inner = self.inner();
        let lately = |start: Timestamp| at.duration_since(start) < SignedDuration::from_hours(1);
        let stored = inner
            .runs
            .iter()
            .filter(|(_, entry)| entry.stored.owner().is_some())
            .map(|(key, entry)| (&key.namespace, &key.name, entry.stored.created_at()));
        // Runs that are not kept count as well: their policies remember them, also
        // those that were removed.
        let remembered = inner.policies.iter().flat_map(|(key, entry)| {
            let clusters = entry.stored.status.clusters.iter();
            clusters
                .flat_map(|cluster| &cluster.run_starts)
                .map(|start| (&key.namespace, &start.name, start.at.timestamp()))
        });
        let recent: BTreeSet<_> = stored
            .chain(remembered)
            .filter(|(_, _, start)| lately(*start))
            .map(|(namespace, name, _)| (namespace, name))
            .collect();
        let recent = recent.len();
        if recent < limit.get() as usize {
            return Ok(());
        }
        Err(HostError {
            reason: Reason::CreateFailed,
            message: format!(
                "policies made {recent} runs within the last hour, and limits.runsPerHour is {limit}"
            ),
        })
    }
}

/// The run that a policy asks for, made after the policy's template.
pub(super) fn new_run(
    inner: &Inner,
    key: &ObjectKey,
    policy: &PolicyView,
    cause: &Note,
    created_at: Timestamp,
) -> Result<StoredRun, HostError> {
    let refuse = |message: String| HostError {
        reason: Reason::CreateFailed,
        message,
    };
    let entry = inner
        .policies
        .get(&policy.key)
        .filter(|entry| entry.shown)
        .ok_or_else(|| refuse(format!("the policy {} is gone", policy.key)))?;
    let (Some(spec), true) = (
        &entry.stored.spec,
        entry.stored.generation() == policy.generation,
    ) else {
        return Err(refuse(format!(
            "the policy {} changed meanwhile; it is evaluated again",
            policy.key
        )));
    };
    let run = EtcdDefragSpec {
        cluster_ref: spec.cluster_ref.clone(),
        run: spec.run_template.clone().unwrap_or_default(),
    };
    let mut stored = StoredRun::new(Kind::Run, key, Some(run), created_at);
    stored.annotate(CAUSE, Some(format!("{}: {}", cause.reason, cause.message)));
    stored.metadata.owner_references = Some(vec![OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: Kind::Policy.as_str().to_owned(),
        name: policy.key.name.clone(),
        uid: policy.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    let record = RunRecord::default();
    stored.status =
        EtcdDefragStatus::from_record(&record, Some(1), &EtcdDefragStatus::default(), created_at);
    Ok(stored)
}
