//! A case: a namespace of an API server, and a defragd that looks after its objects.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::objects::{list, named};
use crate::{Controller, Error, Kube, KubeApi, RunningController, eventually_while};

/// How long one thing is waited for, on a machine that is busy with other tests.
pub const WAIT: Duration = Duration::from_secs(300);

/// The namespace that defragd itself is in.
const SYSTEM: &str = "defragd-system";
/// Its release, and the account that the chart makes for it.
const ACCOUNT: &str = "defragd";

/// An API server that knows defragd's kinds, as defined here, with a place for defragd.
///
/// # Errors
/// When it does not start, or has something against the definitions.
pub async fn api(kube: Kube, definitions: &str) -> Result<KubeApi, Error> {
    let api = kube.start().await?;
    api.install_crds(definitions).await?;
    api.apply(&named("Namespace", SYSTEM).to_string()).await?;
    Ok(api)
}

/// A replica of this binary for all namespaces, with the rights that this chart gives and no more.
///
/// # Errors
/// When the chart's rules cannot be rendered or applied.
pub async fn controller(api: &KubeApi, binary: &str, chart: &Path) -> Result<Controller, Error> {
    let chart = chart.display().to_string();
    let rules = [
        "template",
        ACCOUNT,
        &chart,
        "--namespace",
        SYSTEM,
        "--show-only=templates/rbac.yaml",
        "--show-only=templates/serviceaccount.yaml",
    ];
    api.apply(&api.helm(&rules).await?).await?;
    let token = api.service_account_token(SYSTEM, ACCOUNT).await?;
    let kubeconfig = api.kubeconfig_for_token(&token, SYSTEM)?;
    Ok(Controller::new(binary, &kubeconfig).pod(SYSTEM, "defragd-0"))
}

/// What defragd asked of the API server, in order.
///
/// # Errors
/// When the audit log cannot be read.
pub fn asked(api: &KubeApi) -> Result<Vec<Value>, Error> {
    let ours = |event: &Value| {
        let agent = event["userAgent"].as_str();
        agent.is_some_and(|agent| agent.starts_with("defragd/"))
    };
    Ok(api.audit()?.into_iter().filter(ours).collect())
}

/// The requests of defragd that change something, without those for its lease.
///
/// # Errors
/// When the audit log cannot be read.
pub fn writes(api: &KubeApi) -> Result<Vec<String>, Error> {
    let asked = asked(api)?;
    let changing = asked.iter().filter(|event| {
        let read = matches!(event["verb"].as_str(), Some("get" | "list" | "watch"));
        !read && event["objectRef"]["resource"] != "leases"
    });
    Ok(changing.map(in_short).collect())
}

/// A request as a failed assertion shows it.
#[must_use]
pub fn in_short(event: &Value) -> String {
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
pub struct Case<'a> {
    /// Where the namespace is.
    pub api: &'a KubeApi,
    /// Whoever looks after it.
    pub defragd: &'a RunningController,
    /// Its name.
    pub namespace: &'static str,
}

impl<'a> Case<'a> {
    /// Makes the namespace.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn new(
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
    ///
    /// # Errors
    /// With what the API server has against them.
    pub async fn apply(&self, objects: &[Value]) -> Result<(), Error> {
        let list = list(self.namespace, objects);
        self.api.apply(&list.to_string()).await.map(drop)
    }

    /// As [`Case::apply`], once kinds that have just been defined are served.
    ///
    /// # Errors
    /// When they are not within [`WAIT`], or defragd ends.
    pub async fn apply_once_served(&self, objects: &[Value]) -> Result<(), Error> {
        self.watch("the kinds to be served", async || {
            self.apply(objects).await.map_err(|e| e.to_string())
        })
        .await
    }

    /// The path of an object of ours, `etcddefrags` for one.
    #[must_use]
    pub fn path(&self, kind: &str, name: &str) -> String {
        format!("{}/{name}", KubeApi::defragd_path(self.namespace, kind))
    }

    /// Waits until the object is as wanted, and returns it.
    ///
    /// # Errors
    /// When it takes longer than [`WAIT`], or defragd ends.
    pub async fn until(
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
    ///
    /// # Errors
    /// When it takes longer than [`WAIT`], or defragd ends.
    pub async fn until_complete(&self, run: &str) -> Result<Value, Error> {
        let ended = |run: &Value| run["status"]["completedAt"].is_string();
        let run = self.until("etcddefrags", run, "the end", ended).await?;
        assert_eq!(run["status"]["phase"], "Complete", "{}", outline(&run));
        Ok(run)
    }

    /// Waits until the runs of the namespace are as wanted, and returns them.
    ///
    /// # Errors
    /// When it takes longer than [`WAIT`], or defragd ends.
    pub async fn until_runs(
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

    /// The runs of the namespace.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn runs(&self) -> Result<Vec<Value>, Error> {
        let path = self.path("etcddefrags", "");
        let list = self.api.get(path.trim_end_matches('/')).await?;
        Ok(items(list))
    }

    /// Waits until there is no such object.
    ///
    /// # Errors
    /// When it takes longer than [`WAIT`], or defragd ends.
    pub async fn until_gone(&self, path: &str) -> Result<(), Error> {
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
    ///
    /// # Errors
    /// When there is no such object.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<(), Error> {
        let (inside, name) = (format!("--namespace={}", self.namespace), name.to_owned());
        let args = ["delete", kind, &name, &inside, "--wait=false"];
        self.api.kubectl(&args).await.map(drop)
    }

    /// As [`eventually_while`] defragd runs; the error shows what it printed about the
    /// namespace.
    ///
    /// # Errors
    /// When it takes longer than [`WAIT`], or defragd ends.
    pub async fn watch<T>(
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

/// What a list has in it.
#[must_use]
pub fn items(list: Option<Value>) -> Vec<Value> {
    let items = list.and_then(|list| list["items"].as_array().cloned());
    items.unwrap_or_default()
}

/// What a failed wait shows of an object.
#[must_use]
pub fn outline(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!(
        "{} deleted {} finalizers {}: {}",
        metadata["name"], metadata["deletionTimestamp"], metadata["finalizers"], object["status"]
    )
}

/// The condition of that type; null when there is none.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}
