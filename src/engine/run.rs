//! The worker of one unfinished run: waits until the run holds the cluster,
//! then drives it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::decide::{RunEnd, RunSummary};
use crate::core::reason::Reason;
use crate::core::run::{Note, Outcome, Phase, RunRecord};
use crate::core::sweep::{Control, Step};
use crate::core::view::ClusterId;
use crate::telemetry::Telemetry;

use super::claim::{Claim, Claims};
use super::cluster::connection;
use super::drive::{Driven, Orders, Recorder, drive};
use super::host::{About, Event, Host, HostError, ObjectKey, RunView};
use super::now;

/// What every worker has at hand.
pub(super) struct Shared<H> {
    pub(super) host: Arc<H>,
    pub(super) telemetry: Arc<Telemetry>,
    /// Which run has which cluster.
    pub(super) claims: Claims,
}

/// The unfinished run of `runs`, all of one cluster, that has it: one that began, else the
/// oldest.
pub(super) fn holder(runs: &[Arc<RunView>]) -> Option<&Arc<RunView>> {
    runs.iter()
        .filter(|run| !run.record.phase.is_terminal())
        .min_by_key(|run| (run.record.started_at.is_none(), run.created_at, &run.key))
}

/// A run as the core's `decide` sees it.
pub(super) fn summary(run: &RunView, policy: &ObjectKey) -> RunSummary {
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
        name: run.key.name.clone(),
        own: run.owner.as_ref() == Some(policy),
        created_at: run.created_at,
        dry_run: run.spec.as_ref().is_ok_and(|spec| spec.dry_run),
        end,
    }
}

/// Works on one run until it is over, gone, or the process stops.
pub(super) async fn work<H: Host>(
    shared: Arc<Shared<H>>,
    key: ObjectKey,
    shutdown: CancellationToken,
) {
    loop {
        let Ok(Some(run)) = shared.host.run(&key) else {
            return;
        };
        let mut changes = shared.host.changes_on(&run.cluster);
        match stand(&*shared.host, &key) {
            Stand::Over => return,
            Stand::Unknown => {}
            Stand::Blocked(run, note) => show_block(&shared, &run, note).await,
            Stand::Holding(run, orders) => {
                attend(&shared, &run, orders, &shutdown).await;
                return;
            }
            Stand::Refused(run, note) => {
                if refuse(&shared, &run, note).await {
                    return;
                }
            }
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = shutdown.cancelled() => return,
        }
    }
}

enum Stand {
    Over,
    /// The runs cannot be listed, so nobody can say whose turn it is.
    Unknown,
    /// Another run has the cluster, or something is not described as it must be.
    Blocked(Arc<RunView>, Note),
    Holding(Arc<RunView>, Orders),
    Refused(Arc<RunView>, Note),
}

fn stand<H: Host>(host: &H, key: &ObjectKey) -> Stand {
    let run = match host.run(key) {
        Ok(Some(run)) => run,
        Ok(None) => return Stand::Over,
        Err(_) => return Stand::Unknown,
    };
    if run.record.phase.is_terminal() {
        return Stand::Over;
    }
    let touched = run.record.touched();
    let spec = match &run.spec {
        Ok(spec) => spec,
        Err(errors) => {
            let note = Note::new(Reason::InvalidSpec, errors.clone());
            // What has begun waits until somebody mends it: its end is not known.
            return if touched {
                Stand::Blocked(run.clone(), note)
            } else {
                Stand::Refused(run.clone(), note)
            };
        }
    };
    if run.deleting && !touched {
        let note = Note::new(Reason::Interrupted, "removed before it began");
        return Stand::Refused(run.clone(), note);
    }
    let connection = match connection(host, &run.cluster) {
        Ok(connection) => connection,
        Err(note) => return Stand::Blocked(run.clone(), note),
    };
    let Ok(runs) = host.runs_on(&run.cluster) else {
        return Stand::Unknown;
    };
    match holder(&runs).filter(|first| first.key != *key) {
        Some(first) => {
            let message = format!("the run {} has the cluster", first.key);
            Stand::Blocked(run.clone(), Note::new(Reason::Queued, message))
        }
        None => {
            let orders = Orders {
                connection,
                spec: (**spec).clone(),
                control: Control::default(),
            };
            Stand::Holding(run.clone(), orders)
        }
    }
}

async fn show_block<H: Host>(shared: &Shared<H>, run: &RunView, note: Note) {
    if run.record.gate.as_ref() == Some(&note) {
        return;
    }
    let record = RunRecord {
        gate: Some(note),
        ..run.record.clone()
    };
    if let Err(error) = shared
        .host
        .record_run(&run.key, run.generation, &record)
        .await
    {
        shared.telemetry.error("run");
        tracing::error!(run = %run.key, %error, "unable to store why the run waits");
    }
}

/// Ends a run that can never begin.
async fn refuse<H: Host>(shared: &Shared<H>, run: &RunView, note: Note) -> bool {
    let mut record = run.record.clone();
    record.phase = Phase::Failed;
    record.completed_at = Some(now());
    record.result = Some(note);
    match shared
        .host
        .record_run(&run.key, run.generation, &record)
        .await
    {
        Ok(()) => {
            finished(shared, run, &record);
            true
        }
        Err(error) => {
            shared.telemetry.error("run");
            tracing::error!(run = %run.key, %error, "unable to store the run's end");
            false
        }
    }
}

async fn attend<H: Host>(
    shared: &Arc<Shared<H>>,
    run: &Arc<RunView>,
    orders: Orders,
    shutdown: &CancellationToken,
) {
    let (give, orders) = watch::channel(orders);
    let follower = tokio::spawn(follow(shared.host.clone(), run.clone(), give));
    let mut recorder = HostRecorder {
        host: &*shared.host,
        claims: &shared.claims,
        claim: None,
        run,
        generation: run.generation,
    };
    let driven = drive(run.record.clone(), orders, &mut recorder, shutdown).await;
    follower.abort();
    if let Driven::Finished(record) = driven {
        finished(shared, run, &record);
    }
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
    if let Ok(connection) = connection(host, &own.cluster) {
        orders.connection = connection;
    }
    let Ok(run) = host.run(&own.key) else {
        return orders;
    };
    if let Some(Ok(spec)) = run.as_ref().map(|run| &run.spec) {
        orders.spec = (**spec).clone();
    }
    if run.is_none_or(|run| run.deleting) {
        orders.control.stop = Some(Note::new(
            Reason::Interrupted,
            "the run was removed; it ended after the member in progress",
        ));
    }
    orders
}

struct HostRecorder<'a, H> {
    host: &'a H,
    claims: &'a Claims,
    claim: Option<Claim>,
    run: &'a RunView,
    generation: i64,
}

impl<H: Host> HostRecorder<'_, H> {
    /// Another target may name the same cluster, which shows only now.
    async fn hold(&mut self, cluster: ClusterId) -> Result<(), HostError> {
        if self
            .claim
            .as_ref()
            .is_some_and(|claim| claim.cluster == cluster)
        {
            return Ok(());
        }
        match self.claims.take(cluster, self.run, &self.host.runs()?) {
            Ok(claim) => {
                self.claim = Some(claim);
                Ok(())
            }
            Err(other) => {
                let message =
                    format!("the run {other} has the cluster {cluster}, by another target's name");
                let gate = Some(Note::new(Reason::Queued, message.clone()));
                let waiting = RunRecord {
                    gate,
                    ..self.run.record.clone()
                };
                self.host
                    .record_run(&self.run.key, self.generation, &waiting)
                    .await?;
                Err(HostError {
                    reason: Reason::Queued,
                    message,
                })
            }
        }
    }
}

impl<H: Host> Recorder for HostRecorder<'_, H> {
    async fn record(&mut self, record: &RunRecord, _step: &Step) -> Result<(), HostError> {
        if let Some(cluster) = record.cluster_id {
            self.hold(cluster).await?;
        }
        self.host
            .record_run(&self.run.key, self.generation, record)
            .await
    }

    fn permit(&self) -> Result<(), HostError> {
        self.host.permit()
    }
}

fn finished<H: Host>(shared: &Shared<H>, run: &RunView, record: &RunRecord) {
    shared.telemetry.run_finished(&run.cluster, record);
    for member in record
        .members
        .iter()
        .filter(|m| m.outcome == Outcome::Failed)
    {
        shared.host.event(Event {
            about: About::Run(run.key.clone()),
            warning: true,
            note: Note::new(
                member.reason,
                format!("member {}: {}", member.label(), member.message),
            ),
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
