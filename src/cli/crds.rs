//! `defragd crds`: the custom resource definitions, made from the same types
//! that read the objects.

use super::{CliError, Exit, output};
use crate::api::crds;

/// Prints the custom resource definitions as YAML
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  defragd crds | kubectl apply --server-side -f -")]
pub(super) struct Args {}

pub(super) fn run(Args {}: &Args) -> Result<Exit, CliError> {
    output::emit(&crds::to_yaml().map_err(|e| CliError::Render(e.to_string()))?)?;
    Ok(Exit::Done)
}
