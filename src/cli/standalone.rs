//! `defragd standalone`: the host without Kubernetes, until a signal ends it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::signals::until_signalled;
use super::{CliError, Exit};
use crate::hosts::config::Config;
use crate::hosts::standalone;
use crate::telemetry::logs;

/// Works by the policies in a folder of YAML files, without Kubernetes
///
/// The first SIGINT or SIGTERM stops it in order: what is under way is recorded
/// and goes on at the next start. The second aborts at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  defragd standalone --config defragd.yaml --objects ./objects --state /var/lib/defragd \\
      --listen 127.0.0.1:9464")]
pub(super) struct Args {
    /// The administrator's file: sources, limits, log; without it only probes can be signals
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The folder with EtcdTarget, EtcdDefragPolicy and EtcdDefrag files; watched for changes
    #[arg(long, value_name = "DIR")]
    objects: PathBuf,

    /// The folder for status and runs; made when it is missing, used by one process at a time
    #[arg(long, value_name = "DIR")]
    state: PathBuf,

    /// Where to serve /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// The log's level instead of the configured one, such as debug or info,defragd::etcd=debug
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

pub(super) async fn run(args: Args) -> Result<Exit, CliError> {
    let Args {
        config,
        objects,
        state,
        listen,
        log_level,
    } = args;
    let config = match &config {
        Some(path) => Config::load(path).map_err(|e| CliError::Usage(e.to_string()))?,
        None => Config::default(),
    };
    let level = log_level.as_deref().unwrap_or(&config.log.level);
    logs::init(config.log.format, level)
        .map_err(|e| CliError::Usage(format!("--log-level: {e}")))?;
    until_signalled(|shutdown| async move {
        standalone::run(config, objects, state, listen, shutdown)
            .await
            .map_err(|error| CliError::Failed(error.to_string()))
    })
    .await
}
