//! New runs: one decision at a time on each cluster, and the administrator's
//! limit on all together.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::core::decide::CreateRun;
use crate::core::reason::Reason;
use crate::core::run::Note;

use super::fleet::Queues;
use super::host::{ClusterKey, Created, Host, HostError, NewRun, ObjectKey, PolicyView};
use super::now;

/// How many clusters may get a run at the same moment.
const STRIPES: usize = 64;

/// What policies share when they make runs.
#[derive(Debug)]
pub(super) struct Creating {
    stripes: [tokio::sync::Mutex<()>; STRIPES],
    hourly: Hourly,
    /// Who is next where a policy limits its runs.
    pub(super) queues: Queues,
}

/// A run that is on its way.
pub(super) struct Made {
    pub(super) at: Timestamp,
    /// False when it was already.
    pub(super) new: bool,
}

impl Creating {
    pub(super) fn new(runs_per_hour: Option<NonZeroU32>) -> Self {
        Creating {
            stripes: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            hourly: Hourly {
                limit: runs_per_hour,
                lately: Mutex::default(),
            },
            queues: Queues::default(),
        }
    }

    /// To be held from the last look at a cluster's runs until the new one is
    /// stored, so that two policies never decide on the same emptiness.
    pub(super) async fn turn<H: Host>(
        &self,
        host: &H,
        cluster: &ClusterKey,
    ) -> tokio::sync::MutexGuard<'_, ()> {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let hash = match host.target(cluster).and_then(|target| target.cluster_id) {
            Some(id) => hasher.hash_one(id),
            None => hasher.hash_one(cluster),
        };
        // The remainder is below STRIPES, which fits any usize.
        self.stripes[(hash % STRIPES as u64) as usize].lock().await
    }

    /// Has the run stored, or says why it is not. To be called in turn.
    pub(super) async fn make<H: Host>(
        &self,
        host: &H,
        view: &PolicyView,
        run: &CreateRun,
    ) -> Result<Made, Note> {
        let at = now();
        let key = ObjectKey {
            namespace: view.key.namespace.clone(),
            name: run.name.clone(),
        };
        let failed = |error: HostError| {
            let message = format!("run {}: {error}", run.name);
            Note::new(Reason::CreateFailed, message)
        };
        self.hourly.admit(host, &key, at).map_err(failed)?;
        let new = NewRun {
            name: run.name.clone(),
            policy: view.clone(),
            cause: run.note.clone(),
            created_at: at,
        };
        let made = host.create_run(new).await;
        if !matches!(made, Ok(Created::New)) {
            self.hourly.take_back(&key, at);
        }
        match made {
            Ok(Created::New) => Ok(Made { at, new: true }),
            Ok(Created::Adopted) => Ok(Made { at, new: false }),
            Ok(Created::Conflict) => Err(Note::new(
                Reason::NameConflict,
                format!(
                    "a run {} exists that this policy did not make; remove or rename it",
                    run.name
                ),
            )),
            Err(error) => Err(failed(error)),
        }
    }
}

/// The administrator's limit on new runs of all policies together.
#[derive(Debug)]
struct Hourly {
    limit: Option<NonZeroU32>,
    /// Runs of the last hour, as far as somebody had to know.
    lately: Mutex<BTreeMap<ObjectKey, Timestamp>>,
}

impl Hourly {
    /// Counts the run in, unless it is one too many. One that exists is not new.
    fn admit<H: Host>(&self, host: &H, new: &ObjectKey, at: Timestamp) -> Result<(), HostError> {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        if host.run(new)?.is_some() {
            return Ok(());
        }
        let mut lately = self.lately();
        forget(&mut lately, at);
        // What is known already may be enough to refuse.
        if lately.len() < limit.get() as usize {
            for (key, start) in stored(host)? {
                lately.entry(key).or_insert(start);
            }
            forget(&mut lately, at);
        }
        let recent = lately.len();
        if recent < limit.get() as usize {
            lately.insert(new.clone(), at);
            return Ok(());
        }
        Err(HostError {
            reason: Reason::CreateFailed,
            message: format!(
                "policies made {recent} runs within the last hour, and limits.runsPerHour is {limit}"
            ),
        })
    }

    /// It was not made after all.
    fn take_back(&self, key: &ObjectKey, at: Timestamp) {
        let mut lately = self.lately();
        if lately.get(key) == Some(&at) {
            lately.remove(key);
        }
    }

    fn lately(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Timestamp>> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget(lately: &mut BTreeMap<ObjectKey, Timestamp>, now: Timestamp) {
    lately.retain(|_, start| now.duration_since(*start) < SignedDuration::from_hours(1));
}

/// The runs that policies made, as far as anything stored tells of them. Those
/// that are not kept are remembered by their policies.
fn stored<H: Host>(host: &H) -> Result<Vec<(ObjectKey, Timestamp)>, HostError> {
    let mut starts = host.forgotten_runs();
    for run in host.runs()?.iter().filter(|run| run.owner.is_some()) {
        starts.push((run.key.clone(), run.created_at));
    }
    for policy in host.policy_keys() {
        let Some(view) = host.policy(&policy) else {
            continue;
        };
        starts.extend(view.state.run_starts.iter().map(|start| {
            let key = ObjectKey {
                namespace: policy.policy.namespace.clone(),
                name: start.name.clone(),
            };
            (key, start.at)
        }));
    }
    Ok(starts)
}
