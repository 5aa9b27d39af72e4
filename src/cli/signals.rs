//! SIGINT and SIGTERM: the first asks for an orderly end, the second aborts.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{CliError, Exit, output};

/// Runs a host until it ends. The first signal cancels the token that `host` is
/// given; the second aborts.
pub(super) async fn until_signalled<F>(
    host: impl FnOnce(CancellationToken) -> F,
) -> Result<Exit, CliError>
where
    F: Future<Output = Result<(), CliError>>,
{
    let mut signals = Signals::listen().map_err(CliError::Start)?;
    let shutdown = CancellationToken::new();
    let host = host(shutdown.clone());
    tokio::pin!(host);
    loop {
        tokio::select! {
            biased;
            ended = &mut host => return ended.map(|()| Exit::Done),
            () = signals.next() => {
                if shutdown.is_cancelled() {
                    output::say(
                        "aborted: what is under way goes on in etcd; its intent is recorded, and the next start \
                         observes what became of it",
                    );
                    return Ok(Exit::Interrupted);
                }
                shutdown.cancel();
            }
        }
    }
}

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
