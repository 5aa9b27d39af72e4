//! The object of a run that a policy asks for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{DynamicObject, ObjectMeta};

use crate::api::API_VERSION;
use crate::api::defrag::{ClusterRef, EtcdDefrag, EtcdDefragSpec};
use crate::api::policy::{EtcdDefragPolicy, EtcdDefragPolicySpec};
use crate::core::key::ObjectKey;
use crate::core::run::Note;
use crate::engine::PolicyView;

/// Why a policy made the run.
const CAUSE: &str = "defragd.dev/cause";
/// The policy that made the run.
const POLICY_LABEL: &str = "defragd.dev/policy";
/// The cluster that the run is about.
const CLUSTER_LABEL: &str = "defragd.dev/cluster";

/// The run that a policy asks for, made after the policy's template.
pub(super) fn new_run(
    key: &ObjectKey,
    policy: &PolicyView,
    spec: EtcdDefragPolicySpec,
    cause: &Note,
) -> Result<DynamicObject, serde_json::Error> {
    let run = EtcdDefragSpec {
        cluster_ref: spec
            .cluster_ref
            .unwrap_or_else(|| ClusterRef::to(&policy.cluster)),
        run: spec.run_template.unwrap_or_default(),
    };
    let metadata = ObjectMeta {
        name: Some(key.name.to_string()),
        namespace: Some(key.namespace.to_string()),
        labels: Some(BTreeMap::from([
            (POLICY_LABEL.to_owned(), label(&policy.key.name)),
            (
                CLUSTER_LABEL.to_owned(),
                label(&policy.cluster.local_name()),
            ),
        ])),
        annotations: Some(BTreeMap::from([(
            CAUSE.to_owned(),
            format!("{}: {}", cause.reason, cause.message),
        )])),
        owner_references: Some(vec![OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: EtcdDefragPolicy::kind(&()).into_owned(),
            name: policy.key.name.to_string(),
            uid: policy.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    let object = serde_json::json!({
        "apiVersion": API_VERSION,
        "kind": EtcdDefrag::kind(&()),
        "metadata": metadata,
        "spec": run,
    });
    serde_json::from_value(object)
}

/// A value of a label that tells names apart: the name itself where it fits.
fn label(name: &str) -> String {
    use sha2::{Digest, Sha256};
    /// Longest value of a label.
    const LIMIT: usize = 63;
    /// Digits of a digest that keep names apart.
    const DIGEST: usize = 10;
    let fitting: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    if fitting == name && name.len() <= LIMIT {
        return fitting;
    }
    let digest = Sha256::digest(name.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let stem: String = fitting.chars().take(LIMIT - DIGEST - 1).collect();
    format!("{stem}-{}", &digest[..DIGEST])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_valid_and_tell_names_apart() {
        assert_eq!(label("main"), "main");
        let long = "a".repeat(253);
        let other = format!("{}b", "a".repeat(252));
        for name in [
            long.as_str(),
            other.as_str(),
            "EtcdCluster.operator.etcd.io/main",
        ] {
            let label = label(name);
            assert!(label.len() <= 63, "{label}");
            assert!(
                label
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                    && label.ends_with(|c: char| c.is_ascii_alphanumeric()),
                "{label}"
            );
        }
        assert_ne!(label(&long), label(&other));
    }
}
