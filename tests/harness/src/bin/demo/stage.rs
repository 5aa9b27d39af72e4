//! The real servers of the demo, and the files that a person would write.

use std::path::PathBuf;
use std::time::Duration;

use defragd_harness::{Cluster, Defragd, Etcd, Prometheus, PrometheusServer};
use serde_json::{Value, json};

use crate::Failure;
use crate::screen::Screen;

const MIB: u64 = 1 << 20;
/// What each member's file grows to, and what of it stays in use.
pub(crate) const FILE: u64 = 190 * MIB;
pub(crate) const LIVE: u64 = 8 * MIB;
/// The second time: enough to fire, and done well within the cooldown.
pub(crate) const FILE_AGAIN: u64 = 140 * MIB;

pub(crate) const TARGET: &str = "demo";
pub(crate) const POLICY: &str = "fragmented";
/// `for` of the policy below.
pub(crate) const HOLD: Duration = Duration::from_secs(3);
/// `above` of the policy below.
pub(crate) const ABOVE: u64 = 100 * MIB;
/// The query of the policy below.
pub(crate) const QUERY: &str =
    "max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)";

const POLICY_FILE: &str = "\
apiVersion: defragd.dev/v1alpha1
kind: EtcdDefragPolicy
metadata: {name: fragmented}
spec:
  clusterRef: {name: demo}
  signal:
    prometheus:
      source: main
      query: max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)
      above: 100Mi
  for: 3s
  interval: 1s
  cooldown: 1m
  backoff: {factor: 2, max: 1d, minReclaim: 32Mi}
  runTemplate:
    rule: {freeSpaceAbove: 50Mi}
    leader: Move
";

pub(crate) struct Stage {
    // The order matters: defragd ends before what it watches.
    pub(crate) defragd: Defragd,
    pub(crate) prometheus: PrometheusServer,
    pub(crate) cluster: Cluster,
}

impl Stage {
    pub(crate) async fn build(screen: &mut Screen) -> Result<Self, Failure> {
        let defragd = Defragd::new(binary()?)?;

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

        screen.step("starting defragd standalone on an EtcdTarget and an EtcdDefragPolicy");
        defragd.configure(&json!({
            "sources": [{ "name": "main", "prometheus": { "url": prometheus.url() } }]
        }))?;
        let target = format!(
            "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {{name: {TARGET}}}\nspec: {{endpoints: {}}}\n",
            json!(cluster.endpoints())
        );
        defragd.put("demo.yaml", &format!("{target}---\n{POLICY_FILE}"))?;
        defragd.start().await?;
        screen.event(&format!("its objects: {}", defragd.objects().display()));
        screen.event(&format!("its status:  {}", defragd.status_command()));
        for line in POLICY_FILE.lines().skip(3) {
            screen.say(&format!("          {line}"));
        }
        Ok(Self {
            defragd,
            prometheus,
            cluster,
        })
    }

    /// The name of the member with this id, as status writes ids.
    pub(crate) fn name_of(&self, id: &Value) -> String {
        let id = id.as_str().unwrap_or_default();
        let members = self.cluster.members();
        let known = members
            .iter()
            .find(|member| format!("{:x}", member.id()) == id);
        known.map_or(id.to_owned(), |member| member.name().to_owned())
    }

    /// What the reader can do next.
    pub(crate) async fn farewell(&self, screen: &mut Screen) {
        screen.title("\nwhat `defragd status` says");
        let said = match self.defragd.status_text().await {
            Ok(text) => text,
            Err(error) => error.to_string(),
        };
        screen.say(said.trim_end());
        screen.say("\nthe servers and their folders are gone when this ends; to do the same on your own cluster:");
        screen.say("  defragd standalone --config defragd.yaml --objects DIR --state DIR");
        screen.say("  defragd status --state DIR");
    }
}

/// The binary that `make demo` has built beside this one.
fn binary() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    let binary = own.with_file_name("defragd");
    if binary.is_file() {
        Ok(binary)
    } else {
        Err(format!(
            "there is no {}: start the demo with `make demo`, which builds it",
            binary.display()
        )
        .into())
    }
}
