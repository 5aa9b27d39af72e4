//! `/metrics`, `/healthz` and `/readyz`.
//!
//! The two answers to "how are you" differ on purpose. `/healthz` says whether
//! killing the process could help: it fails when the engine does not come round
//! any more, and not while a source or a cluster is down, since a restart would
//! change nothing about that. `/readyz` says whether the process does its work:
//! the state is open and locked, and the objects have been read once. A process
//! that waits for another one's lock, or reads a large folder, is alive and not
//! ready.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Telemetry;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the token is cancelled.
pub async fn serve(listener: TcpListener, telemetry: Arc<Telemetry>, stop: CancellationToken) {
    let served = axum::serve(listener, router(telemetry))
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
        .with_state(telemetry)
}

async fn metrics(State(telemetry): State<Arc<Telemetry>>) -> Response {
    match telemetry.render() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn alive(State(telemetry): State<Arc<Telemetry>>) -> Response {
    match telemetry.alive() {
        Ok(()) => "ok\n".into_response(),
        Err(stuck) => (StatusCode::SERVICE_UNAVAILABLE, format!("{stuck}\n")).into_response(),
    }
}

async fn ready(State(telemetry): State<Arc<Telemetry>>) -> Response {
    if telemetry.is_ready() {
        "ok\n".into_response()
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the state and the objects have not been read yet\n",
        )
            .into_response()
    }
}
