//! The HTTP client of a source, built anew when its certificates change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use reqwest::{Certificate, Client, Identity, redirect};
use sha2::{Digest, Sha256};

use super::config::{Tls, Trust};

/// Why no client could be made for a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("failed to read {field} {} of source {name:?}: check the path and its permissions", path.display())]
    Unreadable {
        name: String,
        field: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to use caFile {} of source {name:?}: wanted certificates in PEM form", path.display())]
    NoAuthorities {
        name: String,
        path: PathBuf,
        #[source]
        source: Option<reqwest::Error>,
    },
    #[error(
        "failed to use certFile {} with keyFile {} of source {name:?}: wanted a certificate and its \
         private key in PEM form",
        cert.display(),
        key.display()
    )]
    NoIdentity {
        name: String,
        cert: PathBuf,
        key: PathBuf,
        #[source]
        source: reqwest::Error,
    },
    #[error("failed to set up the HTTP client of source {name:?}")]
    Client {
        name: String,
        #[source]
        source: reqwest::Error,
    },
}

/// A client and what it was built from.
pub(super) struct ClientCache {
    name: String,
    /// All its URLs are on plain HTTP.
    plain: bool,
    tls: Tls,
    /// Go by way of the proxy that the environment names.
    use_proxy: bool,
    redirects: fn() -> redirect::Policy,
    built: Mutex<Built>,
}

struct Built {
    client: Client,
    /// Of the files' contents.
    digest: [u8; 32],
}

/// The contents of the files that `tls` names. No `Debug`: a key is among them.
#[derive(Default)]
struct Files {
    authorities: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl ClientCache {
    pub(super) fn new(
        name: &str,
        plain: bool,
        tls: &Tls,
        use_proxy: bool,
        redirects: fn() -> redirect::Policy,
    ) -> Result<Self, SourceError> {
        let files = read_files(name, tls, |path| std::fs::read(path))?;
        let client = build(name, plain, tls, &files, use_proxy, redirects())?;
        Ok(ClientCache {
            name: name.to_owned(),
            plain,
            tls: tls.clone(),
            use_proxy,
            redirects,
            built: Mutex::new(Built {
                client,
                digest: files.digest(),
            }),
        })
    }

    /// The client for the certificates as they are now (S26).
    pub(super) async fn current(&self) -> Result<Client, SourceError> {
        let kept = || self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if self.tls == Tls::default() {
            return Ok(kept().client.clone());
        }
        let (name, tls) = (self.name.clone(), self.tls.clone());
        let files = tokio::task::spawn_blocking(move || {
            read_files(&name, &tls, |path| std::fs::read(path))
        })
        .await
        .map_err(|error| SourceError::Unreadable {
            name: self.name.clone(),
            field: "certificates",
            path: PathBuf::new(),
            source: io::Error::other(error),
        })??;
        let digest = files.digest();
        let mut built = kept();
        if built.digest != digest {
            let client = build(
                &self.name,
                self.plain,
                &self.tls,
                &files,
                self.use_proxy,
                (self.redirects)(),
            )?;
            *built = Built { client, digest };
            tracing::info!(source = %self.name, "certificates changed, using the new ones");
        }
        Ok(built.client.clone())
    }
}

impl Files {
    fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for file in [&self.authorities, &self.cert, &self.key] {
            let bytes = file.as_deref().unwrap_or_default();
            hasher.update(bytes.len().to_be_bytes());
            hasher.update(bytes);
        }
        hasher.finalize().into()
    }
}

fn read_files(
    name: &str,
    tls: &Tls,
    read: impl Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Files, SourceError> {
    let read = |field: &'static str, path: &PathBuf| {
        read(path)
            .map(Some)
            .map_err(|source| SourceError::Unreadable {
                name: name.to_owned(),
                field,
                path: path.clone(),
                source,
            })
    };
    let mut files = Files::default();
    if let Trust::CaFile(path) = &tls.trust {
        files.authorities = read("caFile", path)?;
    }
    if let Some(identity) = &tls.identity {
        files.cert = read("certFile", &identity.cert_file)?;
        files.key = read("keyFile", &identity.key_file)?;
    }
    Ok(files)
}

fn build(
    name: &str,
    plain: bool,
    tls: &Tls,
    files: &Files,
    use_proxy: bool,
    redirects: redirect::Policy,
) -> Result<Client, SourceError> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("defragd/", env!("CARGO_PKG_VERSION")))
        .referer(false)
        .redirect(redirects);
    if !use_proxy {
        // Only what the administrator configured is contacted.
        builder = builder.no_proxy();
    }
    builder = match &tls.trust {
        // No system certificates are needed, nor loaded, for a plain connection.
        Trust::System if plain && !use_proxy => builder.tls_certs_only([]),
        Trust::System => builder,
        Trust::Anything => builder.tls_danger_accept_invalid_certs(true),
        Trust::CaFile(path) => {
            let pem = files.authorities.as_deref().unwrap_or_default();
            let fail = |source| SourceError::NoAuthorities {
                name: name.to_owned(),
                path: path.clone(),
                source,
            };
            let authorities =
                Certificate::from_pem_bundle(pem).map_err(|source| fail(Some(source)))?;
            if authorities.is_empty() {
                return Err(fail(None));
            }
            builder.tls_certs_only(authorities)
        }
    };
    if let (Some(paths), Some(cert), Some(key)) = (&tls.identity, &files.cert, &files.key) {
        let pem = [cert.as_slice(), b"\n", key.as_slice()].concat();
        let identity = Identity::from_pem(&pem).map_err(|source| SourceError::NoIdentity {
            name: name.to_owned(),
            cert: paths.cert_file.clone(),
            key: paths.key_file.clone(),
            source,
        })?;
        builder = builder.identity(identity);
    }
    builder.build().map_err(|source| SourceError::Client {
        name: name.to_owned(),
        source,
    })
}
