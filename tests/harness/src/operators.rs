//! What two other operators and the kubelet have in an API server: their kinds, as far as anybody
//! here looks at them, and what they say about their objects. It is written from what is known of
//! those APIs.

use serde_json::{Value, json};

use crate::{Case, Cluster, Error};

/// The API group of cozystack's operator.
pub const COZYSTACK: &str = "etcd-operator.cozystack.io";
/// The API group of etcd-io's operator.
pub const ETCD_IO: &str = "operator.etcd.io";

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

/// The definitions of `EtcdCluster`, `EtcdMember` and `EtcdDefrag` of cozystack's operator.
#[must_use]
pub fn cozystack() -> String {
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

/// The definition of `EtcdCluster` of etcd-io's operator.
#[must_use]
pub fn etcd_io() -> String {
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

/// The version of the API that such a group has.
fn version(group: &str) -> &'static str {
    if group == COZYSTACK {
        "v1alpha2"
    } else {
        "v1alpha1"
    }
}

/// An object of another operator's.
#[must_use]
pub fn theirs(group: &str, kind: &str, name: &str, labels: &Value, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{group}/{}", version(group)),
        "kind": kind,
        "metadata": { "name": name, "labels": labels },
        "spec": spec,
    })
}

/// The labels that cozystack's operator gives a member of a cluster, and its pod.
#[must_use]
pub fn cozystack_labels(cluster: &str, member: &str) -> Value {
    json!({
        "app.kubernetes.io/name": "etcd",
        "app.kubernetes.io/component": member,
        "etcd-operator.cozystack.io/cluster": cluster,
        "etcd-operator.cozystack.io/role": "voter",
    })
}

/// What cozystack's operator says about a cluster that it is changing, or not any more.
#[must_use]
pub fn cozystack_status(cluster: &Cluster, changing: bool) -> Value {
    let members = cluster.members().len();
    json!({
        "readyMembers": members,
        "clusterID": format!("{:x}", cluster.id()),
        "observed": { "replicas": members, "version": "3.6.16" },
        "conditions": [progressing(changing, "SpecChanged", "Reconciled")],
    })
}

/// What etcd-io's operator says about a cluster that it is changing, or not any more.
#[must_use]
pub fn etcd_io_status(cluster: &Cluster, changing: bool) -> Value {
    let members = cluster.members().len();
    json!({
        "observedGeneration": 1,
        "currentReplicas": members,
        "readyReplicas": members,
        "memberCount": members,
        "currentVersion": "3.6.16",
        "conditions": [progressing(changing, "ScalingInProgress", "ClusterStable")],
    })
}

fn progressing(changing: bool, why: &str, why_not: &str) -> Value {
    json!({
        "type": "Progressing",
        "status": if changing { "True" } else { "False" },
        "reason": if changing { why } else { why_not },
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// The path of another operator's object; `kind` in the words of paths, `etcdclusters` for one.
#[must_use]
pub fn path_of_theirs(namespace: &str, group: &str, kind: &str, name: &str) -> String {
    let version = version(group);
    format!("/apis/{group}/{version}/namespaces/{namespace}/{kind}/{name}")
}

/// Says what the other operator would say about its object.
///
/// # Errors
/// With what the API server has against it.
pub async fn say(
    case: &Case<'_>,
    group: &str,
    kind: &str,
    name: &str,
    status: &Value,
) -> Result<(), Error> {
    let path = path_of_theirs(case.namespace, group, kind, name);
    let patch = json!({ "status": status });
    let said = case.api.patch(&format!("{path}/status"), &patch).await;
    said.map(drop)
}

/// What cozystack's operator says about a member that has joined.
#[must_use]
pub fn cozystack_member_status(cluster: &Cluster, i: usize, pod: &str) -> Value {
    let id = format!("{:016x}", cluster.member(i).id());
    json!({ "memberID": id, "podName": pod, "isVoter": true })
}

/// The address of a member that has one of its own.
#[must_use]
pub fn address(cluster: &Cluster, i: usize) -> String {
    cluster.member(i).address().ip().to_string()
}

/// A pod with etcd in it.
#[must_use]
pub fn pod(name: &str, labels: &Value, args: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [{ "name": "etcd", "image": "etcd:3.6.16", "args": args }] },
    })
}

/// Says what the kubelet would say about a pod that runs.
///
/// # Errors
/// With what the API server has against it.
pub async fn pod_runs(case: &Case<'_>, name: &str, ip: &str, ready: bool) -> Result<(), Error> {
    let path = format!("/api/v1/namespaces/{}/pods/{name}/status", case.namespace);
    let ready = if ready { "True" } else { "False" };
    let status = json!({
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{ "ip": ip }],
        "conditions": [{ "type": "Ready", "status": ready }],
    });
    let patch = json!({ "status": status });
    case.api.patch(&path, &patch).await.map(drop)
}
