//! Alerts that are pushed: Alertmanager's webhook, version 4.
//!
//! | file | what |
//! | --- | --- |
//! | `config` | what an administrator writes |
//! | `guard` | who may deliver |
//! | `message` | what a delivery says |
//! | `store` | what is kept, and where |
//! | `receive` | `POST /api/v1/alerts/{source}` |
//! | `counts` | what became of deliveries |
//!
//! A delivery is answered with success only once it is stored. What a repetition
//! cannot mend is answered with 4xx, which Alertmanager does not repeat; what it
//! can mend with 5xx, which it does.

pub mod config;
mod counts;
mod guard;
mod message;
mod receive;
mod store;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Mutex;

use self::config::WebhookConfig;
use self::counts::Counts;
pub use self::counts::{Delivery, DeliveryStats};
pub use self::receive::router;
pub use self::store::{AlertStore, Kept, StoreError};
use crate::core::alert::{self, AlertSignal, Delivered, Entry, Inbox, InboxError, Outcome};
use crate::core::reason::Reason;
use crate::core::signal::{Reading, bounded};

/// How long what is stored is known without looking again: another replica may
/// have stored something.
const FRESH: Duration = Duration::from_secs(1);
/// How often a delivery is tried that others' writes come in between of.
const ATTEMPTS: u32 = 8;
/// The longest pause between two of them; it grows towards it.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A source that others deliver to.
pub struct WebhookSource {
    name: String,
    config: WebhookConfig,
    store: OnceLock<Arc<dyn AlertStore>>,
    /// One delivery of this process at a time, until its write has ended.
    writing: Mutex<()>,
    /// Held while something is read or written that is known from then on: who asks
    /// at the same moment shares one read, and what was read before a write does
    /// not take its place.
    known: Mutex<Option<Known>>,
    counts: Counts,
}

impl fmt::Debug for WebhookSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSource")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What is stored, or why nobody can say, as of a moment.
struct Known {
    at: Instant,
    said: Result<Arc<Inbox>, StoreError>,
}

impl Known {
    fn now(said: Result<Arc<Inbox>, StoreError>) -> Self {
        Known {
            at: Instant::now(),
            said,
        }
    }
}

/// Why a delivery was not stored.
#[derive(Debug, thiserror::Error)]
enum NotKept {
    #[error("nothing can be stored yet")]
    NotReady,
    #[error(transparent)]
    Inbox(#[from] InboxError),
    #[error("{0}")]
    Store(StoreError),
}

impl WebhookSource {
    /// Nothing can be delivered before [`WebhookSource::keep_in`].
    pub fn new(name: String, config: WebhookConfig) -> Self {
        WebhookSource {
            name,
            config,
            store: OnceLock::new(),
            writing: Mutex::new(()),
            known: Mutex::new(None),
            counts: Counts::default(),
        }
    }

    /// The name in the administrator's file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// From now on deliveries are stored there. Said once.
    pub fn keep_in(&self, store: Arc<dyn AlertStore>) {
        // A second store would not be the one that was read from so far.
        let _ = self.store.set(store);
    }

    /// What became of deliveries since the start.
    pub fn deliveries(&self) -> DeliveryStats {
        self.counts.snapshot()
    }

    /// Evaluates a signal by what was delivered.
    pub async fn read(&self, signal: &AlertSignal) -> Reading {
        match self.inbox().await {
            Ok(inbox) => {
                let expires = |entry: &Entry| self.expires(entry);
                alert::judge_pushed(signal, &inbox, expires, Timestamp::now())
            }
            Err(error) => Reading::error(
                Reason::SourceUnavailable,
                format!(
                    "unable to read the delivered alerts: {}",
                    bounded(&error.to_string(), 400)
                ),
            ),
        }
    }

    /// Until when a firing alert counts.
    fn expires(&self, entry: &Entry) -> Timestamp {
        let by_age = entry.received_at.checked_add(self.config.expire_after);
        let by_age = by_age.unwrap_or(Timestamp::MAX);
        entry.ends_at.map_or(by_age, |end| end.min(by_age))
    }

    /// A failure is known for as long as an answer: those who waited for a store
    /// that does not answer must not each wait for it anew.
    async fn inbox(&self) -> Result<Arc<Inbox>, NotKept> {
        let store = self.store.get().ok_or(NotKept::NotReady)?;
        let mut known = self.known.lock().await;
        if let Some(known) = &*known
            && known.at.elapsed() < FRESH
        {
            return known.said.clone().map_err(NotKept::Store);
        }
        let kept = store.load(&self.name).await;
        let said = kept.and_then(|kept| kept.inbox()).map(Arc::new);
        *known = Some(Known::now(said.clone()));
        said.map_err(NotKept::Store)
    }

    /// Stores a delivery and counts its alerts. When this returns it survives a crash.
    ///
    /// It goes on to its end if the caller does not wait for it: a file may still
    /// be written then, and the next delivery must be built on it. `turn` is given
    /// back at the end as well.
    async fn deliver(
        self: &Arc<Self>,
        delivery: Vec<Delivered>,
        turn: impl Send + 'static,
    ) -> Result<Vec<Outcome>, NotKept> {
        let source = self.clone();
        let storing = tokio::spawn(async move {
            let _turn = turn;
            let outcomes = source.take_in(&delivery).await?;
            source.counts.alerts(&outcomes);
            Ok(outcomes)
        });
        storing.await.unwrap_or_else(|error| {
            let problem = format!("the write was not finished: {error}");
            Err(NotKept::Store(StoreError::Failed(problem)))
        })
    }

    async fn take_in(&self, delivery: &[Delivered]) -> Result<Vec<Outcome>, NotKept> {
        let store = self.store.get().ok_or(NotKept::NotReady)?;
        let _turn = self.writing.lock().await;
        let mut attempt = 0;
        loop {
            let kept = store.load(&self.name).await.map_err(NotKept::Store)?;
            let mut inbox = kept.inbox().map_err(NotKept::Store)?;
            let outcomes = inbox.take(delivery, now())?;
            match self.save(&**store, inbox, kept.version).await {
                Ok(()) => return Ok(outcomes),
                Err(StoreError::Conflict) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(NotKept::Store(error)),
            }
            // Replicas that met once should not meet again.
            let pause = Duration::from_millis(10 << attempt).min(LONGEST_PAUSE);
            let spread =
                std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), attempt) % 100;
            tokio::time::sleep(pause.mul_f64(0.5 + spread as f64 / 100.0)).await;
        }
    }

    async fn save(
        &self,
        store: &dyn AlertStore,
        inbox: Inbox,
        version: Option<String>,
    ) -> Result<(), StoreError> {
        let mut known = self.known.lock().await;
        let saved = store
            .save(&self.name, store::written(&inbox), version)
            .await;
        // What failed may have been stored all the same.
        *known = saved.is_ok().then(|| Known::now(Ok(Arc::new(inbox))));
        saved
    }
}

/// As exact as everything else that is stored.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

#[cfg(test)]
mod tests;
