//! The log: one line an event on standard error, as text or JSON.

use std::io::IsTerminal;

use serde::Deserialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{level:?} is not a level ({problem}); write error, warn, info, debug or trace")]
    Level { level: String, problem: String },
    #[error("the log is set up already: {0}")]
    Twice(String),
}

/// Whether [`init`] would take the level.
pub(crate) fn check_level(level: &str) -> Result<(), String> {
    EnvFilter::builder()
        .parse(level)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// On an answer that it cannot read, the client of the Kubernetes API warns with
/// the whole of it, which may be a Secret. The error is ours to tell, without. Of a watch
/// that may not be made it warns at each attempt; once is enough, and that we do.
const DISCREET: &str = "kube_client::client=error,kube_runtime::watcher=error";

/// Sends the log to standard error. `level` is a level, or directives such as
/// `info,defragd::signals=debug`.
///
/// # Errors
/// A level that is none; a second call in one process.
pub fn init(format: LogFormat, level: &str) -> Result<(), LogError> {
    let filter = EnvFilter::builder()
        .parse(format!("{level},{DISCREET}"))
        .map_err(|error| LogError::Level {
            level: level.to_owned(),
            problem: error.to_string(),
        })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // It would complain on standard error, which panics when that is what cannot be written: a log
        // on a full disk must not end the process.
        .log_internal_errors(false);
    let done = match format {
        LogFormat::Text => builder.finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    };
    done.map_err(|error| LogError::Twice(error.to_string()))
}
