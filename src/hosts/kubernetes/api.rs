//! Requests to the API server: bounded in time, their errors in words.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::counted::Counting;
use crate::telemetry::Telemetry;

/// How long one request may take. While the etcd behind the API server is being
/// defragmented, requests wait for it; what is given up is asked again.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may stand still. Longer than any watch is asked to
/// last, so that only a peer that is gone is given up.
const READ_TIMEOUT: Duration = Duration::from_secs(75);
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The one name under which everything is applied.
pub(super) const FIELD_MANAGER: &str = "defragd";

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "neither KUBECONFIG nor a pod's service account tells where the API server is ({0}); \
         set KUBECONFIG, or run in a pod"
    )]
    NotConfigured(String),
    #[error("the kubeconfig {path} cannot be used: {problem}; correct it, or unset KUBECONFIG")]
    Kubeconfig { path: String, problem: String },
    #[error("the client of the API server cannot be built: {0}")]
    Unusable(String),
}

/// A client by `KUBECONFIG`, or else by the pod's service account. Its requests are counted.
///
/// # Errors
/// When neither leads to an API server.
pub(super) async fn client(telemetry: Arc<Telemetry>) -> Result<Client, ClientError> {
    let mut config = match std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
        Some(path) => {
            let unusable = |problem: String| ClientError::Kubeconfig {
                path: path.to_string_lossy().into_owned(),
                problem,
            };
            let paths: Vec<PathBuf> = std::env::split_paths(&path).collect();
            let [path] = paths.as_slice() else {
                return Err(unusable("it must be one file".to_owned()));
            };
            let kubeconfig = Kubeconfig::read_from(path).map_err(|e| unusable(chain(&e)))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(|e| unusable(chain(&e)))?
        }
        None => Config::incluster().map_err(|e| ClientError::NotConfigured(chain(&e)))?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    // A connection that was idle has the whole time again for its next answer.
    config.reset_reader_on_write = true;
    // Everybody here asks again by himself; hidden attempts would be made after the
    // permission to write has run out, and would make failures invisible.
    config.default_retry = false;
    let agent = concat!("defragd/", env!("CARGO_PKG_VERSION"));
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_static(agent),
    ));
    let builder = ClientBuilder::try_from(config);
    let builder = builder.map_err(|e| ClientError::Unusable(chain(&e)))?;
    Ok(builder.with_layer(&Counting(telemetry)).build())
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{}", answer(.0))]
    Failed(#[from] kube::Error),
}

impl ApiError {
    /// The status that the server answered with.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            ApiError::Failed(kube::Error::Api(status)) => Some(status.code),
            ApiError::TimedOut(_) | ApiError::Failed(_) => None,
        }
    }

    /// The object is not as the request says, or exists already.
    pub(super) fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the same request may have another answer soon.
    pub(super) fn may_pass(&self) -> bool {
        !self.is_definite() || self.code() == Some(429)
    }

    /// False when the request may have been carried out all the same.
    pub(super) fn is_definite(&self) -> bool {
        self.code().is_some_and(|code| (400..500).contains(&code))
    }
}

/// The server's words, or what kept the request from reaching it.
fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => chain(other),
    }
}

/// An error with everything that led to it, each thing once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// One request, for so long at most.
///
/// # Errors
/// What the server answers, or that it does not.
pub(super) async fn bounded<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(limit, request).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(ApiError::TimedOut(limit)),
    }
}
