//! What the cases have in common.

use std::path::{Path, PathBuf};
use std::time::Duration;

use defragd_harness::objects;
pub(crate) use defragd_harness::objects::{list, named, time};
use defragd_harness::{
    Cluster, Controller, Error, Kube, KubeApi, RunningController, eventually_while,
};
use serde_json::{Value, json};

pub(crate) const MIB: u64 = 1 << 20;
/// How long one thing is waited for, on a machine that is busy with other tests.
pub(crate) const WAIT: Duration = Duration::from_secs(300);

/// The namespace that defragd itself is in.
const SYSTEM: &str = "defragd-system";

/// The binary of this build.
pub(crate) const DEFRAGD: &str = env!("CARGO_BIN_EXE_defragd");

/// A file of the checkout.
pub(crate) fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// An API server that knows our kinds, with a place for defragd.
pub(crate) async fn api(kube: Kube) -> Result<KubeApi, Error> {
    let api = kube.start().await?;
    let crds = std::fs::read_to_string(checkout("docs/reference/crds.yaml")).expect("it is there");
    api.install_crds(&crds).await?;
    api.apply(&named("Namespace", SYSTEM).to_string()).await?;
    Ok(api)
}

/// A replica for all namespaces.
pub(crate) fn controller(api: &KubeApi) -> Controller {
    Controller::new(DEFRAGD, &api.kubeconfig_admin()).pod(SYSTEM, "defragd-0")
}

/// What defragd asked of the API server, in order.
pub(crate) fn asked(api: &KubeApi) -> Result<Vec<Value>, Error> {
    let ours = |event: &Value| {
        let agent = event["userAgent"].as_str();
        agent.is_some_and(|agent| agent.starts_with("defragd/"))
    };
    Ok(api.audit()?.into_iter().filter(ours).collect())
}

/// The requests of defragd that change something, without those for its lease.
pub(crate) fn writes(api: &KubeApi) -> Result<Vec<String>, Error> {
    let asked = asked(api)?;
    let changing = asked.iter().filter(|event| {
        let read = matches!(event["verb"].as_str(), Some("get" | "list" | "watch"));
        !read && event["objectRef"]["resource"] != "leases"
    });
    Ok(changing.map(in_short).collect())
}

/// How many requests for its lease defragd made that change it.
pub(crate) fn renewals(api: &KubeApi) -> Result<usize, Error> {
    let asked = asked(api)?;
    let renewals = asked
        .iter()
        .filter(|event| event["objectRef"]["resource"] == "leases" && event["verb"] != "get");
    Ok(renewals.count())
}

/// A request as a failed assertion shows it.
pub(crate) fn in_short(event: &Value) -> String {
    let object = &event["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{} {} {}/{} {} at {}",
        text(&event["verb"]),
        text(&object["resource"]),
        text(&object["namespace"]),
        text(&object["name"]),
        text(&object["subresource"]),
        text(&event["requestReceivedTimestamp"]),
    )
}

/// One namespace with a case in it.
pub(crate) struct Case<'a> {
    pub(crate) api: &'a KubeApi,
    pub(crate) defragd: &'a RunningController,
    pub(crate) namespace: &'static str,
}

impl<'a> Case<'a> {
    /// Makes the namespace.
    pub(crate) async fn new(
        api: &'a KubeApi,
        defragd: &'a RunningController,
        namespace: &'static str,
    ) -> Result<Self, Error> {
        api.apply(&named("Namespace", namespace).to_string())
            .await?;
        Ok(Self {
            api,
            defragd,
            namespace,
        })
    }

    /// `kubectl apply` into the namespace.
    pub(crate) async fn apply(&self, objects: &[Value]) -> Result<(), Error> {
        let list = list(self.namespace, objects);
        self.api.apply(&list.to_string()).await.map(drop)
    }

    /// The path of an object of ours, `etcddefrags` for one.
    pub(crate) fn path(&self, kind: &str, name: &str) -> String {
        format!("{}/{name}", KubeApi::defragd_path(self.namespace, kind))
    }

    /// Waits until the object is as wanted, and returns it.
    pub(crate) async fn until(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, Error> {
        let path = self.path(kind, name);
        self.watch(&format!("{what} ({path})"), async || {
            match self.api.get(&path).await {
                Ok(Some(object)) if wanted(&object) => Ok(object),
                Ok(Some(object)) => Err(outline(&object)),
                Ok(None) => Err("no such object".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    /// Waits until a run ends, and returns it. It must be complete.
    pub(crate) async fn until_complete(&self, run: &str) -> Result<Value, Error> {
        let ended = |run: &Value| run["status"]["completedAt"].is_string();
        let run = self.until("etcddefrags", run, "the end", ended).await?;
        assert_eq!(run["status"]["phase"], "Complete", "{}", outline(&run));
        Ok(run)
    }

    /// Waits until the runs of the namespace are as wanted, and returns them.
    pub(crate) async fn until_runs(
        &self,
        what: &str,
        wanted: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>, Error> {
        self.watch(what, async || {
            let runs = self.runs().await.map_err(|e| e.to_string())?;
            if wanted(&runs) {
                Ok(runs)
            } else {
                Err(runs.iter().map(outline).collect::<Vec<_>>().join(" | "))
            }
        })
        .await
    }

    pub(crate) async fn runs(&self) -> Result<Vec<Value>, Error> {
        let path = self.path("etcddefrags", "");
        let list = self.api.get(path.trim_end_matches('/')).await?;
        Ok(items(list))
    }

    /// Waits until there is no such object.
    pub(crate) async fn until_gone(&self, path: &str) -> Result<(), Error> {
        self.watch(&format!("{path} to be gone"), async || {
            match self.api.get(path).await {
                Ok(None) => Ok(()),
                Ok(Some(object)) => Err(outline(&object)),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    /// `kubectl delete` without waiting for the end of it.
    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<(), Error> {
        let (inside, name) = (format!("--namespace={}", self.namespace), name.to_owned());
        let args = ["delete", kind, &name, &inside, "--wait=false"];
        self.api.kubectl(&args).await.map(drop)
    }

    /// As [`eventually_while`] defragd runs; the error shows what it printed about the
    /// namespace.
    pub(crate) async fn watch<T>(
        &self,
        what: &str,
        look: impl AsyncFnMut() -> Result<T, String>,
    ) -> Result<T, Error> {
        let what = format!("{what} in {}", self.namespace);
        let seen = eventually_while(|| self.defragd.check(), WAIT, &what, look).await;
        seen.map_err(|error| match error {
            Error::Timeout { what, waited, last } => {
                let log = self.defragd.logged();
                let ours: Vec<&str> = log.lines().filter(|l| l.contains(self.namespace)).collect();
                let end = ours[ours.len().saturating_sub(20)..].join("\n");
                let last = format!("{last}\n--- defragd on {} ---\n{end}", self.namespace);
                Error::Timeout { what, waited, last }
            }
            other => other,
        })
    }
}

pub(crate) fn items(list: Option<Value>) -> Vec<Value> {
    let items = list.and_then(|list| list["items"].as_array().cloned());
    items.unwrap_or_default()
}

/// What a failed wait shows of an object.
pub(crate) fn outline(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!(
        "{} deleted {} finalizers {}: {}",
        metadata["name"], metadata["deletionTimestamp"], metadata["finalizers"], object["status"]
    )
}

pub(crate) fn target(name: &str, cluster: &Cluster) -> Value {
    objects::target(name, &cluster.endpoints())
}

/// A target where nobody answers.
pub(crate) fn nowhere(name: &str) -> Value {
    objects::target(name, &["http://127.0.0.1:9".to_owned()])
}

/// A target by the label `app`.
pub(crate) fn target_by_pods(name: &str, app: &str) -> Value {
    let selector = json!({ "matchLabels": { "app": app } });
    objects::object("EtcdTarget", name, &json!({ "podSelector": selector }))
}

/// A policy that always fires, quick, with a long cooldown. `spec` adds and replaces fields.
pub(crate) fn policy(name: &str, target: &str, spec: Value) -> Value {
    objects::policy(name, target, &spec)
}

/// A run by hand of everything that there is.
pub(crate) fn run(name: &str, target: &str, spec: Value) -> Value {
    objects::run(name, target, &spec)
}

/// The condition of that type; null when there is none.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}

/// Whether the policy rests after a run on its cluster.
pub(crate) fn rests(policy: &Value) -> bool {
    let reason = &policy["status"]["clusters"][0]["decision"]["reason"];
    reason == "CoolingDown" || reason == "BackingOff"
}

/// Whether the run waits for this reason, and says this.
pub(crate) fn waits(run: &Value, reason: &str, words: &str) -> bool {
    let message = run["status"]["message"].as_str().unwrap_or_default();
    run["status"]["reason"] == reason && message.contains(words)
}
