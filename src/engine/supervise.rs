//! Keeps one worker for each object that needs one.

use std::collections::HashMap;
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
use super::host::{ClusterKey, Host, ObjectKey, PolicyOn};
use super::limits::Limits;
use super::pace::Paces;
use super::policy::First;
use super::shared::{PolicyShared, Shared};
use super::turn::Places;
use super::{fleet, now, policy, run, target, tidy};

/// How often workers that ended are replaced when nothing changes.
const ROUND: Duration = Duration::from_secs(5);
/// Shortest time between two rounds, so that many changes at once make one.
const GATHER: Duration = Duration::from_millis(100);
/// Policies that may be evaluated at the moment when they appear; more are a crowd.
const CROWD: usize = 100;
/// Time between the first looks at targets that appear together: each is a
/// connection to each member.
const TARGET_SPACING: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    Policy(PolicyOn),
    /// What concerns all clusters of a policy together.
    Fleet(ObjectKey),
    Target(ClusterKey),
    Run(ObjectKey),
    /// Old runs are removed.
    Tidying,
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
            places: Places::new(limits.max_concurrent_runs),
            ended: Notify::new(),
        };
        Engine {
            policies: Arc::new(PolicyShared {
                base: shared(),
                sources,
                creating: Creating::new(&limits),
                paces: Paces::default(),
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
            Work::Fleet(key) => host.fleet(key).is_none(),
            Work::Target(key) => host.target(key).is_none(),
            // One file that cannot be read must not end the sweep of another run.
            Work::Run(key) => host
                .run(key)
                .is_ok_and(|run| run.is_none_or(|run| run.record.phase.is_terminal())),
            Work::Tidying => false,
        });
        self.policies.creating.queues.promote(host);
        let runs = host.unfinished_runs().into_iter().flatten();
        let wanted = std::iter::once(Work::Tidying)
            .chain(runs.map(|run| Work::Run(run.key.clone())))
            .chain(host.cluster_keys().into_iter().map(Work::Target))
            .chain(host.fleet_keys().into_iter().map(Work::Fleet))
            .chain(host.policy_keys().into_iter().map(Work::Policy));
        let moment = now();
        let (mut policies, mut delay) = (0, Duration::ZERO);
        for work in wanted {
            if workers.has(&work) {
                continue;
            }
            let cancel = shutdown.child_token();
            let (shared, stop) = (self.others.clone(), cancel.clone());
            let worker: BoxFuture<'static, ()> = match work.clone() {
                Work::Policy(key) => {
                    policies += 1;
                    let first = if policies > CROWD {
                        First::InCrowd
                    } else {
                        First::At(moment)
                    };
                    Box::pin(policy::work(self.policies.clone(), key, first, stop))
                }
                Work::Fleet(key) => Box::pin(fleet::work(self.policies.clone(), key, stop)),
                Work::Target(key) => {
                    delay += TARGET_SPACING;
                    Box::pin(target::work(shared, key, delay, stop))
                }
                Work::Run(key) => Box::pin(run::work(shared, key, stop)),
                Work::Tidying => Box::pin(tidy::work(shared, stop)),
            };
            workers.start(work, worker, cancel);
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

/// The workers, also those that were told to stop and are about to.
#[derive(Default)]
struct Workers {
    tasks: JoinSet<()>,
    by_id: HashMap<Id, Arc<Work>>,
    working: HashMap<Arc<Work>, (Id, CancellationToken)>,
}

impl Workers {
    fn has(&self, work: &Work) -> bool {
        self.working.contains_key(work)
    }

    fn start(&mut self, work: Work, worker: BoxFuture<'static, ()>, cancel: CancellationToken) {
        let id = self.tasks.spawn(worker).id();
        let work = Arc::new(work);
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
    async fn next_ended(&mut self) -> Option<(Arc<Work>, Result<(), JoinError>)> {
        let ended = self.tasks.join_next_with_id().await?;
        self.strike_off(ended)
    }

    /// A worker that has ended.
    fn try_next_ended(&mut self) -> Option<(Arc<Work>, Result<(), JoinError>)> {
        let ended = self.tasks.try_join_next_with_id()?;
        self.strike_off(ended)
    }

    fn strike_off(
        &mut self,
        ended: Result<(Id, ()), JoinError>,
    ) -> Option<(Arc<Work>, Result<(), JoinError>)> {
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
