//! A validated policy, and what is remembered between its evaluations.

use jiff::{SignedDuration, Timestamp};

use crate::core::fleet::{Fleet, SeriesMatch};
use crate::core::reason::Reason;
use crate::core::rule::{Percent, Rule};
use crate::core::run::{Note, RunSpec};
use crate::core::signal::{Signal, SignalState};
use crate::core::window::Schedule;

use super::{Blocked, Blocker, Spell};

/// How often a signal is evaluated when the policy does not say.
pub const DEFAULT_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Pause after a run when the policy does not say. Longer than the look-backs
/// in common use, so that the effect of a run is visible before the next.
pub const DEFAULT_COOLDOWN: SignedDuration = SignedDuration::from_hours(1);
/// Growth of the wait after a run that gave back too little.
pub const DEFAULT_BACKOFF_FACTOR: u32 = 2;
/// Longest wait between runs when the policy does not say.
pub const DEFAULT_BACKOFF_MAX: SignedDuration = SignedDuration::from_hours(24);
/// What a run has to give back to count as useful, in bytes. The same floor as
/// the rule's `minReclaim`.
pub const DEFAULT_MIN_RECLAIM: u64 = 32 << 20;
/// First wait after a failed run; it doubles with each further failure.
pub const FAILURE_BACKOFF_BASE: SignedDuration = SignedDuration::from_mins(5);
/// Failed runs in a row after which a policy counts as degraded.
pub const DEGRADED_AFTER: u32 = 3;
/// Shortest silence of the evidence after which a firing episode starts over.
/// The look-back of Prometheus.
pub const GAP_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// When to run: a validated `EtcdDefragPolicy` spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub signal: Signal,
    /// The clusters that are selected; `None`: the one that is named.
    pub fleet: Option<Fleet>,
    /// Which series are about which cluster; `None`: each about all.
    pub series: Option<SeriesMatch>,
    /// How long the signal must fire without a break.
    pub hold_for: SignedDuration,
    pub interval: SignedDuration,
    pub no_data: OnSilence,
    pub on_error: OnSilence,
    pub fallback: Option<Fallback>,
    pub schedule: Schedule,
    pub blockers: Vec<Blocker>,
    /// Held back by blockers for longer is worth a warning; it overrides nothing.
    pub max_blocked_for: Option<SignedDuration>,
    /// From the end of the last run on the cluster, whoever made it.
    pub cooldown: SignedDuration,
    pub backoff: Backoff,
    pub max_runs_per_day: Option<u32>,
    pub emergency: Option<Emergency>,
    pub suspend: bool,
    pub paused_until: Option<Timestamp>,
    pub dry_run: bool,
    pub trigger: Option<String>,
    pub history: HistoryLimit,
    pub template: RunSpec,
}

impl Policy {
    /// True when nothing may start whatever the signal says: then nobody needs
    /// to be asked.
    pub fn stands_still(&self, now: Timestamp) -> bool {
        self.suspend || self.pause_end(now).is_some()
    }

    /// The end of `pausedUntil`, while it lies ahead.
    pub(super) fn pause_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.paused_until.filter(|until| *until > now)
    }
}

/// What a signal without a usable answer counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSilence {
    /// Nothing starts, nothing is cleared.
    Hold,
    /// After `fallback.after` the probe decides.
    Fallback,
    /// It counts as firing.
    Fire,
}

/// The probe that decides while the source is silent.
#[derive(Clone, Debug, PartialEq)]
pub struct Fallback {
    pub after: SignedDuration,
    pub rule: Rule,
}

/// The wait after runs that gave back too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub factor: u32,
    pub max: SignedDuration,
    /// Bytes over the whole cluster.
    pub min_reclaim: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            factor: DEFAULT_BACKOFF_FACTOR,
            max: DEFAULT_BACKOFF_MAX,
            min_reclaim: DEFAULT_MIN_RECLAIM,
        }
    }
}

/// What lets a firing signal pass windows and cooldown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emergency {
    pub quota_usage_above: Option<Percent>,
    pub no_space: bool,
}

/// How many finished runs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimit {
    pub successful: u32,
    pub failed: u32,
}

impl Default for HistoryLimit {
    fn default() -> Self {
        HistoryLimit {
            successful: 3,
            failed: 3,
        }
    }
}

/// What is remembered of one policy on one cluster. It lives in the policy's
/// status and survives a restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterState {
    pub signal: Option<SignalRecord>,
    /// Start of the firing episode, moved forward by gaps in the evidence.
    pub firing_since: Option<Timestamp>,
    /// Since when a firing episode lacks evidence.
    pub gap_since: Option<Timestamp>,
    /// When evidence for the episode was last seen; refreshed coarsely.
    pub evidence_at: Option<Timestamp>,
    /// Since when the primary source has given no usable answer.
    pub failing_since: Option<Timestamp>,
    /// The fallback decided the last evaluation.
    pub fallback_active: bool,
    pub active_run: Option<String>,
    pub last_run: Option<LastRun>,
    /// End of the last run on the cluster that succeeded, also when others have
    /// ended since; a dry run of this policy does not count.
    pub last_success: Option<Timestamp>,
    /// Useless runs in a row.
    pub backoff_level: u32,
    /// Failed runs in a row.
    pub failure_level: u32,
    /// The runs of the last 24 hours, oldest first.
    pub run_starts: Vec<RunStart>,
    /// Names of listed finished runs that have been taken into account. A name
    /// goes when its run is no longer listed.
    pub accounted: Vec<String>,
    /// The value of `spec.trigger` that has been dealt with. The outer `None`
    /// means that the policy has never been evaluated.
    pub observed_trigger: Option<Option<String>>,
    pub next_eligible: Option<Timestamp>,
    /// The cooldown or back-off that is on, whatever else was decided.
    pub resting: Option<Note>,
    /// Set while blockers hold back a run that is due.
    pub blocked: Option<Blocked>,
    pub decision: Option<Note>,
    /// The last decisions, oldest first.
    pub timeline: Vec<Spell>,
}

/// A run of this policy and when it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStart {
    pub name: String,
    pub at: Timestamp,
}

/// The last evaluation of the signal, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalRecord {
    pub state: SignalState,
    pub reason: Reason,
    pub value: Option<f64>,
    pub message: String,
    pub sampled_at: Option<Timestamp>,
    pub origin: Origin,
}

/// Who gave the reading that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Primary,
    Fallback,
}

/// The last finished run on the cluster that counts for the cooldown.
#[derive(Clone, Debug, PartialEq)]
pub struct LastRun {
    pub name: String,
    pub succeeded: bool,
    pub reason: Reason,
    /// Bytes.
    pub reclaimed: Option<u64>,
    /// On this machine's clock; never later than the moment it was first seen.
    pub finished_at: Timestamp,
    /// Made by this policy.
    pub own: bool,
    /// A mutating call may have reached the cluster.
    pub touched: bool,
}

/// A run on the cluster, as listed.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    pub name: String,
    /// Made by this policy.
    pub own: bool,
    pub created_at: Timestamp,
    pub dry_run: bool,
    /// Set once the run is terminal.
    pub end: Option<RunEnd>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEnd {
    pub at: Timestamp,
    pub succeeded: bool,
    pub reason: Reason,
    /// Bytes.
    pub reclaimed: u64,
    /// A mutating call may have reached the cluster.
    pub touched: bool,
}
