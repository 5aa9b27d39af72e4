//! A certificate authority for one test, and what it signs.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::Error;

/// How a server's client port speaks TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// The server shows a certificate.
    Server,
    /// The server shows one and wants one from the client.
    Mutual,
}

/// PEM files of one authority: its own certificate, a server's and a client's. Beside them are
/// the certificate of an authority that signed nothing here, and a client certificate from it.
#[derive(Debug, Clone)]
pub struct Pki {
    folder: PathBuf,
}

impl Pki {
    /// Makes everything anew under `folder`. The server's certificate holds for `names`, which are
    /// DNS names or IP addresses.
    ///
    /// # Errors
    /// When a name is no name or a file cannot be written.
    pub fn create(folder: &Path, names: &[String]) -> Result<Self, Error> {
        let pki = Self {
            folder: folder.to_owned(),
        };
        fs::create_dir_all(folder)
            .map_err(|e| Error::io(format!("create {}", folder.display()), e))?;
        let ours = Authority::create("defragd test authority")?;
        let other = Authority::create("an authority nobody trusts")?;
        pki.write("ca.pem", &ours.pem)?;
        pki.write("other-ca.pem", &other.pem)?;
        pki.write_pair("server", ours.sign("defragd test server", names)?)?;
        pki.write_pair("client", ours.sign("defragd test client", &[])?)?;
        pki.write_pair("other-client", other.sign("defragd test client", &[])?)?;
        Ok(pki)
    }

    /// The authority's certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The certificate of an authority that did not sign the server's certificate.
    #[must_use]
    pub fn other_ca(&self) -> PathBuf {
        self.folder.join("other-ca.pem")
    }

    /// The server's certificate and key.
    #[must_use]
    pub fn server(&self) -> (PathBuf, PathBuf) {
        self.pair("server")
    }

    /// A client's certificate and key.
    #[must_use]
    pub fn client(&self) -> (PathBuf, PathBuf) {
        self.pair("client")
    }

    /// The certificate and key of a client whose authority the server does not trust.
    #[must_use]
    pub fn other_client(&self) -> (PathBuf, PathBuf) {
        self.pair("other-client")
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        (
            self.folder.join(format!("{name}.pem")),
            self.folder.join(format!("{name}-key.pem")),
        )
    }

    fn write_pair(&self, name: &str, (certificate, key): (String, String)) -> Result<(), Error> {
        self.write(&format!("{name}.pem"), &certificate)?;
        self.write(&format!("{name}-key.pem"), &key)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|e| Error::io(format!("write {}", path.display()), e))
    }
}

/// Makes a key pair for signing tokens as `NAME.key` and `NAME.pub` under `folder`.
pub(crate) fn signing_keys(folder: &Path, name: &str) -> Result<(PathBuf, PathBuf), Error> {
    let pair = KeyPair::generate().map_err(|e| tls("make a signing key", &e))?;
    let write = |extension: &str, text: String| {
        let path = folder.join(format!("{name}.{extension}"));
        match fs::write(&path, text) {
            Ok(()) => Ok(path),
            Err(e) => Err(Error::io(format!("write {}", path.display()), e)),
        }
    };
    Ok((
        write("key", pair.serialize_pem())?,
        write("pub", pair.public_key_pem())?,
    ))
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn create(name: &str) -> Result<Self, Error> {
        let doing = "create a certificate authority";
        let key = KeyPair::generate().map_err(|e| tls(doing, &e))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).map_err(|e| tls(doing, &e))?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// A certificate for both sides: etcd's own gateway is a client that shows the server's.
    fn sign(&self, name: &str, names: &[String]) -> Result<(String, String), Error> {
        let doing = "sign a certificate";
        let key = KeyPair::generate().map_err(|e| tls(doing, &e))?;
        let mut params = CertificateParams::new(names).map_err(|e| tls(doing, &e))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(|e| tls(doing, &e))?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

fn tls(doing: &'static str, error: &rcgen::Error) -> Error {
    Error::Tls {
        doing,
        message: error.to_string(),
    }
}

/// An HTTP client that trusts `pki` (or nobody, for plain HTTP) and shows its client certificate.
pub(crate) fn http_client(pki: Option<&Pki>) -> Result<reqwest::Client, Error> {
    let mut builder = http_builder(pki)?;
    if let Some(pki) = pki {
        let (certificate, key) = pki.client();
        let mut identity = read(&certificate)?;
        identity.extend(read(&key)?);
        builder = builder.identity(reqwest::Identity::from_pem(&identity).map_err(refused)?);
    }
    builder.build().map_err(refused)
}

/// The same without a client certificate, for a server that would take it for a user's.
pub(crate) fn http_client_without_certificate(pki: &Pki) -> Result<reqwest::Client, Error> {
    http_builder(Some(pki))?.build().map_err(refused)
}

fn http_builder(pki: Option<&Pki>) -> Result<reqwest::ClientBuilder, Error> {
    crate::install_tls_provider();
    let builder = reqwest::Client::builder()
        .no_proxy()
        .timeout(std::time::Duration::from_secs(10));
    let Some(pki) = pki else {
        return Ok(builder);
    };
    let ca = reqwest::Certificate::from_pem(&read(&pki.ca())?).map_err(refused)?;
    Ok(builder.tls_certs_only([ca]))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|e| Error::io(format!("read {}", path.display()), e))
}

fn refused(error: reqwest::Error) -> Error {
    Error::Tls {
        doing: "build an HTTP client",
        message: format!("{error:?}"),
    }
}
