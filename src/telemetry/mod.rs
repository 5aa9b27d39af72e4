//! Logs, own metrics, health.
//!
//! The engine and the hosts tell [`Telemetry`] what happened; it keeps numbers
//! and nothing else, and never fails or waits. A scrape takes a copy that costs
//! little and writes its text from that, so that nobody who tells something is
//! held up by somebody who reads.
//!
//! | file | what |
//! | --- | --- |
//! | `objects` | numbers of policies, clusters and runs, which go with them |
//! | `counts` | what is counted from the start of the process on |
//! | `health` | alive, ready, leading |
//! | `metrics` | the table of all metrics, and their text |
//! | `http` | `/metrics`, `/healthz`, `/readyz` |
//! | `logs` | the log |

mod counts;
mod health;
pub mod http;
pub mod logs;
mod metrics;
mod objects;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::core::key::{ClusterKey, ObjectKey, PolicyOn};
use crate::core::reason::Reason;
use crate::core::run::RunRecord;
use crate::core::view::Observation;
use crate::signals::Sources;

use self::counts::Counts;
use self::health::Health;
use self::metrics::Scrape;
use self::objects::{FleetNumbers, Objects, PolicyNumbers};

pub use self::health::Stuck;
pub use self::objects::{Evaluated, Series, Unfinished};

/// defragd's own metrics and health.
#[derive(Debug)]
pub struct Telemetry {
    sources: OnceLock<Arc<Sources>>,
    /// Under one lock: with several, who holds one and wants another could wait for
    /// somebody who holds that one.
    numbers: Mutex<Numbers>,
}

#[derive(Debug)]
struct Numbers {
    health: Health,
    objects: Objects,
    counts: Counts,
    /// Bytes of the last page of metrics; the next one will be about as large.
    page: usize,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry {
            sources: OnceLock::new(),
            numbers: Mutex::new(Numbers {
                health: Health::new(),
                objects: Objects::default(),
                counts: Counts::default(),
                page: 0,
            }),
        }
    }
}

/// Objects.
impl Telemetry {
    /// The policy has a worker on the cluster, and series as long as the answer
    /// lives. What is told of a policy without that is not kept.
    pub fn policy_series(self: &Arc<Self>, policy: &PolicyOn) -> Series {
        Series::of_policy(self.clone(), policy.clone())
    }

    /// As [`Telemetry::policy_series`], for a policy that selects its clusters.
    pub fn fleet_series(self: &Arc<Self>, fleet: &ObjectKey) -> Series {
        Series::of_fleet(self.clone(), fleet.clone())
    }

    /// As [`Telemetry::policy_series`], for a cluster.
    pub fn cluster_series(self: &Arc<Self>, cluster: &ClusterKey) -> Series {
        Series::of_cluster(self.clone(), cluster.clone())
    }

    /// A fleet was looked at: how many clusters it has, how many match beyond the
    /// most that a policy serves, and how many series are about none of them.
    pub fn fleet_seen(
        &self,
        fleet: &ObjectKey,
        clusters: usize,
        excess: usize,
        unmatched: Option<usize>,
    ) {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        if let Some(numbers) = self.numbers().objects.fleets.get_mut(fleet) {
            *numbers = Arc::new(FleetNumbers {
                clusters: number(clusters),
                excess: number(excess),
                unmatched: unmatched.map(number),
            });
        }
    }

    /// A policy was evaluated on a cluster.
    pub fn policy_evaluated(&self, policy: &PolicyOn, evaluated: Evaluated<'_>) {
        let evaluated = Arc::new(Some(PolicyNumbers::from(evaluated)));
        if let Some(numbers) = self.numbers().objects.policies.get_mut(policy) {
            *numbers = evaluated;
        }
    }

    /// A cluster was looked at: `health` is `ClusterHealthy` or what is wrong,
    /// `seen` is absent when it is not known where to look.
    pub fn cluster_observed(
        &self,
        cluster: &ClusterKey,
        health: Reason,
        seen: Option<&Observation>,
    ) {
        if let Some(numbers) = self.numbers().objects.clusters.get_mut(cluster) {
            Arc::make_mut(numbers).observe(health, seen);
        }
    }

    /// A run reached its end.
    pub fn run_finished(&self, cluster: &ClusterKey, record: &RunRecord) {
        let Some(result) = &record.result else { return };
        let mut numbers = self.numbers();
        numbers.counts.run_finished(record, result.reason);
        if let Some(cluster) = numbers.objects.clusters.get_mut(cluster) {
            Arc::make_mut(cluster).finish(record);
        }
    }

    /// Every run that has not reached its end, in place of those told before.
    pub fn unfinished_runs<'a>(&self, runs: impl Iterator<Item = Unfinished<'a>>) {
        let unfinished = objects::unfinished(runs);
        let mut numbers = self.numbers();
        // One that has just lost its leadership knows nothing of runs any more.
        if numbers.health.acts() {
            numbers.objects.unfinished = unfinished;
        }
    }
}

/// What is counted.
impl Telemetry {
    /// Something went wrong that is not an outcome of a run.
    pub fn error(&self, what: &'static str) {
        self.numbers().counts.error(what);
    }

    /// An object was written to the state folder, or could not be.
    pub fn state_written(&self, done: bool) {
        self.numbers().counts.state_written(done);
    }

    /// The Kubernetes API was asked. `verb` and `resource` are those that a rule
    /// of RBAC would name, from a closed list; `code` is absent without an answer.
    pub fn api_request(
        &self,
        verb: &'static str,
        resource: &'static str,
        code: Option<u16>,
        took: Duration,
    ) {
        self.numbers()
            .counts
            .api_request(verb, resource, code, took);
    }

    /// The watch of a kind failed and is begun again.
    pub fn watch_failed(&self, kind: &'static str) {
        *self
            .numbers()
            .counts
            .watch_restarts
            .entry(kind)
            .or_default() += 1;
    }

    /// So many objects of a kind are known now.
    pub fn watched(&self, kind: &'static str, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.numbers().counts.objects.insert(kind, count);
    }
}

/// Health.
impl Telemetry {
    /// Whether this process is the one that acts. Until that is said for the first
    /// time, and while it is true, the engine has to come round; a process that
    /// waits for the leadership is alive without.
    pub fn leader(&self, leads: bool) {
        let mut numbers = self.numbers();
        numbers.health.lead(leads);
        if !leads {
            numbers.objects.unfinished.clear();
        }
    }

    /// The engine has begun a round over all objects.
    pub fn round(&self, at: Timestamp) {
        self.numbers().health.round(at);
    }

    /// What was stored is known, and the objects have been read.
    pub fn ready(&self) {
        self.numbers().health.ready = true;
    }

    /// Whether the process is alive, or what is wrong.
    ///
    /// # Errors
    /// When the engine should come round and does not.
    pub fn alive(&self) -> Result<(), Stuck> {
        self.numbers().health.alive(Instant::now())
    }

    /// Whether the process does its work, or could take it over.
    pub fn is_ready(&self) -> bool {
        self.numbers().health.ready
    }
}

impl Telemetry {
    /// All metrics in the OpenMetrics text format. With ten thousand policies that
    /// is some work: not for a thread that serves others.
    ///
    /// # Errors
    /// None in practice: writing to a `String` does not fail.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let size = self.numbers().page;
        let text = self.scrape().render(size + size / 16)?;
        self.numbers().page = text.len();
        Ok(text)
    }

    fn scrape(&self) -> Scrape {
        let sources = self.sources.get();
        let (objects, counts, health) = {
            let numbers = self.numbers();
            let Numbers {
                objects,
                counts,
                health,
                page: _,
            } = &*numbers;
            (objects.clone(), counts.clone(), health.clone())
        };
        Scrape {
            objects,
            counts,
            health,
            sources: sources.map(|sources| sources.stats()).unwrap_or_default(),
            deliveries: sources
                .map(|sources| sources.deliveries())
                .unwrap_or_default(),
            process: metrics_process::collector::collect(),
        }
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        // They are written one by one; none depends on another.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the counts of these sources.
    pub fn new(sources: Arc<Sources>) -> Self {
        let telemetry = Telemetry::default();
        telemetry.tell_of(sources);
        telemetry
    }

    /// Shows the counts of these sources too. Only the first that are given count.
    pub fn tell_of(&self, sources: Arc<Sources>) {
        let _ = self.sources.set(sources);
    }
}
