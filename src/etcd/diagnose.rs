//! When a connection carried no answer at all: who is listening there?
//!
//! gRPC in plain to a TLS port, or the other way round, to a server that wants
//! a client certificate, or to one that speaks HTTP/1 only, ends in a reset
//! that says nothing to a person. A few more short connections find out.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::core::reason::Reason;

use super::connection::Endpoint;
use super::error::{CLIENT_CERTIFICATE_WANTED, chain, names_certificate_alert};

/// For each question; they are short.
const LIMIT: Duration = Duration::from_secs(1);

/// How often a server that closes is asked why.
const ALERT_TRIES: u32 = 8;

/// What is wrong with the endpoint, if it can be found out. The HTTP client
/// knows by itself where the endpoint is.
pub(super) async fn explain(
    endpoint: &Endpoint,
    dialled: &Endpoint,
    http: &reqwest::Client,
) -> Option<(Reason, &'static str)> {
    if endpoint.is_https() {
        if ask(dialled, QUESTION).await.starts_with(b"HTTP/1.0 200") {
            return Some((
                Reason::EndpointUnusable,
                "the port does not speak TLS, write http:// for it",
            ));
        }
        return wants_certificate(endpoint, http)
            .await
            .then_some((Reason::PermissionDenied, CLIENT_CERTIFICATE_WANTED));
    }
    // A record of TLS with a ClientHello too short to be one: a TLS server
    // answers with an alert, before it has looked at any certificate.
    let hello = [0x16, 3, 1, 0, 4, 1, 0, 0, 0];
    if matches!(ask(dialled, &hello).await.as_slice(), [0x15 | 0x16, 3, ..]) {
        return Some((
            Reason::EndpointUnusable,
            "the port speaks TLS, write https:// for it",
        ));
    }
    ask(dialled, QUESTION)
        .await
        .starts_with(b"HTTP/1")
        .then_some((
            Reason::EndpointUnusable,
            "the port speaks HTTP/1 and not gRPC, it is not an etcd v3 client URL",
        ))
}

/// Whether the server refuses the client's certificate, or misses one. In TLS 1.3
/// it says so only after the client's side of the handshake, and closes: a
/// request that is written at that moment fails before the alert is read, and
/// the alert is lost. Then it is asked again.
async fn wants_certificate(endpoint: &Endpoint, http: &reqwest::Client) -> bool {
    for _ in 0..ALERT_TRIES {
        match http.get(endpoint.version_url()).timeout(LIMIT).send().await {
            Ok(_) => return false,
            Err(e) if names_certificate_alert(&chain(&e)) => return true,
            Err(e) if e.is_timeout() => return false,
            Err(_) => {}
        }
    }
    false
}

/// etcd answers this on its client and peer ports.
const QUESTION: &[u8] = b"GET /version HTTP/1.0\r\n\r\n";

/// The first bytes of the answer; none when there is none in time.
async fn ask(endpoint: &Endpoint, question: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
        stream.write_all(question).await?;
        let mut answer = [0; 12];
        let n = stream.read(&mut answer).await?;
        Ok::<_, std::io::Error>(answer[..n].to_vec())
    };
    match timeout(LIMIT, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}
