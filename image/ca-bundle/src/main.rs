//! Writes the certificate authorities that Mozilla trusts for TLS servers to standard output, in the
//! format that `/etc/ssl/certs/ca-certificates.crt` has.
//!
//! They come from a crate and not from the machine: `Cargo.lock` pins them, so the image is the
//! same wherever it is built, and an authority that is trusted on that machine only stays out.

use std::io::{self, Write, stdout};

use pem::{EncodeConfig, LineEnding, Pem, encode_many_config};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

fn main() -> io::Result<()> {
    let certificates: Vec<Pem> = TLS_SERVER_ROOT_CERTS
        .iter()
        .map(|der| Pem::new("CERTIFICATE", &der[..]))
        .collect();
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    stdout().write_all(encode_many_config(&certificates, config).as_bytes())
}
