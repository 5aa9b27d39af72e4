//! What the stories have in common.

use std::time::Duration;

use defragd_harness::objects;
pub(crate) use defragd_harness::objects::{is_complete, target, time};
use defragd_harness::{Cluster, Defragd, Error, Etcd, Prometheus, PrometheusServer, Status};
use serde_json::{Value, json};

pub(crate) const MIB: u64 = 1 << 20;
/// How long one thing is waited for, on a machine that is busy with other tests.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// A cluster, the Prometheus that scrapes it, and a defragd that is not started yet.
pub(crate) struct World {
    // The order matters: defragd ends before what it watches.
    pub(crate) defragd: Defragd,
    pub(crate) prometheus: PrometheusServer,
    pub(crate) cluster: Cluster,
}

impl World {
    /// Three members.
    pub(crate) async fn new() -> Result<Self, Error> {
        Self::of(Etcd::default().raft_log_entries(100), Prometheus::default()).await
    }

    /// One member, where only the policies matter.
    pub(crate) async fn small() -> Result<Self, Error> {
        Self::of(Etcd::default().members(1), Prometheus::default()).await
    }

    pub(crate) async fn of(etcd: Etcd, prometheus: Prometheus) -> Result<Self, Error> {
        let cluster = etcd.start().await?;
        let interval = Duration::from_millis(500);
        let prometheus = prometheus.scrape_etcd(&cluster, interval).start().await?;
        let defragd = defragd()?;
        defragd.configure(&json!({
            "sources": [{ "name": "main", "prometheus": { "url": prometheus.url() } }]
        }))?;
        Ok(Self {
            defragd,
            prometheus,
            cluster,
        })
    }

    /// Writes the target `demo` and these objects, and starts defragd.
    pub(crate) async fn play(&self, objects: &[Value]) -> Result<(), Error> {
        self.defragd.put(
            "target.yaml",
            &target("demo", &self.cluster.endpoints()).to_string(),
        )?;
        self.write(objects)?;
        self.defragd.start().await
    }

    /// Writes these objects in place of those written before.
    pub(crate) fn write(&self, objects: &[Value]) -> Result<(), Error> {
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        self.defragd.put("objects.yaml", &documents.join("\n---\n"))
    }

    /// Waits until the status is as wanted, and returns it.
    pub(crate) async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&Status) -> bool,
    ) -> Result<Status, Error> {
        until(&self.defragd, what, wanted).await
    }

    /// Waits until so many more polls of the source have been answered: time for a wrong decision.
    pub(crate) async fn after_polls(&self, more: f64) -> Result<Status, Error> {
        self.defragd.after_polls(WAIT, "main", more).await
    }

    /// What each member counts of its own defragmentations since it started.
    pub(crate) async fn counts(&self) -> Result<Vec<f64>, Error> {
        counts(&self.cluster).await
    }
}

/// A defragd of this build with folders of its own.
pub(crate) fn defragd() -> Result<Defragd, Error> {
    Defragd::new(env!("CARGO_BIN_EXE_defragd"))
}

pub(crate) async fn counts(cluster: &Cluster) -> Result<Vec<f64>, Error> {
    cluster.defragmentations().await
}

pub(crate) async fn until(
    defragd: &Defragd,
    what: &str,
    wanted: impl Fn(&Status) -> bool,
) -> Result<Status, Error> {
    defragd.until(WAIT, what, wanted).await
}

/// A policy for the target `demo`: quick, with a long cooldown. `spec` adds and replaces fields.
pub(crate) fn policy(name: &str, spec: Value) -> Value {
    let spec = objects::extended(json!({ "signal": firing() }), &spec);
    objects::policy(name, "demo", &spec)
}

/// A hand-written run on this target.
pub(crate) fn run(name: &str, target: &str, spec: Value) -> Value {
    objects::run(name, target, &spec)
}

/// A signal that fires for ever, whatever the cluster is like.
pub(crate) fn firing() -> Value {
    constant(200)
}

/// A signal that never fires.
pub(crate) fn quiet() -> Value {
    constant(50)
}

fn constant(value: u32) -> Value {
    json!({ "prometheus": { "source": "main", "query": format!("vector({value})"), "above": 100 } })
}

/// The signal of a fragmented cluster, as Prometheus tells it.
pub(crate) fn fragmented(above: &str) -> Value {
    let query = "max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)";
    json!({ "prometheus": { "source": "main", "query": query, "above": above } })
}

/// The members of a run in the order of their turns.
pub(crate) fn turns(run: &Value) -> Vec<&Value> {
    let mut turns: Vec<&Value> = run["status"]["members"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    turns.sort_by_key(|member| time(&member["startedAt"]));
    turns
}
