//! One policy over targets and over the clusters of two other operators, whose definitions come
//! later than defragd. etcd is real, and each cluster has one member, at an address of its own.

use std::collections::BTreeMap;

use defragd_harness::case::condition;
use defragd_harness::operators::{
    self, COZYSTACK, ETCD_IO, address, cozystack_labels, cozystack_member_status, cozystack_status,
    etcd_io_status, path_of_theirs, pod, pod_runs, say, theirs,
};
use defragd_harness::{Case, Cluster, Error, Etcd, Place, objects, own_address};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::support::{api, controller, entry, fleet, prometheus, selected};

const MUCH: u64 = 200 << 20;
const POLICY: &str = "etcddefragpolicies";
const NAMESPACE: &str = "tenants";

/// Clusters by the names of their objects.
const NAMES: [&str; 7] = [
    "plain", "quiet", "fresh", "silent", "moved", "other", "late",
];

/// Who is about a series and who is not: `silent` has none, and `quiet` little to give back.
fn series() -> [(String, u64); 7] {
    [
        ("plain", MUCH),
        ("quiet", 1),
        ("fresh", MUCH),
        ("moved", MUCH),
        ("other", MUCH),
        ("late", MUCH),
        ("stranger", MUCH),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
}

/// What the status calls it.
fn called(group: &str, name: &str) -> String {
    format!("EtcdCluster.{group}/{name}")
}

fn reason<'a>(policy: &'a Value, name: &str) -> &'a str {
    let reason = &entry(policy, name)["decision"]["reason"];
    reason.as_str().unwrap_or_default()
}

/// Whether there was a run on it, which gave back much or little.
fn rests(policy: &Value, name: &str) -> bool {
    matches!(reason(policy, name), "CoolingDown" | "BackingOff")
}

fn state<'a>(policy: &'a Value, name: &str) -> &'a str {
    let state = &entry(policy, name)["signal"]["state"];
    state.as_str().unwrap_or_default()
}

/// The names that the status has, without those that left.
fn present(policy: &Value) -> Vec<&str> {
    let clusters = policy["status"]["clusters"].as_array();
    let present = clusters
        .into_iter()
        .flatten()
        .filter(|cluster| cluster["absentSince"].is_null());
    present.filter_map(|c| c["name"].as_str()).collect()
}

/// The run on the cluster of this name; null when there is none.
fn run_on<'a>(runs: &'a [Value], name: &str) -> &'a Value {
    let mut on = runs
        .iter()
        .filter(|run| run["spec"]["clusterRef"]["name"] == name);
    let first = on.next().unwrap_or(&Value::Null);
    assert!(on.next().is_none(), "two runs on {name}");
    first
}

fn is_complete(run: &Value) -> bool {
    run["status"]["phase"] == "Complete"
}

fn unmatched(policy: &Value) -> Vec<&str> {
    let listed = policy["status"]["unmatchedSeries"]["listed"].as_array();
    let listed = listed.into_iter().flatten();
    listed.filter_map(Value::as_str).collect()
}

/// The name of its member that the operator's own clients use, and nobody here knows.
fn host(name: &str) -> Option<String> {
    let domain = match name {
        "plain" | "quiet" => return None,
        "late" => "svc.cluster.local",
        _ => "svc",
    };
    Some(format!("{name}-0.{name}.{NAMESPACE}.{domain}"))
}

/// The clusters, each in a place of its own.
async fn etcds() -> Result<BTreeMap<&'static str, Cluster>, Error> {
    let started = NAMES.map(async |name| {
        let place = Place {
            name: format!("{name}-0"),
            address: own_address(),
            host: host(name),
            metrics: !matches!(name, "plain" | "quiet" | "late"),
        };
        let cluster = Etcd::default().places([place]).start().await?;
        Ok((name, cluster))
    });
    Ok(try_join_all(started).await?.into_iter().collect())
}

/// What cozystack's operator makes of a cluster with one member.
fn of_cozystack(name: &str) -> [Value; 3] {
    let member = format!("{name}-0");
    let labels = cozystack_labels(name, &member);
    let none = json!({});
    [
        theirs(
            COZYSTACK,
            "EtcdCluster",
            name,
            &none,
            &json!({ "replicas": 1 }),
        ),
        theirs(
            COZYSTACK,
            "EtcdMember",
            &member,
            &labels,
            &json!({ "clusterName": name }),
        ),
        pod(&member, &labels, &[]),
    ]
}

/// What etcd-io's operator makes of a cluster with one member.
fn of_etcd_io(name: &str) -> [Value; 2] {
    let labels = json!({ "app": name, "controller": name });
    let listens = ["--listen-client-urls=http://0.0.0.0:2379"];
    let spec = json!({ "size": 1, "version": "v3.6.16" });
    [
        theirs(ETCD_IO, "EtcdCluster", name, &json!({}), &spec),
        pod(&format!("{name}-0"), &labels, &listens),
    ]
}

/// The story, as far as it has come.
struct Story<'a> {
    case: Case<'a>,
    etcds: &'a BTreeMap<&'static str, Cluster>,
}

impl Story<'_> {
    async fn policy(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value, Error> {
        self.case.until(POLICY, "fleet", what, wanted).await
    }

    /// Waits until the runs on these clusters are complete, and no others are.
    async fn complete(&self, names: &[&str]) -> Result<Vec<Value>, Error> {
        let what = format!("the runs on {names:?} to end");
        let all = |runs: &[Value]| names.iter().all(|name| is_complete(run_on(runs, name)));
        let runs = self.case.until_runs(&what, all).await?;
        let complete = runs.iter().filter(|run| is_complete(run));
        assert_eq!(complete.count(), names.len(), "{runs:?}");
        self.swept(names).await?;
        Ok(runs)
    }

    /// Each of these etcds was defragmented once, and no other.
    async fn swept(&self, names: &[&str]) -> Result<(), Error> {
        for (name, etcd) in self.etcds {
            let times = if names.contains(name) { 1.0 } else { 0.0 };
            assert_eq!(etcd.defragmentations().await?, [times], "{name}");
        }
        Ok(())
    }

    /// Says where the one member of the cluster is.
    async fn runs_in_its_pod(&self, name: &str) -> Result<(), Error> {
        let ip = address(&self.etcds[name], 0);
        pod_runs(&self.case, &format!("{name}-0"), &ip, true).await
    }

    /// What the operator says about its cluster.
    async fn say(&self, group: &str, name: &str, changing: bool) -> Result<(), Error> {
        let etcd = &self.etcds[name];
        let status = if group == COZYSTACK {
            cozystack_status(etcd, changing)
        } else {
            etcd_io_status(etcd, changing)
        };
        say(&self.case, group, "etcdclusters", name, &status).await
    }

    /// Gives a cluster of cozystack's the label that the policy selects by, or takes it.
    async fn tier(&self, name: &str, tier: &Value) -> Result<(), Error> {
        let path = path_of_theirs(self.case.namespace, COZYSTACK, "etcdclusters", name);
        let patch = json!({ "metadata": { "labels": { "tier": tier } } });
        self.case.api.patch(&path, &patch).await.map(drop)
    }

    /// Only targets are there, and only their kind. That two other kinds are not served is no
    /// trouble.
    async fn of_targets_alone(&self) -> Result<(), Error> {
        let targets = ["plain", "quiet"]
            .map(|name| selected(objects::target(name, &self.etcds[name].endpoints())));
        self.case.apply(&targets).await?;
        let kinds = json!([
            "EtcdTarget",
            format!("EtcdCluster.{COZYSTACK}"),
            format!("EtcdCluster.{ETCD_IO}"),
        ]);
        let policy = fleet(&json!({
            "clusterSelector": { "matchLabels": { "tier": "prod" }, "kinds": kinds },
            "maxConcurrentRuns": 2,
            "interval": "1s",
            "runTemplate": { "rule": { "all": true }, "allowSingleMember": true },
        }));
        self.case.apply(&[policy]).await?;
        self.complete(&["plain"]).await?;
        let policy = self
            .policy("two targets", |policy| {
                rests(policy, "plain")
                    && reason(policy, "quiet") == "SignalNotFiring"
                    && unmatched(policy) == ["fresh", "late", "moved", "other", "stranger"]
            })
            .await?;
        assert_eq!(present(&policy), ["plain", "quiet"]);
        assert_eq!(condition(&policy, "Ready")["status"], "True");
        Ok(())
    }

    /// One of its clusters is being changed, one has no series, and one is not selected.
    async fn cozystack_comes(&self) -> Result<(), Error> {
        let [fresh, silent, moved, other] =
            ["fresh", "silent", "moved", "other"].map(|name| called(COZYSTACK, name));
        self.case.api.apply(&operators::cozystack()).await?;
        let mut objects = Vec::new();
        for name in ["fresh", "silent", "moved"] {
            let [cluster, rest @ ..] = of_cozystack(name);
            objects.push(selected(cluster));
            objects.extend(rest);
        }
        objects.extend(of_cozystack("other"));
        self.case.apply_once_served(&objects).await?;
        // The one that it is changing is first: it takes one of the two places.
        for name in ["moved", "fresh", "silent", "other"] {
            self.runs_in_its_pod(name).await?;
            let member = format!("{name}-0");
            let joined = cozystack_member_status(&self.etcds[name], 0, &member);
            say(&self.case, COZYSTACK, "etcdmembers", &member, &joined).await?;
            self.say(COZYSTACK, name, name == "moved").await?;
        }
        let runs = self.complete(&["plain", "fresh"]).await?;
        let reference = json!({
            "apiVersion": format!("{COZYSTACK}/v1alpha2"), "kind": "EtcdCluster", "name": "fresh",
        });
        let run = run_on(&runs, "fresh");
        assert_eq!(run["spec"]["clusterRef"], reference);
        let id = format!("{:x}", self.etcds["fresh"].id());
        assert_eq!(run["status"]["clusterID"], json!(id));

        self.until_waits("moved").await?;
        let policy = self
            .policy("three more", |policy| {
                rests(policy, &fresh)
                    && reason(policy, &silent) == "NoData"
                    && reason(policy, &moved) == "RunInProgress"
                    && unmatched(policy) == ["late", "other", "stranger"]
            })
            .await?;
        assert_eq!(state(&policy, &silent), "NoData");
        assert_eq!(state(&policy, &moved), "Firing");
        assert_eq!(state(&policy, "quiet"), "NotFiring");
        assert_eq!(entry(&policy, &other), &Value::Null);
        assert_eq!(policy["status"]["summary"]["clusters"], 5);
        Ok(())
    }

    /// Waits until the run on the cluster waits for the operator's change.
    async fn until_waits(&self, name: &str) -> Result<(), Error> {
        let waits = |runs: &[Value]| {
            let status = &run_on(runs, name)["status"];
            let message = status["message"].as_str().unwrap_or_default();
            status["reason"] == "ClusterChanging" && message.contains("SpecChanged")
        };
        let what = format!("the run on {name} to wait for the change");
        self.case.until_runs(&what, waits).await.map(drop)
    }

    /// While one cluster of the other operator is still being changed.
    async fn etcd_io_comes(&self) -> Result<(), Error> {
        let late = called(ETCD_IO, "late");
        self.case.api.apply(&operators::etcd_io()).await?;
        let [cluster, member] = of_etcd_io("late");
        self.case
            .apply_once_served(&[selected(cluster), member])
            .await?;
        self.runs_in_its_pod("late").await?;
        self.say(ETCD_IO, "late", false).await?;
        let runs = self.complete(&["plain", "fresh", "late"]).await?;
        let reference = json!({
            "apiVersion": format!("{ETCD_IO}/v1alpha1"), "kind": "EtcdCluster", "name": "late",
        });
        assert_eq!(run_on(&runs, "late")["spec"]["clusterRef"], reference);
        self.until_waits("moved").await?;
        self.policy("one more", |policy| {
            rests(policy, &late) && unmatched(policy) == ["other", "stranger"]
        })
        .await?;

        self.say(COZYSTACK, "moved", false).await?;
        self.complete(&["plain", "fresh", "late", "moved"]).await?;
        Ok(())
    }

    /// One loses its label and gets it again, another one is deleted.
    async fn some_leave(&self) -> Result<(), Error> {
        let (fresh, late) = (called(COZYSTACK, "fresh"), called(ETCD_IO, "late"));
        self.tier("fresh", &Value::Null).await?;
        let kind = format!("etcdclusters.{ETCD_IO}");
        self.case.delete(&kind, "late").await?;
        let policy = self
            .policy("two to leave", |policy| {
                [&fresh, &late]
                    .iter()
                    .all(|name| entry(policy, name)["absentSince"].is_string())
                    && unmatched(policy) == ["fresh", "late", "other", "stranger"]
            })
            .await?;
        let [silent, moved] = ["silent", "moved"].map(|name| called(COZYSTACK, name));
        assert_eq!(present(&policy), [&*moved, &*silent, "plain", "quiet"]);
        let watched = self.case.watch("no series of one that left", async || {
            let metrics = self.case.defragd.metrics().await;
            let metrics = metrics.map_err(|e| e.to_string())?;
            let state = "defragd_policy_signal_state{";
            let own: Vec<&str> = metrics.lines().filter(|l| l.starts_with(state)).collect();
            let has = |name: &str| {
                own.iter()
                    .any(|line| line.contains(&format!("cluster=\"{name}\"")))
            };
            if has("moved") && has("quiet") && !has("fresh") && !has("late") {
                Ok(())
            } else {
                Err(own.join("\n"))
            }
        });
        watched.await?;

        self.tier("fresh", &json!("prod")).await?;
        self.policy("one to come back and to rest", |policy| {
            entry(policy, &fresh)["absentSince"].is_null()
                && rests(policy, &fresh)
                && unmatched(policy) == ["late", "other", "stranger"]
        })
        .await?;
        self.complete(&["plain", "fresh", "late", "moved"]).await?;
        Ok(())
    }
}

#[tokio::test]
async fn one_policy_over_targets_and_the_clusters_of_two_operators() -> Result<(), Error> {
    let etcds = etcds().await?;
    let prometheus = prometheus(series()).await?;
    let api = api().await?;
    let defragd = controller(&api, &prometheus).await?;
    let story = Story {
        case: Case::new(&api, &defragd, NAMESPACE).await?,
        etcds: &etcds,
    };
    story.of_targets_alone().await?;
    story.cozystack_comes().await?;
    story.etcd_io_comes().await?;
    story.some_leave().await?;
    assert_eq!(story.case.runs().await?.len(), 4);
    Ok(())
}
