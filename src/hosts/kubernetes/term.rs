//! A term of leadership: from the lease to its loss or the stop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::ControllerError;
use super::host::KubernetesHost;
use super::lease::Elector;
use super::watched::catch_up;
use crate::engine::{self, Engine};
use crate::signals::Sources;
use crate::telemetry::Telemetry;

/// Pause before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often runs are looked for that have ended and are still held.
const LET_GO: Duration = Duration::from_secs(10);

/// What every term begins with.
pub(super) struct Terms {
    pub(super) client: Client,
    pub(super) host: Arc<KubernetesHost>,
    pub(super) sources: Arc<Sources>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) scopes: Vec<Option<String>>,
    pub(super) limits: engine::Limits,
    /// How long a stop waits for what is under way to be recorded.
    pub(super) shutdown_timeout: Duration,
}

/// Why a term ended.
enum End {
    Lost,
    Stop,
}

impl Terms {
    /// Works as the leader until the lease is lost or the process is to stop.
    pub(super) async fn serve(
        &self,
        elector: &mut Elector<'_>,
        stop: &CancellationToken,
    ) -> Result<(), ControllerError> {
        let caught_up = tokio::select! {
            () = stop.cancelled() => false,
            () = elector.keep() => false,
            () = self.begin() => true,
        };
        if !caught_up {
            return Ok(());
        }
        self.telemetry.leader(true);
        let ended = self.work(elector, stop).await;
        self.telemetry.leader(false);
        ended
    }

    /// Begins with what is stored now: what a watch has not told yet may have been
    /// written by the last leader.
    async fn begin(&self) {
        let mut said = None;
        while let Err(error) = catch_up(&self.client, &self.host, &self.scopes).await {
            let saying = error.to_string();
            if said.as_ref() != Some(&saying) {
                tracing::warn!("unable to list what is stored, trying again: {saying}");
                said = Some(saying);
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.host.store.cache().begin_term();
    }

    async fn work(
        &self,
        elector: &mut Elector<'_>,
        stop: &CancellationToken,
    ) -> Result<(), ControllerError> {
        let engine = Engine::new(
            self.host.clone(),
            self.sources.clone(),
            self.telemetry.clone(),
            self.limits,
        );
        let term = stop.child_token();
        let mut working = tokio::spawn(engine.run(term.clone()));
        let end = tokio::select! {
            // The engine ends at the stop too: that is no fault of it.
            biased;
            () = stop.cancelled() => End::Stop,
            () = elector.keep() => End::Lost,
            never = self.let_go() => match never {},
            ended = &mut working => {
                return Err(ControllerError::Ended(format!("the engine ({ended:?})")));
            }
        };
        term.cancel();
        tracing::info!("ending the engine: what is under way is being recorded");
        match end {
            // Nothing can be written any more, so this takes no longer than a call
            // under way; if it did, the health check would tell.
            End::Lost => ended(working.await),
            End::Stop => {
                let all = async {
                    tokio::select! {
                        biased;
                        done = &mut working => done,
                        // The lease is renewed while the last records are written.
                        () = elector.keep() => (&mut working).await,
                    }
                };
                let waited = self.shutdown_timeout;
                match tokio::time::timeout(waited, all).await {
                    Ok(done) => ended(done),
                    Err(_) => Err(ControllerError::StopTimedOut { waited }),
                }
            }
        }
    }

    /// Lets go of runs that could not be let go of when they ended, for ever.
    async fn let_go(&self) -> Infallible {
        loop {
            tokio::time::sleep(LET_GO).await;
            self.host.let_go().await;
        }
    }
}

fn ended(done: Result<(), JoinError>) -> Result<(), ControllerError> {
    done.map_err(|error| ControllerError::Ended(format!("the engine ({error})")))
}
