//! One source over HTTP: credentials, limits, redirects, retries.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use prometheus_http_query::Client;
use reqwest::header::{AUTHORIZATION, DATE, HeaderValue};
use reqwest::{StatusCode, Url, redirect};

use super::Failure;
use super::answer::{self, Received};
use super::tls::{ClientCache, SourceError};
use crate::core::reason::Reason;
use crate::core::signal::{Answer, bounded};
use crate::signals::config::{Credentials, PrometheusConfig, SourceConfig, Username};
use crate::signals::stats::Counters;

/// Attempts to connect again within the time limit, with jitter (S19).
const CONNECT_RETRIES: usize = 2;
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Redirects followed within one host.
const MAX_REDIRECTS: usize = 5;
/// Bytes read of an answer that refuses; a message shows less.
const MAX_REFUSAL: usize = 64 * 1024;
/// Bytes of a file with a secret; a larger one is the wrong file.
const MAX_SECRET: usize = 64 * 1024;

/// What one question brought, and when its last request was sent.
pub(super) struct Asked {
    pub(super) sent_at: Timestamp,
    pub(super) outcome: Result<Answer, Failure>,
}

/// A source's clock beside this machine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skew {
    /// The source's clock minus this machine's.
    pub(super) ahead: SignedDuration,
    /// A smaller skew is noise.
    pub(super) uncertainty: SignedDuration,
}

pub(super) struct Transport {
    config: PrometheusConfig,
    clients: ClientCache,
    limiter: DefaultDirectRateLimiter,
    /// POST was refused, GET was not (S21).
    prefers_get: AtomicBool,
    /// The source asked not to be called before.
    held_until: Mutex<Option<Instant>>,
    skew: Mutex<Option<Skew>>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Get,
    Post,
}

impl Transport {
    pub(super) fn new(source: SourceConfig) -> Result<Self, SourceError> {
        let SourceConfig {
            name,
            prometheus: config,
        } = source;
        let clients = ClientCache::new(&name, &config, redirect_policy)?;
        let period = Duration::from_secs_f64(1.0 / config.requests_per_second);
        // Both are checked by the configuration; a limiter of one request a
        // period is the careful reading of what it would let through.
        let burst = std::num::NonZeroU32::new(config.burst).unwrap_or(std::num::NonZeroU32::MIN);
        let quota = Quota::with_period(period)
            .unwrap_or_else(|| Quota::per_second(std::num::NonZeroU32::MIN))
            .allow_burst(burst);
        Ok(Transport {
            config,
            clients,
            limiter: RateLimiter::direct(quota),
            prefers_get: AtomicBool::new(false),
            held_until: Mutex::new(None),
            skew: Mutex::new(None),
            counters: Counters::default(),
        })
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn url(&self) -> &Url {
        &self.config.url
    }

    /// How the source's clock differs, as last seen.
    pub(super) fn skew(&self) -> Option<Skew> {
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks one instant query, within the source's time limit in all.
    pub(super) async fn ask(&self, query: &str) -> Asked {
        let sent_at = Mutex::new(None);
        let limit = self.config.timeout;
        let outcome = match tokio::time::timeout(limit, self.ask_unlimited(query, &sent_at)).await {
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
        query: &str,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<Answer, Failure> {
        self.respect_hold()?;
        let secret = self.authorization().await?;
        let mut received = self.exchange(query, secret.as_ref(), sent_at).await?;
        if matches!(
            received.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            // S27: the secret may have been rotated between reading and asking.
            // The same secret again would only be refused again.
            let again = self.authorization().await?;
            if again != secret {
                received = self.exchange(query, again.as_ref(), sent_at).await?;
            }
        }
        let outcome = answer::interpret(&received, Timestamp::now());
        if let Err(Failure {
            reason: Reason::RateLimited,
            retry_after: Some(wait),
            ..
        }) = &outcome
        {
            self.hold(*wait);
        }
        outcome
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

    /// Sends by POST, or by GET where POST is refused, and the other way round
    /// where the query is too long for GET (S21). Each is tried once.
    async fn exchange(
        &self,
        query: &str,
        secret: Option<&HeaderValue>,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<Received, Failure> {
        let first = if self.prefers_get.load(Ordering::Relaxed) {
            Method::Get
        } else {
            Method::Post
        };
        let received = self.send(first, query, secret, sent_at).await?;
        let second = match (first, received.status.as_u16()) {
            // These three redirects turn a POST into a GET without its query.
            (Method::Post, 301 | 302 | 303 | 403 | 405 | 501) => Method::Get,
            (Method::Get, 414) => Method::Post,
            _ => return Ok(received),
        };
        let received = self.send(second, query, secret, sent_at).await?;
        if received.status.is_success() {
            self.prefers_get
                .store(second == Method::Get, Ordering::Relaxed);
        }
        Ok(received)
    }

    async fn send(
        &self,
        method: Method,
        query: &str,
        secret: Option<&HeaderValue>,
        sent_at: &Mutex<Option<Timestamp>>,
    ) -> Result<Received, Failure> {
        self.limiter.until_ready().await;
        let client = self
            .clients
            .current()
            .await
            .map_err(|error| Failure::new(Reason::SourceUnavailable, chain(&error)))?;
        let started = Instant::now();
        let sent = || {
            let now = Timestamp::now();
            *sent_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            request(&client, &self.config, method, query, secret)
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
            let (outcome, failure) = describe(&error);
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
        let (Some(date), Some(sent_at)) = (date.and_then(answer::http_date), sent_at) else {
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
        let unusable = |file: &Path, what: &str| {
            Failure::new(
                Reason::AuthFailed,
                format!("the secret in {} cannot be used: {what}", file.display()),
            )
        };
        match &self.config.credentials {
            Credentials::None => Ok(None),
            Credentials::Bearer { token_file } => {
                let token = read_secret(token_file).await?;
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| unusable(token_file, "it holds characters that no token has"))?;
                value.set_sensitive(true);
                Ok(Some(value))
            }
            Credentials::Basic {
                username,
                password_file,
            } => {
                let username = match username {
                    Username::Given(name) => name.clone(),
                    Username::File(file) => read_secret(file).await?,
                };
                let password = read_secret(password_file).await?;
                let client = self
                    .clients
                    .current()
                    .await
                    .map_err(|error| Failure::new(Reason::SourceUnavailable, chain(&error)))?;
                // The client's own encoding of the pair, taken from a request
                // that is not sent.
                let request = client
                    .inner()
                    .get(self.config.url.clone())
                    .basic_auth(username, Some(password))
                    .build()
                    .map_err(|_| unusable(password_file, "no header can be made of it"))?;
                Ok(request.headers().get(AUTHORIZATION).cloned())
            }
        }
    }
}

fn read(at: &Mutex<Option<Timestamp>>) -> Option<Timestamp> {
    *at.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read_secret(file: &Path) -> Result<String, Failure> {
    let fail = |problem: String| {
        Failure::new(
            Reason::AuthFailed,
            format!("failed to read the secret in {}: {problem}", file.display()),
        )
    };
    let bytes = tokio::fs::read(file)
        .await
        .map_err(|error| fail(error.to_string()))?;
    if bytes.len() > MAX_SECRET {
        return Err(fail(format!(
            "it has {} bytes, at most {MAX_SECRET} are read",
            bytes.len()
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| fail("it is not UTF-8".to_owned()))?;
    match text.trim_matches(['\r', '\n', ' ', '\t']) {
        "" => Err(fail("it is empty".to_owned())),
        secret => Ok(secret.to_owned()),
    }
}

async fn request(
    client: &Client,
    config: &PrometheusConfig,
    method: Method,
    query: &str,
    secret: Option<&HeaderValue>,
) -> Result<reqwest::Response, prometheus_http_query::Error> {
    let millis = i64::try_from(config.timeout.as_millis()).unwrap_or(i64::MAX);
    let mut builder = client.query(query).timeout(millis);
    for (name, value) in &config.headers {
        builder = builder.header(name.clone(), value.clone());
    }
    if let Some(secret) = secret {
        builder = builder.header(AUTHORIZATION, secret.clone());
    }
    // The raw calls: the typed ones read a body of any size and drop warnings.
    match method {
        Method::Get => builder.get_raw().await,
        Method::Post => builder.post_raw().await,
    }
}

/// Reads a body within bounds (S30); the time limit is the caller's.
async fn receive(
    mut response: reqwest::Response,
    max_body: usize,
) -> Result<Received, (&'static str, Failure)> {
    let status = response.status();
    let headers = response.headers().clone();
    let limit = if status.is_success() {
        max_body
    } else {
        max_body.min(MAX_REFUSAL)
    };
    let mut body = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| {
            let failure = Failure::new(
                Reason::SourceUnavailable,
                format!("the source's answer broke off: {}", causes(&error)),
            );
            ("broken", failure)
        })?;
        let Some(chunk) = chunk else { break };
        let room = limit - body.len();
        if chunk.len() > room {
            if status.is_success() {
                let failure = Failure::new(
                    Reason::SourceAnswerUnusable,
                    format!(
                        "the answer is longer than {limit} bytes: aggregate in the query, or raise \
                         maxBodyBytes"
                    ),
                );
                return Err(("too_large", failure));
            }
            body.extend_from_slice(&chunk[..room]);
            break;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Received {
        status,
        headers,
        body,
    })
}

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
enum RedirectError {
    #[error(
        "the source redirects to {to}, where credentials must not follow: set `url` to where the \
         API is"
    )]
    OtherOrigin { to: String },
    #[error("the source redirects more than {MAX_REDIRECTS} times: check its `url`")]
    TooMany,
}

/// S22: within one origin only, and never a POST that would lose its query.
fn redirect_policy() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let Some(first) = attempt.previous().first() else {
            return attempt.stop();
        };
        if first.origin() != attempt.url().origin() {
            let to = bounded(&attempt.url().origin().ascii_serialization(), 200);
            return attempt.error(RedirectError::OtherOrigin { to });
        }
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error(RedirectError::TooMany);
        }
        // Only a GET carries its query in the URL.
        let is_post = first.query().is_none();
        if is_post && matches!(attempt.status().as_u16(), 301..=303) {
            return attempt.stop();
        }
        attempt.follow()
    })
}

fn http_error(error: &prometheus_http_query::Error) -> Option<&reqwest::Error> {
    match error {
        prometheus_http_query::Error::Client(error) => error.inner(),
        _ => None,
    }
}

/// True for what happened before the source could answer: a refused or reset
/// connection. A query changes nothing, so it may be sent again.
fn is_connection_error(error: &prometheus_http_query::Error) -> bool {
    http_error(error)
        .is_some_and(|error| !error.is_redirect() && (error.is_connect() || error.is_request()))
}

fn describe(error: &prometheus_http_query::Error) -> (&'static str, Failure) {
    let Some(http) = http_error(error) else {
        return (
            "broken",
            Failure::new(Reason::SourceUnavailable, chain(error)),
        );
    };
    if http.is_redirect() {
        let cause = find::<RedirectError>(http).map_or_else(|| causes(http), ToString::to_string);
        return (
            "redirect",
            Failure::new(Reason::SourceAnswerUnusable, cause),
        );
    }
    let message = format!("failed to reach the source: {}", causes(http));
    ("connect", Failure::new(Reason::SourceUnavailable, message))
}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// What lies behind an HTTP error, without its first line: that repeats the URL
/// with the whole query.
fn causes(error: &reqwest::Error) -> String {
    match error.source() {
        Some(source) => chain(source),
        None => "the request failed".to_owned(),
    }
}

/// An error and its sources, bounded; a source that its error repeats is left out.
pub(super) fn chain(error: &dyn StdError) -> String {
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

fn say(duration: Duration) -> String {
    if duration < Duration::from_secs(2) {
        format!("{}ms", duration.as_millis())
    } else {
        SignedDuration::try_from(duration)
            .map_or_else(|_| format!("{duration:?}"), crate::core::duration::human)
    }
}
