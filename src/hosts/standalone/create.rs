//! Runs that policies make.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::host::{Inner, StandaloneHost};
use super::stored::{CAUSE, Kind, StoredRun};
use crate::api::API_VERSION;
use crate::api::defrag::{ClusterRef, EtcdDefragSpec, EtcdDefragStatus};
use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord};
use crate::engine::{HostError, ObjectKey, PolicyView};

impl StandaloneHost {
    /// The runs of the last day that policies remember, also those policies that
    /// were removed.
    pub(super) fn remembered_runs(&self) -> Vec<(ObjectKey, Timestamp)> {
        let inner = self.inner();
        let clusters = inner.policies.iter().flat_map(|(policy, entry)| {
            let clusters = entry.stored.status.clusters.iter();
            clusters.map(move |cluster| (policy, cluster))
        });
        let starts = clusters.flat_map(|(policy, cluster)| {
            cluster.run_starts.iter().map(move |start| {
                let key = ObjectKey {
                    namespace: policy.namespace.clone(),
                    name: start.name.as_str().into(),
                };
                (key, start.at.timestamp())
            })
        });
        starts.collect()
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
        cluster_ref: match &spec.cluster_ref {
            Some(named) => named.clone(),
            None => ClusterRef::to(&policy.cluster),
        },
        run: spec.run_template.clone().unwrap_or_default(),
    };
    let mut stored = StoredRun::new(Kind::Run, key, Some(run), created_at);
    stored.annotate(CAUSE, Some(format!("{}: {}", cause.reason, cause.message)));
    stored.metadata.owner_references = Some(vec![OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: Kind::Policy.as_str().to_owned(),
        name: policy.key.name.to_string(),
        uid: policy.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    let record = RunRecord::default();
    stored.status =
        EtcdDefragStatus::from_record(&record, Some(1), &EtcdDefragStatus::default(), created_at);
    Ok(stored)
}
