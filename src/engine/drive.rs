//! Carries one run through: observe, decide, record, act, until it is over.
//! The controller, the standalone host and `defragd sweep` all go through here.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::reason::Reason;
use crate::core::run::{Note, Phase, RunRecord, RunSpec};
use crate::core::sweep::{self, Control, Next, Step};
use crate::etcd::Connection;

use super::cluster::Link;
use super::host::HostError;
use super::now;

/// Pause before a record that could not be stored is tried again.
const RECORD_PAUSE: Duration = Duration::from_secs(1);
/// How long a shutdown waits for a call under way. Its intent is recorded, so
/// leaving earlier loses nothing: the next start observes what became of it.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// What is asked of the run, which may change while it goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Orders {
    /// How the cluster is reached. That it is still the same cluster is checked
    /// before anything is done there.
    pub connection: Arc<Connection>,
    pub spec: RunSpec,
    pub control: Control,
}

/// Who stores the record, and shows it.
pub trait Recorder: Send {
    /// Stores the record before the step is carried out. When this fails the
    /// step is not carried out.
    fn record(
        &mut self,
        record: &RunRecord,
        step: &Step,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Whether a call may leave at this instant: asked after its intent was
    /// stored, right before it is made.
    ///
    /// # Errors
    /// Why not. The call is not made.
    fn permit(&self) -> Result<(), HostError>;
}

/// How driving ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Driven {
    /// The record is terminal, and stored.
    Finished(RunRecord),
    /// The process is to stop; the run goes on at its next start.
    ShutDown(RunRecord),
}

/// Drives a run until it is over. Must be called only while the run holds the
/// cluster.
pub async fn drive<R: Recorder>(
    record: RunRecord,
    mut orders: watch::Receiver<Orders>,
    recorder: &mut R,
    shutdown: &CancellationToken,
) -> Driven {
    let mut record = sweep::resume(record);
    let mut said: Option<Reason> = None;
    let mut connection = orders.borrow().connection.clone();
    let mut link = Link::new((*connection).clone());
    loop {
        let Orders {
            connection: wanted,
            spec,
            control,
        } = orders.borrow_and_update().clone();
        if wanted != connection {
            tracing::info!("the target was changed; the run goes on with it");
            link = Link::new((*wanted).clone());
            connection = wanted;
        }
        let seen = tokio::select! {
            biased;
            // A cluster that does not answer must not keep the process.
            () = shutdown.cancelled() => return Driven::ShutDown(record),
            seen = link.observe(now()) => seen,
        };
        let Next { record: next, step } = sweep::next(&spec, record.clone(), &seen, &control);
        if let Err(error) = recorder.record(&next, &step).await {
            if error.reason != Reason::Queued {
                tracing::error!(reason = %error.reason, %error, "unable to store the run, nothing is done");
            } else if said != Some(error.reason) {
                said = Some(error.reason);
                tracing::info!(reason = %error.reason, "{error}");
            }
            record.transient = next.transient;
            pause(RECORD_PAUSE, &mut orders, shutdown).await;
            continue;
        }
        record = next;
        match step {
            Step::Finish => return Driven::Finished(record),
            Step::Act(act) => {
                said = None;
                tracing::info!(?act, "next step");
                let result = tokio::select! {
                    result = link.act(record.cluster_id, &act) => result,
                    () = patience_ends(shutdown) => return Driven::ShutDown(record),
                };
                record = sweep::conclude(record, &act, &result, now());
                if shutdown.is_cancelled() {
                    record_answer(&record, recorder).await;
                    return Driven::ShutDown(record);
                }
            }
            Step::Observe { after, note } | Step::Hold { after, note } => {
                if said != Some(note.reason) {
                    said = Some(note.reason);
                    let waiting = record.phase == Phase::Pending;
                    tracing::info!(reason = %note.reason, waiting, "{}", note.message);
                }
                pause(after.unsigned_abs(), &mut orders, shutdown).await;
            }
        }
    }
}

/// Stores what the last call led to, which nobody will look at soon.
async fn record_answer<R: Recorder>(record: &RunRecord, recorder: &mut R) {
    let step = Step::Observe {
        after: SignedDuration::ZERO,
        note: Note::new(
            Reason::Interrupted,
            "the process stops; the run goes on at its next start",
        ),
    };
    if let Err(error) = recorder.record(record, &step).await {
        tracing::error!(reason = %error.reason, %error, "unable to store the answer, the next start finds out");
    }
}

async fn patience_ends(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(SHUTDOWN_GRACE).await;
}

/// Waits; new orders and a shutdown end the wait.
async fn pause(wait: Duration, orders: &mut watch::Receiver<Orders>, shutdown: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        // An error means that nobody can give orders any more: then only time counts.
        Ok(()) = orders.changed() => {}
        () = shutdown.cancelled() => {}
    }
}
