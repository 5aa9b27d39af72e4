//! The worker of one unfinished run: waits until it is the run's turn, then
//! drives it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::core::decide::{RunEnd, RunSummary};
use crate::core::reason::Reason;
use crate::core::run::{Note, Outcome, Phase, RunRecord};
use crate::core::sweep::{self, Control};

use super::cluster::connection;
use super::drive::{Driven, Orders, drive};
use super::host::{About, Event, Host, HostError, ObjectKey, PolicyView, RunView};
use super::now;
use super::record::HostRecorder;
use super::shared::Shared;
use super::turn::holder;

/// Pause before what could not be done is tried again when nobody tells of a change.
const RETRY: Duration = Duration::from_secs(5);
/// Pause before a run whose record was changed by somebody else is taken up again.
const SUPERSEDED_PAUSE: Duration = Duration::from_secs(1);
/// How long a run that is being removed waits for its cluster to be described
/// again, before it ends without a look at what it left.
const ABANDON_AFTER: Duration = Duration::from_secs(10);

/// A run as the core's `decide` sees it.
fn summary(run: &RunView, policy: &ObjectKey) -> RunSummary {
    let record = &run.record;
    let end = record.phase.is_terminal().then(|| RunEnd {
        at: record.completed_at.unwrap_or(run.created_at),
        succeeded: record.phase == Phase::Complete,
        reason: record
            .result
            .as_ref()
            .map_or(Reason::RunVanished, |note| note.reason),
        reclaimed: record.reclaimed_bytes(),
        touched: record.touched(),
    });
    RunSummary {
        name: run.key.name.to_string(),
        own: run.owner.as_ref() == Some(policy),
        created_at: run.created_at,
        dry_run: run.spec.as_ref().is_ok_and(|spec| spec.dry_run),
        end,
    }
}

/// The runs on the policy's cluster.
///
/// # Errors
/// When they cannot be read.
pub(super) fn listed<H: Host>(host: &H, view: &PolicyView) -> Result<Vec<RunSummary>, String> {
    let runs = host
        .runs_on(&view.cluster)
        .map_err(|error| error.to_string())?;
    Ok(runs.iter().map(|run| summary(run, &view.key)).collect())
}

/// Works on one run until it is over, gone, or the process stops.
pub(super) async fn work<H: Host>(
    shared: Arc<Shared<H>>,
    key: ObjectKey,
    shutdown: CancellationToken,
) {
    let mut undescribed_since: Option<Instant> = None;
    while !shutdown.is_cancelled() {
        let mut everywhere = shared.host.changes();
        let known = match shared.host.run(&key) {
            Ok(Some(run)) => run,
            Ok(None) => return,
            Err(_) => {
                // Nobody can say whose turn it is.
                tokio::select! {
                    Ok(()) = everywhere.changed() => {}
                    () = tokio::time::sleep(RETRY) => {}
                    () = shutdown.cancelled() => {}
                }
                continue;
            }
        };
        let mut nearby = shared.host.changes_on(&known.cluster);
        // Read once it would be told of a change.
        let Ok(Some(run)) = shared.host.run(&key) else {
            continue;
        };
        if run.record.phase.is_terminal() {
            return;
        }
        let stand = stand(&shared, &run);
        if !matches!(stand, Stand::Undescribed(_)) {
            undescribed_since = None;
        }
        let mut slots_matter = false;
        let again = match stand {
            Stand::Unknown(error) => {
                show_block(&shared, &run, Note::new(error.reason, error.message)).await;
                Some(RETRY)
            }
            Stand::Blocked(note) => {
                slots_matter = note.reason == Reason::TooManyRuns;
                let shown = show_block(&shared, &run, note).await;
                (slots_matter || !shown).then_some(RETRY)
            }
            Stand::Holding(orders) => match attend(&shared, &run, orders, &shutdown).await {
                Driven::Finished(_) | Driven::ShutDown(_) => return,
                Driven::Superseded(error) => {
                    tracing::warn!(run = %key, reason = %error.reason, "{error}");
                    Some(SUPERSEDED_PAUSE)
                }
            },
            Stand::Refused(note) => {
                let mut record = run.record.clone();
                record.phase = Phase::Failed;
                record.completed_at = Some(now());
                record.result = Some(note);
                if end(&shared, &run, record).await {
                    return;
                }
                Some(RETRY)
            }
            Stand::Undescribed(note) => {
                let since = *undescribed_since.get_or_insert_with(Instant::now);
                let left = ABANDON_AFTER.saturating_sub(since.elapsed());
                if left.is_zero() {
                    let record = sweep::abandon(run.record.clone(), &note.message, now());
                    if end(&shared, &run, record).await {
                        return;
                    }
                    Some(RETRY)
                } else {
                    let shown = show_block(&shared, &run, note).await;
                    Some(if shown { left } else { left.min(RETRY) })
                }
            }
        };
        tokio::select! {
            changed = nearby.changed() => if changed.is_err() { return },
            Ok(()) = everywhere.changed(), if slots_matter => {}
            () = tokio::time::sleep(again.unwrap_or(Duration::MAX)) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

enum Stand {
    /// The runs cannot be read, so nobody can say whose turn it is.
    Unknown(HostError),
    /// Another run has the cluster, as many runs as allowed are going on, or
    /// something is not described as it must be.
    Blocked(Note),
    Holding(Orders),
    /// It can never begin.
    Refused(Note),
    /// It is to be removed, has touched its cluster, and nothing tells how that is reached.
    Undescribed(Note),
}

fn stand<H: Host>(shared: &Shared<H>, run: &Arc<RunView>) -> Stand {
    let host = &*shared.host;
    let touched = run.record.touched();
    // What has begun waits until somebody mends it: its end is not known.
    let undescribed = |note: Note| {
        if run.deleting {
            Stand::Undescribed(note)
        } else {
            Stand::Blocked(note)
        }
    };
    let spec = match &run.spec {
        Ok(spec) => spec,
        Err(errors) => {
            let note = Note::new(Reason::InvalidSpec, errors.clone());
            return if touched {
                undescribed(note)
            } else {
                Stand::Refused(note)
            };
        }
    };
    if run.deleting && !touched {
        return Stand::Refused(Note::new(Reason::Interrupted, "removed before it began"));
    }
    let connection = match connection(host, &run.cluster) {
        Ok(connection) => connection,
        Err(note) => return undescribed(note),
    };
    let runs = match host.runs_on(&run.cluster) {
        Ok(runs) => runs,
        Err(error) => return Stand::Unknown(error),
    };
    if let Some(first) = holder(&runs).filter(|first| first.key != run.key) {
        let message = format!("the run {} has the cluster", first.key);
        return Stand::Blocked(Note::new(Reason::Queued, message));
    }
    match shared.places.wait(host, run) {
        Ok(None) => {}
        Ok(Some(note)) => return Stand::Blocked(note),
        Err(error) => return Stand::Unknown(error),
    }
    let control = Control {
        hold: host
            .target(&run.cluster)
            .and_then(|target| target.busy.clone()),
        ..Control::default()
    };
    Stand::Holding(Orders {
        connection,
        spec: (**spec).clone(),
        control,
    })
}

/// Shows why the run waits. False when that could not be stored.
async fn show_block<H: Host>(shared: &Shared<H>, run: &RunView, note: Note) -> bool {
    if run.record.gate.as_ref() == Some(&note) {
        return true;
    }
    let record = RunRecord {
        gate: Some(note),
        ..run.record.clone()
    };
    let stored = shared
        .host
        .record_run(&run.key, run.generation, &record)
        .await;
    if let Err(error) = &stored {
        shared.telemetry.error("run");
        tracing::error!(run = %run.key, %error, "unable to store why the run waits");
    }
    stored.is_ok()
}

/// Ends a run without its cluster. False when that could not be stored.
async fn end<H: Host>(shared: &Shared<H>, run: &RunView, record: RunRecord) -> bool {
    let stored = shared
        .host
        .record_run(&run.key, run.generation, &record)
        .await;
    match &stored {
        Ok(()) => finished(shared, run, &record),
        Err(error) => {
            shared.telemetry.error("run");
            tracing::error!(run = %run.key, %error, "unable to store the run's end");
        }
    }
    stored.is_ok()
}

async fn attend<H: Host>(
    shared: &Arc<Shared<H>>,
    run: &Arc<RunView>,
    orders: Orders,
    shutdown: &CancellationToken,
) -> Driven {
    let (give, orders) = watch::channel(orders);
    let follower = tokio::spawn(follow(shared.host.clone(), run.clone(), give));
    let mut recorder = HostRecorder::new(&shared.host, &shared.claims, &shared.places, run);
    let driven = Box::pin(drive(run.record.clone(), orders, &mut recorder, shutdown)).await;
    follower.abort();
    match &driven {
        Driven::Finished(record) => finished(shared, run, record),
        // The end may be stored while the answer that says so was lost.
        Driven::ShutDown(_) | Driven::Superseded(_) => {
            if let Ok(Some(stored)) = shared.host.run(&run.key)
                && stored.record.phase.is_terminal()
                && stored.record.result.is_some()
                && shared.host.permit().is_ok()
            {
                finished(shared, run, &stored.record);
            }
        }
    }
    driven
}

/// Passes on what changes about the run and its target while it goes on, and
/// what changed just before it began.
async fn follow<H: Host>(host: Arc<H>, own: Arc<RunView>, give: watch::Sender<Orders>) {
    let mut changes = host.changes_on(&own.cluster);
    loop {
        let wanted = orders_now(&*host, &own, give.borrow().clone());
        give.send_if_modified(|orders| {
            let modified = wanted != *orders;
            *orders = wanted;
            modified
        });
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// What cannot be read now stays as it was asked before.
fn orders_now<H: Host>(host: &H, own: &RunView, mut orders: Orders) -> Orders {
    let described = connection(host, &own.cluster);
    let Ok(run) = host.run(&own.key) else {
        return orders;
    };
    let removed = run.as_ref().is_none_or(|run| run.deleting);
    orders.control.forsaken = removed && described.is_err();
    if let Ok(connection) = described {
        orders.connection = connection;
    }
    orders.control.hold = host
        .target(&own.cluster)
        .and_then(|target| target.busy.clone());
    if let Some(Ok(spec)) = run.as_ref().map(|run| &run.spec) {
        orders.spec = (**spec).clone();
    }
    if removed {
        orders.control.stop = Some(Note::new(
            Reason::Interrupted,
            "the run was removed; it ended after the member in progress",
        ));
    }
    orders
}

fn finished<H: Host>(shared: &Shared<H>, run: &RunView, record: &RunRecord) {
    shared.ended.notify_one();
    shared.telemetry.run_finished(&run.cluster, record);
    // One event for all that failed: events of one object and reason count as one.
    let failed: Vec<_> = record
        .members
        .iter()
        .filter(|m| m.outcome == Outcome::Failed)
        .collect();
    if let Some(first) = failed.first() {
        let each = failed
            .iter()
            .map(|member| format!("member {}: {}", member.label(), member.message));
        shared.host.event(Event {
            about: About::Run(run.key.clone()),
            warning: true,
            note: Note::new(first.reason, each.collect::<Vec<_>>().join("; ")),
        });
    }
    if let Some(note) = &record.result {
        shared.host.event(Event {
            about: About::Run(run.key.clone()),
            warning: record.phase == Phase::Failed,
            note: note.clone(),
        });
    }
}
