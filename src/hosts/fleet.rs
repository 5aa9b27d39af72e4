//! What both hosts do for policies that select their clusters: who is selected,
//! what is remembered of whom, and many reports in one write.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::report;
use super::views::Views;
use crate::api::policy::{ClusterStatus, EtcdDefragPolicyStatus, FleetNow};
use crate::core::decide::{ClusterState, Policy};
use crate::core::fleet::{OwnSeries, choose};
use crate::core::reason::Reason;
use crate::engine::{
    ClusterKey, FleetReport, FleetView, HostError, ObjectKey, PolicyOn, PolicyReport, PolicyView,
};

/// How long a cluster that left is remembered at least; longer when the policy's
/// cooldown is.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// Labels of clusters of one namespace.
pub(super) type Candidates = BTreeMap<ClusterKey, BTreeMap<String, String>>;

/// A policy that selects its clusters, as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selecting<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) uid: &'a str,
    pub(super) generation: i64,
    pub(super) spec: &'a Result<Arc<Policy>, String>,
}

/// The policy with the clusters that match now.
pub(super) fn resolve(
    policy: Selecting<'_>,
    candidates: &Candidates,
    unlisted: Vec<String>,
) -> FleetView {
    let selector = policy.spec.as_ref().ok().and_then(|spec| {
        let fleet = spec.fleet.as_ref()?;
        Some((&fleet.selector, spec.series.as_ref()))
    });
    let chosen = selector.map(|(selector, series)| choose(selector, series, candidates));
    let chosen = chosen.unwrap_or_default();
    FleetView {
        key: policy.key.clone(),
        uid: policy.uid.to_owned(),
        generation: policy.generation,
        spec: policy.spec.clone(),
        members: chosen.members,
        excess: chosen.excess,
        unlisted,
    }
}

/// Shows the policy on each of its clusters, with what `status` remembers.
pub(super) fn show(views: &Views, fleet: FleetView, status: &EtcdDefragPolicyStatus) {
    let remembered: HashMap<&str, &ClusterStatus> = status
        .clusters
        .iter()
        .map(|cluster| (cluster.name.as_str(), cluster))
        .collect();
    let members = fleet.members.iter().map(|member| {
        let known = remembered.get(member.cluster.local_name().as_str());
        Arc::new(PolicyView {
            key: fleet.key.clone(),
            uid: fleet.uid.clone(),
            generation: fleet.generation,
            cluster: member.cluster.clone(),
            series: member.series.clone(),
            spec: fleet.spec.clone(),
            state: known.map_or_else(ClusterState::default, |known| ClusterState::from(*known)),
        })
    });
    let members = members.collect();
    views.put_fleet(Arc::new(fleet), members);
}

/// The series that are about the one cluster that a policy names.
pub(super) fn own_series(
    spec: &Result<Arc<Policy>, String>,
    cluster: &ClusterKey,
) -> Option<OwnSeries> {
    let series = spec.as_ref().ok()?.series.as_ref()?;
    Some(OwnSeries {
        label: series.label.clone(),
        value: Ok(cluster.object.name.to_string()),
    })
}

/// True when the report says what is remembered, so that nobody has to look at what is
/// stored of all the other clusters.
pub(super) fn is_no_news(views: &Views, on: &PolicyOn, report: &PolicyReport) -> bool {
    views.fleet(&on.policy).is_some()
        && views.policy(on).is_some_and(|view| {
            (&view.uid, view.generation) == (&report.uid, report.generation)
                && view.state == report.state
        })
}

/// Something to be stored of one policy.
#[derive(Clone, Debug)]
pub(super) enum Item {
    On(PolicyOn, Box<PolicyReport>),
    Fleet(FleetReport),
}

/// The status of a policy that names its cluster, after those of `items` that are
/// about it, and which these are.
pub(super) fn status_of_one<'a>(
    cluster: Option<&str>,
    items: &'a [Item],
    before: &EtcdDefragPolicyStatus,
    now: Timestamp,
    about: impl Fn(&PolicyOn, &PolicyReport) -> bool,
) -> (EtcdDefragPolicyStatus, Vec<&'a Item>) {
    let mut status = before.clone();
    let mut kept = Vec::new();
    for item in items {
        if let Item::On(on, report) = item
            && about(on, report)
        {
            status = report::policy_status(cluster, report, &status, now);
            kept.push(item);
        }
    }
    (status, kept)
}

/// The status of a fleet after what `items` report.
///
/// # Errors
/// When it has no room; then the status says so, and the reports are not in it.
pub(super) fn status(
    fleet: &FleetView,
    items: &[Item],
    before: &EtcdDefragPolicyStatus,
    now: Timestamp,
) -> (EtcdDefragPolicyStatus, Result<(), HostError>) {
    let names: HashMap<&ClusterKey, String> = fleet
        .members
        .iter()
        .map(|member| (&member.cluster, member.cluster.local_name()))
        .collect();
    let mut states = HashMap::new();
    let mut unmatched = None;
    for item in items {
        match item {
            // One that left has nothing to say.
            Item::On(on, report) if report.uid == fleet.uid => {
                if let Some(name) = names.get(&on.cluster) {
                    states.insert(name.clone(), &report.state);
                }
            }
            Item::Fleet(report) if report.uid == fleet.uid => {
                unmatched = Some(report.unmatched.as_ref());
            }
            Item::On(..) | Item::Fleet(_) => {}
        }
    }
    let cooldown = fleet.spec.as_ref().map(|spec| spec.cooldown);
    let now_known = FleetNow {
        generation: fleet.generation,
        invalid: fleet.spec.as_ref().err().map(String::as_str),
        members: names.into_values().collect(),
        excess: fleet.excess.iter().map(ClusterKey::local_name).collect(),
        unlisted: &fleet.unlisted,
        states,
        labelled: fleet.spec.as_ref().is_ok_and(|spec| spec.series.is_some()),
        unmatched,
        remember: REMEMBERED.max(cooldown.unwrap_or_default()),
    };
    match EtcdDefragPolicyStatus::of_fleet(&now_known, before, now) {
        Ok(status) => (status, Ok(())),
        Err(too_large) => {
            let status = EtcdDefragPolicyStatus::too_large(&now_known, too_large, before, now);
            let error = HostError {
                reason: Reason::NotStored,
                message: format!(
                    "the status of the policy {} would have {} bytes; select fewer clusters, in several policies",
                    fleet.key, too_large.0
                ),
            };
            (status, Err(error))
        }
    }
}

/// Shows what was stored.
pub(super) fn remember<'a>(views: &Views, items: impl IntoIterator<Item = &'a Item>) {
    for item in items {
        if let Item::On(on, report) = item {
            views.remember(on, &report.uid, &report.state);
        }
    }
}

/// What waits to be stored, by policy. Whoever has the turn of a policy stores what
/// all have brought so far; each returns once its own part is stored.
#[derive(Debug, Default)]
pub(super) struct Batches(Mutex<HashMap<ObjectKey, Vec<Waiting>>>);

type Outcome = Result<(), HostError>;

#[derive(Debug)]
struct Waiting {
    item: Item,
    tell: oneshot::Sender<Outcome>,
}

/// Some items that are about to be stored, and who waits for that.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    tell: Vec<oneshot::Sender<Outcome>>,
}

impl Batches {
    /// Adds an item. To be followed by the policy's turn, and then by
    /// [`Batches::take`].
    pub(super) fn add(&self, policy: &ObjectKey, item: Item) -> oneshot::Receiver<Outcome> {
        let (tell, told) = oneshot::channel();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = all.entry(policy.clone()).or_default();
        waiting.push(Waiting { item, tell });
        told
    }

    /// What waits now, to be stored by the caller; or what became of the caller's
    /// item, which somebody else has stored. The caller has the policy's turn.
    pub(super) fn take(
        &self,
        policy: &ObjectKey,
        told: &mut oneshot::Receiver<Outcome>,
    ) -> Result<Batch, Outcome> {
        match told.try_recv() {
            Ok(outcome) => return Err(outcome),
            // Whoever had taken it went away before it was stored. What others have
            // brought since is theirs to store: the caller's own would not be in it.
            Err(TryRecvError::Closed) => {
                return Err(Err(HostError {
                    reason: Reason::NotStored,
                    message: "what was to be stored together was given up; it is tried again"
                        .to_owned(),
                }));
            }
            Err(TryRecvError::Empty) => {}
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = all.remove(policy).unwrap_or_default();
        let (items, tell) = waiting.into_iter().map(|w| (w.item, w.tell)).unzip();
        Ok(Batch { items, tell })
    }
}

impl Batch {
    /// Tells everybody, the caller included.
    pub(super) fn done(self, outcome: &Outcome) {
        for tell in self.tell {
            // Somebody may have gone away meanwhile.
            let _ = tell.send(outcome.clone());
        }
    }
}

#[cfg(test)]
mod tests;
