//! From a validated target to the way its cluster is reached.

use std::sync::Arc;

use url::Url;

use crate::core::key::ObjectKey;
use crate::core::target::{self, Members, Target, TlsFrom};
use crate::etcd::{Auth, ConnectError, Connection, Endpoint, SecretKey, SecretReader, Source, Tls};

/// The keys of a Secret with certificates, those of the type kubernetes.io/tls.
const CA: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// The keys of a Secret of the type kubernetes.io/basic-auth.
const USERNAME: &str = "username";
const PASSWORD: &str = "password";

/// How a target's cluster is reached that gives its endpoints itself, where
/// certificates and passwords are files.
///
/// # Errors
/// What the client refuses of it, and what only Kubernetes has.
pub(super) fn of_files(target: &Target) -> Result<Connection, ConnectError> {
    match &target.members {
        Members::Endpoints(endpoints) => connection(target, endpoints.clone(), None),
        Members::Pods { .. } => Err(ConnectError::NoPodsHere),
    }
}

/// How the target's cluster is reached, at endpoints that have been resolved.
/// Files and Secrets are named here and read at each connect. With `secrets`,
/// the target's namespace and who reads there, only Secrets are taken: whoever
/// may write a target must not have the controller's own files sent away.
/// Without it, only files are.
///
/// # Errors
/// What the client refuses of it, and files or Secrets that cannot be read here.
pub(super) fn connection(
    target: &Target,
    endpoints: Vec<Url>,
    secrets: Option<(&str, Arc<dyn SecretReader>)>,
) -> Result<Connection, ConnectError> {
    let Target {
        members: _,
        expected_voters,
        quota_bytes,
        tls,
        auth,
        metrics_urls,
    } = target;
    let endpoints = endpoints
        .iter()
        .map(|url| Endpoint::parse(url.as_str()))
        .collect::<Result<_, _>>()?;
    let mut connection = Connection::new(endpoints);
    connection.expected_voters = *expected_voters;
    connection.quota_bytes = *quota_bytes;
    connection.metrics_urls.clone_from(metrics_urls);
    let keys = secrets.map(|(namespace, reader)| {
        move |name: &str, key: &str| {
            let secret = ObjectKey {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            SecretKey::new(Arc::clone(&reader), secret, key)
        }
    });
    connection.tls = match tls {
        None => None,
        Some(target::Tls { from, server_name }) => {
            let (ca, certificate, key) = match (from, &keys) {
                (TlsFrom::Files { ca, identity }, None) => {
                    let identity = identity.as_ref();
                    (
                        Source::file(ca),
                        identity.map(|(certificate, _)| Source::file(certificate)),
                        identity.map(|(_, key)| Source::file(key)),
                    )
                }
                (TlsFrom::Secret { name }, Some(keys)) => (
                    Source::Secret(keys(name, CA)),
                    Some(Source::Secret(keys(name, CERTIFICATE).optional())),
                    Some(Source::Secret(keys(name, KEY).optional())),
                ),
                (TlsFrom::Files { .. }, Some(_)) => {
                    return Err(ConnectError::NoFilesHere {
                        field: "tls.caFile",
                    });
                }
                (TlsFrom::Secret { .. }, None) => {
                    return Err(ConnectError::NoSecretsHere {
                        field: "tls.secretRef",
                    });
                }
            };
            Some(Tls {
                ca: Some(ca),
                certificate,
                key,
                server_name: server_name.clone(),
            })
        }
    };
    connection.auth = match (auth, &keys) {
        (None, _) => None,
        (Some(target::Auth::Files { username, password }), None) => Some(Auth {
            username: Source::file(username),
            password: Source::file(password),
        }),
        (Some(target::Auth::Secret { name }), Some(keys)) => Some(Auth {
            username: Source::Secret(keys(name, USERNAME)),
            password: Source::Secret(keys(name, PASSWORD)),
        }),
        (Some(target::Auth::Files { .. }), Some(_)) => {
            return Err(ConnectError::NoFilesHere {
                field: "auth.usernameFile",
            });
        }
        (Some(target::Auth::Secret { .. }), None) => {
            return Err(ConnectError::NoSecretsHere {
                field: "auth.secretRef",
            });
        }
    };
    connection.validate()?;
    Ok(connection)
}
