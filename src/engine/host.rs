//! What the engine asks of a host: where objects live and how they are stored.

use std::future::Future;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::core::decide::{ClusterState, Policy};
pub use crate::core::key::ObjectKey;
use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord, RunSpec};
use crate::core::view::{ClusterId, Observation};
use crate::etcd::Connection;

/// A policy as stored, with what is remembered of it.
#[derive(Clone, Debug)]
pub struct PolicyView {
    pub key: ObjectKey,
    /// Tells apart policies that had the same name one after the other.
    pub uid: String,
    /// Grows with each change of the spec.
    pub generation: i64,
    pub cluster: ObjectKey,
    /// The validated spec, or every error in one text.
    pub spec: Result<Arc<Policy>, String>,
    pub state: ClusterState,
}

/// A run as stored, with what is recorded of it.
#[derive(Clone, Debug)]
pub struct RunView {
    pub key: ObjectKey,
    pub generation: i64,
    pub cluster: ObjectKey,
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

/// A target as stored.
#[derive(Clone, Debug)]
pub struct TargetView {
    pub key: ObjectKey,
    pub generation: i64,
    pub spec: Result<Arc<Connection>, String>,
    /// As last recorded. Two targets with one id are one cluster.
    pub cluster_id: Option<ClusterId>,
}

/// What the engine reports of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    pub generation: i64,
    pub state: ClusterState,
    /// `Accepted`, or why the policy cannot be evaluated as it stands.
    pub ready: Note,
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
    Target(ObjectKey),
}

/// The host could not do what it was asked. The engine waits and asks again;
/// nothing that should have been recorded first is done meanwhile.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    pub reason: Reason,
    pub message: String,
}

/// Where objects live.
///
/// Reads come from memory and are cheap. Every write returns only when it is
/// durable; a write that changes nothing is not carried out.
pub trait Host: Send + Sync + 'static {
    fn policies(&self) -> Vec<Arc<PolicyView>>;

    fn targets(&self) -> Vec<Arc<TargetView>>;

    /// Every stored run.
    ///
    /// # Errors
    /// When any run cannot be read: then nobody can say what goes on.
    fn runs(&self) -> Result<Vec<Arc<RunView>>, HostError>;

    /// Changes whenever an object did.
    fn changes(&self) -> watch::Receiver<u64>;

    fn create_run(&self, run: NewRun) -> impl Future<Output = Result<Created, HostError>> + Send;

    fn record_run(
        &self,
        key: &ObjectKey,
        generation: i64,
        record: &RunRecord,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    fn record_policy(
        &self,
        key: &ObjectKey,
        report: &PolicyReport,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    fn record_target(
        &self,
        key: &ObjectKey,
        report: &TargetReport,
    ) -> impl Future<Output = Result<(), HostError>> + Send;

    /// Removes a finished run, or lets go of one that is being deleted.
    fn remove_run(&self, key: &ObjectKey) -> impl Future<Output = Result<(), HostError>> + Send;

    fn event(&self, event: Event);
}
