//! Secrets, read when somebody connects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    recent: Recent,
}

impl fmt::Debug for ApiSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiSecrets").finish_non_exhaustive()
    }
}

/// Secrets that were read a moment ago. They are forgotten by themselves.
struct Recent {
    lifetime: Duration,
    read: Arc<Mutex<Read>>,
}

type Read = BTreeMap<ObjectKey, (Instant, Arc<Contents>)>;

fn lock(read: &Mutex<Read>) -> MutexGuard<'_, Read> {
    read.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recent {
    fn new(lifetime: Duration) -> Self {
        Recent {
            lifetime,
            read: Arc::default(),
        }
    }

    fn get(&self, secret: &ObjectKey) -> Option<Arc<Contents>> {
        let read = lock(&self.read);
        let (at, contents) = read.get(secret)?;
        (at.elapsed() < self.lifetime).then(|| contents.clone())
    }

    fn keep(&self, secret: &ObjectKey, at: Instant, contents: Arc<Contents>) {
        lock(&self.read).insert(secret.clone(), (at, contents));
        let (lifetime, read) = (self.lifetime, self.read.clone());
        // Nobody may ever read a Secret again, and then nobody else would forget this one.
        tokio::spawn(async move {
            tokio::time::sleep(lifetime.saturating_sub(at.elapsed())).await;
            lock(&read).retain(|_, (at, _)| at.elapsed() < lifetime);
        });
    }
}

impl ApiSecrets {
    pub(super) fn new(client: Client) -> Self {
        ApiSecrets {
            client,
            recent: Recent::new(SAME_CONNECT),
        }
    }

    async fn contents(&self, secret: &ObjectKey) -> Result<Arc<Contents>, SecretError> {
        if let Some(contents) = self.recent.get(secret) {
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
        self.recent.keep(secret, read, contents.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_read_is_forgotten_though_nobody_reads_again() {
        let secret = ObjectKey {
            namespace: "a".into(),
            name: "etcd".into(),
        };
        let recent = Recent::new(Duration::from_secs(3600));
        recent.keep(&secret, Instant::now(), Arc::default());
        assert!(recent.get(&secret).is_some());

        let contents = Arc::new(Contents::default());
        let recent = Recent::new(Duration::from_millis(20));
        recent.keep(&secret, Instant::now(), contents.clone());
        let forgotten = async {
            while Arc::strong_count(&contents) > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), forgotten).await;
        assert!(waited.is_ok(), "it is still kept");
    }
}
