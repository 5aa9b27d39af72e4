//! What the engine asks of a host: where objects live and how they are stored.

use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::core::decide::{ClusterState, Policy};
use crate::core::fleet::{Member, OwnSeries, Unmatched};
pub use crate::core::key::{ClusterKey, ObjectKey, PolicyOn};
use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord, RunSpec};
use crate::core::view::{ClusterId, Observation};
use crate::etcd::Connection;

/// A policy on one of its clusters, with what is remembered of both together.
#[derive(Clone, Debug)]
pub struct PolicyView {
    pub key: ObjectKey,
    /// Tells apart policies that had the same name one after the other.
    pub uid: String,
    /// Grows with each change of the spec.
    pub generation: i64,
    pub cluster: ClusterKey,
    /// The series that are about this cluster; `None`: all.
    pub series: Option<OwnSeries>,
    /// The validated spec, or every error in one text.
    pub spec: Result<Arc<Policy>, String>,
    pub state: ClusterState,
}

impl PolicyView {
    /// What it is told by.
    pub fn on(&self) -> PolicyOn {
        PolicyOn {
            policy: self.key.clone(),
            cluster: self.cluster.clone(),
        }
    }
}

/// A policy that selects its clusters, each of which also is a [`PolicyView`].
#[derive(Clone, Debug, PartialEq)]
pub struct FleetView {
    pub key: ObjectKey,
    pub uid: String,
    pub generation: i64,
    /// The validated spec, or every error in one text; then it has no clusters.
    pub spec: Result<Arc<Policy>, String>,
    /// The clusters that it serves.
    pub members: Vec<Member>,
    /// Those that match and are too many.
    pub excess: Vec<ClusterKey>,
    /// Why clusters of some kind are not known; empty when all are.
    pub unlisted: Vec<String>,
}

/// A run as stored, with what is recorded of it.
#[derive(Clone, Debug)]
pub struct RunView {
    pub key: ObjectKey,
    pub generation: i64,
    pub cluster: ClusterKey,
    /// The policy that made it; `None` for a hand-made run.
    pub owner: Option<ObjectKey>,
    pub created_at: Timestamp,
    pub spec: Result<Arc<RunSpec>, String>,
    pub record: RunRecord,
    /// Somebody asked for its removal: it ends after the member in progress.
    pub deleting: bool,
    /// Its end may be followed by its removal. False where a person's file
    /// would make it start again.
    pub removable: bool,
}

/// A cluster as it is described: by a target of ours, or by another operator's object.
#[derive(Clone, Debug)]
pub struct TargetView {
    pub key: ClusterKey,
    /// Of the object, for `observedGeneration`; 0 where it is not known.
    pub generation: i64,
    /// Changes whenever anything below did.
    pub version: u64,
    /// How it is reached, or why nobody can say.
    pub spec: Result<Arc<Connection>, Note>,
    /// As last recorded. Two targets with one id are one cluster.
    pub cluster_id: Option<ClusterId>,
    /// The cluster's own operator is changing it, which this describes: no run touches it
    /// meanwhile, and one that has begun pauses between two members.
    pub busy: Option<Note>,
    /// What a person should know: who was left out and why, what was assumed.
    pub remarks: Vec<String>,
}

/// What the engine reports of a policy on one of its clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    /// Of the policy that was evaluated; another one may have its name by now.
    pub uid: String,
    pub generation: i64,
    pub state: ClusterState,
    /// `Accepted`, or why the policy cannot be evaluated as it stands.
    pub ready: Note,
}

/// What the engine reports of a fleet as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetReport {
    pub uid: String,
    pub generation: i64,
    /// Series about no cluster of it; `None` when nobody can say.
    pub unmatched: Option<Unmatched>,
}

/// What the engine reports of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetReport {
    pub generation: i64,
    /// `ClusterHealthy`, or what is wrong.
    pub ready: Note,
    pub seen: Option<Observation>,
}

/// A run to be stored.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub name: String,
    pub policy: PolicyView,
    /// Why it is made.
    pub cause: Note,
    pub created_at: Timestamp,
}

/// What became of storing a new run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    New,
    /// It was there already, made by the same policy for the same firing.
    Adopted,
    /// The name belongs to somebody else's run, which is left alone.
    Conflict,
}

/// Something that a person may want to hear of.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub about: About,
    pub warning: bool,
    pub note: Note,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum About {
    Policy(ObjectKey),
    Run(ObjectKey),
    Target(ClusterKey),
}

/// The host could not do what it was asked. The engine waits and asks again;
/// nothing that should have been recorded first is done meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    pub reason: Reason,
    pub message: String,
}

/// Where objects live.
///
/// Reads are look-ups in memory; only the `*_keys` and [`Host::runs`] take time that grows with
/// the number of objects. Every write returns only when it is durable and the next read shows
/// it; a write that changes nothing is not carried out. A receiver of changes is told after the
/// read that shows the change.
pub trait Host: Send + Sync + 'static {
    /// Every policy on each of its clusters.
    fn policy_keys(&self) -> Vec<PolicyOn>;

    fn policy(&self, key: &PolicyOn) -> Option<Arc<PolicyView>>;

    /// The validated spec of a policy, whatever its clusters; `None` when there is no such
    /// policy, or no valid one.
    fn policy_spec(&self, key: &ObjectKey) -> Option<Arc<Policy>>;

    /// The policies that select their clusters.
    fn fleet_keys(&self) -> Vec<ObjectKey>;

    fn fleet(&self, key: &ObjectKey) -> Option<Arc<FleetView>>;

    fn cluster_keys(&self) -> Vec<ClusterKey>;

    fn target(&self, key: &ClusterKey) -> Option<Arc<TargetView>>;

    /// One run.
    ///
    /// # Errors
    /// When it cannot be read.
    fn run(&self, key: &ObjectKey) -> Result<Option<Arc<RunView>>, HostError>;

    /// Every stored run that can be read.
    ///
    /// # Errors
    /// When nobody can say what goes on, on any cluster.
    fn runs(&self) -> Result<Vec<Arc<RunView>>, HostError>;

    /// The runs that have not ended.
    ///
    /// # Errors
    /// As [`Host::runs`].
    fn unfinished_runs(&self) -> Result<Vec<Arc<RunView>>, HostError>;

    /// The runs on the cluster, also those that name it by another target, and those that were
    /// seen to work on the cluster of this id.
    ///
    /// # Errors
    /// When one of them cannot be read, or may be missing: then nobody can say what goes on there.
    fn runs_on(&self, cluster: &ClusterKey) -> Result<Vec<Arc<RunView>>, HostError>;

    /// As [`Host::runs_on`], for the cluster of this id by whatever name.
    ///
    /// # Errors
    /// As [`Host::runs_on`].
    fn runs_of(&self, id: ClusterId) -> Result<Vec<Arc<RunView>>, HostError>;

    /// The policies on the cluster, also those that name it by another target.
    fn policies_on(&self, cluster: &ClusterKey) -> Vec<Arc<PolicyView>>;

    /// Runs that policies made lately and that neither a run nor a policy tells of any more.
    fn forgotten_runs(&self) -> Vec<(ObjectKey, Timestamp)> {
        Vec::new()
    }

    /// Changes when objects appear or vanish, and when one needs a worker or no longer does.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Changes when anything about the cluster did, under any of its names: its target, the
    /// specs of its policies, how far its runs are.
    fn changes_on(&self, cluster: &ClusterKey) -> watch::Receiver<u64>;

    /// Whether this process may act at this instant.
    ///
    /// # Errors
    /// `NotLeading`: another replica may be at work.
    fn permit(&self) -> Result<(), HostError>;

    fn create_run(&self, run: NewRun) -> impl Future<Output = Result<Created, HostError>> + Send;

    /// Stores what is recorded of a run.
    ///
    /// # Errors
    /// `WriteConflict` when somebody else changed it, `RunVanished` when it is gone.
    fn record_run(
        &self,
        key: &ObjectKey,
        generation: i64,
        record: &RunRecord,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Reports of one policy on several clusters that come at the same time may be
    /// stored together.
    fn record_policy(
        &self,
        key: &PolicyOn,
        report: &PolicyReport,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    fn record_fleet(
        &self,
        key: &ObjectKey,
        report: &FleetReport,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    fn record_target(
        &self,
        key: &ClusterKey,
        report: &TargetReport,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Removes a finished run, or lets go of one that is being deleted.
    fn remove_run(&self, key: &ObjectKey) -> impl Future<Output = Result<(), HostError>> + Send;

    fn event(&self, event: Event);
}
