//! A whole HTTP answer, received within bounds.

use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::error::causes;
use super::hidden::Hidden;
use crate::core::reason::Reason;
use crate::core::signal::bounded;
use crate::signals::failure::Failure;

/// Bytes read of an answer that refuses; a message shows less.
const MAX_REFUSAL: usize = 64 * 1024;
/// No source is left alone for longer than this, whatever it asks for.
const LONGEST_RETRY_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// A whole HTTP answer.
pub(in crate::signals) struct Received {
    pub(in crate::signals) status: StatusCode,
    pub(in crate::signals) headers: HeaderMap,
    pub(in crate::signals) body: Vec<u8>,
    /// Which of the ways of asking brought it, from 0.
    pub(in crate::signals) way: usize,
    /// What its words may repeat and nobody is to see.
    pub(in crate::signals) hidden: Hidden,
}

impl Received {
    /// `Retry-After` in seconds or as a date; never negative, bounded.
    pub(super) fn retry_after(&self, now: Timestamp) -> Option<SignedDuration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let wait = match text.parse::<u32>() {
            Ok(seconds) => SignedDuration::from_secs(i64::from(seconds)),
            Err(_) => http_date(text)?.duration_since(now),
        };
        Some(wait.clamp(SignedDuration::ZERO, LONGEST_RETRY_AFTER))
    }

    /// For how long the server wants no more requests, and why.
    pub(super) fn pause(&self) -> Option<(SignedDuration, Reason)> {
        let reason = match self.status {
            StatusCode::TOO_MANY_REQUESTS => Reason::RateLimited,
            StatusCode::SERVICE_UNAVAILABLE => Reason::SourceUnavailable,
            _ => return None,
        };
        Some((self.retry_after(Timestamp::now())?, reason))
    }
}

impl Received {
    /// Takes the secrets that were sent out of an answer whose own words may be
    /// shown: a refusal, or what is no JSON. Some servers repeat what they refuse.
    ///
    /// The numbers and labels of an answer stay as they are; what is shown of its
    /// words has to be taken from [`Received::without_secrets`].
    pub(super) fn hide(&mut self, secrets: &Hidden) {
        let is_json = matches!(self.body.trim_ascii_start().first(), Some(b'{' | b'['));
        if self.status.is_success() && is_json {
            self.hidden = secrets.clone();
        } else {
            self.body = secrets.out_of(&self.body);
        }
    }

    /// The same answer for what is made of its words, not of its values.
    pub(in crate::signals) fn without_secrets(&self) -> Received {
        Received {
            status: self.status,
            headers: self.headers.clone(),
            body: self.hidden.out_of(&self.body),
            way: self.way,
            hidden: Hidden::default(),
        }
    }

    /// A sentence of the answer, to be shown.
    pub(in crate::signals) fn shown(&self, words: &str) -> String {
        String::from_utf8_lossy(&self.hidden.out_of(words.as_bytes())).into_owned()
    }
}

/// A date as HTTP writes it: `Wed, 21 Oct 2015 07:28:00 GMT`.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()
}

/// Reads a body within bounds (S30); the time limit is the caller's.
pub(super) async fn receive(
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
        way: 0,
        hidden: Hidden::default(),
    })
}

/// A page for a browser.
pub(in crate::signals) fn is_html(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"<")
}

pub(in crate::signals) fn looks_like_json(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{")
}

/// The first words, for a message about what should not be there.
pub(in crate::signals) fn start_of(body: &[u8]) -> String {
    let text = bounded(&String::from_utf8_lossy(body), 60);
    if text.is_empty() {
        "empty".to_owned()
    } else {
        format!("starting {text:?}")
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn retry_after_is_read_as_seconds_or_date() {
        let now: Timestamp = "2015-10-21T07:28:00Z".parse().unwrap();
        for (text, wanted) in [
            ("7", Some(7)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", Some(30)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
            ("999999999", Some(3600)),
            ("-5", None),
            ("soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
            let received = Received {
                status: StatusCode::TOO_MANY_REQUESTS,
                headers,
                body: Vec::new(),
                way: 0,
                hidden: Hidden::default(),
            };
            assert_eq!(
                received.retry_after(now),
                wanted.map(SignedDuration::from_secs),
                "{text}"
            );
        }
    }
}
