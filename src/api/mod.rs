//! The custom resources, and their turning into core's validated types.
//!
//! Three kinds ([`target::EtcdTarget`], [`defrag::EtcdDefrag`],
//! [`policy::EtcdDefragPolicy`]) are declared once, as Rust types. The CRDs
//! ([`crds`]), the check of a file's fields ([`document`]) and the verdict on
//! an object ([`validate`]) all come from these types, so that both hosts and
//! `defragd lint` say the same about a manifest.
//!
//! A spec holds what a person wrote, texts included; [`validate`] parses it
//! once into a type of [`crate::core`] that cannot be wrong. A status holds
//! everything that has to survive a restart, and converts from and to core's
//! records without loss.

pub mod conditions;
pub mod crds;
pub mod defrag;
pub mod document;
pub mod lint;
pub mod policy;
#[cfg(test)]
mod roundtrip;
pub mod scalar;
mod schema;
pub mod target;
pub mod validate;

/// The API group of all kinds.
pub const GROUP: &str = "defragd.dev";
/// The version of all kinds.
pub const VERSION: &str = "v1alpha1";
/// What stands in `apiVersion`.
pub const API_VERSION: &str = "defragd.dev/v1alpha1";

/// A stored status that cannot be turned into a record: a person edited it, or
/// a newer release wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {value} is not {wanted}; restore it, or remove the status to start over")]
pub struct StatusError {
    /// The field, such as `status.members[0].memberID`.
    pub path: String,
    /// What stands there, bounded and quoted.
    pub value: String,
    /// What should stand there.
    pub wanted: &'static str,
}

impl StatusError {
    pub(crate) fn new(path: impl Into<String>, value: &str, wanted: &'static str) -> Self {
        StatusError {
            path: path.into(),
            value: validate::quoted(value),
            wanted,
        }
    }
}
