//! What stands in a state file: a complete object, as an API would return it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::checked;
use crate::api::defrag::{EtcdDefragSpec, EtcdDefragStatus};
use crate::api::policy::{EtcdDefragPolicySpec, EtcdDefragPolicyStatus};
use crate::api::target::{EtcdTargetSpec, EtcdTargetStatus};
use crate::api::{API_VERSION, StatusError};
use crate::engine::ObjectKey;

/// The file among the objects that the object stands in.
pub(super) const FILE: &str = "defragd.dev/file";
/// What is wrong with the object's document; absent while it can be used.
pub(super) const DOCUMENT_ERROR: &str = "defragd.dev/document-error";
/// Since when the object's document is gone. What is remembered stays, so that
/// a cooldown survives taking the document away and putting it back.
pub(super) const REMOVED_AT: &str = "defragd.dev/removed-at";
/// Why a policy made the run.
pub(super) const CAUSE: &str = "defragd.dev/cause";

/// The kinds of object, each with a folder of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Target,
    Policy,
    Run,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Target, Kind::Policy, Kind::Run];

    /// As it stands in `kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Target => "EtcdTarget",
            Kind::Policy => "EtcdDefragPolicy",
            Kind::Run => "EtcdDefrag",
        }
    }

    /// The folder below the state folder.
    pub(super) const fn folder(self) -> &'static str {
        match self {
            Kind::Target => "targets",
            Kind::Policy => "policies",
            Kind::Run => "runs",
        }
    }
}

/// An object with what is recorded of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stored<S, T> {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) metadata: ObjectMeta,
    /// The last one that could be read; absent when none ever could.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub(super) spec: Option<S>,
    #[serde(default)]
    pub(super) status: T,
}

/// A function, because a plain `default` would ask `S` to have one.
fn none<S>() -> Option<S> {
    None
}

pub(super) type StoredTarget = Stored<EtcdTargetSpec, EtcdTargetStatus>;
pub(super) type StoredPolicy = Stored<EtcdDefragPolicySpec, EtcdDefragPolicyStatus>;
pub(super) type StoredRun = Stored<EtcdDefragSpec, EtcdDefragStatus>;

/// Ties a stored type to its kind.
pub(super) trait OfKind:
    Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static
{
    const KIND: Kind;

    fn metadata(&self) -> &ObjectMeta;

    /// Whether everything in the status can be turned into what it stands for.
    fn check(&self) -> Result<(), StatusError>;
}

macro_rules! of_kind {
    ($($stored:ty = $kind:ident, $check:expr);+ $(;)?) => {$(
        impl OfKind for $stored {
            const KIND: Kind = Kind::$kind;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn check(&self) -> Result<(), StatusError> {
                $check(self)
            }
        }
    )+};
}

of_kind! {
    StoredTarget = Target, checked::target_status;
    StoredPolicy = Policy, checked::policy_status;
    StoredRun = Run, checked::run_status;
}

impl<S, T: Default> Stored<S, T> {
    /// A new object of generation 1. Its creation time is cut to the second, as
    /// it is stored.
    pub(super) fn new(kind: Kind, key: &ObjectKey, spec: Option<S>, at: Timestamp) -> Self {
        let created = Timestamp::from_second(at.as_second()).unwrap_or(at);
        Stored {
            api_version: API_VERSION.to_owned(),
            kind: kind.as_str().to_owned(),
            metadata: ObjectMeta {
                name: Some(key.name.to_string()),
                namespace: Some(key.namespace.to_string()),
                uid: Some(uid(kind, key, at)),
                generation: Some(1),
                creation_timestamp: Some(Time(created)),
                ..ObjectMeta::default()
            },
            spec,
            status: T::default(),
        }
    }
}

impl<S, T> Stored<S, T> {
    pub(super) fn key(&self) -> ObjectKey {
        key_of(&self.metadata)
    }

    pub(super) fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or(1)
    }

    pub(super) fn next_generation(&mut self) {
        self.metadata.generation = Some(self.generation() + 1);
    }

    pub(super) fn created_at(&self) -> Timestamp {
        self.metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(name)
            .map(String::as_str)
    }

    /// Sets the annotation, or takes it away.
    pub(super) fn annotate(&mut self, name: &str, value: Option<String>) {
        let annotations = self.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => annotations.insert(name.to_owned(), value),
            None => annotations.remove(name),
        };
        if annotations.is_empty() {
            self.metadata.annotations = None;
        }
    }

    /// The policy that owns the object.
    pub(super) fn owner(&self) -> Option<&OwnerReference> {
        self.metadata
            .owner_references
            .as_ref()?
            .iter()
            .find(|o| o.controller == Some(true))
    }
}

pub(super) fn key_of(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
        name: metadata.name.as_deref().unwrap_or_default().into(),
    }
}

/// An identity in the shape of a UUID. It is a function of the name and the
/// moment of creation, so two objects share it only when they are the same.
fn uid(kind: Kind, key: &ObjectKey, at: Timestamp) -> String {
    let text = format!(
        "{}\0{}\0{}\0{}",
        kind.as_str(),
        key.namespace,
        key.name,
        at.as_nanosecond()
    );
    let hex = hex(&Sha256::digest(text.as_bytes()));
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..32]
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Longest file name that is spelled out; longer ones end in a digest. File
/// systems allow 255 bytes, and the temporary name next to it is longer.
const MAX_FILE_NAME: usize = 200;

/// The object's file. An underscore parts namespace and name: neither can hold
/// one. Whatever else a file name should not hold is written as `%XX`, so that
/// no name leads out of the folder or to another object's file.
pub(super) fn file_name(key: &ObjectKey) -> String {
    let mut name = format!("{}_{}", escaped(&key.namespace), escaped(&key.name));
    if name.len() > MAX_FILE_NAME {
        let digest = hex(&Sha256::digest(name.as_bytes()));
        name.truncate(MAX_FILE_NAME);
        name.push('~');
        name.push_str(&digest[..16]);
    }
    name.push_str(".json");
    name
}

/// Only ASCII comes out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => out.push(char::from(byte)),
            b'.' if place > 0 => out.push('.'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Why the content of a state file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentError {
    #[error("it is not JSON ({0}); it may have been cut short")]
    NotJson(String),
    #[error(
        "it holds {found}, and {wanted} is expected here; it was written by another program or another release"
    )]
    Foreign { found: String, wanted: String },
    #[error("it holds {found}, whose file is {wanted:?}; it was renamed or copied")]
    Misplaced { found: String, wanted: String },
    #[error("it has the field {0}, which this release does not know; a newer release wrote it")]
    Newer(String),
    #[error("{0}")]
    Field(String),
}

/// Reads the content of a state file with the name `file`.
///
/// # Errors
/// When anything in it would be lost by writing it again.
pub(super) fn parse<O: OfKind>(file: &str, content: &[u8]) -> Result<O, ContentError> {
    let raw: Value = serde_json::from_slice(content)
        .map_err(|error| ContentError::NotJson(error.to_string()))?;
    let text = |name: &str| {
        raw.get(name)
            .and_then(Value::as_str)
            .unwrap_or("nothing")
            .to_owned()
    };
    let (version, kind) = (text("apiVersion"), text("kind"));
    if (version.as_str(), kind.as_str()) != (API_VERSION, O::KIND.as_str()) {
        return Err(ContentError::Foreign {
            found: format!("{version} {kind}"),
            wanted: format!("{API_VERSION} {}", O::KIND.as_str()),
        });
    }
    let object: O = serde_path_to_error::deserialize(&raw).map_err(|error| {
        ContentError::Field(format!(
            "the field {} cannot be read: {}",
            error.path(),
            error.inner()
        ))
    })?;
    let key = key_of(object.metadata());
    if file_name(&key) != file {
        return Err(ContentError::Misplaced {
            found: key.to_string(),
            wanted: file_name(&key),
        });
    }
    let again = serde_json::to_value(&object)
        .map_err(|error| ContentError::Field(format!("it cannot be written again: {error}")))?;
    match lost(&raw, &again) {
        Some(path) => Err(ContentError::Newer(path)),
        None => Ok(object),
    }
}

/// The first field of `raw` that is missing in `again`.
fn lost(raw: &Value, again: &Value) -> Option<String> {
    match (raw, again) {
        (Value::Object(raw), Value::Object(again)) => raw.iter().find_map(|(name, value)| {
            // What says nothing is not written again: null, and empty lists.
            match again.get(name) {
                Some(other) => lost(value, other).map(|rest| join(name, &rest)),
                None if says_nothing(value) => None,
                None => Some(name.clone()),
            }
        }),
        (Value::Array(raw), Value::Array(again)) if raw.len() == again.len() => raw
            .iter()
            .zip(again)
            .enumerate()
            .find_map(|(place, (value, other))| {
                lost(value, other).map(|rest| join(&format!("[{place}]"), &rest))
            }),
        _ => None,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn join(name: &str, rest: &str) -> String {
    if rest.starts_with('[') {
        format!("{name}{rest}")
    } else {
        format!("{name}.{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn file_names_are_safe_and_distinct() {
        assert_eq!(file_name(&key("default", "demo")), "default_demo.json");
        assert_eq!(file_name(&key("a", "b.c")), "a_b.c.json");
        assert_eq!(file_name(&key("..", "../x")), "%2E._%2E.%2Fx.json");
        assert_eq!(file_name(&key("", "Ü_")), "_%C3%9C%5F.json");
        let long = "x".repeat(253);
        let (one, two) = (
            file_name(&key("a", &long)),
            file_name(&key("a", &format!("{}y", &long[1..]))),
        );
        assert_ne!(one, two);
        assert!(one.len() < 240, "{one}");
    }

    #[test]
    fn a_field_that_would_be_lost_is_a_newer_release() {
        let stored = StoredTarget::new(
            Kind::Target,
            &key("default", "demo"),
            None,
            Timestamp::UNIX_EPOCH,
        );
        let mut value = serde_json::to_value(&stored).unwrap();
        let content = serde_json::to_vec(&value).unwrap();
        assert_eq!(
            parse::<StoredTarget>("default_demo.json", &content).unwrap(),
            stored
        );

        value["status"]["shape"] = "round".into();
        let content = serde_json::to_vec(&value).unwrap();
        let error = parse::<StoredTarget>("default_demo.json", &content).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it has the field status.shape, which this release does not know; a newer release wrote it"
        );
    }

    #[test]
    fn foreign_truncated_and_misplaced_files_are_told_apart() {
        let stored = StoredTarget::new(
            Kind::Target,
            &key("default", "demo"),
            None,
            Timestamp::UNIX_EPOCH,
        );
        let content = serde_json::to_vec(&stored).unwrap();
        let error = |file: &str, content: &[u8]| parse::<StoredTarget>(file, content).unwrap_err();
        assert!(matches!(
            error("default_demo.json", &content[..40]),
            ContentError::NotJson(_)
        ));
        assert!(matches!(
            error("default_demo.json", b""),
            ContentError::NotJson(_)
        ));
        assert!(matches!(
            error("default_other.json", &content),
            ContentError::Misplaced { .. }
        ));
        assert!(matches!(
            error("default_demo.json", b"{\"a\":1}"),
            ContentError::Foreign { .. }
        ));
        let other = String::from_utf8(content)
            .unwrap()
            .replace("v1alpha1", "v9");
        let error = error("default_demo.json", other.as_bytes());
        assert!(error.to_string().contains("defragd.dev/v9"), "{error}");
    }

    #[test]
    fn identity_is_stable_and_distinct() {
        let at = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        let one = uid(Kind::Policy, &key("default", "a"), at);
        assert_eq!(one, uid(Kind::Policy, &key("default", "a"), at));
        assert_ne!(one, uid(Kind::Run, &key("default", "a"), at));
        assert_eq!(one.len(), 36);
    }
}
