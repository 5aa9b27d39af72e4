//! `/metrics`, `/healthz` and `/readyz`.
//!
//! The two answers to "how are you" differ on purpose. `/healthz` says whether
//! killing the process could help: it fails when the engine does not come round
//! any more, and not while a source or a cluster is down, since a restart would
//! change nothing about that, nor in a replica that waits for the leadership.
//! `/readyz` says whether the process does its work, or could take it over: the
//! objects have been read once, and in standalone the state is open and locked. A
//! process that waits for another one's lock, reads a large folder, or does not
//! reach the API server, is alive and not ready.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::Telemetry;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the token is cancelled.
pub async fn serve(listener: TcpListener, pages: Router, stop: CancellationToken) {
    let served = axum::serve(listener, pages)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "serving metrics and health ended");
    }
}

/// The three pages.
pub fn router(telemetry: Arc<Telemetry>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(Pages {
            telemetry,
            scraping: Arc::default(),
        })
}

#[derive(Clone)]
struct Pages {
    telemetry: Arc<Telemetry>,
    /// One page of metrics is made at a time, however many ask.
    scraping: Arc<Mutex<()>>,
}

/// In OpenMetrics whatever the client accepts: who knows only the older text
/// format can read it too, but for the types of counters.
async fn metrics(State(pages): State<Pages>) -> Response {
    let turn = pages.scraping.lock_owned().await;
    let page = tokio::task::spawn_blocking(move || {
        // A client that does not wait for its page does not end the turn.
        let _turn = turn;
        pages.telemetry.render()
    });
    let failed = |error: String| (StatusCode::INTERNAL_SERVER_ERROR, error).into_response();
    match page.await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Ok(Err(error)) => failed(error.to_string()),
        Err(error) => failed(error.to_string()),
    }
}

async fn alive(State(pages): State<Pages>) -> Response {
    match pages.telemetry.alive() {
        Ok(()) => "ok\n".into_response(),
        Err(stuck) => (StatusCode::SERVICE_UNAVAILABLE, format!("{stuck}\n")).into_response(),
    }
}

async fn ready(State(pages): State<Pages>) -> Response {
    if pages.telemetry.is_ready() {
        "ok\n".into_response()
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the objects have not been read yet\n",
        )
            .into_response()
    }
}
