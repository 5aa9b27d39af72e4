//! Signals from the API of Alertmanager, version 2.
//!
//! - The alerts that match are asked for in every state, so that a reading can
//!   say who silenced them; what counts is judged by the core, which compares
//!   the labels once more.
//! - The Alertmanagers of one set are asked side by side. One answer is enough;
//!   what the others say within a moment is added to it.
//! - The same question of the same tick is asked once, whoever asks it.
//! - No answer is an error, never the end of an alert.

mod answer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};

use super::failure::Failure;
use super::http::config::HttpConfig;
use super::http::{Client, SourceError};
use super::share::Shared;
use super::stats::SourceStats;
use crate::core::alert::{self, Alert, AlertSignal, Matchers, Silence};
use crate::core::reason::Reason;
use crate::core::signal::{Reading, SignalState};

/// How long an answer waits for what the others of the set say.
const GRACE: Duration = Duration::from_millis(500);
/// Most silences that are looked up for one answer: a message names one.
const MAX_SILENCES: usize = 3;

/// One Alertmanager, or a set of them that knows the same alerts.
pub struct AlertmanagerSource {
    name: String,
    peers: Vec<Client>,
    answers: Shared<Result<Heard, Failure>>,
}

/// What a set answered.
struct Heard {
    alerts: Vec<Alert>,
    /// Those of the set that gave no usable answer in time.
    missing: usize,
}

impl fmt::Debug for AlertmanagerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<&str> = (self.peers.iter())
            .flat_map(Client::urls)
            .map(url::Url::as_str)
            .collect();
        f.debug_struct("AlertmanagerSource")
            .field("name", &self.name)
            .field("urls", &urls)
            .finish_non_exhaustive()
    }
}

impl AlertmanagerSource {
    /// Builds the clients, one for each Alertmanager of the set; nothing is sent.
    ///
    /// # Errors
    /// Certificates or keys that cannot be read or used.
    pub fn new(name: String, set: HttpConfig) -> Result<Self, SourceError> {
        Ok(AlertmanagerSource {
            // A client of several URLs asks one of them; here each has a say.
            peers: Client::set(&name, &set)?,
            name,
            answers: Shared::new(),
        })
    }

    /// What has been asked of the whole set since the start.
    pub fn stats(&self) -> SourceStats {
        let mut all = SourceStats::default();
        for peer in &self.peers {
            all.add(&peer.counters().snapshot());
        }
        all
    }

    /// Evaluates a signal as of the tick `asked_at`; see
    /// [`PrometheusSource::read`](super::prometheus::PrometheusSource::read) for
    /// what is shared.
    ///
    /// One answer of the set is enough. With `whole`, a "no" is one only when all
    /// of the set say so, and proves nothing otherwise: who does not answer may be
    /// the only one that knows of an alert.
    pub async fn read(&self, signal: &AlertSignal, asked_at: Timestamp, whole: bool) -> Reading {
        let matchers = &signal.matchers;
        let obtained = self
            .answers
            .get(&matchers.to_string(), asked_at, || self.ask(matchers))
            .await;
        if obtained.shared
            && let Some(peer) = self.peers.first()
        {
            peer.counters().shared();
        }
        match obtained.answer.as_ref() {
            Ok(heard) => {
                let mut reading = alert::judge(signal, &heard.alerts, Timestamp::now());
                if heard.missing > 0 {
                    reading.message.push_str(&format!(
                        "; {} of {} Alertmanagers gave no answer",
                        heard.missing,
                        self.peers.len()
                    ));
                    if whole && reading.state == SignalState::NotFiring {
                        reading.state = SignalState::Inconclusive;
                        reading.reason = Reason::Inconclusive;
                    }
                }
                reading
            }
            Err(failure) => failure.reading(),
        }
    }

    async fn ask(&self, matchers: &Matchers) -> (Timestamp, Result<Heard, Failure>) {
        let filters: Vec<String> = matchers.iter().map(ToString::to_string).collect();
        let mut query: Vec<(&str, &str)> = ["active", "silenced", "inhibited", "unprocessed"]
            .map(|state| (state, "true"))
            .into();
        query.extend(filters.iter().map(|filter| ("filter", filter.as_str())));

        let began = Instant::now();
        let mut sent_at: Option<Timestamp> = None;
        let mut failures: Vec<Failure> = Vec::new();
        let mut answers: Vec<Vec<Alert>> = Vec::new();
        let mut answered: Option<&Client> = None;
        let mut asking: FuturesUnordered<_> = self
            .peers
            .iter()
            .map(|peer| {
                let query = &query;
                async move { (peer, peer.get("api/v2/alerts", query).await) }
            })
            .collect();
        // The client's own limit ends each of them; once there is one answer, the
        // others have a moment only.
        let mut patience = Box::pin(tokio::time::sleep(Duration::MAX));
        loop {
            let (peer, asked) = tokio::select! {
                biased;
                next = asking.next() => match next {
                    Some(next) => next,
                    None => break,
                },
                () = &mut patience => break,
            };
            sent_at = Some(sent_at.map_or(asked.sent_at, |other| other.min(asked.sent_at)));
            match asked.outcome.and_then(|received| answer::alerts(&received)) {
                Ok(mut alerts) => {
                    on_our_clock(peer, &mut alerts);
                    answers.push(alerts);
                    if answered.is_none() {
                        answered = Some(peer);
                        patience = Box::pin(tokio::time::sleep(GRACE));
                    }
                }
                Err(failure) => {
                    tracing::debug!(
                        source = %self.name,
                        url = ?peer.urls(),
                        reason = failure.reason.as_str(),
                        message = %failure.message,
                        "no usable answer"
                    );
                    failures.push(failure);
                }
            }
        }
        if answered.is_some() {
            // Those that were not waited for are no less silent.
            let heard = answers.len() + failures.len();
            let silent = self.peers.len() - heard;
            drop(asking);
            if let Some(peer) = self.peers.first().filter(|_| silent > 0) {
                for _ in 0..silent {
                    peer.counters().request("timeout", began.elapsed());
                }
            }
        }
        let sent_at = sent_at.unwrap_or_else(Timestamp::now);
        let Some(peer) = answered else {
            return (sent_at, Err(self.all_failed(failures)));
        };
        let missing = self.peers.len() - answers.len();
        let mut alerts = alert::merge(answers);
        describe_silences(peer, &mut alerts).await;
        (sent_at, Ok(Heard { alerts, missing }))
    }

    /// What a person can mend is told before what passes by itself.
    fn all_failed(&self, failures: Vec<Failure>) -> Failure {
        let count = failures.len();
        let told = failures
            .into_iter()
            .min_by_key(|failure| (!failure.reason.is_configuration(), failure.reason));
        let mut told = told.unwrap_or_else(|| {
            Failure::new(Reason::SourceUnavailable, "no Alertmanager is configured")
        });
        if count > 1 {
            told.message = format!("none of {count} Alertmanagers answers: {}", told.message);
        }
        told
    }
}

/// S35: when Alertmanager last heard of an alert is compared with the end of the
/// last run, which is on this machine's clock.
fn on_our_clock(peer: &Client, alerts: &mut [Alert]) {
    let skew = match peer.skew() {
        Some(skew) if skew.ahead.abs() > skew.uncertainty => skew.ahead,
        _ => SignedDuration::ZERO,
    };
    for alert in alerts {
        let shifted = alert.updated_at.checked_sub(skew).ok();
        alert.updated_at = shifted
            // As exact as everything else that is stored.
            .and_then(|at| Timestamp::from_millisecond(at.as_millisecond()).ok())
            .unwrap_or(alert.updated_at);
    }
}

/// Adds who made the silences, for people; without that the alert is silenced all
/// the same.
async fn describe_silences(peer: &Client, alerts: &mut [Alert]) {
    let ids: BTreeSet<String> = alerts
        .iter()
        .flat_map(|alert| &alert.silences)
        .map(|silence| silence.id.clone())
        // It becomes a part of a path.
        .filter(|id| answer::is_plain_id(id))
        .take(MAX_SILENCES)
        .collect();
    let asked = ids.iter().map(|id| async move {
        let asked = peer.get(&format!("api/v2/silence/{id}"), &[]).await;
        let silence = asked.outcome.ok().and_then(|r| answer::silence(&r))?;
        Some((id.clone(), silence))
    });
    let known: BTreeMap<String, Silence> = join_all(asked).await.into_iter().flatten().collect();
    for silence in alerts.iter_mut().flat_map(|alert| &mut alert.silences) {
        if let Some(known) = known.get(&silence.id) {
            *silence = known.clone();
        }
    }
}
