//! Command line: one file a subcommand.
//!
//! A subcommand returns an [`Exit`], or a [`CliError`] when it did not get as
//! far as a result. Results go to standard output, everything else to standard
//! error; a reader that has gone away is no fault of ours and no panic.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod completions;
mod controller;
mod crds;
mod lint;
mod output;
mod signals;
mod standalone;
mod status;
mod sweep;

/// How a command ended. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// It did what was asked; nothing being due is that too.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// The command line cannot be carried out as it stands.
    Usage = 2,
    /// Refused or deferred before anything was touched.
    Refused = 3,
    /// Ended by a signal: 128 and SIGINT's number, as shells say it.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        // Every variant's number fits.
        ExitCode::from(exit as u8)
    }
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
enum CliError {
    /// Names the flag, the value and the remedy.
    #[error("{0}")]
    Usage(String),
    #[error("failed to write the result: {0}")]
    Output(#[source] io::Error),
    #[error("failed to render the result: {0}")]
    Render(String),
    #[error("{0}")]
    Failed(String),
    #[error("failed to start: {0}")]
    Start(#[source] io::Error),
}

impl CliError {
    const fn exit(&self) -> Exit {
        match self {
            CliError::Usage(_) => Exit::Usage,
            CliError::Output(_)
            | CliError::Render(_)
            | CliError::Failed(_)
            | CliError::Start(_) => Exit::Failed,
        }
    }
}

/// Defragments etcd clusters safely, driven by metrics.
#[derive(Debug, Parser)]
#[command(name = "defragd", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Sweep(Box<sweep::Args>),
    Controller(controller::Args),
    Standalone(standalone::Args),
    Status(status::Args),
    Lint(lint::Args),
    Crds(crds::Args),
    Completions(completions::Args),
}

/// Parses the command line, runs the subcommand and returns its exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. There is nobody to tell when
            // the reader has gone.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let result = match cli.command {
        Command::Sweep(args) => on_runtime(sweep::run(*args)),
        Command::Controller(args) => on_runtime(controller::run(args)),
        Command::Standalone(args) => on_runtime(standalone::run(args)),
        Command::Status(args) => status::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Completions(args) => completions::run(&args),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::complain(&error);
            error.exit().into()
        }
    }
}

/// Runs to the end of the future. What it left running is abandoned: that is
/// the meaning of an abort, and after an orderly end there is nothing.
fn on_runtime(command: impl Future<Output = Result<Exit, CliError>>) -> Result<Exit, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CliError::Start)?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}
