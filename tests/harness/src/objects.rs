//! Objects as people write them, for either host.

use jiff::Timestamp;
use serde_json::{Value, json};

/// An object of defragd's own kinds.
#[must_use]
pub fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": kind,
        "metadata": { "name": name },
        "spec": spec,
    })
}

/// A target by endpoints.
#[must_use]
pub fn target(name: &str, endpoints: &[String]) -> Value {
    object("EtcdTarget", name, &json!({ "endpoints": endpoints }))
}

/// A policy that always fires, quick, with a long cooldown. `spec` adds and replaces fields.
#[must_use]
pub fn policy(name: &str, target: &str, spec: &Value) -> Value {
    let whole = json!({
        "clusterRef": { "name": target },
        "signal": { "probe": { "rule": { "all": true } } },
        "interval": "1s",
        "cooldown": "1h",
        "runTemplate": { "rule": { "all": true }, "allowSingleMember": true },
    });
    object("EtcdDefragPolicy", name, &extended(whole, spec))
}

/// A run by hand that takes every member. `spec` adds and replaces fields.
#[must_use]
pub fn run(name: &str, target: &str, spec: &Value) -> Value {
    let whole = json!({
        "clusterRef": { "name": target },
        "rule": { "all": true },
        "allowSingleMember": true,
    });
    object("EtcdDefrag", name, &extended(whole, spec))
}

/// The first one with the fields of the second one in addition, or in place of its own.
#[must_use]
pub fn extended(mut whole: Value, fields: &Value) -> Value {
    if let (Some(whole), Some(fields)) = (whole.as_object_mut(), fields.as_object()) {
        whole.extend(fields.clone());
    }
    whole
}

/// An object in the core API that has no more than a name.
#[must_use]
pub fn named(kind: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } })
}

/// A list of objects, all in this namespace.
#[must_use]
pub fn list(namespace: &str, objects: &[Value]) -> Value {
    let within = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let items: Vec<Value> = objects.iter().map(within).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// Whether a run is complete.
#[must_use]
pub fn is_complete(run: &Value) -> bool {
    run["status"]["phase"] == "Complete"
}

/// A moment in an object.
///
/// # Panics
/// When the value is none.
#[must_use]
pub fn time(value: &Value) -> Timestamp {
    let moment = value.as_str().and_then(|text| text.parse().ok());
    moment.unwrap_or_else(|| panic!("{value} is no time"))
}
