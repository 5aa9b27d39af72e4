//! When: from a policy, what is remembered and what is seen to a decision.
//!
//! [`decide`] is called once for each evaluation of a policy on a cluster. It
//! returns what to remember (to be stored *before* a run is created) and, at
//! most, one run to create. A decision is a value with a closed reason; waiting
//! is not an error.

mod blocked;
mod blockers;
mod episode;
mod ingest;
mod pause;
mod policy;
mod timeline;

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};

use super::name;
use super::quantity::human_bytes;
use super::reason::Reason;
use super::run::Note;
use super::signal::{Reading, SignalState};
use super::window::{ClosedBy, Gate};

pub use blocked::blocked_since;
pub use blockers::{Blocked, BlockedBy, Blocker, MAX_BLOCKED_FOR, MAX_BLOCKERS, OnNoData};
pub use episode::wants_sample_age;
pub use pause::wait_after_useless;
pub use policy::*;
pub use timeline::{Spell, TIMELINE, TIMELINE_TOTAL, note_decision};

/// A day, for `maxRunsPerDay`: any 24 hours, not a calendar day.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Everything that one evaluation takes into account.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub now: Timestamp,
    /// The policy's name.
    pub policy: &'a str,
    /// Tells apart policies that had the same name one after the other; may be empty.
    pub uid: &'a str,
    /// The cluster, by the name that run names are made of.
    pub cluster: &'a str,
    /// What the signal said. `None` when it was not asked (suspended).
    pub primary: Option<Reading>,
    /// What the probe said, when [`wants_fallback`] asked for it.
    pub fallback: Option<Reading>,
    /// Whether the declared emergency is on, and the evidence in words.
    pub emergency: Option<String>,
    /// What each of the policy's blockers said, in their order. `None` when they were
    /// not asked: see [`Decision::asks_blockers`].
    pub blockers: Option<&'a [Reading]>,
    /// Every run on this cluster that is stored, whoever made it, or why they
    /// cannot be listed.
    pub runs: Result<&'a [RunSummary], String>,
}

/// A run to create.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateRun {
    pub name: String,
    /// Why, for the event and the run's annotation.
    pub note: Note,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to remember. Its `decision` is the note below.
    pub state: ClusterState,
    pub note: Note,
    pub create: Option<CreateRun>,
    /// When something is due before the next regular evaluation.
    pub recheck: Option<Timestamp>,
    /// Only the blockers stand between the policy and a run, and they have not been
    /// asked: to be decided again with what they say.
    pub asks_blockers: bool,
}

/// True when the probe must be asked because the primary source has been silent
/// for `fallback.after`, counted from what is remembered.
pub fn wants_fallback(
    policy: &Policy,
    state: &ClusterState,
    primary: &Reading,
    now: Timestamp,
) -> bool {
    let Some(fallback) = &policy.fallback else {
        return false;
    };
    if policy.on_silence(primary) != Some(OnSilence::Fallback) {
        return false;
    }
    let since = state
        .failing_since
        .filter(|since| *since <= now)
        .unwrap_or(now);
    now.duration_since(since) >= fallback.after
}

impl Policy {
    /// What a reading without a usable answer counts as; `None` for a usable
    /// one and for faults that a person has to mend in the configuration.
    fn on_silence(&self, reading: &Reading) -> Option<OnSilence> {
        match reading.state {
            SignalState::NoData => Some(self.no_data),
            SignalState::Error if !reading.reason.is_configuration() => Some(self.on_error),
            _ => None,
        }
    }
}

/// Decides about one policy on one cluster.
pub fn decide(policy: &Policy, state: ClusterState, facts: &Facts<'_>) -> Decision {
    let first = state.observed_trigger.is_none();
    let mut state = state;
    if let Ok(runs) = facts.runs {
        ingest::runs(policy, &mut state, runs, facts);
    }
    if first {
        // A value that stands there from the start is not a change.
        state.observed_trigger = Some(policy.trigger.clone());
    }
    state.next_eligible = None;
    let verdict = consider(policy, &mut state, facts);
    let Verdict {
        note,
        create,
        recheck,
        asks_blockers,
    } = verdict;
    let due = state.firing_since.is_some() || pending_trigger(policy, &state).is_some();
    blockers::forget(&mut state, due);
    // Shown whatever was decided: a quiet or suspended policy rests too.
    let rest = pause::after_last_run(policy, &state, facts.now);
    if let Some(rest) = &rest {
        state.next_eligible = state.next_eligible.max(Some(rest.until));
    }
    state.resting = rest.map(|rest| Note::new(rest.reason, rest.message));
    state.decision = Some(note.clone());
    Decision {
        state,
        note,
        create,
        recheck,
        asks_blockers,
    }
}

struct Verdict {
    note: Note,
    create: Option<CreateRun>,
    recheck: Option<Timestamp>,
    asks_blockers: bool,
}

impl Verdict {
    fn wait(reason: Reason, message: impl Into<String>) -> Self {
        Verdict {
            note: Note::new(reason, message),
            create: None,
            recheck: None,
            asks_blockers: false,
        }
    }

    fn until(mut self, at: Timestamp) -> Self {
        self.recheck = Some(at);
        self
    }
}

fn consider(policy: &Policy, state: &mut ClusterState, facts: &Facts<'_>) -> Verdict {
    let now = facts.now;
    if policy.suspend {
        stand_still(policy, state);
        return Verdict::wait(
            Reason::Suspended,
            "spec.suspend is set; nothing starts until it is cleared",
        );
    }
    if let Some(until) = policy.pause_end(now) {
        stand_still(policy, state);
        state.next_eligible = Some(until);
        return Verdict::wait(Reason::Paused, format!("paused until {until}")).until(until);
    }
    let Some(primary) = &facts.primary else {
        return Verdict::wait(Reason::SignalFailing, "the signal was not evaluated");
    };
    let reading = episode::effective(policy, state, primary, facts);
    episode::advance(policy, state, &reading, now);

    let runs = match facts.runs {
        Ok(runs) => runs,
        Err(ref why) => {
            return Verdict::wait(
                Reason::RunsUnreadable,
                format!("nothing is created while the runs cannot be read: {why}"),
            );
        }
    };
    if let Some(busy) = busy(runs) {
        return busy;
    }
    if let Some(trigger) = pending_trigger(policy, state) {
        return triggered(policy, state, facts, trigger);
    }
    if let Some(waiting) = episode::verdict(policy, state, &reading, now) {
        // Right after a run both are true, and the pause tells more.
        return match pause::after_last_run(policy, state, now) {
            Some(pause) if waiting.note.reason == Reason::SampleTooOld => rest(state, pause),
            _ => waiting,
        };
    }
    held(policy, state, facts, &reading)
}

/// While suspended or paused the signal counts for nothing, and a changed
/// trigger is taken note of: resuming must not make up for anything.
fn stand_still(policy: &Policy, state: &mut ClusterState) {
    state.firing_since = None;
    state.gap_since = None;
    state.failing_since = None;
    state.observed_trigger = Some(policy.trigger.clone());
}

fn busy(runs: &[RunSummary]) -> Option<Verdict> {
    let active = |own: bool| runs.iter().find(|r| r.own == own && r.end.is_none());
    if let Some(run) = active(true) {
        return Some(Verdict::wait(
            Reason::RunInProgress,
            format!(
                "run {} was created at {} and is not finished",
                run.name, run.created_at
            ),
        ));
    }
    let run = active(false)?;
    Some(Verdict::wait(
        Reason::ClusterBusy,
        format!("run {} has the cluster or waits for it", run.name),
    ))
}

fn pending_trigger<'a>(policy: &'a Policy, state: &ClusterState) -> Option<&'a str> {
    let asked = policy.trigger.as_deref()?;
    let seen = state.observed_trigger.as_ref().and_then(Option::as_deref);
    (seen != Some(asked)).then_some(asked)
}

/// A person asked for a run: it passes the signal, `for`, cooldown, back-off,
/// windows and the daily limit. A blackout holds it back until it is over, and so
/// does a blocker.
fn triggered(
    policy: &Policy,
    state: &mut ClusterState,
    facts: &Facts<'_>,
    trigger: &str,
) -> Verdict {
    if let Gate::Closed {
        reason: ClosedBy::Blackout,
        opens,
    } = policy.schedule.at(facts.now)
    {
        state.next_eligible = opens;
        let mut verdict = Verdict::wait(
            Reason::Blackout,
            format!("the triggered run waits: a blackout is on{}", until(opens)),
        );
        verdict.recheck = opens;
        return verdict;
    }
    if let Some(mut verdict) = blockers::hold(policy, state, facts) {
        verdict.note.message = format!("the triggered run waits: {}", verdict.note.message);
        return verdict;
    }
    if policy.dry_run {
        state.observed_trigger = Some(policy.trigger.clone());
        return Verdict::wait(
            Reason::DryRun,
            "the trigger changed; a run would be created now",
        );
    }
    create(
        trigger_run(state, facts, trigger),
        Note::new(Reason::Triggered, "spec.trigger changed"),
    )
}

fn rest(state: &mut ClusterState, pause: pause::Pause) -> Verdict {
    state.next_eligible = Some(pause.until);
    Verdict::wait(pause.reason, pause.message).until(pause.until)
}

/// The name of the run that this value of the trigger asks for. A value that comes
/// back later asks for another one: other runs have ended in between.
fn trigger_run(state: &ClusterState, facts: &Facts<'_>, trigger: &str) -> String {
    let after = state.last_run.as_ref().map(|run| run.name.as_str());
    name::of_trigger(facts.policy, facts.uid, facts.cluster, trigger, after)
}

/// The signal has held for `for`: what else speaks against a run?
fn held(
    policy: &Policy,
    state: &mut ClusterState,
    facts: &Facts<'_>,
    reading: &Reading,
) -> Verdict {
    let now = facts.now;
    let mut passes: Vec<String> = Vec::new();

    if let Some(pause) = pause::after_last_run(policy, state, now) {
        match &facts.emergency {
            Some(evidence) if pause.reason == Reason::CoolingDown => {
                passes.push(format!("cooldown ({evidence})"));
            }
            _ => return rest(state, pause),
        }
    }
    if let Some(limit) = daily_limit(policy, state, now) {
        return limit;
    }
    if let Gate::Closed { reason, opens } = policy.schedule.at(now) {
        match (&facts.emergency, reason) {
            (Some(evidence), ClosedBy::OutsideWindows) => {
                passes.push(format!("windows ({evidence})"));
            }
            _ => {
                let (reason, what) = match reason {
                    ClosedBy::OutsideWindows => (Reason::OutsideWindow, "no window is open"),
                    ClosedBy::Blackout => (Reason::Blackout, "a blackout is on"),
                };
                state.next_eligible = opens;
                let mut verdict =
                    Verdict::wait(reason, format!("firing, but {what}{}", until(opens)));
                verdict.recheck = opens;
                return verdict;
            }
        }
    }
    // Last, so that they are asked only when a run would start. No emergency passes them.
    if let Some(verdict) = blockers::hold(policy, state, facts) {
        return verdict;
    }
    let Some(episode) = state.firing_since else {
        return Verdict::wait(Reason::HoldingFor, "the firing episode has just begun");
    };
    let note = if passes.is_empty() {
        Note::new(
            Reason::SignalFiring,
            format!("{}; it has fired since {episode}", reading.message),
        )
    } else {
        Note::new(
            Reason::Emergency,
            format!(
                "{}; an emergency passes {}",
                reading.message,
                passes.join(" and ")
            ),
        )
    };
    if policy.dry_run {
        return Verdict::wait(
            Reason::DryRun,
            format!("a run would be created now: {}", note.message),
        );
    }
    let after = state.last_run.as_ref().map(|run| run.name.as_str());
    create(
        name::of_episode(facts.policy, facts.uid, facts.cluster, episode, after),
        note,
    )
}

fn daily_limit(policy: &Policy, state: &mut ClusterState, now: Timestamp) -> Option<Verdict> {
    let limit = policy.max_runs_per_day?;
    let recent: Vec<Timestamp> = state
        .run_starts
        .iter()
        .map(|start| start.at)
        .filter(|at| now.duration_since(*at) < DAY)
        .collect();
    if recent.len() < limit as usize {
        return None;
    }
    // The slot that frees the limit again is `limit` starts back.
    let frees = recent[recent.len() - limit as usize];
    let until = frees.checked_add(DAY).unwrap_or(Timestamp::MAX);
    state.next_eligible = Some(until);
    Some(
        Verdict::wait(
            Reason::DailyLimit,
            format!(
                "{} runs within 24 hours, maxRunsPerDay is {limit}; the next may start at {until}",
                recent.len()
            ),
        )
        .until(until),
    )
}

fn create(name: String, note: Note) -> Verdict {
    Verdict {
        note: Note::new(Reason::RunCreated, format!("run {name}: {}", note.message)),
        create: Some(CreateRun { name, note }),
        recheck: None,
        asks_blockers: false,
    }
}

fn until(opens: Option<Timestamp>) -> String {
    opens
        .map(|at| format!("; the next opening is at {at}"))
        .unwrap_or_default()
}

/// To be remembered once the host has the run: it is on its way.
pub fn created(
    policy: &Policy,
    mut state: ClusterState,
    run: &CreateRun,
    now: Timestamp,
) -> ClusterState {
    if run.note.reason == Reason::Triggered {
        state.observed_trigger = Some(policy.trigger.clone());
    }
    state.active_run = Some(run.name.clone());
    ingest::note_start(&mut state, &run.name, now);
    state
}

/// `reclaimed 1.2 GiB` for messages about a finished run.
fn gave_back(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "an unknown amount".to_owned(), human_bytes)
}
