//! The real servers of the demo, and the files that a person would write.

use std::time::Duration;

use defragd_harness::{Cluster, Etcd, Prometheus, PrometheusServer};
use serde_json::{Value, json};

use crate::Failure;
use crate::host::Host;
use crate::screen::Screen;

const MIB: u64 = 1 << 20;
/// What each member's file grows to, and what of it stays in use.
pub(crate) const FILE: u64 = 190 * MIB;
pub(crate) const LIVE: u64 = 8 * MIB;
/// The second time: enough to fire, and done well within the cooldown.
pub(crate) const FILE_AGAIN: u64 = 140 * MIB;

/// The target and the policy. Only the endpoints are others here.
const OBJECTS: &str = include_str!("../../../../fixtures/demo.yaml");
pub(crate) const POLICY: &str = "fragmented";
/// `for` of that policy.
pub(crate) const HOLD: Duration = Duration::from_secs(3);
/// `above` of that policy.
pub(crate) const ABOVE: u64 = 100 * MIB;
/// The query of that policy.
pub(crate) const QUERY: &str =
    "max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)";

pub(crate) struct Stage<H> {
    // The order matters: defragd ends before what it watches.
    pub(crate) host: H,
    pub(crate) prometheus: PrometheusServer,
    pub(crate) cluster: Cluster,
}

impl<H: Host> Stage<H> {
    pub(crate) async fn build(screen: &mut Screen) -> Result<Self, Failure> {
        screen.step("starting three etcd members");
        let cluster = Etcd::any().await?.raft_log_entries(20).start().await?;
        screen.event(&format!(
            "etcd answers at {}",
            cluster.endpoints().join(", ")
        ));

        screen.step("starting a Prometheus that scrapes them every second");
        let second = Duration::from_secs(1);
        let prometheus = Prometheus::any()
            .await?
            .scrape_etcd(&cluster, second)
            .start()
            .await?;
        screen.event(&format!("Prometheus answers at {}", prometheus.url()));

        let (target, policy) = OBJECTS
            .split_once("---\n")
            .ok_or("the fixture has two objects")?;
        let (target, _) = target.split_once("spec:").ok_or("a target has a spec")?;
        let spec = json!({ "endpoints": cluster.endpoints() });
        let objects = format!("{target}spec: {spec}\n---\n{policy}");
        let host = H::start(&objects, &prometheus, screen).await?;
        let (_, spec) = policy.split_once("metadata").unwrap_or(("", policy));
        screen.quote(&format!("metadata{spec}"));
        Ok(Self {
            host,
            prometheus,
            cluster,
        })
    }
}

impl<H> Stage<H> {
    /// The name of the member with this id, as status writes ids.
    pub(crate) fn name_of(&self, id: &Value) -> String {
        let id = id.as_str().unwrap_or_default();
        let members = self.cluster.members();
        let known = members
            .iter()
            .find(|member| format!("{:x}", member.id()) == id);
        known.map_or(id.to_owned(), |member| member.name().to_owned())
    }
}
