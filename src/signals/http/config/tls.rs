//! How a server on https is trusted, and what it is shown.

use std::path::PathBuf;

use serde::Deserialize;

use super::{FieldProblem, check_path};

/// How a server on https is trusted, and what it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tls {
    pub trust: Trust,
    pub identity: Option<IdentityFiles>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Trust {
    #[default]
    System,
    /// Only the authorities of this file.
    CaFile(PathBuf),
    /// Whatever the server shows.
    Anything,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// The same as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsSpec {
    /// The only authorities trusted; absent: those of the system.
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// S29: every option given is honoured, or the combination is refused.
pub(super) fn ready(is_https: bool, written: TlsSpec) -> Result<Tls, FieldProblem> {
    let TlsSpec {
        ca_file,
        cert_file,
        key_file,
        insecure_skip_verify: insecure,
    } = written;
    if !is_https {
        let useless = [
            ("caFile", ca_file.is_some()),
            ("certFile", cert_file.is_some()),
            ("keyFile", key_file.is_some()),
            ("insecureSkipVerify", insecure),
        ];
        if let Some((field, _)) = useless.iter().find(|(_, given)| *given) {
            return Err((
                field,
                "set for a url on http, where it has no effect: use https or remove it".to_owned(),
            ));
        }
    }
    let trust = match (ca_file, insecure) {
        (Some(_), true) => {
            return Err((
                "insecureSkipVerify",
                "set beside caFile, which then proves nothing: remove one of them".to_owned(),
            ));
        }
        (Some(file), false) => {
            check_path("caFile", &file)?;
            Trust::CaFile(file)
        }
        (None, true) => Trust::Anything,
        (None, false) => Trust::System,
    };
    let identity = match (cert_file, key_file) {
        (None, None) => None,
        (Some(cert_file), Some(key_file)) => {
            check_path("certFile", &cert_file)?;
            check_path("keyFile", &key_file)?;
            Some(IdentityFiles {
                cert_file,
                key_file,
            })
        }
        (Some(_), None) => {
            return Err((
                "keyFile",
                "missing beside certFile: set both or none".to_owned(),
            ));
        }
        (None, Some(_)) => {
            return Err((
                "certFile",
                "missing beside keyFile: set both or none".to_owned(),
            ));
        }
    };
    Ok(Tls { trust, identity })
}
