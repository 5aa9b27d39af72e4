//! Command line: one file a subcommand.
use std::process::ExitCode;

/// Parses the command line, runs the subcommand and returns its exit code.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
