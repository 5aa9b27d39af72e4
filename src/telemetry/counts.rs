//! What is counted from the start of the process on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::metrics::Histogram;
use crate::core::reason::Reason;
use crate::core::run::{Outcome, RunRecord};

/// Upper bounds of a member's defragmentation time, in seconds: from an empty
/// file to the largest that etcd supports on a slow disk.
const MEMBER_SECONDS: [f64; 12] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
];
/// Upper bounds of a request's time at the Kubernetes API, in seconds: from its
/// cache to the longest that it lets a request take.
const API_SECONDS: [f64; 9] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// What [`Counts::error`] is told of. They begin at zero: who looks at an increase
/// would not see the first of a series that was not there before.
const ERRORS: [&str; 6] = ["state", "document", "policy", "target", "run", "worker"];

#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) runs: BTreeMap<(&'static str, Reason), u64>,
    pub(super) member_seconds: Histogram,
    pub(super) errors: BTreeMap<&'static str, u64>,
    /// By result; empty where there is no state folder.
    pub(super) state_writes: BTreeMap<&'static str, u64>,
    /// By verb, resource and status code.
    pub(super) api_requests: BTreeMap<(&'static str, &'static str, Option<u16>), u64>,
    /// By verb.
    pub(super) api_seconds: BTreeMap<&'static str, Histogram>,
    /// By kind.
    pub(super) watch_restarts: BTreeMap<&'static str, u64>,
    /// By kind; not a count of events but what there is now.
    pub(super) objects: BTreeMap<&'static str, u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            runs: BTreeMap::new(),
            member_seconds: Histogram::new(&MEMBER_SECONDS),
            errors: ERRORS.map(|what| (what, 0)).into(),
            state_writes: BTreeMap::new(),
            api_requests: BTreeMap::new(),
            api_seconds: BTreeMap::new(),
            watch_restarts: BTreeMap::new(),
            objects: BTreeMap::new(),
        }
    }
}

impl Counts {
    pub(super) fn run_finished(&mut self, record: &RunRecord, reason: Reason) {
        *self
            .runs
            .entry((record.phase.as_str(), reason))
            .or_default() += 1;
        for member in &record.members {
            if let (Outcome::Defragmented, Some(started), Some(finished)) =
                (member.outcome, member.started_at, member.finished_at)
            {
                let took = finished.duration_since(started);
                self.member_seconds.observe(took.as_secs_f64());
            }
        }
    }

    pub(super) fn error(&mut self, what: &'static str) {
        *self.errors.entry(what).or_default() += 1;
    }

    pub(super) fn state_written(&mut self, done: bool) {
        for result in ["done", "failed"] {
            let counted = u64::from((result == "done") == done);
            *self.state_writes.entry(result).or_default() += counted;
        }
    }

    pub(super) fn api_request(
        &mut self,
        verb: &'static str,
        resource: &'static str,
        code: Option<u16>,
        took: Duration,
    ) {
        *self.api_requests.entry((verb, resource, code)).or_default() += 1;
        // How long a watch lasts says nothing about the API server.
        if verb != "watch" {
            self.api_seconds
                .entry(verb)
                .or_insert_with(|| Histogram::new(&API_SECONDS))
                .observe(took.as_secs_f64());
        }
    }
}
