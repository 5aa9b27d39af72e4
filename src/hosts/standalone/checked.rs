//! What is stored, parsed into what the engine works with.

use std::sync::Arc;

use super::stored::{DOCUMENT_ERROR, FILE, StoredPolicy, StoredRun, StoredTarget};
use crate::api::StatusError;
use crate::api::defrag::EtcdDefrag;
use crate::api::policy::EtcdDefragPolicy;
use crate::api::target::EtcdTarget;
use crate::api::validate::{self, Place};
use crate::core::decide::Policy;
use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord};
use crate::core::view::ClusterId;
use crate::engine::{ClusterKey, ObjectKey, PolicyView, RunView, TargetView};
use crate::hosts::connection::of_files;
use crate::hosts::fleet::own_series;

fn never_valid() -> String {
    "no document of it could ever be read".to_owned()
}

/// The spec, unless something is wrong with the object.
fn usable<'a, S>(
    spec: Option<&'a S>,
    blocked: Option<&str>,
    error: Option<&str>,
) -> Result<&'a S, String> {
    match (blocked, error, spec) {
        (Some(why), _, _) | (None, Some(why), _) => Err(why.to_owned()),
        (None, None, Some(spec)) => Ok(spec),
        (None, None, None) => Err(never_valid()),
    }
}

/// The host gives it a version when it shows it.
pub(super) fn target_view(stored: &StoredTarget, blocked: Option<&str>) -> TargetView {
    let spec = usable(
        stored.spec.as_ref(),
        blocked,
        stored.annotation(DOCUMENT_ERROR),
    )
    .and_then(|spec| {
        let object = EtcdTarget {
            metadata: stored.metadata.clone(),
            spec: spec.clone(),
            status: None,
        };
        let target = validate::target(&object, Place::Standalone)
            .map_err(|errors| validate::summary(&errors))?;
        of_files(&target)
            .map(Arc::new)
            .map_err(|error| error.to_string())
    });
    TargetView {
        key: ClusterKey::target(stored.key()),
        generation: stored.generation(),
        version: 0,
        spec: spec.map_err(|errors| Note::new(Reason::InvalidSpec, errors)),
        cluster_id: cluster_id(stored),
        busy: None,
        remarks: Vec::new(),
    }
}

/// Whether everything that was seen of the target can be read.
pub(super) fn target_status(stored: &StoredTarget) -> Result<(), StatusError> {
    match (&stored.status.cluster_id, cluster_id(stored)) {
        (Some(text), None) => Err(StatusError {
            path: "status.clusterID".to_owned(),
            value: format!("{:?}", text.chars().take(64).collect::<String>()),
            wanted: "an id in hexadecimal",
        }),
        _ => Ok(()),
    }
}

pub(super) fn cluster_id(stored: &StoredTarget) -> Option<ClusterId> {
    stored.status.cluster_id.as_deref()?.parse().ok()
}

/// Whether the policy selects its clusters.
pub(super) fn selects(stored: &StoredPolicy) -> bool {
    let spec = stored.spec.as_ref();
    spec.is_some_and(|spec| spec.cluster_ref.is_none() && spec.cluster_selector.is_some())
}

/// The validated spec of a policy, or every error in one text.
pub(super) fn policy_spec(
    stored: &StoredPolicy,
    blocked: Option<&str>,
) -> Result<Arc<Policy>, String> {
    usable(
        stored.spec.as_ref(),
        blocked,
        stored.annotation(DOCUMENT_ERROR),
    )
    .and_then(|spec| {
        let object = EtcdDefragPolicy {
            metadata: stored.metadata.clone(),
            spec: spec.clone(),
            status: None,
        };
        validate::policy(&object, Place::Standalone)
            .map(Arc::new)
            .map_err(|errors| validate::summary(&errors))
    })
}

/// The name of the cluster that a policy is about; `None` when it names none.
pub(super) fn cluster_name(stored: &StoredPolicy) -> Option<&str> {
    let cluster = stored.spec.as_ref()?.cluster_ref.as_ref()?;
    Some(&cluster.name)
}

/// Of a policy that names its cluster. `named` is the cluster of a document that
/// could not be used as a whole.
pub(super) fn policy_view(
    stored: &StoredPolicy,
    blocked: Option<&str>,
    named: Option<&str>,
) -> PolicyView {
    let key = stored.key();
    let cluster = ClusterKey::target(ObjectKey {
        namespace: key.namespace.clone(),
        name: cluster_name(stored).or(named).unwrap_or_default().into(),
    });
    let spec = policy_spec(stored, blocked);
    PolicyView {
        series: own_series(&spec, &cluster),
        uid: stored.metadata.uid.clone().unwrap_or_default(),
        generation: stored.generation(),
        state: stored
            .status
            .state(&cluster.local_name())
            .unwrap_or_default(),
        cluster,
        spec,
        key,
    }
}

/// Of a run that was accepted, and whose status was found readable.
pub(super) fn run_view(stored: &StoredRun) -> RunView {
    let key = stored.key();
    let spec = match &stored.spec {
        Some(spec) => {
            let object = EtcdDefrag {
                metadata: stored.metadata.clone(),
                spec: spec.clone(),
                status: None,
            };
            validate::run(&object, Place::Standalone)
                .map(Arc::new)
                .map_err(|errors| validate::summary(&errors))
        }
        None => Err(never_valid()),
    };
    let from_file = stored.annotation(FILE).is_some();
    RunView {
        generation: stored.generation(),
        cluster: ClusterKey::target(ObjectKey {
            namespace: key.namespace.clone(),
            name: stored
                .spec
                .as_ref()
                .map_or("", |spec| &spec.cluster_ref.name)
                .into(),
        }),
        owner: stored.owner().map(|owner| ObjectKey {
            namespace: key.namespace.clone(),
            name: owner.name.as_str().into(),
        }),
        created_at: stored.created_at(),
        spec,
        record: RunRecord::try_from(&stored.status).unwrap_or_default(),
        deleting: stored.metadata.deletion_timestamp.is_some(),
        removable: !from_file,
        key,
    }
}

/// Nothing that is remembered of a policy can be misread.
pub(super) fn policy_status(_: &StoredPolicy) -> Result<(), StatusError> {
    Ok(())
}

/// Whether everything that is recorded of the run can be read.
pub(super) fn run_status(stored: &StoredRun) -> Result<(), StatusError> {
    RunRecord::try_from(&stored.status).map(drop)
}
