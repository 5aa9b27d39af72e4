//! Keeps one worker for each object that needs one.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::core::decide::HistoryLimit;
use crate::core::history::{self, Finished};
use crate::core::run::Phase;
use crate::signals::Sources;
use crate::telemetry::{Telemetry, Unfinished};

use super::claim::Claims;
use super::host::{ClusterKey, Host, ObjectKey, PolicyView, RunView};
use super::policy::PolicyShared;
use super::run::Shared;
use super::{now, policy, run, target};

/// How often old runs are looked for, and workers that ended are replaced.
const ROUND: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Policy(ObjectKey),
    Target(ClusterKey),
    Run(ObjectKey),
}

/// Limits that an administrator sets for all clusters together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Runs that may be going on at a time; `None`: one for each cluster.
    pub max_concurrent_runs: Option<NonZeroU32>,
    /// Runs that policies may create within any hour; `None`: as many as their own limits
    /// allow.
    pub runs_per_hour: Option<NonZeroU32>,
}

/// The engine of one host.
pub struct Engine<H> {
    policies: Arc<PolicyShared<H>>,
    others: Arc<Shared<H>>,
}

impl<H: Host> Engine<H> {
    pub fn new(
        host: Arc<H>,
        sources: Arc<Sources>,
        telemetry: Arc<Telemetry>,
        limits: Limits,
    ) -> Self {
        let claims = Claims::default();
        let shared = || Shared {
            host: host.clone(),
            telemetry: telemetry.clone(),
            claims: claims.clone(),
        };
        Engine {
            policies: Arc::new(PolicyShared {
                base: shared(),
                sources,
                creating: Arc::new(Mutex::new(())),
            }),
            others: Arc::new(shared()),
        }
    }

    /// Works until the token is cancelled; returns when every worker has
    /// finished what it had begun to record.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut changes = self.others.host.changes();
        let mut workers: BTreeMap<Work, (JoinHandle<()>, CancellationToken)> = BTreeMap::new();
        while !shutdown.is_cancelled() {
            changes.mark_unchanged();
            self.others.telemetry.round(now());
            self.align(&mut workers, &shutdown).await;
            self.tidy().await;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(ROUND) => {}
                () = shutdown.cancelled() => {}
            }
        }
        for (work, (handle, _)) in workers {
            if let Err(error) = handle.await {
                tracing::error!(?work, %error, "a worker ended badly");
            }
        }
    }

    /// Starts the workers that are missing and stops those without an object.
    async fn align(
        &self,
        workers: &mut BTreeMap<Work, (JoinHandle<()>, CancellationToken)>,
        shutdown: &CancellationToken,
    ) {
        let wanted = self.wanted(workers.keys());
        let gone: Vec<Work> = workers
            .iter()
            .filter(|(work, (handle, _))| handle.is_finished() || !wanted.contains(work))
            .map(|(work, _)| work.clone())
            .collect();
        for work in gone {
            let Some((handle, cancel)) = workers.remove(&work) else {
                continue;
            };
            cancel.cancel();
            if handle.is_finished()
                && let Err(error) = handle.await
            {
                self.others.telemetry.error("worker");
                tracing::error!(?work, %error, "a worker ended badly, it is started again");
            }
        }
        for work in wanted {
            if workers.contains_key(&work) {
                continue;
            }
            let cancel = shutdown.child_token();
            let handle = match work.clone() {
                Work::Policy(key) => {
                    tokio::spawn(policy::work(self.policies.clone(), key, cancel.clone()))
                }
                Work::Target(key) => {
                    tokio::spawn(target::work(self.others.clone(), key, cancel.clone()))
                }
                Work::Run(key) => tokio::spawn(run::work(self.others.clone(), key, cancel.clone())),
            };
            workers.insert(work, (handle, cancel));
        }
    }

    fn wanted<'a>(&self, working: impl Iterator<Item = &'a Work>) -> BTreeSet<Work> {
        let host = &self.others.host;
        let policies = host.policy_keys().into_iter().map(Work::Policy);
        let targets = host.cluster_keys().into_iter().map(Work::Target);
        let runs: Vec<Work> = match host.runs() {
            Ok(runs) => runs
                .iter()
                .filter(|r| !r.record.phase.is_terminal())
                .map(|r| Work::Run(r.key.clone()))
                .collect(),
            // One file that cannot be read must not end the sweep of another run.
            Err(_) => working
                .filter(|work| matches!(work, Work::Run(_)))
                .cloned()
                .collect(),
        };
        policies.chain(targets).chain(runs).collect()
    }

    /// What the metrics tell of runs that go on or wait.
    fn show(&self, runs: &[Arc<RunView>]) {
        let unfinished: Vec<(ClusterKey, &RunView)> = runs
            .iter()
            .filter(|run| !run.record.phase.is_terminal())
            .map(|run| (run.cluster.clone(), &**run))
            .collect();
        let unfinished = unfinished.iter().map(|(cluster, run)| Unfinished {
            cluster,
            created_at: run.created_at,
            record: &run.record,
        });
        self.others.telemetry.unfinished_runs(unfinished);
    }

    /// Removes finished runs that have been kept long enough, and those that a
    /// person asked to remove.
    async fn tidy(&self) {
        let host = &self.others.host;
        let Ok(runs) = host.runs() else { return };
        self.show(&runs);
        let mut limits: BTreeMap<String, HistoryLimit> = BTreeMap::new();
        for owner in runs.iter().filter_map(|run| run.owner.as_ref()) {
            limits.entry(owner.to_string()).or_insert_with(|| {
                let policy = host.policy(owner);
                policy
                    .and_then(|p| p.spec.as_ref().ok().map(|spec| spec.history))
                    .unwrap_or_default()
            });
        }
        let limit = |owner: &str| limits.get(owner).copied().unwrap_or_default();
        let due = overdue(&runs, limit);
        for run in runs.iter().filter(|run| run.record.phase.is_terminal()) {
            let removed = run.deleting || (run.removable && due.contains(&run.key.to_string()));
            if removed
                && accounted(&**host, run)
                && let Err(error) = host.remove_run(&run.key).await
            {
                tracing::warn!(run = %run.key, %error, "unable to remove the run");
            }
        }
    }
}

/// True when every policy on the cluster has taken the run's end into account:
/// its cooldown and its back-off are made of that. A policy that cannot be
/// evaluated is not waited for.
fn accounted<H: Host>(host: &H, run: &RunView) -> bool {
    let evaluated = |policy: &PolicyView| {
        policy.spec.is_ok()
            && host
                .target(&policy.cluster)
                .is_some_and(|target| target.spec.is_ok())
    };
    host.policies_on(&run.cluster)
        .iter()
        .filter(|policy| evaluated(policy))
        .all(|policy| policy.state.accounted.contains(&run.key.name))
}

fn overdue(runs: &[Arc<RunView>], limit: impl Fn(&str) -> HistoryLimit) -> BTreeSet<String> {
    let finished: Vec<Finished> = runs
        .iter()
        .filter(|run| run.record.phase.is_terminal())
        .map(|run| Finished {
            name: run.key.to_string(),
            owner: run.owner.as_ref().map(ToString::to_string),
            succeeded: run.record.phase == Phase::Complete,
            at: run.record.completed_at.unwrap_or(run.created_at),
            ttl: run
                .spec
                .as_ref()
                .ok()
                .and_then(|spec| spec.ttl_after_finished),
        })
        .collect();
    history::to_remove(&finished, limit, now())
        .into_iter()
        .collect()
}
