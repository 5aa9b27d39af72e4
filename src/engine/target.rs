//! The worker of one target: looks at the cluster now and then, so that its
//! members are known and two targets of one cluster are recognised.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord, RunSpec};
use crate::core::sweep;
use crate::core::view::Observation;

use super::cluster::Link;
use super::host::{ClusterKey, Host, TargetReport, TargetView};
use super::now;
use super::run::Shared;

/// Pause between two looks.
const INTERVAL: Duration = Duration::from_secs(30);

/// Works on one target until it is gone or the process stops.
pub(super) async fn work<H: Host>(
    shared: Arc<Shared<H>>,
    key: ClusterKey,
    shutdown: CancellationToken,
) {
    let _series = shared.telemetry.cluster_series(&key);
    let mut changes = shared.host.changes_on(&key);
    loop {
        changes.mark_unchanged();
        let Some(target) = shared.host.target(&key) else {
            return;
        };
        let version = target.version;
        if !being_swept(&*shared.host, &key) {
            tokio::select! {
                biased;
                // A cluster that does not answer must not keep the process.
                () = shutdown.cancelled() => return,
                seen = look(&target) => show(&shared, &target, seen).await,
            }
        }
        let sleep = tokio::time::sleep(INTERVAL);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => break,
                changed = changes.changed() => {
                    if changed.is_err() { return }
                    let current = shared.host.target(&key);
                    if current.is_none_or(|t| t.version != version) { break }
                }
                () = shutdown.cancelled() => return,
            }
        }
    }
}

/// A member in its turn does not answer, which is no news.
fn being_swept<H: Host>(host: &H, key: &ClusterKey) -> bool {
    host.runs_on(key)
        .is_ok_and(|runs| runs.iter().any(|run| run.record.in_flight().is_some()))
}

async fn look(target: &TargetView) -> (Note, Option<Observation>) {
    match &target.spec {
        Err(note) => (note.clone(), None),
        Ok(connection) => {
            let seen = Link::new((**connection).clone()).observe(now()).await;
            // The same gate that a run would meet; what only a run may accept is accepted.
            let spec = RunSpec {
                allow_single_member: true,
                ..RunSpec::default()
            };
            let ready = match sweep::gate(&spec, &RunRecord::default(), &seen) {
                Ok(()) => Note::new(Reason::ClusterHealthy, Reason::ClusterHealthy.sentence()),
                Err(closed) => closed.note,
            };
            (ready, Some(seen))
        }
    }
}

async fn show<H: Host>(
    shared: &Shared<H>,
    target: &TargetView,
    (ready, seen): (Note, Option<Observation>),
) {
    shared
        .telemetry
        .cluster_observed(&target.key, ready.reason, seen.as_ref());
    let report = TargetReport {
        generation: target.generation,
        ready,
        seen,
    };
    if let Err(error) = shared.host.record_target(&target.key, &report).await {
        shared.telemetry.error("target");
        tracing::error!(target = %target.key, %error, "unable to store what was seen of the target");
    }
}
