//! Policies that select their targets, and reports of policies: what several clusters
//! of one policy have to say at the same time is stored in one write.

use super::checked;
use super::host::{Entry, Inner, StandaloneHost, blocked};
use super::stored::{Kind, StoredPolicy};
use crate::engine::{ClusterKey, FleetView, HostError, ObjectKey, PolicyOn, PolicyReport, now};
use crate::hosts::fleet::{self, Item, Selecting};

impl StandaloneHost {
    /// The policy with the targets that match now.
    pub(super) fn fleet_of(&self, inner: &Inner, entry: &Entry<StoredPolicy>) -> FleetView {
        let key = entry.stored.key();
        let targets = inner.targets.iter();
        let candidates = targets
            .filter(|(target, entry)| entry.shown && target.namespace == key.namespace)
            .map(|(target, entry)| {
                let labels = entry.stored.metadata.labels.clone();
                (
                    ClusterKey::target(target.clone()),
                    labels.unwrap_or_default(),
                )
            })
            .collect();
        let policy = Selecting {
            key: &key,
            uid: entry.stored.metadata.uid.as_deref().unwrap_or_default(),
            generation: entry.stored.generation(),
            spec: &checked::policy_spec(&entry.stored, entry.blocked.as_deref()),
        };
        fleet::resolve(policy, &candidates, Vec::new())
    }

    /// Targets may have come, gone or got other labels.
    pub(super) fn refresh_fleets(&self) {
        let inner = self.inner();
        for entry in inner.policies.values() {
            if !entry.shown || !checked::selects(&entry.stored) {
                continue;
            }
            let now = self.fleet_of(&inner, entry);
            if self.views.fleet(&now.key).as_deref() != Some(&now) {
                fleet::show(&self.views, now, &entry.stored.status);
            }
        }
    }

    /// Stores the item, and what others have brought meanwhile.
    pub(super) async fn record_together(
        &self,
        policy: &ObjectKey,
        item: Item,
    ) -> Result<(), HostError> {
        let mut told = self.batches.add(policy, item);
        let _turn = self.turn(Kind::Policy, policy).await;
        let batch = match self.batches.take(policy, &mut told) {
            Ok(batch) => batch,
            Err(outcome) => return outcome,
        };
        let outcome = self.record_items(policy, &batch.items).await;
        batch.done(&outcome);
        outcome
    }

    async fn record_items(&self, policy: &ObjectKey, items: &[Item]) -> Result<(), HostError> {
        let (before, durable, cluster_since) = {
            let inner = self.inner();
            let Some(entry) = inner.policies.get(policy) else {
                return Ok(());
            };
            if let Some(why) = &entry.blocked {
                return Err(blocked(why));
            }
            (entry.stored.clone(), entry.durable, entry.cluster_since)
        };
        let mut room = Ok(());
        let (status, kept) = match self.views.fleet(policy) {
            Some(fleet) => {
                let (status, outcome) = fleet::status(&fleet, items, &before.status, now());
                room = outcome;
                (status, items.iter().collect())
            }
            None => {
                let cluster = checked::cluster_name(&before);
                // It was evaluated on another cluster: that says nothing about this one.
                let about = |on: &PolicyOn, report: &PolicyReport| {
                    report.generation >= cluster_since
                        && cluster.is_none_or(|name| name == on.cluster.object.name)
                };
                fleet::status_of_one(cluster, items, &before.status, now(), about)
            }
        };
        let stored = self.write_status(&before, status, durable).await?;
        let mut inner = self.inner();
        if let Some(entry) = inner.policies.get_mut(policy) {
            entry.stored = stored;
            entry.durable = true;
            if room.is_ok() {
                fleet::remember(&self.views, kept);
            }
        }
        room
    }
}
