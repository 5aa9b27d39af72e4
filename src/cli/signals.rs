//! SIGINT and SIGTERM: the first asks for an orderly end, the second aborts.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for both signals; from its creation on neither kills the process.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next of either. Cancel-safe.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
