//! A server with one port that can be stopped and started again on it.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use crate::ports::Port;
use crate::process::Process;
use crate::{Error, eventually, eventually_while};

/// What to start and where, and the process while it runs.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: &'static str,
    binary: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    log: PathBuf,
    // The order matters: the process ends before its port goes.
    process: Mutex<Option<Process>>,
    port: Mutex<Port>,
}

impl Daemon {
    /// Reserves a port. Nothing runs yet.
    pub(crate) fn new(name: &'static str, binary: PathBuf, log: PathBuf) -> Result<Self, Error> {
        Ok(Self {
            name,
            binary,
            args: Vec::new(),
            env: Vec::new(),
            log,
            process: Mutex::default(),
            port: Mutex::new(Port::reserve()?),
        })
    }

    /// More flags, from the next start on.
    pub(crate) fn args<S: Into<OsString>>(&mut self, args: impl IntoIterator<Item = S>) {
        self.args.extend(args.into_iter().map(Into::into));
    }

    /// A variable of the environment, from the next start on.
    pub(crate) fn env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.env.push((name.into(), value.into()));
    }

    /// Where it is told to listen.
    pub(crate) fn address(&self) -> SocketAddr {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()))
    }

    /// Everything it printed, over all its starts.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Starts the process. Fails when it runs already.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let mut process = self.process();
        if process.is_some() {
            let error = std::io::ErrorKind::AlreadyExists.into();
            return Err(Error::io(format!("start {} twice", self.name), error));
        }
        self.port
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .release();
        let (args, env, log) = (&self.args, &self.env, self.log.clone());
        *process = Some(Process::start_with(
            self.name,
            &self.binary,
            args,
            env,
            log,
        )?);
        Ok(())
    }

    /// Waits until `look` sees that it is ready. Gives up at once when the process ends.
    pub(crate) async fn await_ready(
        &self,
        deadline: Duration,
        mut look: impl AsyncFnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let what = format!("{} to be ready", self.name);
        eventually_while(
            || self.check(),
            deadline,
            what,
            async || look().await.map_err(|e| e.to_string()),
        )
        .await
    }

    /// Fails when it is not running, with the end of its log when it has ended by itself.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.with_process(Process::check)
    }

    /// The process id, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::pid)
    }

    /// Freezes it.
    pub(crate) fn pause(&self) -> Result<(), Error> {
        self.with_process(Process::pause)
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.with_process(|process| process.signal(signal))
    }

    /// Asks it to end in order and says how it did; `None` when it had to be killed.
    pub(crate) async fn stop(&self) -> Result<Option<ExitStatus>, Error> {
        self.take()?.terminate().await
    }

    /// Kills it at once.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        self.take().map(drop)
    }

    /// Waits until it ends by itself and says how it did. It can be started again then.
    pub(crate) async fn await_end(&self, deadline: Duration) -> Result<ExitStatus, Error> {
        let what = format!("{} to end by itself", self.name);
        let ended = eventually(deadline, what, async || {
            match self.with_process(Process::ended) {
                Ok(Some(status)) => Some(Ok(status)),
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            }
        });
        let status = ended.await??;
        self.kill()?;
        Ok(status)
    }

    fn with_process<T>(
        &self,
        act: impl FnOnce(&mut Process) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.process()
            .as_mut()
            .map_or_else(|| Err(self.not_running()), act)
    }

    fn take(&self) -> Result<Process, Error> {
        self.process().take().ok_or_else(|| self.not_running())
    }

    fn not_running(&self) -> Error {
        let error = std::io::ErrorKind::NotFound.into();
        Error::io(format!("find a running {}", self.name), error)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
