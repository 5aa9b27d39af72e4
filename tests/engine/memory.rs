//! A host without a disk and without an API, which says what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use defragd::core::decide::{Backoff, ClusterState, HistoryLimit, OnSilence, Policy};
use defragd::core::reason::Reason;
use defragd::core::rule::Rule;
use defragd::core::run::{Note, Phase, RunRecord, RunSpec};
use defragd::core::signal::Signal;
use defragd::core::view::ClusterId;
use defragd::core::window::Schedule;
use defragd::engine::{
    ClusterKey, Created, Engine, Event, FleetReport, FleetView, Host, HostError, Limits, NewRun,
    ObjectKey, PolicyOn, PolicyReport, PolicyView, RunView, TargetReport, TargetView, now,
};
use defragd::etcd::{Connection, Endpoint};
use defragd::hosts::views::Views;
use defragd::signals::Sources;
use defragd::signals::config::SourceConfig;
use defragd::telemetry::Telemetry;
use defragd_harness::{Cluster, Error, eventually, install_tls_provider};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Barrier, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// For what a busy machine may take; nothing waits for it when all is well.
const DEADLINE: Duration = Duration::from_secs(60);
/// Where nobody listens.
pub(crate) const NOWHERE: &str = "http://127.0.0.1:1";

/// Whether acting is permitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Permit {
    Given,
    /// Given, but for a moment: right after the intent of a call was stored.
    NotForCalls,
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It is carried out, and its answer is lost.
    AnswerLost,
    /// It is refused, and nobody changed anything.
    Conflict,
}

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) views: Views,
    permit: Mutex<Permit>,
    /// What becomes of the next writes that announce a call.
    faults: Mutex<VecDeque<Fault>>,
    heard: Mutex<Heard>,
    /// Runs end as soon as they were made.
    pub(crate) ends_at_once: AtomicBool,
    /// Runs are stored when so many are about to be.
    pub(crate) together: OnceLock<Barrier>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) refused: u32,
    pub(crate) records: u32,
    pub(crate) evaluations: BTreeMap<ObjectKey, u32>,
    pub(crate) created: Vec<ObjectKey>,
    /// Since when the policy's signal had fired, by that order, and the policy.
    pub(crate) made_for: Vec<(Option<Timestamp>, ObjectKey)>,
    pub(crate) removed: Vec<Arc<RunView>>,
    pub(crate) targets: BTreeMap<ClusterKey, Note>,
    pub(crate) fleets: BTreeMap<ObjectKey, FleetReport>,
}

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Memory {
            views: Views::default(),
            permit: Mutex::new(Permit::Given),
            faults: Mutex::default(),
            heard: Mutex::default(),
            ends_at_once: AtomicBool::new(false),
            together: OnceLock::new(),
        })
    }

    pub(crate) fn permit_is(&self, permit: Permit) {
        *self.permit.lock().unwrap() = permit;
    }

    pub(crate) fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    pub(crate) fn heard(&self) -> Heard {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn record(&self, name: &str) -> RunRecord {
        self.views.run(&key(name)).unwrap().record.clone()
    }

    /// How many runs were made.
    pub(crate) fn made(&self) -> usize {
        self.heard.lock().unwrap().created.len()
    }

    /// As [`Memory::until`], where all that is known would be too much to print.
    pub(crate) async fn until_quietly(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let waited = eventually(DEADLINE * 3, what, async || {
            if wanted(self) {
                Ok(())
            } else {
                Err(format!("{} runs", self.made()))
            }
        });
        waited.await.unwrap();
    }

    /// What another replica, or a person, stores.
    pub(crate) fn edit_run(&self, name: &str, edit: impl FnOnce(&mut RunView)) {
        let mut run = (*self.views.run(&key(name)).unwrap()).clone();
        edit(&mut run);
        self.views.put_run(Arc::new(run));
    }

    pub(crate) fn edit_target(&self, name: &str, edit: impl FnOnce(&mut TargetView)) {
        let mut target = (*self.views.target(&cluster(name)).unwrap()).clone();
        edit(&mut target);
        target.version += 1;
        self.views.put_target(Arc::new(target));
    }

    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let waited = eventually(DEADLINE, what, async || {
            if wanted(self) {
                Ok(())
            } else {
                Err(format!("{:?} {:#?}", self.views.runs(), self.heard()))
            }
        });
        waited.await.unwrap();
    }
}

impl Host for Memory {
    fn policy_keys(&self) -> Vec<PolicyOn> {
        self.views.policy_keys()
    }

    fn policy(&self, key: &PolicyOn) -> Option<Arc<PolicyView>> {
        self.views.policy(key)
    }

    fn policy_spec(&self, key: &ObjectKey) -> Option<Arc<Policy>> {
        self.views.policy_spec(key)
    }

    fn fleet_keys(&self) -> Vec<ObjectKey> {
        self.views.fleet_keys()
    }

    fn fleet(&self, key: &ObjectKey) -> Option<Arc<FleetView>> {
        self.views.fleet(key)
    }

    fn cluster_keys(&self) -> Vec<ClusterKey> {
        self.views.cluster_keys()
    }

    fn target(&self, key: &ClusterKey) -> Option<Arc<TargetView>> {
        self.views.target(key)
    }

    fn run(&self, key: &ObjectKey) -> Result<Option<Arc<RunView>>, HostError> {
        Ok(self.views.run(key))
    }

    fn runs(&self) -> Result<Vec<Arc<RunView>>, HostError> {
        Ok(self.views.runs())
    }

    fn unfinished_runs(&self) -> Result<Vec<Arc<RunView>>, HostError> {
        Ok(self.views.unfinished_runs())
    }

    fn runs_on(&self, cluster: &ClusterKey) -> Result<Vec<Arc<RunView>>, HostError> {
        Ok(self.views.runs_on(cluster))
    }

    fn runs_of(&self, id: ClusterId) -> Result<Vec<Arc<RunView>>, HostError> {
        Ok(self.views.runs_of(id))
    }

    fn policies_on(&self, cluster: &ClusterKey) -> Vec<Arc<PolicyView>> {
        self.views.policies_on(cluster)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.views.changes()
    }

    fn changes_on(&self, cluster: &ClusterKey) -> watch::Receiver<u64> {
        self.views.changes_on(cluster)
    }

    fn permit(&self) -> Result<(), HostError> {
        let announced = |run: &Arc<RunView>| {
            let call = run
                .record
                .in_flight()
                .and_then(|member| member.call.as_ref());
            call.is_some_and(|call| call.answered_at.is_none())
        };
        let refused = match *self.permit.lock().unwrap() {
            Permit::Given => false,
            Permit::NotForCalls => self.views.runs().iter().any(announced),
        };
        if !refused {
            return Ok(());
        }
        self.heard.lock().unwrap().refused += 1;
        Err(error(Reason::NotLeading))
    }

    async fn create_run(&self, run: NewRun) -> Result<Created, HostError> {
        if let Some(together) = self.together.get() {
            together.wait().await;
        }
        let new = key(&run.name);
        if self.views.run(&new).is_some() {
            return Ok(Created::Adopted);
        }
        let policy = run.policy.key.clone();
        let since = self
            .views
            .policy(&run.policy.on())
            .and_then(|view| view.state.firing_since);
        {
            let mut heard = self.heard.lock().unwrap();
            heard.created.push(new);
            heard.made_for.push((since, policy));
        }
        let record = if self.ends_at_once.load(Ordering::SeqCst) {
            RunRecord {
                phase: Phase::Complete,
                started_at: Some(run.created_at),
                completed_at: Some(run.created_at),
                result: Some(Note::new(Reason::SweepComplete, "")),
                ..RunRecord::default()
            }
        } else {
            RunRecord::default()
        };
        self.views.put_run(Arc::new(RunView {
            cluster: run.policy.cluster.clone(),
            owner: Some(run.policy.key.clone()),
            created_at: run.created_at,
            record,
            ..self::run(&run.name, "")
        }));
        Ok(Created::New)
    }

    async fn record_run(
        &self,
        key: &ObjectKey,
        generation: i64,
        record: &RunRecord,
    ) -> Result<(), HostError> {
        let fault = record
            .in_flight()
            .and_then(|_| self.faults.lock().unwrap().pop_front());
        if fault == Some(Fault::Conflict) {
            return Err(error(Reason::WriteConflict));
        }
        let Some(run) = self.views.run(key) else {
            return Err(error(Reason::RunVanished));
        };
        self.views.put_run(Arc::new(RunView {
            record: record.clone(),
            generation,
            ..(*run).clone()
        }));
        self.heard.lock().unwrap().records += 1;
        match fault {
            Some(_) => Err(error(Reason::NotStored)),
            None => Ok(()),
        }
    }

    async fn record_policy(&self, key: &PolicyOn, report: &PolicyReport) -> Result<(), HostError> {
        self.views.remember(key, &report.uid, &report.state);
        let mut heard = self.heard.lock().unwrap();
        *heard.evaluations.entry(key.policy.clone()).or_default() += 1;
        Ok(())
    }

    async fn record_fleet(&self, key: &ObjectKey, report: &FleetReport) -> Result<(), HostError> {
        let mut heard = self.heard.lock().unwrap();
        heard.fleets.insert(key.clone(), report.clone());
        Ok(())
    }

    async fn record_target(
        &self,
        key: &ClusterKey,
        report: &TargetReport,
    ) -> Result<(), HostError> {
        let mut heard = self.heard.lock().unwrap();
        heard.targets.insert(key.clone(), report.ready.clone());
        Ok(())
    }

    async fn remove_run(&self, key: &ObjectKey) -> Result<(), HostError> {
        let run = self.views.run(key).unwrap();
        self.views.remove_run(key);
        self.heard.lock().unwrap().removed.push(run);
        Ok(())
    }

    fn event(&self, _: Event) {}
}

fn error(reason: Reason) -> HostError {
    HostError {
        reason,
        message: reason.sentence().to_owned(),
    }
}

/// An engine at work, until it is stopped.
pub(crate) struct Working {
    stop: CancellationToken,
    engine: JoinHandle<()>,
}

impl Working {
    pub(crate) fn start(host: &Arc<Memory>, limits: Limits) -> Self {
        Self::with(host, limits, Vec::new())
    }

    pub(crate) fn with(host: &Arc<Memory>, limits: Limits, sources: Vec<SourceConfig>) -> Self {
        install_tls_provider();
        let sources = Arc::new(Sources::from_config(sources).unwrap());
        Self::asking(host, limits, sources)
    }

    /// With these sources; the TLS provider must be there already.
    pub(crate) fn asking(host: &Arc<Memory>, limits: Limits, sources: Arc<Sources>) -> Self {
        let stop = CancellationToken::new();
        let telemetry = Arc::new(Telemetry::default());
        let engine = Engine::new(host.clone(), sources, telemetry, limits);
        Working {
            engine: tokio::spawn(engine.run(stop.clone())),
            stop,
        }
    }

    /// Stops in order.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(DEADLINE, self.engine).await;
        ended.expect("it stops in time").unwrap();
    }
}

/// A policy on the cluster of that name.
pub(crate) fn on(policy: &str, cluster: &str) -> PolicyOn {
    PolicyOn {
        policy: key(policy),
        cluster: self::cluster(cluster),
    }
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "default".into(),
        name: name.into(),
    }
}

pub(crate) fn cluster(name: &str) -> ClusterKey {
    ClusterKey::target(key(name))
}

pub(crate) fn target(name: &str, endpoints: &[String]) -> TargetView {
    let endpoints = endpoints.iter().map(|url| Endpoint::parse(url).unwrap());
    TargetView {
        key: cluster(name),
        generation: 1,
        version: 1,
        spec: Ok(Arc::new(Connection::new(endpoints.collect()))),
        cluster_id: None,
        busy: None,
        remarks: Vec::new(),
    }
}

pub(crate) fn put_target(host: &Memory, name: &str, endpoints: &[String]) {
    host.views.put_target(Arc::new(target(name, endpoints)));
}

/// A run of everything, also on a single member.
pub(crate) fn run(name: &str, on: &str) -> RunView {
    RunView {
        key: key(name),
        generation: 1,
        cluster: cluster(on),
        owner: None,
        created_at: Timestamp::UNIX_EPOCH,
        spec: Ok(Arc::new(RunSpec {
            rule: Rule::All,
            allow_single_member: true,
            ..RunSpec::default()
        })),
        record: RunRecord::default(),
        deleting: false,
        removable: true,
    }
}

/// A policy that is looked at once a day.
pub(crate) fn policy(name: &str, on: &str, edit: impl FnOnce(&mut Policy)) -> PolicyView {
    let mut policy = Policy {
        signal: Signal::Probe(Rule::default()),
        fleet: None,
        series: None,
        hold_for: SignedDuration::ZERO,
        interval: SignedDuration::from_hours(24),
        no_data: OnSilence::Hold,
        on_error: OnSilence::Hold,
        fallback: None,
        schedule: Schedule::default(),
        blockers: Vec::new(),
        max_blocked_for: None,
        cooldown: SignedDuration::from_hours(1),
        backoff: Backoff::default(),
        max_runs_per_day: None,
        emergency: None,
        suspend: false,
        paused_until: None,
        dry_run: false,
        trigger: None,
        history: HistoryLimit::default(),
        template: RunSpec::default(),
    };
    edit(&mut policy);
    PolicyView {
        key: key(name),
        uid: name.to_owned(),
        generation: 1,
        cluster: cluster(on),
        series: None,
        spec: Ok(Arc::new(policy)),
        state: ClusterState {
            observed_trigger: Some(None),
            ..ClusterState::default()
        },
    }
}

/// How many defragmentations the first member has finished.
pub(crate) async fn finished(cluster: &Cluster) -> Result<f64, Error> {
    let name = "etcd_disk_backend_defrag_duration_seconds_count";
    Ok(cluster.metric(0, name).await?.unwrap_or(0.0))
}

/// What another one says about a run that it took over.
pub(crate) fn foreign(record: &mut RunRecord) {
    record.warnings.push("another replica was here".to_owned());
}

pub(crate) fn at(second: i64) -> Timestamp {
    let at = now() - SignedDuration::from_hours(1) + SignedDuration::from_secs(second);
    Timestamp::from_millisecond(at.as_millisecond()).unwrap()
}
