use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{CONTROLLERS, Files, Kube, servers};
use crate::daemon::Daemon;
use crate::tls::http_client_without_certificate;
use crate::{Cluster, Error, TcpProxy, eventually};

/// How long a server may take to be ready, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(120);
/// How long [`KubeApi::wait_for`] waits.
const SHOWN: Duration = Duration::from_secs(60);

/// A running API server, or one that was stopped for a while.
pub struct KubeApi {
    http: reqwest::Client,
    admin: PathBuf,
    // The order matters: a server ends before what it talks to, and all before their folder goes.
    controller_manager: Daemon,
    api_server: Daemon,
    own_etcd: Option<Cluster>,
    pub(super) files: Files,
}

impl fmt::Debug for KubeApi {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeApi")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl KubeApi {
    /// An API server with an etcd of its own and no controller manager.
    ///
    /// # Errors
    /// As [`Kube::start`].
    pub async fn start() -> Result<Self, Error> {
        Kube::default().start().await
    }

    /// Everything but the processes.
    pub(super) async fn prepare(
        files: Files,
        own_etcd: Option<Cluster>,
        etcd: impl IntoIterator<Item = OsString>,
        extra: &[OsString],
    ) -> Result<Self, Error> {
        let daemon = async |name: &'static str| {
            let log = files.folder().join(format!("{name}.log"));
            Daemon::new(name, servers::kubernetes(name).await?, log)
        };
        let mut api_server = daemon("kube-apiserver").await?;
        let address = api_server.address();
        api_server.args(etcd);
        api_server.args(api_server_args(&files, address));
        api_server.args(extra.iter().cloned());
        let mut controller_manager = daemon("kube-controller-manager").await?;
        let kubeconfig = files.kubeconfig(address, &files.controller_manager, "default")?;
        let own_port = controller_manager.address();
        controller_manager.args(["--kubeconfig".into(), kubeconfig.into_os_string()]);
        controller_manager.args(controller_manager_args(&files, own_port));
        Ok(Self {
            http: http_client_without_certificate(&files.pki)?,
            admin: files.kubeconfig(address, &files.admin, "default")?,
            controller_manager,
            api_server,
            own_etcd,
            files,
        })
    }

    /// Where the API is, past any proxy, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.api_server.address())
    }

    /// The etcd that was started for it; `None` with [`Kube::on_etcd`].
    #[must_use]
    pub fn own_etcd(&self) -> Option<&Cluster> {
        self.own_etcd.as_ref()
    }

    /// A folder for a test's own files. It goes with this value.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.files.folder()
    }

    /// The certificate of the authority that signed the API server's.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.files.pki.ca()
    }

    /// The token of a user who may everything.
    #[must_use]
    pub fn admin_token(&self) -> &str {
        &self.files.admin
    }

    /// The kubeconfig of a user who may everything, in the namespace `default`.
    #[must_use]
    pub fn kubeconfig_admin(&self) -> PathBuf {
        self.admin.clone()
    }

    /// A kubeconfig for this token and namespace.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_for_token(&self, token: &str, namespace: &str) -> Result<PathBuf, Error> {
        let server = self.api_server.address();
        self.files.kubeconfig(server, token, namespace)
    }

    /// A kubeconfig whose way to the API server leads through a new proxy, which can make the API
    /// slow, silent or gone for those who use it, and for nobody else.
    ///
    /// # Errors
    /// When the proxy has no port or the file cannot be written.
    pub async fn proxied_kubeconfig(
        &self,
        token: &str,
        namespace: &str,
    ) -> Result<(TcpProxy, PathBuf), Error> {
        let proxy = TcpProxy::start(self.api_server.address()).await?;
        let kubeconfig = self.files.kubeconfig(proxy.address(), token, namespace)?;
        Ok((proxy, kubeconfig))
    }

    /// Starts the API server again on its port with its data, and waits until it is ready.
    ///
    /// # Errors
    /// When it runs, ends by itself (with the end of its log) or is not ready in time.
    pub async fn start_api_server(&self) -> Result<(), Error> {
        self.api_server.start()?;
        let ready = async || {
            self.page("/readyz").await?;
            // Made by the API server itself, but not before it says that it is ready.
            self.page("/api/v1/namespaces/default").await.map(drop)
        };
        self.api_server.await_ready(START, ready).await
    }

    /// Ends the API server in order.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop_api_server(&self) -> Result<(), Error> {
        self.api_server.stop().await.map(drop)
    }

    /// Kills the API server at once.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill_api_server(&self) -> Result<(), Error> {
        self.api_server.kill()
    }

    /// Kills the API server and starts it again.
    ///
    /// # Errors
    /// As [`KubeApi::start_api_server`].
    pub async fn restart(&self) -> Result<(), Error> {
        self.kill_api_server()?;
        self.start_api_server().await
    }

    /// Freezes the API server: its port accepts, nothing answers.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<(), Error> {
        self.api_server.pause()
    }

    /// Lets a frozen API server go on.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<(), Error> {
        self.api_server.signal(Signal::CONT)
    }

    /// The process id of the API server, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.api_server.pid()
    }

    /// Everything the API server printed, over all its starts.
    #[must_use]
    pub fn log(&self) -> &Path {
        self.api_server.log()
    }

    /// Starts the controller manager with the few controllers that need no nodes, and waits until
    /// it is healthy. It looks for new kinds of objects every 30 s, so owners of a custom kind are
    /// minded much sooner when their definition was there before.
    ///
    /// # Errors
    /// When it runs, ends by itself (with the end of its log) or is not healthy in time.
    pub async fn start_controller_manager(&self) -> Result<(), Error> {
        self.controller_manager.start()?;
        let url = format!("https://{}/healthz", self.controller_manager.address());
        let healthy = async || self.fetch(&url).await.and_then(Answer::success).map(drop);
        self.controller_manager.await_ready(START, healthy).await
    }

    /// Ends the controller manager in order and says how it did; `None` when it had to be killed.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop_controller_manager(&self) -> Result<Option<ExitStatus>, Error> {
        self.controller_manager.stop().await
    }

    /// One of the pages of the API server, `/metrics` for one, as the administrator.
    ///
    /// # Errors
    /// When it does not answer, or not with success.
    pub async fn page(&self, path: &str) -> Result<String, Error> {
        let url = format!("{}{path}", self.url());
        Ok(self.fetch(&url).await?.success()?.body)
    }

    /// An object or a list by its path, as the administrator; `None` when there is none. Cheaper
    /// than `kubectl` for what is asked again and again.
    ///
    /// # Errors
    /// When the API server does not answer, or with anything but the object.
    pub async fn get(&self, path: &str) -> Result<Option<Value>, Error> {
        let url = format!("{}{path}", self.url());
        let answer = self.fetch(&url).await?;
        if answer.status == reqwest::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        answer.success()?.json().map(Some)
    }

    /// Asks for an object again and again until it is as wanted, and returns it.
    ///
    /// # Errors
    /// When that takes more than a minute, with the last answer.
    pub async fn wait_for(
        &self,
        path: &str,
        mut wanted: impl FnMut(&Value) -> bool,
    ) -> Result<Value, Error> {
        eventually(
            SHOWN,
            format!("{path} to be as wanted"),
            async || match self.get(path).await {
                Ok(Some(object)) if wanted(&object) => Ok(object),
                Ok(Some(object)) => Err(object.to_string()),
                Ok(None) => Err("no such object".to_owned()),
                Err(error) => Err(error.to_string()),
            },
        )
        .await
    }

    /// Waits until there is no such object any more.
    ///
    /// # Errors
    /// When that takes more than a minute, with the last answer.
    pub async fn wait_until_gone(&self, path: &str) -> Result<(), Error> {
        eventually(SHOWN, format!("{path} to be gone"), async || {
            match self.get(path).await {
                Ok(None) => Ok(()),
                Ok(Some(object)) => Err(object.to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    async fn fetch(&self, url: &str) -> Result<Answer, Error> {
        self.ask(url, self.http.get(url)).await
    }

    /// A request with a JSON body, as the administrator; the object that is the answer.
    pub(super) async fn send(
        &self,
        method: reqwest::Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let url = format!("{}{path}", self.url());
        let request = self.http.request(method, &url);
        let request = request.header("content-type", content_type);
        let answer = self.ask(&url, request.body(body.to_string())).await?;
        answer.success()?.json()
    }

    async fn ask(&self, url: &str, request: reqwest::RequestBuilder) -> Result<Answer, Error> {
        let answer = async {
            let answer = request.bearer_auth(&self.files.admin).send().await?;
            Ok(Answer {
                url: url.to_owned(),
                status: answer.status(),
                body: answer.text().await?,
            })
        };
        answer.await.map_err(|e| Error::http(url, &e))
    }
}

/// What came back from a server.
struct Answer {
    url: String,
    status: reqwest::StatusCode,
    body: String,
}

impl Answer {
    fn success(self) -> Result<Self, Error> {
        if self.status.is_success() {
            Ok(self)
        } else {
            Err(self.error(self.status.as_str()))
        }
    }

    fn json(self) -> Result<Value, Error> {
        serde_json::from_str(&self.body).map_err(|e| self.error(&format!("no JSON: {e}")))
    }

    fn error(&self, what: &str) -> Error {
        Error::Http {
            url: self.url.clone(),
            message: format!("{what}: {}", self.body),
        }
    }
}

fn api_server_args(files: &Files, address: SocketAddr) -> Vec<OsString> {
    let (certificate, key) = files.pki.server();
    let (proxy_certificate, proxy_key) = files.front_proxy.client();
    let (signing_key, verifying_key) = files.account_keys.clone();
    let mut args = address_args(address);
    let plain = [
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        // Nobody here makes the accounts that this would demand for pods.
        "--disable-admission-plugins=ServiceAccount",
        // MiB. Beyond it the file would be put aside, and its requests with it.
        "--audit-log-maxsize=4096",
        "--requestheader-allowed-names=",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ];
    args.extend(plain.map(Into::into));
    let with_file = [
        ("--tls-cert-file", certificate),
        ("--tls-private-key-file", key),
        ("--client-ca-file", files.pki.ca()),
        ("--token-auth-file", files.tokens()),
        ("--service-account-key-file", verifying_key),
        ("--service-account-signing-key-file", signing_key),
        ("--requestheader-client-ca-file", files.front_proxy.ca()),
        ("--proxy-client-cert-file", proxy_certificate),
        ("--proxy-client-key-file", proxy_key),
        ("--audit-policy-file", files.audit_policy()),
        ("--audit-log-path", files.audit_log()),
    ];
    args.extend(with_file.into_iter().flat_map(flag));
    args
}

fn controller_manager_args(files: &Files, address: SocketAddr) -> Vec<OsString> {
    let (certificate, key) = files.pki.server();
    let mut args = address_args(address);
    args.push(format!("--controllers={}", CONTROLLERS.join(",")).into());
    let plain = [
        "--leader-elect=false",
        // One test at a time uses it: it need not be gentle.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ];
    args.extend(plain.map(Into::into));
    let with_file = [
        ("--tls-cert-file", certificate),
        ("--tls-private-key-file", key),
    ];
    args.extend(with_file.into_iter().flat_map(flag));
    args
}

fn address_args(address: SocketAddr) -> Vec<OsString> {
    vec![
        format!("--bind-address={}", address.ip()).into(),
        format!("--secure-port={}", address.port()).into(),
    ]
}

fn flag((name, file): (&'static str, PathBuf)) -> [OsString; 2] {
    [name.into(), file.into_os_string()]
}
