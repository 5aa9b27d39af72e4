//! A real Alertmanager on loopback, alone or as one of a set.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::ports::Port;
use crate::process::{scratch, while_ports_are_taken};
use crate::tls::http_client;
use crate::{Error, servers};

/// How long it may take to be ready, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(60);

/// An Alertmanager to be.
#[derive(Debug, Clone)]
pub struct Alertmanager {
    config: Value,
    peers: Vec<String>,
    clustered: bool,
}

impl Default for Alertmanager {
    /// It tells nobody of its alerts.
    fn default() -> Self {
        Self {
            config: json!({
                "route": { "receiver": "nobody" },
                "receivers": [{ "name": "nobody" }],
            }),
            peers: Vec::new(),
            clustered: false,
        }
    }
}

impl Alertmanager {
    /// Works by this configuration.
    #[must_use]
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// One of a set: others can join it.
    #[must_use]
    pub fn clustered(mut self) -> Self {
        self.clustered = true;
        self
    }

    /// Joins the set of this one.
    #[must_use]
    pub fn joins(mut self, other: &AlertmanagerServer) -> Self {
        self.clustered = true;
        self.peers.extend(other.peer_address());
        self
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When the binary cannot be had, or it ends or is not ready in time.
    pub async fn start(self) -> Result<AlertmanagerServer, Error> {
        let binaries = servers::alertmanager().await?;
        while_ports_are_taken(async || self.try_start(&binaries).await).await
    }

    async fn try_start(&self, binaries: &std::path::Path) -> Result<AlertmanagerServer, Error> {
        let scratch = scratch("alertmanager")?;
        let dir = scratch.path();
        // JSON is YAML, and needs no thought about quotes.
        let config = dir.join("alertmanager.yml");
        fs::write(&config, self.config.to_string())
            .map_err(|e| Error::io(format!("write {}", config.display()), e))?;
        let log = dir.join("alertmanager.log");
        let mut daemon = Daemon::new("alertmanager", binaries.join("alertmanager"), log)?;
        let mut gossip = match self.clustered {
            true => Some(Port::reserve()?),
            false => None,
        };
        let flag = |name: &str, value: String| OsString::from(format!("--{name}={value}"));
        daemon.args([
            flag("config.file", config.display().to_string()),
            flag("storage.path", dir.join("data").display().to_string()),
            flag("web.listen-address", daemon.address().to_string()),
            // Empty: it is alone.
            flag(
                "cluster.listen-address",
                gossip
                    .as_ref()
                    .map(|port| format!("127.0.0.1:{}", port.number()))
                    .unwrap_or_default(),
            ),
            flag("cluster.settle-timeout", "2s".to_owned()),
            flag("cluster.gossip-interval", "100ms".to_owned()),
        ]);
        if gossip.is_some() {
            daemon.args([flag(
                "cluster.advertise-address",
                match &gossip {
                    Some(port) => format!("127.0.0.1:{}", port.number()),
                    None => String::new(),
                },
            )]);
        }
        daemon.args(
            self.peers
                .iter()
                .map(|peer| flag("cluster.peer", peer.clone())),
        );
        if let Some(port) = &mut gossip {
            port.release();
        }
        let server = AlertmanagerServer {
            daemon,
            gossip,
            amtool: binaries.join("amtool"),
            http: http_client(None)?,
            _scratch: scratch,
        };
        server.start_again().await?;
        Ok(server)
    }
}

/// A running Alertmanager, or one that was stopped for a while.
#[derive(Debug)]
pub struct AlertmanagerServer {
    // The order matters: the process ends before its port and folder go.
    daemon: Daemon,
    gossip: Option<Port>,
    amtool: PathBuf,
    http: reqwest::Client,
    _scratch: TempDir,
}

impl AlertmanagerServer {
    /// Where the API is, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.daemon.address())
    }

    /// `host:port`, as Prometheus wants it.
    #[must_use]
    pub fn address(&self) -> String {
        self.daemon.address().to_string()
    }

    fn peer_address(&self) -> Option<String> {
        let port = self.gossip.as_ref()?;
        Some(format!("127.0.0.1:{}", port.number()))
    }

    /// Starts it on the same port with the same data, and waits until it is ready.
    ///
    /// # Errors
    /// When it runs, ends by itself (with the end of its log), or is not ready in time.
    pub async fn start_again(&self) -> Result<(), Error> {
        self.daemon.start()?;
        let url = format!("{}/-/ready", self.url());
        let ready = async || {
            let answer = self.http.get(&url).send().await;
            let answer = answer.and_then(reqwest::Response::error_for_status);
            answer.map(drop).map_err(|e| Error::http(&url, &e))
        };
        self.daemon.await_ready(START, ready).await
    }

    /// Asks it to stop in order (`SIGTERM`). Its port stays taken, its data stay.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop(&self) -> Result<Option<ExitStatus>, Error> {
        self.daemon.stop().await
    }

    /// Freezes it (`SIGSTOP`): it accepts connections and answers nothing.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<(), Error> {
        self.daemon.pause()
    }

    /// Posts alerts as Prometheus does.
    ///
    /// # Errors
    /// When it does not take them, with its words.
    pub async fn post(&self, alerts: &Value) -> Result<(), Error> {
        let url = format!("{}/api/v2/alerts", self.url());
        let request = self
            .http
            .post(&url)
            .header("Content-Type", "application/json");
        let answer = request
            .body(alerts.to_string())
            .send()
            .await
            .map_err(|e| Error::http(&url, &e))?;
        let status = answer.status();
        let message = answer.text().await.map_err(|e| Error::http(&url, &e))?;
        if status.is_success() {
            return Ok(());
        }
        Err(Error::Http {
            url,
            message: format!("{status}: {message}"),
        })
    }

    /// Runs `amtool` against it and returns what it prints.
    ///
    /// # Errors
    /// [`Error::Command`] with its words when it fails.
    pub async fn amtool(&self, args: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(&self.amtool);
        command
            .args(args)
            .arg(format!("--alertmanager.url={}", self.url()));
        let shown = format!("amtool {}", args.join(" "));
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .map_err(std::io::Error::from)
            .flatten()
            .map_err(|e| Error::io(format!("run {shown}"), e))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(Error::Command {
            command: shown,
            status: output.status.to_string(),
            output: text(&output.stderr),
        })
    }

    /// Silences what matches for an hour, and returns the silence's id.
    ///
    /// # Errors
    /// As [`AlertmanagerServer::amtool`].
    pub async fn silence(
        &self,
        matcher: &str,
        author: &str,
        comment: &str,
    ) -> Result<String, Error> {
        let (author, comment) = (format!("--author={author}"), format!("--comment={comment}"));
        self.amtool(&[
            "silence",
            "add",
            matcher,
            "--duration=1h",
            &author,
            &comment,
        ])
        .await
    }

    /// Ends a silence.
    ///
    /// # Errors
    /// As [`AlertmanagerServer::amtool`].
    pub async fn unsilence(&self, id: &str) -> Result<(), Error> {
        self.amtool(&["silence", "expire", id]).await.map(drop)
    }
}
