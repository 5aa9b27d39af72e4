//! Certificates, keys and passwords: read from their files at each connect,
//! checked, and turned into what the two clients (gRPC and HTTP) take.

use std::sync::Arc;

use etcd_client::{Certificate, Identity, TlsOptions};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::connection::{Auth, ConnectError, Connection, Source, Timeouts, Tls};

/// What the files held, ready for use. It has no Debug: it holds secrets.
pub(super) struct Credentials {
    /// For gRPC; absent for plain HTTP.
    pub(super) grpc_tls: Option<TlsOptions>,
    pub(super) user: Option<(String, String)>,
    /// For `/metrics`: the same authority and the same client certificate.
    pub(super) http_tls: ClientConfig,
}

/// Reads and checks every file that the connection names.
pub(super) async fn load(connection: &Connection) -> Result<Credentials, ConnectError> {
    let user = match &connection.auth {
        Some(auth) => Some(user(auth).await?),
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

async fn read(field: &'static str, source: &Source) -> Result<Vec<u8>, ConnectError> {
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
    }
}

async fn user(auth: &Auth) -> Result<(String, String), ConnectError> {
    Ok((
        line("auth.usernameFile", &auth.username).await?,
        line("auth.passwordFile", &auth.password).await?,
    ))
}

/// One line of text; editors and `echo` leave a line end after it.
async fn line(field: &'static str, source: &Source) -> Result<String, ConnectError> {
    let bad = |problem| ConnectError::BadText {
        field,
        from: source.to_string(),
        problem,
    };
    let text = String::from_utf8(read(field, source).await?).map_err(|_| bad("not UTF-8"))?;
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

async fn tls(tls: &Tls, timeouts: Timeouts) -> Result<(TlsOptions, ClientConfig), ConnectError> {
    let Some(ca) = &tls.ca else {
        return Err(ConnectError::NoAuthority);
    };
    let ca_pem = read("tls.caFile", ca).await?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls.caFile", ca, &ca_pem)? {
        roots.add(certificate).map_err(|e| ConnectError::NotPem {
            field: "tls.caFile",
            from: ca.to_string(),
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
    let http = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            let certificate_pem = read("tls.certFile", certificate).await?;
            let key_pem = read("tls.keyFile", key).await?;
            let parsed_key =
                PrivateKeyDer::from_pem_slice(&key_pem).map_err(|e| ConnectError::NotPem {
                    field: "tls.keyFile",
                    from: key.to_string(),
                    wanted: "private key",
                    // The parser's message may quote what it read.
                    detail: match e {
                        rustls::pki_types::pem::Error::NoItemsFound => "nothing found".to_owned(),
                        _ => "it cannot be parsed".to_owned(),
                    },
                })?;
            let chain = certificates("tls.certFile", certificate, &certificate_pem)?;
            let http = builder
                .with_client_auth_cert(chain, parsed_key)
                .map_err(|e| ConnectError::KeyMismatch {
                    certificate: certificate.to_string(),
                    key: key.to_string(),
                    detail: e.to_string(),
                })?;
            grpc = grpc.identity(Identity::from_pem(certificate_pem, key_pem));
            http
        }
        (None, None) => builder.with_no_client_auth(),
        (Some(_), None) => {
            return Err(ConnectError::HalfAnIdentity {
                given: "tls.certFile",
            });
        }
        (None, Some(_)) => {
            return Err(ConnectError::HalfAnIdentity {
                given: "tls.keyFile",
            });
        }
    };
    Ok((grpc, http))
}

fn certificates(
    field: &'static str,
    source: &Source,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let bad = |detail: String| ConnectError::NotPem {
        field,
        from: source.to_string(),
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
mod tests {
    use super::*;
    use crate::etcd::connection::Endpoint;

    fn connection(tls: Tls) -> Connection {
        let mut connection = Connection::new(vec![Endpoint::parse("https://a:2379").unwrap()]);
        connection.tls = Some(tls);
        connection
    }

    async fn refusal(connection: &Connection) -> String {
        match load(connection).await {
            Ok(_) => panic!("accepted"),
            Err(e) => e.to_string(),
        }
    }

    #[tokio::test]
    async fn unreadable_and_unparsable_certificates_name_field_file_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let tls = || Tls {
            ca: Some(Source::file(&ca)),
            certificate: None,
            key: None,
            server_name: None,
        };
        let missing = refusal(&connection(tls())).await;
        assert!(
            missing.starts_with("tls.caFile") && missing.contains("ca.pem"),
            "{missing}"
        );
        assert!(missing.contains("check the path"), "{missing}");

        for content in [
            "not a certificate",
            "",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            std::fs::write(&ca, content).unwrap();
            let message = refusal(&connection(tls())).await;
            assert!(
                message.contains("holds no PEM certificate"),
                "{content:?}: {message}"
            );
        }
    }

    #[tokio::test]
    async fn passwords_lose_their_line_end_and_nothing_else() {
        let mut connection = Connection::new(vec![Endpoint::parse("http://a:2379").unwrap()]);
        let auth = |password: &str| {
            Some(Auth {
                username: Source::given("root"),
                password: Source::given(password),
            })
        };
        for (given, read) in [
            ("pw", "pw"),
            ("pw\n", "pw"),
            ("pw\r\n", "pw"),
            (" p w ", " p w "),
            ("pw \n", "pw "),
        ] {
            connection.auth = auth(given);
            let user = load(&connection).await.map(|c| c.user).ok().flatten();
            assert_eq!(
                user,
                Some(("root".to_owned(), read.to_owned())),
                "{given:?}"
            );
        }
        for (given, problem) in [
            ("", "empty"),
            ("\n", "empty"),
            ("a\nb", "more than one line"),
        ] {
            connection.auth = auth(given);
            let message = refusal(&connection).await;
            assert!(
                message.contains("auth.passwordFile") && message.contains(problem),
                "{message}"
            );
        }
    }
}
