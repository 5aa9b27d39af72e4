//! The etcd module against real etcd servers.

mod access;
mod acting;
mod faults;
mod observing;

use std::collections::BTreeSet;
use std::time::Duration;

use defragd::core::view::{
    ClusterId, DefragMetrics, MemberId, MemberStatus, MemberView, Observation,
};
use defragd::etcd::{ClusterClient, Connection, Endpoint, Source, Tls};
use defragd_harness::{Cluster, Etcd, EtcdVersion};
use jiff::Timestamp;

/// For what a busy machine may take; nothing waits for it when all is well.
const DEADLINE: Duration = Duration::from_secs(60);

fn connection(cluster: &Cluster) -> Connection {
    let endpoints = cluster.endpoints();
    let mut connection = to(&endpoints.iter().map(String::as_str).collect::<Vec<_>>());
    if let Some(pki) = cluster.pki() {
        let (certificate, key) = pki.client();
        connection.tls = Some(Tls {
            ca: Some(Source::file(pki.ca())),
            certificate: Some(Source::file(certificate)),
            key: Some(Source::file(key)),
            server_name: None,
        });
    }
    connection
}

fn to(endpoints: &[&str]) -> Connection {
    Connection::new(
        endpoints
            .iter()
            .map(|e| Endpoint::parse(e).unwrap())
            .collect(),
    )
}

async fn connect(connection: Connection) -> ClusterClient {
    ClusterClient::connect(connection).await.unwrap()
}

async fn observe(client: &ClusterClient) -> Observation {
    client.observe(Timestamp::now()).await
}

/// One member of a cluster of one, which starts faster.
async fn single() -> Cluster {
    Etcd::version(EtcdVersion::V3_6)
        .members(1)
        .start()
        .await
        .unwrap()
}

fn id(cluster: &Cluster, i: usize) -> MemberId {
    MemberId(cluster.member(i).id())
}

fn cluster_id(cluster: &Cluster) -> ClusterId {
    ClusterId(cluster.id())
}

fn only(cluster: &Cluster) -> BTreeSet<ClusterId> {
    BTreeSet::from([cluster_id(cluster)])
}

fn view(seen: &Observation, member: MemberId) -> &MemberView {
    seen.members
        .as_ref()
        .unwrap()
        .iter()
        .find(|m| m.id == member)
        .unwrap()
}

fn status(seen: &Observation, member: MemberId) -> &MemberStatus {
    view(seen, member).status.as_ref().unwrap()
}

fn metrics(seen: &Observation, member: MemberId) -> DefragMetrics {
    view(seen, member).metrics.unwrap()
}
