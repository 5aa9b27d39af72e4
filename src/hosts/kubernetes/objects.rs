//! An object as the API server gives it, parsed into what the engine works with.
//! Whatever is wrong with one object is said about that object.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::defrag::{ClusterRef, EtcdDefrag, EtcdDefragSpec, EtcdDefragStatus};
use crate::api::policy::{EtcdDefragPolicy, EtcdDefragPolicySpec, EtcdDefragPolicyStatus};
use crate::api::target::{EtcdTarget, EtcdTargetSpec, EtcdTargetStatus};
use crate::api::validate::{self, Place};
use crate::core::decide::Policy;
use crate::core::key::{ClusterKey, Name, ObjectKey};
use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord};
use crate::core::target::Target;
use crate::core::view::ClusterId;
use crate::engine::{PolicyView, RunView};
use crate::hosts::fleet::own_series;

/// Keeps a run that has touched its cluster until its end is recorded.
pub(super) const FINALIZER: &str = "defragd.dev/sweep";

/// One of our kinds.
pub(super) trait Kind: Send + Sync + 'static {
    type Object: Resource<DynamicType = ()>;
    type Status: Clone
        + Default
        + PartialEq
        + fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;

    /// As in metrics and rules.
    const PLURAL: &'static str;

    fn api_resource() -> ApiResource {
        ApiResource::erase::<Self::Object>(&())
    }
}

#[derive(Debug)]
pub(super) enum Policies {}
#[derive(Debug)]
pub(super) enum Runs {}
#[derive(Debug)]
pub(super) enum Targets {}

impl Kind for Policies {
    const PLURAL: &'static str = "etcddefragpolicies";
    type Object = EtcdDefragPolicy;
    type Status = EtcdDefragPolicyStatus;
}

impl Kind for Runs {
    const PLURAL: &'static str = "etcddefrags";
    type Object = EtcdDefrag;
    type Status = EtcdDefragStatus;
}

impl Kind for Targets {
    const PLURAL: &'static str = "etcdtargets";
    type Object = EtcdTarget;
    type Status = EtcdTargetStatus;
}

/// The version of an object: it grows with each change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version(pub(super) String);

impl Version {
    /// True when `self` is older. Versions of one object can be compared as
    /// numbers; what is no number is not older.
    pub(super) fn is_older_than(&self, other: &Version) -> bool {
        match (self.0.parse::<u128>(), other.0.parse::<u128>()) {
            (Ok(own), Ok(other)) => own < other,
            _ => false,
        }
    }
}

pub(super) fn key_of(object: &DynamicObject) -> ObjectKey {
    ObjectKey {
        namespace: object
            .metadata
            .namespace
            .as_deref()
            .unwrap_or_default()
            .into(),
        name: object.metadata.name.as_deref().unwrap_or_default().into(),
    }
}

pub(super) fn version_of(object: &DynamicObject) -> Version {
    Version(object.metadata.resource_version.clone().unwrap_or_default())
}

pub(super) fn uid_of(object: &DynamicObject) -> String {
    object.metadata.uid.clone().unwrap_or_default()
}

pub(super) fn generation_of(object: &DynamicObject) -> i64 {
    object.metadata.generation.unwrap_or(1)
}

pub(super) fn is_deleting(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

pub(super) fn has_finalizer(object: &DynamicObject) -> bool {
    let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|f| f == FINALIZER)
}

pub(super) fn owner_of(object: &DynamicObject) -> Option<&OwnerReference> {
    let owners = object.metadata.owner_references.as_deref()?;
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// The policy that made the run.
fn policy_of(object: &DynamicObject) -> Option<ObjectKey> {
    let kind = EtcdDefragPolicy::kind(&());
    let owner = owner_of(object)
        .filter(|owner| owner.kind == kind && owner.api_version == crate::api::API_VERSION)?;
    Some(ObjectKey {
        name: owner.name.as_str().into(),
        ..key_of(object)
    })
}

/// A part of the object, or what is wrong with it.
fn part<T: DeserializeOwned>(object: &DynamicObject, name: &str) -> Result<Option<T>, String> {
    match object.data.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => serde_path_to_error::deserialize(value)
            .map(Some)
            .map_err(|error| format!("{name}.{}: {}", error.path(), error.inner())),
    }
}

fn spec<T: DeserializeOwned>(object: &DynamicObject) -> Result<T, String> {
    part(object, "spec")?.ok_or_else(|| "spec: it is missing; add it".to_owned())
}

/// The status; one that was never written is empty.
pub(super) fn status<K: Kind>(object: &DynamicObject) -> Result<K::Status, String> {
    Ok(part(object, "status")?.unwrap_or_default())
}

/// The cluster that the object is about, also when other parts of its spec
/// cannot be read.
pub(super) fn cluster_of(key: &ObjectKey, object: &DynamicObject) -> ClusterKey {
    let cluster_ref = object.data.pointer("/spec/clusterRef");
    let parsed = cluster_ref.map(ClusterRef::deserialize);
    match parsed {
        Some(Ok(cluster_ref)) => cluster_ref.key(key.namespace.clone()),
        Some(Err(_)) | None => ClusterKey::target(ObjectKey {
            namespace: key.namespace.clone(),
            name: Name::default(),
        }),
    }
}

/// Whether a policy selects its clusters in place of naming one.
pub(super) fn selects(object: &DynamicObject) -> bool {
    let given = |field: &str| {
        let value = object.data.pointer(field);
        value.is_some_and(|value| !value.is_null())
    };
    given("/spec/clusterSelector") && !given("/spec/clusterRef")
}

/// What the object's metadata holds for validation.
fn metadata(object: &DynamicObject) -> ObjectMeta {
    ObjectMeta {
        managed_fields: None,
        ..object.metadata.clone()
    }
}

/// The target as described, or what is wrong with the description.
pub(super) fn target(object: &DynamicObject) -> Result<Arc<Target>, Note> {
    let parsed = spec::<EtcdTargetSpec>(object).and_then(|spec| {
        let object = EtcdTarget {
            metadata: metadata(object),
            spec,
            status: None,
        };
        validate::target(&object, Place::Kubernetes).map_err(|errors| validate::summary(&errors))
    });
    parsed
        .map(Arc::new)
        .map_err(|problem| Note::new(Reason::InvalidSpec, problem))
}

/// The policy's spec as it is stored.
pub(super) fn policy_spec(object: &DynamicObject) -> Result<EtcdDefragPolicySpec, String> {
    spec(object)
}

/// The validated spec of a policy, or every error in one text.
pub(super) fn valid_policy(
    object: &DynamicObject,
    status: &Result<EtcdDefragPolicyStatus, String>,
) -> Result<Arc<Policy>, String> {
    let spec = spec::<EtcdDefragPolicySpec>(object)?;
    // A policy that has forgotten its cooldown must not start anything.
    if let Err(problem) = status {
        return Err(format!(
            "{problem}; restore it, or remove the status to start over"
        ));
    }
    let object = EtcdDefragPolicy {
        metadata: metadata(object),
        spec,
        status: None,
    };
    validate::policy(&object, Place::Kubernetes)
        .map(Arc::new)
        .map_err(|errors| validate::summary(&errors))
}

/// The policy with what is remembered of it and the cluster that it names.
pub(super) fn policy_view(
    key: &ObjectKey,
    object: &DynamicObject,
    status: &Result<EtcdDefragPolicyStatus, String>,
    cluster: &ClusterKey,
    spec: &Result<Arc<Policy>, String>,
) -> PolicyView {
    let remembered = status.as_ref().ok();
    let state = remembered.and_then(|status| status.state(&cluster.local_name()));
    PolicyView {
        key: key.clone(),
        uid: uid_of(object),
        generation: generation_of(object),
        cluster: cluster.clone(),
        series: own_series(spec, cluster),
        spec: spec.clone(),
        state: state.unwrap_or_default(),
    }
}

/// A run whose record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) cluster: ClusterKey,
    /// As its status says, as far as that can be understood.
    pub(super) cluster_id: Option<ClusterId>,
    pub(super) problem: String,
}

/// The run with what is recorded of it.
///
/// # Errors
/// When the record cannot be read: then nobody can say what goes on.
pub(super) fn run_view(
    key: &ObjectKey,
    object: &DynamicObject,
    status: &Result<EtcdDefragStatus, String>,
) -> Result<RunView, Lost> {
    let cluster = cluster_of(key, object);
    let record = match status {
        Ok(status) => RunRecord::try_from(status).map_err(|error| error.to_string()),
        Err(problem) => Err(problem.clone()),
    };
    let record = match record {
        Ok(record) => record,
        Err(problem) => {
            let id = object.data.pointer("/status/clusterID");
            return Err(Lost {
                cluster,
                cluster_id: id.and_then(Value::as_str).and_then(|id| id.parse().ok()),
                problem: format!("EtcdDefrag {key}: {problem}"),
            });
        }
    };
    let spec = spec::<EtcdDefragSpec>(object).and_then(|spec| {
        let object = EtcdDefrag {
            metadata: metadata(object),
            spec,
            status: None,
        };
        validate::run(&object, Place::Kubernetes)
            .map(Arc::new)
            .map_err(|errors| validate::summary(&errors))
    });
    let created = object.metadata.creation_timestamp.as_ref();
    Ok(RunView {
        generation: generation_of(object),
        cluster,
        owner: policy_of(object),
        created_at: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        spec,
        record,
        deleting: is_deleting(object),
        removable: true,
        key: key.clone(),
    })
}
