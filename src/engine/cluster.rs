//! The line to one cluster: connects when it is needed, observes, acts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::host::{ClusterKey, Host};
use crate::core::reason::Reason;
use crate::core::run::{ActResult, Note};
use crate::core::sweep::Act;
use crate::core::view::{ClusterId, Observation, Trouble};
use crate::etcd::{CallError, CallErrorKind, ClusterClient, Connection, Guard};

/// How long a compaction may take to become physical on the member asked.
const COMPACTION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How the cluster is reached, or why nobody can say.
pub(super) fn connection<H: Host>(host: &H, cluster: &ClusterKey) -> Result<Arc<Connection>, Note> {
    match host.target(cluster) {
        Some(target) => target.spec.clone().map_err(|note| {
            let message = format!(
                "{} {}: {}",
                cluster.kind.kind(),
                cluster.object,
                note.message
            );
            Note::new(note.reason, message)
        }),
        None => Err(Note::new(
            Reason::ClusterNotFound,
            format!("there is no {} {}", cluster.kind.kind(), cluster.object),
        )),
    }
}

/// A cluster as one run or one probe sees it. Certificates and passwords are
/// read when it connects, and again after they were refused.
pub struct Link {
    connection: Connection,
    client: Option<ClusterClient>,
}

impl Link {
    pub fn new(connection: Connection) -> Self {
        Link {
            connection,
            client: None,
        }
    }

    /// Looks at the cluster once. That it cannot be reached is an observation too.
    pub async fn observe(&mut self, now: Timestamp) -> Observation {
        if self.client.is_none() {
            match ClusterClient::connect(self.connection.clone()).await {
                Ok(client) => self.client = Some(client),
                Err(error) => {
                    return self.unreachable(now, error.reason(), error.to_string());
                }
            }
        }
        let Some(client) = &self.client else {
            return self.unreachable(now, Reason::EndpointUnusable, "not connected".to_owned());
        };
        let seen = client.observe(now).await;
        if let Err(trouble) = &seen.members
            && matches!(
                trouble.reason,
                Reason::PermissionDenied | Reason::EndpointUnusable
            )
        {
            // Mended credentials are used at the next look.
            self.client = None;
        }
        seen
    }

    fn unreachable(&self, at: Timestamp, reason: Reason, message: String) -> Observation {
        let trouble = Trouble { reason, message };
        Observation {
            at,
            members: Err(trouble.clone()),
            alarms: Err(trouble),
            cluster_ids: BTreeSet::new(),
            expected_voters: self.connection.expected_voters,
        }
    }

    /// Makes one mutating call, once, if `guard` agrees at the last moment.
    pub async fn act(&self, cluster: Option<ClusterId>, act: &Act, guard: &Guard) -> ActResult {
        let (Some(client), Some(cluster)) = (&self.client, cluster) else {
            return ActResult::NotSent(Note::new(
                Reason::ClusterIdMismatch,
                "the cluster's id is not known yet",
            ));
        };
        let client = client.guarded(guard.clone());
        let result = match act {
            Act::Defragment { member, timeout } => {
                client
                    .defragment(cluster, *member, timeout.unsigned_abs())
                    .await
            }
            Act::MoveLeader { from, to } => client.move_leader(cluster, *from, *to).await,
            Act::Compact { member, revision } => {
                client
                    .compact(cluster, *member, *revision, COMPACTION_TIMEOUT)
                    .await
            }
            Act::Disarm { member, via } => client.disarm_no_space(cluster, *via, *member).await,
        };
        match result {
            Ok(done) => {
                tracing::info!(
                    ?act,
                    elapsed_ms = done.elapsed.as_millis(),
                    "call succeeded"
                );
                ActResult::Done
            }
            Err(error) => {
                tracing::warn!(?act, %error, "call did not succeed");
                unsuccessful(&error)
            }
        }
    }
}

fn unsuccessful(error: &CallError) -> ActResult {
    let note = Note::new(error.reason, error.to_string());
    match error.kind {
        CallErrorKind::NotSent => ActResult::NotSent(note),
        CallErrorKind::Refused(_) => ActResult::Refused(note),
        CallErrorKind::Unknown => ActResult::Unknown(note),
    }
}
