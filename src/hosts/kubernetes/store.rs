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

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::api::{ApiError, FIELD_MANAGER, REQUEST_TIMEOUT, bounded};
use super::cache::{Cache, Cached, Change};
use super::kept::Kept;
use super::lease::Leadership;
use super::objects::{FINALIZER, Runs, Version, status, uid_of, version_of};
use crate::core::key::ObjectKey;
use crate::core::reason::Reason;
use crate::engine::HostError;

/// How many writes of different objects may be under way.
const STRIPES: usize = 64;
/// How often a write is tried on a newer version of the object.
const ATTEMPTS: usize = 4;

/// The API server and what is known of it.
pub(super) struct Store {
    pub(super) client: Client,
    pub(super) leadership: Arc<Leadership>,
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
    pub(super) fn new(client: Client, leadership: Arc<Leadership>) -> Self {
        Store {
            client,
            leadership,
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

    /// One request that writes, for as long as this replica leads.
    ///
    /// # Errors
    /// `NotLeading` without asking anybody, or what the server answers.
    pub(super) async fn write<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<Result<T, ApiError>, HostError> {
        let limit = self.leadership.remaining()?.min(REQUEST_TIMEOUT);
        Ok(bounded(limit, request).await)
    }

    /// Stores the status that `make` makes of the stored one. `changed` is told,
    /// under the cache's lock, of what turns out to be other than it was known.
    ///
    /// The caller holds the object's [`turn`](Store::turn).
    pub(super) async fn write_status<K: Cached>(
        &self,
        key: &ObjectKey,
        changed: impl Fn(&Cache, Change) + Sync,
        make: impl FnOnce(&K::Status) -> K::Status,
    ) -> Result<Written<K::Status>, HostError> {
        let kind = K::Object::kind(&());
        let Some(known) = self.believed::<K>(key)? else {
            changed(&self.cache(), K::gone(key));
            return Err(vanished(&kind, key));
        };
        let wanted = make(&known.status);
        if wanted == known.status {
            return Ok(Written::Unchanged);
        }
        let mut version = known.version.clone();
        for _ in 0..ATTEMPTS {
            self.leadership.permit()?;
            let asked = kept(&wanted)?;
            if let Some(entry) = K::entries(&mut self.cache()).get_mut(key) {
                entry.asks(asked);
            }
            let error = match self
                .apply_status::<K>(key, &known.uid, &version, &wanted)
                .await?
            {
                Ok(stored) if status::<K>(&stored).as_ref() == Ok(&wanted) => {
                    return self.settle::<K>(key, version_of(&stored), known.status, wanted);
                }
                // A definition of another release takes fields away.
                Ok(_) => {
                    return Err(HostError {
                        reason: Reason::NotStored,
                        message: format!(
                            "the API server stored another status of {kind} {key} than it was given; install the CRDs of this release"
                        ),
                    });
                }
                Err(error) => error,
            };
            if error.is_not_found() {
                self.forget::<K>(key, &known.uid, &changed);
                return Err(vanished(&kind, key));
            }
            if !error.is_conflict() {
                if error.is_definite()
                    && let Some(entry) = K::entries(&mut self.cache()).get_mut(key)
                {
                    entry.unsettled.pop();
                }
                return Err(not_stored(&error));
            }
            match self
                .after_conflict::<K>(key, &known, &wanted, &changed)
                .await?
            {
                Conflict::Stored(version) => {
                    return self.settle::<K>(key, version, known.status, wanted);
                }
                Conflict::Moved(newer) => version = newer,
            }
        }
        Err(HostError {
            reason: Reason::NotStored,
            message: format!("{kind} {key} changes faster than its status can be written"),
        })
    }

    /// What is believed to be stored; `None` when nothing is.
    fn believed<K: Cached>(&self, key: &ObjectKey) -> Result<Option<Known<K::Status>>, HostError> {
        let kind = K::Object::kind(&());
        let mut cache = self.cache();
        let Some(entry) = K::entries(&mut cache).get_mut(key) else {
            return Ok(None);
        };
        if std::mem::take(&mut entry.foreign) {
            return Err(overtaken(&kind, key));
        }
        let status = match &entry.status {
            Ok(kept) => kept.status(),
            Err(problem) => Err(problem.clone()),
        };
        let status = status.map_err(|problem| HostError {
            reason: Reason::NotStored,
            message: format!("{kind} {key}: {problem}"),
        })?;
        Ok(Some(Known {
            status,
            version: entry.version.clone(),
            uid: entry.uid.clone(),
        }))
    }

    /// Finds out what stands in the way of a status.
    async fn after_conflict<K: Cached>(
        &self,
        key: &ObjectKey,
        known: &Known<K::Status>,
        wanted: &K::Status,
        changed: &(impl Fn(&Cache, Change) + Sync),
    ) -> Result<Conflict, HostError> {
        let kind = K::Object::kind(&());
        let fresh = self.fresh::<K>(key).await?;
        let Some(fresh) = fresh.filter(|fresh| uid_of(fresh) == known.uid) else {
            self.forget::<K>(key, &known.uid, changed);
            return Err(vanished(&kind, key));
        };
        let (stored, version) = (status::<K>(&fresh), version_of(&fresh));
        let mut cache = self.cache();
        let asked = stored.as_ref().ok().map(kept).transpose()?;
        let asked = K::entries(&mut cache)
            .get(key)
            .is_some_and(|entry| asked.is_some_and(|stored| entry.unsettled.contains(&stored)));
        let change = cache.take_fresh::<K>(&fresh);
        changed(&cache, change);
        if stored.as_ref() == Ok(wanted) {
            return Ok(Conflict::Stored(version));
        }
        if asked || stored.as_ref() == Ok(&known.status) {
            return Ok(Conflict::Moved(version));
        }
        // Whoever begins anew reads what was taken in just now.
        if let Some(entry) = K::entries(&mut cache).get_mut(key) {
            entry.foreign = false;
        }
        Err(overtaken(&kind, key))
    }

    /// The object of this uid turned out to be gone.
    fn forget<K: Cached>(&self, key: &ObjectKey, uid: &str, changed: &impl Fn(&Cache, Change)) {
        let mut cache = self.cache();
        let change = cache.drop_object::<K>(key, uid);
        changed(&cache, change);
    }

    fn settle<K: Cached>(
        &self,
        key: &ObjectKey,
        version: Version,
        before: K::Status,
        after: K::Status,
    ) -> Result<Written<K::Status>, HostError> {
        let status = kept(&after)?;
        if let Some(entry) = K::entries(&mut self.cache()).get_mut(key) {
            entry.settled(version, status);
        }
        Ok(Written::Stored { before, after })
    }

    /// The object as it is stored now.
    pub(super) async fn fresh<K: Cached>(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<DynamicObject>, HostError> {
        let api = self.api::<K>(&key.namespace);
        bounded(REQUEST_TIMEOUT, api.get_opt(&key.name))
            .await
            .map_err(|error| not_stored(&error))
    }

    async fn apply_status<K: Cached>(
        &self,
        key: &ObjectKey,
        uid: &str,
        version: &Version,
        status: &K::Status,
    ) -> Result<Result<DynamicObject, ApiError>, HostError> {
        let mut body = identified::<K>(key, uid);
        body["metadata"]["resourceVersion"] = json!(version.0);
        body["status"] = serde_json::to_value(status).map_err(|error| HostError {
            reason: Reason::NotStored,
            message: error.to_string(),
        })?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let api = self.api::<K>(&key.namespace);
        let body = Patch::Apply(&body);
        self.write(api.patch_status(&key.name, &params, &body))
            .await
    }

    /// Puts our finalizer on the run, or takes it away. The caller holds the turn.
    pub(super) async fn set_finalizer(&self, key: &ObjectKey, on: bool) -> Result<(), HostError> {
        let (uid, present) = {
            let cache = self.cache();
            match cache.runs.get(key) {
                Some(entry) => (entry.uid.clone(), entry.finalizer),
                // It is gone, and its finalizer with it.
                None if !on => return Ok(()),
                None => return Err(vanished("EtcdDefrag", key)),
            }
        };
        if present == on {
            return Ok(());
        }
        // Without a version: finalizers are a set, of which one element is ours.
        let mut body = identified::<Runs>(key, &uid);
        body["metadata"]["finalizers"] = if on { json!([FINALIZER]) } else { json!([]) };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let api = self.api::<Runs>(&key.namespace);
        let body = Patch::Apply(&body);
        let patched = self.write(api.patch(&key.name, &params, &body)).await?;
        let stored = match patched {
            Ok(stored) => stored,
            // It is gone; or another object has its name, and so another uid.
            Err(error) if error.is_not_found() || error.is_conflict() => {
                return if on {
                    Err(vanished("EtcdDefrag", key))
                } else {
                    Ok(())
                };
            }
            Err(error) => return Err(not_stored(&error)),
        };
        if let Some(entry) = self.cache().runs.get_mut(key) {
            entry.finalizer = on;
            // A status that somebody else wrote meanwhile is found by the next write.
            let stored_status = status::<Runs>(&stored).and_then(|status| Kept::new(&status));
            if stored_status == entry.status {
                entry.version = version_of(&stored);
            }
        }
        Ok(())
    }
}

fn kept<S: Serialize + DeserializeOwned>(status: &S) -> Result<Kept<S>, HostError> {
    Kept::new(status).map_err(|message| HostError {
        reason: Reason::NotStored,
        message,
    })
}

/// What a status is built on.
struct Known<S> {
    status: S,
    version: Version,
    uid: String,
}

/// What stood in the way of a status.
enum Conflict {
    /// Our own earlier write of it, whose answer was lost.
    Stored(Version),
    /// A change of something else.
    Moved(Version),
}

/// An object by name and uid: no other that has or had the name.
fn identified<K: Cached>(key: &ObjectKey, uid: &str) -> Value {
    let resource = K::api_resource();
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": key.name.as_str(),
            "namespace": key.namespace.as_str(),
            "uid": uid,
        },
    })
}
