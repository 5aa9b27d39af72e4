//! The worker of one cluster that somebody describes: looks at it now and then,
//! so that its members are known and two targets of one cluster are recognised.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord, RunSpec};
use crate::core::view::Observation;
use crate::core::{sweep, tick};

use super::cluster::Link;
use super::host::{ClusterKey, Host, TargetReport, TargetView};
use super::now;
use super::shared::Shared;

/// Pause between two looks.
const INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// Works on one target until it is gone or the process stops. The first look is
/// after `delay`, the next ones at moments that differ from target to target.
pub(super) async fn work<H: Host>(
    shared: Arc<Shared<H>>,
    key: ClusterKey,
    delay: Duration,
    shutdown: CancellationToken,
) {
    let _series = shared.telemetry.cluster_series(&key);
    tokio::select! {
        () = tokio::time::sleep(delay) => {}
        () = shutdown.cancelled() => {}
    }
    let mut changes = shared.host.changes_on(&key);
    let question = key.to_string();
    while !shutdown.is_cancelled() {
        changes.mark_unchanged();
        let Some(target) = shared.host.target(&key) else {
            break;
        };
        if !being_swept(&*shared.host, &key) {
            tokio::select! {
                biased;
                // A cluster that does not answer must not keep the process.
                () = shutdown.cancelled() => break,
                seen = Box::pin(look(&target)) => show(&shared, &target, seen).await,
            }
        }
        let at = tick::next(now(), INTERVAL, &question);
        let sleep = tokio::time::sleep(at.duration_since(now()).unsigned_abs());
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => break,
                changed = changes.changed() => {
                    let current = shared.host.target(&key);
                    if changed.is_err() || current.is_none_or(|now| another(&target, &now)) {
                        break;
                    }
                }
                () = shutdown.cancelled() => break,
            }
        }
    }
}

/// Whether there is something new to look at. The id is what a look tells.
fn another(before: &TargetView, now: &TargetView) -> bool {
    before.version != now.version
        && (
            before.generation,
            &before.spec,
            &before.busy,
            &before.remarks,
        ) != (now.generation, &now.spec, &now.busy, &now.remarks)
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
            let ready = match (
                sweep::gate(&spec, &RunRecord::default(), &seen),
                &target.busy,
            ) {
                (_, Some(busy)) => busy.clone(),
                (Err(closed), None) => closed.note,
                (Ok(()), None) => {
                    Note::new(Reason::ClusterHealthy, Reason::ClusterHealthy.sentence())
                }
            };
            (remarked(ready, &target.remarks), Some(seen))
        }
    }
}

/// The note with what a person should know besides.
fn remarked(mut note: Note, remarks: &[String]) -> Note {
    for remark in remarks {
        note.message += "; ";
        note.message += remark;
    }
    note
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
