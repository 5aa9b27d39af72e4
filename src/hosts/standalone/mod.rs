//! Objects in a folder of files, status and runs in a state folder; no
//! Kubernetes.
//!
//! | file | what |
//! | --- | --- |
//! | `objects` | reads the folder that people write |
//! | `stored`, `store` | what stands in a state file; the state folder |
//! | `align` | what a document's change means for what is stored; pure |
//! | `sync` | carries that out |
//! | `alerts` | alerts that were delivered |
//! | `host`, `create` | the engine's view of all this; the runs that policies make |
//! | `checked` | from stored objects to the engine's types |
//! | `inventory` | what `defragd status` shows |

mod alerts;
mod align;
mod checked;
mod create;
mod host;
mod inventory;
mod objects;
mod store;
mod stored;
mod sync;
#[cfg(test)]
mod tests;
mod together;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::Watcher;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use host::StandaloneHost;
pub use inventory::{Inventory, Item, inventory};
pub use store::StateError;
pub use stored::Kind;

use self::alerts::FileAlerts;
use self::objects::{Folder, SETTLE, Snapshot};
use self::store::Store;
use crate::engine::{self, Engine};
use crate::hosts::config::Config;
use crate::signals::Sources;
use crate::signals::http::SourceError;
use crate::signals::webhook::{self, AlertStore};
use crate::telemetry::{Telemetry, http};

/// How often the folder is read when nobody tells of a change: not every file
/// system does.
const NET: Duration = Duration::from_secs(10);
/// How long changes are gathered before the folder is read.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the start waits for files that are being written.
const FIRST_READ: Duration = Duration::from_secs(2);

/// Why the host could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum HostStartError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(
        "the objects' folder {path:?} cannot be read: {source}; give the path of a folder with YAML files"
    )]
    Objects {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("a source cannot be used: {0}")]
    Source(#[from] SourceError),
    #[error(
        "the source {source_name:?} takes deliveries, and nothing listens for them: start with --listen"
    )]
    NobodyListens { source_name: String },
    #[error(
        "unable to listen on {address}: {source}; give an address of this machine and a free port"
    )]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("a part of the process ended unexpectedly: {0}")]
    Ended(String),
    #[error(
        "not everything ended within {waited:?}; what goes on is recorded and is observed at the next start"
    )]
    StopTimedOut { waited: Duration },
}

/// Works until the token is cancelled.
///
/// After that it waits up to `limits.shutdownTimeout` for what is under way to
/// be recorded. A run in progress goes on at the next start.
///
/// # Errors
/// What keeps it from starting; a stop that took too long.
pub async fn run(
    config: Config,
    objects: PathBuf,
    state: PathBuf,
    listen: Option<SocketAddr>,
    shutdown: CancellationToken,
) -> Result<(), HostStartError> {
    let Config {
        sources,
        limits,
        log: _,
    } = config;
    let unreadable = |source| HostStartError::Objects {
        path: objects.clone(),
        source,
    };
    std::fs::read_dir(&objects).map_err(unreadable)?;
    let sources = Arc::new(Sources::from_config(sources)?);
    let stop = shutdown.child_token();
    // However this function ends, what it has begun ends with it.
    let _guard = stop.clone().drop_guard();
    let telemetry = Arc::new(Telemetry::new(sources.clone()));
    if let (None, Some(webhook)) = (listen, sources.webhooks().next()) {
        let source_name = webhook.name().to_owned();
        return Err(HostStartError::NobodyListens { source_name });
    }
    let serving = match listen {
        Some(address) => {
            let failed = |source| HostStartError::Listen { address, source };
            let listener = tokio::net::TcpListener::bind(address)
                .await
                .map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            tracing::info!(%address, "serving /metrics, /healthz and /readyz");
            let pages = http::router(telemetry.clone()).merge(webhook::router(sources.clone()));
            Some(tokio::spawn(http::serve(listener, pages, stop.clone())))
        }
        None => None,
    };
    let takes_deliveries = sources.webhooks().next().is_some();
    let (store, loaded, alerts) = blocking(move || {
        let (store, loaded) = Store::open(&state)?;
        let alerts = takes_deliveries
            .then(|| FileAlerts::open(&state, store.lock()))
            .transpose()?;
        Ok::<_, StateError>((store, loaded, alerts))
    })
    .await??;
    if let Some(alerts) = alerts {
        sources.keep_alerts_in(&(Arc::new(alerts) as Arc<dyn AlertStore>));
    }
    // Whoever holds the state's lock acts.
    telemetry.leader(true);
    for error in loaded.unusable.values() {
        telemetry.error("state");
        tracing::error!(%error, "a state file cannot be used");
    }
    let host = Arc::new(StandaloneHost::new(store, loaded, telemetry.clone()));

    let mut reader = Reader::new(host.clone(), &objects);
    reader.first().await?;
    telemetry.ready();
    let mut reading = tokio::spawn(reader.follow(stop.clone()));
    let engine_limits = engine::Limits {
        max_concurrent_runs: None,
        runs_per_hour: limits.runs_per_hour,
        runs_per_minute: limits.runs_per_minute,
    };
    let engine = Engine::new(host, sources, telemetry, engine_limits);
    let mut engine = tokio::spawn(engine.run(stop.clone()));
    let ended = tokio::select! {
        // A stop ends the others as well, which is then no fault of theirs.
        biased;
        () = shutdown.cancelled() => None,
        done = &mut reading => Some(format!("reading the objects ({done:?})")),
        done = &mut engine => Some(format!("the engine ({done:?})")),
    };
    if let Some(what) = ended {
        return Err(HostStartError::Ended(what));
    }
    tracing::info!(timeout = ?limits.shutdown_timeout, "stopping: what is under way is being recorded");
    let all = async {
        let ended = (engine.await, reading.await);
        if let Some(serving) = serving {
            // A client that keeps its connection open must not keep us.
            serving.abort();
        }
        ended
    };
    match tokio::time::timeout(limits.shutdown_timeout, all).await {
        Ok((Ok(()), Ok(_))) => Ok(()),
        Ok((engine, reading)) => Err(HostStartError::Ended(format!("{engine:?}, {reading:?}"))),
        Err(_) => Err(HostStartError::StopTimedOut {
            waited: limits.shutdown_timeout,
        }),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HostStartError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| HostStartError::Ended(error.to_string()))
}

/// Reads the objects again and again.
struct Reader {
    host: Arc<StandaloneHost>,
    /// Away while a thread reads it.
    folder: Option<Folder>,
    dir: PathBuf,
}

impl Reader {
    fn new(host: Arc<StandaloneHost>, dir: &Path) -> Self {
        Reader {
            host,
            folder: Some(Folder::new(dir)),
            dir: dir.to_owned(),
        }
    }

    async fn read(&mut self) -> Result<Snapshot, HostStartError> {
        // It is away only if a reading thread has panicked: then all is read anew.
        let mut folder = self.folder.take().unwrap_or_else(|| Folder::new(&self.dir));
        let (folder, snapshot) = blocking(move || {
            let snapshot = folder.read();
            (folder, snapshot)
        })
        .await?;
        self.folder = Some(folder);
        Ok(snapshot)
    }

    /// Reads until no file is being written, for [`FIRST_READ`] at most.
    async fn first(&mut self) -> Result<(), HostStartError> {
        let deadline = tokio::time::Instant::now() + FIRST_READ;
        let mut snapshot = self.read().await?;
        while snapshot.unsettled && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(SETTLE).await;
            snapshot = self.read().await?;
        }
        self.host.sync(&snapshot).await;
        Ok(())
    }

    async fn follow(mut self, stop: CancellationToken) {
        let (tell, mut told) = mpsc::channel(1);
        let watcher = watch(&self.dir, tell);
        if let Err(error) = &watcher {
            tracing::warn!(%error, "unable to watch the objects' folder; it is read every {NET:?} instead");
        }
        let mut soon = true;
        loop {
            let wait = if soon { SETTLE } else { NET };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // The sender lives as long as the watcher.
                Some(()) = told.recv() => tokio::time::sleep(PAUSE).await,
                () = self.host.reread.notified() => {}
                () = stop.cancelled() => return,
            }
            match self.read().await {
                Ok(snapshot) => soon = self.host.sync(&snapshot).await.soon,
                Err(error) => tracing::error!(%error, "unable to read the objects"),
            }
        }
    }
}

/// Tells of each change in the folder. Changes behind symbolic links and on some
/// network file systems are not told.
fn watch(dir: &Path, tell: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the files is itself an event; it must not make us read again.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            // When one message waits already, nothing is lost.
            let _ = tell.try_send(());
        }
    })?;
    watcher.watch(dir, notify::RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
