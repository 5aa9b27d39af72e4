//! One run a cluster, also where two targets name one cluster: the cluster's id
//! is known only once its members were asked, and is claimed at that moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::core::view::ClusterId;

use super::host::{ObjectKey, RunView};

/// Which run has which cluster, in this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<Mutex<BTreeMap<ClusterId, ObjectKey>>>);

/// A cluster that a run has, until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Claims,
    pub(super) cluster: ClusterId,
}

impl Claims {
    /// Claims the cluster for `own`, or names the run that has it: one that claimed it, or one of
    /// `runs` that began earlier and goes on after a restart.
    pub(super) fn take(
        &self,
        cluster: ClusterId,
        own: &RunView,
        runs: &[Arc<RunView>],
    ) -> Result<Claim, ObjectKey> {
        let mut taken = self.lock();
        if let Some(other) = taken.get(&cluster) {
            return Err(other.clone());
        }
        let rank = |run: &RunView| {
            let began = run.record.started_at;
            (began.is_none(), began, run.created_at, run.key.clone())
        };
        let earlier = runs.iter().find(|run| {
            run.key != own.key
                && run.record.started_at.is_some()
                && !run.record.phase.is_terminal()
                && run.record.cluster_id == Some(cluster)
                && rank(run) < rank(own)
        });
        if let Some(earlier) = earlier {
            return Err(earlier.key.clone());
        }
        taken.insert(cluster, own.key.clone());
        Ok(Claim {
            claims: self.clone(),
            cluster,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterId, ObjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.cluster);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::core::key::ClusterKey;
    use crate::core::run::{RunRecord, RunSpec};

    fn run(name: &str, began: Option<i64>, cluster: Option<u64>) -> Arc<RunView> {
        let key = |name: &str| ObjectKey {
            namespace: "default".into(),
            name: name.into(),
        };
        Arc::new(RunView {
            key: key(name),
            generation: 1,
            cluster: ClusterKey::target(key("target")),
            owner: None,
            created_at: Timestamp::UNIX_EPOCH,
            spec: Ok(Arc::new(RunSpec::default())),
            record: RunRecord {
                started_at: began.map(|second| Timestamp::from_second(second).unwrap()),
                cluster_id: cluster.map(ClusterId),
                ..RunRecord::default()
            },
            deleting: false,
            removable: true,
        })
    }

    #[test]
    fn a_cluster_has_one_run_until_that_lets_go() {
        let claims = Claims::default();
        let (a, b) = (run("a", None, None), run("b", None, None));
        let held = claims.take(ClusterId(7), &a, &[]).unwrap();
        assert_eq!(claims.take(ClusterId(7), &b, &[]).unwrap_err(), a.key);
        let other = claims.take(ClusterId(8), &b, &[]);
        assert!(other.is_ok(), "another cluster is free");
        drop(held);
        assert!(claims.take(ClusterId(7), &b, &[]).is_ok());
    }

    #[test]
    fn after_a_restart_the_run_that_began_first_goes_on() {
        let claims = Claims::default();
        let (fresh, begun) = (run("fresh", None, None), run("begun", Some(5), Some(7)));
        let runs = [fresh.clone(), begun.clone()];
        assert_eq!(
            claims.take(ClusterId(7), &fresh, &runs).unwrap_err(),
            begun.key
        );
        assert!(claims.take(ClusterId(8), &fresh, &runs).is_ok());
        assert!(claims.take(ClusterId(7), &begun, &runs).is_ok());
    }
}
