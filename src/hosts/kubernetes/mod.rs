//! The host in Kubernetes: objects are custom resources, one of several replicas
//! leads, events are Events.
//!
//! | room | what happens there |
//! | --- | --- |
//! | [`api`], [`counted`] | requests: a client, bounded in time, counted, errors in words |
//! | [`lease`] | who leads, and until when |
//! | [`term`] | what the leader does from its election to its end |
//! | [`watch`], [`watched`] | a watch that goes on; our own kinds, watched |
//! | [`objects`] | an object, parsed; nothing wrong with it can end the watch |
//! | [`cache`], [`kept`] | what is believed to be stored, in little room |
//! | [`store`] | statuses and finalizers, written so that a late replica cannot |
//! | [`unreadable`] | runs that nobody can work on |
//! | [`current`] | whether the runs that are known are those that are stored |
//! | [`follow`], [`clusters`], [`resolve`] | how a cluster is reached: by a target's endpoints, by pods, by other operators' objects |
//! | [`alerts`] | alerts that were delivered |
//! | [`fleets`] | policies that select their clusters |
//! | [`secrets`], [`events`] | credentials, and what people are told |
//! | [`new_run`] | the object of a run that a policy asks for |
//! | [`host`] | all of that as the engine's [`Host`](crate::engine::Host) |
//!
//! Every replica watches and is ready; only the leader runs the engine. A leader
//! that cannot renew its lease ends the engine, keeps its watches and stands by.

mod alerts;
mod api;
mod cache;
mod clusters;
mod counted;
mod current;
mod events;
mod fleets;
mod follow;
mod host;
mod kept;
mod lease;
mod new_run;
mod objects;
mod resolve;
mod secrets;
mod store;
mod term;
mod unreadable;
mod watch;
mod watched;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use self::alerts::ConfigMapAlerts;
pub use self::api::ClientError;
use self::clusters::Clusters;
use self::events::Events;
use self::follow::Follower;
use self::host::KubernetesHost;
use self::lease::{Elector, Leadership};
use self::secrets::ApiSecrets;
use self::store::Store;
use self::term::Terms;
use self::watched::{First, KINDS, keep_current, watch_all};
use crate::engine;
use crate::hosts::config::Config;
use crate::signals::Sources;
use crate::signals::http::SourceError;
use crate::signals::metrics_api::{self, MetricsApi};
use crate::signals::webhook::{self, AlertStore};
use crate::telemetry::{Telemetry, http};

/// The Lease by which replicas elect a leader.
const LEASE: &str = "defragd";

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where metrics and health are served.
    pub listen: Option<SocketAddr>,
    /// The namespaces with objects to work by; none: all.
    pub namespaces: BTreeSet<String>,
    /// Runs that may go on at the same time, each on its own cluster.
    pub max_concurrent_runs: Option<NonZeroU32>,
}

/// Why the host did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("sources: {0}")]
    Sources(#[from] SourceError),
    #[error(
        "the source {source_name:?} takes deliveries, and nothing listens for them: start with --listen"
    )]
    NobodyListens { source_name: String },
    #[error("unable to listen at {address}: {source}; choose another --listen")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("{0} ended unexpectedly")]
    Ended(String),
    #[error("what was under way could not be recorded within {waited:?}")]
    StopTimedOut { waited: Duration },
}

/// Works until `shutdown` is cancelled and what was under way is recorded.
///
/// # Errors
/// When it cannot start, or a part of it ends by itself.
pub async fn run(
    config: Config,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let Config {
        sources,
        limits,
        log: _,
    } = config;
    let sources = Sources::from_config(sources)?;
    let telemetry = Arc::new(Telemetry::default());
    let client = api::client(telemetry.clone()).await?;
    let metrics_api = MetricsApi::new(client.clone(), metrics_api::Limits::default());
    let sources = Arc::new(sources.with_metrics_api(metrics_api));
    let stop = shutdown.child_token();
    // However this function ends, what it has begun ends with it.
    let _guard = stop.clone().drop_guard();
    telemetry.tell_of(sources.clone());
    telemetry.leader(false);
    let replica = Replica::of_environment(&client);
    if let Some(webhook) = sources.webhooks().next() {
        if options.listen.is_none() {
            let source_name = webhook.name().to_owned();
            return Err(ControllerError::NobodyListens { source_name });
        }
        let alerts = ConfigMapAlerts::new(client.clone(), &replica.namespace);
        sources.keep_alerts_in(&(Arc::new(alerts) as Arc<dyn AlertStore>));
    }
    if let Some(address) = options.listen {
        let pages = http::router(telemetry.clone()).merge(webhook::router(sources.clone()));
        serve(address, pages, stop.clone()).await?;
    }

    let leadership = Arc::new(Leadership::default());
    let (events, telling) = Events::start(client.clone(), replica.identity.clone());
    let host = Arc::new(KubernetesHost::new(
        Store::new(client.clone(), leadership.clone()),
        Clusters::new(
            Follower::new(client.clone(), telemetry.clone()),
            Arc::new(ApiSecrets::new(client.clone())),
        ),
        events,
    ));
    let scopes = scopes(options.namespaces);
    let first = Arc::new(First::new(KINDS * scopes.len(), telemetry.clone()));
    let watching = watch_all(
        client.clone(),
        host.clone(),
        telemetry.clone(),
        first.clone(),
        scopes.clone(),
    );
    let watching = spawn_until(&stop, watching);
    let resolving = spawn_until(&stop, clusters::keep_resolved(host.clone()));
    let letting_go = spawn_until(&stop, unreadable::keep_letting_go(host.clone()));
    let current = keep_current(client.clone(), host.clone(), scopes.clone());
    let current = spawn_until(&stop, current);
    first.all(&stop).await;

    let mut elector = Elector::new(
        client.clone(),
        &replica.namespace,
        LEASE,
        &replica.identity,
        &leadership,
    );
    let terms = Terms {
        client,
        host,
        sources,
        telemetry,
        scopes,
        limits: engine::Limits {
            max_concurrent_runs: options.max_concurrent_runs,
            runs_per_hour: limits.runs_per_hour,
            runs_per_minute: limits.runs_per_minute,
        },
        shutdown_timeout: limits.shutdown_timeout,
    };
    let served = async {
        while elector.acquire(&stop).await {
            terms.serve(&mut elector, &stop).await?;
        }
        Ok::<(), ControllerError>(())
    };
    let served = served.await;
    // Before another one leads, and begins to tell what it does.
    telling.finish().await;
    served?;
    elector.release().await;
    drop((watching, resolving, letting_go, current));
    Ok(())
}

/// Which replica this is.
struct Replica {
    namespace: String,
    identity: String,
}

impl Replica {
    /// By `POD_NAME` and `POD_NAMESPACE` as the downward API gives them. The
    /// identity is new with each start, so that a process which takes the place
    /// of another does not take its lease for its own.
    fn of_environment(client: &Client) -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let pod = variable("POD_NAME").unwrap_or_else(|| "defragd".to_owned());
        let start =
            std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
        Replica {
            namespace: variable("POD_NAMESPACE")
                .unwrap_or_else(|| client.default_namespace().to_owned()),
            identity: format!("{pod}_{start:016x}"),
        }
    }
}

async fn serve(
    address: SocketAddr,
    pages: axum::Router,
    stop: CancellationToken,
) -> Result<(), ControllerError> {
    let failed = |source| ControllerError::Listen { address, source };
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, "serving /metrics, /healthz and /readyz");
    tokio::spawn(http::serve(listener, pages, stop));
    Ok(())
}

/// A task that ends when it is no longer held, or at the stop.
struct Held(tokio::task::AbortHandle);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn spawn_until(stop: &CancellationToken, work: impl Future<Output = ()> + Send + 'static) -> Held {
    let stop = stop.clone();
    let task = tokio::spawn(async move {
        let _ = stop.run_until_cancelled(work).await;
    });
    Held(task.abort_handle())
}

/// `None` is every namespace.
fn scopes(namespaces: BTreeSet<String>) -> Vec<Option<String>> {
    if namespaces.is_empty() {
        vec![None]
    } else {
        namespaces.into_iter().map(Some).collect()
    }
}
