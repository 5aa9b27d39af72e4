//! What a delivery says: Alertmanager's webhook, version 4.

use jiff::Timestamp;
use serde::Deserialize;

use super::counts::Delivery;
use crate::core::alert::{Delivered, Labels};
use crate::core::signal::bounded;

/// The version that Alertmanager has written since 0.5.
const VERSION: &str = "4";
/// How much of a parser's words an answer repeats, in characters.
const WORDS_CHARS: usize = 200;

/// Only what is used; everything else is data that nobody needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    #[serde(default)]
    truncated_alerts: u64,
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Version {
    version: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Alert {
    status: Status,
    labels: Labels,
    starts_at: Timestamp,
    #[serde(default)]
    ends_at: Option<Timestamp>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Status {
    Firing,
    Resolved,
}

/// Why a delivery cannot be used, and in words for whoever configured its sender.
pub(super) type Refusal = (Delivery, String);

/// Reads the body of a delivery.
pub(super) fn read(body: &[u8]) -> Result<Vec<Delivered>, Refusal> {
    let malformed = |error: serde_json::Error| {
        let words = bounded(&error.to_string(), WORDS_CHARS);
        let message = format!("not a message of Alertmanager's webhook: {words}");
        (Delivery::Malformed, message)
    };
    let Version { version } = serde_json::from_slice(body).map_err(malformed)?;
    if version.as_str() != Some(VERSION) {
        let seen = bounded(&version.to_string(), 40);
        let message = format!("the message is of version {seen}, wanted \"{VERSION}\"");
        return Err((Delivery::WrongVersion, message));
    }
    let Message {
        truncated_alerts,
        alerts,
    } = serde_json::from_slice(body).map_err(malformed)?;
    if truncated_alerts > 0 {
        let message = format!(
            "{truncated_alerts} alerts were left out, and nobody knows whether they fire: set the \
             receiver's max_alerts to 0, or route fewer alerts to it"
        );
        return Err((Delivery::Truncated, message));
    }
    alerts
        .into_iter()
        .map(|alert| {
            let Alert {
                status,
                labels,
                starts_at,
                ends_at,
            } = alert;
            if starts_at <= Timestamp::UNIX_EPOCH {
                let message = format!("an alert starts at {starts_at}, which is no time");
                return Err((Delivery::Malformed, message));
            }
            Ok(Delivered {
                labels,
                firing: status == Status::Firing,
                starts_at: exact(starts_at),
                // The year 1 stands for "not known".
                ends_at: ends_at
                    .filter(|end| *end > Timestamp::UNIX_EPOCH)
                    .map(exact),
            })
        })
        .collect()
}

/// As exact as everything else that is stored.
fn exact(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_as_alertmanager_writes_it() {
        let body = br#"{"receiver":"defragd","status":"firing","alerts":[{"status":"firing",
            "labels":{"alertname":"x"},"annotations":{"summary":"s"},"startsAt":"2026-01-01T00:00:00.123456789Z",
            "endsAt":"0001-01-01T00:00:00Z","generatorURL":"","fingerprint":"1"},
            {"status":"resolved","labels":{"alertname":"y"},"annotations":{},
            "startsAt":"2026-01-01T00:00:00Z","endsAt":"2026-01-01T01:00:00+01:00","generatorURL":"","fingerprint":"2"}],
            "groupLabels":{},"commonLabels":{},"commonAnnotations":{},"externalURL":"http://am","version":"4",
            "groupKey":"{}:{}","truncatedAlerts":0}"#;
        let read = read(body).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].firing, read[0].ends_at), (true, None));
        assert_eq!(read[0].starts_at.to_string(), "2026-01-01T00:00:00.123Z");
        assert_eq!(read[1].ends_at.unwrap().to_string(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn t82_what_is_refused_and_why() {
        for (body, delivery, words) in [
            ("", Delivery::Malformed, "not a message"),
            ("[]", Delivery::Malformed, "not a message"),
            ("{}", Delivery::Malformed, "version"),
            (
                r#"{"version":"5","alerts":[]}"#,
                Delivery::WrongVersion,
                "version \"5\", wanted \"4\"",
            ),
            (
                r#"{"version":4,"alerts":[]}"#,
                Delivery::WrongVersion,
                "version 4",
            ),
            (
                r#"{"version":"4"}"#,
                Delivery::Malformed,
                "missing field `alerts`",
            ),
            (
                r#"{"version":"4","alerts":[{"status":"maybe"}]}"#,
                Delivery::Malformed,
                "maybe",
            ),
            (
                r#"{"version":"4","alerts":[{"status":"firing","labels":{},"startsAt":"0001-01-01T00:00:00Z"}]}"#,
                Delivery::Malformed,
                "no time",
            ),
            (
                r#"{"version":"4","truncatedAlerts":3,"alerts":[]}"#,
                Delivery::Truncated,
                "max_alerts to 0",
            ),
        ] {
            let (seen, said) = read(body.as_bytes()).unwrap_err();
            assert_eq!(seen, delivery, "{body}");
            assert!(said.contains(words), "{body}: {said}");
        }
    }
}
