//! Policies, each on each of its clusters.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Inner, News, Views};
use crate::core::decide::{ClusterState, Policy};
use crate::core::key::{ClusterKind, Name};
use crate::engine::{ClusterKey, FleetView, ObjectKey, PolicyOn, PolicyView};

impl Views {
    /// Shows a policy that is about one cluster. That only what is remembered of it
    /// changed is no news.
    pub fn put_policy(&self, view: Arc<PolicyView>) {
        let key = view.key.clone();
        self.put_all(&key, None, vec![view]);
    }

    /// Shows a policy that selects its clusters, on each of them.
    pub fn put_fleet(&self, fleet: Arc<FleetView>, members: Vec<Arc<PolicyView>>) {
        let key = fleet.key.clone();
        self.put_all(&key, Some(fleet), members);
    }

    /// The policy is gone.
    pub fn remove_policy(&self, key: &ObjectKey) {
        self.put_all(key, None, Vec::new());
    }

    /// Shows what is remembered now, unless it is about another policy of that name.
    pub fn remember(&self, key: &PolicyOn, uid: &str, state: &ClusterState) {
        let mut inner = self.write();
        if let Some(view) = inner.policies.get_mut(key)
            && view.uid == uid
        {
            *view = Arc::new(PolicyView {
                state: state.clone(),
                ..(**view).clone()
            });
        }
    }

    fn put_all(
        &self,
        key: &ObjectKey,
        fleet: Option<Arc<FleetView>>,
        members: Vec<Arc<PolicyView>>,
    ) {
        let mut inner = self.write();
        let mut news = News::default();
        let wanted: BTreeSet<&ClusterKey> = members.iter().map(|view| &view.cluster).collect();
        let left: Vec<PolicyOn> = inner
            .units(key)
            .filter(|view| !wanted.contains(&view.cluster))
            .map(|view| view.on())
            .collect();
        for on in &left {
            // Somebody may have to look at another cluster, or at none.
            news.everybody = true;
            inner.name_all(&on.cluster, &mut news);
        }
        let mut dropped = Vec::new();
        for on in left {
            inner.policies.remove(&on);
            if let Some(cluster) = inner.clusters.get_mut(&on.cluster) {
                cluster.policies.remove(key);
            }
            dropped.push(on.cluster);
        }
        for view in members {
            inner.put_unit(view, &mut news);
        }
        let old = match &fleet {
            Some(fleet) => inner.fleets.insert(key.clone(), fleet.clone()),
            None => inner.fleets.remove(key),
        };
        // Its own worker has to come, go, or look again.
        news.everybody |= old.as_deref() != fleet.as_deref();
        self.tell(&inner, news);
        for cluster in dropped {
            inner.drop_idle(&cluster);
        }
    }

    /// Every policy on each of its clusters.
    pub fn policy_keys(&self) -> Vec<PolicyOn> {
        self.read().policies.keys().cloned().collect()
    }

    pub fn policy(&self, key: &PolicyOn) -> Option<Arc<PolicyView>> {
        self.read().policies.get(key).cloned()
    }

    /// The policy on its clusters, in their order.
    pub fn policy_units(&self, key: &ObjectKey) -> Vec<Arc<PolicyView>> {
        self.read().units(key).cloned().collect()
    }

    /// Whether there is such a policy.
    pub fn has_policy(&self, key: &ObjectKey) -> bool {
        let inner = self.read();
        inner.fleets.contains_key(key) || inner.units(key).next().is_some()
    }

    /// The validated spec of the policy.
    pub fn policy_spec(&self, key: &ObjectKey) -> Option<Arc<Policy>> {
        let inner = self.read();
        match inner.fleets.get(key) {
            Some(fleet) => fleet.spec.as_ref().ok().cloned(),
            None => inner.units(key).next()?.spec.as_ref().ok().cloned(),
        }
    }

    pub fn fleet_keys(&self) -> Vec<ObjectKey> {
        self.read().fleets.keys().cloned().collect()
    }

    pub fn fleet(&self, key: &ObjectKey) -> Option<Arc<FleetView>> {
        self.read().fleets.get(key).cloned()
    }
}

impl Inner {
    /// The policy on its clusters.
    fn units(&self, key: &ObjectKey) -> impl Iterator<Item = &Arc<PolicyView>> {
        let first = PolicyOn {
            policy: key.clone(),
            cluster: ClusterKey {
                kind: ClusterKind::FIRST,
                object: ObjectKey {
                    namespace: Name::default(),
                    name: Name::default(),
                },
            },
        };
        self.policies
            .range(first..)
            .take_while(move |(on, _)| on.policy == *key)
            .map(|(_, view)| view)
    }

    fn put_unit(&mut self, view: Arc<PolicyView>, news: &mut News) {
        let old = self.policies.insert(view.on(), view.clone());
        if old.as_ref().is_some_and(|old| same_policy(old, &view)) {
            return;
        }
        // Its cluster may not be looked at yet.
        news.everybody |= old.is_none();
        let cluster = self.clusters.entry(view.cluster.clone()).or_default();
        cluster.policies.insert(view.key.clone());
        self.name_all(&view.cluster, news);
    }
}

/// True when they differ at most in what is remembered.
fn same_policy(old: &PolicyView, new: &PolicyView) -> bool {
    let PolicyView {
        key,
        uid,
        generation,
        cluster,
        series,
        spec,
        state: _,
    } = new;
    let described = (
        &old.key,
        &old.uid,
        old.generation,
        &old.cluster,
        &old.series,
    ) == (key, uid, *generation, cluster, series);
    described
        && match (&old.spec, spec) {
            (Ok(old), Ok(new)) => Arc::ptr_eq(old, new) || old == new,
            (Err(old), Err(new)) => old == new,
            _ => false,
        }
}
