//! What `defragd_build_info` tells of the build.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    // `rustc 1.95.0 (hash date)`
    let version = version
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .and_then(|said| Some(said.split(' ').nth(1)?.trim().to_owned()))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=DEFRAGD_RUSTC={version}");
}
