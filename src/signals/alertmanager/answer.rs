//! What the HTTP answers of Alertmanager mean.

use jiff::Timestamp;
use serde::Deserialize;

use crate::core::alert::{Alert, Labels, Silence};
use crate::core::reason::Reason;
use crate::core::signal::bounded;
use crate::signals::failure::Failure;
use crate::signals::http::{Received, is_html, start_of};

/// How much of a server's own words a message repeats, in characters.
const WORDS_CHARS: usize = 300;
/// Longest id of a silence that is asked for.
const MAX_ID: usize = 64;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenAlert {
    labels: Labels,
    starts_at: Timestamp,
    updated_at: Timestamp,
    status: WrittenStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenStatus {
    state: String,
    #[serde(default)]
    silenced_by: Option<Vec<String>>,
    #[serde(default)]
    inhibited_by: Option<Vec<String>>,
    /// Since 0.28.
    #[serde(default)]
    muted_by: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSilence {
    id: String,
    #[serde(default)]
    created_by: Option<String>,
    #[serde(default)]
    comment: Option<String>,
    #[serde(default)]
    ends_at: Option<Timestamp>,
}

/// The alerts of an answer, or what is wrong with it.
pub(super) fn alerts(received: &Received) -> Result<Vec<Alert>, Failure> {
    if !received.status.is_success() {
        return Err(refused(received));
    }
    let written: Vec<WrittenAlert> = serde_json::from_slice(&received.body)
        .map_err(|error| no_alerts(received, &error.to_string()))?;
    Ok(written.into_iter().map(read).collect())
}

fn no_alerts(received: &Received, problem: &str) -> Failure {
    let begins = received.body.trim_ascii_start().first();
    let message = if begins == Some(&b'[') {
        format!(
            "the answer is no list of alerts ({}): check the source's `url`",
            bounded(&received.shown(problem), WORDS_CHARS)
        )
    } else {
        format!(
            "what answers is not an Alertmanager (HTTP {}, {}): check host and path prefix of the \
             source's `url`, and that no login page stands before it",
            received.status.as_u16(),
            start_of(&received.without_secrets().body)
        )
    };
    Failure::new(Reason::SourceAnswerUnusable, message)
}

fn read(written: WrittenAlert) -> Alert {
    let WrittenAlert {
        labels,
        starts_at,
        updated_at,
        status,
    } = written;
    let WrittenStatus {
        state,
        silenced_by,
        inhibited_by,
        muted_by,
    } = status;
    let silences: Vec<Silence> = silenced_by
        .unwrap_or_default()
        .into_iter()
        .map(|id| Silence {
            id,
            ..Silence::default()
        })
        .collect();
    let inhibited_by = inhibited_by.unwrap_or_default();
    let muted_by = muted_by.unwrap_or_default();
    let explained = !(silences.is_empty() && inhibited_by.is_empty() && muted_by.is_empty());
    Alert {
        labels,
        starts_at,
        updated_at,
        // A state that is not known here, or suppressed by nobody, is not active.
        unprocessed: state != "active" && !(state == "suppressed" && explained),
        silences,
        inhibited_by,
        muted_by,
    }
}

fn refused(received: &Received) -> Failure {
    let (reason, what) = match received.status.as_u16() {
        // A proxy's own 400 speaks HTML, and is not about the matchers.
        400 | 422 if !is_html(&received.body) => {
            (Reason::QueryInvalid, "Alertmanager refuses the matchers")
        }
        401 | 403 => (Reason::AuthFailed, "the source refuses the credentials"),
        429 => (Reason::RateLimited, "the source asks to slow down"),
        408 | 500..=599 => (
            Reason::SourceUnavailable,
            "the source is not able to answer",
        ),
        404 => (
            Reason::SourceAnswerUnusable,
            "the source has no /api/v2/alerts at its `url`: check host and path prefix",
        ),
        _ => (
            Reason::SourceAnswerUnusable,
            "the source's answer is not one of an Alertmanager",
        ),
    };
    let words = words(&received.body);
    let code = received.status.as_u16();
    let message = match words.as_str() {
        "" => format!("{what} (HTTP {code})"),
        words => format!("{what} (HTTP {code}): {words}"),
    };
    Failure::new(reason, message)
}

/// A refusal's words: a JSON string, an object with a message, or plain text.
fn words(body: &[u8]) -> String {
    if is_html(body) {
        return String::new();
    }
    let text = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(value) => match value.get("message").and_then(|m| m.as_str()) {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(body).into_owned(),
        },
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    bounded(&text, WORDS_CHARS)
}

/// True for what can stand in a path as it is.
pub(super) fn is_plain_id(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// A silence, or nothing when the answer is of no use.
pub(super) fn silence(received: &Received) -> Option<Silence> {
    if !received.status.is_success() {
        return None;
    }
    let WrittenSilence {
        id,
        created_by,
        comment,
        ends_at,
    } = serde_json::from_slice(&received.without_secrets().body).ok()?;
    Some(Silence {
        id,
        author: created_by,
        comment,
        ends_at,
    })
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::HeaderMap;

    use super::*;
    use crate::signals::http::Hidden;

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
    fn a_refusal_tells_what_to_do() {
        for (status, body, reason, words) in [
            (
                400,
                "\"bad matcher format: x\"",
                Reason::QueryInvalid,
                "bad matcher format: x",
            ),
            (
                400,
                "<html>",
                Reason::SourceAnswerUnusable,
                "not one of an Alertmanager (HTTP 400)",
            ),
            (401, "", Reason::AuthFailed, "refuses the credentials"),
            (
                404,
                "404 page not found",
                Reason::SourceAnswerUnusable,
                "check host and path prefix",
            ),
            (429, "", Reason::RateLimited, "slow down"),
            (
                503,
                "{\"message\":\"starting\"}",
                Reason::SourceUnavailable,
                "503): starting",
            ),
            (
                200,
                "<html>login",
                Reason::SourceAnswerUnusable,
                "login page",
            ),
            (
                200,
                "{\"status\":\"success\"}",
                Reason::SourceAnswerUnusable,
                "not an Alertmanager",
            ),
            (
                200,
                "[{\"labels\":3}]",
                Reason::SourceAnswerUnusable,
                "no list of alerts",
            ),
            (200, "", Reason::SourceAnswerUnusable, "empty"),
        ] {
            let failure = alerts(&answer(status, body)).unwrap_err();
            assert_eq!(failure.reason, reason, "{status} {body}");
            assert!(
                failure.message.contains(words),
                "{status} {body}: {}",
                failure.message
            );
        }
    }

    #[test]
    fn only_what_is_called_active_is_active() {
        let alert = |status: &str| {
            let body = format!(
                "[{{\"labels\":{{\"alertname\":\"x\"}},\"annotations\":{{}},\"startsAt\":\"2026-01-01T00:00:00.5Z\",\
                 \"updatedAt\":\"2026-01-01T01:00:00+01:00\",\"fingerprint\":\"f\",\"status\":{status}}}]"
            );
            alerts(&answer(200, &body)).unwrap().remove(0)
        };
        assert!(!alert("{\"state\":\"active\",\"silencedBy\":[]}").unprocessed);
        assert!(alert("{\"state\":\"unprocessed\"}").unprocessed);
        assert!(alert("{\"state\":\"suppressed\",\"silencedBy\":null}").unprocessed);
        assert!(alert("{\"state\":\"later\"}").unprocessed);
        let silenced = alert("{\"state\":\"suppressed\",\"silencedBy\":[\"id\"]}");
        assert_eq!((silenced.unprocessed, silenced.silences.len()), (false, 1));
    }

    #[test]
    fn an_id_is_no_path() {
        assert!(is_plain_id("0b2f-A9"));
        for id in ["", "..", "a/b", "a?b", &"x".repeat(65)] {
            assert!(!is_plain_id(id), "{id}");
        }
    }
}
