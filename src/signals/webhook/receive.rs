//! `POST /api/v1/alerts/{source}`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt;
use tokio::sync::Semaphore;

use super::counts::Delivery;
use super::guard::permits;
use super::message::{self, Refusal};
use super::{NotKept, WebhookSource};
use crate::core::alert::{Delivered, InboxError, Outcome};
use crate::core::signal::bounded;
use crate::signals::Sources;

/// How long a delivery may take until it is stored.
const LIMIT: Duration = Duration::from_secs(15);
/// Deliveries that are read at the same time; others wait for their turn.
const AT_ONCE: usize = 8;
/// Bytes that are read of what is too large, and thrown away: who is still writing
/// when the connection closes does not see the answer, and would try again.
const DRAINED: usize = 16 << 20;
/// How much of the name of an alert is shown, in characters.
const NAME_CHARS: usize = 60;

/// The one page; none where no source takes deliveries.
pub fn router(sources: Arc<Sources>) -> Router {
    if sources.webhooks().next().is_none() {
        return Router::new();
    }
    Router::new()
        .route("/api/v1/alerts/{source}", post(receive))
        .with_state(Door {
            sources,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        })
}

#[derive(Clone)]
struct Door {
    sources: Arc<Sources>,
    turns: Arc<Semaphore>,
}

async fn receive(
    State(door): State<Door>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(source) = door.sources.webhook(&name) else {
        door.sources.delivered_to_nobody();
        let words = "no source of that name takes deliveries".to_owned();
        return answer(Delivery::UnknownSource, words);
    };
    let taken = tokio::time::timeout(LIMIT, take(source, &door.turns, &headers, body)).await;
    let (delivery, words) = match taken {
        Ok(Ok(words)) => (Delivery::Stored, words),
        Ok(Err(refusal)) => refusal,
        Err(_) => (
            Delivery::Incomplete,
            format!("the delivery was not complete within {LIMIT:?}"),
        ),
    };
    source.counts.delivery(delivery);
    if delivery == Delivery::Stored && !words.is_empty() {
        tracing::warn!(
            source = source.name(),
            "a delivery is stored in part: {words}"
        );
    } else if delivery == Delivery::Stored {
        tracing::debug!(source = source.name(), "alerts were delivered");
    } else if delivery == Delivery::Unauthorized {
        // Anybody can cause it: it is counted, and must not fill the log.
        tracing::debug!(source = source.name(), "{words}");
    } else {
        tracing::warn!(
            source = source.name(),
            result = delivery.as_str(),
            "a delivery of alerts is refused: {words}"
        );
    }
    answer(delivery, words)
}

fn answer(delivery: Delivery, words: String) -> Response {
    let code = StatusCode::from_u16(delivery.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = if words.is_empty() {
        words
    } else {
        format!("{words}\n")
    };
    let mut response = (code, body).into_response();
    if delivery == Delivery::Unauthorized {
        let schemes = header::HeaderValue::from_static("Bearer, Basic realm=\"defragd\"");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, schemes);
    }
    response
}

/// Stores the delivery; what of it is left out stands in the words.
async fn take(
    source: &Arc<WebhookSource>,
    turns: &Arc<Semaphore>,
    headers: &HeaderMap,
    body: Body,
) -> Result<String, Refusal> {
    let shown = headers.get(header::AUTHORIZATION).map(|v| v.as_bytes());
    match permits(&source.config.credentials, shown).await {
        Ok(true) => {}
        Ok(false) => {
            let words = "the credentials are missing or wrong".to_owned();
            return Err((Delivery::Unauthorized, words));
        }
        Err(failure) => {
            // The path of a file is nothing for a stranger.
            tracing::error!(source = source.name(), "{}", failure.message);
            return Err((
                Delivery::NoSecret,
                "the credentials cannot be checked".to_owned(),
            ));
        }
    }
    let turn = turns
        .clone()
        .acquire_owned()
        .await
        .map_err(|_| (Delivery::NotStored, "no turn".to_owned()))?;
    let body = read(body, source.config.max_body).await?;
    let delivery = message::read(&body)?;
    drop(body);
    let names: Vec<String> = delivery.iter().map(name).collect();
    let outcomes = source.deliver(delivery, turn).await.map_err(|error| {
        let kind = match &error {
            NotKept::Inbox(InboxError::Full) => Delivery::Full,
            NotKept::Inbox(_) => Delivery::Malformed,
            NotKept::NotReady | NotKept::Store(_) => Delivery::NotStored,
        };
        (kind, error.to_string())
    })?;
    Ok(left_out(&names, &outcomes))
}

/// What an alert is called, bounded and escaped.
fn name(alert: &Delivered) -> String {
    let name = alert.labels.get("alertname").map_or("", String::as_str);
    bounded(name, NAME_CHARS)
}

/// Empty when all of them are kept.
fn left_out(names: &[String], outcomes: &[Outcome]) -> String {
    let mut left_out = names.iter().zip(outcomes).filter_map(|(name, outcome)| {
        let Outcome::TooLong { bytes } = *outcome else {
            return None;
        };
        Some((name, InboxError::LabelsTooLong { bytes }))
    });
    let Some((name, why)) = left_out.next() else {
        return String::new();
    };
    let (count, all) = (1 + left_out.count(), outcomes.len());
    format!("{count} of {all} alerts are left out, the first of them is {name:?}: {why}")
}

async fn read(body: Body, limit: usize) -> Result<Vec<u8>, Refusal> {
    let mut whole = Vec::new();
    let mut seen = 0_usize;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            (
                Delivery::Incomplete,
                format!("the delivery broke off: {error}"),
            )
        })?;
        seen = seen.saturating_add(chunk.len());
        if seen <= limit {
            whole.extend_from_slice(&chunk);
        } else if seen > DRAINED.max(limit) {
            break;
        }
    }
    if seen > limit {
        let words = format!(
            "the message is longer than {limit} bytes: raise maxBodyBytes, or group fewer alerts"
        );
        return Err((Delivery::TooLarge, words));
    }
    Ok(whole)
}
