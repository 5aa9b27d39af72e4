//! What the API server answers, for its own part and for the adapter.

use std::collections::BTreeMap;

use http::StatusCode;
use http::header::{DATE, RETRY_AFTER};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::Refusal;
use crate::core::reason::Reason;
use crate::core::signal::{About, Metric, MetricItem, bounded};

/// How much of the server's words a message shows, in characters.
const SAID_CHARS: usize = 300;
/// The longest pause that a server can ask for.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// An answer as it came.
pub(super) struct Received {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    pub(super) at: Timestamp,
    /// The server's clock minus this machine's; zero when that is not known, or
    /// no more than what whole seconds and the way may make of it.
    pub(super) ahead: SignedDuration,
    retry_after: Option<SignedDuration>,
}

impl Received {
    pub(super) fn new(
        head: http::response::Parts,
        body: Vec<u8>,
        sent: Timestamp,
        at: Timestamp,
    ) -> Self {
        let text = |name| {
            let value: Option<&http::HeaderValue> = head.headers.get(name);
            value.and_then(|value| value.to_str().ok())
        };
        let date = text(DATE).and_then(|date| {
            jiff::fmt::rfc2822::DateTimeParser::new()
                .parse_timestamp(date)
                .ok()
        });
        let retry_after = text(RETRY_AFTER)
            .and_then(|seconds| seconds.trim().parse::<u32>().ok())
            .map(|seconds| SignedDuration::from_secs(seconds.into()).min(LONGEST_PAUSE));
        Received {
            status: head.status,
            body,
            at,
            ahead: date.map_or(SignedDuration::ZERO, |date| ahead(date, sent, at)),
            retry_after,
        }
    }

    /// The values of a metric.
    pub(super) fn items(&self, metric: &Metric) -> Result<Vec<MetricItem>, Refusal> {
        if self.status != StatusCode::OK {
            return Err(self.refusal(Some(metric)));
        }
        let list: List = self.json()?;
        Ok(list.items.into_iter().map(Item::into_item).collect())
    }

    /// A document about what the API server serves; `None` when it serves nothing
    /// of that name.
    pub(super) fn discovered(&self) -> Result<Option<Value>, Refusal> {
        match self.status {
            StatusCode::OK => self.json().map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refusal(None)),
        }
    }

    fn json<T: for<'de> Deserialize<'de>>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let message = format!("the answer is not what the metrics API says: {error}");
            Refusal::failed(Reason::SourceAnswerUnusable, bounded(&message, SAID_CHARS))
        })
    }

    /// What an answer other than 200 means, to a metric or to a question about
    /// what is served.
    fn refusal(&self, metric: Option<&Metric>) -> Refusal {
        let said = self.said();
        let code = self.status.as_u16();
        let group = group(metric);
        let (reason, message) = match code {
            404 => {
                let name = metric.map_or("what was asked for", Metric::name);
                let name = bounded(name, 100);
                return Refusal::Missing(format!(
                    "no {name:?} is served by {group} here (404: {said})"
                ));
            }
            403 => (
                Reason::AuthFailed,
                format!(
                    "reading the metric is forbidden (403: {said}): {}",
                    rule(metric)
                ),
            ),
            401 => (
                Reason::AuthFailed,
                format!("the API server does not accept the credentials (401: {said})"),
            ),
            429 => (
                Reason::RateLimited,
                format!("the API server asks to slow down (429: {said})"),
            ),
            503 => (
                Reason::SourceUnavailable,
                format!(
                    "the API service of {group} is not available (503: {said}): look at its \
                     APIService and at the adapter"
                ),
            ),
            400 | 422 => (
                Reason::QueryInvalid,
                format!("the metrics API refuses the question ({code}: {said})"),
            ),
            _ if self.status.is_server_error() => (
                Reason::SourceUnavailable,
                format!("the adapter fails ({code}: {said})"),
            ),
            _ => (
                Reason::SourceAnswerUnusable,
                format!("the metrics API answers with {code}: {said}"),
            ),
        };
        Refusal::failed(reason, message)
    }

    /// For how long the server wants no more requests, and why.
    pub(super) fn pause(&self) -> Option<(SignedDuration, Reason)> {
        let reason = match self.status {
            StatusCode::TOO_MANY_REQUESTS => Reason::RateLimited,
            StatusCode::SERVICE_UNAVAILABLE => Reason::SourceUnavailable,
            _ => return None,
        };
        Some((self.retry_after?, reason))
    }

    /// The server's words: a `Status`, or whatever text it is.
    fn said(&self) -> String {
        #[derive(Deserialize)]
        struct Status {
            message: String,
        }
        let text = match serde_json::from_slice::<Status>(&self.body) {
            Ok(status) => status.message,
            Err(_) => String::from_utf8_lossy(&self.body).into_owned(),
        };
        let said = bounded(&text, SAID_CHARS);
        if said.is_empty() {
            "no more words".to_owned()
        } else {
            said
        }
    }
}

fn group(metric: Option<&Metric>) -> &'static str {
    match metric {
        Some(Metric::External { .. }) => "external.metrics.k8s.io",
        Some(Metric::Object { .. }) => "custom.metrics.k8s.io",
        None => "the API server",
    }
}

/// The rule that lets the metric be read.
fn rule(metric: Option<&Metric>) -> String {
    let verb = match metric {
        Some(Metric::External { .. }) => "list",
        Some(Metric::Object { .. }) => "get",
        None => return "bind the ClusterRole system:discovery to its service account".to_owned(),
    };
    format!(
        "grant defragd's service account {verb} on * of {}, as the chart does with \
         rbac.metricsApis: true",
        group(metric)
    )
}

/// A header of whole seconds against the middle between sending and receiving.
fn ahead(date: Timestamp, sent: Timestamp, at: Timestamp) -> SignedDuration {
    const HALF_A_SECOND: SignedDuration = SignedDuration::from_millis(500);
    const COARSENESS: SignedDuration = SignedDuration::from_millis(1500);
    let halfway = at.duration_since(sent) / 2;
    let ahead = date.duration_since(sent) + HALF_A_SECOND - halfway;
    if ahead.abs() > COARSENESS + halfway.abs() {
        ahead
    } else {
        SignedDuration::ZERO
    }
}

#[derive(Deserialize)]
struct List {
    /// `null` where a Go server has an empty list; what has none is no list.
    #[serde(deserialize_with = "or_default")]
    items: Vec<Item>,
}

/// A value of either API, in any of their versions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    /// Of both APIs' first version.
    metric_name: Option<String>,
    /// Of `custom.metrics.k8s.io/v1beta2`.
    metric: Option<MetricName>,
    #[serde(default, deserialize_with = "or_default")]
    metric_labels: BTreeMap<String, String>,
    described_object: Option<Described>,
    timestamp: Option<Timestamp>,
    window_seconds: Option<i64>,
    value: Written,
}

#[derive(Deserialize)]
struct MetricName {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

/// A quantity: a text, and from careless adapters a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Number(serde_json::Number),
}

/// `null` is what is absent.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Item {
    fn into_item(self) -> MetricItem {
        let Item {
            metric_name,
            metric,
            metric_labels,
            described_object,
            timestamp,
            window_seconds,
            value,
        } = self;
        // An adapter without a name to tell writes an empty one.
        let metric = metric_name.or(metric.map(|metric| metric.name));
        MetricItem {
            labels: metric_labels,
            value: match value {
                Written::Text(text) => text,
                Written::Number(number) => number.to_string(),
            },
            at: timestamp,
            window: SignedDuration::from_secs(window_seconds.unwrap_or_default().max(0)),
            about: described_object.map(|described| About {
                api_version: described.api_version,
                kind: described.kind,
                namespace: described.namespace,
                name: described.name,
            }),
            metric: metric.filter(|name| !name.is_empty()),
        }
    }
}
