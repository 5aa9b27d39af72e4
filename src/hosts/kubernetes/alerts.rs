//! Alerts that were delivered, one ConfigMap a source in defragd's own namespace.
//!
//! Every replica takes deliveries, and whoever leads reads them. A write says on
//! which version it is built, so that none is lost when two replicas write.

use std::collections::BTreeMap;
use std::fmt;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::api::{ApiError, FIELD_MANAGER, REQUEST_TIMEOUT, bounded};
use crate::signals::webhook::{AlertStore, Kept, StoreError};

/// The key with the alerts.
const KEY: &str = "alerts.json";

/// The ConfigMaps.
pub(super) struct ConfigMapAlerts {
    api: Api<ConfigMap>,
    namespace: String,
}

impl fmt::Debug for ConfigMapAlerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigMapAlerts")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// The chart's rules name it as well.
fn name_of(source: &str) -> String {
    format!("defragd-alerts-{source}")
}

impl ConfigMapAlerts {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        ConfigMapAlerts {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
        }
    }

    fn failed(&self, verb: &str, source: &str, error: &ApiError) -> StoreError {
        let (name, namespace) = (name_of(source), &self.namespace);
        let remedy = match error.code() {
            Some(401 | 403) => format!(
                "; let defragd's service account get, create and update ConfigMaps in {namespace}, see docs/rbac.md"
            ),
            _ => String::new(),
        };
        StoreError::Failed(format!(
            "unable to {verb} the ConfigMap {namespace}/{name}: {error}{remedy}"
        ))
    }
}

impl AlertStore for ConfigMapAlerts {
    fn load<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Kept, StoreError>> {
        async move {
            let name = name_of(source);
            match bounded(REQUEST_TIMEOUT, self.api.get(&name)).await {
                Ok(map) => Ok(Kept {
                    content: map.data.and_then(|mut data| data.remove(KEY)),
                    version: map.metadata.resource_version,
                }),
                Err(error) if error.is_not_found() => Ok(Kept::default()),
                Err(error) => Err(self.failed("get", source, &error)),
            }
        }
        .boxed()
    }

    fn save<'a>(
        &'a self,
        source: &'a str,
        content: String,
        version: Option<String>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let name = name_of(source);
            let exists = version.is_some();
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    labels: Some(BTreeMap::from([(
                        "app.kubernetes.io/managed-by".to_owned(),
                        FIELD_MANAGER.to_owned(),
                    )])),
                    resource_version: version,
                    ..ObjectMeta::default()
                },
                data: Some(BTreeMap::from([(KEY.to_owned(), content)])),
                ..ConfigMap::default()
            };
            let params = PostParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PostParams::default()
            };
            let (verb, done) = if exists {
                let replaced = self.api.replace(&name, &params, &map);
                ("update", bounded(REQUEST_TIMEOUT, replaced).await)
            } else {
                let created = self.api.create(&params, &map);
                ("create", bounded(REQUEST_TIMEOUT, created).await)
            };
            match done {
                Ok(_) => Ok(()),
                // Somebody else created, changed or removed it.
                Err(error) if error.is_conflict() => Err(StoreError::Conflict),
                Err(error) if exists && error.is_not_found() => Err(StoreError::Conflict),
                Err(error) => Err(self.failed(verb, source, &error)),
            }
        }
        .boxed()
    }
}
