//! Carries one run through: observe, decide, record, act, until it is over.
//! The controller, the standalone host and `defragd sweep` all go through here.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::reason::Reason;
use crate::core::run::{ActResult, Note, Phase, RunRecord, RunSpec};
use crate::core::sweep::{self, Control, Next, Step};
use crate::etcd::{Connection, Guard};

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
    ///
    /// # Errors
    /// `Queued` and `TooManyRuns` when others are before it, which is stored instead.
    /// `WriteConflict` when what is stored is not what was stored here last, and
    /// `RunVanished` when nothing is: then this record counts no more. Whatever
    /// else is wrong is tried again.
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

    /// [`Recorder::permit`], to be asked once more at the last moment: before a
    /// call leaves, the member's identity is made sure of, which can take seconds.
    fn guard(&self) -> Guard;
}

/// How driving ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Driven {
    /// The record is terminal, and stored.
    Finished(RunRecord),
    /// The process is to stop; the run goes on at its next start.
    ShutDown(RunRecord),
    /// Somebody else changed what is stored, or took it away: what was known
    /// here is worth nothing any more, and was not acted upon.
    Superseded(HostError),
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
    let mut told = Told::default();
    let mut connection = orders.borrow().connection.clone();
    let mut link = Link::new((*connection).clone());
    let guard = recorder.guard();
    loop {
        if shutdown.is_cancelled() {
            return Driven::ShutDown(record);
        }
        if let Err(error) = recorder.permit() {
            // Whoever may act looks after the cluster; asking it twice helps nobody.
            told.trouble(&error);
            pause(RECORD_PAUSE, &mut orders, shutdown).await;
            continue;
        }
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
            if matches!(error.reason, Reason::WriteConflict | Reason::RunVanished) {
                return Driven::Superseded(error);
            }
            told.trouble(&error);
            record.transient = next.transient;
            pause(RECORD_PAUSE, &mut orders, shutdown).await;
            continue;
        }
        let before = std::mem::replace(&mut record, next);
        match step {
            Step::Finish => return Driven::Finished(record),
            Step::Act(act) => {
                if let Err(error) = recorder.permit() {
                    // Nothing may be written now either: another replica may be at it. If
                    // the intent still stands there when we may act again, nobody sent it.
                    told.trouble(&error);
                    record = sweep::withdraw(record, &before, &act);
                    pause(RECORD_PAUSE, &mut orders, shutdown).await;
                    continue;
                }
                told = Told::default();
                tracing::info!(?act, "next step");
                let result = tokio::select! {
                    result = link.act(record.cluster_id, &act, &guard) => result,
                    () = patience_ends(shutdown) => return Driven::ShutDown(record),
                };
                if matches!(&result, ActResult::NotSent(note) if note.reason == Reason::NotLeading)
                {
                    record = sweep::withdraw(record, &before, &act);
                    pause(RECORD_PAUSE, &mut orders, shutdown).await;
                    continue;
                }
                record = sweep::conclude(record, &act, &result, now());
                if shutdown.is_cancelled() {
                    record_answer(&record, recorder).await;
                    return Driven::ShutDown(record);
                }
            }
            Step::Observe { after, note } | Step::Hold { after, note } => {
                told.waiting(&note, record.phase == Phase::Pending);
                pause(after.unsigned_abs(), &mut orders, shutdown).await;
            }
        }
    }
}

/// What the log has been told last, so that each wait stands there once.
#[derive(Default)]
struct Told(Option<Reason>);

impl Told {
    fn trouble(&mut self, error: &HostError) {
        let reason = error.reason;
        match reason {
            Reason::Queued | Reason::TooManyRuns | Reason::NotLeading | Reason::RunsUnreadable => {
                if self.0 != Some(reason) {
                    tracing::info!(reason = %reason, "{error}");
                }
            }
            _ => {
                tracing::error!(reason = %reason, %error, "unable to store the run, nothing is done");
            }
        }
        self.0 = Some(reason);
    }

    fn waiting(&mut self, note: &Note, pending: bool) {
        if self.0 != Some(note.reason) {
            tracing::info!(reason = %note.reason, waiting = pending, "{}", note.message);
        }
        self.0 = Some(note.reason);
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
