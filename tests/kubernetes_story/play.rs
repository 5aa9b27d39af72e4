//! Everything that makes defragd use each of its rights, in one namespace.

use std::time::Duration;

use defragd::core::name;
use defragd_harness::{Error, KubeApi, eventually, objects};
use serde_json::{Value, json};

use crate::support::WAIT;

/// A source that does not answer.
pub(crate) const SILENT: &str = "http://127.0.0.1:1";
/// A metric that policies ask for, of nobody who would serve it.
pub(crate) const METRIC: &str = "reclaimable";
/// The groups of the other operators' kinds.
pub(crate) const COZYSTACK: &str = "etcd-operator.cozystack.io";
pub(crate) const ETCD_IO: &str = "operator.etcd.io";
/// Writes of others between two looks of defragd.
const BURST: usize = 20;

/// The kinds of other operators, as far as the API server has to know them.
pub(crate) fn foreign_kinds() -> Vec<Value> {
    let kinds = [
        (COZYSTACK, "v1alpha2", "EtcdCluster"),
        (COZYSTACK, "v1alpha2", "EtcdMember"),
        (COZYSTACK, "v1alpha2", "EtcdDefrag"),
        (ETCD_IO, "v1alpha1", "EtcdCluster"),
    ];
    let definition = |(group, version, kind): (&str, &str, &str)| {
        let singular = kind.to_lowercase();
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({
            "name": version, "served": true, "storage": true,
            "schema": { "openAPIV3Schema": anything },
        });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{singular}s.{group}") },
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": { "kind": kind, "plural": format!("{singular}s"), "singular": singular },
                "versions": [version],
            },
        })
    };
    kinds.map(definition).into()
}

/// An API service that is known and not there: its group is found, and its metrics are asked for.
pub(crate) fn metrics_api() -> Value {
    let (group, version) = ("custom.metrics.k8s.io", "v1beta1");
    json!({
        "metadata": { "name": format!("{version}.{group}") },
        "spec": {
            "group": group,
            "version": version,
            "service": { "name": "nowhere", "namespace": "default" },
            "insecureSkipTLSVerify": true,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    })
}

/// A namespace with objects in it.
pub(crate) struct Play<'a> {
    pub(crate) api: &'a KubeApi,
    pub(crate) namespace: &'a str,
    /// The cluster that the policies are about.
    pub(crate) watched: Vec<String>,
    /// The cluster that a run sweeps.
    pub(crate) swept: Vec<String>,
}

impl Play<'_> {
    /// Objects that need no more than that defragd sees them: a run of a policy, a run that is
    /// removed after its end, members by pods, by a Secret and by other operators' objects.
    pub(crate) async fn begin(&self) -> Result<(), Error> {
        let secrets = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let user = json!({
            "metadata": { "name": "etcd-user" },
            "stringData": { "username": "root", "password": "root's" },
        });
        self.api.create(&secrets, &user).await?;
        let main = json!({ "endpoints": self.watched });
        let swept = json!({ "endpoints": self.swept });
        let pods = json!({ "podSelector": { "matchLabels": { "component": "etcd" } } });
        let secret = json!({ "secretRef": { "name": "etcd-user" } });
        let with_user = json!({ "endpoints": self.watched, "auth": secret });
        let once = json!({
            "clusterRef": { "name": "swept" },
            "rule": { "all": true },
            "allowSingleMember": true,
            "ttlSecondsAfterFinished": 1,
        });
        let of = |version: &str| {
            let cluster = json!({ "apiVersion": version, "kind": "EtcdCluster", "name": "etcd" });
            json!({ "clusterRef": cluster })
        };
        let outside = json!({ "name": METRIC });
        let pod = json!({ "kind": "Pod", "name": "etcd-0" });
        let of_pod = json!({ "describedObject": pod, "name": METRIC });
        let objects = [
            ("EtcdTarget", "main", main.clone()),
            ("EtcdTarget", "busy", main),
            ("EtcdTarget", "swept", swept),
            ("EtcdTarget", "pods", pods),
            ("EtcdTarget", "with-user", with_user),
            ("EtcdDefrag", "once", once),
            (
                "EtcdDefrag",
                "cozystack",
                of("etcd-operator.cozystack.io/v1alpha2"),
            ),
            ("EtcdDefrag", "etcd-io", of("operator.etcd.io/v1alpha1")),
            ("EtcdDefragPolicy", "fires", policy(&probe("dbSize > 0.0"))),
            ("EtcdDefragPolicy", "taken", policy(&probe("dbSize < 0.0"))),
            ("EtcdDefragPolicy", "falls", policy(&probe("dbSize < 0.0"))),
            (
                "EtcdDefragPolicy",
                "outside",
                policy(&metric("external", &outside)),
            ),
            (
                "EtcdDefragPolicy",
                "of-pod",
                policy(&metric("object", &of_pod)),
            ),
        ];
        for (kind, name, spec) in objects {
            self.create(kind, name, spec).await?;
        }
        Ok(())
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) -> Result<Value, Error> {
        let object = objects::object(kind, name, &spec);
        let list = KubeApi::defragd_path(self.namespace, plural(kind));
        self.api.create(&list, &object).await
    }

    fn path(&self, kind: &str, name: &str) -> String {
        let list = KubeApi::defragd_path(self.namespace, plural(kind));
        format!("{list}/{name}")
    }

    /// A run that a policy has to make has its name taken: it looks who has it.
    pub(crate) async fn take_the_name_of_a_run(&self) -> Result<(), Error> {
        let path = self.path("EtcdDefragPolicy", "taken");
        let is_evaluated = |policy: &Value| policy["status"]["clusters"][0].is_object();
        let policy = self.api.wait_for(&path, is_evaluated).await?;
        let uid = policy["metadata"]["uid"].as_str().unwrap_or_default();
        let cluster = format!("{}/main", self.namespace);
        let name = name::of_trigger("taken", uid, &cluster, "now", None);
        let elsewhere = json!({ "clusterRef": { "name": "nowhere" } });
        self.create("EtcdDefrag", &name, elsewhere).await?;
        let patch = json!({ "spec": { "trigger": "now" } });
        self.api.patch(&path, &patch).await?;
        self.until(&path, |policy| {
            policy["status"]["clusters"][0]["decision"]["reason"] == "NameConflict"
        })
        .await
    }

    /// Somebody writes to a target all the time, so that defragd's status of it is refused and it
    /// looks what is stored. For ever.
    pub(crate) async fn keep_writing_to_a_target(&self) -> Result<(), Error> {
        let path = self.path("EtcdTarget", "busy");
        for round in 0_usize.. {
            let voters = if round.is_multiple_of(2) {
                json!(1)
            } else {
                Value::Null
            };
            let patch = json!({ "spec": { "memberCount": voters } });
            self.api.patch(&path, &patch).await?;
            for write in 0..BURST {
                let note = format!("{round}.{write}");
                let patch = json!({ "metadata": { "annotations": { "test": note } } });
                self.api.patch(&path, &patch).await?;
            }
        }
        Ok(())
    }

    /// A policy falls back to the probe, and does so again: the event is told before, and is counted
    /// up.
    pub(crate) async fn fall_back_twice(&self) -> Result<(), Error> {
        let path = self.path("EtcdDefragPolicy", "falls");
        let rule = json!({ "rule": { "expression": "dbSize < 0.0" } });
        let silent = json!({ "spec": {
            "signal": {
                "probe": null,
                "prometheus": { "source": "main", "query": "vector(1)", "above": 2 },
            },
            "fallback": { "after": "1s", "probe": rule },
        } });
        let answers = json!({ "spec": {
            "signal": { "probe": rule, "prometheus": null },
            "fallback": null,
        } });
        for _ in 0..2 {
            for (patch, fallen) in [(&silent, "True"), (&answers, "False")] {
                self.api.patch(&path, patch).await?;
                self.until(&path, |policy| {
                    let conditions = policy["status"]["conditions"].as_array();
                    let mut conditions = conditions.into_iter().flatten();
                    let condition = conditions.find(|c| c["type"] == "Fallback");
                    condition.map_or("False", |c| c["status"].as_str().unwrap_or_default())
                        == fallen
                })
                .await?;
            }
        }
        Ok(())
    }

    async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<(), Error> {
        self.api.wait_for(path, wanted).await.map(drop)
    }

    /// Waits until there is no such run any more.
    pub(crate) async fn run_is_removed(&self, run: &str) -> Result<(), Error> {
        self.api
            .wait_until_gone(&self.path("EtcdDefrag", run))
            .await
    }

    /// Waits until the policy's signal is an error for this reason.
    pub(crate) async fn policy_says(&self, policy: &str, reason: &str) -> Result<(), Error> {
        let path = self.path("EtcdDefragPolicy", policy);
        self.until(&path, |policy| {
            policy["status"]["clusters"][0]["signal"]["reason"] == reason
        })
        .await
    }

    /// Waits until the run waits for this reason, in these words among others.
    pub(crate) async fn run_says(&self, run: &str, reason: &str, words: &str) -> Result<(), Error> {
        self.until(&self.path("EtcdDefrag", run), |run| {
            let conditions = run["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|condition| {
                let message = condition["message"].as_str().unwrap_or_default();
                condition["reason"] == reason && message.contains(words)
            })
        })
        .await
    }

    /// Waits until the target is not ready for this reason.
    pub(crate) async fn target_says(&self, target: &str, reason: &str) -> Result<(), Error> {
        let path = self.path("EtcdTarget", target);
        eventually(WAIT, format!("{target} to say {reason}"), async || {
            let target = self.api.get(&path).await.map_err(|e| e.to_string())?;
            let conditions = &target.unwrap_or_default()["status"]["conditions"];
            if conditions[0]["reason"] == reason {
                Ok(())
            } else {
                Err(conditions.to_string())
            }
        })
        .await
    }
}

fn plural(kind: &str) -> &'static str {
    match kind {
        "EtcdTarget" => "etcdtargets",
        "EtcdDefragPolicy" => "etcddefragpolicies",
        _ => "etcddefrags",
    }
}

fn probe(expression: &str) -> Value {
    json!({ "probe": { "rule": { "expression": expression } } })
}

fn metric(kind: &str, metric: &Value) -> Value {
    json!({ "metric": { kind: metric, "above": "1Mi" } })
}

/// A policy whose runs only say what they would do: one etcd serves all namespaces.
pub(crate) fn policy(signal: &Value) -> Value {
    json!({
        "clusterRef": { "name": "main" },
        "signal": signal,
        "interval": "1s",
        "runTemplate": { "rule": { "all": true }, "dryRun": true, "allowSingleMember": true },
    })
}

/// Between two looks at the audit log.
pub(crate) const LOOK: Duration = Duration::from_millis(200);
