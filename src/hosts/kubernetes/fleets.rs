//! Policies: those that select their clusters, and reports of one policy on many
//! clusters in one write.

use super::cache::Cache;
use super::clusters::needs_of_kind;
use super::follow::{Known, Need};
use super::host::{KubernetesHost, tolerate_vanished};
use super::objects::Policies;
use crate::core::key::{ClusterKey, ClusterKind, ObjectKey};
use crate::engine::{FleetView, HostError, PolicyOn, PolicyReport, now};
use crate::hosts::fleet::{self, Candidates, Item, Selecting};

impl KubernetesHost {
    /// Shows a policy on the clusters that match now.
    pub(super) fn show_fleet(&self, cache: &Cache, key: &ObjectKey) {
        let Some(view) = self.fleet_now(cache, key) else {
            return;
        };
        let Some(entry) = cache.policies.get(key) else {
            return;
        };
        let remembered = entry.status.as_ref().ok();
        let remembered = remembered.and_then(|status| status.status().ok());
        fleet::show(&self.views, view, &remembered.unwrap_or_default());
    }

    /// Clusters may have come, gone or got other labels.
    pub(super) fn refresh_fleets(&self) {
        for key in self.views.fleet_keys() {
            let cache = self.store.cache();
            let now = self.fleet_now(&cache, &key);
            if now.is_some() && now.as_ref() != self.views.fleet(&key).as_deref() {
                self.show_fleet(&cache, &key);
            }
        }
    }

    /// What has to be followed to know which clusters match.
    pub(super) fn fleet_needs(&self) -> Vec<Need> {
        let fleets = self.views.fleet_keys();
        let fleets = fleets.iter().filter_map(|key| self.views.fleet(key));
        fleets
            .flat_map(|fleet| {
                kinds(&fleet)
                    .into_iter()
                    .map(move |kind| (kind, fleet.key.namespace.clone()))
            })
            .filter_map(|(kind, namespace)| needs_of_kind(kind, &namespace))
            .collect()
    }

    fn fleet_now(&self, cache: &Cache, key: &ObjectKey) -> Option<FleetView> {
        let entry = cache.policies.get(key)?;
        if entry.deleting || entry.extra.cluster.is_some() {
            return None;
        }
        let policy = Selecting {
            key,
            uid: &entry.uid,
            generation: entry.generation,
            spec: &entry.extra.spec,
        };
        let spec = entry.extra.spec.as_ref().ok();
        let selector = spec.and_then(|spec| spec.fleet.as_ref().map(|fleet| &fleet.selector));
        let mut candidates: Candidates = cache
            .targets
            .iter()
            .filter(|(target, _)| target.namespace == key.namespace)
            .map(|(target, entry)| {
                (
                    ClusterKey::target(target.clone()),
                    entry.extra.labels.clone(),
                )
            })
            .collect();
        let mut unlisted = Vec::new();
        for kind in selector.into_iter().flat_map(|selector| &selector.kinds) {
            let Some(need) = needs_of_kind(*kind, &key.namespace) else {
                continue;
            };
            match self.clusters.known(&need) {
                Known::Objects(objects) => candidates.extend(objects.iter().map(|object| {
                    let cluster = ClusterKey {
                        kind: *kind,
                        object: super::objects::key_of(object),
                    };
                    (cluster, object.metadata.labels.clone().unwrap_or_default())
                })),
                // Without its kind there are none.
                Known::NotServed => {}
                Known::NotYet => {
                    unlisted.push(format!("{} are being listed", need.resource.as_str()));
                }
                Known::Failed(problem) => {
                    unlisted.push(format!("{}: {problem}", need.resource.as_str()));
                }
            }
        }
        Some(fleet::resolve(policy, &candidates, unlisted))
    }

    /// Stores the item, and what others have brought meanwhile.
    pub(super) async fn record_together(
        &self,
        policy: &ObjectKey,
        item: Item,
    ) -> Result<(), HostError> {
        let mut told = self.batches.add(policy, item);
        let _turn = self.store.turn::<Policies>(policy).await;
        let batch = match self.batches.take(policy, &mut told) {
            Ok(batch) => batch,
            Err(outcome) => return outcome,
        };
        let outcome = self.record_items(policy, &batch.items).await;
        batch.done(&outcome);
        outcome
    }

    async fn record_items(&self, policy: &ObjectKey, items: &[Item]) -> Result<(), HostError> {
        let known = {
            let cache = self.store.cache();
            let Some(entry) = cache.policies.get(policy).filter(|entry| !entry.deleting) else {
                return Ok(());
            };
            let extra = &entry.extra;
            (
                entry.uid.clone(),
                extra.cluster.clone(),
                extra.cluster_since,
            )
        };
        let (uid, cluster, since) = known;
        let mut room = Ok(());
        let mut kept = Vec::new();
        let make = |before: &_| match (&cluster, self.views.fleet(policy)) {
            (None, Some(fleet)) => {
                let (status, outcome) = fleet::status(&fleet, items, before, now());
                room = outcome;
                kept = items.iter().collect();
                status
            }
            // Nobody knows its clusters yet.
            (None, None) => before.clone(),
            (Some(cluster), _) => {
                // It was another policy of this name, or about another cluster: that says
                // nothing about this one.
                let about = |on: &PolicyOn, report: &PolicyReport| {
                    report.uid == uid && report.generation >= since && on.cluster == *cluster
                };
                let name = cluster.local_name();
                let name = (!name.is_empty()).then_some(name);
                let made = fleet::status_of_one(name.as_deref(), items, before, now(), about);
                kept = made.1;
                made.0
            }
        };
        let written = self
            .store
            .write_status::<Policies>(policy, |cache, change| self.show(cache, change), make)
            .await;
        tolerate_vanished(written)?;
        let _cache = self.store.cache();
        if room.is_ok() {
            fleet::remember(&self.views, kept);
        }
        room
    }
}

/// The kinds of cluster that a policy selects among.
fn kinds(fleet: &FleetView) -> Vec<ClusterKind> {
    let spec = fleet.spec.as_ref().ok();
    let selector = spec.and_then(|spec| spec.fleet.as_ref().map(|fleet| &fleet.selector));
    let kinds = selector.into_iter().flat_map(|selector| &selector.kinds);
    kinds.copied().collect()
}
