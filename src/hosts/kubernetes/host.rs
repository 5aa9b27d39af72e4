//! [`Host`] over the Kubernetes API.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use tokio::sync::watch;

use super::api::FIELD_MANAGER;
use super::cache::{Cache, Cached, Change};
use super::clusters::Clusters;
use super::current::Current;
use super::events::Events;
use super::new_run::new_run;
use super::objects::{Policies, Runs, Targets, generation_of, is_deleting, owner_of, uid_of};
use super::store::{Store, Written, not_stored};
use super::unreadable::Unreadable;
use crate::api::API_VERSION;
use crate::api::defrag::{EtcdDefrag, EtcdDefragStatus};
use crate::api::policy::{EtcdDefragPolicy, EtcdDefragPolicySpec};
use crate::api::target::{EtcdTarget, EtcdTargetStatus};
use crate::core::decide::Policy;
use crate::core::key::{ClusterKey, ClusterKind, ObjectKey};
use crate::core::reason::Reason;
use crate::core::run::RunRecord;
use crate::core::target::Members;
use crate::core::view::ClusterId;
use crate::engine::{
    About, Created, Event, FleetReport, FleetView, Host, HostError, NewRun, PolicyOn, PolicyReport,
    PolicyView, RunView, TargetReport, TargetView, now,
};
use crate::hosts::fleet::{self, Batches, Item};
use crate::hosts::report;
use crate::hosts::views::Views;

/// The Kubernetes host.
pub(super) struct KubernetesHost {
    pub(super) store: Store,
    pub(super) views: Views,
    pub(super) clusters: Clusters,
    pub(super) events: Events,
    pub(super) unreadable: Unreadable,
    pub(super) current: Current,
    /// Reports of policies that are stored together.
    pub(super) batches: Batches,
}

impl KubernetesHost {
    pub(super) fn new(store: Store, clusters: Clusters, events: Events) -> Self {
        KubernetesHost {
            store,
            views: Views::default(),
            clusters,
            events,
            unreadable: Unreadable::default(),
            current: Current::default(),
            batches: Batches::default(),
        }
    }

    /// Makes what was taken in visible to the engine, under the cache's lock: an
    /// older state must not be shown after a newer one.
    pub(super) fn show(&self, cache: &Cache, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Policy(view) => self.views.put_policy(view),
            Change::Fleet(key) => self.show_fleet(cache, &key),
            Change::PolicyGone(key) => self.views.remove_policy(&key),
            Change::Run(view) => {
                let key = view.key.clone();
                self.views.put_run(view);
                self.unreadable.remove(&key);
            }
            Change::RunGone(key) => {
                self.unreadable.remove(&key);
                self.views.remove_run(&key);
            }
            Change::RunUnreadable(key, lost) => {
                // First: nobody may find it neither here nor there.
                self.unreadable.insert(key.clone(), lost);
                self.views.remove_run(&key);
            }
            Change::Target { key, relabelled } => {
                self.clusters.show_target(cache, &self.views, &key);
                if relabelled {
                    self.views.stir();
                }
            }
        }
    }

    /// Takes in an object as a watch or an answer tells it.
    pub(super) fn take<K: Cached>(&self, object: &DynamicObject) {
        let mut cache = self.store.cache();
        let change = cache.take::<K>(object);
        self.show(&cache, change);
    }

    /// The object of this uid is gone.
    pub(super) fn gone<K: Cached>(&self, key: &ObjectKey, uid: &str) {
        let mut cache = self.store.cache();
        let change = cache.drop_object::<K>(key, uid);
        self.show(&cache, change);
    }

    /// What is known of the runs of this scope is what is stored.
    pub(super) fn proved(&self, scope: Option<&str>) {
        if self.current.proved(scope) {
            tracing::info!(namespace = scope, "the runs are known again");
            self.views.wake();
        }
    }

    /// A list that began at `since` is complete: what is not in it is gone.
    pub(super) fn keep_listed<K: Cached>(
        &self,
        namespace: Option<&str>,
        since: Instant,
        listed: &BTreeSet<ObjectKey>,
    ) {
        let mut cache = self.store.cache();
        for change in cache.keep_listed::<K>(namespace, since, listed) {
            self.show(&cache, change);
        }
    }

    /// Lets go of runs that have ended and could not be let go of then.
    pub(super) async fn let_go(&self) {
        let held: Vec<ObjectKey> = {
            let cache = self.store.cache();
            let held = cache.runs.iter().filter(|(key, entry)| {
                entry.finalizer
                    && !entry.deleting
                    && self
                        .views
                        .run(key)
                        .is_some_and(|run| run.record.phase.is_terminal())
            });
            held.map(|(key, _)| key.clone()).collect()
        };
        for key in held {
            let _turn = self.store.turn::<Runs>(&key).await;
            if let Err(error) = self.store.set_finalizer(&key, false).await {
                tracing::warn!(run = %key, %error, "unable to let go of the run");
            }
        }
    }

    /// The policy as it is stored now, if it still is the one that was evaluated.
    async fn unchanged(&self, policy: &PolicyView) -> Result<EtcdDefragPolicySpec, HostError> {
        let refuse = |message: String| HostError {
            reason: Reason::CreateFailed,
            message,
        };
        let stored = self.store.fresh::<Policies>(&policy.key).await?;
        let Some(stored) = stored.filter(|o| uid_of(o) == policy.uid && !is_deleting(o)) else {
            return Err(refuse(format!("the policy {} is gone", policy.key)));
        };
        self.take::<Policies>(&stored);
        let overtaken = {
            let cache = self.store.cache();
            cache.policies.get(&policy.key).is_none_or(|e| e.foreign)
        };
        if overtaken || generation_of(&stored) != policy.generation {
            return Err(refuse(format!(
                "the policy {} changed meanwhile; it is evaluated again",
                policy.key
            )));
        }
        super::objects::policy_spec(&stored).map_err(refuse)
    }

    /// Whether the runs on the cluster of that name and id are known, by all its names.
    fn readable(
        &self,
        cluster: Option<&ClusterKey>,
        id: Option<ClusterId>,
    ) -> Result<(), HostError> {
        if self.unreadable.is_empty() && self.current.is_sure() {
            return Ok(());
        }
        let mut names = id.map(|id| self.views.names_of(id)).unwrap_or_default();
        names.extend(cluster.cloned());
        self.unreadable.check_cluster(&names, id)?;
        let namespaces = names.iter().map(|name| name.object.namespace.as_str());
        self.current.check(namespaces)
    }

    /// Where the cluster is asked; nowhere while that is not known.
    fn endpoints(&self, cluster: &ClusterKey) -> Vec<String> {
        let target = self.views.target(cluster);
        let connection = target.as_ref().and_then(|target| target.spec.as_ref().ok());
        let endpoints = connection.into_iter().flat_map(|c| &c.endpoints);
        endpoints.map(ToString::to_string).collect()
    }

    /// What exists under the name of a run that was to be made.
    async fn existing(&self, key: &ObjectKey, policy: &PolicyView) -> Result<Created, HostError> {
        let Some(object) = self.store.fresh::<Runs>(key).await? else {
            return Err(HostError {
                reason: Reason::CreateFailed,
                message: format!("the run {key} existed a moment ago and is gone"),
            });
        };
        self.take::<Runs>(&object);
        let own = owner_of(&object).is_some_and(|owner| owner.uid == policy.uid);
        Ok(if own {
            Created::Adopted
        } else {
            Created::Conflict
        })
    }
}

impl Host for KubernetesHost {
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
        self.unreadable.check(key)?;
        Ok(self.views.run(key))
    }

    /// What cannot be read holds up its own cluster, not those of others.
    fn runs(&self) -> Result<Vec<Arc<RunView>>, HostError> {
        self.current.check_any()?;
        Ok(self.views.runs())
    }

    fn unfinished_runs(&self) -> Result<Vec<Arc<RunView>>, HostError> {
        self.current.check_any()?;
        Ok(self.views.unfinished_runs())
    }

    fn runs_on(&self, cluster: &ClusterKey) -> Result<Vec<Arc<RunView>>, HostError> {
        let target = self.views.target(cluster);
        self.readable(Some(cluster), target.and_then(|target| target.cluster_id))?;
        Ok(self.views.runs_on(cluster))
    }

    fn runs_of(&self, id: ClusterId) -> Result<Vec<Arc<RunView>>, HostError> {
        self.readable(None, Some(id))?;
        Ok(self.views.runs_of(id))
    }

    fn policies_on(&self, cluster: &ClusterKey) -> Vec<Arc<PolicyView>> {
        self.views.policies_on(cluster)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.views.changes()
    }

    fn changes_on(&self, cluster: &ClusterKey) -> watch::Receiver<u64> {
        self.views.changes_on(cluster)
    }

    fn permit(&self) -> Result<(), HostError> {
        self.store.leadership.permit()
    }

    async fn create_run(&self, run: NewRun) -> Result<Created, HostError> {
        let NewRun {
            name,
            policy,
            cause,
            created_at: _,
        } = run;
        let key = ObjectKey {
            namespace: policy.key.namespace.clone(),
            name: name.into(),
        };
        let _turn = self.store.turn::<Runs>(&key).await;
        if self.views.run(&key).is_some() {
            return self.existing(&key, &policy).await;
        }
        let spec = self.unchanged(&policy).await?;
        let wanted = new_run(&key, &policy, spec, &cause).map_err(|error| HostError {
            reason: Reason::CreateFailed,
            message: error.to_string(),
        })?;
        let api = self.store.api::<Runs>(&key.namespace);
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match self.store.write(api.create(&params, &wanted)).await? {
            Ok(object) => {
                self.take::<Runs>(&object);
                Ok(Created::New)
            }
            Err(error) if error.is_conflict() => self.existing(&key, &policy).await,
            Err(error) => Err(not_stored(&error)),
        }
    }

    async fn record_run(
        &self,
        key: &ObjectKey,
        generation: i64,
        record: &RunRecord,
    ) -> Result<(), HostError> {
        let _turn = self.store.turn::<Runs>(key).await;
        let ended = record.phase.is_terminal();
        if record.started_at.is_some() && !ended {
            self.store.set_finalizer(key, true).await?;
        }
        self.store
            .write_status::<Runs>(
                key,
                |cache, change| self.show(cache, change),
                |before| EtcdDefragStatus::from_record(record, Some(generation), before, now()),
            )
            .await?;
        let deleting = {
            let _cache = self.store.cache();
            match self.views.run(key) {
                Some(view) => {
                    self.views.put_run(Arc::new(RunView {
                        record: record.clone(),
                        ..(*view).clone()
                    }));
                    view.deleting
                }
                None => true,
            }
        };
        // One that is being deleted is let go of once its policies know its end.
        if ended
            && !deleting
            && let Err(error) = self.store.set_finalizer(key, false).await
        {
            tracing::warn!(run = %key, %error, "unable to let go of the run, it is tried again");
        }
        Ok(())
    }

    async fn record_policy(&self, key: &PolicyOn, report: &PolicyReport) -> Result<(), HostError> {
        if fleet::is_no_news(&self.views, key, report) {
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
        key: &ClusterKey,
        report: &TargetReport,
    ) -> Result<(), HostError> {
        if key.kind != ClusterKind::EtcdTarget {
            // Objects of others are read, never written.
            let id = report.seen.as_ref().and_then(|seen| {
                let mut ids = seen.cluster_ids.iter();
                ids.next().copied().filter(|_| ids.next().is_none())
            });
            if let Some(id) = id {
                self.clusters.identified(&self.views, key, id);
            }
            return Ok(());
        }
        let object = &key.object;
        let _turn = self.store.turn::<Targets>(object).await;
        let by_pods = {
            let cache = self.store.cache();
            let Some(entry) = cache.targets.get(object) else {
                return Ok(());
            };
            // Other endpoints were asked: that says nothing about these.
            if report.generation != entry.generation {
                return Ok(());
            }
            let target = entry.extra.target.as_deref();
            target.is_ok_and(|target| matches!(target.members, Members::Pods { .. }))
        };
        let found = if by_pods {
            self.endpoints(key)
        } else {
            Vec::new()
        };
        let written = self
            .store
            .write_status::<Targets>(
                object,
                |cache, change| self.show(cache, change),
                |before| EtcdTargetStatus {
                    endpoints: found,
                    ..report::target_status(report, before, now())
                },
            )
            .await;
        if let Some(Written::Stored { before, after }) = tolerate_vanished(written)?
            && before.cluster_id != after.cluster_id
        {
            let cache = self.store.cache();
            self.clusters.show_target(&cache, &self.views, object);
        }
        Ok(())
    }

    async fn remove_run(&self, key: &ObjectKey) -> Result<(), HostError> {
        let _turn = self.store.turn::<Runs>(key).await;
        let found = {
            let cache = self.store.cache();
            let entry = cache.runs.get(key);
            entry.map(|entry| (entry.uid.clone(), entry.deleting))
        };
        let Some((uid, deleting)) = found else {
            return Ok(());
        };
        if deleting {
            return self.store.set_finalizer(key, false).await;
        }
        let api = self.store.api::<Runs>(&key.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let removed = self.store.write(api.delete(&key.name, &params)).await?;
        match removed {
            Ok(_) => Ok(()),
            // It is gone, or another object has its name.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(not_stored(&error)),
        }
    }

    fn event(&self, event: Event) {
        let (kind, key, uid) = {
            let cache = self.store.cache();
            match &event.about {
                About::Policy(key) => (
                    EtcdDefragPolicy::kind(&()),
                    key,
                    cache.policies.get(key).map(|entry| entry.uid.clone()),
                ),
                About::Run(key) => (
                    EtcdDefrag::kind(&()),
                    key,
                    cache.runs.get(key).map(|entry| entry.uid.clone()),
                ),
                About::Target(cluster) if cluster.kind == ClusterKind::EtcdTarget => {
                    let key = &cluster.object;
                    let uid = cache.targets.get(key).map(|entry| entry.uid.clone());
                    (EtcdTarget::kind(&()), key, uid)
                }
                // An object of others is not ours to speak about.
                About::Target(_) => return,
            }
        };
        let about = ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some(kind.clone().into_owned()),
            namespace: Some(key.namespace.to_string()),
            name: Some(key.name.to_string()),
            uid,
            ..ObjectReference::default()
        };
        let (reason, message) = (event.note.reason.as_str(), &event.note.message);
        if event.warning {
            tracing::warn!(event = true, %kind, object = %key, reason, "{message}");
        } else {
            tracing::info!(event = true, %kind, object = %key, reason, "{message}");
        }
        self.events.tell(about, event);
    }
}

/// That an object is gone is no news where nothing depends on it.
pub(super) fn tolerate_vanished<S>(
    written: Result<Written<S>, HostError>,
) -> Result<Option<Written<S>>, HostError> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(error) if error.reason == Reason::RunVanished => Ok(None),
        Err(error) => Err(error),
    }
}
