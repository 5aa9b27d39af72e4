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
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

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
    /// One delivery of this process at a time.
    writing: tokio::sync::Mutex<()>,
    known: Mutex<Option<(Instant, Arc<Inbox>)>>,
    counts: Counts,
}

impl fmt::Debug for WebhookSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSource")
            .field("name", &self.name)
            .finish_non_exhaustive()
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
            writing: tokio::sync::Mutex::new(()),
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

    async fn inbox(&self) -> Result<Arc<Inbox>, NotKept> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let store = self.store.get().ok_or(NotKept::NotReady)?;
        let kept = store.load(&self.name).await.map_err(NotKept::Store)?;
        let inbox = Arc::new(kept.inbox().map_err(NotKept::Store)?);
        self.remember(inbox.clone());
        Ok(inbox)
    }

    fn known(&self) -> Option<Arc<Inbox>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, inbox) = known.as_ref()?;
        (at.elapsed() < FRESH).then(|| inbox.clone())
    }

    fn remember(&self, inbox: Arc<Inbox>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), inbox));
    }

    /// Stores a delivery. When this returns it survives a crash.
    async fn deliver(&self, delivery: &[Delivered]) -> Result<Vec<Outcome>, NotKept> {
        let store = self.store.get().ok_or(NotKept::NotReady)?;
        let _turn = self.writing.lock().await;
        let mut attempt = 0;
        loop {
            let kept = store.load(&self.name).await.map_err(NotKept::Store)?;
            let mut inbox = kept.inbox().map_err(NotKept::Store)?;
            let outcomes = inbox.take(delivery, now())?;
            match store
                .save(&self.name, store::written(&inbox), kept.version)
                .await
            {
                Ok(()) => {
                    self.remember(Arc::new(inbox));
                    return Ok(outcomes);
                }
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
}

/// As exact as everything else that is stored.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

#[cfg(test)]
mod tests;
