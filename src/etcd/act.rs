//! The calls that change something. Before each of them the endpoint's Status
//! must carry the expected cluster id and member id, over the same connection,
//! and then the [`Guard`] must agree; else nothing is sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::view::{ClusterId, MemberId};

use super::ClusterClient;
use super::error::{Call, CallError};
use super::member::{Identity, MemberClient};

/// Asked last before a call leaves: whether this process may still act. Making
/// sure of an identity can take seconds, in which that may change.
pub type Guard = Arc<dyn Fn() -> Result<(), Note> + Send + Sync>;

/// A call that was executed and succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// From sending the request to its answer.
    pub elapsed: Duration,
}

impl ClusterClient {
    /// Defragments one member and waits for at most `limit`. When the time is
    /// up the outcome is unknown: the server goes on and finishes. Nothing on
    /// the way repeats the request (see [`super::member`]'s text), and the
    /// caller must not either before it has observed what became of it.
    pub async fn defragment(
        &self,
        cluster: ClusterId,
        member: MemberId,
        limit: Duration,
    ) -> Result<Done, CallError> {
        let client = self.verified(Call::Defragment, cluster, member).await?;
        measured(client.defragment(limit)).await
    }

    /// Asks the leader `from` to hand leadership to the voter `to`.
    pub async fn move_leader(
        &self,
        cluster: ClusterId,
        from: MemberId,
        to: MemberId,
    ) -> Result<Done, CallError> {
        let client = self.verified(Call::MoveLeader, cluster, from).await?;
        measured(client.move_leader(to)).await
    }

    /// Compacts the whole cluster at `revision` and waits, at most `limit`,
    /// until that is physical on the member `via`. The others compact at the
    /// same time, each in its own background. A revision that is compacted
    /// already, by whomever, is what was asked for.
    pub async fn compact(
        &self,
        cluster: ClusterId,
        via: MemberId,
        revision: i64,
        limit: Duration,
    ) -> Result<Done, CallError> {
        let client = self.verified(Call::Compact, cluster, via).await?;
        measured(async {
            match client.compact(revision, limit).await {
                Err(error) if error.says_compacted() => Ok(()),
                result => result,
            }
        })
        .await
    }

    /// Disarms the NOSPACE alarm of `owner`, through the member `via`. The
    /// owner may have left the cluster.
    pub async fn disarm_no_space(
        &self,
        cluster: ClusterId,
        via: MemberId,
        owner: MemberId,
    ) -> Result<Done, CallError> {
        if owner.0 == 0 {
            return Err(CallError::not_sent(
                Call::DisarmNoSpace,
                via.to_string(),
                Reason::MemberIdMismatch,
                "member id 0 stands for every alarm of every member, name one",
            ));
        }
        let client = self.verified(Call::DisarmNoSpace, cluster, via).await?;
        measured(client.disarm_no_space(owner)).await
    }

    /// A client whose endpoint has just answered as the expected member of the
    /// expected cluster.
    async fn verified(
        &self,
        call: Call,
        cluster: ClusterId,
        member: MemberId,
    ) -> Result<MemberClient, CallError> {
        let mut refusal = None;
        for client in self.routes_to(member) {
            let at = format!("{} ({member})", client.endpoint());
            match client.status().await {
                Ok(answer) => match mismatch(answer.from, cluster, member) {
                    None => {
                        return match &self.guard {
                            None => Ok(client),
                            Some(guard) => guard()
                                .map(|()| client)
                                .map_err(|no| CallError::not_sent(call, at, no.reason, no.message)),
                        };
                    }
                    Some((reason, message)) => {
                        refusal = Some(CallError::not_sent(call, at, reason, message));
                    }
                },
                Err(error) => {
                    let message = format!("its identity is not known, {error}");
                    refusal.get_or_insert(CallError::not_sent(call, at, error.reason, message));
                }
            }
        }
        Err(refusal.unwrap_or_else(|| {
            CallError::not_sent(
                call,
                member.to_string(),
                Reason::MemberUnreachable,
                "no endpoint has answered as this member yet",
            )
        }))
    }
}

fn mismatch(from: Identity, cluster: ClusterId, member: MemberId) -> Option<(Reason, String)> {
    if from.cluster != cluster {
        let seen = from.cluster;
        return Some((
            Reason::ClusterIdMismatch,
            format!(
                "the endpoint belongs to cluster {seen} and not to {cluster}, nothing was sent"
            ),
        ));
    }
    if from.member != member {
        let seen = from.member;
        return Some((
            Reason::MemberIdMismatch,
            format!("the endpoint answers as member {seen} and not as {member}, nothing was sent"),
        ));
    }
    None
}

async fn measured(call: impl Future<Output = Result<(), CallError>>) -> Result<Done, CallError> {
    let start = Instant::now();
    call.await?;
    Ok(Done {
        elapsed: start.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ids_must_be_the_expected_ones() {
        let from = Identity {
            cluster: ClusterId(0xc1),
            member: MemberId(0xa),
        };
        assert_eq!(mismatch(from, ClusterId(0xc1), MemberId(0xa)), None);
        let (reason, message) = mismatch(from, ClusterId(0xc2), MemberId(0xa)).unwrap();
        assert_eq!(reason, Reason::ClusterIdMismatch);
        assert_eq!(
            message,
            "the endpoint belongs to cluster c1 and not to c2, nothing was sent"
        );
        let (reason, _) = mismatch(from, ClusterId(0xc1), MemberId(0xb)).unwrap();
        assert_eq!(reason, Reason::MemberIdMismatch);
    }
}
