//! A real `defragd controller`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::process::{scratch, tail, while_ports_are_taken, whole};
use crate::{Error, pages, tls};

/// How long it may take to be ready, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(30);

/// A `defragd controller` to be, as the chart would start it.
#[derive(Debug, Clone)]
pub struct Controller {
    binary: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Controller {
    /// This binary as the user of this kubeconfig.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>, kubeconfig: &Path) -> Self {
        let controller = Self {
            binary: binary.into(),
            args: Vec::new(),
            env: Vec::new(),
        };
        controller.env("KUBECONFIG", kubeconfig)
    }

    /// The namespace and name of the pod that it is told to be in, as the downward API tells it.
    #[must_use]
    pub fn pod(self, namespace: &str, name: &str) -> Self {
        self.env("POD_NAMESPACE", namespace).env("POD_NAME", name)
    }

    /// A variable of its environment, which is otherwise empty but for `PATH`, `HOME` and `TMPDIR`.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// More flags, such as `--config`, `--namespace` and `--max-concurrent-runs`. Where to listen
    /// it is told already.
    #[must_use]
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts it and waits until it says that it is ready.
    ///
    /// # Errors
    /// When it ends by itself (with the end of its log), or is not ready in time.
    pub async fn start(self) -> Result<RunningController, Error> {
        while_ports_are_taken(async || {
            let controller = self.prepare()?;
            controller.start_again().await?;
            Ok(controller)
        })
        .await
    }

    /// Starts it without waiting: where it cannot get ready, or may end at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn launch(self) -> Result<RunningController, Error> {
        let controller = self.prepare()?;
        controller.daemon.start()?;
        Ok(controller)
    }

    fn prepare(&self) -> Result<RunningController, Error> {
        let scratch = scratch("controller")?;
        let log = scratch.path().join("defragd.log");
        let mut daemon = Daemon::new("defragd controller", self.binary.clone(), log)?;
        let listen = daemon.address().to_string();
        daemon.args(["controller", "--listen", &listen]);
        daemon.args(self.args.iter().cloned());
        for (name, value) in &self.env {
            daemon.env(name, value);
        }
        Ok(RunningController {
            daemon,
            http: tls::http_client(None)?,
            scratch,
        })
    }
}

/// A running controller, or one that was stopped for a while.
#[derive(Debug)]
pub struct RunningController {
    // The order matters: the process ends before its folder goes.
    daemon: Daemon,
    http: reqwest::Client,
    scratch: TempDir,
}

impl RunningController {
    /// Where its pages are, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.daemon.address())
    }

    /// Starts it again as it was started before, and waits until it says that it is ready.
    ///
    /// # Errors
    /// When it runs, ends by itself (with the end of its log), or is not ready in time.
    pub async fn start_again(&self) -> Result<(), Error> {
        self.daemon.start()?;
        self.await_ready().await
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// When it does not run, ends by itself (with the end of its log), or is not ready in time.
    pub async fn await_ready(&self) -> Result<(), Error> {
        let ready = async || self.page("/readyz").await.map(drop);
        self.daemon.await_ready(START, ready).await
    }

    /// Waits until it ends by itself and says how it did. It can be started again then.
    ///
    /// # Errors
    /// When it still runs at the deadline, or did not run.
    pub async fn await_end(&self, deadline: Duration) -> Result<ExitStatus, Error> {
        self.daemon.await_end(deadline).await
    }

    /// Fails when it does not run.
    ///
    /// # Errors
    /// With the end of its log when it has ended by itself.
    pub fn check(&self) -> Result<(), Error> {
        self.daemon.check()
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.daemon.pid()
    }

    /// Asks it to stop in order (`SIGTERM`) and says how it ended; `None` when it had to be killed.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop(&self) -> Result<Option<ExitStatus>, Error> {
        self.daemon.stop().await
    }

    /// Kills it at once (`SIGKILL`).
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&self) -> Result<(), Error> {
        self.daemon.kill()
    }

    /// Freezes it (`SIGSTOP`): what it was about to do it does when it is woken.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<(), Error> {
        self.daemon.pause()
    }

    /// Wakes a frozen one (`SIGCONT`).
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal to it.
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.daemon.signal(signal)
    }

    /// One of the pages that it serves.
    ///
    /// # Errors
    /// When it does not answer, or not with success.
    pub async fn page(&self, path: &str) -> Result<String, Error> {
        let url = format!("{}{path}", self.url());
        pages::get(&self.http, &url).await
    }

    /// All of its metrics.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<String, Error> {
        self.page("/metrics").await
    }

    /// One number of its metrics, if it has it: `name` with its labels, as the page writes them.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metric(&self, name: &str) -> Result<Option<f64>, Error> {
        Ok(pages::number(&self.metrics().await?, name))
    }

    /// Everything it printed, over all its starts.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.daemon.log()
    }

    /// What is in the log so far.
    #[must_use]
    pub fn logged(&self) -> String {
        whole(self.log())
    }

    /// The end of the log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(self.log())
    }

    /// A folder for a test's own files. It goes with this value.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}
