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
                namespace: namespace.into(),
                name: name.into(),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;
    use crate::core::target::Scheme;
    use crate::etcd::SecretError;

    #[derive(Debug)]
    struct Nothing;

    impl SecretReader for Nothing {
        fn read<'a>(
            &'a self,
            _: &'a ObjectKey,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Option<Vec<u8>>, SecretError>> {
            std::future::ready(Ok(None)).boxed()
        }
    }

    fn reader() -> Arc<dyn SecretReader> {
        Arc::new(Nothing)
    }

    fn url() -> Url {
        Url::parse("https://a:2379").unwrap()
    }

    fn target(from: TlsFrom, auth: target::Auth) -> Target {
        Target {
            members: Members::Endpoints(vec![url()]),
            expected_voters: Some(3),
            quota_bytes: Some(1 << 33),
            tls: Some(target::Tls {
                from,
                server_name: Some("etcd.local".to_owned()),
            }),
            auth: Some(auth),
            metrics_urls: vec![Url::parse("http://a:2381/metrics").unwrap()],
        }
    }

    fn secrets() -> Target {
        let name = |name: &str| name.to_owned();
        target(
            TlsFrom::Secret {
                name: name("client"),
            },
            target::Auth::Secret { name: name("root") },
        )
    }

    fn files() -> Target {
        let path = PathBuf::from;
        target(
            TlsFrom::Files {
                ca: path("/ca"),
                identity: Some((path("/crt"), path("/key"))),
            },
            target::Auth::Files {
                username: path("/user"),
                password: path("/password"),
            },
        )
    }

    /// The namespace is the target's, whatever it names.
    #[test]
    fn secrets_are_those_of_the_target_s_namespace() {
        let target = secrets();
        let made = connection(&target, vec![url()], Some(("prod", reader()))).unwrap();
        let key = |name: &str, key: &str| {
            let secret = ObjectKey {
                namespace: "prod".into(),
                name: name.into(),
            };
            SecretKey::new(reader(), secret, key)
        };
        assert_eq!(
            made.tls,
            Some(Tls {
                ca: Some(Source::Secret(key("client", "ca.crt"))),
                certificate: Some(Source::Secret(key("client", "tls.crt").optional())),
                key: Some(Source::Secret(key("client", "tls.key").optional())),
                server_name: Some("etcd.local".to_owned()),
            })
        );
        assert_eq!(
            made.auth,
            Some(Auth {
                username: Source::Secret(key("root", "username")),
                password: Source::Secret(key("root", "password")),
            })
        );
        assert_eq!(
            (made.expected_voters, made.quota_bytes, made.metrics_urls),
            (Some(3), Some(1 << 33), target.metrics_urls)
        );
    }

    #[test]
    fn files_are_named_and_not_read() {
        let made = of_files(&files()).unwrap();
        let tls = made.tls.unwrap();
        assert_eq!(tls.certificate, Some(Source::file("/crt")));
        assert_eq!(made.auth.unwrap().password, Source::file("/password"));
    }

    /// A target must not make the controller send its own files to whom it names.
    #[test]
    fn each_host_takes_its_own_sources_only() {
        let refusal = |target: &Target, secrets| {
            connection(target, vec![url()], secrets)
                .unwrap_err()
                .to_string()
        };
        let kubernetes = || Some(("prod", reader()));
        assert!(refusal(&files(), kubernetes()).contains("tls.caFile"));
        assert!(refusal(&secrets(), None).contains("tls.secretRef"));
        let (mut mixed, mut other) = (secrets(), files());
        std::mem::swap(&mut mixed.auth, &mut other.auth);
        assert!(refusal(&mixed, kubernetes()).contains("auth.usernameFile"));
        assert!(refusal(&other, None).contains("auth.secretRef"));
    }

    #[test]
    fn pods_are_reached_at_the_endpoints_that_they_were_resolved_to() {
        let mut target = secrets();
        target.members = Members::Pods {
            match_labels: BTreeMap::from([("component".to_owned(), "etcd".to_owned())]),
            port: 2379,
            scheme: Scheme::Https,
        };
        let pods = ["https://10.0.0.1:2379", "https://[fd00::1]:2379"];
        let urls = pods.map(|pod| Url::parse(pod).unwrap()).to_vec();
        let made = connection(&target, urls, Some(("prod", reader()))).unwrap();
        let endpoints: Vec<String> = made.endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(endpoints, pods);
        assert!(matches!(of_files(&target), Err(ConnectError::NoPodsHere)));
        assert!(matches!(
            connection(&target, Vec::new(), Some(("prod", reader()))),
            Err(ConnectError::NoEndpoints)
        ));
    }
}
