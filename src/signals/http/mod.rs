//! HTTP as every source speaks it: one client a source, made of what its
//! administrator wrote.
//!
//! - One time limit covers waiting for a turn, connecting, retries and the last
//!   byte of a bounded body (S30).
//! - Credentials and certificates are read from their files for each request (S26)
//!   and go to the configured origin only (S22).
//! - A limit of requests a second, and the wish of a source to be left alone
//!   (429 with `Retry-After`), hold for all questions alike.
//! - Every request is counted by its outcome.
//!
//! A kind of source brings the path, the parameters and what an answer means:
//! [`Client::get`] for a plain GET, [`Client::ask`] for a [`Request`] of its own.

pub mod config;
mod error;
mod received;
mod secret;
mod tls;

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{AUTHORIZATION, DATE, HeaderMap, HeaderValue};
use reqwest::{StatusCode, Url};

use self::config::{Credentials, HttpConfig};
pub(super) use self::error::SendError;
use self::error::{chain, describe, is_connection_error, redirect_policy};
pub(super) use self::received::{Received, is_html, looks_like_json, start_of};
use self::received::{http_date, receive};
pub(super) use self::secret::read as read_secret;
use self::tls::ClientCache;
pub use self::tls::SourceError;
use super::failure::Failure;
use super::stats::Counters;
use crate::core::reason::Reason;

/// Attempts to connect again within the time limit, with jitter (S19).
const CONNECT_RETRIES: usize = 2;
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(1);

/// What one question brought, and when its last request was sent.
pub(super) struct Asked {
    pub(super) sent_at: Timestamp,
    /// A whole answer of whatever status, or why there is none.
    pub(super) outcome: Result<Received, Failure>,
}

/// A source's clock beside this machine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skew {
    /// The source's clock minus this machine's.
    pub(super) ahead: SignedDuration,
    /// A smaller skew is noise.
    pub(super) uncertainty: SignedDuration,
}

/// Where a request goes, and what it carries.
pub(super) struct Endpoint {
    pub(super) client: reqwest::Client,
    /// As configured: a path prefix may end in a slash or not.
    pub(super) url: Url,
    /// All headers, those with secrets among them.
    pub(super) headers: HeaderMap,
}

/// One way of putting a question into an HTTP request.
pub(super) trait Request: Sync {
    /// Sends it once.
    fn send(
        &self,
        to: &Endpoint,
    ) -> impl Future<Output = Result<reqwest::Response, SendError>> + Send;

    /// True for a status that refuses this way of asking and not the question:
    /// then the next way is tried.
    fn is_refused_by(&self, _status: StatusCode) -> bool {
        false
    }
}

/// A GET of a path below the source's URL.
struct Get<'a> {
    path: &'a str,
    query: &'a [(&'a str, &'a str)],
}

impl Request for Get<'_> {
    async fn send(&self, to: &Endpoint) -> Result<reqwest::Response, SendError> {
        let mut url = to.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(self.path.split('/'));
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(self.query);
        }
        let request = to.client.get(url).headers(to.headers.clone());
        Ok(request.send().await?)
    }
}

/// The client of one source; shared by all who ask it.
pub(super) struct Client {
    config: HttpConfig,
    clients: ClientCache,
    limiter: DefaultDirectRateLimiter,
    /// The source asked not to be called before.
    held_until: Mutex<Option<Instant>>,
    skew: Mutex<Option<Skew>>,
    counters: Counters,
}

impl Client {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// Certificates or keys that cannot be read or used.
    pub(super) fn new(name: &str, config: HttpConfig) -> Result<Self, SourceError> {
        let plain = config.url.scheme() == "http";
        let clients = ClientCache::new(name, plain, &config.tls, redirect_policy)?;
        let period = Duration::from_secs_f64(1.0 / config.requests_per_second);
        // Both are checked by the configuration; a limiter of one request a
        // period is the careful reading of what it would let through.
        let burst = std::num::NonZeroU32::new(config.burst).unwrap_or(std::num::NonZeroU32::MIN);
        let quota = Quota::with_period(period)
            .unwrap_or_else(|| Quota::per_second(std::num::NonZeroU32::MIN))
            .allow_burst(burst);
        Ok(Client {
            config,
            clients,
            limiter: RateLimiter::direct(quota),
            held_until: Mutex::new(None),
            skew: Mutex::new(None),
            counters: Counters::default(),
        })
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Where the source is.
    pub(super) fn url(&self) -> &Url {
        &self.config.url
    }

    /// The time limit of one question.
    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// How the source's clock differs, as last seen.
    pub(super) fn skew(&self) -> Option<Skew> {
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gets `path` below the source's URL, within the source's time limit in all.
    /// `path` has no slash at its start; `query` is escaped.
    pub(super) async fn get(&self, path: &str, query: &[(&str, &str)]) -> Asked {
        self.ask(&[Get { path, query }]).await
    }

    /// Asks in the first of these ways, or in the next one where a status refuses
    /// the way of asking; within the source's time limit in all.
    pub(super) async fn ask(&self, ways: &[impl Request]) -> Asked {
        let sent_at = Mutex::new(None);
        let limit = self.config.timeout;
        let outcome = match tokio::time::timeout(limit, self.ask_unlimited(ways, &sent_at)).await {
            Ok(outcome) => outcome,
            Err(_) if read(&sent_at).is_none() => Err(Failure::new(
                Reason::RateLimited,
                format!(
                    "more than {} requests a second were due for the source, and this one found no \
                     room within {}: raise requestsPerSecond, or poll less often",
                    self.config.requests_per_second,
                    say(limit)
                ),
            )),
            Err(_) => {
                self.counters.request("timeout", limit);
                Err(Failure::new(
                    Reason::SourceUnavailable,
                    format!("the source gave no whole answer within {}", say(limit)),
                ))
            }
        };
        Asked {
            sent_at: read(&sent_at).unwrap_or_else(Timestamp::now),
            outcome,
        }
    }

    async fn ask_unlimited(
        &self,
        ways: &[impl Request],
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<Received, Failure> {
        self.respect_hold()?;
        let secret = self.authorization().await?;
        let mut received = self.exchange(ways, secret.as_ref(), sent_at).await?;
        if matches!(
            received.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            // S27: the secret may have been rotated between reading and asking.
            // The same secret again would only be refused again.
            let again = self.authorization().await?;
            if again != secret {
                received = self.exchange(ways, again.as_ref(), sent_at).await?;
            }
        }
        if received.status == StatusCode::TOO_MANY_REQUESTS
            && let Some(wait) = received.retry_after(Timestamp::now())
        {
            self.hold(wait);
        }
        Ok(received)
    }

    /// Keeps quiet after a 429 with `Retry-After`, for all queries alike.
    fn respect_hold(&self) -> Result<(), Failure> {
        let mut held = self
            .held_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(until) = *held else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            *held = None;
            return Ok(());
        }
        Err(Failure {
            reason: Reason::RateLimited,
            message: format!("the source asked to be left alone for {} more", say(left)),
            retry_after: SignedDuration::try_from(left).ok(),
        })
    }

    fn hold(&self, wait: SignedDuration) {
        let until = Duration::try_from(wait)
            .ok()
            .and_then(|wait| Instant::now().checked_add(wait));
        *self
            .held_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Each way is tried once, in order, as long as the one before is refused.
    async fn exchange(
        &self,
        ways: &[impl Request],
        secret: Option<&HeaderValue>,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<Received, Failure> {
        let mut way = 0;
        loop {
            let request = &ways[way];
            let received = self.send(request, secret, sent_at).await?;
            if way + 1 == ways.len() || !request.is_refused_by(received.status) {
                return Ok(Received { way, ..received });
            }
            way += 1;
        }
    }

    async fn send(
        &self,
        request: &impl Request,
        secret: Option<&HeaderValue>,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<Received, Failure> {
        self.limiter.until_ready().await;
        let endpoint = self.endpoint(secret).await?;
        let started = Instant::now();
        let sent = || {
            let now = Timestamp::now();
            *sent_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            request.send(&endpoint)
        };
        let result = sent
            .retry(
                ExponentialBuilder::default()
                    .with_min_delay(FIRST_RETRY_DELAY)
                    .with_max_delay(LONGEST_RETRY_DELAY)
                    .with_max_times(CONNECT_RETRIES)
                    .with_jitter(),
            )
            .when(is_connection_error)
            .await;
        let response = result.map_err(|error| {
            let (outcome, failure) = describe(error.as_ref());
            self.counters.request(outcome, started.elapsed());
            failure
        })?;
        self.measure_skew(&response, read(sent_at));
        let outcome = receive(response, self.config.max_body).await;
        let label = match &outcome {
            Ok(received) => received.status.as_str(),
            Err((label, _)) => label,
        };
        self.counters.request(label, started.elapsed());
        outcome.map_err(|(_, failure)| failure)
    }

    async fn endpoint(&self, secret: Option<&HeaderValue>) -> Result<Endpoint, Failure> {
        let client = self.client().await?;
        let mut headers = self.config.headers.clone();
        if let Some(secret) = secret {
            headers.insert(AUTHORIZATION, secret.clone());
        }
        Ok(Endpoint {
            client,
            url: self.config.url.clone(),
            headers,
        })
    }

    async fn client(&self) -> Result<reqwest::Client, Failure> {
        self.clients
            .current()
            .await
            .map_err(|error| Failure::new(Reason::SourceUnavailable, chain(&error)))
    }

    /// S35: a header of whole seconds, which servers compute once a second,
    /// against the middle between sending and receiving. The query itself
    /// carries no time, so no clock but the source's decides its answer.
    fn measure_skew(&self, response: &reqwest::Response, sent_at: Option<Timestamp>) {
        const HALF_A_SECOND: SignedDuration = SignedDuration::from_millis(500);
        const COARSENESS: SignedDuration = SignedDuration::from_millis(1500);
        let date = response
            .headers()
            .get(DATE)
            .and_then(|value| value.to_str().ok());
        let (Some(date), Some(sent_at)) = (date.and_then(http_date), sent_at) else {
            return;
        };
        let halfway = Timestamp::now().duration_since(sent_at) / 2;
        let skew = Skew {
            ahead: date.duration_since(sent_at) + HALF_A_SECOND - halfway,
            uncertainty: COARSENESS + halfway.abs(),
        };
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner) = Some(skew);
    }

    /// The `Authorization` header, its files read anew (S26).
    async fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        match &self.config.credentials {
            Credentials::None => Ok(None),
            Credentials::Bearer { token_file } => secret::bearer(token_file).await.map(Some),
            Credentials::Basic {
                username,
                password_file,
            } => {
                let client = self.client().await?;
                secret::basic(&client, &self.config.url, username, password_file)
                    .await
                    .map(Some)
            }
        }
    }
}

fn read(at: &Mutex<Option<Timestamp>>) -> Option<Timestamp> {
    *at.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(duration: Duration) -> String {
    if duration < Duration::from_secs(2) {
        format!("{}ms", duration.as_millis())
    } else {
        SignedDuration::try_from(duration)
            .map_or_else(|_| format!("{duration:?}"), crate::core::duration::human)
    }
}
