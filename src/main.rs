use std::process::ExitCode;

/// The container image's binary is linked with musl, whose own allocator takes one lock for all
/// threads; that of glibc keeps what the burst at the start has needed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything can open a connection. An error would mean that a
    // provider is installed already, which is all that is wanted.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    defragd::cli::main()
}
