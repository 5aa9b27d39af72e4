//! Statuses written to the API server, each on the condition that nobody else
//! wrote meanwhile.
//!
//! A status is applied with the uid and the version of the object as we know it.
//! When the server refuses because the object moved on, it is read: if only its
//! spec or its metadata changed the write is tried again, and if its status is
//! not the one we believe in, the write is given up and whoever asked for it
//! begins anew with what is stored. That is what keeps a replica which lost its
//! lease without noticing from overwriting what the next one recorded.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use super::api::{ApiError, FIELD_MANAGER, REQUEST_TIMEOUT, bounded};
use super::cache::{Cache, Cached, Change};
use super::lease::Leadership;
use super::objects::{FINALIZER, Runs, Version, status, uid_of, version_of};
use crate::core::key::ObjectKey;
use crate::core::reason::Reason;
use crate::engine::HostError;
use crate::telemetry::Telemetry;

/// How many writes of different objects may be under way.
const STRIPES: usize = 64;
/// How often a write is tried on a newer version of the object.
const ATTEMPTS: usize = 4;

/// The API server and what is known of it.
pub(super) struct Store {
    pub(super) client: Client,
    pub(super) leadership: Arc<Leadership>,
    telemetry: Arc<Telemetry>,
    cache: Mutex<Cache>,
    stripes: [tokio::sync::Mutex<()>; STRIPES],
}

/// What became of a status.
#[derive(Debug)]
pub(super) enum Written<S> {
    /// It was stored already.
    Unchanged,
    Stored {
        before: S,
        after: S,
    },
}

pub(super) fn not_stored(error: &ApiError) -> HostError {
    HostError {
        reason: Reason::NotStored,
        message: error.to_string(),
    }
}

fn vanished(kind: &str, key: &ObjectKey) -> HostError {
    HostError {
        reason: Reason::RunVanished,
        message: format!("{kind} {key} is not stored any more"),
    }
}

fn overtaken(kind: &str, key: &ObjectKey) -> HostError {
    HostError {
        reason: Reason::WriteConflict,
        message: format!("the status of {kind} {key} was written by somebody else meanwhile"),
    }
}

impl Store {
    pub(super) fn new(
        client: Client,
        leadership: Arc<Leadership>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Store {
            client,
            leadership,
            telemetry,
            cache: Mutex::default(),
            stripes: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
        }
    }

    /// Each entry is made first, then put in place.
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn api<K: Cached>(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &K::api_resource())
    }

    /// Orders the writes of one object.
    pub(super) async fn turn<K: Cached>(&self, key: &ObjectKey) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((K::PLURAL, key));
        // The remainder is below STRIPES, which fits any usize.
        self.stripes[(hash % STRIPES as u64) as usize].lock().await
    }

    /// One counted request.
    pub(super) async fn request<K: Cached, T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        let began = Instant::now();
        let done = bounded(REQUEST_TIMEOUT, request).await;
        let code = match &done {
            Ok(_) => Some(200),
            Err(error) => error.code(),
        };
        self.telemetry
            .api_request(verb, K::PLURAL, code, began.elapsed());
        done
    }

    /// Stores the status that `make` makes of the stored one. `changed` is told of
    /// objects that turn out to be newer than they were known.
    ///
    /// The caller holds the object's [`turn`](Store::turn).
    pub(super) async fn write_status<K: Cached>(
        &self,
        key: &ObjectKey,
        changed: impl Fn(Change),
        make: impl FnOnce(&K::Status) -> K::Status,
    ) -> Result<Written<K::Status>, HostError> {
        let kind = K::Object::kind(&());
        let (believed, mut version, uid) = {
            let mut cache = self.cache();
            let entry = K::entries(&mut cache)
                .get_mut(key)
                .ok_or_else(|| vanished(&kind, key))?;
            if std::mem::take(&mut entry.foreign) {
                return Err(overtaken(&kind, key));
            }
            let believed = entry.status.clone().map_err(|problem| HostError {
                reason: Reason::NotStored,
                message: format!("{kind} {key}: {problem}"),
            })?;
            (believed, entry.version.clone(), entry.uid.clone())
        };
        let wanted = make(&believed);
        if wanted == believed {
            return Ok(Written::Unchanged);
        }
        for _ in 0..ATTEMPTS {
            self.leadership.permit()?;
            if let Some(entry) = K::entries(&mut self.cache()).get_mut(key) {
                entry.asks(wanted.clone());
            }
            match self.apply_status::<K>(key, &uid, &version, &wanted).await {
                Ok(stored) => {
                    return Ok(self.settle::<K>(key, version_of(&stored), believed, wanted));
                }
                Err(error) if error.is_conflict() => {
                    let fresh = self.fresh::<K>(key).await?;
                    let fresh = fresh
                        .filter(|fresh| uid_of(fresh) == uid)
                        .ok_or_else(|| vanished(&kind, key))?;
                    let now_stored = status::<K>(&fresh);
                    version = version_of(&fresh);
                    let unsettled = K::entries(&mut self.cache()).get(key).is_some_and(|entry| {
                        now_stored
                            .as_ref()
                            .is_ok_and(|status| entry.unsettled.contains(status))
                    });
                    let (is_wanted, is_believed) = (
                        now_stored.as_ref() == Ok(&wanted),
                        now_stored.as_ref() == Ok(&believed),
                    );
                    let change = self.cache().take::<K>(&fresh);
                    changed(change);
                    if is_wanted {
                        return Ok(self.settle::<K>(key, version, believed, wanted));
                    }
                    if !is_believed && !unsettled {
                        // Whoever begins anew reads what was taken in just now.
                        if let Some(entry) = K::entries(&mut self.cache()).get_mut(key) {
                            entry.foreign = false;
                        }
                        return Err(overtaken(&kind, key));
                    }
                }
                Err(error) if error.is_not_found() => return Err(vanished(&kind, key)),
                Err(error) => {
                    if error.is_definite()
                        && let Some(entry) = K::entries(&mut self.cache()).get_mut(key)
                    {
                        entry.unsettled.pop();
                    }
                    return Err(not_stored(&error));
                }
            }
        }
        Err(HostError {
            reason: Reason::NotStored,
            message: format!("{kind} {key} changes faster than its status can be written"),
        })
    }

    fn settle<K: Cached>(
        &self,
        key: &ObjectKey,
        version: Version,
        before: K::Status,
        after: K::Status,
    ) -> Written<K::Status> {
        if let Some(entry) = K::entries(&mut self.cache()).get_mut(key) {
            entry.settled(version, after.clone());
        }
        Written::Stored { before, after }
    }

    /// The object as it is stored now.
    pub(super) async fn fresh<K: Cached>(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<DynamicObject>, HostError> {
        let api = self.api::<K>(&key.namespace);
        self.request::<K, _>("get", api.get_opt(&key.name))
            .await
            .map_err(|error| not_stored(&error))
    }

    async fn apply_status<K: Cached>(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: &Version,
        status: &K::Status,
    ) -> Result<DynamicObject, ApiError> {
        let mut body = identified::<K>(key, uid, version);
        body["status"] = serde_json::to_value(status)
            .map_err(|error| ApiError::Failed(kube::Error::SerdeError(error)))?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let api = self.api::<K>(&key.namespace);
        self.request::<K, _>(
            "patch",
            api.patch_status(&key.name, &params, &Patch::Apply(&body)),
        )
        .await
    }

    /// Puts our finalizer on the run, or takes it away. The caller holds the turn.
    pub(super) async fn set_finalizer(&self, key: &ObjectKey, on: bool) -> Result<(), HostError> {
        let (uid, version, present) = {
            let mut cache = self.cache();
            match Runs::entries(&mut cache).get(key) {
                Some(entry) => (entry.uid.clone(), entry.version.clone(), entry.finalizer),
                // It is gone, and its finalizer with it.
                None if !on => return Ok(()),
                None => return Err(vanished("EtcdDefrag", key)),
            }
        };
        if present == on {
            return Ok(());
        }
        self.leadership.permit()?;
        // Without a version: finalizers are a set, of which one element is ours.
        let mut body = identified::<Runs>(key, &uid, &version);
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        body["metadata"]["finalizers"] = if on { json!([FINALIZER]) } else { json!([]) };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let api = self.api::<Runs>(&key.namespace);
        let patched = self
            .request::<Runs, _>("patch", api.patch(&key.name, &params, &Patch::Apply(&body)))
            .await;
        let stored = match patched {
            Ok(stored) => stored,
            Err(error) if error.is_not_found() && !on => return Ok(()),
            // With another uid it is another object.
            Err(error) if error.is_not_found() || error.is_conflict() => {
                return Err(vanished("EtcdDefrag", key));
            }
            Err(error) => return Err(not_stored(&error)),
        };
        if let Some(entry) = self.cache().runs.get_mut(key) {
            entry.finalizer = on;
            // A status that somebody else wrote meanwhile is found by the next write.
            if status::<Runs>(&stored) == entry.status {
                entry.version = version_of(&stored);
            }
        }
        Ok(())
    }
}

/// An object by name, in the state that the write builds on.
fn identified<K: Cached>(key: &ObjectKey, uid: &str, version: &Version) -> Value {
    let resource = K::api_resource();
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "uid": uid,
            "resourceVersion": version.0,
        },
    })
}
