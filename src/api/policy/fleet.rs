//! The status of a policy that selects its clusters: compact, so that a thousand
//! of them stay within what one object may hold.
//!
//! An API server passes an object of at most about 1.5 MiB on to etcd, and it adds
//! who owns which field. So the list of clusters is atomic (its owner is one entry),
//! what is only said to people is short, and is left out where room is short (first
//! sentences, then the time lines). What
//! guards a cluster (its last run, its pauses, its starts) is never left out: a
//! status that would still be too large is not stored, and nothing is started on
//! the strength of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::blocked::keep_small;
use super::convert::broken;
use super::status::{ClusterStatus, EtcdDefragPolicyStatus, SummaryStatus, UnmatchedStatus};
use crate::api::conditions::{self, ConditionStatus, types};
use crate::api::scalar::Time;
use crate::core::decide::{ClusterState, DEGRADED_AFTER};
use crate::core::fleet::{MAX_CLUSTERS, Unmatched};
use crate::core::reason::Reason;
use crate::core::signal::{SignalState, bounded};

/// Longest message of a signal, of a decision, of a rest, in characters.
const SIGNAL_CHARS: usize = 160;
const DECISION_CHARS: usize = 200;
const RESTING_CHARS: usize = 100;
/// Beyond so many bytes of JSON messages are left out.
const WITH_MESSAGES: usize = 900 * 1024;
/// Beyond so many nothing is stored. etcd refuses requests of more than 1.5 MiB,
/// and the rest of the object comes on top.
const MAX_BYTES: usize = 1280 * 1024;
/// Names that a sentence lists.
const NAMES: usize = 5;
/// Different states or reasons that a column shows.
const KINDS: usize = 4;

/// A policy and its clusters at one moment.
#[derive(Clone, Debug)]
pub struct FleetNow<'a> {
    pub generation: i64,
    /// What is wrong with the spec; then the clusters are not known.
    pub invalid: Option<&'a str>,
    /// The names of its clusters.
    pub members: BTreeSet<String>,
    /// Names of those that match and are too many.
    pub excess: Vec<String>,
    /// Why clusters of some kind are not known.
    pub unlisted: &'a [String],
    /// What was just found out, by cluster.
    pub states: HashMap<String, &'a ClusterState>,
    /// Whether a label of the series says which of them each is about.
    pub labelled: bool,
    /// Series about none of them, when somebody just looked.
    pub unmatched: Option<Option<&'a Unmatched>>,
    /// How long a cluster that left is remembered.
    pub remember: SignedDuration,
}

/// What would have to be stored has so many bytes, which is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge(pub usize);

impl EtcdDefragPolicyStatus {
    /// The status after what was just found out.
    ///
    /// # Errors
    /// When it has no room in one object.
    pub fn of_fleet(
        fleet: &FleetNow<'_>,
        previous: &EtcdDefragPolicyStatus,
        now: Timestamp,
    ) -> Result<EtcdDefragPolicyStatus, TooLarge> {
        let mut status = previous.clone();
        status.observed_generation = Some(fleet.generation);
        if let Some(problem) = fleet.invalid {
            status.set(types::READY, false, Reason::InvalidSpec, problem, now);
            return Ok(status);
        }
        let clusters = clusters(fleet, previous, now)?;
        if !fleet.labelled {
            status.forget_series();
        } else if let Some(unmatched) = fleet.unmatched {
            status.series(unmatched, now);
        }
        let present: Vec<&ClusterStatus> = clusters
            .iter()
            .filter(|cluster| cluster.absent_since.is_none())
            .collect();
        let view = View::new(&present, fleet);
        status.summary = Some(view.summary());
        view.conditions(fleet, &mut status, now);
        status.clusters = clusters;
        Ok(status)
    }

    /// The status as it was, with what is wrong.
    pub fn too_large(
        fleet: &FleetNow<'_>,
        TooLarge(bytes): TooLarge,
        previous: &EtcdDefragPolicyStatus,
        now: Timestamp,
    ) -> EtcdDefragPolicyStatus {
        let mut status = previous.clone();
        status.observed_generation = Some(fleet.generation);
        let problem = format!(
            "what is to be remembered of {} clusters takes {bytes} bytes and at most {MAX_BYTES} are stored in one \
             object; nothing is started; select fewer by labels, in several policies",
            fleet.members.len()
        );
        status.set(types::READY, false, Reason::TooManyClusters, &problem, now);
        status
    }

    fn set(
        &mut self,
        type_: &str,
        status: impl Into<ConditionStatus>,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) {
        let generation = self.observed_generation;
        let list = &mut self.conditions;
        conditions::set(list, type_, status, reason, message, now, generation);
    }

    /// Nobody asks any more whose a series is, so what was found says nothing.
    fn forget_series(&mut self) {
        self.unmatched_series = None;
        self.conditions
            .retain(|condition| condition.type_ != types::SERIES_MATCHED);
    }

    fn series(&mut self, unmatched: Option<&Unmatched>, now: Timestamp) {
        let Some(unmatched) = unmatched else {
            // Nobody could say; what was known stays, as a signal's last state does not.
            return;
        };
        let Unmatched {
            series,
            unlabelled,
            values,
            listed,
        } = unmatched;
        if *series == 0 {
            self.unmatched_series = None;
            let reason = Reason::SeriesMatched;
            self.set(types::SERIES_MATCHED, true, reason, reason.sentence(), now);
            return;
        }
        let number = |count: &usize| u64::try_from(*count).unwrap_or(u64::MAX);
        self.unmatched_series = Some(UnmatchedStatus {
            series: number(series),
            unlabelled: number(unlabelled),
            values: number(values),
            listed: listed.clone(),
        });
        let mut message = format!("{series} series are about no cluster of the policy");
        if *values > 0 {
            let names: Vec<&str> = listed.iter().map(String::as_str).collect();
            message.push_str(&format!(": {}", enumerate(&names, *values)));
        }
        if *unlabelled > 0 {
            message.push_str(&format!("; {unlabelled} of them lack the label"));
        }
        message
            .push_str("; describe these clusters and label them, or leave them out of the query");
        let reason = Reason::SeriesUnmatched;
        self.set(types::SERIES_MATCHED, false, reason, &message, now);
    }
}

/// The clusters, each as compact as it has to be.
fn clusters(
    fleet: &FleetNow<'_>,
    previous: &EtcdDefragPolicyStatus,
    now: Timestamp,
) -> Result<Vec<ClusterStatus>, TooLarge> {
    let mut by_name: BTreeMap<&str, ClusterStatus> = BTreeMap::new();
    let mut left: Vec<ClusterStatus> = Vec::new();
    for cluster in &previous.clusters {
        if fleet.members.contains(&cluster.name) {
            let present = ClusterStatus {
                absent_since: None,
                ..cluster.clone()
            };
            by_name.insert(&cluster.name, present);
        } else if fleet.unlisted.is_empty() || cluster.absent_since.is_some() {
            left.extend(absent(cluster, fleet.remember, now));
        } else {
            // Nobody knows whether it left.
            by_name.insert(&cluster.name, cluster.clone());
        }
    }
    for name in &fleet.members {
        if let Some(state) = fleet.states.get(name) {
            let mut cluster = ClusterStatus::from_state(name, state);
            cluster.shorten();
            by_name.insert(name, cluster);
        }
    }
    // Those that left last are kept before those that left long ago.
    left.sort_by_key(|cluster| std::cmp::Reverse(cluster.absent_since.map(Time::timestamp)));
    left.truncate(MAX_CLUSTERS.saturating_sub(by_name.len()));
    let mut clusters: Vec<ClusterStatus> = by_name.into_values().chain(left).collect();
    clusters.sort_by(|a, b| a.name.cmp(&b.name));
    keep_small(&mut clusters);
    if bytes(&clusters) > WITH_MESSAGES {
        for cluster in &mut clusters {
            cluster.silence();
        }
        if bytes(&clusters) > MAX_BYTES {
            for cluster in &mut clusters {
                cluster.timeline.clear();
            }
        }
        let bytes = bytes(&clusters);
        if bytes > MAX_BYTES {
            return Err(TooLarge(bytes));
        }
    }
    Ok(clusters)
}

fn bytes(clusters: &[ClusterStatus]) -> usize {
    let each = clusters.iter();
    each.map(|cluster| serde_json::to_vec(cluster).map_or(0, |json| json.len() + 1))
        .sum()
}

/// A cluster that left, with what has to survive its coming back; `None` once it
/// is forgotten.
fn absent(
    cluster: &ClusterStatus,
    remember: SignedDuration,
    now: Timestamp,
) -> Option<ClusterStatus> {
    let since = cluster.absent_since.map_or(now, Time::timestamp).min(now);
    if now.duration_since(since) > remember {
        return None;
    }
    let mut cluster = ClusterStatus {
        absent_since: Some(since.into()),
        signal: None,
        blocked: None,
        decision: None,
        next_eligible_time: None,
        ..cluster.clone()
    };
    cluster.silence();
    if let Some(last) = cluster.timeline.last_mut() {
        last.until.get_or_insert(since.into());
    }
    Some(cluster)
}

impl ClusterStatus {
    /// Cuts sentences to a length that many clusters have room for.
    fn shorten(&mut self) {
        if let Some(signal) = &mut self.signal {
            signal.message = bounded(&signal.message, SIGNAL_CHARS);
        }
        if let Some(resting) = &mut self.resting {
            resting.message = bounded(&resting.message, RESTING_CHARS);
        }
        for spell in &mut self.timeline {
            spell.message = bounded(&spell.message, DECISION_CHARS);
        }
        if let Some(decision) = &mut self.decision {
            decision.message = bounded(&decision.message, DECISION_CHARS);
            // Most decisions repeat what the signal says.
            let said = self.signal.as_ref().map(|signal| signal.message.as_str());
            if said == Some(decision.message.as_str()) {
                decision.message.clear();
            }
        }
        if let Some(last) = &mut self.last_run {
            // For a person, and a repetition.
            last.reclaimed = None;
        }
    }

    /// Leaves out what is only said to people.
    fn silence(&mut self) {
        self.shorten();
        for spell in &mut self.timeline {
            spell.message.clear();
        }
        if let Some(signal) = &mut self.signal {
            signal.message.clear();
        }
        for note in [&mut self.resting, &mut self.decision]
            .into_iter()
            .flatten()
        {
            note.message.clear();
        }
    }
}

/// What is true of how many clusters.
struct View<'a> {
    present: &'a [&'a ClusterStatus],
    members: usize,
    states: BTreeMap<&'static str, usize>,
    reasons: BTreeMap<&'a str, usize>,
    firing: Vec<&'a str>,
    blocked: usize,
    running: usize,
}

impl<'a> View<'a> {
    fn new(present: &'a [&'a ClusterStatus], fleet: &FleetNow<'_>) -> Self {
        let mut view = View {
            present,
            members: fleet.members.len(),
            states: BTreeMap::new(),
            reasons: BTreeMap::new(),
            firing: Vec::new(),
            blocked: 0,
            running: 0,
        };
        for cluster in present {
            let reason = cluster.decision.as_ref().map(|note| note.reason.as_str());
            let state = cluster.signal.as_ref().map(|s| SignalState::from(s.state));
            if let Some(reason) = reason {
                *view.reasons.entry(reason).or_default() += 1;
            }
            if let Some(state) = state {
                *view.states.entry(state.as_str()).or_default() += 1;
            }
            if state == Some(SignalState::Firing) {
                view.firing.push(&cluster.name);
                let on_its_way = [
                    Reason::RunCreated,
                    Reason::RunInProgress,
                    Reason::HoldingFor,
                    Reason::DryRun,
                ];
                if reason.is_some_and(|reason| !on_its_way.iter().any(|r| r.as_str() == reason)) {
                    view.blocked += 1;
                }
            }
            view.running += usize::from(cluster.active_run.is_some());
        }
        view
    }

    fn summary(&self) -> SummaryStatus {
        let number = |count: usize| Some(u32::try_from(count).unwrap_or(u32::MAX));
        let last = self.present.iter().filter_map(|c| c.last_run.as_ref());
        let last = last.max_by_key(|run| run.finished_at.timestamp());
        SummaryStatus {
            cluster: match self.members {
                1 => "1 cluster".to_owned(),
                count => format!("{count} clusters"),
            },
            clusters: number(self.members),
            firing: number(self.firing.len()),
            blocked: number(self.blocked),
            running: number(self.running),
            signal: counts(&self.states),
            decision: counts(&self.reasons),
            last_run_time: last.map(|run| run.finished_at),
            outcome: last.map(|run| run.outcome),
            message: if self.firing.is_empty() {
                String::new()
            } else {
                let names = enumerate(&self.firing, self.firing.len());
                format!("firing: {names}")
            },
            ..SummaryStatus::default()
        }
    }

    fn conditions(
        &self,
        fleet: &FleetNow<'_>,
        status: &mut EtcdDefragPolicyStatus,
        now: Timestamp,
    ) {
        let mut set: Vec<(&str, ConditionStatus, Reason, String)> = Vec::new();
        let (ready, reason, message) = self.ready(fleet);
        set.push((types::READY, ready.into(), reason, message));
        if let Some((firing, reason, message)) = self.fires() {
            set.push((types::FIRING, firing, reason, message));
        }
        let of = |wanted: &dyn Fn(&ClusterStatus) -> bool| -> Vec<&str> {
            let found = self.present.iter().filter(|cluster| wanted(cluster));
            found.map(|cluster| cluster.name.as_str()).collect()
        };
        let on = |names: &[&str]| format!("on {}", enumerate(names, names.len()));
        let fallback = of(&|cluster| cluster.fallback_active);
        if !fallback.is_empty() {
            let message = on(&fallback);
            set.push((
                types::FALLBACK,
                true.into(),
                Reason::FallbackActive,
                message,
            ));
        } else if conditions::get(&status.conditions, types::FALLBACK).is_some() {
            let reason = Reason::FallbackEnded;
            set.push((
                types::FALLBACK,
                false.into(),
                reason,
                reason.sentence().to_owned(),
            ));
        }
        let blocked = of(&|cluster| cluster.blocked.is_some());
        if !blocked.is_empty() {
            let too_long = |c: &ClusterStatus| c.blocked.as_ref().is_some_and(|b| b.too_long);
            let late = of(&too_long);
            let (reason, names) = if late.is_empty() {
                (Reason::Blocked, &blocked)
            } else {
                (Reason::BlockedTooLong, &late)
            };
            set.push((types::BLOCKED, true.into(), reason, on(names)));
        } else if conditions::get(&status.conditions, types::BLOCKED).is_some() {
            let message = "no blocker holds a run back".to_owned();
            set.push((types::BLOCKED, false.into(), Reason::Accepted, message));
        }
        if self
            .present
            .iter()
            .any(|cluster| cluster.last_run.is_some())
        {
            let resting = of(&|cluster| cluster.resting.is_some());
            set.push(if resting.is_empty() {
                let message = "every cluster has rested".to_owned();
                (types::COOLING_DOWN, false.into(), Reason::Accepted, message)
            } else {
                let message = on(&resting);
                (
                    types::COOLING_DOWN,
                    true.into(),
                    Reason::CoolingDown,
                    message,
                )
            });
            let degraded = of(&|cluster| cluster.failure_level >= DEGRADED_AFTER);
            set.push(if degraded.is_empty() {
                let message = "the last runs did not fail repeatedly".to_owned();
                (types::DEGRADED, false.into(), Reason::Accepted, message)
            } else {
                let message = on(&degraded);
                (types::DEGRADED, true.into(), Reason::Degraded, message)
            });
        }
        let generation = status.observed_generation;
        for (type_, value, reason, message) in set {
            let list = &mut status.conditions;
            conditions::set(list, type_, value, reason, message, now, generation);
        }
    }

    fn ready(&self, fleet: &FleetNow<'_>) -> (bool, Reason, String) {
        if !fleet.excess.is_empty() {
            let names: Vec<&str> = fleet.excess.iter().map(String::as_str).collect();
            let message = format!(
                "{} clusters match and one policy serves {MAX_CLUSTERS}, the first by name; nothing is done for {}; \
                 select fewer by labels, in several policies",
                self.members + names.len(),
                enumerate(&names, names.len())
            );
            return (false, Reason::TooManyClusters, message);
        }
        if !fleet.unlisted.is_empty() {
            return (false, Reason::ClustersUnlisted, fleet.unlisted.join("; "));
        }
        if self.members == 0 {
            let message = "no cluster of this namespace matches clusterSelector; label one, or correct the selector";
            return (false, Reason::NoClusters, message.to_owned());
        }
        let states: Vec<(&str, ClusterState)> = self
            .present
            .iter()
            .filter(|cluster| fault(cluster))
            .map(|cluster| (cluster.name.as_str(), ClusterState::from(*cluster)))
            .collect();
        let faulty = states.iter().filter_map(|(name, state)| {
            let (why, what) = broken(state)?;
            // A decision that repeats what the signal says is not stored twice.
            let said = state.signal.as_ref().map(|signal| signal.message.as_str());
            let what = if what.is_empty() {
                said.unwrap_or_default()
            } else {
                what
            };
            Some((*name, why, what))
        });
        let faulty: Vec<(&str, Reason, &str)> = faulty.collect();
        if let Some((name, reason, what)) = faulty.first() {
            let others = match faulty.len() - 1 {
                0 => String::new(),
                count => format!("; {count} more clusters cannot be evaluated"),
            };
            return (false, *reason, format!("{name}: {what}{others}"));
        }
        (
            true,
            Reason::Accepted,
            Reason::Accepted.sentence().to_owned(),
        )
    }

    fn fires(&self) -> Option<(ConditionStatus, Reason, String)> {
        if !self.firing.is_empty() {
            let names = enumerate(&self.firing, self.firing.len());
            return Some((true.into(), Reason::SignalFiring, names));
        }
        let read: usize = self.states.values().sum();
        let quiet = self.states.get(SignalState::NotFiring.as_str()).copied();
        match (read, quiet.unwrap_or_default()) {
            (0, _) => None,
            (read, quiet) if read == quiet => {
                let message = "on no cluster".to_owned();
                Some((false.into(), Reason::SignalNotFiring, message))
            }
            _ => {
                let odd = self.present.iter().filter_map(|cluster| {
                    let signal = cluster.signal.as_ref()?;
                    let quiet = SignalState::from(signal.state) == SignalState::NotFiring;
                    (!quiet).then_some((cluster.name.as_str(), signal.reason.parse().ok()?))
                });
                let odd: Vec<(&str, Reason)> = odd.collect();
                let names: Vec<&str> = odd.iter().map(|(name, _)| *name).collect();
                let reason = odd.first().map_or(Reason::NoData, |(_, reason)| *reason);
                let message = format!("nobody knows of {}", enumerate(&names, names.len()));
                Some((ConditionStatus::Unknown, reason, message))
            }
        }
    }
}

/// Whether a look at the cluster's whole state may find something to put right.
fn fault(cluster: &ClusterStatus) -> bool {
    let decision = cluster.decision.as_ref().map(|note| note.reason.as_str());
    let signal = cluster.signal.as_ref().map(|signal| signal.reason.as_str());
    let harmless = |reason: Option<&str>| {
        let reason = reason.and_then(|reason| reason.parse::<Reason>().ok());
        reason.is_none_or(|reason| {
            !reason.is_configuration()
                && !matches!(
                    reason,
                    Reason::InvalidSpec | Reason::ClusterNotFound | Reason::MembersUnresolved
                )
        })
    };
    !(harmless(decision) && harmless(signal))
}

/// `3 Firing, 997 NotFiring`: the rarest first, which say the most.
fn counts(of: &BTreeMap<&str, usize>) -> String {
    let mut of: Vec<(usize, &str)> = of.iter().map(|(word, count)| (*count, *word)).collect();
    of.sort_unstable();
    let shown = of.iter().take(KINDS);
    let mut texts: Vec<String> = shown
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let others: usize = of.iter().skip(KINDS).map(|(count, _)| *count).sum();
    if others > 0 {
        texts.push(format!("{others} others"));
    }
    texts.join(", ")
}

/// The first of so many names.
fn enumerate(names: &[&str], all: usize) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES).copied().collect();
    match all.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
