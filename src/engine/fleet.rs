//! What concerns the clusters of one policy together: series that are about none of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::core::decide::Policy;
use crate::core::fleet::Unmatched;
use crate::core::reason::Reason;
use crate::core::signal::Signal;
use crate::core::tick;

use super::host::{FleetReport, FleetView, Host, HostError, ObjectKey};
use super::now;
use super::pace::asked_at_tick;
use super::read::question_of_all;
use super::shared::PolicyShared;

/// How often a fleet without a question is looked at.
const PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// Pause before what could not be recorded is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// Looks after what concerns all clusters of a policy, until it is gone or the process
/// stops.
pub(super) async fn work<H: Host>(
    shared: Arc<PolicyShared<H>>,
    key: ObjectKey,
    shutdown: CancellationToken,
) {
    let _series = shared.base.telemetry.fleet_series(&key);
    let host = &*shared.base.host;
    let mut changes = host.changes();
    let mut asked_at = now();
    while !shutdown.is_cancelled() {
        // Before it is read: what changes afterwards is to be told.
        changes.mark_unchanged();
        let Some(fleet) = host.fleet(&key) else {
            break;
        };
        let due = match look(&shared, &fleet, asked_at, &shutdown).await {
            Ok(Some(due)) => due,
            Ok(None) => break,
            Err(error) => {
                if error.reason != Reason::NotLeading {
                    shared.base.telemetry.error("policy");
                    tracing::error!(policy = %key, reason = %error.reason, %error, "unable to record the fleet");
                }
                now() + RETRY
            }
        };
        loop {
            let wait = due.duration_since(now()).max(SignedDuration::ZERO);
            tokio::select! {
                () = tokio::time::sleep(wait.unsigned_abs()) => {
                    asked_at = asked_at_tick(due);
                    break;
                }
                changed = changes.changed() => {
                    let same = host.fleet(&key).is_some_and(|now| *now == *fleet);
                    if changed.is_err() || !same {
                        asked_at = now();
                        break;
                    }
                }
                () = shutdown.cancelled() => return,
            }
        }
    }
}

/// One look. Returns when the next is due; `None` when the process stops.
async fn look<H: Host>(
    shared: &PolicyShared<H>,
    fleet: &FleetView,
    asked_at: Timestamp,
    shutdown: &CancellationToken,
) -> Result<Option<Timestamp>, HostError> {
    let policy = fleet.spec.as_ref().ok();
    let unmatched = match policy {
        Some(policy) if !policy.stands_still(now()) => tokio::select! {
            biased;
            // A source that does not answer must not keep the process. What is about to
            // be recorded is: that of its clusters may be stored with it.
            () = shutdown.cancelled() => return Ok(None),
            unmatched = unmatched(shared, policy, fleet, asked_at) => unmatched,
        },
        _ => None,
    };
    shared.base.telemetry.fleet_seen(
        &fleet.key,
        fleet.members.len(),
        fleet.excess.len(),
        unmatched.as_ref().map(|unmatched| unmatched.series),
    );
    let report = FleetReport {
        uid: fleet.uid.clone(),
        generation: fleet.generation,
        unmatched,
    };
    shared.base.host.record_fleet(&fleet.key, &report).await?;
    let asked =
        policy.and_then(|policy| Some((policy, question_of_all(policy, &fleet.key.namespace)?)));
    Ok(Some(match asked {
        Some((policy, question)) => tick::next(now(), policy.interval, &question),
        None => now() + PAUSE,
    }))
}

/// The series of the policy's query that are about none of its clusters.
async fn unmatched<H: Host>(
    shared: &PolicyShared<H>,
    policy: &Policy,
    fleet: &FleetView,
    asked_at: Timestamp,
) -> Option<Unmatched> {
    let series = policy.series.as_ref()?;
    let Signal::Prometheus(signal) = &policy.signal else {
        return None;
    };
    // Also those of clusters that cannot be told apart are about somebody known.
    let known: BTreeSet<&str> = fleet
        .members
        .iter()
        .filter_map(|member| member.series.as_ref()?.value.as_deref().ok())
        .chain(ambiguous(policy, fleet))
        .collect();
    let source = shared.sources.prometheus(&signal.source).ok()?;
    source
        .unmatched(signal, &series.label, &known, asked_at)
        .await
}

/// Names of clusters whose series nobody can tell apart.
fn ambiguous<'a>(policy: &'a Policy, fleet: &'a FleetView) -> impl Iterator<Item = &'a str> {
    let by_name = policy
        .series
        .as_ref()
        .is_some_and(|series| series.from.is_none());
    let members = fleet.members.iter().filter(move |member| {
        let value = member.series.as_ref().map(|series| &series.value);
        by_name && matches!(value, Some(Err(note)) if note.reason == Reason::SeriesAmbiguous)
    });
    // What is too many to be served is known all the same.
    let excess = fleet.excess.iter().filter(move |_| by_name);
    members
        .map(|member| &member.cluster)
        .chain(excess)
        .map(|cluster| cluster.object.name.as_str())
}
