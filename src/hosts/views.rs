//! The engine's view of a host's objects: looked up by name and by cluster, with
//! a channel of changes for all and for each cluster. Every host keeps one.
//!
//! A cluster has several names when several targets were seen to lead to the
//! same cluster id. What concerns one of its names concerns all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::watch;

use crate::core::view::ClusterId;
use crate::engine::{ClusterKey, FleetView, ObjectKey, PolicyOn, PolicyView, RunView, TargetView};

mod policies;
#[cfg(test)]
mod tests;

/// What a host knows, for the engine's reads.
#[derive(Debug, Default)]
pub struct Views {
    inner: RwLock<Inner>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    policies: BTreeMap<PolicyOn, Arc<PolicyView>>,
    fleets: BTreeMap<ObjectKey, Arc<FleetView>>,
    targets: BTreeMap<ClusterKey, Arc<TargetView>>,
    runs: BTreeMap<ObjectKey, Arc<RunView>>,
    unfinished: BTreeSet<ObjectKey>,
    clusters: HashMap<ClusterKey, Cluster>,
    /// The targets that lead to a cluster, and the runs that were seen to work on it.
    by_id: HashMap<ClusterId, Identity>,
}

/// What names a cluster.
#[derive(Debug, Default)]
struct Cluster {
    policies: BTreeSet<ObjectKey>,
    runs: BTreeSet<ObjectKey>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Identity {
    targets: BTreeSet<ClusterKey>,
    runs: BTreeSet<ObjectKey>,
}

/// What a change of one object is news to.
#[derive(Debug, Default)]
struct News {
    /// Objects that need a worker, or no longer do.
    everybody: bool,
    clusters: BTreeSet<ClusterKey>,
}

impl Views {
    /// Nothing that is done under the lock can leave it half done: the maps are
    /// changed one by one, and none is read in between.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the target. It is news when its version is another one.
    pub fn put_target(&self, view: Arc<TargetView>) {
        let mut inner = self.write();
        let old = inner.targets.insert(view.key.clone(), view.clone());
        if old.as_ref().is_some_and(|old| {
            (old.version, old.generation, old.cluster_id)
                == (view.version, view.generation, view.cluster_id)
        }) {
            return;
        }
        let mut news = News {
            everybody: old.is_none(),
            ..News::default()
        };
        inner.clusters.entry(view.key.clone()).or_default();
        if let Some(old) = old
            && old.cluster_id != view.cluster_id
            && let Some(id) = old.cluster_id
        {
            inner.names_of(id, &mut news);
            inner.drop_identity(id, |identity| {
                identity.targets.remove(&old.key);
            });
        }
        if let Some(id) = view.cluster_id {
            let identity = inner.by_id.entry(id).or_default();
            identity.targets.insert(view.key.clone());
        }
        inner.name_all(&view.key, &mut news);
        self.tell(&inner, news);
    }

    /// The target is gone.
    pub fn remove_target(&self, key: &ClusterKey) {
        let mut inner = self.write();
        if !inner.targets.contains_key(key) {
            return;
        }
        let mut news = News {
            everybody: true,
            ..News::default()
        };
        inner.name_all(key, &mut news);
        if let Some(old) = inner.targets.remove(key)
            && let Some(id) = old.cluster_id
        {
            inner.drop_identity(id, |identity| {
                identity.targets.remove(key);
            });
        }
        self.tell(&inner, news);
        inner.drop_idle(key);
    }

    /// Shows the run. A step within its sweep is no news to others; that it
    /// begins, ends, or is asked to end is.
    pub fn put_run(&self, view: Arc<RunView>) {
        let mut inner = self.write();
        let old = inner.runs.insert(view.key.clone(), view.clone());
        if old.as_ref().is_some_and(|old| same_run(old, &view)) {
            return;
        }
        let over = view.record.phase.is_terminal();
        let mut news = News {
            everybody: old.as_ref().is_none_or(|old| {
                old.record.phase.is_terminal() != over
                    || old.deleting != view.deleting
                    || old.record.started_at.is_some() != view.record.started_at.is_some()
                    || old.record.holds_place() != view.record.holds_place()
            }),
            ..News::default()
        };
        if over {
            inner.unfinished.remove(&view.key);
        } else {
            inner.unfinished.insert(view.key.clone());
        }
        if let Some(old) = &old {
            inner.name_run(old, &mut news);
            if (&old.cluster, old.record.cluster_id) != (&view.cluster, view.record.cluster_id) {
                inner.drop_run(old);
            }
        }
        let cluster = inner.clusters.entry(view.cluster.clone()).or_default();
        cluster.runs.insert(view.key.clone());
        if let Some(id) = view.record.cluster_id {
            inner
                .by_id
                .entry(id)
                .or_default()
                .runs
                .insert(view.key.clone());
        }
        inner.name_run(&view, &mut news);
        self.tell(&inner, news);
    }

    /// The run is gone.
    pub fn remove_run(&self, key: &ObjectKey) {
        let mut inner = self.write();
        let Some(old) = inner.runs.remove(key) else {
            return;
        };
        inner.unfinished.remove(key);
        let mut news = News {
            everybody: true,
            ..News::default()
        };
        inner.name_run(&old, &mut news);
        self.tell(&inner, news);
        inner.drop_run(&old);
    }

    /// Wakes everybody who waits for a change: what could not be done before may
    /// be possible now.
    pub fn wake(&self) {
        let inner = self.read();
        for cluster in inner.clusters.values() {
            bump(&cluster.changes);
        }
        bump(&self.changes);
    }

    /// Tells those who look after all objects that something of them changed.
    pub fn stir(&self) {
        bump(&self.changes);
    }

    pub fn cluster_keys(&self) -> Vec<ClusterKey> {
        self.read().targets.keys().cloned().collect()
    }

    /// The clusters that policies or runs name, whether they are known or not.
    pub fn clusters_named(&self) -> Vec<ClusterKey> {
        let inner = self.read();
        let named = inner
            .clusters
            .iter()
            .filter(|(_, cluster)| !(cluster.policies.is_empty() && cluster.runs.is_empty()));
        named.map(|(key, _)| key.clone()).collect()
    }

    pub fn target(&self, key: &ClusterKey) -> Option<Arc<TargetView>> {
        self.read().targets.get(key).cloned()
    }

    pub fn run(&self, key: &ObjectKey) -> Option<Arc<RunView>> {
        self.read().runs.get(key).cloned()
    }

    pub fn runs(&self) -> Vec<Arc<RunView>> {
        self.read().runs.values().cloned().collect()
    }

    pub fn unfinished_runs(&self) -> Vec<Arc<RunView>> {
        let inner = self.read();
        let keys = inner.unfinished.iter();
        keys.filter_map(|key| inner.runs.get(key).cloned())
            .collect()
    }

    pub fn runs_on(&self, cluster: &ClusterKey) -> Vec<Arc<RunView>> {
        let inner = self.read();
        match inner.identity(cluster) {
            None => inner.views_of(inner.runs_named(cluster)),
            Some(identity) => inner.runs_of(identity),
        }
    }

    /// The runs that name the cluster of this id by any of its targets, and those that
    /// were seen to work on it.
    pub fn runs_of(&self, id: ClusterId) -> Vec<Arc<RunView>> {
        let inner = self.read();
        let identity = inner.by_id.get(&id);
        identity.map_or_else(Vec::new, |identity| inner.runs_of(identity))
    }

    /// Every name by which the cluster of this id is known.
    pub fn names_of(&self, id: ClusterId) -> BTreeSet<ClusterKey> {
        let inner = self.read();
        let identity = inner.by_id.get(&id);
        identity.map_or_else(BTreeSet::new, |identity| identity.targets.clone())
    }

    pub fn policies_on(&self, cluster: &ClusterKey) -> Vec<Arc<PolicyView>> {
        let inner = self.read();
        let of = |name: &ClusterKey| {
            let policies = inner.clusters.get(name).map(|cluster| &cluster.policies);
            let on = |policy: &ObjectKey| PolicyOn {
                policy: policy.clone(),
                cluster: name.clone(),
            };
            let views = policies.into_iter().flatten();
            let views = views.filter_map(|policy| inner.policies.get(&on(policy)).cloned());
            views.collect::<Vec<_>>()
        };
        match inner.identity(cluster) {
            None => of(cluster),
            Some(identity) => identity.targets.iter().flat_map(of).collect(),
        }
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn changes_on(&self, cluster: &ClusterKey) -> watch::Receiver<u64> {
        if let Some(known) = self.read().clusters.get(cluster) {
            return known.changes.subscribe();
        }
        let mut inner = self.write();
        // Nobody else tells when the last receiver of a cluster that is gone lets go.
        inner.drop_all_idle();
        let cluster = inner.clusters.entry(cluster.clone()).or_default();
        cluster.changes.subscribe()
    }

    fn tell(&self, inner: &Inner, news: News) {
        for cluster in &news.clusters {
            if let Some(cluster) = inner.clusters.get(cluster) {
                bump(&cluster.changes);
            }
        }
        if news.everybody {
            bump(&self.changes);
        }
    }
}

fn bump(changes: &watch::Sender<u64>) {
    changes.send_modify(|count| *count = count.wrapping_add(1));
}

impl Cluster {
    fn is_idle(&self) -> bool {
        self.policies.is_empty() && self.runs.is_empty() && self.changes.receiver_count() == 0
    }
}

impl Inner {
    /// What is known of the cluster by its id.
    fn identity(&self, cluster: &ClusterKey) -> Option<&Identity> {
        self.by_id.get(&self.targets.get(cluster)?.cluster_id?)
    }

    fn runs_named(&self, cluster: &ClusterKey) -> impl Iterator<Item = &ObjectKey> {
        let cluster = self.clusters.get(cluster);
        cluster.into_iter().flat_map(|cluster| &cluster.runs)
    }

    fn runs_of(&self, identity: &Identity) -> Vec<Arc<RunView>> {
        let named = identity.targets.iter();
        let named = named.flat_map(|name| self.runs_named(name));
        // A run may be known by its name and by the cluster that it found.
        let all: BTreeSet<&ObjectKey> = named.chain(&identity.runs).collect();
        self.views_of(all.into_iter())
    }

    fn views_of<'a>(&self, keys: impl Iterator<Item = &'a ObjectKey>) -> Vec<Arc<RunView>> {
        keys.filter_map(|key| self.runs.get(key).cloned()).collect()
    }

    /// Adds every name of the cluster.
    fn name_all(&self, cluster: &ClusterKey, news: &mut News) {
        news.clusters.insert(cluster.clone());
        if let Some(identity) = self.identity(cluster) {
            news.clusters.extend(identity.targets.iter().cloned());
        }
    }

    fn names_of(&self, id: ClusterId, news: &mut News) {
        if let Some(identity) = self.by_id.get(&id) {
            news.clusters.extend(identity.targets.iter().cloned());
        }
    }

    fn name_run(&self, run: &RunView, news: &mut News) {
        self.name_all(&run.cluster, news);
        if let Some(id) = run.record.cluster_id {
            self.names_of(id, news);
        }
    }

    fn drop_run(&mut self, run: &RunView) {
        if let Some(cluster) = self.clusters.get_mut(&run.cluster) {
            cluster.runs.remove(&run.key);
        }
        if let Some(id) = run.record.cluster_id {
            self.drop_identity(id, |identity| {
                identity.runs.remove(&run.key);
            });
        }
        self.drop_idle(&run.cluster);
    }

    fn drop_identity(&mut self, id: ClusterId, part: impl FnOnce(&mut Identity)) {
        if let Some(identity) = self.by_id.get_mut(&id) {
            part(identity);
            if identity.targets.is_empty() && identity.runs.is_empty() {
                self.by_id.remove(&id);
            }
        }
    }

    fn drop_idle(&mut self, cluster: &ClusterKey) {
        let idle = self.clusters.get(cluster).is_some_and(Cluster::is_idle);
        if idle && !self.targets.contains_key(cluster) {
            self.clusters.remove(cluster);
        }
    }

    fn drop_all_idle(&mut self) {
        let targets = &self.targets;
        self.clusters
            .retain(|key, cluster| targets.contains_key(key) || !cluster.is_idle());
    }
}

/// True when they differ at most in how far the sweep is.
fn same_run(old: &RunView, new: &RunView) -> bool {
    let RunView {
        key,
        generation,
        cluster,
        owner,
        created_at,
        spec,
        record,
        deleting,
        removable,
    } = new;
    let progress = |record: &crate::core::run::RunRecord| {
        (
            record.phase,
            record.started_at,
            record.completed_at,
            record.cluster_id,
            record.holds_place(),
        )
    };
    let described = (&old.key, old.generation, &old.cluster, &old.owner)
        == (key, *generation, cluster, owner)
        && (old.created_at, old.deleting, old.removable) == (*created_at, *deleting, *removable);
    described
        && progress(&old.record) == progress(record)
        && match (&old.spec, spec) {
            (Ok(old), Ok(new)) => Arc::ptr_eq(old, new) || old == new,
            (Err(old), Err(new)) => old == new,
            _ => false,
        }
}
