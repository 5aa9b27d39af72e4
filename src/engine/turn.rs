//! Whose turn it is: on one cluster, and on all together.

use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};

use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord};

use super::cluster::connection;
use super::host::{Host, HostError, ObjectKey, RunView};

/// The unfinished run of `runs`, all of one cluster, that has it: one that began,
/// else the oldest.
pub(super) fn holder(runs: &[Arc<RunView>]) -> Option<&Arc<RunView>> {
    runs.iter()
        .filter(|run| !run.record.phase.is_terminal())
        .min_by_key(|run| (run.record.started_at.is_none(), run.created_at, &run.key))
}

/// The places that runs on all clusters share.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// `None`: there is one for each cluster.
    limit: Option<NonZeroU32>,
    /// Held from the look at who has a place until that one is taken has been stored.
    taking: Arc<Mutex<()>>,
}

/// A place that is about to be taken, until that is stored.
pub(super) type Taking<'a> = Option<MutexGuard<'a, ()>>;

impl Places {
    pub(super) fn new(limit: Option<NonZeroU32>) -> Self {
        Places {
            limit,
            taking: Arc::default(),
        }
    }

    /// Why a run that has its cluster may not even look at it yet: the oldest of those
    /// that could begin are next. `None`: it may, or has begun before.
    ///
    /// # Errors
    /// When the runs are not known.
    pub(super) fn wait<H: Host>(&self, host: &H, run: &RunView) -> Result<Option<Note>, HostError> {
        let Some(limit) = self.limit.filter(|_| !begun(run)) else {
            return Ok(None);
        };
        let unfinished = host.unfinished_runs()?;
        let age = |run: &RunView| (run.created_at, run.key.clone());
        let own = age(run);
        let ahead = unfinished
            .iter()
            .filter(|other| !begun(other) && age(other) < own && could_begin(host, other));
        let taken = taken(&unfinished, &run.key) + ahead.count();
        Ok((taken >= limit.get() as usize).then(|| too_many(limit)))
    }

    /// Takes a place for the run, when what is to be stored of it needs one and what is
    /// `stored` had none.
    ///
    /// # Errors
    /// `TooManyRuns` when none is free, or that the runs are not known.
    pub(super) async fn take<H: Host>(
        &self,
        host: &H,
        run: &ObjectKey,
        stored: &RunRecord,
        next: &RunRecord,
    ) -> Result<Taking<'_>, HostError> {
        let needed = next.holds_place() && !stored.holds_place();
        let Some(limit) = self.limit.filter(|_| needed) else {
            return Ok(None);
        };
        let taking = self.taking.lock().await;
        if taken(&host.unfinished_runs()?, run) >= limit.get() as usize {
            let Note { reason, message } = too_many(limit);
            return Err(HostError { reason, message });
        }
        Ok(Some(taking))
    }
}

/// How many places others have.
fn taken(unfinished: &[Arc<RunView>], own: &ObjectKey) -> usize {
    let others = unfinished.iter().filter(|run| run.key != *own);
    others.filter(|run| run.record.holds_place()).count()
}

fn too_many(limit: NonZeroU32) -> Note {
    Note::new(
        Reason::TooManyRuns,
        format!(
            "{limit} at a time are allowed on all clusters together; the oldest that waits is next"
        ),
    )
}

fn begun(run: &RunView) -> bool {
    run.record.started_at.is_some()
}

/// What cannot begin anyway must not keep others from it.
fn could_begin<H: Host>(host: &H, run: &RunView) -> bool {
    let has_cluster = || {
        let runs = host.runs_on(&run.cluster);
        runs.is_ok_and(|runs| holder(&runs).is_some_and(|first| first.key == run.key))
    };
    !run.deleting && run.spec.is_ok() && connection(host, &run.cluster).is_ok() && has_cluster()
}
