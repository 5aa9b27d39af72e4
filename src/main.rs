use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything can open a connection. An error would mean that a
    // provider is installed already, which is all that is wanted.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    defragd::cli::main()
}
