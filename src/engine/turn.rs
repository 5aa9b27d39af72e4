//! Whose turn it is: on one cluster, and on all together.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::cluster::connection;
use super::host::{Host, HostError, RunView};

/// The unfinished run of `runs`, all of one cluster, that has it: one that began,
/// else the oldest.
pub(super) fn holder(runs: &[Arc<RunView>]) -> Option<&Arc<RunView>> {
    runs.iter()
        .filter(|run| !run.record.phase.is_terminal())
        .min_by_key(|run| (run.record.started_at.is_none(), run.created_at, &run.key))
}

/// Whether a run that has its cluster may begin, or has: at most `limit` are
/// going on at a time, and the oldest of those that could begin are next.
pub(super) fn may_begin<H: Host>(
    host: &H,
    run: &RunView,
    limit: NonZeroU32,
) -> Result<bool, HostError> {
    if begun(run) {
        return Ok(true);
    }
    let limit = limit.get() as usize;
    let unfinished = host.unfinished_runs()?;
    let going_on = unfinished.iter().filter(|other| begun(other)).count();
    if going_on >= limit {
        return Ok(false);
    }
    let age = |run: &RunView| (run.created_at, run.key.clone());
    let own = age(run);
    let ahead = unfinished
        .iter()
        .filter(|other| !begun(other) && age(other) < own && could_begin(host, other));
    Ok(going_on + ahead.count() < limit)
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
