//! When a plain connection carried no answer at all: who is listening there?
//!
//! gRPC over plain HTTP/2 to a TLS port, or to a server that speaks HTTP/1
//! only, ends in a reset that says nothing to a person. One more short
//! connection finds out.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection::Endpoint;

/// Two short questions on loopback or within one network.
const LIMIT: Duration = Duration::from_secs(1);

/// A remedy for an http endpoint whose connection broke, if one is found.
pub(super) async fn explain(endpoint: &Endpoint) -> Option<&'static str> {
    if endpoint.is_https() {
        return None;
    }
    // A record of TLS with a ClientHello too short to be one: a TLS server
    // answers with an alert, before it has looked at any certificate.
    let hello = [0x16, 3, 1, 0, 4, 1, 0, 0, 0];
    if matches!(ask(endpoint, &hello).await.as_slice(), [0x15 | 0x16, 3, ..]) {
        return Some("the port speaks TLS, write https:// for it");
    }
    if ask(endpoint, b"GET /version HTTP/1.0\r\n\r\n")
        .await
        .starts_with(b"HTTP/1")
    {
        return Some("the port speaks HTTP/1 and not gRPC, it is not an etcd v3 client URL");
    }
    None
}

/// The first bytes of the answer; none when there is none in time.
async fn ask(endpoint: &Endpoint, question: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
        stream.write_all(question).await?;
        let mut answer = [0; 8];
        let n = stream.read(&mut answer).await?;
        Ok::<_, std::io::Error>(answer[..n].to_vec())
    };
    match timeout(LIMIT, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}
