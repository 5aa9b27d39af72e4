//! Signals from the Kubernetes metrics APIs, `external.metrics.k8s.io` and
//! `custom.metrics.k8s.io`, which an adapter serves behind the API server.
//!
//! - A metric is read in the policy's own namespace, and nowhere else.
//! - A question of one tick is asked once, whoever asks it; within one time limit
//!   that covers waiting, finding out about kinds and the last byte.
//! - Whether the adapter is there shows in each reading, never at the start (S89).

mod answer;
mod kinds;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::to_bytes;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use url::form_urlencoded::byte_serialize;

use self::answer::Received;
use self::kinds::{Kinds, Place};
use super::failure::Failure;
use super::http::Hold;
use super::share::Shared;
use super::stats::{Counters, SourceStats};
use crate::core::duration;
use crate::core::reason::Reason;
use crate::core::signal::{
    DescribedObject, MISSING_TOLERATED, Metric, MetricAnswer, MetricSignal, Reading, SignalState,
    bounded, judge_metric, missing,
};

/// The `source` of these requests in metrics. No configured source has a slash
/// in its name.
pub const SOURCE: &str = "kubernetes/metrics";

/// Bytes read of an answer.
const MAX_BODY: usize = 4 << 20;
/// Requests that may leave in a second, and at once.
const REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(50).unwrap();
/// A metric that nobody has asked for so long is forgotten: longer than the
/// longest interval.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2 * 60 * 60);

/// What bounds the asking.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For one question, in all.
    pub time: Duration,
    /// For so long a metric that is not served is no data; an error after that.
    pub missing_tolerated: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            time: Duration::from_secs(10),
            missing_tolerated: MISSING_TOLERATED,
        }
    }
}

/// Why a question got no values.
#[derive(Clone, Debug, PartialEq)]
enum Refusal {
    /// Nobody serves the metric, its kind, or the whole API; in words.
    Missing(String),
    Failed(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failed(failure)
    }
}

impl Refusal {
    fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Refusal::Failed(Failure::new(reason, message))
    }
}

/// How long a metric has been missing.
struct Missing {
    since: Instant,
    asked: Instant,
}

/// The metrics APIs of one Kubernetes cluster.
pub struct MetricsApi {
    client: Client,
    limits: Limits,
    limiter: DefaultDirectRateLimiter,
    kinds: Kinds,
    answers: Shared<Result<MetricAnswer, Refusal>>,
    missing: Mutex<HashMap<String, Missing>>,
    /// The server asked for a pause.
    held: Hold,
    /// One for each API, whose adapters are not one another's.
    external_away: Hold,
    custom_away: Hold,
    counters: Counters,
}

impl fmt::Debug for MetricsApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsApi").finish_non_exhaustive()
    }
}

impl MetricsApi {
    /// By this client. Nothing is asked yet.
    pub fn new(client: Client, limits: Limits) -> Self {
        MetricsApi {
            client,
            limits,
            limiter: RateLimiter::direct(Quota::per_second(REQUESTS_PER_SECOND)),
            kinds: Kinds::default(),
            answers: Shared::new(),
            missing: Mutex::default(),
            held: Hold::new("the API server"),
            external_away: Hold::new("the API service of external.metrics.k8s.io"),
            custom_away: Hold::new("the API service of custom.metrics.k8s.io"),
            counters: Counters::default(),
        }
    }

    /// What has been asked since the start.
    pub fn stats(&self) -> SourceStats {
        self.counters.snapshot()
    }

    /// Evaluates a signal of a policy in this namespace as of the tick `asked_at`.
    ///
    /// With `need_sample_age` a firing reading tells in `sampled_at` when its
    /// oldest value was measured, or is inconclusive. Never fails: what goes
    /// wrong is the reading's state.
    pub async fn read(
        &self,
        signal: &MetricSignal,
        namespace: &str,
        asked_at: Timestamp,
        need_sample_age: bool,
    ) -> Reading {
        let question = signal.metric.question(namespace);
        let obtained = self
            .answers
            .get(&question, asked_at, || async {
                let sent_at = Mutex::new(None);
                let answer = self.ask(&signal.metric, namespace, &sent_at).await;
                let sent_at = *sent_at.lock().unwrap_or_else(PoisonError::into_inner);
                (sent_at.unwrap_or_else(Timestamp::now), answer)
            })
            .await;
        if obtained.shared {
            self.counters.shared();
        }
        let reading = match obtained.answer.as_ref() {
            Ok(answer) => {
                self.found(&question);
                judge_metric(signal, namespace, answer)
            }
            Err(Refusal::Missing(why)) => {
                let lasting = self.lacking(&question);
                missing(why, lasting, self.limits.missing_tolerated)
            }
            Err(Refusal::Failed(failure)) => failure.reading(),
        };
        let undated = reading.state == SignalState::Firing && reading.sampled_at.is_none();
        if need_sample_age && undated {
            let message = format!(
                "{}, but the answer does not tell when it was measured, and it may be from \
                 before the end of the last run",
                reading.message
            );
            return Reading::new(
                SignalState::Inconclusive,
                Reason::Inconclusive,
                bounded(&message, 600),
            );
        }
        reading
    }

    fn found(&self, question: &str) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.remove(question);
    }

    /// Notes that the metric is missing, and tells for how long it has been.
    fn lacking(&self, question: &str) -> SignedDuration {
        let now = Instant::now();
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if !missing.contains_key(question) {
            missing.retain(|_, other| now.duration_since(other.asked) < FORGOTTEN_AFTER);
        }
        let entry = missing.entry(question.to_owned()).or_insert(Missing {
            since: now,
            asked: now,
        });
        entry.asked = now;
        SignedDuration::try_from(now.duration_since(entry.since)).unwrap_or(SignedDuration::MAX)
    }

    async fn ask(
        &self,
        metric: &Metric,
        namespace: &str,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<MetricAnswer, Refusal> {
        let limit = self.limits.time;
        match tokio::time::timeout(limit, self.ask_unlimited(metric, namespace, sent_at)).await {
            Ok(answer) => answer,
            Err(_) => {
                let waited = SignedDuration::try_from(limit).unwrap_or_default();
                let waited = duration::format(waited);
                let sent = sent_at.lock().unwrap_or_else(PoisonError::into_inner);
                if sent.is_none() {
                    return Err(Refusal::failed(
                        Reason::RateLimited,
                        format!(
                            "more than {REQUESTS_PER_SECOND} metrics a second are due, and this \
                             one found no room within {waited}: lengthen intervals"
                        ),
                    ));
                }
                self.counters.request("timeout", limit);
                Err(Refusal::failed(
                    Reason::SourceUnavailable,
                    format!("the metrics API gave no whole answer within {waited}"),
                ))
            }
        }
    }

    async fn ask_unlimited(
        &self,
        metric: &Metric,
        namespace: &str,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<MetricAnswer, Refusal> {
        // Of the API that serves the metric.
        let away = match metric {
            Metric::External { .. } => &self.external_away,
            Metric::Object { .. } => &self.custom_away,
        };
        let place = match metric {
            Metric::External { .. } => None,
            Metric::Object { described, .. } => Some(self.place(described, away, sent_at).await?),
        };
        let path = path(metric, namespace, place.as_ref())?;
        let received = self.get(&path, away, sent_at).await?;
        let items = received.items(metric);
        if let (Err(Refusal::Missing(_)), Metric::Object { described, .. }) = (&items, metric) {
            // It may be served in another version by now, or by another name.
            self.kinds.forget(described);
        }
        Ok(MetricAnswer {
            items: items?,
            received_at: received.at,
            ahead: received.ahead,
        })
    }

    async fn place(
        &self,
        described: &DescribedObject,
        away: &Hold,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<Place, Refusal> {
        if let Some(place) = self.kinds.known(described) {
            return Ok(place);
        }
        let group = self.get(kinds::GROUP, away, sent_at).await?;
        let group = group.discovered()?;
        let version = kinds::version(group.as_ref())?;
        let list = kinds::resources_path(described);
        let list = self.get(&list, away, sent_at).await?.discovered()?;
        let resource = kinds::resource(described, list.as_ref())?;
        let place = Place { version, resource };
        self.kinds.learn(described, place.clone());
        Ok(place)
    }

    /// One request, counted, unless a pause was asked for. Bounded in size here, and in
    /// time by the caller.
    async fn get(
        &self,
        path: &str,
        away: &Hold,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<Received, Refusal> {
        self.held.check()?;
        away.check()?;
        self.limiter.until_ready().await;
        // Another question may have been told meanwhile.
        self.held.check()?;
        away.check()?;
        let sent = Timestamp::now();
        *sent_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent);
        let started = Instant::now();
        let received = self.exchange(path, sent).await;
        let outcome = match &received {
            Ok(received) => received.status.as_str(),
            Err((outcome, _)) => outcome,
        };
        self.counters.request(outcome, started.elapsed());
        let received = received.map_err(|(_, refusal)| refusal)?;
        match received.pause() {
            Some((wait, reason @ Reason::RateLimited)) => self.held.begin(wait, reason),
            Some((wait, reason)) => away.begin(wait, reason),
            None => {}
        }
        Ok(received)
    }

    async fn exchange(
        &self,
        path: &str,
        sent: Timestamp,
    ) -> Result<Received, (&'static str, Refusal)> {
        let request = http::Request::get(path)
            .header(http::header::ACCEPT, "application/json")
            .body(kube::client::Body::empty())
            .map_err(|error| {
                let message = format!("no request can be made of the metric: {error}");
                let refusal = Refusal::failed(Reason::QueryInvalid, message);
                ("broken", refusal)
            })?;
        let response = self.client.send(request).await.map_err(|error| {
            let message = format!("failed to reach the API server: {}", chain(&error));
            (
                "connect",
                Refusal::failed(Reason::SourceUnavailable, message),
            )
        })?;
        let (head, body) = response.into_parts();
        // A refusal that is too long for a message still is one.
        let success = head.status.is_success();
        let body = match to_bytes(axum::body::Body::new(body), MAX_BODY).await {
            Ok(bytes) => bytes.to_vec(),
            Err(_) if !success => Vec::new(),
            Err(error) => {
                let message = format!(
                    "the answer broke off or is longer than {MAX_BODY} bytes ({}): narrow the \
                     selector",
                    chain(&error)
                );
                let refusal = Refusal::failed(Reason::SourceAnswerUnusable, message);
                return Err(("broken", refusal));
            }
        };
        Ok(Received::new(head, body, sent, Timestamp::now()))
    }
}

/// Where a metric is read.
fn path(metric: &Metric, namespace: &str, place: Option<&Place>) -> Result<String, Refusal> {
    let segment = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    // In a path a blank is no plus.
    let segment = |text: &str| segment(text).replace('+', "%20");
    let (base, parameter, selector) = match (metric, place) {
        (Metric::External { name, selector }, _) => (
            format!(
                "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{}",
                segment(name)
            ),
            "labelSelector",
            selector,
        ),
        (
            Metric::Object {
                described,
                name,
                selector,
            },
            Some(Place { version, resource }),
        ) => {
            let base = format!("/apis/custom.metrics.k8s.io/{version}/namespaces/{namespace}");
            let name = segment(name);
            let base = match resource {
                Some(resource) => {
                    format!("{base}/{resource}/{}/{name}", segment(&described.name))
                }
                // The namespace itself, which lies in none.
                None if described.name == namespace => format!("{base}/metrics/{name}"),
                None => {
                    return Err(Refusal::failed(
                        Reason::QueryInvalid,
                        format!(
                            "the metric is of the namespace {:?}, and a policy in {namespace:?} \
                             reads metrics of its own namespace only",
                            described.name
                        ),
                    ));
                }
            };
            (base, "metricLabelSelector", selector)
        }
        (Metric::Object { .. }, None) => {
            // Unreachable: objects' kinds are looked up before.
            return Err(Refusal::Missing("the kind is not known".to_owned()));
        }
    };
    if selector.is_empty() {
        return Ok(base);
    }
    let selector: String = byte_serialize(selector.as_bytes()).collect();
    Ok(format!("{base}?{parameter}={selector}"))
}

/// An error with everything that led to it, each thing once, bounded.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let words = source.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = source.source();
    }
    bounded(&text, 400)
}

#[cfg(test)]
mod tests;
