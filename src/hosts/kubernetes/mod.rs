//! The host in Kubernetes: objects are custom resources, one of several replicas
//! leads, events are Events.
//!
//! | room | what happens there |
//! | --- | --- |
//! | [`api`] | requests: a client, bounded in time, errors in words |
//! | [`lease`] | who leads, and until when |
//! | [`watch`] | a watch that goes on |
//! | [`objects`] | an object, parsed; nothing wrong with it can end the watch |
//! | [`cache`] | what is believed to be stored |
//! | [`store`] | statuses and finalizers, written so that a late replica cannot |
//! | [`unreadable`] | runs that nobody can work on |
//! | [`follow`], [`clusters`], [`resolve`] | how a cluster is reached: by a target's endpoints, by pods, by other operators' objects |
//! | [`secrets`], [`events`] | credentials, and what people are told |
//! | [`host`] | all of that as the engine's [`Host`](crate::engine::Host) |
//!
//! Every replica watches and is ready; only the leader runs the engine. A leader
//! that cannot renew its lease ends the engine, keeps its watches and stands by.

mod api;
mod cache;
mod clusters;
mod events;
mod follow;
mod host;
mod lease;
mod objects;
mod resolve;
mod secrets;
mod store;
mod unreadable;
mod watch;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::DynamicObject;
use kube::{Api, Client, Resource};
use tokio_util::sync::CancellationToken;

pub use self::api::ClientError;
use self::cache::Cached;
use self::clusters::Clusters;
use self::events::Events;
use self::follow::Follower;
use self::host::KubernetesHost;
use self::lease::{Elector, Leadership};
use self::objects::{Policies, Runs, Targets, key_of};
use self::secrets::ApiSecrets;
use self::store::Store;
use self::watch::{Failure, Sink};
use crate::core::key::ObjectKey;
use crate::engine::{self, Engine};
use crate::hosts::config::Config;
use crate::signals::Sources;
use crate::signals::prometheus::SourceError;
use crate::telemetry::{Telemetry, http};

/// Kinds that are watched in each scope.
const KINDS: usize = 3;
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
    let sources = Arc::new(Sources::from_config(sources)?);
    let client = api::client().await?;
    let stop = shutdown.child_token();
    // However this function ends, what it has begun ends with it.
    let _guard = stop.clone().drop_guard();
    let telemetry = Arc::new(Telemetry::new(sources.clone()));
    telemetry.leader(false);
    if let Some(address) = options.listen {
        serve(address, telemetry.clone(), stop.clone()).await?;
    }

    let replica = Replica::of_environment(&client);
    let leadership = Arc::new(Leadership::default());
    let host = Arc::new(KubernetesHost::new(
        Store::new(client.clone(), leadership.clone(), telemetry.clone()),
        Clusters::new(
            Follower::new(client.clone(), telemetry.clone()),
            Arc::new(ApiSecrets::new(client.clone())),
        ),
        Events::start(client.clone(), replica.identity.clone()),
    ));
    let scopes = scopes(options.namespaces);
    let first = Arc::new(First::new(KINDS * scopes.len(), telemetry.clone()));
    let watching = watch_all(
        client.clone(),
        host.clone(),
        telemetry.clone(),
        first.clone(),
        scopes,
    );
    let watching = spawn_until(&stop, watching);
    let resolving = spawn_until(&stop, clusters::keep_resolved(host.clone()));
    let letting_go = spawn_until(&stop, unreadable::keep_letting_go(host.clone()));
    first.all(&stop).await;

    let engine_limits = engine::Limits {
        max_concurrent_runs: options.max_concurrent_runs,
        runs_per_hour: limits.runs_per_hour,
    };
    let mut elector = Elector::new(
        client,
        &replica.namespace,
        LEASE,
        &replica.identity,
        &leadership,
    );
    while elector.acquire(&stop).await {
        host.store.cache().begin_term();
        telemetry.leader(true);
        let engine = Engine::new(
            host.clone(),
            sources.clone(),
            telemetry.clone(),
            engine_limits,
        );
        let term = stop.child_token();
        let mut working = tokio::spawn(engine.run(term.clone()));
        let lost = tokio::select! {
            // The engine ends at the stop too: that is no fault of it.
            biased;
            () = stop.cancelled() => false,
            () = elector.keep() => true,
            ended = &mut working => {
                return Err(ControllerError::Ended(format!("the engine ({ended:?})")));
            }
        };
        term.cancel();
        tracing::info!("ending the engine: what is under way is being recorded");
        if lost {
            // Nothing can be written any more, so this takes no longer than a call
            // under way; if it did, the health check would tell.
            ended((&mut working).await)?;
        } else {
            let wait = tokio::time::timeout(limits.shutdown_timeout, async {
                tokio::select! {
                    biased;
                    done = &mut working => done,
                    // The lease is renewed while the last records are written.
                    () = elector.keep() => (&mut working).await,
                }
            });
            let done = wait.await.map_err(|_| ControllerError::StopTimedOut {
                waited: limits.shutdown_timeout,
            })?;
            ended(done)?;
        }
        telemetry.leader(false);
    }
    elector.release().await;
    drop((watching, resolving, letting_go));
    Ok(())
}

fn ended(done: Result<(), tokio::task::JoinError>) -> Result<(), ControllerError> {
    done.map_err(|error| ControllerError::Ended(format!("the engine ({error})")))
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
    telemetry: Arc<Telemetry>,
    stop: CancellationToken,
) -> Result<(), ControllerError> {
    let failed = |source| ControllerError::Listen { address, source };
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, "serving /metrics, /healthz and /readyz");
    tokio::spawn(http::serve(listener, telemetry, stop));
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

/// Watches all kinds in all scopes.
async fn watch_all(
    client: Client,
    host: Arc<KubernetesHost>,
    telemetry: Arc<Telemetry>,
    first: Arc<First>,
    scopes: Vec<Option<String>>,
) {
    let watches = scopes.iter().map(|scope| async {
        tokio::join!(
            watch_kind::<Targets>(&client, &host, &telemetry, &first, scope.clone()),
            watch_kind::<Runs>(&client, &host, &telemetry, &first, scope.clone()),
            watch_kind::<Policies>(&client, &host, &telemetry, &first, scope.clone()),
        );
    });
    futures::future::join_all(watches).await;
}

/// How many first lists are still to come.
struct First {
    missing: tokio::sync::watch::Sender<usize>,
    telemetry: Arc<Telemetry>,
}

impl First {
    fn new(missing: usize, telemetry: Arc<Telemetry>) -> Self {
        First {
            missing: tokio::sync::watch::Sender::new(missing),
            telemetry,
        }
    }

    fn one_less(&self) {
        self.missing
            .send_modify(|missing| *missing = missing.saturating_sub(1));
        if *self.missing.borrow() == 0 {
            self.telemetry.ready();
        }
    }

    /// Waits until everything has been listed once, or for the stop.
    async fn all(&self, stop: &CancellationToken) {
        let mut missing = self.missing.subscribe();
        tokio::select! {
            // The sender lives as long as we do.
            _ = missing.wait_for(|missing| *missing == 0) => {}
            () = stop.cancelled() => {}
        }
    }
}

async fn watch_kind<K: Cached>(
    client: &Client,
    host: &Arc<KubernetesHost>,
    telemetry: &Arc<Telemetry>,
    first: &Arc<First>,
    namespace: Option<String>,
) {
    let resource = K::api_resource();
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let sink = CacheSink::<K> {
        host: host.clone(),
        telemetry: telemetry.clone(),
        first: first.clone(),
        namespace,
        listing: None,
        complete: false,
        said: None,
        kind: std::marker::PhantomData,
    };
    watch::follow(api, "", sink).await;
}

/// Takes what a watch tells into the cache.
struct CacheSink<K> {
    host: Arc<KubernetesHost>,
    telemetry: Arc<Telemetry>,
    first: Arc<First>,
    namespace: Option<String>,
    /// When the list that is arriving began, and what it had so far.
    listing: Option<(Instant, BTreeSet<ObjectKey>)>,
    complete: bool,
    said: Option<Failure>,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Cached> CacheSink<K> {
    fn counted(&self) {
        let count = K::entries(&mut self.host.store.cache()).len();
        self.telemetry.watched(K::PLURAL, count);
    }
}

impl<K: Cached> Sink for CacheSink<K> {
    fn begin(&mut self) {
        self.listing = Some((Instant::now(), BTreeSet::new()));
    }

    fn seen(&mut self, object: DynamicObject) {
        self.said = None;
        if let Some((_, listed)) = &mut self.listing {
            listed.insert(key_of(&object));
        }
        self.host.take::<K>(&object);
        if self.listing.is_none() {
            self.counted();
        }
    }

    fn complete(&mut self) {
        self.said = None;
        if let Some((since, listed)) = self.listing.take() {
            let gone =
                self.host
                    .store
                    .cache()
                    .keep_listed::<K>(self.namespace.as_deref(), since, &listed);
            for change in gone {
                self.host.show(change);
            }
        }
        self.counted();
        if !self.complete {
            self.complete = true;
            self.first.one_less();
        }
    }

    fn gone(&mut self, object: &DynamicObject) {
        let change = self.host.store.cache().drop_object::<K>(object);
        self.host.show(change);
        self.counted();
    }

    fn failed(&mut self, failure: Failure) {
        let kind = K::Object::kind(&());
        self.telemetry.watch_failed(K::PLURAL);
        if self.said.as_ref() == Some(&failure) {
            return;
        }
        match &failure {
            Failure::Expired => {
                tracing::info!(%kind, "the watch was too old, everything is listed again");
            }
            Failure::NotServed => tracing::error!(
                %kind,
                "the API server does not know the kind; install the CRDs (defragd crds | kubectl apply -f -)"
            ),
            Failure::Other(problem) => {
                tracing::warn!(%kind, namespace = self.namespace, "unable to watch, trying again: {problem}");
            }
        }
        self.said = Some(failure);
    }
}
