//! Access tokens from a token server: OAuth2 client credentials.
//!
//! One token serves all questions until shortly before it expires, or until it is
//! refused. One request for a token is under way at a time, and its failure is the
//! answer to all who waited for it. The secret goes to the token server only, by
//! no redirect, and is never part of a message.

use std::sync::{Mutex as Lock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::HeaderValue;
use reqwest::{StatusCode, redirect};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::config::OAuth2Config;
use super::error::{causes, chain};
use super::received::{Received, receive};
use super::secret;
use super::tls::{ClientCache, SourceError};
use crate::core::reason::Reason;
use crate::core::signal::bounded;
use crate::signals::failure::Failure;

/// An answer with a token is short; a page of a login is not one.
const MAX_ANSWER: usize = 64 * 1024;
/// A token is not used any more so long before it expires: a request takes time.
const LEEWAY: Duration = Duration::from_secs(10);
/// Longer lives are taken for this one.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Characters of an error code that are shown.
const CODE_CHARS: usize = 60;
/// Characters of the words beside it that are shown.
const WORDS_CHARS: usize = 200;

/// The tokens of one source.
pub(super) struct Tokens {
    config: OAuth2Config,
    clients: ClientCache,
    kept: Mutex<Kept>,
    /// How the server takes the client's secret, as far as it is known.
    style: Lock<Style>,
}

/// What is known from the last request for a token.
#[derive(Default)]
struct Kept {
    token: Option<Token>,
    failed: Option<(Instant, Failure)>,
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
        use_proxy: bool,
    ) -> Result<Self, SourceError> {
        let plain = config.token_url.scheme() == "http";
        let none = redirect::Policy::none;
        Ok(Tokens {
            clients: ClientCache::new(name, plain, &config.tls, use_proxy, none)?,
            config,
            kept: Mutex::new(Kept::default()),
            style: Lock::new(Style::Header),
        })
    }

    /// The header with a token that is good for now.
    pub(super) async fn header(&self) -> Result<HeaderValue, Failure> {
        let asked_at = Instant::now();
        let mut kept = self.kept.lock().await;
        if let Some(token) = &kept.token
            && token.until.is_none_or(|until| asked_at < until)
        {
            return Ok(token.header.clone());
        }
        if let Some((at, failure)) = &kept.failed
            && *at >= asked_at
        {
            return Err(failure.clone());
        }
        match self.ask().await {
            Ok(token) => {
                let header = token.header.clone();
                *kept = Kept {
                    token: Some(token),
                    failed: None,
                };
                Ok(header)
            }
            Err(failure) => {
                *kept = Kept {
                    token: None,
                    failed: Some((Instant::now(), failure.clone())),
                };
                Err(failure)
            }
        }
    }

    /// Forgets a token that was refused, unless another one has replaced it.
    pub(super) async fn discard(&self, refused: &HeaderValue) {
        let mut kept = self.kept.lock().await;
        if (kept.token.as_ref()).is_some_and(|token| token.header == *refused) {
            kept.token = None;
        }
    }

    async fn ask(&self) -> Result<Token, Failure> {
        // Read anew, so that a rotated secret is used.
        let secret = secret::read(&self.config.client_secret_file).await?;
        let first = *self.style.lock().unwrap_or_else(PoisonError::into_inner);
        let mut received = self.send(&secret, first).await?;
        if first == Style::Header
            && matches!(
                received.status,
                StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED
            )
        {
            let by_form = self.send(&secret, Style::Form).await?;
            if by_form.status.is_success() {
                *self.style.lock().unwrap_or_else(PoisonError::into_inner) = Style::Form;
                received = by_form;
            }
        }
        if received.status.is_success() {
            granted(&received)
        } else {
            Err(refused(&received, &secret))
        }
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
        let response = request
            .header("accept", "application/json")
            .form(&form)
            .send()
            .await
            .map_err(|error| {
                Failure::new(
                    Reason::SourceUnavailable,
                    format!("failed to reach the token server: {}", causes(&error)),
                )
            })?;
        receive(response, MAX_ANSWER)
            .await
            .map_err(|(outcome, failure)| match outcome {
                "too_large" => no_token(format!("its answer is longer than {MAX_ANSWER} bytes")),
                _ => failure,
            })
    }
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
            bounded(kind, CODE_CHARS)
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
    let retry_after = received.retry_after(Timestamp::now());
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
    // A server that repeats the secret must not bring it into a status.
    let words = if words.contains(secret) {
        ": its words are not shown, they repeat the secret".to_owned()
    } else {
        words
    };
    Failure {
        reason,
        message: format!("{what} (HTTP {status}){words}"),
        retry_after,
    }
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
