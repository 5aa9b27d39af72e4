//! Whether the runs that are known are those that are stored.
//!
//! A watch that fails for a while is no trouble. One that fails for long, while writes still
//! work, would let policies make runs beside others that nobody here has heard of.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::core::reason::Reason;
use crate::engine::HostError;

/// For how long what was seen last is good enough.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// Pause before the runs are listed whose watch fails, and between two attempts: there
/// are some before what is known is too old.
const LOOK: Duration = Duration::from_secs(20);

/// The scopes whose watch of runs fails; `None` is every namespace.
#[derive(Debug, Default)]
pub(super) struct Current {
    failing: Mutex<BTreeMap<Option<String>, Failing>>,
    failed: Notify,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    /// The same moment, for people.
    at: Timestamp,
    problem: String,
}

impl Failing {
    fn is_too_long(&self) -> bool {
        self.since.elapsed() >= GOOD_FOR
    }

    fn refused(&self, scope: Option<&str>) -> HostError {
        let inside = scope.map_or_else(String::new, |scope| format!(" in namespace {scope}"));
        HostError {
            reason: Reason::RunsUnreadable,
            message: format!(
                "EtcdDefrags{inside} can neither be watched nor listed since {}: {}",
                self.at, self.problem
            ),
        }
    }
}

impl Current {
    fn failing(&self) -> MutexGuard<'_, BTreeMap<Option<String>, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs could not be watched or listed.
    pub(super) fn failed(&self, scope: Option<&str>, problem: String) {
        self.failed_at(scope, problem, Instant::now());
    }

    fn failed_at(&self, scope: Option<&str>, problem: String, since: Instant) {
        let mut failing = self.failing();
        let entry = failing.entry(scope.map(str::to_owned));
        let entry = entry.or_insert_with(|| Failing {
            since,
            at: Timestamp::now()
                .round(jiff::Unit::Second)
                .unwrap_or_default(),
            problem: String::new(),
        });
        entry.problem = problem;
        self.failed.notify_one();
    }

    /// What is known is what is stored. True when it was refused before.
    pub(super) fn proved(&self, scope: Option<&str>) -> bool {
        let mut failing = self.failing();
        if failing.is_empty() {
            return false;
        }
        let before = failing.remove(&scope.map(str::to_owned));
        before.is_some_and(|before| before.is_too_long())
    }

    /// Whether no watch fails.
    pub(super) fn is_sure(&self) -> bool {
        self.failing().is_empty()
    }

    /// Whether nothing has proved it since its watch failed.
    pub(super) fn is_failing(&self, scope: Option<&str>) -> bool {
        self.failing().contains_key(&scope.map(str::to_owned))
    }

    /// Waits until it is time to list what cannot be watched.
    pub(super) async fn due(&self) {
        loop {
            if !self.failing().is_empty() {
                tokio::time::sleep(LOOK).await;
                return;
            }
            self.failed.notified().await;
        }
    }

    /// # Errors
    /// `RunsUnreadable` when the runs of one of these namespaces may be others than known.
    pub(super) fn check<'a>(
        &self,
        mut namespaces: impl Iterator<Item = &'a str>,
    ) -> Result<(), HostError> {
        let failing = self.failing();
        if failing.is_empty() {
            return Ok(());
        }
        let refused = |scope: Option<&str>| {
            let failing = failing.get(&scope.map(str::to_owned))?;
            failing.is_too_long().then(|| failing.refused(scope))
        };
        let refused = refused(None).or_else(|| namespaces.find_map(|name| refused(Some(name))));
        refused.map_or(Ok(()), Err)
    }

    /// # Errors
    /// `RunsUnreadable` when that is so in every namespace.
    pub(super) fn check_any(&self) -> Result<(), HostError> {
        self.check(std::iter::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long_ago() -> Instant {
        Instant::now()
            .checked_sub(GOOD_FOR)
            .expect("it has been up")
    }

    #[test]
    fn a_short_failure_is_borne_and_a_long_one_is_not() {
        let current = Current::default();
        current.failed(None, "busy".to_owned());
        assert!(current.is_failing(None));
        assert_eq!(current.check(["a"].into_iter()), Ok(()));
        assert!(!current.proved(None), "nobody was refused");
        assert!(!current.is_failing(None));

        current.failed_at(None, "busy".to_owned(), long_ago());
        current.failed(None, "forbidden".to_owned());
        let refused = current.check(["a"].into_iter()).unwrap_err();
        assert_eq!(refused.reason, Reason::RunsUnreadable);
        assert!(refused.message.ends_with(": forbidden"), "{refused}");
        assert_eq!(current.check_any(), Err(refused));
        assert!(current.proved(None), "somebody was refused");
        assert_eq!(current.check_any(), Ok(()));
    }

    #[test]
    fn a_namespace_that_cannot_be_read_holds_up_its_own_clusters() {
        let current = Current::default();
        current.failed_at(Some("a"), "gone".to_owned(), long_ago());
        assert_eq!(current.check(["b"].into_iter()), Ok(()));
        assert_eq!(current.check_any(), Ok(()));
        let refused = current.check(["b", "a"].into_iter()).unwrap_err();
        assert!(refused.message.contains("in namespace a"), "{refused}");
    }
}
