//! `defragd completions`: what a shell needs to complete this command line.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, CliError, Exit, output};

/// Prints a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(defragd completions bash)
  defragd completions fish > ~/.config/fish/completions/defragd.fish")]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "defragd", &mut script);
    output::emit(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
