//! Removes runs that have been kept long enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::core::decide::HistoryLimit;
use crate::core::history::{self, Finished};
use crate::core::run::Phase;
use crate::telemetry::Unfinished;

use super::host::{Host, PolicyView, RunView};
use super::now;
use super::shared::Shared;

/// How often old runs are looked for when none ends.
const INTERVAL: Duration = Duration::from_secs(5);

/// Tidies up now and then until the process stops.
pub(super) async fn work<H: Host>(shared: Arc<Shared<H>>, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = tidy(&shared, now()) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = shared.ended.notified() => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// Removes finished runs that have been kept long enough, and those that a
/// person asked to remove.
async fn tidy<H: Host>(shared: &Shared<H>, now: Timestamp) {
    let host = &*shared.host;
    let Ok(mut runs) = host.runs() else { return };
    shared.telemetry.unfinished_runs(unfinished(&runs));
    runs.retain(|run| run.record.phase.is_terminal());
    let due = overdue(host, &runs, now);
    for run in &runs {
        let removed = run.deleting || (run.removable && due.contains(&run.key.to_string()));
        if removed
            && accounted(host, run)
            && let Err(error) = host.remove_run(&run.key).await
        {
            tracing::warn!(run = %run.key, %error, "unable to remove the run");
        }
    }
}

/// What the metrics tell of runs that go on or wait.
fn unfinished(runs: &[Arc<RunView>]) -> impl Iterator<Item = Unfinished<'_>> {
    let unfinished = runs.iter().filter(|run| !run.record.phase.is_terminal());
    unfinished.map(|run| Unfinished {
        cluster: &run.cluster,
        created_at: run.created_at,
        record: &run.record,
    })
}

/// True when every policy on the cluster has taken the run's end into account:
/// its cooldown and its back-off are made of that. A policy that cannot be
/// evaluated is not waited for.
fn accounted<H: Host>(host: &H, run: &RunView) -> bool {
    let evaluated = |policy: &PolicyView| {
        let target = host.target(&policy.cluster);
        policy.spec.is_ok() && target.is_some_and(|target| target.spec.is_ok())
    };
    host.policies_on(&run.cluster)
        .iter()
        .filter(|policy| evaluated(policy))
        .all(|policy| {
            policy
                .state
                .accounted
                .iter()
                .any(|name| *name == run.key.name)
        })
}

/// The names of `finished` runs beyond their policy's limits or their own time.
fn overdue<H: Host>(host: &H, finished: &[Arc<RunView>], now: Timestamp) -> BTreeSet<String> {
    let mut limits: BTreeMap<String, HistoryLimit> = BTreeMap::new();
    // A policy of many clusters keeps that many runs of each.
    let mut named = |run: &RunView| {
        let owner = run.owner.as_ref()?;
        let spec = host.policy_spec(owner);
        let name = match spec.as_ref().map(|spec| spec.fleet.is_some()) {
            Some(true) => format!("{owner} {}", run.cluster),
            _ => owner.to_string(),
        };
        limits
            .entry(name.clone())
            .or_insert_with(|| spec.map(|spec| spec.history).unwrap_or_default());
        Some(name)
    };
    let finished: Vec<Finished> = finished
        .iter()
        .map(|run| Finished {
            name: run.key.to_string(),
            owner: named(run),
            succeeded: run.record.phase == Phase::Complete,
            at: run.record.completed_at.unwrap_or(run.created_at),
            ttl: run
                .spec
                .as_ref()
                .ok()
                .and_then(|spec| spec.ttl_after_finished),
        })
        .collect();
    let limit = |owner: &str| limits.get(owner).copied().unwrap_or_default();
    history::to_remove(&finished, limit, now)
        .into_iter()
        .collect()
}
