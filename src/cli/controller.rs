//! `defragd controller`: the host in Kubernetes, until a signal ends it.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::signals::until_signalled;
use super::{CliError, Exit};
use crate::hosts::config::Config;
use crate::hosts::kubernetes::{self, Options};
use crate::telemetry::logs;

/// Works by the custom resources of a Kubernetes cluster
///
/// The API server is found by KUBECONFIG, or else by the pod's service account.
/// Several replicas elect a leader by the Lease "defragd" in POD_NAMESPACE; the
/// others stand by. The first SIGINT or SIGTERM stops it in order, the second
/// aborts at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Environment:
  KUBECONFIG     a kubeconfig file; absent: the pod's service account
  POD_NAMESPACE  where the Lease is; absent: the kubeconfig's namespace
  POD_NAME       how this replica is called in the Lease and in events

Example:
  KUBECONFIG=~/.kube/config defragd controller --config defragd.yaml --listen 127.0.0.1:9464")]
pub(super) struct Args {
    /// The administrator's file: sources, limits, log; without it only probes can be signals
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where to serve /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Work in this namespace only; may be given several times. Absent: in all
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,

    /// Runs that may go on at the same time, each on its own cluster. Absent: no limit
    #[arg(long, value_name = "COUNT")]
    max_concurrent_runs: Option<NonZeroU32>,

    /// The log's level instead of the configured one, such as debug or info,defragd::etcd=debug
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

pub(super) async fn run(args: Args) -> Result<Exit, CliError> {
    let Args {
        config,
        listen,
        namespaces,
        max_concurrent_runs,
        log_level,
    } = args;
    let config = match &config {
        Some(path) => Config::load(path).map_err(|e| CliError::Usage(e.to_string()))?,
        None => Config::default(),
    };
    let level = log_level.as_deref().unwrap_or(&config.log.level);
    logs::init(config.log.format, level)
        .map_err(|e| CliError::Usage(format!("--log-level: {e}")))?;
    let options = Options {
        listen,
        namespaces: namespaces.into_iter().collect(),
        max_concurrent_runs,
    };
    until_signalled(|shutdown: CancellationToken| async move {
        kubernetes::run(config, options, shutdown)
            .await
            .map_err(|error| CliError::Failed(error.to_string()))
    })
    .await
}
