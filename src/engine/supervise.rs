//! Keeps one worker for each object that needs one.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::signals::Sources;
use crate::telemetry::Telemetry;

use super::claim::Claims;
use super::create::Creating;
use super::host::{ClusterKey, Host, ObjectKey};
use super::policy::{First, PolicyShared};
use super::run::Shared;
use super::{now, policy, run, target, tidy};

/// How often workers that ended are replaced when nothing changes.
const ROUND: Duration = Duration::from_secs(5);
/// Shortest time between two rounds, so that many changes at once make one.
const GATHER: Duration = Duration::from_millis(100);
/// Time between the first looks of policies that appear together. A thousand a
/// second is more than any source should be asked, and over soon.
const POLICY_SPACING: Duration = Duration::from_millis(1);
/// The same for targets, whose first look is a connection to each member.
const TARGET_SPACING: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    Policy(ObjectKey),
    Target(ClusterKey),
    Run(ObjectKey),
    /// Old runs are removed.
    Tidying,
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
            limits,
            ended: Notify::new(),
        };
        Engine {
            policies: Arc::new(PolicyShared {
                base: shared(),
                sources,
                creating: Creating::new(limits.runs_per_hour),
            }),
            others: Arc::new(shared()),
        }
    }

    /// Works until the token is cancelled; returns when every worker has
    /// finished what it had begun to record.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut changes = self.others.host.changes();
        let mut workers = Workers::default();
        while !shutdown.is_cancelled() {
            changes.mark_unchanged();
            let began = Instant::now();
            self.others.telemetry.round(now());
            self.align(&mut workers, &shutdown);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(ROUND) => {}
                () = shutdown.cancelled() => {}
            }
            tokio::select! {
                () = tokio::time::sleep_until(began + GATHER) => {}
                () = shutdown.cancelled() => {}
            }
        }
        while let Some((work, ended)) = workers.next_ended().await {
            self.bury(&work, ended);
        }
    }

    /// Starts the workers that are missing and stops those without an object.
    fn align(&self, workers: &mut Workers, shutdown: &CancellationToken) {
        let host = &*self.others.host;
        while let Some((work, ended)) = workers.try_next_ended() {
            self.bury(&work, ended);
        }
        workers.stop(|work| match work {
            Work::Policy(key) => host.policy(key).is_none(),
            Work::Target(key) => host.target(key).is_none(),
            // One file that cannot be read must not end the sweep of another run.
            Work::Run(key) => host
                .run(key)
                .is_ok_and(|run| run.is_none_or(|run| run.record.phase.is_terminal())),
            Work::Tidying => false,
        });
        let runs = host.unfinished_runs().into_iter().flatten();
        let wanted = std::iter::once(Work::Tidying)
            .chain(runs.map(|run| Work::Run(run.key.clone())))
            .chain(host.cluster_keys().into_iter().map(Work::Target))
            .chain(host.policy_keys().into_iter().map(Work::Policy));
        let asked_at = now();
        let (mut target, mut policy) = (Duration::ZERO, Duration::ZERO);
        for work in wanted.filter(|work| !workers.has(work)).collect::<Vec<_>>() {
            let delay = match &work {
                Work::Policy(_) => next(&mut policy, POLICY_SPACING),
                Work::Target(_) => next(&mut target, TARGET_SPACING),
                Work::Run(_) | Work::Tidying => Duration::ZERO,
            };
            let cancel = shutdown.child_token();
            let worker = self.worker(work.clone(), First { asked_at, delay }, cancel.clone());
            workers.start(work, worker, cancel);
        }
    }

    fn worker(
        &self,
        work: Work,
        first: First,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let shared = self.others.clone();
        match work {
            Work::Policy(key) => {
                Box::pin(policy::work(self.policies.clone(), key, first, shutdown))
            }
            Work::Target(key) => Box::pin(target::work(shared, key, first.delay, shutdown)),
            Work::Run(key) => Box::pin(run::work(shared, key, shutdown)),
            Work::Tidying => Box::pin(tidy::work(shared, shutdown)),
        }
    }

    /// Says so when a worker ended as it never should.
    fn bury(&self, work: &Work, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            self.others.telemetry.error("worker");
            tracing::error!(?work, %error, "a worker ended badly, it is started again");
        }
    }
}

/// The delay of the next one.
fn next(delay: &mut Duration, spacing: Duration) -> Duration {
    std::mem::replace(delay, *delay + spacing)
}

/// The workers, also those that were told to stop and are about to.
#[derive(Default)]
struct Workers {
    tasks: JoinSet<()>,
    by_id: HashMap<Id, Work>,
    working: HashMap<Work, (Id, CancellationToken)>,
}

impl Workers {
    fn has(&self, work: &Work) -> bool {
        self.working.contains_key(work)
    }

    fn start(&mut self, work: Work, worker: BoxFuture<'static, ()>, cancel: CancellationToken) {
        let id = self.tasks.spawn(worker).id();
        self.by_id.insert(id, work.clone());
        self.working.insert(work, (id, cancel));
    }

    /// Tells workers to stop. They are waited for at the end only.
    fn stop(&mut self, needless: impl Fn(&Work) -> bool) {
        self.working.retain(|work, (_, cancel)| {
            let stop = needless(work);
            if stop {
                cancel.cancel();
            }
            !stop
        });
    }

    /// The next worker that ends; `None` when there is none.
    async fn next_ended(&mut self) -> Option<(Work, Result<(), JoinError>)> {
        let ended = self.tasks.join_next_with_id().await?;
        self.strike_off(ended)
    }

    /// A worker that has ended.
    fn try_next_ended(&mut self) -> Option<(Work, Result<(), JoinError>)> {
        let ended = self.tasks.try_join_next_with_id()?;
        self.strike_off(ended)
    }

    fn strike_off(
        &mut self,
        ended: Result<(Id, ()), JoinError>,
    ) -> Option<(Work, Result<(), JoinError>)> {
        let (id, ended) = match ended {
            Ok((id, ())) => (id, Ok(())),
            Err(error) => (error.id(), Err(error)),
        };
        let work = self.by_id.remove(&id)?;
        // Another one may be at the same work already.
        if self.working.get(&work).is_some_and(|(own, _)| *own == id) {
            self.working.remove(&work);
        }
        Some((work, ended))
    }
}
