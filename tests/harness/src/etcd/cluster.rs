use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use etcd_client::Client;
use rustix::process::Signal;
use tempfile::TempDir;

use super::member::Access;
use super::{Member, MemberStatus, Sizes};
use crate::process::tail;
use crate::{Error, EtcdVersion, Pki, TcpProxy, eventually, eventually_while, pages, tls};

/// How long a change of leadership or a restart may take on a busy machine.
const SETTLE: Duration = Duration::from_secs(30);
/// A healthy member answers in milliseconds; one that is stopped never does.
const ASK: Duration = Duration::from_secs(2);

/// What a member counts of its own defragmentations.
const DEFRAGMENTED: &str = "etcd_disk_backend_defrag_duration_seconds_count";

/// A running cluster. Members are numbered from 0, learners after the voters.
pub struct Cluster {
    version: EtcdVersion,
    pub(super) binary: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) access: Access,
    id: u64,
    // The order matters: processes end before their folder goes.
    pub(super) members: Vec<Member>,
    scratch: TempDir,
}

impl fmt::Debug for Cluster {
    /// Without what clients log in with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("version", &self.version)
            .field("id", &format_args!("{:x}", self.id))
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    pub(super) fn new(
        version: EtcdVersion,
        binary: PathBuf,
        args: Vec<OsString>,
        access: Access,
        members: Vec<Member>,
        scratch: TempDir,
    ) -> Self {
        Self {
            version,
            binary,
            args,
            access,
            id: 0,
            members,
            scratch,
        }
    }

    /// Waits for the first agreed leader and remembers who is who.
    pub(super) async fn await_start(&mut self, deadline: Duration) -> Result<(), Error> {
        let statuses = self.await_leader(deadline).await?;
        for (member, status) in self.members.iter_mut().zip(&statuses) {
            member.set_id(status.member_id);
        }
        self.id = statuses.first().map_or(0, |status| status.cluster_id);
        Ok(())
    }

    /// The version that all members have.
    #[must_use]
    pub fn version(&self) -> EtcdVersion {
        self.version
    }

    /// The cluster id that every mutating helper compares first.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The members, learners last.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Member `i`.
    ///
    /// # Panics
    /// When there is no such member: a mistake in the test.
    #[must_use]
    pub fn member(&self, i: usize) -> &Member {
        &self.members[i]
    }

    /// The URLs for clients, in the order of the members.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.url().to_owned())
            .collect()
    }

    /// The certificates, if the cluster speaks TLS.
    #[must_use]
    pub fn pki(&self) -> Option<&Pki> {
        self.access.pki.as_ref()
    }

    /// The proxy in front of member `i`.
    ///
    /// # Panics
    /// When the cluster was not started with [`super::Etcd::proxied`]: a mistake in the test.
    #[must_use]
    pub fn proxy(&self, i: usize) -> &TcpProxy {
        self.members[i]
            .proxy()
            .expect("a proxy is there when the cluster was started with proxied()")
    }

    /// A folder of this cluster for a test's own files. It goes with the cluster.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// A client of member `i` alone, past any proxy, logged in if need be.
    ///
    /// # Errors
    /// When the log-in fails. The connection itself is made at the first call.
    pub async fn client(&self, i: usize) -> Result<Client, Error> {
        self.members[i].client(&self.access).await
    }

    /// What member `i` says of itself. Waits while the member defragments.
    ///
    /// # Errors
    /// When the member does not answer.
    pub async fn status(&self, i: usize) -> Result<MemberStatus, Error> {
        let member = &self.members[i];
        let status = self
            .client(i)
            .await?
            .status()
            .await
            .map_err(member.failed("get the status"))?;
        Ok(MemberStatus::from(&status))
    }

    /// What all members say, within 2 s each; an error where one does not.
    pub async fn statuses(&self) -> Vec<Result<MemberStatus, Error>> {
        let mut statuses = Vec::new();
        for (i, member) in self.members.iter().enumerate() {
            let answer = match member.check() {
                Ok(()) => tokio::time::timeout(ASK, self.status(i))
                    .await
                    .unwrap_or_else(|_| {
                        Err(Error::Timeout {
                            what: format!("the status of etcd member {}", member.name()),
                            waited: ASK,
                            last: "no answer".to_owned(),
                        })
                    }),
                Err(ended) => Err(ended),
            };
            statuses.push(answer);
        }
        statuses
    }

    /// The sizes of every member's database, in the order of the members.
    ///
    /// # Errors
    /// When a member does not answer.
    pub async fn sizes(&self) -> Result<Vec<Sizes>, Error> {
        let statuses = self.statuses().await;
        statuses
            .into_iter()
            .map(|status| Ok(status?.sizes))
            .collect()
    }

    /// The leader that all answering members agree on, once a majority of the voters answers.
    ///
    /// # Errors
    /// When there is none within half a minute.
    pub async fn leader(&self) -> Result<usize, Error> {
        self.await_agreement().await.map(|(leader, _)| leader)
    }

    /// The raft term, which every election and every transfer raises.
    ///
    /// # Errors
    /// When there is no leader within half a minute.
    pub async fn term(&self) -> Result<u64, Error> {
        self.await_agreement().await.map(|(_, term)| term)
    }

    async fn await_agreement(&self) -> Result<(usize, u64), Error> {
        eventually(SETTLE, "a majority to agree on a leader", async || {
            let all = self.statuses().await;
            let answers: Vec<_> = all.iter().flatten().collect();
            let voters = answers.iter().filter(|status| !status.is_learner).count();
            let learners = answers.len() - voters;
            if voters * 2 <= self.members.len() - learners {
                return Err(format!("{all:?}"));
            }
            agreed(&answers)
                .and_then(|(leader, term)| {
                    let index = self
                        .members
                        .iter()
                        .position(|member| member.id() == leader)?;
                    Some((index, term))
                })
                .ok_or_else(|| format!("{all:?}"))
        })
        .await
    }

    /// Waits until every member answers and all agree on a leader.
    async fn await_leader(&self, deadline: Duration) -> Result<Vec<MemberStatus>, Error> {
        let waited = eventually(
            deadline,
            "all etcd members to agree on a leader",
            async || {
                // A member that has ended by itself will never answer: no use to wait.
                if let Some(ended) = self.members.iter().find_map(|member| member.check().err()) {
                    return Ok(Err(ended));
                }
                let all = self.statuses().await;
                let answers: Vec<_> = all.iter().flatten().collect();
                if answers.len() < self.members.len() || agreed(&answers).is_none() {
                    return Err(format!("{all:?}"));
                }
                Ok(all.into_iter().collect())
            },
        )
        .await;
        match waited {
            Ok(statuses) => statuses,
            Err(error) => {
                for member in &self.members {
                    eprintln!(
                        "--- log of etcd {} ---\n{}",
                        member.name(),
                        tail(member.log())
                    );
                }
                Err(error)
            }
        }
    }

    /// Waits until every member answers and all agree on a leader.
    ///
    /// # Errors
    /// When a member has ended by itself, or half a minute was not enough.
    pub async fn await_healthy(&self) -> Result<(), Error> {
        self.await_leader(SETTLE).await.map(|_| ())
    }

    /// Kills member `i` at once.
    ///
    /// # Errors
    /// When it is not running.
    pub fn kill(&self, i: usize) -> Result<(), Error> {
        self.members[i].take().map(drop)
    }

    /// Lets member `i` end in order: a leader hands over first.
    ///
    /// # Errors
    /// When it is not running.
    pub async fn stop(&self, i: usize) -> Result<(), Error> {
        self.members[i].take()?.stop().await
    }

    /// Freezes member `i`: its ports accept, nothing answers.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self, i: usize) -> Result<(), Error> {
        self.members[i].pause()
    }

    /// Lets a frozen member go on.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self, i: usize) -> Result<(), Error> {
        self.members[i].signal(Signal::CONT)
    }

    /// Starts member `i` again, on its ports and data; one that runs is killed first. Returns when
    /// it answers and knows the leader.
    ///
    /// # Errors
    /// When it ends by itself or does not answer in time.
    pub async fn restart(&self, i: usize) -> Result<(), Error> {
        let member = &self.members[i];
        if member.pid().is_some() {
            self.kill(i)?;
        }
        member.start_again(&self.binary)?;
        let what = format!("etcd member {} to be back", member.name());
        eventually_while(
            || member.check(),
            SETTLE,
            what,
            async || {
                let status = self.status(i).await.map_err(|e| e.to_string())?;
                if status.leader == 0 {
                    Err(format!("{status:?}"))
                } else {
                    Ok(())
                }
            },
        )
        .await
    }

    /// One number of member `i`'s own metrics, if it has it: `name` with its labels, as the metrics
    /// page writes them. Answers while the member defragments.
    ///
    /// # Errors
    /// When the page cannot be got.
    pub async fn metric(&self, i: usize, name: &str) -> Result<Option<f64>, Error> {
        let url = format!("{}/metrics", self.members[i].metrics_url());
        let page = pages::get(&tls::http_client(self.pki())?, &url).await?;
        Ok(pages::number(&page, name))
    }

    /// How many defragmentations each member has finished since it started, by its own count. A
    /// member that has never begun one may not have the number, and that is none.
    ///
    /// # Errors
    /// When a member's metrics cannot be got.
    pub async fn defragmentations(&self) -> Result<Vec<f64>, Error> {
        let mut counts = Vec::new();
        for i in 0..self.members.len() {
            let count = self.metric(i, DEFRAGMENTED).await?;
            counts.push(count.unwrap_or(0.0));
        }
        Ok(counts)
    }

    /// Runs `etcdctl` of the same version with the cluster's endpoints and credentials.
    ///
    /// # Errors
    /// When it cannot be started; its exit status is in the output.
    pub async fn etcdctl<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Output, Error> {
        let program = self.version.etcdctl().await?;
        let mut command = std::process::Command::new(&program);
        command
            .env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(self.endpoints().join(","));
        if let Some(pki) = self.pki() {
            let (certificate, key) = pki.client();
            command
                .arg("--cacert")
                .arg(pki.ca())
                .arg("--cert")
                .arg(certificate)
                .arg("--key")
                .arg(key);
        }
        if let Some((user, password)) = &self.access.user {
            // Not as a flag: everybody can read those.
            command.env("ETCDCTL_USER", format!("{user}:{password}"));
        }
        command.args(args);
        tokio::task::spawn_blocking(move || command.output())
            .await
            .map_err(std::io::Error::from)
            .flatten()
            .map_err(|e| Error::io(format!("run {}", program.display()), e))
    }
}

/// The leader and term that all these agree on, when the leader is one of them: followers name a
/// dead leader until their election time-out.
fn agreed(statuses: &[&MemberStatus]) -> Option<(u64, u64)> {
    let first = statuses.first()?;
    let same = statuses
        .iter()
        .all(|s| s.leader == first.leader && s.term == first.term);
    let answers = statuses.iter().any(|s| s.member_id == first.leader);
    (same && answers).then_some((first.leader, first.term))
}
