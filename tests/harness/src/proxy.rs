//! A fault tool: a TCP proxy that can stall, slow down or cut what passes through it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::Error;

/// What a [`TcpProxy`] does to its connections, old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Everything passes.
    Pass,
    /// Everything passes, each piece this much later.
    Delay(Duration),
    /// Connections are accepted and stay open, nothing passes. What was held back passes when the
    /// fault ends.
    BlackHole,
    /// What clients send passes, what they are answered is held back until the fault ends.
    HoldAnswers,
    /// Connections are reset, new ones as soon as they are accepted.
    Cut,
}

/// A proxy in front of one address. It ends with its value; its connections end with it.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    task: JoinHandle<()>,
}

impl TcpProxy {
    /// Starts a proxy in front of `target`, with [`Fault::Pass`]. Nothing is sent to the target
    /// before a client connects.
    ///
    /// # Errors
    /// When there is no port to listen on.
    pub async fn start(target: SocketAddr) -> Result<Self, Error> {
        let listen = async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            Ok((listener.local_addr()?, listener))
        };
        let (address, listener) = listen
            .await
            .map_err(|e| Error::io("listen for a proxy", e))?;
        let (fault, seen) = watch::channel(Fault::Pass);
        let task = tokio::spawn(accept(listener, target, seen));
        Ok(Self {
            address,
            fault,
            task,
        })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Switches the fault, for open connections too.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, fault: watch::Receiver<Fault>) {
    // Dropped with this task, and all connections with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                connections.spawn(connection(client, target, fault.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(mut client: TcpStream, target: SocketAddr, mut fault: watch::Receiver<Fault>) {
    // The proxy's own doing must not add to the delays: no Nagle. Errors show as a lost connection.
    let _ = client.set_nodelay(true);
    if *fault.borrow_and_update() == Fault::Cut {
        let _ = client.set_zero_linger();
        return;
    }
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    let _ = server.set_nodelay(true);
    {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let there = pump(from_client, to_server, fault.clone(), &[Fault::BlackHole]);
        let holding = [Fault::BlackHole, Fault::HoldAnswers];
        let back = pump(from_server, to_client, fault.clone(), &holding);
        tokio::select! {
            _ = async { tokio::join!(there, back) } => return,
            () = until_cut(fault) => {}
        }
    }
    // A reset, not an orderly end: that is what a cut looks like.
    let _ = client.set_zero_linger();
    let _ = server.set_zero_linger();
}

async fn until_cut(mut fault: watch::Receiver<Fault>) {
    // An error means that the proxy is gone, and so must the connection.
    let _ = fault.wait_for(|fault| *fault == Fault::Cut).await;
}

/// Copies one direction until its end, which passes or is held back as the rest does.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut fault: watch::Receiver<Fault>,
    holding: &[Fault],
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let now = *fault.borrow_and_update();
        if let Fault::Delay(pause) = now {
            tokio::time::sleep(pause).await;
        }
        // Also what is late already is held back by a fault that came meanwhile. An error means that
        // the proxy is gone.
        let passing = fault.wait_for(|fault| !holding.contains(fault));
        if passing.await.is_err() {
            return;
        }
        let passed = to.write_all(&buffer[..read]).await;
        if read == 0 || passed.is_err() {
            // An error means that the other side went first.
            let _ = to.shutdown().await;
            return;
        }
    }
}
