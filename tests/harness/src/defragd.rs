//! A real `defragd standalone` with folders of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ports::Port;
use crate::process::{Process, scratch, tail, while_ports_are_taken, whole};
use crate::{Error, Status, eventually, eventually_while, pages, tls};

/// How long it may take to be ready, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(30);
/// A write that hits a limit on file sizes shall fail, as one on a full disk does, not kill.
const WRAPPER: &str = r#"trap '' XFSZ; exec "$@""#;

/// `defragd standalone`, running or stopped for a while.
#[derive(Debug)]
pub struct Defragd {
    binary: PathBuf,
    // The order matters: the process ends before its port and folder go.
    process: Mutex<Option<Process>>,
    port: Mutex<Port>,
    http: reqwest::Client,
    scratch: TempDir,
}

impl Defragd {
    /// Folders for this binary, with an empty configuration and no objects. Nothing runs yet.
    ///
    /// # Errors
    /// When there is no folder or port to be had.
    pub fn new(binary: impl Into<PathBuf>) -> Result<Self, Error> {
        let defragd = Self {
            binary: binary.into(),
            process: Mutex::default(),
            port: Mutex::new(Port::reserve()?),
            http: tls::http_client(None)?,
            scratch: scratch("standalone")?,
        };
        let objects = defragd.objects();
        fs::create_dir(&objects)
            .map_err(|e| Error::io(format!("create {}", objects.display()), e))?;
        defragd.configure(&json!({}))?;
        Ok(defragd)
    }

    /// The administrator's file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.scratch.path().join("defragd.yaml")
    }

    /// The folder of objects.
    #[must_use]
    pub fn objects(&self) -> PathBuf {
        self.scratch.path().join("objects")
    }

    /// The state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    /// Everything it printed, over all its starts.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.scratch.path().join("defragd.log")
    }

    /// What is in the log so far.
    #[must_use]
    pub fn logged(&self) -> String {
        whole(&self.log())
    }

    /// The end of the log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.log())
    }

    /// Writes the administrator's file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn configure(&self, config: &Value) -> Result<(), Error> {
        // JSON is YAML, and needs no thought about quotes.
        put(&self.config(), &config.to_string())
    }

    /// Puts a file into the folder of objects, or another in its place, as an editor does: whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, file: &str, text: &str) -> Result<(), Error> {
        put(&self.objects().join(file), text)
    }

    /// Takes a file out of the folder of objects.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn take_out(&self, file: &str) -> Result<(), Error> {
        let path = self.objects().join(file);
        fs::remove_file(&path).map_err(|e| Error::io(format!("remove {}", path.display()), e))
    }

    /// Starts it and waits until it says that it is ready.
    ///
    /// # Errors
    /// When it ends by itself (with the end of its log), or is not ready in time.
    pub async fn start(&self) -> Result<(), Error> {
        while_ports_are_taken(async || self.try_start().await).await
    }

    async fn try_start(&self) -> Result<(), Error> {
        // A new one each time: nobody but this handle has to know it.
        let mut port = Port::reserve()?;
        port.release();
        *self.port.lock().unwrap_or_else(PoisonError::into_inner) = port;
        let address = self.address();
        let mut args: Vec<OsString> = ["-c", WRAPPER, "sh"].map(Into::into).to_vec();
        args.push(self.binary.clone().into());
        args.push("standalone".into());
        args.extend(["--config".into(), self.config().into()]);
        args.extend(["--objects".into(), self.objects().into()]);
        args.extend(["--state".into(), self.state().into()]);
        args.extend(["--listen".into(), address.into()]);
        let started = Process::start("defragd", Path::new("/bin/sh"), &args, self.log())?;
        *self.process() = Some(started);
        eventually_while(
            || self.check(),
            START,
            "defragd to be ready",
            async || {
                let ready = self.page("/readyz").await;
                ready.map(drop).map_err(|e| e.to_string())
            },
        )
        .await
    }

    /// Fails when it has ended by itself.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn check(&self) -> Result<(), Error> {
        self.process().as_mut().map_or(Ok(()), Process::check)
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::pid)
    }

    /// Asks it to stop in order (`SIGTERM`) and says how it ended; `None` when it had to be killed.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop(&self) -> Result<Option<ExitStatus>, Error> {
        self.take()?.terminate().await
    }

    /// Kills it at once (`SIGKILL`).
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&self) -> Result<(), Error> {
        self.take().map(drop)
    }

    /// Sends a signal to it.
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        match self.process().as_mut() {
            Some(process) => process.signal(signal),
            None => Err(not_running()),
        }
    }

    /// Makes every write beyond this size of a file fail, as on a full disk; `None` takes the limit
    /// away.
    ///
    /// # Errors
    /// When it is not running, or this process may not do so.
    pub fn limit_files(&self, bytes: Option<u64>) -> Result<(), Error> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        prlimit(Some(pid.ok_or_else(not_running)?), Resource::Fsize, limit)
            .map(drop)
            .map_err(|e| Error::io("limit the size of defragd's files", e.into()))
    }

    /// One of the pages that it serves.
    ///
    /// # Errors
    /// When it does not answer, or not with success.
    pub async fn page(&self, path: &str) -> Result<String, Error> {
        let url = format!("http://{}{path}", self.address());
        pages::get(&self.http, &url).await
    }

    /// What `defragd status` knows, beside the running process or without it.
    ///
    /// # Errors
    /// When the command fails or does not print JSON.
    pub async fn status(&self) -> Result<Status, Error> {
        let output = self.ask_status("json").await?;
        let parsed = output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout));
        match parsed {
            Some(Ok(value)) => Ok(Status(value)),
            _ => Err(Error::Ended {
                name: "defragd status".to_owned(),
                status: output.status.to_string(),
                log: self.log(),
                tail: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }

    /// Waits until the status is as wanted, and returns it.
    ///
    /// # Errors
    /// When it ends by itself, or the status is not so in time.
    pub async fn until(
        &self,
        deadline: Duration,
        what: &str,
        wanted: impl Fn(&Status) -> bool,
    ) -> Result<Status, Error> {
        Status::until(|| self.check(), deadline, what, || self.status(), wanted).await
    }

    /// One number of its metrics, if it has it: `name` with its labels, as the page writes them.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metric(&self, name: &str) -> Result<Option<f64>, Error> {
        Ok(pages::number(&self.page("/metrics").await?, name))
    }

    /// Waits until this source has answered so many more polls, which is time for a wrong decision,
    /// and returns the status then.
    ///
    /// # Errors
    /// When it does not answer, or the polls do not come in time.
    pub async fn after_polls(
        &self,
        deadline: Duration,
        source: &str,
        more: f64,
    ) -> Result<Status, Error> {
        let name = format!("defragd_source_requests_total{{source=\"{source}\",code=\"200\"}}");
        let count = async || Ok::<_, Error>(self.metric(&name).await?.unwrap_or(0.0));
        let before = count().await?;
        eventually(
            deadline,
            format!("{more} more polls"),
            async || match count().await {
                Ok(now) if now >= before + more => Ok(()),
                Ok(now) => Err(format!("{} more", now - before)),
                Err(error) => Err(error.to_string()),
            },
        )
        .await?;
        self.status().await
    }

    /// What `defragd status` says to a person.
    ///
    /// # Errors
    /// When the command cannot be started.
    pub async fn status_text(&self) -> Result<String, Error> {
        let output = self.ask_status("text").await?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The command that shows the status, as a person would type it.
    #[must_use]
    pub fn status_command(&self) -> String {
        format!(
            "{} status --state {}",
            self.binary.display(),
            self.state().display()
        )
    }

    async fn ask_status(&self, format: &'static str) -> Result<Output, Error> {
        let mut command = Command::new(&self.binary);
        command.args(["status", "--output", format, "--state"]);
        command.arg(self.state());
        tokio::task::spawn_blocking(move || command.output())
            .await
            .map_err(std::io::Error::from)
            .flatten()
            .map_err(|e| Error::io(format!("run {}", self.binary.display()), e))
    }

    /// Keeps the folders for a person to look at, and says where they are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Where it serves, `host:port`; another one after each start.
    #[must_use]
    pub fn address(&self) -> String {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        format!("127.0.0.1:{}", port.number())
    }

    fn take(&self) -> Result<Process, Error> {
        self.process().take().ok_or_else(not_running)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_running() -> Error {
    Error::io("find defragd", std::io::ErrorKind::NotFound.into())
}

/// Writes beside the place and renames, so that nobody reads a half.
fn put(path: &Path, text: &str) -> Result<(), Error> {
    let unfinished = path.with_extension("unfinished~");
    fs::write(&unfinished, text)
        .and_then(|()| fs::rename(&unfinished, path))
        .map_err(|e| Error::io(format!("write {}", path.display()), e))
}
