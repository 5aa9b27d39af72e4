//! What the HTTP answers mean.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::core::reason::Reason;
use crate::core::signal::{Answer, AnswerKind, Series, bounded};
use crate::signals::failure::Failure;
use crate::signals::http::{Received, is_html, looks_like_json, start_of};

/// How much of a server's own words a message repeats, in characters.
const WORDS_CHARS: usize = 300;
/// Warnings kept of one answer; their number is told, not their all.
const MAX_WARNINGS: usize = 20;
/// How an annotation starts that hides no series (S13).
const INFO: &str = "PromQL info: ";
/// What Mimir and Cortex say to a request without a tenant.
const NO_TENANT: &str = "no org id";

#[derive(Deserialize)]
struct Envelope {
    status: String,
    data: Option<Data>,
    #[serde(rename = "errorType", default)]
    error_type: Option<String>,
    #[serde(default)]
    error: Option<String>,
    /// May hide series (S11). `infos` beside it are harmless and not read (S13).
    #[serde(default)]
    warnings: Option<Vec<String>>,
    /// VictoriaMetrics: some of its storage nodes did not answer.
    #[serde(rename = "isPartial", default)]
    is_partial: Option<bool>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Sample>),
    Scalar((IgnoredAny, String)),
    Matrix(Vec<IgnoredAny>),
    String(IgnoredAny),
}

#[derive(Deserialize)]
struct Sample {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    value: Option<(IgnoredAny, String)>,
    histogram: Option<IgnoredAny>,
}

/// Turns an HTTP answer into core's, or says what is wrong with it.
pub(super) fn interpret(received: &Received) -> Result<Answer, Failure> {
    if received.status.is_success() {
        return success(received);
    }
    let envelope = serde_json::from_slice::<Envelope>(&received.body).ok();
    let reported = envelope
        .as_ref()
        .and_then(|envelope| envelope.error.as_deref());
    let (reason, what) = match received.status.as_u16() {
        // The query was understood; what it reads could not be reached.
        422 if reported.is_some_and(is_storage_trouble) => (
            Reason::SourceUnavailable,
            "the source is not able to reach its data",
        ),
        422 if !is_html(&received.body) => (Reason::QueryInvalid, "the source refuses the query"),
        400 if reported.is_some() => (Reason::QueryInvalid, "the source refuses the query"),
        // Not the API's own words, so not about the query.
        400 => (
            Reason::SourceAnswerUnusable,
            "the source refuses the request: check `url` and what stands before it",
        ),
        401 | 403 => (Reason::AuthFailed, "the source refuses the credentials"),
        429 => (Reason::RateLimited, "the source asks to slow down"),
        408 | 500..=599 => (
            Reason::SourceUnavailable,
            "the source is not able to answer",
        ),
        404 => (
            Reason::SourceAnswerUnusable,
            "the source has no /api/v1/query at its `url`: check host and path prefix",
        ),
        300..=399 => (
            Reason::SourceAnswerUnusable,
            "the source redirects in a way that loses the query: set `url` to where it leads",
        ),
        _ => (
            Reason::SourceAnswerUnusable,
            "the source's answer is not one of a Prometheus API",
        ),
    };
    let words = words(&received.body, envelope.as_ref());
    let remedy = if words.contains(NO_TENANT) {
        ": name the tenant in headers or headerFiles, as X-Scope-OrgID"
    } else {
        ""
    };
    let code = received.status.as_u16();
    let message = match words.as_str() {
        "" => format!("{what} (HTTP {code})"),
        words => format!("{what} (HTTP {code}): {words}{remedy}"),
    };
    Err(Failure::new(reason, message))
}

/// What an answer of success says. What is wrong with it is told in its own words, and
/// those are looked through for secrets first.
fn success(received: &Received) -> Result<Answer, Failure> {
    let mut answer = read(received).map_err(|failure| {
        let of_the_rest = read(&received.without_secrets()).err();
        of_the_rest.unwrap_or_else(|| Failure {
            message: received.shown(&failure.message),
            ..failure
        })
    })?;
    for warning in &mut answer.warnings {
        *warning = received.shown(warning);
    }
    Ok(answer)
}

fn read(received: &Received) -> Result<Answer, Failure> {
    let unusable = |message: String| Failure::new(Reason::SourceAnswerUnusable, message);
    let envelope: Envelope = serde_json::from_slice(&received.body).map_err(|error| {
        if is_html(&received.body) || !looks_like_json(&received.body) {
            unusable(format!(
                "what answers is not a Prometheus API (HTTP {}, {}): check host and path prefix of \
                 the source's `url`, and that no login page stands before it",
                received.status.as_u16(),
                start_of(&received.body),
            ))
        } else {
            unusable(format!(
                "the answer is not one of a Prometheus query ({}): check the source's `url`",
                bounded(&error.to_string(), WORDS_CHARS)
            ))
        }
    })?;
    if envelope.status != "success" {
        return Err(reported_error(&envelope));
    }
    let data = envelope
        .data
        .ok_or_else(|| unusable("the answer says success but carries no data".to_owned()))?;
    let mut warnings = envelope.warnings.unwrap_or_default();
    // Where infos have no place of their own, they stand among the warnings.
    warnings.retain(|warning| !warning.starts_with(INFO));
    warnings.truncate(MAX_WARNINGS);
    Ok(Answer {
        result: result(data).map_err(unusable)?,
        warnings,
        partial: envelope.is_partial.unwrap_or(false),
    })
}

/// S10: HTTP 200, but `status: error`.
fn reported_error(envelope: &Envelope) -> Failure {
    let kind = envelope.error_type.as_deref().unwrap_or("unnamed");
    let reason = match kind {
        "execution" if envelope.error.as_deref().is_some_and(is_storage_trouble) => {
            Reason::SourceUnavailable
        }
        "bad_data" | "execution" => Reason::QueryInvalid,
        "too_many_requests" => Reason::RateLimited,
        "timeout" | "canceled" | "internal" | "unavailable" => Reason::SourceUnavailable,
        _ => Reason::SourceAnswerUnusable,
    };
    let error = envelope.error.as_deref().unwrap_or("no message");
    Failure::new(
        reason,
        format!(
            "the source reports an error: {}: {}",
            bounded(kind, 40),
            bounded(error, WORDS_CHARS)
        ),
    )
}

fn result(data: Data) -> Result<AnswerKind, String> {
    match data {
        Data::Scalar((_, value)) => Ok(AnswerKind::Scalar(number(&value)?)),
        Data::Matrix(series) => Ok(AnswerKind::Unsuitable {
            kind: "matrix",
            count: series.len(),
        }),
        Data::String(_) => Ok(AnswerKind::Unsuitable {
            kind: "string",
            count: 1,
        }),
        Data::Vector(samples) => {
            let histograms = samples.iter().filter(|s| s.histogram.is_some()).count();
            if histograms > 0 {
                return Ok(AnswerKind::Unsuitable {
                    kind: "native histogram",
                    count: histograms,
                });
            }
            samples
                .into_iter()
                .map(|sample| {
                    let (_, value) = sample.value.ok_or("a series of the answer has no value")?;
                    Ok(Series {
                        labels: sample.metric,
                        value: number(&value)?,
                    })
                })
                .collect::<Result<_, String>>()
                .map(AnswerKind::Vector)
        }
    }
}

/// A sample's value as Prometheus writes it: `NaN`, `+Inf`, `-Inf` or a number.
fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| {
        format!(
            "the answer holds {:?} where a number should be",
            bounded(text, 40)
        )
    })
}

/// True when an error of execution is about reaching the data and not about the
/// query: Thanos and Mimir report a store that is away as 422 too. Reading series
/// is what failed, and the failure is one of a connection.
fn is_storage_trouble(error: &str) -> bool {
    const AWAY: &[&str] = &[
        "code = Unavailable",
        "code = DeadlineExceeded",
        "connection refused",
        "connection reset",
        "context deadline exceeded",
        "no such host",
        "i/o timeout",
    ];
    error.contains("expanding series") && AWAY.iter().any(|sign| error.contains(sign))
}

/// The error text of a refusing answer: that of the API, or the body itself.
fn words(body: &[u8], envelope: Option<&Envelope>) -> String {
    if let Some(envelope) = envelope
        && let Some(error) = &envelope.error
    {
        let kind = (envelope.error_type.as_ref()).map(|kind| format!("{}: ", bounded(kind, 40)));
        return format!(
            "{}{}",
            kind.unwrap_or_default(),
            bounded(error, WORDS_CHARS)
        );
    }
    bounded(&String::from_utf8_lossy(body), WORDS_CHARS)
}

#[cfg(test)]
mod tests;
