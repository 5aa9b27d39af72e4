//! How an object's kind is called in paths, as the API server tells.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::Refusal;
use crate::core::reason::Reason;
use crate::core::signal::{DescribedObject, bounded};

/// Where the API server tells which versions are served.
pub(super) const GROUP: &str = "/apis/custom.metrics.k8s.io";
/// The versions of `custom.metrics.k8s.io` that are understood, the newest first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Where metrics of a kind are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of `custom.metrics.k8s.io`.
    pub(super) version: &'static str,
    /// Such as `pods` and `deployments.apps`; `None` for namespaces.
    pub(super) resource: Option<String>,
}

/// What was found out. Kinds of clusters are few, so nothing is dropped but what
/// turned out wrong.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<HashMap<(String, String), Place>>);

impl Kinds {
    pub(super) fn known(&self, described: &DescribedObject) -> Option<Place> {
        self.places().get(&key(described)).cloned()
    }

    pub(super) fn learn(&self, described: &DescribedObject, place: Place) {
        self.places().insert(key(described), place);
    }

    /// It has to be found out again.
    pub(super) fn forget(&self, described: &DescribedObject) {
        self.places().remove(&key(described));
    }

    fn places(&self) -> MutexGuard<'_, HashMap<(String, String), Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(described: &DescribedObject) -> (String, String) {
    (described.api_version.clone(), described.kind.clone())
}

/// Where the API server tells what it serves of the object's API.
pub(super) fn resources_path(described: &DescribedObject) -> String {
    match described.api_version.as_str() {
        "v1" => "/api/v1".to_owned(),
        other => format!("/apis/{other}"),
    }
}

/// The newest version of `custom.metrics.k8s.io` that both sides know, by the
/// document at [`GROUP`]; `None` where that is missing.
pub(super) fn version(group: Option<&Value>) -> Result<&'static str, Refusal> {
    let Some(group) = group else {
        return Err(Refusal::Missing(
            "custom.metrics.k8s.io is not served here: no adapter is installed for it".to_owned(),
        ));
    };
    let versions = list_of(group, "versions")?;
    let served = |version: &&str| (versions.iter()).any(|entry| entry["version"] == **version);
    VERSIONS.into_iter().find(served).ok_or_else(|| {
        Refusal::Missing(format!(
            "custom.metrics.k8s.io is served in none of the versions {}",
            VERSIONS.join(", ")
        ))
    })
}

/// A list of a document; `null` where a Go server has an empty one. A document without
/// it is about something else, and says nothing of what is served.
fn list_of<'a>(document: &'a Value, field: &str) -> Result<&'a [Value], Refusal> {
    match document.get(field) {
        Some(Value::Array(list)) => Ok(list),
        Some(Value::Null) => Ok(&[]),
        _ => Err(Refusal::failed(
            Reason::SourceAnswerUnusable,
            format!("the API server does not tell what it serves: an answer has no {field}"),
        )),
    }
}

/// What the object's kind is called in paths, by the document at
/// [`resources_path`]; `None` where that is missing.
pub(super) fn resource(
    described: &DescribedObject,
    list: Option<&Value>,
) -> Result<Option<String>, Refusal> {
    let DescribedObject {
        api_version, kind, ..
    } = described;
    let shown = bounded(&format!("{kind} of {api_version}"), 120);
    let entries = match list {
        Some(list) => list_of(list, "resources")?,
        None => &[],
    };
    // Not a part of an object, such as deployments/scale.
    let whole = |entry: &&Value| {
        let name = entry["name"].as_str();
        entry["kind"] == kind.as_str() && name.is_some_and(|name| !name.contains('/'))
    };
    let Some(entry) = entries.iter().find(whole) else {
        return Err(Refusal::Missing(format!(
            "the API server serves no {shown}"
        )));
    };
    let plural = entry["name"].as_str().unwrap_or_default();
    match (entry["namespaced"] == true, described.group()) {
        (true, "") => Ok(Some(plural.to_owned())),
        (true, group) => Ok(Some(format!("{plural}.{group}"))),
        (false, "") if plural == "namespaces" => Ok(None),
        (false, _) => Err(Refusal::failed(
            Reason::QueryInvalid,
            format!(
                "a {shown} lies in no namespace, and a policy reads metrics of its own namespace \
                 only"
            ),
        )),
    }
}
