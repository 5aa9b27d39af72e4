//! Runs whose record cannot be read.
//!
//! Nobody can say what such a run did to its cluster, so nothing else begins
//! there until a person mends it or deletes it. One that is deleted is let go:
//! nobody works on it, so its finalizer would keep it, and its namespace, for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::host::KubernetesHost;
use super::objects::{Lost, Runs};
use crate::core::key::{ClusterKey, ObjectKey};
use crate::core::reason::Reason;
use crate::core::view::ClusterId;
use crate::engine::HostError;

/// Pause before a run that could not be let go is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Which runs, and why.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    runs: Mutex<BTreeMap<ObjectKey, Lost>>,
    changed: Notify,
}

impl Unreadable {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Lost>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of this run cannot be read.
    pub(super) fn insert(&self, run: ObjectKey, lost: Lost) {
        self.runs().insert(run, lost);
        self.changed.notify_one();
    }

    /// It can be read again, or is gone.
    pub(super) fn remove(&self, run: &ObjectKey) {
        self.runs().remove(run);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs().is_empty()
    }

    /// # Errors
    /// `RunsUnreadable` when the run is one of them.
    pub(super) fn check(&self, run: &ObjectKey) -> Result<(), HostError> {
        match self.runs().get(run) {
            Some(lost) => Err(refused(&lost.problem)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// `RunsUnreadable` when one of them is about the cluster with these names and this id.
    pub(super) fn check_cluster(
        &self,
        names: &BTreeSet<ClusterKey>,
        id: Option<ClusterId>,
    ) -> Result<(), HostError> {
        let about =
            |lost: &&Lost| names.contains(&lost.cluster) || id.is_some() && lost.cluster_id == id;
        match self.runs().values().find(about) {
            Some(lost) => Err(refused(&lost.problem)),
            None => Ok(()),
        }
    }
}

fn refused(problem: &str) -> HostError {
    HostError {
        reason: Reason::RunsUnreadable,
        message: problem.to_owned(),
    }
}

/// Lets go of those that are deleted, for ever.
pub(super) async fn keep_letting_go(host: Arc<KubernetesHost>) {
    loop {
        let mut left = false;
        for run in deleted(&host) {
            left |= !let_go(&host, &run).await;
        }
        tokio::select! {
            () = host.unreadable.changed.notified() => {}
            // Another replica may do it meanwhile, or we may lead.
            () = tokio::time::sleep(RETRY), if left => {}
        }
    }
}

/// Those that only our finalizer keeps.
fn deleted(host: &KubernetesHost) -> Vec<ObjectKey> {
    let unreadable: Vec<ObjectKey> = host.unreadable.runs().keys().cloned().collect();
    let cache = host.store.cache();
    let held = |key: &ObjectKey| {
        let entry = cache.runs.get(key);
        entry.is_some_and(|entry| entry.deleting && entry.finalizer)
    };
    unreadable.into_iter().filter(held).collect()
}

/// False when it has to be tried again.
async fn let_go(host: &KubernetesHost, run: &ObjectKey) -> bool {
    let _turn = host.store.turn::<Runs>(run).await;
    match host.store.set_finalizer(run, false).await {
        Ok(()) => {
            tracing::warn!(%run, "the run was deleted and its record cannot be read: let go of it as it is");
            true
        }
        Err(error) if error.reason == Reason::NotLeading => false,
        Err(error) => {
            tracing::error!(%run, reason = %error.reason, %error, "unable to let go of a run whose record cannot be read");
            false
        }
    }
}
