//! Access tokens from a token server: OAuth2 client credentials.
//!
//! One token serves all questions until shortly before it expires, or until it is
//! refused. One request for a token is under way at a time, whoever gives up
//! waiting for it, and none leaves beyond the source's own limit of requests.
//!
//! A token server counts wrong secrets and locks clients out. So a failure is the
//! answer to all who ask within the next seconds, or for as long as the server
//! wants, unless the secret's file changes; and a source that refuses good tokens
//! gets no more than one new one in that time.
//!
//! The secret goes to the token server only, by no redirect, and is never part of
//! a message.

use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::{Duration, Instant};

use governor::DefaultDirectRateLimiter;
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{StatusCode, redirect};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::config::{HttpConfig, OAuth2Config};
use super::error::{causes, chain};
use super::hidden::Hidden;
use super::received::{Received, receive};
use super::tls::{ClientCache, SourceError};
use super::{limiter, say, secret};
use crate::core::reason::Reason;
use crate::core::signal::bounded;
use crate::signals::failure::Failure;

/// An answer with a token is short; a page of a login is not one.
const MAX_ANSWER: usize = 64 * 1024;
/// A token is not used any more so long before it expires: a request takes time.
const LEEWAY: Duration = Duration::from_secs(10);
/// Longer lives are taken for this one.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// For so long at least a failure is not tried again, and a refused token is
/// replaced once.
const PAUSE: Duration = Duration::from_secs(10);
/// Characters of an error code that are shown.
const CODE_CHARS: usize = 60;
/// Characters of the words beside it that are shown.
const WORDS_CHARS: usize = 200;

/// The tokens of one source.
pub(super) struct Tokens {
    config: OAuth2Config,
    clients: ClientCache,
    /// For one token, in all.
    timeout: Duration,
    limiter: DefaultDirectRateLimiter,
    kept: Mutex<Kept>,
    /// How the server takes the client's secret, as far as it is known.
    style: Lock<Style>,
}

/// What is known from the last request for a token.
#[derive(Default)]
struct Kept {
    token: Option<Token>,
    failed: Option<Failed>,
    /// When a token that was refused was last given up for a new one.
    replaced: Option<Instant>,
}

struct Failed {
    failure: Failure,
    until: Instant,
    /// The secret that it was about, digested. `None` where another secret would
    /// not help: the server wants a pause.
    secret: Option<[u8; 32]>,
}

/// Why there is no token, and for how long the server wants to be left alone.
struct NoToken {
    failure: Failure,
    pause: Option<SignedDuration>,
}

impl From<Failure> for NoToken {
    fn from(failure: Failure) -> Self {
        NoToken {
            failure,
            pause: None,
        }
    }
}

struct Token {
    header: HeaderValue,
    /// `None`: the server does not say, so that it is used until it is refused.
    until: Option<Instant>,
}

/// Where the client's id and secret stand: servers must take the header (RFC 6749,
/// section 2.3.1), and some take only the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Header,
    Form,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<Seconds>,
}

/// A number, which some servers write as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(f64),
    Text(String),
}

#[derive(Deserialize)]
struct Refused {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

impl Tokens {
    /// Nothing is sent yet.
    pub(super) fn new(
        name: &str,
        config: OAuth2Config,
        of: &HttpConfig,
    ) -> Result<Self, SourceError> {
        let plain = config.token_url.scheme() == "http";
        let none = redirect::Policy::none;
        let use_proxy = of.proxy_from_environment;
        Ok(Tokens {
            clients: ClientCache::new(name, plain, &config.tls, use_proxy, none)?,
            config,
            timeout: of.timeout,
            limiter: limiter(of),
            kept: Mutex::new(Kept::default()),
            style: Lock::new(Style::Header),
        })
    }

    /// The header with a token that is good for now.
    pub(super) async fn header(self: &Arc<Self>) -> Result<HeaderValue, Failure> {
        let asked_at = Instant::now();
        let known = self.known(&*self.kept.lock().await, asked_at).await;
        if let Some(known) = known {
            return known;
        }
        // By itself: who asked may give up, and the next one would ask once more.
        let tokens = self.clone();
        let obtained = tokio::spawn(async move { tokens.obtain(asked_at).await });
        obtained.await.unwrap_or_else(|error| {
            let message = format!("failed to ask for a token: {error}");
            Err(Failure::new(Reason::SourceUnavailable, message))
        })
    }

    /// Gives up a token that was refused, unless another one has replaced it, or
    /// has just replaced the one before.
    pub(super) async fn discard(&self, refused: &HeaderValue) {
        let mut kept = self.kept.lock().await;
        let just_replaced = kept.replaced.is_some_and(|at| at.elapsed() < PAUSE);
        if !just_replaced && (kept.token.as_ref()).is_some_and(|token| token.header == *refused) {
            kept.token = None;
            kept.replaced = Some(Instant::now());
        }
    }

    /// The answer to one who asked at that moment, where none has to be sent for.
    async fn known(&self, kept: &Kept, asked_at: Instant) -> Option<Result<HeaderValue, Failure>> {
        if let Some(token) = &kept.token
            && token.until.is_none_or(|until| asked_at < until)
        {
            return Some(Ok(token.header.clone()));
        }
        let failed = kept.failed.as_ref()?;
        if failed.until <= Instant::now() {
            return None;
        }
        if let Some(digest) = failed.secret {
            match secret::read(&self.config.client_secret_file).await {
                Ok(secret) if digest_of(&secret) != digest => return None,
                Ok(_) => {}
                Err(failure) => return Some(Err(failure)),
            }
        }
        Some(Err(failed.failure.clone()))
    }

    async fn obtain(&self, asked_at: Instant) -> Result<HeaderValue, Failure> {
        let mut kept = self.kept.lock().await;
        if let Some(known) = self.known(&kept, asked_at).await {
            return known;
        }
        // Read anew, so that a rotated secret is used.
        let secret = secret::read(&self.config.client_secret_file).await?;
        let asked = tokio::time::timeout(self.timeout, self.ask(&secret)).await;
        let asked = asked.unwrap_or_else(|_| {
            let message = format!(
                "the credentials for the source were not there within {}: the token server gave \
                 no whole answer",
                say(self.timeout)
            );
            Err(Failure::new(Reason::SourceUnavailable, message).into())
        });
        match asked {
            Ok(token) => {
                let header = token.header.clone();
                kept.token = Some(token);
                kept.failed = None;
                Ok(header)
            }
            Err(NoToken { failure, pause }) => {
                let wait = pause.and_then(|pause| Duration::try_from(pause).ok());
                kept.token = None;
                kept.failed = Some(Failed {
                    failure: failure.clone(),
                    until: Instant::now() + wait.unwrap_or_default().max(PAUSE),
                    secret: pause.is_none().then(|| digest_of(&secret)),
                });
                Err(failure)
            }
        }
    }

    async fn ask(&self, secret: &str) -> Result<Token, NoToken> {
        let first = *self.style.lock().unwrap_or_else(PoisonError::into_inner);
        let mut received = self.send(secret, first).await?;
        if first == Style::Header
            && matches!(
                received.status,
                StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED
            )
        {
            let by_form = self.send(secret, Style::Form).await?;
            if by_form.status.is_success() {
                *self.style.lock().unwrap_or_else(PoisonError::into_inner) = Style::Form;
                received = by_form;
            }
        }
        if received.status.is_success() {
            return Ok(granted(&received)?);
        }
        Err(NoToken {
            failure: refused(&received, secret),
            pause: received.retry_after(Timestamp::now()),
        })
    }

    async fn send(&self, secret: &str, style: Style) -> Result<Received, Failure> {
        let client = (self.clients.current().await)
            .map_err(|error| Failure::new(Reason::SourceUnavailable, chain(&error)))?;
        let mut form = vec![("grant_type", "client_credentials")];
        if !self.config.scope.is_empty() {
            form.push(("scope", &self.config.scope));
        }
        let more = self.config.endpoint_params.0.iter();
        form.extend(more.map(|(name, value)| (name.as_str(), value.as_str())));
        let mut hidden = Hidden::default();
        hidden.add(secret.as_bytes());
        let mut request = client.post(self.config.token_url.clone());
        match style {
            Style::Header => {
                let escaped =
                    |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
                let (user, password): (String, String) =
                    (escaped(&self.config.client_id), escaped(secret));
                request = request.basic_auth(user, Some(password));
            }
            Style::Form => {
                form.push(("client_id", &self.config.client_id));
                form.push(("client_secret", secret));
            }
        }
        let unreachable = |error: reqwest::Error| {
            Failure::new(
                Reason::SourceUnavailable,
                format!("failed to reach the token server: {}", causes(&error)),
            )
        };
        let request = request.header("accept", "application/json").form(&form);
        let request = request.build().map_err(unreachable)?;
        if let Some(pair) = request.headers().get(AUTHORIZATION) {
            let pair = pair.as_bytes();
            hidden.add(pair.strip_prefix(b"Basic ").unwrap_or(pair));
        }
        self.limiter.until_ready().await;
        let response = client.execute(request).await.map_err(unreachable)?;
        let received = receive(response, MAX_ANSWER).await;
        let mut received = received.map_err(|(outcome, failure)| match outcome {
            "too_large" => no_token(format!("its answer is longer than {MAX_ANSWER} bytes")),
            _ => failure,
        })?;
        received.hide(&hidden);
        Ok(received)
    }
}

fn digest_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn no_token(problem: impl std::fmt::Display) -> Failure {
    Failure::new(
        Reason::AuthFailed,
        format!("the token server gave no usable token: {problem}; check oauth2.tokenURL"),
    )
}

/// The token of an answer; nothing of the answer is shown.
fn granted(received: &Received) -> Result<Token, Failure> {
    let granted: Granted = serde_json::from_slice(&received.body)
        .map_err(|_| no_token("its answer is not JSON with an access_token"))?;
    if let Some(kind) = &granted.token_type
        && !kind.eq_ignore_ascii_case("bearer")
    {
        return Err(no_token(format!(
            "it is of the type {:?}, wanted Bearer",
            bounded(&received.shown(kind), CODE_CHARS)
        )));
    }
    let life = match granted.expires_in {
        None => None,
        Some(Seconds::Number(seconds)) => Some(seconds),
        Some(Seconds::Text(text)) => Some(
            (text.trim().parse())
                .map_err(|_| no_token("its expires_in is not a number of seconds"))?,
        ),
    };
    let mut header = HeaderValue::from_str(&format!("Bearer {}", granted.access_token))
        .ok()
        .filter(|_| !granted.access_token.trim().is_empty())
        .ok_or_else(|| no_token("it is empty or holds characters that no token has"))?;
    header.set_sensitive(true);
    Ok(Token {
        header,
        until: life.and_then(|seconds| Instant::now().checked_add(usable_for(seconds))),
    })
}

/// How long a token is used that lives for `seconds`.
fn usable_for(seconds: f64) -> Duration {
    // NaN and negative lives are over at once.
    let life = if seconds > 0.0 {
        Duration::try_from_secs_f64(seconds).map_or(LONGEST_LIFE, |life| life.min(LONGEST_LIFE))
    } else {
        Duration::ZERO
    };
    // Of a short life at least half is used.
    life - LEEWAY.min(life / 2)
}

fn refused(received: &Received, secret: &str) -> Failure {
    let status = received.status.as_u16();
    let (reason, what) = match status {
        408 | 429 | 500..=599 => (
            Reason::SourceUnavailable,
            "the token server is not able to answer",
        ),
        300..=399 => (
            Reason::AuthFailed,
            "the token server redirects, where the secret must not follow: set oauth2.tokenURL to \
             where it leads",
        ),
        _ => (
            Reason::AuthFailed,
            "the token server refuses the client's credentials",
        ),
    };
    let words = match serde_json::from_slice::<Refused>(&received.body) {
        Ok(refused) => {
            let code = bounded(&refused.error, CODE_CHARS);
            match refused.error_description {
                Some(words) => format!(": {code}: {}", bounded(&words, WORDS_CHARS)),
                None => format!(": {code}"),
            }
        }
        Err(_) => String::new(),
    };
    // Also a secret that is too short to be looked for in all that is shown.
    let words = if words.contains(secret) {
        ": its words are not shown, they repeat the secret".to_owned()
    } else {
        words
    };
    Failure::new(reason, format!("{what} (HTTP {status}){words}"))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn answer(status: u16, body: &str) -> Received {
        Received {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
            way: 0,
            hidden: Hidden::default(),
        }
    }

    #[test]
    fn a_token_is_used_until_shortly_before_its_end() {
        for (life, used) in [
            (3600.0, 3590),
            (20.0, 10),
            (4.0, 2),
            (0.0, 0),
            (-5.0, 0),
            (f64::NAN, 0),
            (1e300, 30 * 24 * 3600 - 10),
        ] {
            assert_eq!(usable_for(life).as_secs(), used, "{life}");
        }
    }

    #[test]
    fn what_is_no_bearer_token_is_refused_without_showing_it() {
        for body in [
            "hunter2",
            r#"{"token": "hunter2"}"#,
            r#"{"access_token": "hunter2", "token_type": "mac"}"#,
            r#"{"access_token": "hunter2\n"}"#,
            r#"{"access_token": "hunter2", "expires_in": "soon"}"#,
            r#"{"access_token": ""}"#,
        ] {
            let failure = granted(&answer(200, body)).err().expect(body);
            assert_eq!(failure.reason, Reason::AuthFailed);
            assert!(!failure.message.contains("hunter2"), "{failure:?}");
        }
        for body in [
            r#"{"access_token": "hunter2"}"#,
            r#"{"access_token": "hunter2", "token_type": "bearer", "expires_in": "3600"}"#,
        ] {
            let Ok(token) = granted(&answer(200, body)) else {
                panic!("{body}")
            };
            assert_eq!(token.header, "Bearer hunter2");
            assert!(!format!("{:?}", token.header).contains("hunter2"));
        }
    }

    #[test]
    fn a_refusal_names_the_servers_code_and_never_the_secret() {
        let failure = refused(
            &answer(
                401,
                r#"{"error": "invalid_client", "error_description": "no such client"}"#,
            ),
            "hunter2",
        );
        assert_eq!(failure.reason, Reason::AuthFailed);
        assert!(
            failure
                .message
                .contains("(HTTP 401): invalid_client: no such client")
        );
        let failure = refused(
            &answer(400, r#"{"error": "bad secret hunter2"}"#),
            "hunter2",
        );
        assert!(!failure.message.contains("hunter2"), "{failure:?}");
        let failure = refused(&answer(503, "busy"), "hunter2");
        assert_eq!(failure.reason, Reason::SourceUnavailable);
        assert!(refused(&answer(302, ""), "x").message.contains("tokenURL"));
    }
}
