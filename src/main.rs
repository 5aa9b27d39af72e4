use std::process::ExitCode;

fn main() -> ExitCode {
    defragd::cli::main()
}
