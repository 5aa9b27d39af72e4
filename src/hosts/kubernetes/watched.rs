//! Our own kinds, watched into the cache.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, Resource};
use tokio_util::sync::CancellationToken;

use super::api::{ApiError, REQUEST_TIMEOUT, bounded};
use super::cache::Cached;
use super::host::KubernetesHost;
use super::objects::{Kind, Policies, Runs, Targets, key_of, uid_of};
use super::watch::{self, Failure, Sink};
use crate::core::key::ObjectKey;
use crate::telemetry::Telemetry;

/// Kinds that are watched in each scope.
pub(super) const KINDS: usize = 3;
/// Objects that one answer to a list holds, as client-go asks for them.
const PAGE: u32 = 500;

fn api<K: Cached>(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = K::api_resource();
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Lists everything once, as it is now: a watch may be behind.
pub(super) async fn catch_up(
    client: &Client,
    host: &KubernetesHost,
    scopes: &[Option<String>],
) -> Result<(), ApiError> {
    for scope in scopes {
        let scope = scope.as_deref();
        list::<Targets>(client, host, scope).await?;
        list::<Runs>(client, host, scope).await?;
        list::<Policies>(client, host, scope).await?;
    }
    Ok(())
}

async fn list<K: Cached>(
    client: &Client,
    host: &KubernetesHost,
    namespace: Option<&str>,
) -> Result<(), ApiError> {
    let api = api::<K>(client, namespace);
    let began = Instant::now();
    let mut listed = BTreeSet::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = bounded(REQUEST_TIMEOUT, api.list(&params)).await?;
        for object in &page.items {
            listed.insert(key_of(object));
            host.take::<K>(object);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    host.keep_listed::<K>(namespace, began, &listed);
    if is_runs::<K>() {
        host.proved(namespace);
    }
    Ok(())
}

fn is_runs<K: Cached>() -> bool {
    K::PLURAL == Runs::PLURAL
}

/// Lists the runs of those scopes whose watch fails, for ever. A watch that goes on
/// again tells nothing while nothing changes, so that it does is no proof of it.
pub(super) async fn keep_current(
    client: Client,
    host: Arc<KubernetesHost>,
    scopes: Vec<Option<String>>,
) {
    loop {
        host.current.due().await;
        for scope in &scopes {
            if !host.current.is_failing(scope.as_deref()) {
                continue;
            }
            if let Err(error) = list::<Runs>(&client, &host, scope.as_deref()).await {
                host.current.failed(scope.as_deref(), error.to_string());
            }
        }
    }
}

/// Watches all kinds in all scopes.
pub(super) async fn watch_all(
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
pub(super) struct First {
    missing: tokio::sync::watch::Sender<usize>,
    telemetry: Arc<Telemetry>,
}

impl First {
    pub(super) fn new(missing: usize, telemetry: Arc<Telemetry>) -> Self {
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
    pub(super) async fn all(&self, stop: &CancellationToken) {
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
    let api = api::<K>(client, namespace.as_deref());
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

    /// What is known is what is stored.
    fn proved(&self) {
        if is_runs::<K>() {
            self.host.proved(self.namespace.as_deref());
        }
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
            self.proved();
        }
    }

    fn complete(&mut self) {
        self.said = None;
        if let Some((since, listed)) = self.listing.take() {
            self.host
                .keep_listed::<K>(self.namespace.as_deref(), since, &listed);
        }
        self.counted();
        self.proved();
        if !self.complete {
            self.complete = true;
            self.first.one_less();
        }
    }

    fn gone(&mut self, object: &DynamicObject) {
        self.host.gone::<K>(&key_of(object), &uid_of(object));
        self.counted();
        self.proved();
    }

    fn failed(&mut self, failure: Failure) {
        let kind = K::Object::kind(&());
        self.telemetry.watch_failed(K::PLURAL);
        if is_runs::<K>() {
            let problem = failure.to_string();
            self.host.current.failed(self.namespace.as_deref(), problem);
        }
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
