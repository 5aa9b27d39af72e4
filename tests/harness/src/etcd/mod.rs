//! Real etcd clusters on loopback.

mod admin;
mod cluster;
mod data;
mod member;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{scratch, while_ports_are_taken};
use crate::{Error, EtcdVersion, Pki, TcpProxy, Tls, install_tls_provider};

pub use cluster::Cluster;
pub use member::{Member, MemberStatus, Place, Sizes};

use member::Access;

/// How long a cluster may take from start to an agreed leader, on a machine that is busy with
/// other tests.
const START: Duration = Duration::from_secs(60);

/// An etcd cluster to be. Three members of etcd 3.6 on plain HTTP, unless told otherwise.
#[derive(Clone)]
pub struct Etcd {
    version: EtcdVersion,
    binary: Option<PathBuf>,
    members: usize,
    tls: Option<Tls>,
    server_names: Vec<String>,
    auth: Option<(String, String)>,
    proxied: bool,
    places: Vec<Place>,
    args: Vec<OsString>,
}

impl Default for Etcd {
    fn default() -> Self {
        Self::version(EtcdVersion::default())
    }
}

impl Etcd {
    /// A cluster of this version.
    #[must_use]
    pub fn version(version: EtcdVersion) -> Self {
        Self {
            version,
            binary: None,
            members: 3,
            tls: None,
            server_names: ["localhost", "127.0.0.1"].map(str::to_owned).to_vec(),
            auth: None,
            proxied: false,
            places: Vec::new(),
            args: Vec::new(),
        }
    }

    /// A cluster of whatever etcd is at hand, see [`crate::servers::any`].
    ///
    /// # Errors
    /// When there is none and none can be made.
    pub async fn any() -> Result<Self, Error> {
        let binary = crate::servers::any("etcd").await?;
        let mut etcd = Self::version(EtcdVersion::of(&binary).await?);
        etcd.binary = Some(binary);
        Ok(etcd)
    }

    /// How many voters, 3 when not told.
    #[must_use]
    pub fn members(mut self, members: usize) -> Self {
        self.members = members;
        self
    }

    /// TLS on the client ports. The peers talk in plain.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The names that the servers' certificate holds for, instead of `localhost` and `127.0.0.1`.
    /// Clients then need the first of them as their server name.
    #[must_use]
    pub fn server_names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.server_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Authentication, with this user in the role `root`. etcd wants a user of that name, so for
    /// another name there are two, with the same password.
    #[must_use]
    pub fn auth(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.auth = Some((user.into(), password.into()));
        self
    }

    /// A proxy in front of every member, advertised instead of the member itself, so that
    /// [`Cluster::proxy`] can make a member slow, silent or gone for its clients.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// One member at each of these places, and no others.
    #[must_use]
    pub fn places(mut self, places: impl IntoIterator<Item = Place>) -> Self {
        self.places = places.into_iter().collect();
        self.members = self.places.len();
        self
    }

    /// `--quota-backend-bytes`.
    #[must_use]
    pub fn quota_bytes(self, bytes: i64) -> Self {
        self.extra_args([format!("--quota-backend-bytes={bytes}")])
    }

    /// `--auto-compaction-mode` (`periodic` or `revision`) and `--auto-compaction-retention`.
    #[must_use]
    pub fn auto_compaction(self, mode: &str, retention: &str) -> Self {
        self.extra_args([
            format!("--auto-compaction-mode={mode}"),
            format!("--auto-compaction-retention={retention}"),
        ])
    }

    /// How many raft entries a member keeps in memory. With large values this is what a member's
    /// memory goes to (etcd keeps 5000 and more); with few, a member that was away is brought back
    /// by a snapshot.
    #[must_use]
    pub fn raft_log_entries(self, entries: u32) -> Self {
        let catch_up = match self.version {
            EtcdVersion::V3_4 | EtcdVersion::V3_5 => "--experimental-snapshot-catchup-entries",
            EtcdVersion::V3_6 | EtcdVersion::V3_7 => "--snapshot-catchup-entries",
        };
        self.extra_args([
            format!("--snapshot-count={entries}"),
            format!("{catch_up}={entries}"),
        ])
    }

    /// More flags for every member.
    #[must_use]
    pub fn extra_args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts the members, waits until all answer and agree on a leader, and turns on
    /// authentication if asked for.
    ///
    /// # Errors
    /// When the binary cannot be had, a member ends (with the end of its log), or there is no
    /// leader in time.
    pub async fn start(self) -> Result<Cluster, Error> {
        install_tls_provider();
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => self.version.etcd().await?,
        };
        while_ports_are_taken(async || self.try_start(&binary).await).await
    }

    async fn try_start(&self, binary: &Path) -> Result<Cluster, Error> {
        let scratch = scratch("etcd")?;
        let pki = match self.tls {
            Some(_) => Some(Pki::create(
                &scratch.path().join("tls"),
                &self.server_names,
            )?),
            None => None,
        };
        let access = Access {
            pki,
            server_name: self.server_names.first().cloned(),
            user: None,
        };
        let mut members = Vec::new();
        for index in 0..self.members {
            let mut member =
                Member::reserve(&format!("m{index}"), scratch.path(), access.scheme())?;
            if let Some(place) = self.places.get(index) {
                member.put_at(place, access.scheme());
            }
            if self.proxied {
                member.put_behind(TcpProxy::start(member.address()).await?, access.scheme());
            }
            members.push(member);
        }
        let args = self.common_args(&access);
        let peers = initial_cluster(&members);
        for member in &mut members {
            member.start(binary, &args, &peers, "new")?;
        }
        let mut cluster = Cluster::new(
            self.version,
            binary.to_owned(),
            args,
            access,
            members,
            scratch,
        );
        cluster.await_start(START).await?;
        if let Some((user, password)) = &self.auth {
            cluster.enable_auth(user, password).await?;
        }
        Ok(cluster)
    }

    /// The flags that all members have in common.
    fn common_args(&self, access: &Access) -> Vec<OsString> {
        let mut args: Vec<OsString> = ["--logger=zap", "--bcrypt-cost=4"].map(Into::into).to_vec();
        // Nothing here outlives a power cut. 3.4 has no such flag.
        if self.version >= EtcdVersion::V3_5 {
            args.push("--unsafe-no-fsync".into());
        }
        if let Some(pki) = &access.pki {
            let (certificate, key) = pki.server();
            args.extend(["--cert-file".into(), certificate.into_os_string()]);
            args.extend(["--key-file".into(), key.into_os_string()]);
            if self.tls == Some(Tls::Mutual) {
                args.push("--client-cert-auth".into());
                args.extend(["--trusted-ca-file".into(), pki.ca().into_os_string()]);
            }
        }
        args.extend(self.args.iter().cloned());
        args
    }
}

/// The value of `--initial-cluster`.
fn initial_cluster(members: &[Member]) -> String {
    let each: Vec<_> = members
        .iter()
        .map(|m| format!("{}={}", m.name(), m.peer_url()))
        .collect();
    each.join(",")
}
