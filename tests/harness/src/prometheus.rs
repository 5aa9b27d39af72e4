//! A real Prometheus on loopback.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ports::Port;
use crate::process::{Process, scratch, while_ports_are_taken};
use crate::tls::http_client;
use crate::{Cluster, Error, Pki, PrometheusVersion, eventually};

/// How long Prometheus may take to be ready, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(60);
/// How long [`PrometheusServer::wait_for`] waits.
const SHOWN: Duration = Duration::from_secs(60);
/// The lowest cost that bcrypt takes: the password guards nothing.
const BCRYPT_COST: u32 = 4;

/// A Prometheus to be.
#[derive(Clone)]
pub struct Prometheus {
    version: PrometheusVersion,
    binary: Option<PathBuf>,
    jobs: Vec<Value>,
    rules: Vec<PathBuf>,
    alertmanagers: Vec<String>,
    basic_auth: Option<(String, String)>,
    tls: bool,
    mutual: bool,
    prefix: String,
    args: Vec<OsString>,
}

impl Default for Prometheus {
    fn default() -> Self {
        Self::version(PrometheusVersion::default())
    }
}

impl Prometheus {
    /// A Prometheus of this version that scrapes nothing yet.
    #[must_use]
    pub fn version(version: PrometheusVersion) -> Self {
        Self {
            version,
            binary: None,
            jobs: Vec::new(),
            rules: Vec::new(),
            alertmanagers: Vec::new(),
            basic_auth: None,
            tls: false,
            mutual: false,
            prefix: String::new(),
            args: Vec::new(),
        }
    }

    /// Whatever Prometheus is at hand, see [`crate::servers::any`].
    ///
    /// # Errors
    /// When there is none and none can be made.
    pub async fn any() -> Result<Self, Error> {
        let binary = Some(crate::servers::any("prometheus").await?);
        Ok(Self {
            binary,
            ..Self::default()
        })
    }

    /// Scrapes `/metrics` of these `host:port` in plain.
    #[must_use]
    pub fn scrape<S: Into<String>>(
        mut self,
        job: &str,
        targets: impl IntoIterator<Item = S>,
        interval: Duration,
    ) -> Self {
        let targets: Vec<String> = targets.into_iter().map(Into::into).collect();
        self.jobs.push(job_config(job, targets, interval));
        self
    }

    /// Scrapes all members of a cluster as the job `etcd`, past any proxy, with its TLS.
    #[must_use]
    pub fn scrape_etcd(mut self, cluster: &Cluster, interval: Duration) -> Self {
        let targets = cluster
            .members()
            .iter()
            .map(|m| m.address().to_string())
            .collect();
        let mut job = job_config("etcd", targets, interval);
        if let Some(pki) = cluster.pki() {
            let (certificate, key) = pki.client();
            job["scheme"] = json!("https");
            job["tls_config"] = json!({
                "ca_file": pki.ca(),
                "cert_file": certificate,
                "key_file": key,
                // The cluster's certificate may be made out to any name.
                "insecure_skip_verify": true,
            });
        }
        self.jobs.push(job);
        self
    }

    /// The API wants this user and password.
    #[must_use]
    pub fn basic_auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.basic_auth = Some((user.into(), password.into()));
        self
    }

    /// The API speaks TLS, with a certificate for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// As [`Prometheus::tls`], and clients must show a certificate.
    #[must_use]
    pub fn mutual_tls(mut self) -> Self {
        self.tls = true;
        self.mutual = true;
        self
    }

    /// The API is below this path, such as `/prefix`.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Evaluates the rules of this file, each second.
    #[must_use]
    pub fn rules(mut self, file: impl Into<PathBuf>) -> Self {
        self.rules.push(file.into());
        self
    }

    /// Tells these `host:port` of its alerts.
    #[must_use]
    pub fn alertmanagers<S: Into<String>>(mut self, targets: impl IntoIterator<Item = S>) -> Self {
        self.alertmanagers
            .extend(targets.into_iter().map(Into::into));
        self
    }

    /// More flags.
    #[must_use]
    pub fn extra_args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When the binary cannot be had, or Prometheus ends or is not ready in time.
    pub async fn start(self) -> Result<PrometheusServer, Error> {
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => self.version.prometheus().await?,
        };
        while_ports_are_taken(async || self.try_start(&binary).await).await
    }

    async fn try_start(&self, binary: &Path) -> Result<PrometheusServer, Error> {
        let scratch = scratch("prometheus")?;
        let dir = scratch.path();
        let pki = match self.tls {
            true => Some(Pki::create(
                &dir.join("tls"),
                &["localhost", "127.0.0.1"].map(str::to_owned),
            )?),
            false => None,
        };
        // JSON is YAML, and needs no thought about quotes.
        let (config, web_config) = (dir.join("prometheus.yml"), dir.join("web.yml"));
        let write = |path: &Path, value: &Value| {
            fs::write(path, value.to_string())
                .map_err(|e| Error::io(format!("write {}", path.display()), e))
        };
        write(
            &config,
            &json!({
                "global": { "evaluation_interval": "1s" },
                "rule_files": self.rules,
                "alerting": { "alertmanagers": [{ "static_configs": [{ "targets": self.alertmanagers }] }] },
                "scrape_configs": self.jobs,
            }),
        )?;
        write(&web_config, &self.web_config(pki.as_ref())?)?;
        let port = Port::reserve()?;
        let mut args: Vec<OsString> = vec![
            format!("--web.listen-address=127.0.0.1:{}", port.number()).into(),
            "--config.file".into(),
            config.into(),
            "--web.config.file".into(),
            web_config.into(),
            "--storage.tsdb.path".into(),
            dir.join("data").into(),
        ];
        if !self.prefix.is_empty() {
            args.push(format!("--web.route-prefix={}", self.prefix).into());
        }
        args.extend(self.args.iter().cloned());
        let scheme = if self.tls { "https" } else { "http" };
        let server = PrometheusServer {
            binary: binary.to_owned(),
            args,
            url: format!("{scheme}://127.0.0.1:{}{}", port.number(), self.prefix),
            http: http_client(pki.as_ref())?,
            basic_auth: self.basic_auth.clone(),
            pki,
            process: Mutex::new(None),
            port: Mutex::new(port),
            scratch,
        };
        server.start_again().await?;
        Ok(server)
    }

    /// What the API wants from its clients and shows to them.
    fn web_config(&self, pki: Option<&Pki>) -> Result<Value, Error> {
        let mut web = json!({});
        if let Some(pki) = pki {
            let (certificate, key) = pki.server();
            web["tls_server_config"] = json!({ "cert_file": certificate, "key_file": key });
            if self.mutual {
                web["tls_server_config"]["client_auth_type"] = json!("RequireAndVerifyClientCert");
                web["tls_server_config"]["client_ca_file"] = json!(pki.ca());
            }
        }
        if let Some((user, password)) = &self.basic_auth {
            let hash = bcrypt::hash(password, BCRYPT_COST).map_err(|e| Error::Tls {
                doing: "hash a password",
                message: e.to_string(),
            })?;
            web["basic_auth_users"] = json!({ user: hash });
        }
        Ok(web)
    }
}

fn job_config(job: &str, targets: Vec<String>, interval: Duration) -> Value {
    let interval = format!("{}ms", interval.as_millis());
    json!({
        "job_name": job,
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "static_configs": [{ "targets": targets }],
    })
}

/// A running Prometheus, or one that was stopped for a while.
pub struct PrometheusServer {
    binary: PathBuf,
    args: Vec<OsString>,
    url: String,
    http: reqwest::Client,
    basic_auth: Option<(String, String)>,
    pki: Option<Pki>,
    // The order matters: the process ends before its port and folder go.
    process: Mutex<Option<Process>>,
    port: Mutex<Port>,
    scratch: TempDir,
}

impl fmt::Debug for PrometheusServer {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrometheusServer")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// One element of an instant vector, or a scalar without labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// What a target says of a metric family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    pub kind: String,
    pub unit: String,
    pub help: String,
}

impl PrometheusServer {
    /// Where the API is, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificates, if the API speaks TLS.
    #[must_use]
    pub fn pki(&self) -> Option<&Pki> {
        self.pki.as_ref()
    }

    /// Evaluates an instant query.
    ///
    /// # Errors
    /// When Prometheus does not answer, or refuses the query, with its words.
    pub async fn query(&self, query: &str) -> Result<Vec<Sample>, Error> {
        let url = format!("{}/api/v1/query", self.url);
        // Percent-encoding by the client.
        let request = self.http.post(&url).query(&[("query", query)]);
        self.data(url, request, samples).await
    }

    /// What it has read of each metric family that it scrapes, by the family's name.
    ///
    /// # Errors
    /// When Prometheus does not answer with success.
    pub async fn metadata(&self) -> Result<BTreeMap<String, Metadata>, Error> {
        let url = format!("{}/api/v1/metadata", self.url);
        let request = self.http.get(&url);
        self.data(url, request, |data| {
            let families = data.as_object()?.iter();
            families
                .map(|(name, said)| Some((name.clone(), metadata(&said[0])?)))
                .collect()
        })
        .await
    }

    /// The `data` of an answer, or its words when it is no success.
    async fn data<T>(
        &self,
        url: String,
        request: reqwest::RequestBuilder,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Error> {
        let answer = self
            .authorize(request)
            .send()
            .await
            .map_err(|e| Error::http(&url, &e))?;
        let body = answer.text().await.map_err(|e| Error::http(&url, &e))?;
        let data = serde_json::from_str::<Value>(&body)
            .ok()
            .filter(|answer| answer["status"] == "success")
            .and_then(|answer| read(&answer["data"]));
        data.ok_or(Error::Http { url, message: body })
    }

    /// Asks again and again until the answer is as wanted, and returns it.
    ///
    /// # Errors
    /// When that takes more than a minute, with the last answer.
    pub async fn wait_for(
        &self,
        query: &str,
        mut wanted: impl FnMut(&[Sample]) -> bool,
    ) -> Result<Vec<Sample>, Error> {
        eventually(SHOWN, format!("the answer to {query}"), async || {
            let samples = self.query(query).await.map_err(|e| e.to_string())?;
            if wanted(&samples) {
                Ok(samples)
            } else {
                Err(format!("{samples:?}"))
            }
        })
        .await
    }

    /// Lets it read its rules again (`--web.enable-lifecycle`), as they are written now.
    ///
    /// # Errors
    /// When it does not answer with success: without the flag, or with rules it cannot read.
    pub async fn reload(&self) -> Result<(), Error> {
        let url = format!("{}/-/reload", self.url);
        let answer = self.authorize(self.http.post(&url)).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status);
        answer.map(drop).map_err(|e| Error::http(&url, &e))
    }

    /// Ends it in order. Its port stays taken, its data stay.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop(&self) -> Result<(), Error> {
        let process = self
            .process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match process {
            Some(process) => process.stop().await,
            None => Err(Error::io(
                "stop Prometheus",
                std::io::ErrorKind::NotFound.into(),
            )),
        }
    }

    /// Starts it on the same port with the same data, and waits until it is ready.
    ///
    /// # Errors
    /// When it ends by itself (with the end of its log) or is not ready in time.
    pub async fn start_again(&self) -> Result<(), Error> {
        self.port
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .release();
        let log = self.scratch.path().join("prometheus.log");
        let started = Process::start("prometheus", &self.binary, &self.args, log)?;
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        let url = format!("{}/-/ready", self.url);
        eventually(START, "Prometheus to be ready", async || {
            let alive = match self
                .process
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_mut()
            {
                Some(process) => process.check(),
                None => Ok(()),
            };
            if alive.is_err() {
                return Ok(alive);
            }
            let answer = self.authorize(self.http.get(&url)).send().await;
            let ready = answer.and_then(reqwest::Response::error_for_status);
            ready.map(|_| Ok(())).map_err(|e| format!("{e:?}"))
        })
        .await?
    }

    fn authorize(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.basic_auth {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }
}

fn metadata(said: &Value) -> Option<Metadata> {
    let text = |field: &str| Some(said[field].as_str()?.to_owned());
    Some(Metadata {
        kind: text("type")?,
        unit: text("unit")?,
        help: text("help")?,
    })
}

/// The samples of a `data` object: a vector or a scalar.
fn samples(data: &Value) -> Option<Vec<Sample>> {
    let number = |point: &Value| point[1].as_str()?.parse().ok();
    match data["resultType"].as_str()? {
        "scalar" => {
            let value = number(&data["result"])?;
            Some(vec![Sample {
                labels: BTreeMap::new(),
                value,
            }])
        }
        "vector" => data["result"]
            .as_array()?
            .iter()
            .map(|element| {
                let labels = element["metric"].as_object()?.iter();
                let labels = labels.map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())));
                Some(Sample {
                    labels: labels.collect::<Option<_>>()?,
                    value: number(&element["value"])?,
                })
            })
            .collect(),
        _ => None,
    }
}
