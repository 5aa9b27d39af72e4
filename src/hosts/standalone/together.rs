//! Reports of policies: what several clusters of one policy have to say at the same
//! time is stored in one write.

use std::sync::Arc;

use super::checked;
use super::host::{StandaloneHost, blocked, not_stored};
use super::stored::{Kind, StoredPolicy};
use crate::engine::{HostError, ObjectKey, PolicyOn, PolicyReport, now};
use crate::hosts::fleet::{self, Item};

impl StandaloneHost {
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
        let mut stored = before.clone();
        if status != before.status || !durable {
            stored = Arc::new(StoredPolicy {
                status,
                ..(*before).clone()
            });
            self.write(stored.clone())
                .await
                .map_err(|error| not_stored(&error))?;
        }
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
