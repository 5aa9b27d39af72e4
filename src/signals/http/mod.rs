//! HTTP as every source speaks it: one client a source, made of what its
//! administrator wrote.
//!
//! - One time limit covers waiting for a turn, connecting, retries and the last
//!   byte of a bounded body (S30).
//! - Credentials and certificates are read from their files for each request (S26)
//!   and go to the configured origin only (S22).
//! - A limit of requests a second, and the wish of a source to be left alone
//!   (429 and 503 with `Retry-After`), hold for all questions alike.
//! - Where several URLs answer for one source, the one that answered last is asked
//!   first, and another one when it is out of order.
//! - Every request is counted by its outcome.
//!
//! A kind of source brings the path, the parameters and what an answer means:
//! [`Client::get`] for a plain GET, [`Client::ask`] for a [`Request`] of its own.

pub mod config;
mod error;
mod hidden;
mod hold;
mod oauth2;
mod progress;
mod received;
mod request;
mod secret;
mod tls;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{AUTHORIZATION, DATE};
use reqwest::{StatusCode, Url};

use self::config::{Credentials, HttpConfig};
pub(super) use self::error::SendError;
use self::error::{chain, describe, is_connection_error, redirect_policy};
#[cfg(test)]
pub(super) use self::hidden::Hidden;
pub(super) use self::hold::Hold;
use self::oauth2::Tokens;
use self::progress::{Progress, Stage};
pub(super) use self::received::{Received, is_html, looks_like_json, start_of};
use self::received::{http_date, receive};
use self::request::Get;
pub(super) use self::request::{Endpoint, Request};
use self::secret::Secrets;
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

/// The client of one source; shared by all who ask it.
pub(super) struct Client {
    name: String,
    config: HttpConfig,
    params: Arc<[(String, String)]>,
    clients: ClientCache,
    /// Where the credentials are a token server's.
    tokens: Option<Arc<Tokens>>,
    /// The URL that answered last.
    preferred: AtomicUsize,
    limiter: DefaultDirectRateLimiter,
    held: Hold,
    /// One for each URL: a replica that is not able to answer says nothing about its
    /// neighbour.
    away: Vec<Hold>,
    skew: Mutex<Option<Skew>>,
    counters: Counters,
}

impl Client {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// Certificates or keys that cannot be read or used.
    pub(super) fn new(name: &str, config: HttpConfig) -> Result<Self, SourceError> {
        let tokens = Self::tokens(name, &config)?;
        Self::with_tokens(name, config, tokens)
    }

    /// One for each URL of the configuration; they share the tokens of a token
    /// server. Nothing is sent yet.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub(super) fn set(name: &str, config: &HttpConfig) -> Result<Vec<Self>, SourceError> {
        let tokens = Self::tokens(name, config)?;
        let alone = config.urls.iter().map(|url| HttpConfig {
            urls: vec![url.clone()],
            ..config.clone()
        });
        alone
            .map(|config| Self::with_tokens(name, config, tokens.clone()))
            .collect()
    }

    fn tokens(name: &str, config: &HttpConfig) -> Result<Option<Arc<Tokens>>, SourceError> {
        Ok(match &config.credentials {
            Credentials::OAuth2(oauth2) => {
                Some(Arc::new(Tokens::new(name, (**oauth2).clone(), config)?))
            }
            _ => None,
        })
    }

    fn with_tokens(
        name: &str,
        config: HttpConfig,
        tokens: Option<Arc<Tokens>>,
    ) -> Result<Self, SourceError> {
        let plain = config.urls.iter().all(|url| url.scheme() == "http");
        let use_proxy = config.proxy_from_environment;
        let who = "the source";
        Ok(Client {
            name: name.to_owned(),
            params: config.params.0.clone().into(),
            clients: ClientCache::new(name, plain, &config.tls, use_proxy, redirect_policy)?,
            tokens,
            preferred: AtomicUsize::new(0),
            limiter: limiter(&config),
            held: Hold::new(who),
            away: config.urls.iter().map(|_| Hold::new(who)).collect(),
            config,
            skew: Mutex::new(None),
            counters: Counters::default(),
        })
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Where the source is, or the first of its replicas.
    pub(super) fn url(&self) -> &Url {
        &self.config.urls[0]
    }

    /// Where the source is, once for each replica.
    pub(super) fn urls(&self) -> &[Url] {
        &self.config.urls
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
        let progress = Progress::default();
        let limit = self.config.timeout;
        let outcome = match tokio::time::timeout(limit, self.ask_unlimited(ways, &progress)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timed_out(progress.stage())),
        };
        Asked {
            sent_at: progress.sent_at().unwrap_or_else(Timestamp::now),
            outcome,
        }
    }

    fn timed_out(&self, stage: Stage) -> Failure {
        let limit = say(self.config.timeout);
        match stage {
            Stage::Credentials => Failure::new(
                Reason::SourceUnavailable,
                format!("the credentials for the source were not there within {limit}"),
            ),
            Stage::Turn => Failure::new(
                Reason::RateLimited,
                format!(
                    "more than {} requests a second were due for the source, and this one found no \
                     room within {limit}: raise requestsPerSecond, or poll less often",
                    self.config.requests_per_second,
                ),
            ),
            Stage::Answer => {
                self.counters.request("timeout", self.config.timeout);
                Failure::new(
                    Reason::SourceUnavailable,
                    format!("the source gave no whole answer within {limit}"),
                )
            }
        }
    }

    async fn ask_unlimited(
        &self,
        ways: &[impl Request],
        progress: &Progress,
    ) -> Result<Received, Failure> {
        self.held.check()?;
        let secrets = self.secrets(progress).await?;
        let mut received = self.exchange(ways, &secrets, progress).await?;
        if matches!(
            received.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            // S27: the secret may have been rotated between reading and asking.
            // The same secret again would only be refused again.
            if let (StatusCode::UNAUTHORIZED, Some(tokens), Some(refused)) = (
                received.status,
                &self.tokens,
                secrets.headers.get(AUTHORIZATION),
            ) {
                tokens.discard(refused).await;
            }
            let again = self.secrets(progress).await?;
            if again != secrets {
                received = self.exchange(ways, &again, progress).await?;
            }
        }
        Ok(received)
    }

    /// Each way is tried once, in order, as long as the one before is refused.
    async fn exchange(
        &self,
        ways: &[impl Request],
        secrets: &Secrets,
        progress: &Progress,
    ) -> Result<Received, Failure> {
        let mut way = 0;
        loop {
            let request = &ways[way];
            let mut received = self.send(request, secrets, progress).await?;
            received.hide(&secrets.hidden);
            if way + 1 == ways.len() || !request.is_refused_by(received.status) {
                return Ok(Received { way, ..received });
            }
            way += 1;
        }
    }

    /// Sends to the URL that answered last; to the next one when that is out of
    /// order. Each but the last has its share of the time limit only, so that one
    /// that hangs leaves time for the others.
    async fn send(
        &self,
        request: &impl Request,
        secrets: &Secrets,
        progress: &Progress,
    ) -> Result<Received, Failure> {
        let urls = &self.config.urls;
        let first = self.preferred.load(Ordering::Relaxed);
        let share = self.config.timeout / u32::try_from(urls.len()).unwrap_or(u32::MAX);
        let (last, others) = self.replicas(first)?;
        for index in others {
            let endpoint = self.turn(index, secrets, progress).await;
            let sending = async { self.send_to(index, &endpoint?, request, progress).await };
            let outcome = tokio::time::timeout(share, sending).await;
            let outcome = outcome.unwrap_or_else(|_| {
                self.counters.request("timeout", share);
                let message = format!("no whole answer within {}", say(share));
                Err(Failure::new(Reason::SourceUnavailable, message))
            });
            let trouble = match outcome {
                Ok(received) if is_out_of_order(received.status) => {
                    format!("HTTP {}", received.status.as_u16())
                }
                Err(failure) if failure.reason == Reason::SourceUnavailable => failure.message,
                Ok(received) => {
                    self.prefer(first, index);
                    return Ok(received);
                }
                Err(failure) => return Err(failure),
            };
            tracing::debug!(source = %self.name, url = %urls[index], trouble, "asking another replica");
        }
        let endpoint = self.turn(last, secrets, progress).await?;
        let outcome = self.send_to(last, &endpoint, request, progress).await;
        if let Ok(received) = &outcome
            && !is_out_of_order(received.status)
        {
            self.prefer(first, last);
        }
        outcome
    }

    /// The URLs in the order in which they are to be asked, the last one by itself;
    /// without those that want to be left alone. Where all of them do, what is said in
    /// their place.
    fn replicas(&self, first: usize) -> Result<(usize, Vec<usize>), Failure> {
        let count = self.config.urls.len();
        let mut open: Vec<usize> = (0..count)
            .map(|tried| (first + tried) % count)
            .filter(|index| self.away[*index].check().is_ok())
            .collect();
        match open.pop() {
            Some(last) => Ok((last, open)),
            None => {
                self.away[first].check()?;
                // Its pause has ended just now.
                Ok((first, Vec::new()))
            }
        }
    }

    /// Waits until a request may leave for this URL.
    async fn turn(
        &self,
        index: usize,
        secrets: &Secrets,
        progress: &Progress,
    ) -> Result<Endpoint, Failure> {
        progress.enter(Stage::Turn);
        self.limiter.until_ready().await;
        // Another question may have been told meanwhile.
        self.held.check()?;
        self.away[index].check()?;
        let endpoint = self.endpoint(&self.config.urls[index], secrets).await?;
        progress.enter(Stage::Answer);
        Ok(endpoint)
    }

    fn prefer(&self, before: usize, index: usize) {
        if before != index {
            self.preferred.store(index, Ordering::Relaxed);
            tracing::debug!(source = %self.name, url = %self.config.urls[index], "this replica answers from now on");
        }
    }

    async fn send_to(
        &self,
        index: usize,
        endpoint: &Endpoint,
        request: &impl Request,
        progress: &Progress,
    ) -> Result<Received, Failure> {
        let started = Instant::now();
        let sent = || {
            progress.sent(Timestamp::now());
            request.send(endpoint)
        };
        // Other replicas are a better second try than the same one.
        let retries = if self.config.urls.len() > 1 {
            0
        } else {
            CONNECT_RETRIES
        };
        let result = sent
            .retry(
                ExponentialBuilder::default()
                    .with_min_delay(FIRST_RETRY_DELAY)
                    .with_max_delay(LONGEST_RETRY_DELAY)
                    .with_max_times(retries)
                    .with_jitter(),
            )
            .when(is_connection_error)
            .await;
        let response = result.map_err(|error| {
            let (outcome, failure) = describe(error.as_ref());
            self.counters.request(outcome, started.elapsed());
            failure
        })?;
        self.measure_skew(&response, progress.sent_at());
        let outcome = receive(response, self.config.max_body).await;
        let label = match &outcome {
            Ok(received) => received.status.as_str(),
            Err((label, _)) => label,
        };
        self.counters.request(label, started.elapsed());
        let received = outcome.map_err(|(_, failure)| failure)?;
        self.hold_back(index, &received);
        Ok(received)
    }

    /// S19: as the answer of this URL asks for.
    fn hold_back(&self, index: usize, received: &Received) {
        if let Some((wait, reason)) = received.pause() {
            let hold = match reason {
                Reason::RateLimited => &self.held,
                _ => &self.away[index],
            };
            hold.begin(wait, reason);
        }
    }

    async fn endpoint(&self, url: &Url, secrets: &Secrets) -> Result<Endpoint, Failure> {
        let mut headers = self.config.headers.clone();
        headers.extend(secrets.headers.clone());
        Ok(Endpoint {
            client: self.client().await?,
            url: url.clone(),
            headers,
            params: self.params.clone(),
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

    /// The headers with secrets, their files read anew (S26).
    async fn secrets(&self, progress: &Progress) -> Result<Secrets, Failure> {
        progress.enter(Stage::Credentials);
        let mut secrets = Secrets::default();
        self.authorize(&mut secrets).await?;
        for (name, file) in &self.config.header_files {
            secrets.add(name.clone(), secret::header(file).await?);
        }
        Ok(secrets)
    }

    async fn authorize(&self, secrets: &mut Secrets) -> Result<(), Failure> {
        let header = match (&self.config.credentials, &self.tokens) {
            (_, Some(tokens)) => tokens.header().await?,
            (Credentials::None | Credentials::OAuth2(_), None) => return Ok(()),
            (Credentials::Bearer { token_file }, None) => secret::bearer(token_file).await?,
            (
                Credentials::Basic {
                    username,
                    password_file,
                },
                None,
            ) => {
                let client = self.client().await?;
                return secret::basic(&client, self.url(), username, password_file, secrets).await;
            }
        };
        secrets.add(AUTHORIZATION, header);
        Ok(())
    }
}

/// The limit of requests a second that an administrator set.
fn limiter(config: &HttpConfig) -> DefaultDirectRateLimiter {
    let period = Duration::from_secs_f64(1.0 / config.requests_per_second);
    // Both are checked by the configuration; a limiter of one request a
    // period is the careful reading of what it would let through.
    let burst = std::num::NonZeroU32::new(config.burst).unwrap_or(std::num::NonZeroU32::MIN);
    let quota = Quota::with_period(period)
        .unwrap_or_else(|| Quota::per_second(std::num::NonZeroU32::MIN))
        .allow_burst(burst);
    RateLimiter::direct(quota)
}

/// True for a replica whose neighbour may do better. 501 refuses the method only.
fn is_out_of_order(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}

fn say(duration: Duration) -> String {
    if duration < Duration::from_secs(2) {
        format!("{}ms", duration.as_millis())
    } else {
        SignedDuration::try_from(duration)
            .map_or_else(|_| format!("{duration:?}"), crate::core::duration::human)
    }
}
