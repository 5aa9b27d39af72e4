//! Stores what a run's worker decided, and notices when somebody else did.

use std::sync::Arc;

use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord};
use crate::core::sweep::Step;
use crate::core::view::ClusterId;
use crate::etcd::Guard;

use super::claim::{Claim, Claims};
use super::drive::Recorder;
use super::host::{Host, HostError, RunView};
use super::turn::Places;

/// Records that a host said it did not store are remembered as perhaps stored,
/// this many at most: a write whose answer was lost may have been carried out.
const DOUBTFUL: usize = 32;

/// The records of one run, for as long as this process is the one that works on it.
///
/// A process may have been asleep, or cut off, and another one may have taken the
/// run over meanwhile. So nothing is stored unless what is stored comes from here.
pub(super) struct HostRecorder<'a, H> {
    host: &'a Arc<H>,
    claims: &'a Claims,
    places: &'a Places,
    claim: Option<Claim>,
    run: &'a RunView,
    /// What was stored last, then what may have been stored since.
    own: Vec<RunRecord>,
}

impl<'a, H: Host> HostRecorder<'a, H> {
    /// A recorder of the run as it is stored now.
    pub(super) fn new(
        host: &'a Arc<H>,
        claims: &'a Claims,
        places: &'a Places,
        run: &'a RunView,
    ) -> Self {
        HostRecorder {
            host,
            claims,
            places,
            claim: None,
            run,
            own: vec![run.record.clone()],
        }
    }

    /// Claims the cluster: another target may name it too, which shows only now.
    async fn hold(&mut self, cluster: ClusterId) -> Result<(), HostError> {
        if self
            .claim
            .as_ref()
            .is_some_and(|claim| claim.cluster == cluster)
        {
            return Ok(());
        }
        let error = match self.host.runs_of(cluster) {
            Ok(runs) => match self.claims.take(cluster, self.run, &runs) {
                Ok(claim) => {
                    self.claim = Some(claim);
                    return Ok(());
                }
                Err(other) => HostError {
                    reason: Reason::Queued,
                    message: format!(
                        "the run {other} has the cluster {cluster}, by another target's name"
                    ),
                },
            },
            // One that may be in the middle of its sweep.
            Err(error) => error,
        };
        Err(self.waits(self.run.record.clone(), error).await)
    }

    /// Stores that the run waits, and returns why.
    async fn waits(&mut self, known: RunRecord, why: HostError) -> HostError {
        let waiting = RunRecord {
            gate: Some(Note::new(why.reason, why.message.clone())),
            ..known
        };
        self.store(&waiting).await.err().unwrap_or(why)
    }

    async fn store(&mut self, record: &RunRecord) -> Result<(), HostError> {
        let generation = match self.host.run(&self.run.key) {
            Ok(Some(stored)) => {
                // The end is the end: what was decided before it was known counts no more.
                let over = stored.record.phase.is_terminal() && !record.phase.is_terminal();
                if over || !self.own.iter().any(|own| own.is_stored_as(&stored.record)) {
                    return Err(HostError {
                        reason: Reason::WriteConflict,
                        message: format!(
                            "the record of the run {} was changed by somebody else; it goes on from what is stored",
                            self.run.key
                        ),
                    });
                }
                stored.generation
            }
            Ok(None) => {
                return Err(HostError {
                    reason: Reason::RunVanished,
                    message: format!("the run {} is not stored any more", self.run.key),
                });
            }
            // One of another run's files cannot be read, which says nothing about this one.
            Err(_) => self.run.generation,
        };
        let stored = self
            .host
            .record_run(&self.run.key, generation, record)
            .await;
        match stored {
            Ok(()) => {
                self.own.clear();
                self.own.push(record.clone());
                Ok(())
            }
            Err(error) => {
                if self.own.len() > DOUBTFUL {
                    self.own.remove(1);
                }
                self.own.push(record.clone());
                Err(match error.reason {
                    // By what is stored the next attempt tells whether it was we who changed it.
                    Reason::WriteConflict => HostError {
                        reason: Reason::NotStored,
                        ..error
                    },
                    _ => error,
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
        let (host, places) = (self.host, self.places);
        let stored = self.own[0].clone();
        match places.take(&**host, &self.run.key, &stored, record).await {
            Ok(_taking) => self.store(record).await,
            Err(error) => Err(self.waits(stored, error).await),
        }
    }

    fn permit(&self) -> Result<(), HostError> {
        self.host.permit()
    }

    fn guard(&self) -> Guard {
        let host = Arc::clone(self.host);
        Arc::new(move || {
            host.permit()
                .map_err(|error| Note::new(error.reason, error.message))
        })
    }
}
