//! A real Kubernetes API server on loopback, without nodes: what is an object works, nothing runs
//! in pods. RBAC is on, so a token of a service account may what its rules say and no more. The
//! roles `view`, `edit` and `admin` are empty without the controller manager, which fills them.

mod api;
mod audit;
mod commands;
mod files;
mod objects;
mod release;

use std::ffi::OsString;

use crate::process::{scratch, while_ports_are_taken};
use crate::{Cluster, Error, Etcd, Pki, servers};

pub use api::KubeApi;
pub use release::Release;

use files::Files;

/// What the controller manager does here: collects what has lost its owner, empties namespaces, and
/// fills aggregated roles. Deployments get their pods, which stay pending.
const CONTROLLERS: [&str; 5] = [
    "garbage-collector-controller",
    "namespace-controller",
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "replicaset-controller",
];

/// A Kubernetes API server to be, with an etcd of its own, unless told otherwise.
#[derive(Debug, Clone, Default)]
pub struct Kube {
    etcd: Option<EtcdAccess>,
    controller_manager: bool,
    args: Vec<OsString>,
}

/// The etcd that an API server keeps its objects in.
#[derive(Debug, Clone)]
struct EtcdAccess {
    endpoints: Vec<String>,
    pki: Option<Pki>,
}

impl EtcdAccess {
    fn of(cluster: &Cluster) -> Self {
        Self {
            endpoints: cluster.endpoints(),
            pki: cluster.pki().cloned(),
        }
    }

    fn args(&self) -> Vec<OsString> {
        let mut args = vec![format!("--etcd-servers={}", self.endpoints.join(",")).into()];
        if let Some(pki) = &self.pki {
            let (certificate, key) = pki.client();
            args.extend(["--etcd-cafile".into(), pki.ca().into_os_string()]);
            args.extend(["--etcd-certfile".into(), certificate.into_os_string()]);
            args.extend(["--etcd-keyfile".into(), key.into_os_string()]);
        }
        args
    }
}

impl Kube {
    /// Keeps the objects in this cluster, which may be swept meanwhile: through its proxies, if it
    /// has them, and with its TLS. The API server cannot log in with a password.
    #[must_use]
    pub fn on_etcd(mut self, cluster: &Cluster) -> Self {
        self.etcd = Some(EtcdAccess::of(cluster));
        self
    }

    /// Starts the controller manager too, see [`KubeApi::start_controller_manager`].
    #[must_use]
    pub fn with_controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self
    }

    /// More flags of the API server, such as `--watch-cache=false` or `--goaway-chance=0.01`. With
    /// `--enable-priority-and-fairness=false` and `--max-mutating-requests-inflight=1`, all but the
    /// administrator are told to come back later (429) while one request is being worked on.
    #[must_use]
    pub fn extra_args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts everything, and waits until the API is ready and has its namespace `default`.
    ///
    /// # Errors
    /// When a binary cannot be had, or a server ends (with the end of its log) or is not ready in
    /// time.
    pub async fn start(self) -> Result<KubeApi, Error> {
        // In a box: a test that starts it is deep enough without all of this in it.
        Box::pin(while_ports_are_taken(async || self.try_start().await)).await
    }

    async fn try_start(&self) -> Result<KubeApi, Error> {
        // Nobody asks it for anything that another version would do better.
        let own_etcd = match &self.etcd {
            Some(_) => None,
            None => Some(Etcd::default().members(1).start().await?),
        };
        let etcd = self
            .etcd
            .clone()
            .or_else(|| own_etcd.as_ref().map(EtcdAccess::of));
        let api = KubeApi::prepare(
            Files::create(scratch("kube")?)?,
            own_etcd,
            etcd.iter().flat_map(EtcdAccess::args),
            &self.args,
        )
        .await?;
        api.start_api_server().await?;
        if self.controller_manager {
            api.start_controller_manager().await?;
        }
        Ok(api)
    }
}
