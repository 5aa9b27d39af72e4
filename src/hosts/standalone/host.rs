//! [`Host`] over a folder of objects and a state folder.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::align::accepted;
use super::checked;
use super::create::new_run;
use super::objects::Ref;
use super::store::{Loaded, StateError, Store};
use super::stored::{Kind, OfKind, Stored, StoredPolicy, StoredRun, StoredTarget, file_name};
use crate::api::defrag::EtcdDefragStatus;
use crate::core::decide::Policy;
use crate::core::reason::Reason;
use crate::core::run::RunRecord;
use crate::core::view::ClusterId;
use crate::engine::{
    About, ClusterKey, Created, Event, FleetReport, FleetView, Host, HostError, NewRun, ObjectKey,
    PolicyOn, PolicyReport, PolicyView, RunView, TargetReport, TargetView, now,
};
use crate::hosts::fleet::{self, Batches, Item};
use crate::hosts::report;
use crate::hosts::views::Views;
use crate::telemetry::Telemetry;

/// How many writes of different objects may be under way.
const STRIPES: usize = 32;

/// An object in memory.
#[derive(Debug)]
pub(super) struct Entry<O> {
    pub(super) stored: Arc<O>,
    /// What is in memory is also on the disk.
    pub(super) durable: bool,
    /// The engine sees it; false while the object is remembered but not there.
    pub(super) shown: bool,
    /// Why nothing can be recorded of it.
    pub(super) blocked: Option<String>,
    /// The generation since which it has been about the same cluster.
    pub(super) cluster_since: i64,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) targets: BTreeMap<ObjectKey, Entry<StoredTarget>>,
    pub(super) policies: BTreeMap<ObjectKey, Entry<StoredPolicy>>,
    pub(super) runs: BTreeMap<ObjectKey, Entry<StoredRun>>,
    pub(super) unusable: BTreeMap<(Kind, String), StateError>,
    /// Objects whose document is not there, and since when.
    pub(super) missing: BTreeMap<Ref, Instant>,
    /// As last stored and told.
    pub(super) problems: Option<Vec<String>>,
    /// Something could not be stored: whoever waits for a change shall try again.
    pub(super) retry: bool,
}

/// The standalone host.
#[derive(Debug)]
pub struct StandaloneHost {
    pub(super) store: Arc<Store>,
    inner: Mutex<Inner>,
    stripes: [tokio::sync::Mutex<()>; STRIPES],
    /// What the engine sees. Changed under the lock of `inner`.
    pub(super) views: Views,
    /// Reports of policies that are stored together.
    pub(super) batches: Batches,
    /// The last version that a target's view got.
    versions: AtomicU64,
    /// The objects are to be read again.
    pub(super) reread: Notify,
    pub(super) telemetry: Arc<Telemetry>,
}

impl StandaloneHost {
    /// A host that knows what was stored; objects come with the first sync.
    pub(super) fn new(store: Store, loaded: Loaded, telemetry: Arc<Telemetry>) -> Self {
        let Loaded {
            targets,
            policies,
            runs,
            unusable,
        } = loaded;
        let mut inner = Inner {
            unusable,
            ..Inner::default()
        };
        let views = Views::default();
        for (key, stored) in targets {
            inner.targets.insert(key, Entry::loaded(stored));
        }
        for (key, stored) in policies {
            let mut entry = Entry::loaded(stored);
            entry.cluster_since = entry.stored.generation();
            inner.policies.insert(key, entry);
        }
        for (key, stored) in runs {
            let shown = accepted(&stored);
            if shown {
                views.put_run(Arc::new(checked::run_view(&stored)));
            }
            inner.runs.insert(
                key,
                Entry {
                    shown,
                    ..Entry::loaded(stored)
                },
            );
        }
        StandaloneHost {
            store: Arc::new(store),
            inner: Mutex::new(inner),
            stripes: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            views,
            batches: Batches::default(),
            versions: AtomicU64::new(0),
            reread: Notify::new(),
            telemetry,
        }
    }

    /// What is done under this lock cannot leave it half done: values are made
    /// first, then put in place.
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a target to the engine, with a version of its own when it is news.
    pub(super) fn show_target(&self, view: TargetView) {
        let old = self.views.target(&view.key);
        let same = old.filter(|old| {
            (&old.spec, &old.busy, old.cluster_id) == (&view.spec, &view.busy, view.cluster_id)
        });
        let version = match same {
            Some(old) => old.version,
            None => self.versions.fetch_add(1, Ordering::Relaxed) + 1,
        };
        self.views
            .put_target(Arc::new(TargetView { version, ..view }));
    }

    /// Nobody can say which runs there are while a file of one cannot be read.
    fn readable(&self) -> Result<(), HostError> {
        self.inner().runs_unreadable().map_or(Ok(()), Err)
    }

    /// Orders the writes of one object.
    pub(super) async fn turn(
        &self,
        kind: Kind,
        key: &ObjectKey,
    ) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((kind, key));
        // The remainder is below STRIPES, which fits any usize.
        self.stripes[(hash % STRIPES as u64) as usize].lock().await
    }

    /// Stores durably, off the threads that serve everybody.
    pub(super) async fn write<O: OfKind>(&self, object: Arc<O>) -> Result<(), StateError> {
        let store = self.store.clone();
        self.stored(tokio::task::spawn_blocking(move || store.write(&*object)).await)
    }

    /// The object with another status, once it is stored. `durable`: whether the one
    /// that is known was.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub(super) async fn write_status<S, T>(
        &self,
        before: &Arc<Stored<S, T>>,
        status: T,
        durable: bool,
    ) -> Result<Arc<Stored<S, T>>, HostError>
    where
        S: Clone,
        T: Clone + PartialEq,
        Stored<S, T>: OfKind,
    {
        if durable && status == before.status {
            return Ok(before.clone());
        }
        let stored = Arc::new(Stored {
            status,
            ..(**before).clone()
        });
        let written = self.write(stored.clone()).await;
        written.map_err(|error| not_stored(&error))?;
        Ok(stored)
    }

    pub(super) async fn erase(&self, kind: Kind, key: &ObjectKey) -> Result<(), StateError> {
        let (store, key) = (self.store.clone(), key.clone());
        self.stored(tokio::task::spawn_blocking(move || store.remove(kind, &key)).await)
    }

    fn stored(
        &self,
        done: Result<Result<(), StateError>, tokio::task::JoinError>,
    ) -> Result<(), StateError> {
        let done = done.unwrap_or_else(|error| Err(StateError::Aborted(error.to_string())));
        self.telemetry.state_written(done.is_ok());
        if done.is_err() {
            self.inner().retry = true;
        }
        done
    }
}

impl<S, T> Entry<Stored<S, T>> {
    pub(super) fn loaded(stored: Stored<S, T>) -> Self {
        Entry {
            stored: Arc::new(stored),
            durable: true,
            shown: false,
            blocked: None,
            cluster_since: 1,
        }
    }
}

fn not_stored(error: &StateError) -> HostError {
    HostError {
        reason: Reason::NotStored,
        message: error.to_string(),
    }
}

pub(super) fn blocked(why: &str) -> HostError {
    HostError {
        reason: Reason::NotStored,
        message: why.to_owned(),
    }
}

impl Inner {
    pub(super) fn runs_unreadable(&self) -> Option<HostError> {
        let ((_, _), error) = self
            .unusable
            .iter()
            .find(|((kind, _), _)| *kind == Kind::Run)?;
        Some(HostError {
            reason: Reason::RunsUnreadable,
            message: error.to_string(),
        })
    }

    /// Why the object's own state file cannot be used.
    pub(super) fn unusable(&self, kind: Kind, key: &ObjectKey) -> Option<String> {
        if self.unusable.is_empty() {
            return None;
        }
        self.unusable
            .get(&(kind, file_name(key)))
            .map(ToString::to_string)
    }
}

impl Host for StandaloneHost {
    fn policy_keys(&self) -> Vec<PolicyOn> {
        self.views.policy_keys()
    }

    fn policy(&self, key: &PolicyOn) -> Option<Arc<PolicyView>> {
        self.views.policy(key)
    }

    fn policy_spec(&self, key: &ObjectKey) -> Option<Arc<Policy>> {
        self.views.policy_spec(key)
    }

    fn fleet_keys(&self) -> Vec<ObjectKey> {
        self.views.fleet_keys()
    }

    fn fleet(&self, key: &ObjectKey) -> Option<Arc<FleetView>> {
        self.views.fleet(key)
    }

    fn cluster_keys(&self) -> Vec<ClusterKey> {
        self.views.cluster_keys()
    }

    fn target(&self, key: &ClusterKey) -> Option<Arc<TargetView>> {
        self.views.target(key)
    }

    fn run(&self, key: &ObjectKey) -> Result<Option<Arc<RunView>>, HostError> {
        self.readable().map(|()| self.views.run(key))
    }

    fn runs(&self) -> Result<Vec<Arc<RunView>>, HostError> {
        self.readable().map(|()| self.views.runs())
    }

    fn unfinished_runs(&self) -> Result<Vec<Arc<RunView>>, HostError> {
        self.readable().map(|()| self.views.unfinished_runs())
    }

    fn runs_on(&self, cluster: &ClusterKey) -> Result<Vec<Arc<RunView>>, HostError> {
        self.readable().map(|()| self.views.runs_on(cluster))
    }

    fn runs_of(&self, id: ClusterId) -> Result<Vec<Arc<RunView>>, HostError> {
        self.readable().map(|()| self.views.runs_of(id))
    }

    fn policies_on(&self, cluster: &ClusterKey) -> Vec<Arc<PolicyView>> {
        self.views.policies_on(cluster)
    }

    fn forgotten_runs(&self) -> Vec<(ObjectKey, Timestamp)> {
        self.remembered_runs()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.views.changes()
    }

    fn changes_on(&self, cluster: &ClusterKey) -> watch::Receiver<u64> {
        self.views.changes_on(cluster)
    }

    /// The state folder's lock keeps every other process out.
    fn permit(&self) -> Result<(), HostError> {
        Ok(())
    }

    async fn create_run(&self, run: NewRun) -> Result<Created, HostError> {
        let NewRun {
            name,
            policy,
            cause,
            created_at,
        } = run;
        let key = ObjectKey {
            namespace: policy.key.namespace.clone(),
            name: name.into(),
        };
        let _turn = self.turn(Kind::Run, &key).await;
        let stored = {
            let inner = self.inner();
            if let Some(error) = inner.runs_unreadable() {
                return Err(error);
            }
            if let Some(entry) = inner.runs.get(&key) {
                let own = entry
                    .stored
                    .owner()
                    .is_some_and(|owner| owner.uid == policy.uid);
                return Ok(if own {
                    Created::Adopted
                } else {
                    Created::Conflict
                });
            }
            Arc::new(new_run(&inner, &key, &policy, &cause, created_at)?)
        };
        self.write(stored.clone())
            .await
            .map_err(|error| not_stored(&error))?;
        let view = Arc::new(checked::run_view(&stored));
        let entry = Entry {
            stored,
            durable: true,
            shown: true,
            blocked: None,
            cluster_since: 1,
        };
        let mut inner = self.inner();
        inner.runs.insert(key, entry);
        self.views.put_run(view);
        Ok(Created::New)
    }

    async fn record_run(
        &self,
        key: &ObjectKey,
        generation: i64,
        record: &RunRecord,
    ) -> Result<(), HostError> {
        let _turn = self.turn(Kind::Run, key).await;
        let vanished = || HostError {
            reason: Reason::RunVanished,
            message: format!("the run {key} is not stored any more"),
        };
        let (before, durable) = {
            let inner = self.inner();
            let entry = inner.runs.get(key).ok_or_else(vanished)?;
            (entry.stored.clone(), entry.durable)
        };
        let status = EtcdDefragStatus::from_record(record, Some(generation), &before.status, now());
        let stored = self.write_status(&before, status, durable).await?;
        let mut inner = self.inner();
        let entry = inner.runs.get_mut(key).ok_or_else(vanished)?;
        entry.stored = stored;
        entry.durable = true;
        if let Some(view) = self.views.run(key) {
            self.views.put_run(Arc::new(RunView {
                record: record.clone(),
                ..(*view).clone()
            }));
        }
        Ok(())
    }

    async fn record_policy(&self, key: &PolicyOn, report: &PolicyReport) -> Result<(), HostError> {
        let durable = |entry: &Entry<StoredPolicy>| entry.durable && entry.blocked.is_none();
        if self.inner().policies.get(&key.policy).is_some_and(durable)
            && fleet::is_no_news(&self.views, key, report)
        {
            return Ok(());
        }
        let item = Item::On(key.clone(), Box::new(report.clone()));
        self.record_together(&key.policy, item).await
    }

    async fn record_fleet(&self, key: &ObjectKey, report: &FleetReport) -> Result<(), HostError> {
        self.record_together(key, Item::Fleet(report.clone())).await
    }

    async fn record_target(
        &self,
        cluster: &ClusterKey,
        report: &TargetReport,
    ) -> Result<(), HostError> {
        let key = &cluster.object;
        let _turn = self.turn(Kind::Target, key).await;
        let (before, durable) = {
            let inner = self.inner();
            let Some(entry) = inner.targets.get(key) else {
                return Ok(());
            };
            if let Some(why) = &entry.blocked {
                return Err(blocked(why));
            }
            // Other endpoints were asked: that says nothing about these.
            if report.generation != entry.stored.generation() {
                return Ok(());
            }
            (entry.stored.clone(), entry.durable)
        };
        let status = report::target_status(report, &before.status, now());
        let stored = self.write_status(&before, status, durable).await?;
        let mut inner = self.inner();
        if let Some(entry) = inner.targets.get_mut(key) {
            entry.stored = stored;
            entry.durable = true;
            if let Some(view) = self.views.target(cluster) {
                self.show_target(TargetView {
                    cluster_id: checked::cluster_id(&entry.stored),
                    ..(*view).clone()
                });
            }
        }
        Ok(())
    }

    async fn remove_run(&self, key: &ObjectKey) -> Result<(), HostError> {
        let _turn = self.turn(Kind::Run, key).await;
        if !self.inner().runs.contains_key(key) {
            return Ok(());
        }
        let view = self.views.run(key);
        if view.is_some_and(|view| !view.removable && !view.deleting) {
            return Ok(());
        }
        self.erase(Kind::Run, key)
            .await
            .map_err(|error| not_stored(&error))?;
        {
            let mut inner = self.inner();
            inner.runs.remove(key);
            self.views.remove_run(key);
        }
        // A document of that name, put back meanwhile, is a new run.
        self.reread.notify_one();
        Ok(())
    }

    fn event(&self, event: Event) {
        let Event {
            about,
            warning,
            note,
        } = event;
        let (kind, key) = match &about {
            About::Policy(key) => (Kind::Policy, key),
            About::Run(key) => (Kind::Run, key),
            About::Target(cluster) => (Kind::Target, &cluster.object),
        };
        let (kind, reason) = (kind.as_str(), note.reason.as_str());
        if warning {
            tracing::warn!(event = true, kind, object = %key, reason, "{}", note.message);
        } else {
            tracing::info!(event = true, kind, object = %key, reason, "{}", note.message);
        }
    }
}
