//! From a validated target to the way its cluster is reached.

use crate::core::target::Target;
use crate::etcd::{Auth, ConnectError, Connection, Endpoint, Source, Tls};

/// How the target's cluster is reached. Files are named here and read at each
/// connect.
///
/// # Errors
/// What the client refuses of it.
pub(super) fn connection(target: &Target) -> Result<Connection, ConnectError> {
    let Target {
        endpoints,
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
    connection.tls = tls.as_ref().map(|tls| Tls {
        ca: Some(Source::file(&tls.ca_file)),
        certificate: tls
            .identity
            .as_ref()
            .map(|(certificate, _)| Source::file(certificate)),
        key: tls.identity.as_ref().map(|(_, key)| Source::file(key)),
        server_name: tls.server_name.clone(),
    });
    connection.auth = auth.as_ref().map(|auth| Auth {
        username: Source::file(&auth.username_file),
        password: Source::file(&auth.password_file),
    });
    connection.validate()?;
    Ok(connection)
}
