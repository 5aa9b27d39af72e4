//! What is asked of a cluster through etcd's own API, each call only after a look whether it is
//! still the cluster that was started.

use etcd_client::{AlarmAction, AlarmMember, AlarmOptions, AlarmType, Client, MemberAddOptions};

use super::{Cluster, Member, initial_cluster};
use crate::Error;

impl Cluster {
    /// Puts one key through the leader.
    ///
    /// # Errors
    /// When the cluster does not take it, a full one for example.
    pub async fn put(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        let leader = self.leader().await?;
        let put = self.guarded(leader).await?.put(key, value, None).await;
        put.map(|_| ())
            .map_err(self.members[leader].failed("put a key"))
    }

    /// The alarms that are raised.
    ///
    /// # Errors
    /// When there is no leader or it does not answer.
    pub async fn alarms(&self) -> Result<Vec<AlarmMember>, Error> {
        let leader = self.leader().await?;
        let answer = self
            .client(leader)
            .await?
            .alarm(AlarmAction::Get, AlarmType::None, None)
            .await;
        let alarms = answer.map_err(self.members[leader].failed("list the alarms"))?;
        Ok(alarms.alarms().to_vec())
    }

    /// Raises an alarm in the name of member `i`, as etcd would if it found the cause.
    ///
    /// # Errors
    /// When the cluster does not take it.
    pub async fn raise_alarm(&self, i: usize, alarm: AlarmType) -> Result<(), Error> {
        let leader = self.leader().await?;
        let mut options = AlarmOptions::new();
        options.with_member(self.member(i).id());
        let raised = self
            .guarded(leader)
            .await?
            .alarm(AlarmAction::Activate, alarm, Some(options))
            .await;
        raised
            .map(|_| ())
            .map_err(self.member(leader).failed("raise an alarm"))
    }

    /// Makes member `to` the leader.
    ///
    /// # Errors
    /// When the leader refuses.
    pub async fn move_leader(&self, to: usize) -> Result<(), Error> {
        let leader = self.leader().await?;
        let moved = self
            .guarded(leader)
            .await?
            .move_leader(self.member(to).id())
            .await;
        moved
            .map(|_| ())
            .map_err(self.member(leader).failed("move the leader"))
    }

    /// Adds a learner, waits until it answers, and returns its number.
    ///
    /// # Errors
    /// When the cluster refuses it or it does not start.
    pub async fn add_learner(&mut self) -> Result<usize, Error> {
        let leader = self.leader().await?;
        let mut client = self.guarded(leader).await?;
        let index = self.members.len();
        let mut learner =
            Member::reserve(&format!("m{index}"), self.scratch(), self.access.scheme())?;
        let added = client
            .member_add(
                [learner.peer_url().to_owned()],
                Some(MemberAddOptions::new().with_is_learner()),
            )
            .await
            .map_err(self.members[leader].failed("add a learner"))?;
        learner.set_id(added.member().map_or(0, etcd_client::Member::id));
        let peers = [
            initial_cluster(&self.members),
            initial_cluster(std::slice::from_ref(&learner)),
        ];
        learner.start(&self.binary, &self.args, &peers.join(","), "existing")?;
        self.members.push(learner);
        self.await_healthy().await?;
        Ok(index)
    }

    /// Adds the users and turns authentication on; from then on all clients log in.
    pub(super) async fn enable_auth(&mut self, user: &str, password: &str) -> Result<(), Error> {
        let leader = self.leader().await?;
        let mut client = self.guarded(leader).await?;
        let enabled = async {
            client.role_add("root").await?;
            let others = (user != "root").then_some(user);
            for name in ["root"].into_iter().chain(others) {
                client.user_add(name, password, None).await?;
                client.user_grant_role(name, "root").await?;
            }
            client.auth_enable().await
        };
        enabled
            .await
            .map_err(self.members[leader].failed("enable authentication"))?;
        self.access.user = Some((user.to_owned(), password.to_owned()));
        self.await_healthy().await
    }

    /// A client of member `i`, after a look whether it is a member of this very cluster.
    pub(super) async fn guarded(&self, i: usize) -> Result<Client, Error> {
        let member = &self.members[i];
        let mut client = self.client(i).await?;
        let status = client
            .status()
            .await
            .map_err(member.failed("get the status"))?;
        let seen = status
            .header()
            .map_or(0, etcd_client::ResponseHeader::cluster_id);
        if seen == self.id() {
            Ok(client)
        } else {
            let member = member.name().to_owned();
            Err(Error::ForeignCluster {
                member,
                seen,
                wanted: self.id(),
            })
        }
    }
}
