//! Which cluster of a policy is next, where that limits its runs.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::core::reason::Reason;
use crate::core::run::Note;

use super::host::{ClusterKey, Host, HostError, ObjectKey, PolicyOn};

/// How long those that become due at one moment are gathered before the first of
/// them begins: the oldest is to be among them.
const GATHER: Duration = Duration::from_millis(250);

/// Who waits for one of the runs that its policy allows at once.
#[derive(Debug, Default)]
pub(super) struct Queues {
    by_policy: Mutex<HashMap<ObjectKey, Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: HashMap<ClusterKey, Waiting>,
    /// Those whose turn it is. Each counts as one whose run goes on.
    chosen: BTreeSet<ClusterKey>,
}

impl Queue {
    /// The clusters that have a run, or soon will.
    fn taken(&self, running: Vec<ClusterKey>) -> BTreeSet<ClusterKey> {
        let mut taken = self.chosen.clone();
        taken.extend(running);
        taken
    }
}

#[derive(Debug)]
struct Waiting {
    since: Timestamp,
    wake: Arc<Notify>,
}

/// Since when a cluster is due, and how many runs of its policy may go on at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) since: Timestamp,
    pub(super) limit: NonZeroU32,
}

/// The turn of one cluster, from the last look at who is next until what became of it is
/// stored. Others may have theirs beside it, up to the policy's limit.
#[must_use]
pub(super) struct Chosen<'a>(&'a Place<'a>);

/// A place in the queue of a policy; it is given up with the value.
pub(super) struct Place<'a> {
    queues: &'a Queues,
    on: PolicyOn,
    wake: Arc<Notify>,
}

impl Queues {
    fn locked(&self) -> MutexGuard<'_, HashMap<ObjectKey, Queue>> {
        self.by_policy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the policy on the cluster, which does not wait yet.
    pub(super) fn place(&self, on: &PolicyOn) -> Place<'_> {
        Place {
            queues: self,
            on: on.clone(),
            wake: Arc::default(),
        }
    }

    /// Wakes those whose turn it may be.
    pub(super) fn promote<H: Host>(&self, host: &H) {
        let waiting: Vec<ObjectKey> = {
            let queues = self.locked();
            let some = queues.iter().filter(|(_, queue)| !queue.waiting.is_empty());
            some.map(|(key, _)| key.clone()).collect()
        };
        for policy in waiting {
            let limit = host
                .policy_spec(&policy)
                .and_then(|spec| spec.fleet.as_ref().map(|fleet| fleet.max_concurrent_runs));
            let Some(limit) = limit else { continue };
            let queues = self.locked();
            let (Some(queue), Ok(running)) = (queues.get(&policy), running(host, &policy)) else {
                continue;
            };
            let taken = queue.taken(running);
            let free = (limit.get() as usize).saturating_sub(taken.len());
            let waiting = queue.waiting.iter();
            let mut order: Vec<(&ClusterKey, &Waiting)> = waiting
                .filter(|(cluster, _)| !taken.contains(cluster))
                .collect();
            order.sort_by_key(|(cluster, waiting)| (waiting.since, *cluster));
            for (_, waiting) in order.into_iter().take(free) {
                waiting.wake.notify_one();
            }
        }
    }
}

/// The clusters of the policy's runs that have not ended.
fn running<H: Host>(host: &H, policy: &ObjectKey) -> Result<Vec<ClusterKey>, HostError> {
    let runs = host.unfinished_runs()?;
    let own = runs.iter().filter(|run| run.owner.as_ref() == Some(policy));
    Ok(own.map(|run| run.cluster.clone()).collect())
}

impl Place<'_> {
    /// Waits from now on, as one that has been due since then. True when it did not
    /// wait before.
    fn enter(&self, since: Timestamp) -> bool {
        let mut queues = self.queues.locked();
        let queue = queues.entry(self.on.policy.clone()).or_default();
        let waiting = Waiting {
            since,
            wake: self.wake.clone(),
        };
        let before = queue.waiting.insert(self.on.cluster.clone(), waiting);
        before.is_none()
    }

    /// Waits no longer.
    pub(super) fn leave(&self) {
        self.change(|queue, own| {
            queue.waiting.remove(own);
        });
    }

    /// Changes what is known of its cluster, and forgets a queue in which nobody is.
    fn change(&self, change: impl FnOnce(&mut Queue, &ClusterKey)) {
        let mut queues = self.queues.locked();
        if let Some(queue) = queues.get_mut(&self.on.policy) {
            change(queue, &self.on.cluster);
            if queue.waiting.is_empty() && queue.chosen.is_empty() {
                queues.remove(&self.on.policy);
            }
        }
    }

    /// Told when its turn may have come.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Joins those of the policy's clusters that are due.
    ///
    /// # Errors
    /// When others are before it.
    pub(super) async fn join<H: Host>(&self, host: &H, due: Due) -> Result<(), Note> {
        if self.enter(due.since) {
            tokio::time::sleep(GATHER).await;
        }
        let mut queues = self.queues.locked();
        self.admit(host, queues.entry(self.on.policy.clone()).or_default(), due)
    }

    /// The turn, to be held until the run is stored.
    ///
    /// # Errors
    /// When others are before it by now.
    pub(super) fn turn<H: Host>(&self, host: &H, due: Due) -> Result<Chosen<'_>, Note> {
        let mut queues = self.queues.locked();
        let queue = queues.entry(self.on.policy.clone()).or_default();
        self.admit(host, queue, due)?;
        queue.chosen.insert(self.on.cluster.clone());
        Ok(Chosen(self))
    }

    /// Whether it may begin, or why not.
    fn admit<H: Host>(
        &self,
        host: &H,
        queue: &Queue,
        Due { since, limit }: Due,
    ) -> Result<(), Note> {
        let running = running(host, &self.on.policy)
            .map_err(|error| Note::new(Reason::RunsUnreadable, error.to_string()))?;
        let taken = queue.taken(running);
        let free = (limit.get() as usize).saturating_sub(taken.len());
        if free > 0 && self.ahead(host, queue, &taken, since, free) < free {
            return Ok(());
        }
        // Nothing in it changes while it waits: it would be written each time.
        Err(Note::new(
            Reason::PolicyBusy,
            format!(
                "maxConcurrentRuns is {limit} and that many are going on; of those that wait, the one that has fired \
                 for longest is next"
            ),
        ))
    }

    /// How many have waited for longer, as far as that matters: those in the queue, and
    /// those that were said to wait and have not been looked at since the start.
    fn ahead<H: Host>(
        &self,
        host: &H,
        queue: &Queue,
        taken: &BTreeSet<ClusterKey>,
        since: Timestamp,
        enough: usize,
    ) -> usize {
        let own = (since, self.on.cluster.clone());
        let waiting = queue.waiting.iter();
        let mut ahead: BTreeSet<ClusterKey> = waiting
            .filter(|(cluster, waiting)| (waiting.since, (*cluster).clone()) < own)
            .map(|(cluster, _)| cluster.clone())
            .filter(|cluster| !taken.contains(cluster))
            .collect();
        if ahead.len() >= enough {
            return ahead.len();
        }
        let Some(fleet) = host.fleet(&self.on.policy) else {
            return ahead.len();
        };
        for member in &fleet.members {
            let on = PolicyOn {
                policy: self.on.policy.clone(),
                cluster: member.cluster.clone(),
            };
            let Some(view) = host.policy(&on) else {
                continue;
            };
            let waits = view.state.decision.as_ref();
            if waits.is_some_and(|note| note.reason == Reason::PolicyBusy)
                && !taken.contains(&on.cluster)
                && view
                    .state
                    .firing_since
                    .is_some_and(|since| (since, on.cluster.clone()) < own)
            {
                ahead.insert(on.cluster);
            }
        }
        ahead.len()
    }
}

impl Drop for Chosen<'_> {
    fn drop(&mut self) {
        self.0.change(|queue, own| {
            queue.chosen.remove(own);
        });
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
