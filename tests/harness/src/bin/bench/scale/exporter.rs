//! One gauge for each cluster, as an exporter of them all would have it.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::Failure;

/// Serves one gauge for each cluster, and knows when a change of it was first served.
pub(super) struct Exporter {
    pub(super) address: String,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    clusters: usize,
    firing: usize,
    served: Option<Instant>,
}

impl Exporter {
    pub(super) async fn start(clusters: usize) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let shared = Arc::new(Mutex::new(Shared {
            clusters,
            firing: 0,
            served: None,
        }));
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                // Whatever is asked, there is one answer.
                let _ = stream.read(&mut request).await;
                let body = page(&serving);
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Ok(Exporter { address, shared })
    }

    pub(super) fn cross(&self, clusters: usize) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.firing = clusters;
        shared.served = None;
    }

    /// When the crossing samples were first served.
    pub(super) fn served(&self) -> Option<Instant> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.served
    }
}

fn page(shared: &Mutex<Shared>) -> String {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.firing > 0 && shared.served.is_none() {
        shared.served = Some(Instant::now());
    }
    let mut text = String::new();
    for i in 0..shared.clusters {
        let bytes = if i < shared.firing {
            500 << 20
        } else {
            1 << 20
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "bench_reclaimable_bytes{{cluster=\"t{i}\"}} {bytes}");
    }
    text
}
