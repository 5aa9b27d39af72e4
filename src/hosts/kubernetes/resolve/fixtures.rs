//! Objects as the operators write them, for the tests.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};
use url::Url;

use crate::core::key::ObjectKey;

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "shop".into(),
        name: name.into(),
    }
}

pub(super) fn object(value: Value) -> Arc<DynamicObject> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// Sets what is at the pointer; missing objects on the way are made.
pub(super) fn set(value: &mut Value, pointer: &str, new: Value) {
    let mut at = value;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/");
        at = match at {
            Value::Array(items) => &mut items[step.parse::<usize>().unwrap()],
            other => {
                if !other.is_object() {
                    *other = Value::Object(Map::new());
                }
                &mut other[step]
            }
        };
    }
    *at = new;
}

pub(super) fn urls(urls: &[Url]) -> Vec<&str> {
    urls.iter()
        .map(|url| url.as_str().trim_end_matches('/'))
        .collect()
}

/// Three voters with TLS from cert-manager, as they are long after the bootstrap.
pub(super) fn cozystack_cluster() -> Value {
    json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2",
        "kind": "EtcdCluster",
        "metadata": {"name": "etcd", "namespace": "shop", "generation": 4},
        "spec": {
            "replicas": 3,
            "version": "3.6.5",
            "storage": {"size": "10Gi", "medium": ""},
            "options": {"quotaBackendBytes": 8_000_000_000_u64, "autoCompactionRetention": "5m"},
            "tls": {"client": {"certManager": {
                "serverIssuerRef": {"name": "ca", "kind": "Issuer"},
                "operatorClientIssuerRef": {"name": "ca", "kind": "Issuer"},
            }}},
        },
        "status": {
            "readyMembers": 3,
            "selector": "etcd-operator.cozystack.io/cluster=etcd",
            "clusterID": "769f1c9e0d723d0b",
            "clusterToken": "shop-etcd",
            "observed": {
                "replicas": 3,
                "version": "3.6.5",
                "storage": {"size": "10Gi", "medium": ""},
                "options": {"quotaBackendBytes": 8_000_000_000_u64, "autoCompactionRetention": "5m"},
            },
            "conditions": [
                {"type": "Available", "status": "True", "reason": "QuorumHealthy", "message": "All members are ready"},
                {"type": "Progressing", "status": "False", "reason": "Reconciled", "message": ""},
                {"type": "Degraded", "status": "False", "reason": "QuorumHealthy", "message": ""},
            ],
        },
    })
}

/// Its members: one adopted from another operator, two with random names.
pub(super) fn cozystack_members() -> Vec<Value> {
    ["etcd-0", "etcd-fx2lq", "etcd-w9m4k"]
        .map(|name| {
            json!({
                "apiVersion": "etcd-operator.cozystack.io/v1alpha2",
                "kind": "EtcdMember",
                "metadata": {
                    "name": name,
                    "namespace": "shop",
                    "labels": {
                        "app.kubernetes.io/name": "etcd",
                        "app.kubernetes.io/component": name,
                        "etcd-operator.cozystack.io/cluster": "etcd",
                    },
                },
                "spec": {
                    "clusterName": "etcd",
                    "version": "3.6.5",
                    "options": {"quotaBackendBytes": 8_000_000_000_u64},
                },
                "status": {
                    "memberID": "ae36f238164a08ad",
                    "podName": name,
                    "isVoter": true,
                    "version": "3.6.5",
                    "conditions": [{"type": "Ready", "status": "True", "reason": "PodReady"}],
                },
            })
        })
        .into()
}

pub(super) fn cozystack_defrag(phase: &str) -> Value {
    json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2",
        "kind": "EtcdDefrag",
        "metadata": {"name": "nightly", "namespace": "shop"},
        "spec": {"clusterRef": {"name": "etcd"}, "rule": {"all": true}},
        "status": {"phase": phase},
    })
}

/// Three plain members, as they are when nothing happens.
pub(super) fn etcd_io_cluster() -> Value {
    json!({
        "apiVersion": "operator.etcd.io/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": {"name": "etcd", "namespace": "shop", "generation": 2},
        "spec": {"size": 3, "version": "v3.6.5", "etcdOptions": ["--snapshot-count=5000"]},
        "status": {
            "observedGeneration": 2,
            "currentReplicas": 3,
            "readyReplicas": 3,
            "memberCount": 3,
            "currentVersion": "3.6.5",
            "leaderID": "8e9e05c52164694d",
            "members": [
                {"name": "etcd-0", "id": "8e9e05c52164694d", "version": "3.6.5", "isHealthy": true, "isLeader": true},
                {"name": "etcd-1", "id": "91bc3c398fb3c146", "version": "3.6.5", "isHealthy": true},
                {"name": "etcd-2", "id": "fd422379fda50e48", "version": "3.6.5", "isHealthy": true},
            ],
            "conditions": [
                {"type": "Available", "status": "True", "reason": "ClusterAvailable", "message": "3/3"},
                {"type": "Progressing", "status": "False", "reason": "ClusterStable", "message": "stable"},
                {"type": "Degraded", "status": "False", "reason": "ClusterHealthy", "message": ""},
            ],
        },
    })
}
