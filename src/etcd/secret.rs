//! Secrets of Kubernetes, as sources of certificates and passwords. The client of
//! the API lives with the host; here is what is asked of it.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::core::key::ObjectKey;

/// Reads Secrets. Asked at each connect, so that a rotated credential works
/// without a restart.
pub trait SecretReader: Send + Sync + fmt::Debug {
    /// The bytes under `key`; `None` when the Secret has no such key.
    fn read<'a>(
        &'a self,
        secret: &'a ObjectKey,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, SecretError>>;
}

/// A Secret that could not be read as a whole. Nothing here repeats its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("there is no Secret {secret}; create it, or correct the name")]
    Missing { secret: ObjectKey },
    #[error(
        "reading Secret {secret} is forbidden ({detail}); allow defragd's ServiceAccount to get secrets in that namespace"
    )]
    Forbidden { secret: ObjectKey, detail: String },
    /// It may well be readable soon.
    #[error("unable to read Secret {secret} ({detail}); it is read again at the next connect")]
    Unavailable { secret: ObjectKey, detail: String },
}

/// One key of a Secret.
#[derive(Clone)]
pub struct SecretKey {
    pub reader: Arc<dyn SecretReader>,
    pub secret: ObjectKey,
    pub key: String,
    /// Without it, the Secret has to have the key. A client's certificate and
    /// its key are optional together: both or none.
    pub optional: bool,
}

impl SecretKey {
    /// A key that the Secret has to have.
    pub fn new(reader: Arc<dyn SecretReader>, secret: ObjectKey, key: impl Into<String>) -> Self {
        SecretKey {
            reader,
            secret,
            key: key.into(),
            optional: false,
        }
    }

    /// The same key, which may be absent.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

/// Two keys are the same when they name the same place, whoever reads it.
impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        (&self.secret, &self.key, self.optional) == (&other.secret, &other.key, other.optional)
    }
}

impl Eq for SecretKey {}

/// The place, never the content, nor a reader that may remember it.
impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey")
            .field("secret", &self.secret)
            .field("key", &self.key)
            .field("optional", &self.optional)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {:?} of Secret {}", self.key, self.secret)
    }
}
