use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use rustix::process::Signal;

use crate::ports::Port;
use crate::process::Process;
use crate::{Error, Pki, TcpProxy};

/// A connection to loopback takes no time, or never comes.
const CONNECT: Duration = Duration::from_secs(2);
/// Longer than any defragmentation or physical compaction of a test's file.
const CALL: Duration = Duration::from_secs(120);

/// What a client needs to talk to the members.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) pki: Option<Pki>,
    pub(super) server_name: Option<String>,
    pub(super) user: Option<(String, String)>,
}

impl Access {
    pub(super) fn scheme(&self) -> &'static str {
        if self.pki.is_some() { "https" } else { "http" }
    }

    /// A client of one address, connected when it is first used.
    async fn connect(&self, member: &str, url: &str) -> Result<Client, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT)
            .with_timeout(CALL);
        if let Some(pki) = &self.pki {
            let read = |path: &Path| {
                fs::read(path).map_err(|e| Error::io(format!("read {}", path.display()), e))
            };
            let (certificate, key) = pki.client();
            let mut tls = TlsOptions::new()
                .ca_certificate(Certificate::from_pem(read(&pki.ca())?))
                .identity(Identity::from_pem(read(&certificate)?, read(&key)?));
            if let Some(name) = &self.server_name {
                tls = tls.domain_name(name);
            }
            options = options.with_tls(tls);
        }
        if let Some((user, password)) = &self.user {
            options = options.with_user(user, password);
        }
        Client::connect([url], Some(options))
            .await
            .map_err(|source| Error::Etcd {
                doing: "connect",
                member: member.to_owned(),
                source,
            })
    }
}

/// One member: a name, two ports, a data folder, and a process while it runs.
#[derive(Debug)]
pub struct Member {
    name: String,
    id: u64,
    client_url: String,
    advertised_url: String,
    client_port: Mutex<Port>,
    peer_port: Mutex<Port>,
    address: SocketAddr,
    peer_url: String,
    data_dir: PathBuf,
    token: String,
    log: PathBuf,
    args: Vec<OsString>,
    process: Mutex<Option<Process>>,
    proxy: Option<TcpProxy>,
}

impl Member {
    /// Gives a new member its ports and folder.
    pub(super) fn reserve(name: &str, folder: &Path, scheme: &str) -> Result<Self, Error> {
        let (client, peer) = (Port::reserve()?, Port::reserve()?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, client.number()));
        let client_url = format!("{scheme}://{address}");
        Ok(Self {
            name: name.to_owned(),
            id: 0,
            advertised_url: client_url.clone(),
            client_url,
            address,
            peer_url: format!("http://127.0.0.1:{}", peer.number()),
            client_port: Mutex::new(client),
            peer_port: Mutex::new(peer),
            data_dir: folder.join(name),
            token: folder.display().to_string(),
            log: folder.join(format!("{name}.log")),
            args: Vec::new(),
            process: Mutex::new(None),
            proxy: None,
        })
    }

    /// Advertises a proxy instead of the member's own port.
    pub(super) fn put_behind(&mut self, proxy: TcpProxy, scheme: &str) {
        self.advertised_url = format!("{scheme}://{}", proxy.address());
        self.proxy = Some(proxy);
    }

    /// The name in etcd's member list.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The member id, known once the cluster has started.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn set_id(&mut self, id: u64) {
        self.id = id;
    }

    /// Where clients are told to go: the proxy, if there is one.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.advertised_url
    }

    /// The member's own port, past any proxy.
    #[must_use]
    pub fn direct_url(&self) -> &str {
        &self.client_url
    }

    /// The same as host and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn peer_url(&self) -> &str {
        &self.peer_url
    }

    /// etcd's data folder; the database is `member/snap/db` under it.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Everything the member printed, over all its starts.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The process id, while the member runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::pid)
    }

    pub(super) fn proxy(&self) -> Option<&TcpProxy> {
        self.proxy.as_ref()
    }

    /// First start. `state` is `new` or `existing`.
    pub(super) fn start(
        &mut self,
        binary: &Path,
        common: &[OsString],
        initial_cluster: &str,
        state: &str,
    ) -> Result<(), Error> {
        self.args = [
            ("--name", self.name.as_str()),
            ("--listen-client-urls", &self.client_url),
            ("--advertise-client-urls", &self.advertised_url),
            ("--listen-peer-urls", &self.peer_url),
            ("--initial-advertise-peer-urls", &self.peer_url),
            ("--initial-cluster", initial_cluster),
            ("--initial-cluster-state", state),
            // Two clusters of one token could mistake each other's members for their own.
            ("--initial-cluster-token", &self.token),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [OsString::from(flag), OsString::from(value)])
        .chain(["--data-dir".into(), self.data_dir.clone().into_os_string()])
        .chain(common.iter().cloned())
        .collect();
        self.start_again(binary)
    }

    /// Starts the member with the flags that it had.
    pub(super) fn start_again(&self, binary: &Path) -> Result<(), Error> {
        let mut process = self.process();
        if process.is_some() {
            return Err(self.state("running", "stopped"));
        }
        for port in [&self.client_port, &self.peer_port] {
            port.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .release();
        }
        let name = format!("etcd {}", self.name);
        *process = Some(Process::start(name, binary, &self.args, self.log.clone())?);
        Ok(())
    }

    /// Takes the process away, to end it.
    pub(super) fn take(&self) -> Result<Process, Error> {
        self.process()
            .take()
            .ok_or_else(|| self.state("stopped", "running"))
    }

    pub(super) fn pause(&self) -> Result<(), Error> {
        match self.process().as_mut() {
            Some(process) => process.pause(),
            None => Err(self.state("stopped", "running")),
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Error> {
        match self.process().as_mut() {
            Some(process) => process.signal(signal),
            None => Err(self.state("stopped", "running")),
        }
    }

    /// Fails when the process has ended by itself.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.process().as_mut().map_or(Ok(()), Process::check)
    }

    pub(super) async fn client(&self, access: &Access) -> Result<Client, Error> {
        access.connect(&self.name, &self.client_url).await
    }

    pub(super) fn failed(&self, doing: &'static str) -> impl FnOnce(etcd_client::Error) -> Error {
        let member = self.name.clone();
        move |source| Error::Etcd {
            doing,
            member,
            source,
        }
    }

    fn state(&self, is: &'static str, wanted: &'static str) -> Error {
        Error::State {
            member: self.name.clone(),
            is,
            wanted,
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    pub cluster_id: u64,
    pub member_id: u64,
    pub version: String,
    pub leader: u64,
    pub term: u64,
    pub raft_index: u64,
    pub applied_index: u64,
    pub revision: i64,
    pub is_learner: bool,
    pub sizes: Sizes,
    pub errors: Vec<String>,
}

/// The size of a member's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the file.
    pub db: u64,
    /// Bytes of it that hold data.
    pub in_use: u64,
}

impl Sizes {
    /// What a defragmentation could give back, bytes.
    #[must_use]
    pub fn free(self) -> u64 {
        self.db.saturating_sub(self.in_use)
    }
}

impl From<&etcd_client::StatusResponse> for MemberStatus {
    fn from(status: &etcd_client::StatusResponse) -> Self {
        let header = status.header();
        Self {
            cluster_id: header.map_or(0, etcd_client::ResponseHeader::cluster_id),
            member_id: header.map_or(0, etcd_client::ResponseHeader::member_id),
            revision: header.map_or(0, etcd_client::ResponseHeader::revision),
            version: status.version().to_owned(),
            leader: status.leader(),
            term: status.raft_term(),
            raft_index: status.raft_index(),
            applied_index: status.raft_applied_index(),
            is_learner: status.is_learner(),
            sizes: Sizes {
                db: u64::try_from(status.db_size()).unwrap_or(0),
                // The client's name for the field `dbSizeInUse`.
                in_use: u64::try_from(status.raft_used_db_size()).unwrap_or(0),
            },
            errors: status.errors().to_vec(),
        }
    }
}
