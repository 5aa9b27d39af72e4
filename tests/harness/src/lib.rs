//! Real etcd, Prometheus, Alertmanager and Kubernetes API servers for defragd's tests, demo and benchmark.
//!
//! ```no_run
//! # async fn example() -> Result<(), defragd_harness::Error> {
//! use defragd_harness::{Controller, Etcd, EtcdVersion, Kube, Prometheus, PrometheusVersion};
//! use std::time::Duration;
//!
//! let cluster = Etcd::version(EtcdVersion::V3_6).start().await?;
//! cluster.fragment(150 << 20, 10 << 20).await?;
//! let prometheus = Prometheus::version(PrometheusVersion::V3)
//!     .scrape_etcd(&cluster, Duration::from_secs(1))
//!     .start()
//!     .await?;
//! prometheus.wait_for("max(etcd_mvcc_db_total_size_in_bytes)", |v| !v.is_empty()).await?;
//!
//! let api = Kube::default().on_etcd(&cluster).start().await?;
//! api.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: defragd}}").await?;
//! let token = api.service_account_token("default", "defragd").await?;
//! let kubeconfig = api.kubeconfig_for_token(&token, "default")?;
//! let defragd = Controller::new("target/debug/defragd", &kubeconfig)
//!     .pod("default", "defragd-0")
//!     .start()
//!     .await?;
//! assert!(defragd.metrics().await?.contains("defragd_"));
//! # Ok(())
//! # }
//! ```
//!
//! What every server here can rely on:
//! - It listens on loopback, on a port that no other server of any harness process has.
//! - `start` returns when it answers; a cluster, when all members agree on a leader.
//! - It dies with its handle, and with this process however that ends ([`process`]).
//! - Its log is a file in its own temporary folder; the end of it is part of the error when a
//!   start fails, and is printed when a test panics.
//! - A cluster's id is compared before anything is sent that changes the cluster.
//!
//! Which binaries are started is not known here: `tests/servers/provision` pins the versions,
//! makes them when they are missing, and says where they are ([`servers`]).

pub mod adapter;
pub mod alertmanager;
pub mod case;
pub mod controller;
mod daemon;
pub mod defragd;
mod error;
pub mod etcd;
pub mod kube;
pub mod objects;
pub mod operators;
pub mod pages;
mod ports;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod servers;
mod status;
pub mod tls;
mod wait;

pub use adapter::Adapter;
pub use alertmanager::{Alertmanager, AlertmanagerServer};
pub use case::Case;
pub use controller::{Controller, RunningController};
pub use defragd::Defragd;
pub use error::Error;
pub use etcd::{Cluster, Etcd, Member, MemberStatus, Place, Sizes};
pub use kube::{Kube, KubeApi, Release};
pub use ports::own_address;
pub use prometheus::{Metadata, Prometheus, PrometheusServer, Sample};
pub use proxy::{Fault, TcpProxy};
pub use servers::{EtcdVersion, PrometheusVersion};
pub use status::Status;
pub use tls::{Pki, Tls};
pub use wait::{Outcome, eventually, eventually_while};

/// Makes aws-lc-rs the TLS provider of this process. Several calls do no harm.
pub fn install_tls_provider() {
    // An error means that one is installed already, which is all that is wanted.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
