//! New runs: one decision at a time on each cluster, and the administrator's
//! limits on all together.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;

use crate::core::decide::{ClusterState, CreateRun};
use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::view::ClusterId;

use super::host::{ClusterKey, Created, Host, HostError, NewRun, ObjectKey, PolicyOn, PolicyView};
use super::limits::Limits;
use super::line::{Line, Queued, Waits, Wish};
use super::now;
use super::queue::Queues;

/// How many clusters may get a run at the same moment.
const STRIPES: usize = 64;
/// By how much the expected time must move to be told again: each telling is a write.
const NEWS: SignedDuration = SignedDuration::from_mins(5);

/// What policies share when they make runs.
#[derive(Debug)]
pub(super) struct Creating {
    stripes: [tokio::sync::Mutex<()>; STRIPES],
    line: Line,
    /// Who is next where a policy limits its runs.
    pub(super) queues: Queues,
}

/// A run that is on its way.
pub(super) struct Made {
    pub(super) at: Timestamp,
    /// False when it was already.
    pub(super) new: bool,
}

/// The turn of one who may store a run; it is over with the value.
#[must_use]
pub(super) struct Turn<'a>(#[expect(dead_code, reason = "held, not read")] Vec<MutexGuard<'a, ()>>);

/// A run that the administrator's limits allow.
pub(super) struct Allowed(ObjectKey);

/// Why a run is not made now, and when that is to be looked at again.
pub(super) struct Held {
    pub(super) note: Note,
    pub(super) until: Option<Timestamp>,
}

impl Creating {
    pub(super) fn new(limits: &Limits) -> Self {
        Creating {
            stripes: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            line: Line::new(limits.runs_per_hour, limits.runs_per_minute),
            queues: Queues::default(),
        }
    }

    /// Waits a little for the administrator's limits to allow the run: who has fired
    /// for longest is next.
    pub(super) async fn stand<H: Host>(
        &self,
        host: &H,
        view: &PolicyView,
        state: &ClusterState,
        run: &CreateRun,
        shutdown: &CancellationToken,
    ) -> Result<Allowed, Held> {
        let key = run_key(view, run);
        // One that exists is not new.
        let exists = host
            .run(&key)
            .map_err(|error| failed(run, &error))?
            .is_some();
        if self.line.is_open() || exists {
            return Ok(Allowed(key));
        }
        self.line.seed(|| standing(host));
        let interval = view.spec.as_ref().map_or(NEWS, |policy| policy.interval);
        let wish = Wish {
            policy: &view.on(),
            run: &key,
            firing_since: state.firing_since,
            interval,
        };
        let stood = self.line.stand(&wish, || stored(host), shutdown).await;
        match stood {
            Ok(()) => Ok(Allowed(key)),
            Err(Waits::Unknown(error)) => Err(failed(run, &error)),
            Err(Waits::Queued(queued)) => Err(waiting(view, &queued)),
        }
    }

    /// The policy wants no run now, or is gone.
    pub(super) fn leave(&self, policy: &PolicyOn) {
        self.line.leave(policy);
    }

    /// The run is not made after all.
    pub(super) fn give_back(&self, allowed: &Allowed) {
        self.line.take_back(&allowed.0);
    }

    /// To be held from the last look at a cluster's runs until the new one is
    /// stored, so that two policies never decide on the same emptiness.
    pub(super) async fn turn<H: Host>(&self, host: &H, cluster: &ClusterKey) -> Turn<'_> {
        let id = || host.target(cluster).and_then(|target| target.cluster_id);
        loop {
            let stripes = stripes(cluster, id());
            let mut held = Vec::with_capacity(stripes.len());
            // In order, so that nobody waits for somebody who waits for it.
            for stripe in &stripes {
                held.push(self.stripes[*stripe].lock().await);
            }
            // Its id may have become known meanwhile, and others hold that one.
            if self::stripes(cluster, id()) == stripes {
                return Turn(held);
            }
        }
    }

    /// Has the run stored, or says why it is not. To be called in turn.
    pub(super) async fn make<H: Host>(
        &self,
        host: &H,
        view: &PolicyView,
        run: &CreateRun,
        allowed: &Allowed,
    ) -> Result<Made, Note> {
        let at = now();
        let key = run_key(view, run);
        let new = NewRun {
            name: run.name.clone(),
            policy: view.clone(),
            cause: run.note.clone(),
            created_at: at,
        };
        let made = host.create_run(new).await;
        if matches!(made, Ok(Created::New)) {
            self.line.made(&allowed.0, &key);
        } else {
            self.give_back(allowed);
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
            Err(error) => Err(failed(run, &error).note),
        }
    }
}

/// What stands for a cluster: its name, by which it is known from the beginning, and
/// its id, by which several names may be known to mean one cluster.
fn stripes(cluster: &ClusterKey, id: Option<ClusterId>) -> BTreeSet<usize> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let hashes = [
        Some(hasher.hash_one(cluster)),
        id.map(|id| hasher.hash_one(id)),
    ];
    // The remainder is below STRIPES, which fits any usize.
    let stripes = hashes.into_iter().flatten();
    stripes
        .map(|hash| (hash % STRIPES as u64) as usize)
        .collect()
}

fn run_key(view: &PolicyView, run: &CreateRun) -> ObjectKey {
    ObjectKey {
        namespace: view.key.namespace.clone(),
        name: run.name.as_str().into(),
    }
}

fn failed(run: &CreateRun, error: &HostError) -> Held {
    let message = format!("run {}: {error}", run.name);
    Held {
        note: Note::new(Reason::CreateFailed, message),
        until: None,
    }
}

/// What a policy in line shows. Its message stays while the expected time hardly
/// moves, so that a thousand that wait do not write all the time.
fn waiting(view: &PolicyView, queued: &Queued) -> Held {
    let Queued {
        until,
        limit,
        before,
    } = queued;
    let old = view.state.decision.as_ref().zip(view.state.next_eligible);
    if let Some((note, expected)) = old
        && note.reason == Reason::CreationLimited
        && expected > now()
        && until.duration_since(expected).abs() < NEWS
    {
        return Held {
            note: note.clone(),
            until: Some(expected.min(*until).max(now())),
        };
    }
    let others = match before {
        0 => "it is the next one".to_owned(),
        1 => "one policy that has fired for longer is before it".to_owned(),
        n => format!("{n} policies that have fired for longer are before it"),
    };
    let message = format!("{limit}; {others}, and its turn comes about {until}");
    Held {
        note: Note::new(Reason::CreationLimited, message),
        until: Some(*until),
    }
}

/// The policies that stood in line when that was last stored, since when each fires, and how
/// soon it will be looked at.
fn standing<H: Host>(host: &H) -> Vec<(PolicyOn, Timestamp, SignedDuration)> {
    let keys = host.policy_keys().into_iter();
    let views = keys.filter_map(|key| Some((host.policy(&key)?, key)));
    views
        .filter_map(|(view, key)| {
            let waits = view.state.decision.as_ref()?.reason == Reason::CreationLimited;
            let since = view.state.firing_since;
            let since = since.or_else(|| Some(view.state.timeline.last()?.since));
            // Its spell may have had no room.
            let since = since.unwrap_or_else(now);
            let interval = view.spec.as_ref().ok()?.interval;
            waits.then_some((key, since, interval.min(SignedDuration::from_mins(1))))
        })
        .collect()
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
                name: start.name.as_str().into(),
            };
            (key, start.at)
        }));
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterKey {
        ClusterKey::target(ObjectKey {
            namespace: "default".into(),
            name: name.into(),
        })
    }

    /// T53: a cluster whose id becomes known while a run of it is being made, and one that two
    /// targets lead to.
    #[test]
    fn t53_whoever_means_the_same_cluster_waits_for_the_same_turn() {
        for i in 0..200 {
            let (one, other) = (cluster(&format!("a-{i}")), cluster(&format!("b-{i}")));
            let id = Some(ClusterId(i));
            assert!(stripes(&one, None).is_subset(&stripes(&one, id)));
            assert!(!stripes(&one, id).is_disjoint(&stripes(&other, id)));
        }
    }
}
