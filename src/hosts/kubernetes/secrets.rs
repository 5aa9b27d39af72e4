//! Secrets, read when somebody connects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::api::{REQUEST_TIMEOUT, bounded};
use crate::core::key::ObjectKey;
use crate::etcd::{SecretError, SecretReader};

/// How long a Secret is used for the other keys that one connect reads, so that
/// a certificate and its key come from one version of it.
const SAME_CONNECT: Duration = Duration::from_secs(3);

type Contents = BTreeMap<String, k8s_openapi::ByteString>;

/// Reads Secrets from the API server.
pub(super) struct ApiSecrets {
    client: Client,
    recent: Mutex<BTreeMap<ObjectKey, (Instant, Arc<Contents>)>>,
}

impl fmt::Debug for ApiSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiSecrets").finish_non_exhaustive()
    }
}

impl ApiSecrets {
    pub(super) fn new(client: Client) -> Self {
        ApiSecrets {
            client,
            recent: Mutex::default(),
        }
    }

    fn recent(&self, secret: &ObjectKey) -> Option<Arc<Contents>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|_, (read, _)| read.elapsed() < SAME_CONNECT);
        recent.get(secret).map(|(_, contents)| contents.clone())
    }

    async fn contents(&self, secret: &ObjectKey) -> Result<Arc<Contents>, SecretError> {
        if let Some(contents) = self.recent(secret) {
            return Ok(contents);
        }
        let read = Instant::now();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace);
        let found = bounded(REQUEST_TIMEOUT, api.get_opt(&secret.name))
            .await
            .map_err(|error| {
                let (secret, detail) = (secret.clone(), error.to_string());
                match error.code() {
                    Some(401 | 403) => SecretError::Forbidden { secret, detail },
                    _ => SecretError::Unavailable { secret, detail },
                }
            })?;
        let Some(found) = found else {
            return Err(SecretError::Missing {
                secret: secret.clone(),
            });
        };
        let contents = Arc::new(found.data.unwrap_or_default());
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.insert(secret.clone(), (read, contents.clone()));
        Ok(contents)
    }
}

impl SecretReader for ApiSecrets {
    fn read<'a>(
        &'a self,
        secret: &'a ObjectKey,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, SecretError>> {
        async move {
            let contents = self.contents(secret).await?;
            Ok(contents.get(key).map(|value| value.0.clone()))
        }
        .boxed()
    }
}
