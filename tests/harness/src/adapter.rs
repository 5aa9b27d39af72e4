//! A real prometheus-adapter behind the API server, as HorizontalPodAutoscalers find it.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::process::{scratch, while_ports_are_taken};
use crate::{Error, KubeApi, PrometheusServer, servers};

/// How long it may take to be there, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(120);
/// The APIs that it serves: group and version.
const SERVED: [(&str, &str); 3] = [
    ("external.metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
];
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// A prometheus-adapter, running or stopped.
#[derive(Debug)]
pub struct Adapter {
    // The order matters: the process ends before its folder goes.
    daemon: Daemon,
    _scratch: TempDir,
}

impl Adapter {
    /// An adapter with this configuration that does not run yet, and whose APIs the API server
    /// does not know yet. It looks for new series each second.
    ///
    /// # Errors
    /// When the binary cannot be had, or its files cannot be written.
    pub async fn prepare(
        api: &KubeApi,
        prometheus: &PrometheusServer,
        config: &Value,
    ) -> Result<Self, Error> {
        let scratch = scratch("adapter")?;
        let folder = scratch.path();
        // JSON is YAML, and needs no thought about quotes.
        let file = folder.join("config.yaml");
        fs::write(&file, config.to_string())
            .map_err(|e| Error::io(format!("write {}", file.display()), e))?;
        let log = folder.join("adapter.log");
        let mut daemon = Daemon::new("prometheus-adapter", servers::adapter().await?, log)?;
        let address = daemon.address();
        let kubeconfig = api.kubeconfig_admin();
        let plain = [
            format!("--bind-address={}", address.ip()),
            format!("--secure-port={}", address.port()),
            format!("--prometheus-url={}", prometheus.url()),
            "--metrics-relist-interval=1s".to_owned(),
            "--metrics-max-age=1m".to_owned(),
        ];
        daemon.args(plain);
        let files: [(&str, &Path); 5] = [
            ("--config", &file),
            ("--cert-dir", folder),
            ("--lister-kubeconfig", &kubeconfig),
            ("--authentication-kubeconfig", &kubeconfig),
            ("--authorization-kubeconfig", &kubeconfig),
        ];
        for (flag, path) in files {
            daemon.args([OsString::from(flag), path.as_os_str().to_owned()]);
        }
        Ok(Self {
            daemon,
            _scratch: scratch,
        })
    }

    /// Starts one, tells the API server of it, and waits until its APIs are available.
    ///
    /// # Errors
    /// When it cannot be had, ends by itself (with the end of its log), or is not there in time.
    pub async fn start(
        api: &KubeApi,
        prometheus: &PrometheusServer,
        config: &Value,
    ) -> Result<Self, Error> {
        while_ports_are_taken(async || {
            let adapter = Self::prepare(api, prometheus, config).await?;
            adapter.register(api).await?;
            adapter.start_again(api).await?;
            Ok(adapter)
        })
        .await
    }

    /// Tells the API server where its APIs are, whether it runs or not.
    ///
    /// # Errors
    /// When the API server does not take it.
    pub async fn register(&self, api: &KubeApi) -> Result<(), Error> {
        let port = self.daemon.address().port();
        let name = format!("adapter-{port}");
        // A name instead of an address: the API server does not proxy to its own loopback.
        let service = json!({
            "metadata": { "name": name },
            "spec": {
                "type": "ExternalName",
                "externalName": "localhost",
                "ports": [{ "port": port }],
            },
        });
        api.create("/api/v1/namespaces/kube-system/services", &service)
            .await?;
        for (group, version) in SERVED {
            let service = json!({
                "metadata": { "name": format!("{version}.{group}") },
                "spec": {
                    "group": group,
                    "version": version,
                    "service": { "name": name, "namespace": "kube-system", "port": port },
                    "insecureSkipTLSVerify": true,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                },
            });
            api.create(API_SERVICES, &service).await?;
        }
        Ok(())
    }

    /// Starts it, and waits until the API server says that its APIs are available.
    ///
    /// # Errors
    /// When it runs, ends by itself (with the end of its log), or is not there in time.
    pub async fn start_again(&self, api: &KubeApi) -> Result<(), Error> {
        self.daemon.start()?;
        let available = async || {
            for (group, version) in SERVED {
                api.page(&format!("/apis/{group}/{version}")).await?;
                let path = format!("{API_SERVICES}/{version}.{group}");
                let service = api.get(&path).await?.unwrap_or_default();
                let conditions = service["status"]["conditions"].as_array();
                let condition = conditions
                    .into_iter()
                    .flatten()
                    .find(|condition| condition["type"] == "Available");
                if condition.is_none_or(|condition| condition["status"] != "True") {
                    let message = format!("{group} is not available: {condition:?}");
                    return Err(Error::Http { url: path, message });
                }
            }
            Ok(())
        };
        self.daemon.await_ready(START, available).await
    }

    /// Kills it; its APIs stay known.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&self) -> Result<(), Error> {
        self.daemon.kill()
    }

    /// Freezes it: its port accepts, nothing answers.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<(), Error> {
        self.daemon.pause()
    }
}
