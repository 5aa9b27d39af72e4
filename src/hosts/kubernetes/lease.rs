//! Who leads: one replica, by a Lease.
//!
//! The protocol is that of client-go. A follower counts the lease's duration on
//! its own clock, from the moment it saw the lease change, so clocks that
//! differ between replicas do no harm. The leader stops acting well before a
//! follower may begin: a [`Leadership`] is good for [`RENEW_DEADLINE`] after
//! the last renewal was *asked for*, on whichever of its clocks moved more, so
//! a process that was frozen knows at once that its time is over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::api::{ApiError, bounded};
use crate::core::reason::Reason;
use crate::engine::HostError;

/// How long a lease is good for its holder; client-go's default.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long after its last renewal a leader may still act; client-go's default.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two renewals or two attempts; client-go's default.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// How long one request may take. A renewal that fails can be repeated before
/// the deadline.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// Whether this process leads, as of now.
#[derive(Debug, Default)]
pub(super) struct Leadership(Mutex<Option<Renewed>>);

#[derive(Clone, Copy, Debug)]
struct Renewed {
    at: Instant,
    /// Goes on while a machine is suspended, which the other clock does not.
    wall: SystemTime,
}

impl Renewed {
    fn now() -> Self {
        Renewed {
            at: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// Since then, on the clock that moved more.
    fn age(&self) -> Duration {
        let wall = self.wall.elapsed().unwrap_or_default();
        self.at.elapsed().max(wall)
    }
}

impl Leadership {
    fn lock(&self) -> MutexGuard<'_, Option<Renewed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renewed(&self, at: Renewed) {
        *self.lock() = Some(at);
    }

    fn lost(&self) {
        *self.lock() = None;
    }

    /// Whether anything may be changed at this instant.
    ///
    /// # Errors
    /// When another replica leads, or could by now.
    pub(super) fn permit(&self) -> Result<(), HostError> {
        self.remaining().map(drop)
    }

    /// For how long anything may still be changed, more than nothing.
    ///
    /// # Errors
    /// As [`Leadership::permit`].
    pub(super) fn remaining(&self) -> Result<Duration, HostError> {
        let renewed = *self.lock();
        let message = match renewed.map(|renewed| renewed.age()) {
            Some(age) if age < RENEW_DEADLINE => return Ok(RENEW_DEADLINE - age),
            Some(age) => format!(
                "the lease was last renewed {age:.0?} ago, at most {RENEW_DEADLINE:?} are good for a change"
            ),
            None => "this replica does not hold the lease".to_owned(),
        };
        Err(HostError {
            reason: Reason::NotLeading,
            message,
        })
    }
}

/// What was last seen of the lease, and when on our own clock.
#[derive(Debug)]
struct Seen {
    lease: Lease,
    since: Instant,
}

impl Seen {
    fn holder(&self) -> Option<&str> {
        let spec = self.lease.spec.as_ref()?;
        spec.holder_identity.as_deref().filter(|h| !h.is_empty())
    }

    fn expired(&self) -> bool {
        let seconds = self
            .lease
            .spec
            .as_ref()
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(LEASE_DURATION, Duration::from_secs);
        self.since.elapsed() > seconds
    }
}

/// Takes part in the election.
#[derive(Debug)]
pub(super) struct Elector<'a> {
    api: Api<Lease>,
    name: &'a str,
    identity: &'a str,
    leadership: &'a Leadership,
    seen: Option<Seen>,
}

/// How one attempt ended.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Holding,
    HeldBy(String),
}

impl<'a> Elector<'a> {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        name: &'a str,
        identity: &'a str,
        leadership: &'a Leadership,
    ) -> Self {
        Elector {
            api: Api::namespaced(client, namespace),
            name,
            identity,
            leadership,
            seen: None,
        }
    }

    /// Waits until this process leads. False when it was stopped before.
    pub(super) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        let mut said = None;
        while !stop.is_cancelled() {
            let saying = match self.attempt().await {
                Ok(Attempt::Holding) => {
                    tracing::info!(identity = self.identity, "leading");
                    return true;
                }
                Ok(Attempt::HeldBy(other)) => format!("{other} leads, standing by"),
                Err(error) => format!("unable to read or write the lease: {error}"),
            };
            if said.as_ref() != Some(&saying) {
                tracing::info!(identity = self.identity, "{saying}");
                said = Some(saying);
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_PERIOD) => {}
                () = stop.cancelled() => {}
            }
        }
        false
    }

    /// Renews until that fails for too long or another process has taken over.
    pub(super) async fn keep(&mut self) {
        loop {
            tokio::time::sleep(RETRY_PERIOD).await;
            match self.attempt().await {
                Ok(Attempt::Holding) => {}
                Ok(Attempt::HeldBy(other)) => {
                    self.leadership.lost();
                    tracing::warn!(identity = self.identity, "{other} leads now");
                    return;
                }
                Err(error) => {
                    tracing::warn!(identity = self.identity, %error, "unable to renew the lease");
                    if self.leadership.permit().is_err() {
                        self.leadership.lost();
                        tracing::warn!(
                            identity = self.identity,
                            "the lease could not be renewed for {RENEW_DEADLINE:?}, no longer leading"
                        );
                        return;
                    }
                }
            }
        }
    }

    /// Lets go, so that the next leader need not wait for the lease to expire.
    pub(super) async fn release(mut self) {
        self.leadership.lost();
        if let Err(error) = self.look().await {
            tracing::warn!(%error, "unable to release the lease, it expires by itself");
            return;
        }
        let Some(seen) = self.seen.take() else { return };
        if seen.holder() != Some(self.identity) {
            return;
        }
        let mut lease = seen.lease;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let params = PostParams::default();
        let replace = self.api.replace(self.name, &params, &lease);
        if let Err(error) = bounded(REQUEST_TIMEOUT, replace).await {
            tracing::warn!(%error, "unable to release the lease, it expires by itself");
        }
    }

    /// Takes the lease or renews it.
    async fn attempt(&mut self) -> Result<Attempt, ApiError> {
        // A renewal builds on what was written last: that nobody has changed it
        // shows when it is written.
        if !self.holds() {
            self.look().await?;
        }
        let asked = Renewed::now();
        if let Some(other) = self.held_by_other() {
            return Ok(Attempt::HeldBy(other));
        }
        match self.write().await {
            Ok(()) => {
                self.leadership.renewed(asked);
                return Ok(Attempt::Holding);
            }
            Err(error) if error.is_conflict() || error.is_not_found() => self.look().await?,
            Err(error) => return Err(error),
        }
        // It was changed: by somebody else, or by our own last renewal whose answer
        // was lost. Then there is no time to lose.
        let asked = Renewed::now();
        if let Some(other) = self.held_by_other() {
            return Ok(Attempt::HeldBy(other));
        }
        self.write().await?;
        self.leadership.renewed(asked);
        Ok(Attempt::Holding)
    }

    fn holds(&self) -> bool {
        self.seen.as_ref().and_then(Seen::holder) == Some(self.identity)
    }

    fn held_by_other(&self) -> Option<String> {
        let seen = self.seen.as_ref()?;
        let other = seen.holder().filter(|holder| *holder != self.identity)?;
        (!seen.expired()).then(|| other.to_owned())
    }

    /// Writes the lease as ours, if it still is as it was seen.
    async fn write(&mut self) -> Result<(), ApiError> {
        let params = PostParams::default();
        let lease = match &self.seen {
            Some(seen) => {
                let wanted = self.taken(&seen.lease);
                let replace = self.api.replace(self.name, &params, &wanted);
                bounded(REQUEST_TIMEOUT, replace).await?
            }
            None => {
                let wanted = self.taken(&Lease::default());
                bounded(REQUEST_TIMEOUT, self.api.create(&params, &wanted)).await?
            }
        };
        self.seen = Some(Seen {
            lease,
            since: Instant::now(),
        });
        Ok(())
    }

    async fn look(&mut self) -> Result<(), ApiError> {
        let lease = bounded(REQUEST_TIMEOUT, self.api.get_opt(self.name)).await?;
        self.seen = lease.map(|lease| {
            let since = match &self.seen {
                Some(seen) if seen.lease.spec == lease.spec => seen.since,
                _ => Instant::now(),
            };
            Seen { lease, since }
        });
        Ok(())
    }

    /// The lease in our hands.
    fn taken(&self, before: &Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let spec = before.spec.clone().unwrap_or_default();
        let mine = spec.holder_identity.as_deref() == Some(self.identity);
        let transitions = spec.lease_transitions.unwrap_or(0);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                ..before.metadata.clone()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.to_owned()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                acquire_time: if mine {
                    spec.acquire_time
                } else {
                    Some(now.clone())
                },
                renew_time: Some(now),
                lease_transitions: Some(if mine || spec.holder_identity.is_none() {
                    transitions
                } else {
                    transitions.saturating_add(1)
                }),
                ..spec
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_may_act_until_its_deadline_on_either_clock() {
        let leadership = Leadership::default();
        assert_eq!(
            leadership.permit().unwrap_err().reason,
            Reason::NotLeading,
            "nobody leads before it was granted"
        );
        leadership.renewed(Renewed::now());
        assert!(leadership.permit().is_ok());
        leadership.renewed(Renewed {
            wall: SystemTime::now() - RENEW_DEADLINE,
            ..Renewed::now()
        });
        let refused = leadership.permit().unwrap_err();
        assert!(refused.message.contains("10s ago"), "{refused}");
        leadership.renewed(Renewed {
            // A clock that was put back proves nothing.
            wall: SystemTime::now() + Duration::from_secs(3600),
            ..Renewed::now()
        });
        assert!(leadership.permit().is_ok());
        leadership.lost();
        assert!(leadership.permit().is_err());
    }

    #[test]
    fn a_follower_waits_for_longer_than_a_leader_acts() {
        assert!(RENEW_DEADLINE + RETRY_PERIOD < LEASE_DURATION);
        assert!(REQUEST_TIMEOUT * 2 < RENEW_DEADLINE);
    }
}
