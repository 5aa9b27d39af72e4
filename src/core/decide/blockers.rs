//! Blockers: signals that hold a run back while they fire.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use crate::core::duration;
use crate::core::reason::Reason;
use crate::core::signal::{Reading, Signal, SignalState, bounded};

use super::{ClusterState, Facts, Policy, Verdict};

/// Most blockers of one policy.
pub const MAX_BLOCKERS: usize = 8;
/// How much of what one blocker said is repeated, in characters.
const SAID_CHARS: usize = 200;
/// How many blockers are quoted; the others are named.
const QUOTED: usize = 3;

/// A signal that holds runs back while it fires: an upgrade, a backup, an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocker {
    /// Unique within the policy.
    pub name: String,
    pub signal: Signal,
    pub no_data: OnNoData,
}

/// What a blocker without data counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNoData {
    /// Nobody knows, so nothing starts.
    Block,
    /// Nothing speaks about it, so there is nothing in the way.
    Pass,
}

/// What is remembered while blockers hold a run back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Since when a run that was due has been held back.
    pub since: Timestamp,
    pub by: Vec<BlockedBy>,
    /// What they said when that last changed.
    pub message: String,
    /// For longer than `maxBlockedFor`.
    pub too_long: bool,
}

/// A blocker that is on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedBy {
    pub name: String,
    pub reason: Reason,
}

impl Blocker {
    /// Only a plain "no" lets a run pass, and silence where the policy says so.
    fn holds(&self, reading: &Reading) -> bool {
        match reading.state {
            SignalState::NotFiring => false,
            SignalState::NoData => self.no_data == OnNoData::Block,
            SignalState::Firing | SignalState::Inconclusive | SignalState::Error => true,
        }
    }

    /// What it said, for a person.
    fn said(&self, reading: &Reading) -> String {
        let said = bounded(&reading.message, SAID_CHARS);
        match reading.state {
            SignalState::Firing => format!("blocker {:?} fires: {said}", self.name),
            SignalState::NoData => format!("blocker {:?} has no data: {said}", self.name),
            SignalState::Inconclusive => format!("blocker {:?} proves nothing: {said}", self.name),
            SignalState::NotFiring | SignalState::Error => {
                format!(
                    "blocker {:?} cannot be read ({}): {said}",
                    self.name, reading.reason
                )
            }
        }
    }
}

/// Why blockers hold the run back that is due; `None` when none does.
pub(super) fn hold(
    policy: &Policy,
    state: &mut ClusterState,
    facts: &Facts<'_>,
) -> Option<Verdict> {
    if policy.blockers.is_empty() {
        state.blocked = None;
        return None;
    }
    let Some(readings) = facts.blockers else {
        let mut verdict = Verdict::wait(Reason::Blocked, "the blockers have not been asked");
        verdict.asks_blockers = true;
        return Some(verdict);
    };
    let unasked = Reading::error(Reason::SignalFailing, "it was not asked");
    let mut by = Vec::new();
    let mut said = Vec::new();
    for (i, blocker) in policy.blockers.iter().enumerate() {
        let reading = readings.get(i).unwrap_or(&unasked);
        if blocker.holds(reading) {
            by.push(BlockedBy {
                name: blocker.name.clone(),
                reason: reading.reason,
            });
            said.push(blocker.said(reading));
        }
    }
    if by.is_empty() {
        state.blocked = None;
        return None;
    }
    let now = facts.now;
    let old = state.blocked.take();
    let since = old.as_ref().map_or(now, |old| old.since.min(now));
    // A number that wobbles is no news: it would be written at each evaluation.
    let message = match old {
        Some(old) if old.by == by => old.message,
        _ => together(&said, &by),
    };
    let until = policy
        .max_blocked_for
        .and_then(|max| Some((max, since.checked_add(max).ok()?)));
    let too_long = until.is_some_and(|(_, until)| until <= now);
    let mut text = format!("{message}; a run has waited for that since {since}");
    if let Some((max, _)) = until.filter(|_| too_long) {
        let _ = write!(
            text,
            ", longer than maxBlockedFor ({}); nothing is overridden: end what blocks, or mend the blocker",
            duration::format(max)
        );
    }
    state.blocked = Some(Blocked {
        since,
        by,
        message,
        too_long,
    });
    let mut verdict = Verdict::wait(Reason::Blocked, text);
    verdict.recheck = until.map(|(_, until)| until).filter(|until| *until > now);
    Some(verdict)
}

fn together(said: &[String], by: &[BlockedBy]) -> String {
    let mut text = said[..said.len().min(QUOTED)].join("; ");
    if let Some(more) = by.get(QUOTED..).filter(|more| !more.is_empty()) {
        let names: Vec<&str> = more.iter().map(|by| by.name.as_str()).collect();
        let _ = write!(text, "; and {}", names.join(", "));
    }
    text
}

/// Nothing is held back once nothing is due any more.
pub(super) fn forget(state: &mut ClusterState, due: bool) {
    if !due {
        state.blocked = None;
    }
}

/// The longest that `maxBlockedFor` may be.
pub const MAX_BLOCKED_FOR: SignedDuration = SignedDuration::from_hours(90 * 24);
