//! Definitions of the kinds that two other operators have, as far as anybody here looks at them.
//! They are written from what is known of those APIs.

use serde_json::{Value, json};

pub(crate) const COZYSTACK: &str = "etcd-operator.cozystack.io";
pub(crate) const ETCD_IO: &str = "operator.etcd.io";

fn text() -> Value {
    json!({ "type": "string" })
}

fn number() -> Value {
    json!({ "type": "integer", "format": "int64" })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn object(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn reference() -> Value {
    object(json!({ "name": text(), "kind": text(), "group": text() }))
}

fn conditions() -> Value {
    list(object(json!({
        "type": text(),
        "status": text(),
        "reason": text(),
        "message": text(),
        "lastTransitionTime": { "type": "string", "format": "date-time" },
        "observedGeneration": number(),
    })))
}

fn definition(group: &str, version: &str, kind: &str, spec: Value, status: Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": singular },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": object(json!({ "spec": spec, "status": status })) },
            }],
        },
    })
}

fn documents(definitions: &[Value]) -> String {
    let documents: Vec<String> = definitions.iter().map(Value::to_string).collect();
    documents.join("\n---\n")
}

/// `EtcdCluster`, `EtcdMember` and `EtcdDefrag` of cozystack's operator.
pub(crate) fn cozystack() -> String {
    let options = object(json!({
        "quotaBackendBytes": number(),
        "autoCompactionMode": text(),
        "autoCompactionRetention": text(),
        "snapshotCount": number(),
    }));
    let storage = object(json!({ "size": text(), "medium": text() }));
    let client = object(json!({
        "serverSecretRef": reference(),
        "operatorClientSecretRef": reference(),
        "certManager": object(json!({
            "serverIssuerRef": reference(),
            "operatorClientIssuerRef": reference(),
        })),
    }));
    let observed = object(json!({
        "replicas": number(), "version": text(), "storage": storage, "options": options,
    }));
    let cluster = definition(
        COZYSTACK,
        "v1alpha2",
        "EtcdCluster",
        object(json!({
            "replicas": { "type": "integer", "format": "int32", "default": 3, "minimum": 0 },
            "version": text(),
            "storage": storage,
            "options": options,
            "tls": object(json!({ "client": client })),
            "auth": object(json!({
                "enabled": flag(), "rootCredentialsSecretRef": reference(),
            })),
        })),
        object(json!({
            "readyMembers": number(),
            "selector": text(),
            "clusterID": text(),
            "clusterToken": text(),
            "authEnabled": flag(),
            "observed": observed,
            "conditions": conditions(),
        })),
    );
    let member = definition(
        COZYSTACK,
        "v1alpha2",
        "EtcdMember",
        object(json!({
            "clusterName": text(), "version": text(), "dormant": flag(), "options": options,
        })),
        object(json!({
            "podName": text(),
            "podUID": text(),
            "memberID": text(),
            "isVoter": flag(),
            "version": text(),
            "conditions": conditions(),
        })),
    );
    let defrag = definition(
        COZYSTACK,
        "v1alpha2",
        "EtcdDefrag",
        object(json!({ "clusterRef": reference() })),
        object(json!({ "phase": text(), "message": text() })),
    );
    documents(&[cluster, member, defrag])
}

/// `EtcdCluster` of etcd-io's operator.
pub(crate) fn etcd_io() -> String {
    let member = object(json!({
        "name": text(),
        "id": text(),
        "version": text(),
        "isHealthy": flag(),
        "isLearner": flag(),
        "isLeader": flag(),
    }));
    let cluster = definition(
        ETCD_IO,
        "v1alpha1",
        "EtcdCluster",
        object(json!({
            "size": { "type": "integer", "minimum": 1 },
            "version": text(),
            "etcdOptions": list(text()),
            "tls": object(json!({ "provider": text() })),
        })),
        object(json!({
            "observedGeneration": number(),
            "currentReplicas": number(),
            "readyReplicas": number(),
            "memberCount": number(),
            "currentVersion": text(),
            "leaderID": text(),
            "members": list(member),
            "conditions": conditions(),
        })),
    );
    documents(&[cluster])
}
