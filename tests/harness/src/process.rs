//! Child processes that never outlive what needs them.
//!
//! Three nets: the handle kills and reaps its child when it is dropped, also while a test panics;
//! a watcher process kills what is left when this process ends in any other way (`SIGKILL`,
//! `abort`, a static that is never dropped), because the kernel then closes the pipe between them;
//! and the watcher removes the temporary folders that nobody could remove.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use crate::{Error, eventually};

/// How much of a log an error shows.
const TAIL_LINES: usize = 25;
/// A server that does not end this long after `SIGTERM` is killed.
const GRACE: Duration = Duration::from_secs(20);

/// How often a start is tried when ports were taken.
const ATTEMPTS: usize = 3;

/// Reads `run PID`, `done PID` and `dir PATH`, and acts when the pipe closes. Signals of the
/// terminal are ignored: the harness process gets them too, and its end is what counts here.
const WATCHER: &str = r#"
trap '' INT TERM HUP QUIT
pids=' '
dirs=
while IFS=' ' read -r word value; do
    case $word in
        run) pids="$pids$value " ;;
        done) case $pids in *" $value "*) pids="${pids%% "$value" *} ${pids#* "$value" }" ;; esac ;;
        dir) dirs="$dirs$value
" ;;
    esac
done
for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
printf '%s' "$dirs" | while IFS= read -r dir; do
    case $dir in
        */defragd-*)
            # A server that is not quite dead may still write.
            for attempt in 1 2 3 4 5; do
                rm -rf -- "$dir" && break
                sleep 1
            done
            ;;
    esac
done
"#;

/// Tells the watcher something; starts it first if need be.
fn tell_watcher(line: &str) -> io::Result<()> {
    static WATCHER_PIPE: Mutex<Option<ChildStdin>> = Mutex::new(None);
    let mut pipe = WATCHER_PIPE.lock().unwrap_or_else(PoisonError::into_inner);
    if pipe.is_none() {
        let mut watcher = Command::new("sh")
            .args(["-c", WATCHER, "defragd-watcher"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        *pipe = watcher.stdin.take();
    }
    match pipe.as_mut() {
        Some(pipe) => pipe.write_all(format!("{line}\n").as_bytes()),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// A temporary folder that is removed when dropped, or by the watcher when that never happens.
pub(crate) fn scratch(purpose: &str) -> Result<TempDir, Error> {
    let dir = tempfile::Builder::new()
        .prefix(&format!("defragd-{purpose}-"))
        .tempdir()
        .map_err(|e| Error::io("create a temporary folder", e))?;
    tell_watcher(&format!("dir {}", dir.path().display()))
        .map_err(|e| Error::io("start the watcher process", e))?;
    Ok(dir)
}

/// What a child gets of this process's environment.
pub(crate) fn kept_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    ["PATH", "HOME", "TMPDIR"]
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// One running server. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`, with its output appended to the file `log`. It gets no more of this
    /// process's environment than it needs, because etcd takes every flag from there too, and a
    /// process group of its own, so that Ctrl-C reaches only the one who started it.
    pub(crate) fn start(
        name: impl Into<String>,
        program: &Path,
        args: &[OsString],
        log: PathBuf,
    ) -> Result<Self, Error> {
        Self::start_with(name, program, args, &[], log)
    }

    /// The same, with these variables in its environment too.
    pub(crate) fn start_with(
        name: impl Into<String>,
        program: &Path,
        args: &[OsString],
        env: &[(OsString, OsString)],
        log: PathBuf,
    ) -> Result<Self, Error> {
        let name = name.into();
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .and_then(|file| Ok((file.try_clone()?, file)))
            .map_err(|e| Error::io(format!("open {}", log.display()), e))?;
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .envs(kept_environment())
            .envs(env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.0)
            .stderr(output.1)
            .process_group(0)
            .spawn()
            .map_err(|e| Error::io(format!("start {} for {name}", program.display()), e))?;
        let process = Self { name, child, log };
        tell_watcher(&format!("run {}", process.pid()))
            .map_err(|e| Error::io("tell the watcher process", e))?;
        Ok(process)
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails when the server has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(Error::Ended {
                name: self.name.clone(),
                status: status.to_string(),
                log: self.log.clone(),
                tail: tail(&self.log),
            }),
        }
    }

    /// How the process has ended by itself, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child
            .try_wait()
            .map_err(|e| Error::io(format!("ask how {} is", self.name), e))
    }

    /// Sends a signal to this very process.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        // A reaped child's id may belong to somebody else by now.
        self.check()?;
        self.id()
            .and_then(|pid| Ok(kill_process(pid, signal)?))
            .map_err(|e| Error::io(format!("send {signal:?} to {}", self.name), e))
    }

    /// Freezes this very process, and returns when it is frozen: the signal goes to one of its
    /// threads, and the others run on until that one has come to see it.
    pub(crate) fn pause(&mut self) -> Result<(), Error> {
        self.signal(Signal::STOP)?;
        let look = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        self.id()
            .and_then(|pid| Ok(waitid(WaitId::Pid(pid), look)?))
            .map_err(|e| Error::io(format!("wait for {} to freeze", self.name), e))?;
        self.check()
    }

    fn id(&self) -> io::Result<Pid> {
        Pid::from_raw(self.pid().cast_signed()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Asks the server to end, and kills it when it does not.
    pub(crate) async fn stop(self) -> Result<(), Error> {
        self.terminate().await.map(drop)
    }

    /// Asks the process to end and says how it did; `None` when it had to be killed.
    pub(crate) async fn terminate(mut self) -> Result<Option<ExitStatus>, Error> {
        self.signal(Signal::TERM)?;
        let ended = eventually(GRACE, format!("{} to end", self.name), async || {
            self.child.try_wait().ok().flatten()
        })
        .await;
        // A time-out is no fault: dropping `self` kills what is left.
        Ok(ended.ok())
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        // Before the wait: afterwards the id may belong to somebody else.
        tell_watcher(&format!("done {}", self.pid()))?;
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- end of the log of {} ---\n{}",
                self.name,
                tail(&self.log)
            );
        }
        if let Err(error) = self.end() {
            eprintln!("failed to end {}: {error}", self.name);
        }
    }
}

/// Starts a server, and again when a foreign process took one of its ports in the moment between
/// letting go of it and the server's own binding. The harness's own processes keep apart by locks.
pub(crate) async fn while_ports_are_taken<T>(
    mut start: impl AsyncFnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    for _ in 1..ATTEMPTS {
        match start().await {
            Err(Error::Ended { tail, .. })
                if tail.to_lowercase().contains("address already in use") => {}
            result => return result,
        }
    }
    start().await
}

/// All of a log.
pub(crate) fn whole(log: &Path) -> String {
    fs::read(log).map_or_else(
        |error| format!("(no log: {error})"),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    match fs::read(log) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<_> = text.lines().collect();
            lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
        }
        Err(error) => format!("({} cannot be read: {error})", log.display()),
    }
}
