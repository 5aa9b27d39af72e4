//! What the stories have in common: a namespace with an etcd cluster and two replicas.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use defragd_harness::objects::{self, list, named};
pub(crate) use defragd_harness::objects::{target, time};
use defragd_harness::{
    Cluster, Controller, Error, Etcd, Fault, Kube, KubeApi, RunningController, TcpProxy, eventually,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

pub(crate) const MIB: u64 = 1 << 20;
/// How long one thing is waited for, on a machine that is busy with other tests.
pub(crate) const WAIT: Duration = Duration::from_secs(90);
/// How long a follower takes at most to lead after a leader that died: 15 s for the lease, 2 s
/// between two attempts, and something for a busy machine.
pub(crate) const TAKEOVER: Duration = Duration::from_secs(22);

/// Lines of each replica's log that an error shows.
const LAST_WORDS: usize = 40;

/// Plays a story. All of them share one runtime, so that they can share an API server.
pub(crate) fn play(story: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Runtime::new().expect("threads can be started"));
    RUNTIME.block_on(story)
}

/// The API server of those stories that do it no harm. It knows our kinds.
pub(crate) async fn shared_api() -> Result<Arc<KubeApi>, Error> {
    static API: OnceCell<Arc<KubeApi>> = OnceCell::const_new();
    let start = || own_api(Kube::default());
    API.get_or_try_init(start).await.cloned()
}

/// An API server of a story's own. It knows our kinds.
pub(crate) async fn own_api(kube: Kube) -> Result<Arc<KubeApi>, Error> {
    let api = kube.start().await?;
    let crds = std::process::Command::new(env!("CARGO_BIN_EXE_defragd"))
        .arg("crds")
        .output()
        .expect("our own binary starts");
    let crds = String::from_utf8_lossy(&crds.stdout);
    api.install_crds(&crds).await?;
    Ok(Arc::new(api))
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/defragd")
}

/// A namespace with the target `demo`, and a cluster for it.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) api: Arc<KubeApi>,
    namespace: String,
    /// What the replicas print, for stories that end badly.
    logs: Mutex<Vec<PathBuf>>,
}

impl Scene {
    /// The target's cluster is started too.
    pub(crate) async fn set(api: Arc<KubeApi>, name: &str, etcd: Etcd) -> Result<Self, Error> {
        let cluster = etcd.raft_log_entries(100).start().await?;
        Self::around(api, name, cluster).await
    }

    /// With a cluster that is there.
    pub(crate) async fn around(
        api: Arc<KubeApi>,
        name: &str,
        cluster: Cluster,
    ) -> Result<Self, Error> {
        let scene = Self {
            cluster,
            api,
            namespace: name.to_owned(),
            logs: Mutex::default(),
        };
        let namespace = named("Namespace", name);
        scene.api.apply(&namespace.to_string()).await?;
        scene
            .apply(&[target("demo", &scene.cluster.endpoints())])
            .await?;
        Ok(scene)
    }

    /// Two replicas, `a` and `b`, of which `a` leads.
    pub(crate) async fn replicas(&self) -> Result<(Replica, Replica), Error> {
        let a = self.replica("a", &[]).await?;
        self.until_leader("a", WAIT).await?;
        let b = self.replica("b", &[]).await?;
        Ok((a, b))
    }

    /// A replica that has the chart's rules under an account of its own, and its own way to the API
    /// server. It is ready.
    pub(crate) async fn replica(
        &self,
        name: &'static str,
        args: &[&str],
    ) -> Result<Replica, Error> {
        self.replica_as(name, |controller| controller.args(args))
            .await
    }

    pub(crate) async fn replica_as(
        &self,
        name: &'static str,
        change: impl FnOnce(Controller) -> Controller,
    ) -> Result<Replica, Error> {
        let namespace = &self.namespace;
        let watched = format!("watchNamespaces={{{namespace}}}");
        let chart = chart().display().to_string();
        let rules = ["template", name, &chart, "--namespace", namespace];
        let shown = [
            "--set",
            &watched,
            "--show-only=templates/rbac.yaml",
            "--show-only=templates/serviceaccount.yaml",
        ];
        let rules = self.api.helm(&[&rules[..], &shown[..]].concat()).await?;
        self.api.apply(&rules).await?;
        let account = format!("{name}-defragd");
        let token = self.api.service_account_token(namespace, &account).await?;
        let (proxy, kubeconfig) = self.api.proxied_kubeconfig(&token, namespace).await?;
        let controller = Controller::new(env!("CARGO_BIN_EXE_defragd"), &kubeconfig)
            .pod(namespace, name)
            .args(["--namespace", namespace]);
        let process = change(controller).start().await?;
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.push(process.log().to_owned());
        Ok(Replica {
            process,
            proxy,
            user: format!("system:serviceaccount:{namespace}:{account}"),
            name,
        })
    }

    /// `kubectl apply` into the namespace.
    pub(crate) async fn apply(&self, objects: &[Value]) -> Result<(), Error> {
        let list = list(&self.namespace, objects);
        self.api.apply(&list.to_string()).await.map(drop)
    }

    /// The path of our objects of this kind, `etcddefrags` for one.
    pub(crate) fn path(&self, kind: &str) -> String {
        KubeApi::defragd_path(&self.namespace, kind)
    }

    fn lease(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/defragd")
    }

    pub(crate) async fn object(&self, kind: &str, name: &str) -> Result<Value, Error> {
        let path = format!("{}/{name}", self.path(kind));
        Ok(self.api.get(&path).await?.unwrap_or_default())
    }

    pub(crate) async fn runs(&self) -> Result<Vec<Value>, Error> {
        let list = self.api.get(&self.path("etcddefrags")).await?;
        let items = list.and_then(|list| list["items"].as_array().cloned());
        Ok(items.unwrap_or_default())
    }

    /// What a policy remembers of its cluster.
    pub(crate) async fn remembered(&self, policy: &str) -> Result<Value, Error> {
        let policy = self.object("etcddefragpolicies", policy).await?;
        Ok(policy["status"]["clusters"][0].clone())
    }

    /// The name of the replica that the lease names.
    pub(crate) async fn leader(&self) -> Result<Option<String>, Error> {
        let lease = self.api.get(&self.lease()).await?.unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str();
        // The rest tells one start of a pod from another.
        let name = holder.and_then(|holder| holder.split('_').next());
        Ok(name.map(str::to_owned))
    }

    /// As [`eventually`]; the error shows the end of what the replicas printed.
    pub(crate) async fn until<T>(
        &self,
        deadline: Duration,
        what: &str,
        look: impl AsyncFnMut() -> Result<T, String>,
    ) -> Result<T, Error> {
        let what = format!("{what} in {}", self.namespace);
        let done = eventually(deadline, what, look).await;
        done.map_err(|error| match error {
            Error::Timeout { what, waited, last } => Error::Timeout {
                what,
                waited,
                last: last + &self.last_words(),
            },
            other => other,
        })
    }

    fn last_words(&self) -> String {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = String::new();
        for log in logs.iter() {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let end = &lines[lines.len().saturating_sub(LAST_WORDS)..];
            words += &format!("\n--- {} ---\n{}", log.display(), end.join("\n"));
        }
        words
    }

    /// Waits until the lease names the replica, and says how long that took.
    pub(crate) async fn until_leader(
        &self,
        name: &str,
        deadline: Duration,
    ) -> Result<Duration, Error> {
        let began = Instant::now();
        let what = format!("{name} to lead");
        let look = async || match self.leader().await {
            Ok(Some(leader)) if leader == name => Ok(()),
            other => Err(format!("{other:?} leads")),
        };
        self.until(deadline, &what, look).await?;
        Ok(began.elapsed())
    }

    /// Waits until the decision of the policy is this one.
    pub(crate) async fn until_decided(&self, policy: &str, wanted: &str) -> Result<Value, Error> {
        let what = format!("the policy {policy} to be {wanted}");
        self.until(WAIT, &what, async || {
            let seen = self.remembered(policy).await.map_err(|e| e.to_string())?;
            if seen["decision"]["reason"] == wanted {
                Ok(seen)
            } else {
                Err(seen.to_string())
            }
        })
        .await
    }

    /// Waits until the runs are as wanted, and returns them.
    pub(crate) async fn until_runs(
        &self,
        what: &str,
        wanted: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>, Error> {
        self.until(WAIT, what, async || {
            let runs = self.runs().await.map_err(|e| e.to_string())?;
            if wanted(&runs) {
                return Ok(runs);
            }
            let statuses: Vec<String> = runs.iter().map(|r| r["status"].to_string()).collect();
            Err(statuses.join("\n"))
        })
        .await
    }

    /// Waits until there is one run and it is complete.
    pub(crate) async fn until_complete(&self) -> Result<Value, Error> {
        let runs = self
            .until_runs("the one run to be complete", |runs| {
                // The last change is that defragd lets go of it.
                matches!(runs, [run] if run["status"]["phase"] == "Complete"
                        && run["metadata"]["finalizers"].is_null())
            })
            .await?;
        Ok(runs[0].clone())
    }

    /// Waits until a call to a member is on record.
    pub(crate) async fn until_intent(&self) -> Result<(), Error> {
        self.until_runs("a member's turn", |runs| {
            runs.iter().any(|run| outcomes(run).contains(&"InProgress"))
        })
        .await
        .map(drop)
    }

    /// Waits until the members have finished so many defragmentations together.
    pub(crate) async fn until_finished(&self, wanted: f64) -> Result<(), Error> {
        eventually(
            WAIT,
            format!("{wanted} defragmentations"),
            async || match self.cluster.defragmentations().await {
                Ok(counts) if counts.iter().sum::<f64>() >= wanted => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )
        .await
    }

    /// Sets the fault of every member.
    pub(crate) fn set_members(&self, fault: Fault) {
        (0..self.cluster.members().len()).for_each(|i| self.cluster.proxy(i).set(fault));
    }

    /// Waits until the replica has seen `more` answers to renewals of its lease: time for a wrong
    /// act of those that lead, measured in what they do.
    pub(crate) async fn until_renewed(&self, more: usize) -> Result<(), Error> {
        let mut seen = Vec::new();
        self.until(WAIT, &format!("{more} renewals"), async || {
            let lease = self
                .api
                .get(&self.lease())
                .await
                .map_err(|e| e.to_string())?;
            let at = lease.unwrap_or_default()["spec"]["renewTime"].clone();
            if seen.last() != Some(&at) {
                seen.push(at);
            }
            if seen.len() > more {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await
    }
}

/// A `defragd controller` and its own way to the API server.
pub(crate) struct Replica {
    // The order matters: the process ends before its way.
    pub(crate) process: RunningController,
    pub(crate) proxy: TcpProxy,
    pub(crate) user: String,
    name: &'static str,
}

impl Replica {
    /// Fails when the process has ended, or one of its tasks has.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.process.check()?;
        let log = self.process.logged();
        assert!(
            !log.contains("panicked") && !log.contains("ended badly"),
            "{}: {log}",
            self.name
        );
        Ok(())
    }

    /// What it asked the API server to change of our objects, and how that was answered, oldest
    /// first.
    pub(crate) fn writes(&self, api: &KubeApi) -> Result<Vec<Write>, Error> {
        let events = api.audit()?;
        let own = events.iter().filter(|event| {
            event["user"]["username"] == self.user.as_str()
                && event["objectRef"]["apiGroup"] == "defragd.dev"
                && !["get", "list", "watch"].contains(&event["verb"].as_str().unwrap_or_default())
        });
        Ok(own.map(Write::of).collect())
    }
}

/// A request that would change one of our objects.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) at: Timestamp,
    pub(crate) code: u64,
    /// Verb, resource with subresource, and name.
    what: String,
}

impl Write {
    fn of(event: &Value) -> Self {
        let object = &event["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            at: time(&event["stageTimestamp"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or(0),
            what: format!(
                "{} {}/{} {}",
                text(&event["verb"]),
                text(&object["resource"]),
                text(&object["subresource"]),
                text(&object["name"])
            ),
        }
    }

    /// The status of this run.
    pub(crate) fn is_status_of(&self, run: &str) -> bool {
        self.what == format!("patch etcddefrags/status {run}")
    }

    /// The status of an object of this kind, such as `etcddefrags`.
    pub(crate) fn is_of_status(&self, kind: &str) -> bool {
        self.what.starts_with(&format!("patch {kind}/status "))
    }

    pub(crate) fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// A policy for the target `demo` whose signal fires for ever. `spec` adds and replaces fields.
pub(crate) fn policy(name: &str, spec: &Value) -> Value {
    objects::policy(name, "demo", spec)
}

/// A hand-written run on the target `demo`.
pub(crate) fn run(name: &str, spec: &Value) -> Value {
    objects::run(name, "demo", spec)
}

/// The members of a run.
pub(crate) fn members(run: &Value) -> impl Iterator<Item = &Value> {
    run["status"]["members"].as_array().into_iter().flatten()
}

pub(crate) fn outcomes(run: &Value) -> Vec<&str> {
    members(run)
        .map(|member| member["outcome"].as_str().unwrap_or_default())
        .collect()
}
