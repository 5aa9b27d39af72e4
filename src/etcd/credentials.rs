//! Certificates, keys and passwords: read from files or Secrets at each connect,
//! checked, and turned into what the two clients (gRPC and HTTP) take.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Certificate, Identity, TlsOptions};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::connection::{Auth, ConnectError, Connection, Origin, Source, Timeouts, Tls};
use super::secret::{SecretError, SecretKey};

/// What files and Secrets held, ready for use. It has no Debug: it holds secrets.
pub(super) struct Credentials {
    /// For gRPC; absent for plain HTTP.
    pub(super) grpc_tls: Option<TlsOptions>,
    pub(super) user: Option<(String, String)>,
    /// For `/metrics`: the same authority and the same client certificate.
    pub(super) http_tls: ClientConfig,
}

/// Reads and checks every file and Secret that the connection names.
pub(super) async fn load(connection: &Connection) -> Result<Credentials, ConnectError> {
    let limit = connection.timeouts.call;
    let user = match &connection.auth {
        Some(auth) => Some(user(auth, limit).await?),
        None => None,
    };
    let (grpc_tls, http_tls) = match &connection.tls {
        Some(tls) => {
            let (grpc, http) = self::tls(tls, connection.timeouts).await?;
            (Some(grpc), http)
        }
        None => (
            None,
            trust(RootCertStore::empty(), None)?.with_no_client_auth(),
        ),
    };
    Ok(Credentials {
        grpc_tls,
        user,
        http_tls,
    })
}

async fn read(
    field: &'static str,
    source: &Source,
    limit: Duration,
) -> Result<Vec<u8>, ConnectError> {
    match source {
        Source::File(path) => {
            tokio::fs::read(path)
                .await
                .map_err(|source| ConnectError::Unreadable {
                    field,
                    path: path.clone(),
                    source,
                })
        }
        Source::Given(secret) => Ok(secret.expose().to_vec()),
        Source::Secret(key) => match read_secret(key, limit).await? {
            Some(bytes) => Ok(bytes),
            None => Err(ConnectError::NoSecretKey {
                secret: key.secret.clone(),
                key: key.key.clone(),
            }),
        },
    }
}

/// `None` when the Secret has no such key. `limit` is for the API server: the
/// etcd behind it may be the very one that is being looked at.
async fn read_secret(key: &SecretKey, limit: Duration) -> Result<Option<Vec<u8>>, ConnectError> {
    match tokio::time::timeout(limit, key.reader.read(&key.secret, &key.key)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ConnectError::Secret(SecretError::Unavailable {
            secret: key.secret.clone(),
            detail: format!("no answer within {limit:?}"),
        })),
    }
}

async fn user(auth: &Auth, limit: Duration) -> Result<(String, String), ConnectError> {
    Ok((
        line("auth.usernameFile", &auth.username, limit).await?,
        line("auth.passwordFile", &auth.password, limit).await?,
    ))
}

/// One line of text; editors and `echo` leave a line end after it.
async fn line(
    field: &'static str,
    source: &Source,
    limit: Duration,
) -> Result<String, ConnectError> {
    let bad = |problem| ConnectError::BadText {
        origin: source.origin(field),
        problem,
    };
    let text =
        String::from_utf8(read(field, source, limit).await?).map_err(|_| bad("not UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(bad("empty"));
    }
    if text.contains('\n') {
        return Err(bad("more than one line"));
    }
    Ok(text.to_owned())
}

const CA: &str = "tls.caFile";
const CERTIFICATE: &str = "tls.certFile";
const KEY: &str = "tls.keyFile";

async fn tls(tls: &Tls, timeouts: Timeouts) -> Result<(TlsOptions, ClientConfig), ConnectError> {
    let Some(ca) = &tls.ca else {
        return Err(ConnectError::NoAuthority);
    };
    let ca_pem = read(CA, ca, timeouts.call).await?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&ca.origin(CA), &ca_pem)? {
        roots.add(certificate).map_err(|e| ConnectError::NotPem {
            origin: ca.origin(CA),
            wanted: "certificate",
            detail: e.to_string(),
        })?;
    }
    // tonic checks nothing until the first handshake and passes over what it
    // cannot read, so everything is parsed here and handed on as it was read.
    let mut grpc = TlsOptions::new()
        .ca_certificate(Certificate::from_pem(&ca_pem))
        .timeout(timeouts.connect);
    if let Some(name) = &tls.server_name {
        grpc = grpc.domain_name(name);
    }
    let builder = trust(roots, tls.server_name.as_deref())?;
    let http = match identity(tls, timeouts.call).await? {
        Some(Pair {
            certificate,
            certificate_pem,
            key,
            key_pem,
        }) => {
            let parsed_key =
                PrivateKeyDer::from_pem_slice(&key_pem).map_err(|e| ConnectError::NotPem {
                    origin: key.clone(),
                    wanted: "private key",
                    // The parser's message may quote what it read.
                    detail: match e {
                        rustls::pki_types::pem::Error::NoItemsFound => "nothing found".to_owned(),
                        _ => "it cannot be parsed".to_owned(),
                    },
                })?;
            let chain = certificates(&certificate, &certificate_pem)?;
            let http = builder
                .with_client_auth_cert(chain, parsed_key)
                .map_err(|e| ConnectError::KeyMismatch {
                    certificate,
                    key,
                    detail: e.to_string(),
                })?;
            grpc = grpc.identity(Identity::from_pem(certificate_pem, key_pem));
            http
        }
        None => builder.with_no_client_auth(),
    };
    Ok((grpc, http))
}

/// A client's certificate and its key as they were read, and from where.
struct Pair {
    certificate: Origin,
    certificate_pem: Vec<u8>,
    key: Origin,
    key_pem: Vec<u8>,
}

/// The client's certificate and its key, both or none.
async fn identity(tls: &Tls, limit: Duration) -> Result<Option<Pair>, ConnectError> {
    let (certificate, key) = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(ConnectError::HalfAnIdentity { given: CERTIFICATE }),
        (None, Some(_)) => return Err(ConnectError::HalfAnIdentity { given: KEY }),
    };
    let (certificate_pem, key_pem) = match (certificate, key) {
        (Source::Secret(certificate), Source::Secret(key))
            if certificate.optional && key.optional =>
        {
            let half = |given: &SecretKey, missing: &SecretKey| ConnectError::HalfASecret {
                secret: missing.secret.clone(),
                missing: missing.key.clone(),
                given: given.key.clone(),
            };
            let both = (
                read_secret(certificate, limit).await?,
                read_secret(key, limit).await?,
            );
            match both {
                (Some(certificate), Some(key)) => (certificate, key),
                (None, None) => return Ok(None),
                (Some(_), None) => return Err(half(certificate, key)),
                (None, Some(_)) => return Err(half(key, certificate)),
            }
        }
        _ => (
            read(CERTIFICATE, certificate, limit).await?,
            read(KEY, key, limit).await?,
        ),
    };
    Ok(Some(Pair {
        certificate: certificate.origin(CERTIFICATE),
        certificate_pem,
        key: key.origin(KEY),
        key_pem,
    }))
}

fn certificates(origin: &Origin, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let bad = |detail: String| ConnectError::NotPem {
        origin: origin.clone(),
        wanted: "certificate",
        detail,
    };
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| bad("it cannot be parsed".to_owned()))?;
    if found.is_empty() {
        return Err(bad("nothing found".to_owned()));
    }
    Ok(found)
}

/// The first half of a client configuration: whom to trust, under which name.
fn trust(
    roots: RootCertStore,
    name: Option<&str>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, ConnectError> {
    let provider = CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| ConnectError::Tls(e.to_string()))?;
    let Some(name) = name else {
        return Ok(builder.with_root_certificates(roots));
    };
    let name = ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::ServerName {
        value: name.to_owned(),
    })?;
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| ConnectError::Tls(e.to_string()))?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(FixedName { inner, name })))
}

/// Verifies as webpki does, but expects `tls.serverName` instead of the URL's
/// host: reqwest has no setting for it.
#[derive(Debug)]
struct FixedName {
    inner: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for FixedName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _url_host: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.inner
            .verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
