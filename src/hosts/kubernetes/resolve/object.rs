//! Objects of kinds that are not known when this is compiled.

use kube::api::DynamicObject;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::core::key::{ClusterKey, ClusterKind, ObjectKey};
use crate::core::reason::Reason;
use crate::core::run::Note;

use super::{clip, unresolved};

/// The object that describes a cluster.
///
/// # Errors
/// It does not exist, or is on its way out.
pub(super) fn existing<'a>(
    kind: ClusterKind,
    key: &ObjectKey,
    object: Option<&'a DynamicObject>,
    installed: bool,
) -> Result<&'a DynamicObject, Note> {
    let label = label(kind, key);
    let Some(object) = object else {
        let why = if installed {
            String::new()
        } else {
            format!(
                ": {}/{} is not installed in this cluster",
                kind.group(),
                kind.version()
            )
        };
        return Err(Note::new(
            Reason::ClusterNotFound,
            format!("{label} does not exist{why}"),
        ));
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Err(Note::new(
            Reason::ClusterChanging,
            format!("{label} is being deleted"),
        ));
    }
    Ok(object)
}

/// How messages call it.
pub(super) fn label(kind: ClusterKind, object: &ObjectKey) -> String {
    ClusterKey {
        kind,
        object: object.clone(),
    }
    .to_string()
}

pub(super) fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn has_label(object: &DynamicObject, key: &str, value: &str) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(key))
        .map(String::as_str)
        == Some(value)
}

/// What is needed of an object.
///
/// # Errors
/// A field that has another type than the API says: its path and its value.
pub(super) fn read<'a, T: Deserialize<'a>>(
    label: &str,
    object: &'a DynamicObject,
) -> Result<T, Note> {
    serde_path_to_error::deserialize(&object.data).map_err(|error| {
        let path = error.path().to_string();
        let value = at(&object.data, error.path()).map_or_else(
            || "has an unknown shape".to_owned(),
            |value| format!("{} cannot be read", clip(&value.to_string())),
        );
        unresolved(format!(
            "{label}: {path} {value} ({}), want what the kind's schema says",
            clip(&error.inner().to_string())
        ))
    })
}

fn at<'a>(value: &'a Value, path: &serde_path_to_error::Path) -> Option<&'a Value> {
    use serde_path_to_error::Segment;
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

/// For fields in which `null` means the same as nothing at all.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A reference to an object of the same namespace.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reference {
    pub(super) name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    kind: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    message: Option<String>,
}

/// What the operator says about its work, when it is at work.
pub(super) fn progressing(conditions: &[Condition]) -> Option<String> {
    let condition = conditions.iter().find(|c| {
        c.kind.as_deref() == Some("Progressing") && c.status.as_deref() == Some("True")
    })?;
    let said: Vec<String> = [&condition.reason, &condition.message]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .map(|text| clip(text))
        .collect();
    Some(match said.as_slice() {
        [] => "its operator says Progressing".to_owned(),
        said => format!("its operator says Progressing: {}", said.join(": ")),
    })
}
