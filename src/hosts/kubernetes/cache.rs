//! What the watches told and what we wrote, whichever is newer.
//!
//! A watch runs behind: it may tell of a state that our own write has replaced
//! already, and it may tell of our own write before its answer has arrived. So
//! each entry knows which status we believe to be stored, and which we have
//! asked for without an answer. A status that is neither was written by
//! somebody else, most likely a replica that took us for dead; whoever still
//! works with the old one must begin anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use kube::api::DynamicObject;

use super::kept::Kept;
use super::objects::{
    Kind, Lost, Policies, Runs, Targets, Version, cluster_of, generation_of, has_finalizer,
    is_deleting, key_of, policy_view, run_view, selects, status, target, uid_of, valid_policy,
    version_of,
};
use crate::core::decide::Policy;
use crate::core::key::{ClusterKey, ObjectKey};
use crate::core::run::Note;
use crate::core::target::Target;
use crate::core::view::ClusterId;
use crate::engine::{PolicyView, RunView};

/// Writes without an answer that are remembered of one object. With one version
/// as their condition only one of them can have been stored.
const UNSETTLED: usize = 16;

/// An object as it is believed to be stored.
#[derive(Debug)]
pub(super) struct Entry<K: Kind, X> {
    pub(super) uid: String,
    pub(super) version: Version,
    pub(super) generation: i64,
    /// Or why it cannot be read.
    pub(super) status: Result<Kept<K::Status>, String>,
    /// Asked for, and never answered.
    pub(super) unsettled: Vec<Kept<K::Status>>,
    /// Somebody else wrote the status since anybody looked.
    pub(super) foreign: bool,
    pub(super) finalizer: bool,
    pub(super) deleting: bool,
    touched: Instant,
    pub(super) extra: X,
}

/// What is particular about a policy.
#[derive(Clone, Debug)]
pub(super) struct PolicyExtra {
    /// The cluster that it names; `None`: it selects its clusters.
    pub(super) cluster: Option<ClusterKey>,
    /// The generation since which it has been about this cluster.
    pub(super) cluster_since: i64,
    /// The validated spec, or every error in one text.
    pub(super) spec: Result<Arc<Policy>, String>,
}

/// What is particular about a target.
#[derive(Clone, Debug)]
pub(super) struct TargetExtra {
    pub(super) target: Result<Arc<Target>, Note>,
    pub(super) labels: BTreeMap<String, String>,
}

pub(super) type Entries<K, X> = BTreeMap<ObjectKey, Entry<K, X>>;

/// Everything that is known of our own kinds.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) policies: Entries<Policies, PolicyExtra>,
    pub(super) runs: Entries<Runs, ()>,
    pub(super) targets: Entries<Targets, TargetExtra>,
}

/// What an object that was taken in means for the engine.
#[derive(Debug)]
pub(super) enum Change {
    Nothing,
    Policy(Arc<PolicyView>),
    /// It selects its clusters, which are to be worked out again.
    Fleet(ObjectKey),
    PolicyGone(ObjectKey),
    Run(Arc<RunView>),
    RunGone(ObjectKey),
    RunUnreadable(ObjectKey, Lost),
    /// The cluster that a target describes is to be worked out again. It has other
    /// labels: also the clusters that policies select.
    Target {
        key: ObjectKey,
        relabelled: bool,
    },
}

/// A kind with its place in the cache.
pub(super) trait Cached: Kind {
    type Extra: Send + std::fmt::Debug;

    fn entries(cache: &mut Cache) -> &mut Entries<Self, Self::Extra>
    where
        Self: Sized;

    /// Reads the object. `known` is what the entry was before.
    fn read(
        key: &ObjectKey,
        object: &DynamicObject,
        status: &Result<Self::Status, String>,
        known: Option<&Self::Extra>,
    ) -> (Self::Extra, Change);

    fn gone(key: &ObjectKey) -> Change;
}

impl Cached for Policies {
    type Extra = PolicyExtra;

    fn entries(cache: &mut Cache) -> &mut Entries<Self, PolicyExtra> {
        &mut cache.policies
    }

    fn read(
        key: &ObjectKey,
        object: &DynamicObject,
        status: &Result<Self::Status, String>,
        known: Option<&PolicyExtra>,
    ) -> (PolicyExtra, Change) {
        let cluster = (!selects(object)).then(|| cluster_of(key, object));
        let cluster_since = match known {
            Some(known) if known.cluster == cluster => known.cluster_since,
            _ => generation_of(object),
        };
        let extra = PolicyExtra {
            cluster,
            cluster_since,
            spec: valid_policy(object, status),
        };
        let change = if is_deleting(object) {
            // It stays until its runs are gone, and asks nothing meanwhile.
            Change::PolicyGone(key.clone())
        } else if let Some(cluster) = &extra.cluster {
            let view = policy_view(key, object, status, cluster, &extra.spec);
            Change::Policy(Arc::new(view))
        } else {
            Change::Fleet(key.clone())
        };
        (extra, change)
    }

    fn gone(key: &ObjectKey) -> Change {
        Change::PolicyGone(key.clone())
    }
}

impl Cached for Runs {
    type Extra = ();

    fn entries(cache: &mut Cache) -> &mut Entries<Self, ()> {
        &mut cache.runs
    }

    fn read(
        key: &ObjectKey,
        object: &DynamicObject,
        status: &Result<Self::Status, String>,
        _known: Option<&()>,
    ) -> ((), Change) {
        match run_view(key, object, status) {
            Ok(view) => ((), Change::Run(Arc::new(view))),
            Err(lost) => {
                let key = key.clone();
                tracing::error!(run = %key, "unable to read the run's record: {}", lost.problem);
                ((), Change::RunUnreadable(key, lost))
            }
        }
    }

    fn gone(key: &ObjectKey) -> Change {
        Change::RunGone(key.clone())
    }
}

impl Cached for Targets {
    type Extra = TargetExtra;

    fn entries(cache: &mut Cache) -> &mut Entries<Self, TargetExtra> {
        &mut cache.targets
    }

    fn read(
        key: &ObjectKey,
        object: &DynamicObject,
        _status: &Result<Self::Status, String>,
        known: Option<&TargetExtra>,
    ) -> (TargetExtra, Change) {
        let extra = TargetExtra {
            target: target(object),
            labels: object.metadata.labels.clone().unwrap_or_default(),
        };
        let change = Change::Target {
            key: key.clone(),
            relabelled: known.is_some_and(|known| known.labels != extra.labels),
        };
        (extra, change)
    }

    fn gone(key: &ObjectKey) -> Change {
        Change::Target {
            key: key.clone(),
            relabelled: false,
        }
    }
}

impl Entry<Targets, TargetExtra> {
    /// The cluster's id as last seen.
    pub(super) fn cluster_id(&self) -> Option<ClusterId> {
        let status = self.status.as_ref().ok()?.status().ok()?;
        status.cluster_id?.parse().ok()
    }
}

impl Cache {
    /// Takes in an object as a watch tells it, unless something newer is known.
    pub(super) fn take<K: Cached>(&mut self, object: &DynamicObject) -> Change {
        let version = version_of(object);
        let known = K::entries(self).get(&key_of(object));
        if known
            .is_some_and(|known| version == known.version || version.is_older_than(&known.version))
        {
            return Change::Nothing;
        }
        self.take_fresh::<K>(object)
    }

    /// Takes in an object as the server has it now, whatever was known. After a
    /// restore of the server's etcd its version may be a smaller one.
    pub(super) fn take_fresh<K: Cached>(&mut self, object: &DynamicObject) -> Change {
        let key = key_of(object);
        let (uid, version) = (uid_of(object), version_of(object));
        let known = K::entries(self).get(&key).filter(|known| known.uid == uid);
        let status = status::<K>(object);
        let (extra, change) = K::read(&key, object, &status, known.map(|known| &known.extra));
        let status = status.and_then(|status| Kept::new(&status));
        let foreign = known.is_some_and(|known| {
            let ours = status == known.status
                || status
                    .as_ref()
                    .is_ok_and(|status| known.unsettled.contains(status));
            known.foreign || !ours
        });
        let unsettled = match K::entries(self).remove(&key) {
            Some(known) if known.uid == uid && known.status == status => known.unsettled,
            _ => Vec::new(),
        };
        let entry = Entry {
            uid,
            version,
            generation: generation_of(object),
            status,
            unsettled,
            foreign,
            finalizer: has_finalizer(object),
            deleting: is_deleting(object),
            touched: Instant::now(),
            extra,
        };
        K::entries(self).insert(key, entry);
        change
    }

    /// The object of this uid is gone. One of that name made since then stays.
    pub(super) fn drop_object<K: Cached>(&mut self, key: &ObjectKey, uid: &str) -> Change {
        if K::entries(self).get(key).is_some_and(|e| e.uid != uid) {
            return Change::Nothing;
        }
        K::entries(self).remove(key);
        K::gone(key)
    }

    /// A list that began at `since` and holds `listed` is complete: what is not in
    /// it and in `namespace` (`None`: anywhere) is gone, unless it came later.
    pub(super) fn keep_listed<K: Cached>(
        &mut self,
        namespace: Option<&str>,
        since: Instant,
        listed: &BTreeSet<ObjectKey>,
    ) -> Vec<Change> {
        let entries = K::entries(self);
        let gone: Vec<ObjectKey> = entries
            .iter()
            .filter(|(key, entry)| {
                namespace.is_none_or(|namespace| key.namespace == namespace)
                    && entry.touched < since
                    && !listed.contains(*key)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in &gone {
            entries.remove(key);
        }
        gone.iter().map(K::gone).collect()
    }

    /// What others wrote so far is what we begin with.
    pub(super) fn begin_term(&mut self) {
        fn forget<K: Kind, X>(entries: &mut Entries<K, X>) {
            for entry in entries.values_mut() {
                entry.foreign = false;
                entry.unsettled = Vec::new();
            }
        }
        forget(&mut self.policies);
        forget(&mut self.runs);
        forget(&mut self.targets);
    }
}

impl<K: Kind, X> Entry<K, X> {
    /// Remembers a status that is about to be asked for.
    pub(super) fn asks(&mut self, status: Kept<K::Status>) {
        if self.unsettled.len() == UNSETTLED {
            self.unsettled.remove(0);
        }
        self.unsettled.push(status);
    }

    /// The status is stored, as the answer says.
    pub(super) fn settled(&mut self, version: Version, status: Kept<K::Status>) {
        if !version.is_older_than(&self.version) {
            self.version = version;
            self.status = Ok(status);
            // Its room as well: hardly ever is there anything in it.
            self.unsettled = Vec::new();
        }
        self.touched = Instant::now();
    }
}
