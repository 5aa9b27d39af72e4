//! Signals from the Prometheus HTTP API, as Prometheus, Thanos, Mimir and
//! VictoriaMetrics speak it.
//!
//! - A question is asked by POST without a `time` parameter, within one time
//!   limit that covers waiting, connecting, retries and the last byte.
//! - The same question of the same tick is asked once, whoever asks it.
//! - An empty answer of a filtering query is looked behind before it counts as
//!   "false" (S02); a firing one can be asked how old its evidence is (S37).
//! - Credentials and certificates are read from their files for each request,
//!   and go to the configured origin only.

mod answer;
mod fleet;
mod query;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};

use self::fleet::SplitAnswer;
use self::query::Query;
use super::failure::Failure;
use super::http::config::HttpConfig;
use super::http::{Asked, Client, Skew, SourceError};
use super::share::{Obtained, Shared};
use super::stats::SourceStats;
use crate::core::reason::Reason;
use crate::core::signal::{
    Answer, AnswerKind, Presence, PrometheusSignal, Reading, SignalState, bounded, judge,
};

/// A source that an administrator configured. One exists per name; it is shared
/// by all policies that name it.
pub struct PrometheusSource {
    name: String,
    http: Client,
    /// POST was refused, GET was not (S21).
    prefers_get: AtomicBool,
    answers: Shared<Result<Answer, Failure>>,
    /// The same taken apart for many clusters, by label and query.
    splits: Shared<SplitAnswer>,
}

impl fmt::Debug for PrometheusSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusSource")
            .field("name", &self.name)
            .field("urls", &self.http.urls())
            .finish_non_exhaustive()
    }
}

impl PrometheusSource {
    /// Builds the client; nothing is sent.
    ///
    /// # Errors
    /// Certificates or keys that cannot be read or used. A missing token or
    /// password is not among them: it shows in each reading until it is there.
    pub fn new(name: String, config: HttpConfig) -> Result<Self, SourceError> {
        Ok(PrometheusSource {
            http: Client::new(&name, config)?,
            name,
            prefers_get: AtomicBool::new(false),
            answers: Shared::new(),
            splits: Shared::new(),
        })
    }

    /// What has been asked of this source since the start.
    pub fn stats(&self) -> SourceStats {
        self.http.counters().snapshot()
    }

    /// The source's clock minus this machine's, to about a second, from the
    /// newest answer with a `Date` header (S35).
    pub fn clock_skew(&self) -> Option<SignedDuration> {
        self.http.skew().map(|skew| skew.ahead)
    }

    /// Evaluates a signal as of the tick `asked_at`.
    ///
    /// Callers of the same tick share one request for the same query: an answer
    /// serves all whose tick is not later than the moment it was asked for.
    ///
    /// With `need_sample_age` a firing reading carries in `sampled_at` when its
    /// oldest evidence was sampled; when that cannot be found out, the reading
    /// is inconclusive. Never fails: what goes wrong is the reading's state.
    pub async fn read(
        &self,
        signal: &PrometheusSignal,
        asked_at: Timestamp,
        need_sample_age: bool,
    ) -> Reading {
        let answer = self.ask(signal.query.text(), asked_at).await;
        let answer = match answer.as_ref() {
            Ok(answer) => answer,
            Err(failure) => return failure.reading(),
        };
        let reading = if asks_for_presence(signal, answer) {
            match self.presence(signal, asked_at).await {
                Ok((presence, doubts)) => {
                    let mut answer = answer.clone();
                    answer.warnings.extend(doubts.warnings);
                    answer.partial |= doubts.partial;
                    judge(signal, &answer, presence)
                }
                Err(reading) => return reading,
            }
        } else {
            judge(signal, answer, Presence::Unasked)
        };
        if need_sample_age && reading.state == SignalState::Firing {
            self.with_sample_age(reading, signal, asked_at).await
        } else {
            reading
        }
    }

    async fn ask(&self, query: &str, asked_at: Timestamp) -> Arc<Result<Answer, Failure>> {
        let obtained = self.obtain(query, asked_at).await;
        if obtained.shared {
            self.http.counters().shared();
        }
        obtained.answer
    }

    async fn obtain(&self, query: &str, asked_at: Timestamp) -> Obtained<Result<Answer, Failure>> {
        self.answers
            .get(query, asked_at, || async {
                let (sent_at, outcome) = self.request(query).await;
                if let Err(failure) = &outcome {
                    tracing::debug!(
                        source = %self.name,
                        reason = failure.reason.as_str(),
                        message = %failure.message,
                        "no usable answer"
                    );
                }
                (sent_at, outcome)
            })
            .await
    }

    /// By POST, or by GET where POST is refused, and the other way round where the
    /// query is too long for GET (S21).
    async fn request(&self, query: &str) -> (Timestamp, Result<Answer, Failure>) {
        let ways = Query::ways(
            query,
            self.http.timeout(),
            self.prefers_get.load(Ordering::Relaxed),
        );
        let Asked { sent_at, outcome } = self.http.ask(&ways).await;
        let outcome = outcome.and_then(|received| {
            if received.way > 0 && received.status.is_success() {
                let is_get = ways[received.way].is_get();
                self.prefers_get.store(is_get, Ordering::Relaxed);
            }
            answer::interpret(&received)
        });
        (sent_at, outcome)
    }

    async fn ask_all(
        &self,
        queries: impl IntoIterator<Item = String>,
        asked_at: Timestamp,
    ) -> Vec<Arc<Result<Answer, Failure>>> {
        let asked = queries
            .into_iter()
            .map(|query| async move { self.ask(&query, asked_at).await });
        join_all(asked).await
    }

    /// Whether the series behind an empty answer exist, and the doubts about a
    /// "no".
    async fn presence(
        &self,
        signal: &PrometheusSignal,
        asked_at: Timestamp,
    ) -> Result<(Presence, Doubts), Reading> {
        let mut presence = Presence::Present;
        let mut doubts = Doubts::default();
        let queries = signal.query.presence().iter().cloned();
        for answer in self.ask_all(queries, asked_at).await {
            match answer.as_ref() {
                Ok(answer) if has_series(answer) => {}
                Ok(answer) => {
                    presence = Presence::Absent;
                    doubts.warnings.extend(answer.warnings.iter().cloned());
                    doubts.partial |= answer.partial;
                }
                // Not the author's query but one made of it: no reason to call
                // the author's invalid.
                Err(failure) if failure.reason.is_configuration() => {
                    return Err(inconclusive(format!(
                        "the query returned no series, and whether the series it speaks about \
                         exist cannot be found out: {}",
                        failure.message
                    )));
                }
                Err(failure) => return Err(failure.reading()),
            }
        }
        Ok((presence, doubts))
    }

    /// S37: adds when the oldest evidence was sampled, on this machine's clock.
    async fn with_sample_age(
        &self,
        reading: Reading,
        signal: &PrometheusSignal,
        asked_at: Timestamp,
    ) -> Reading {
        let queries = signal
            .query
            .selectors()
            .iter()
            .map(|selector| format!("min(timestamp({selector}))"));
        let mut age = SampleAge::default();
        for answer in self.ask_all(queries, asked_at).await {
            match answer.as_ref() {
                // A selector without series took no part in the result.
                Ok(answer) => age.add(sole_number(answer)),
                Err(failure) => return unknown_age(failure, &reading),
            }
        }
        Reading {
            sampled_at: age.on_our_clock(self.http.skew()),
            ..reading
        }
    }
}

/// When the oldest sample was taken, on the source's clock.
#[derive(Default)]
struct SampleAge(Option<f64>);

impl SampleAge {
    fn add(&mut self, seconds: Option<f64>) {
        if let Some(seconds) = seconds {
            self.0 = Some(self.0.map_or(seconds, |other| other.min(seconds)));
        }
    }

    fn on_our_clock(&self, skew: Option<Skew>) -> Option<Timestamp> {
        let skew = match skew {
            Some(skew) if skew.ahead.abs() > skew.uncertainty => skew.ahead,
            _ => SignedDuration::ZERO,
        };
        self.0
            .and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok())
            .and_then(|since_epoch| Timestamp::from_duration(since_epoch).ok())
            .and_then(|on_its_clock| on_its_clock.checked_sub(skew).ok())
            // As exact as everything else that is stored.
            .and_then(|at| Timestamp::from_millisecond(at.as_millisecond()).ok())
    }
}

/// A firing signal whose evidence is of unknown age.
fn unknown_age(failure: &Failure, reading: &Reading) -> Reading {
    inconclusive(format!(
        "{}, but how old its samples are cannot be found out: {}",
        reading.message, failure.message
    ))
}

#[derive(Default)]
struct Doubts {
    warnings: Vec<String>,
    partial: bool,
}

/// S02: an empty answer of a numeric query needs no second look.
fn asks_for_presence(signal: &PrometheusSignal, answer: &Answer) -> bool {
    let empty = matches!(&answer.result, AnswerKind::Vector(series) if series.is_empty());
    empty && (signal.threshold.is_none() || signal.query.is_comparison())
}

fn has_series(answer: &Answer) -> bool {
    match &answer.result {
        AnswerKind::Vector(series) => !series.is_empty(),
        AnswerKind::Scalar(_) => true,
        AnswerKind::Unsuitable { count, .. } => *count > 0,
    }
}

fn sole_number(answer: &Answer) -> Option<f64> {
    match &answer.result {
        AnswerKind::Vector(series) => series.first().map(|s| s.value).filter(|v| v.is_finite()),
        AnswerKind::Scalar(value) => Some(*value).filter(|v| v.is_finite()),
        AnswerKind::Unsuitable { .. } => None,
    }
}

fn inconclusive(message: String) -> Reading {
    Reading::new(
        SignalState::Inconclusive,
        Reason::Inconclusive,
        bounded(&message, 600),
    )
}
