//! The worker of one policy on one cluster: reads the signal at each tick, decides, records,
//! creates.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::decide::{
    ClusterState, CreateRun, DEGRADED_AFTER, Decision, Facts, Policy, RunSummary, blocked_since,
    created, decide,
};
use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::signal::Reading;
use crate::core::tick;
use crate::signals::Sources;
use crate::telemetry::Evaluated;

use super::cluster::connection;
use super::create::{Creating, Made};
use super::fleet::{GATHER, Place};
use super::host::{About, ClusterKey, Event, Host, HostError, PolicyOn, PolicyReport, PolicyView};
use super::now;
use super::read::{Readings, question, read};
use super::run::{Shared, summary};

/// How often a question is asked again that only a changed configuration can mend.
const CONFIGURATION_PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// What policies have at hand.
pub(super) struct PolicyShared<H> {
    pub(super) base: Shared<H>,
    pub(super) sources: Arc<Sources>,
    pub(super) creating: Creating,
}

/// Pause before an evaluation that could not be recorded is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// Longest wait of a policy that appears in a crowd.
const CROWD_SPREAD: SignedDuration = SignedDuration::from_mins(1);
/// How late somebody may come and still use the answer of those in time.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// When a policy is looked at for the first time.
#[derive(Clone, Copy, Debug)]
pub(super) enum First {
    /// At once, with the others that appeared at this moment: equal questions are
    /// asked once.
    At(Timestamp),
    /// Too many appeared at this moment: at a tick of its question, so that the
    /// sources are asked no more than ever after.
    InCrowd,
}

/// Works on one policy on one cluster until it is gone or the process stops.
pub(super) async fn work<H: Host>(
    shared: Arc<PolicyShared<H>>,
    key: PolicyOn,
    first: First,
    shutdown: CancellationToken,
) {
    let _series = shared.base.telemetry.policy_series(&key);
    let host = &*shared.base.host;
    let place = shared.creating.queues.place(&key);
    let mut asked_at = match first {
        First::At(moment) => moment,
        First::InCrowd => {
            let tick = host.policy(&key).map_or_else(now, |view| crowd_tick(&view));
            tokio::select! {
                () = tokio::time::sleep(tick.duration_since(now()).unsigned_abs()) => {}
                () = shutdown.cancelled() => {}
            }
            asked_at_tick(tick)
        }
    };
    while !shutdown.is_cancelled() {
        let mut changes = host.changes_on(&key.cluster);
        // Read once it would be told of a change.
        let Some(view) = host.policy(&key) else {
            break;
        };
        let before = fingerprint(host, &view);
        // Most of the time nothing is evaluated, and then this needs no room.
        let due = match Box::pin(evaluate(&shared, &view, &place, asked_at, &shutdown)).await {
            Ok(due) => due,
            Err(error) => {
                if error.reason == Reason::NotLeading {
                    tracing::debug!(policy = %key, "not leading, so nothing is recorded");
                } else {
                    shared.base.telemetry.error("policy");
                    tracing::error!(policy = %key, reason = %error.reason, %error, "unable to evaluate");
                }
                Some(now() + RETRY)
            }
        };
        drop(view);
        match wait(host, &place, &key, due, before, &mut changes, &shutdown).await {
            Some(moment) => asked_at = moment,
            None => break,
        }
    }
}

/// The moment as of which a question is asked that was due at `tick`. All who ask
/// it at that tick share one answer, also those who come a little late.
pub(super) fn asked_at_tick(tick: Timestamp) -> Timestamp {
    let now = now();
    let earliest = now.checked_sub(LATE).unwrap_or(now);
    tick.clamp(earliest, now)
}

/// Waits until the policy is due, or something changed that makes it so, and
/// returns the moment as of which it is to be evaluated; `None` when the process
/// stops.
async fn wait<H: Host>(
    host: &H,
    place: &Place<'_>,
    key: &PolicyOn,
    due: Option<Timestamp>,
    before: u64,
    changes: &mut watch::Receiver<u64>,
    shutdown: &CancellationToken,
) -> Option<Timestamp> {
    loop {
        let wait = due.map_or(Duration::MAX, |at| {
            at.duration_since(now())
                .max(SignedDuration::ZERO)
                .unsigned_abs()
        });
        tokio::select! {
            () = tokio::time::sleep(wait) => return Some(due.map_or_else(now, asked_at_tick)),
            changed = changes.changed() => {
                // Most changes concern somebody else; they must not make us poll.
                if changed.is_err() || after_change(host, key) != Some(before) {
                    return Some(now());
                }
            }
            () = place.woken() => return Some(now()),
            () = shutdown.cancelled() => return None,
        }
    }
}

/// What, apart from time, makes another evaluation worth while: the spec, the
/// target, and the runs on the cluster.
fn fingerprint<H: Host>(host: &H, view: &PolicyView) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (&view.uid, view.generation).hash(&mut hasher);
    if let Some(series) = &view.series {
        (&series.label, series.value.as_ref().ok()).hash(&mut hasher);
    }
    if let Some(target) = host.target(&view.cluster) {
        let trouble = target.spec.as_ref().err();
        let trouble = trouble.map(|note| (note.reason, &note.message));
        (target.generation, trouble).hash(&mut hasher);
    }
    for run in host.runs_on(&view.cluster).into_iter().flatten() {
        (&run.key, run.record.phase).hash(&mut hasher);
    }
    hasher.finish()
}

fn after_change<H: Host>(host: &H, key: &PolicyOn) -> Option<u64> {
    let view = host.policy(key)?;
    Some(fingerprint(host, &view))
}

/// One evaluation. Returns when the next is due; `None` when only a change can help.
async fn evaluate<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    place: &Place<'_>,
    asked_at: Timestamp,
    shutdown: &CancellationToken,
) -> Result<Option<Timestamp>, HostError> {
    let policy = match &view.spec {
        Ok(policy) => policy.clone(),
        Err(errors) => {
            let note = Note::new(Reason::InvalidSpec, errors.clone());
            place.leave();
            cannot_evaluate(shared, view, note).await?;
            return Ok(None);
        }
    };
    let connection = match connection(&*shared.base.host, &view.cluster) {
        Ok(connection) => connection,
        Err(note) => {
            // It must not keep the others of its fleet waiting.
            place.leave();
            cannot_evaluate(shared, view, note).await?;
            return Ok(None);
        }
    };
    let at = now();
    let readings = if policy.stands_still(at) {
        Readings::unasked(at)
    } else {
        tokio::select! {
            biased;
            // A source that does not answer must not keep the process.
            () = shutdown.cancelled() => return Ok(None),
            readings = read(shared, &policy, view, &connection, asked_at) => readings,
        }
    };
    let ready = ready(readings.primary.as_ref());
    let decided = conclude(shared, view, place, &policy, &readings, &ready).await?;
    Ok(Some(next_due(
        &policy,
        &view.cluster,
        readings.primary.as_ref(),
        decided.recheck,
        asked_at,
    )))
}

/// The object stands as it is until it changes; what is remembered stays.
async fn cannot_evaluate<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    note: Note,
) -> Result<(), HostError> {
    let state = ClusterState {
        decision: Some(note.clone()),
        next_eligible: None,
        ..view.state.clone()
    };
    report(shared, view, &state, &note, None).await
}

fn ready(primary: Option<&Reading>) -> Note {
    match primary.filter(|primary| primary.reason.is_configuration()) {
        Some(faulty) => Note::new(faulty.reason, faulty.message.clone()),
        None => Note::new(Reason::Accepted, Reason::Accepted.sentence()),
    }
}

/// Decides, records, and creates the run if one is due.
async fn conclude<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    place: &Place<'_>,
    policy: &Policy,
    readings: &Readings,
    ready: &Note,
) -> Result<Decision, HostError> {
    let mut decision = decide_now(shared, view, policy, readings);
    let value = readings.value(decision.state.fallback_active);
    if decision.create.is_none() {
        place.leave();
        report(shared, view, &decision.state, ready, value).await?;
        return Ok(decision);
    }
    let _next = if let Some(fleet) = &policy.fleet {
        let since = decision.state.firing_since.unwrap_or_else(now);
        if place.enter(since) {
            tokio::time::sleep(GATHER).await;
        }
        let turn = place.turn().await;
        let limit = fleet.max_concurrent_runs;
        if let Err(note) = place.admit(&*shared.base.host, since, limit) {
            drop(turn);
            decision.create = None;
            decision.note = note.clone();
            decision.state.decision = Some(note);
            report(shared, view, &decision.state, ready, value).await?;
            return Ok(decision);
        }
        Some(turn)
    } else {
        None
    };
    let _turn = shared
        .creating
        .turn(&*shared.base.host, &view.cluster)
        .await;
    let mut decision = decide_now(shared, view, policy, readings);
    if let Some(run) = decision.create.clone() {
        // The episode that the run's name is made of is stored before the run; that
        // it was created is said once it was.
        let intended = ClusterState {
            decision: view.state.decision.clone(),
            ..decision.state.clone()
        };
        store(shared, view, &intended, ready).await?;
        decision.state = create(shared, view, policy, decision.state, &run).await;
    }
    place.leave();
    report(shared, view, &decision.state, ready, value).await?;
    Ok(decision)
}

fn decide_now<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    policy: &Policy,
    readings: &Readings,
) -> Decision {
    let summaries = listed(&*shared.base.host, view);
    let cluster = view.cluster.to_string();
    let facts = Facts {
        now: readings.unasked_at.unwrap_or_else(now),
        policy: &view.key.name,
        uid: &view.uid,
        cluster: &cluster,
        primary: readings.primary.clone(),
        fallback: readings.fallback.clone(),
        emergency: readings.emergency.clone(),
        runs: summaries.as_deref().map_err(Clone::clone),
    };
    decide(policy, view.state.clone(), &facts)
}

pub(super) fn listed<H: Host>(host: &H, view: &PolicyView) -> Result<Vec<RunSummary>, String> {
    let runs = host
        .runs_on(&view.cluster)
        .map_err(|error| error.to_string())?;
    Ok(runs.iter().map(|run| summary(run, &view.key)).collect())
}

async fn create<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    policy: &Policy,
    state: ClusterState,
    run: &CreateRun,
) -> ClusterState {
    match shared.creating.make(&*shared.base.host, view, run).await {
        Ok(Made { at, new }) => {
            if new {
                let message = format!("run {}: {}", run.name, run.note.message);
                event(shared, view, false, Note::new(Reason::RunCreated, message));
            }
            created(policy, state, run, at)
        }
        Err(note) => {
            if view.state.decision.as_ref() != Some(&note) {
                event(shared, view, true, note.clone());
            }
            ClusterState {
                decision: Some(note),
                ..state
            }
        }
    }
}

/// Stores what is remembered, and tells what changed.
async fn report<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    state: &ClusterState,
    ready: &Note,
    value: Option<f64>,
) -> Result<(), HostError> {
    announce(shared, view, state);
    let evaluated = Evaluated {
        state,
        value,
        blocked_since: (view.spec.as_ref().ok())
            .and_then(|policy| blocked_since(policy, state, now())),
    };
    let on = view.on();
    shared.base.telemetry.policy_evaluated(&on, evaluated);
    store(shared, view, state, ready).await
}

async fn store<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    state: &ClusterState,
    ready: &Note,
) -> Result<(), HostError> {
    let report = PolicyReport {
        uid: view.uid.clone(),
        generation: view.generation,
        state: state.clone(),
        ready: ready.clone(),
    };
    shared.base.host.record_policy(&view.on(), &report).await
}

fn announce<H: Host>(shared: &PolicyShared<H>, view: &PolicyView, state: &ClusterState) {
    let old = &view.state;
    if old.fallback_active != state.fallback_active {
        let note = if state.fallback_active {
            let why = state
                .signal
                .as_ref()
                .map(|s| s.message.clone())
                .unwrap_or_default();
            Note::new(Reason::FallbackActive, why)
        } else {
            Note::new(Reason::FallbackEnded, Reason::FallbackEnded.sentence())
        };
        event(shared, view, state.fallback_active, note);
    }
    if old.failure_level < DEGRADED_AFTER && state.failure_level >= DEGRADED_AFTER {
        let note = Note::new(
            Reason::Degraded,
            format!("{} runs in a row failed", state.failure_level),
        );
        event(shared, view, true, note);
    }
    let reason = |state: &ClusterState| state.decision.as_ref().map(|note| note.reason);
    if let Some(note) = &state.decision
        && reason(old) != Some(note.reason)
    {
        tracing::info!(policy = %view.key, cluster = %view.cluster, reason = %note.reason, "{}", note.message);
    }
}

fn event<H: Host>(shared: &PolicyShared<H>, view: &PolicyView, warning: bool, note: Note) {
    // Of many clusters each has to be told apart.
    let fleet = view.spec.as_ref().is_ok_and(|spec| spec.fleet.is_some());
    let note = if fleet {
        let message = format!("{}: {}", view.cluster.local_name(), note.message);
        Note::new(note.reason, message)
    } else {
        note
    };
    shared.base.host.event(Event {
        about: About::Policy(view.key.clone()),
        warning,
        note,
    });
}

fn crowd_tick(view: &PolicyView) -> Timestamp {
    match &view.spec {
        Ok(policy) => {
            let question = question(policy, &view.cluster);
            tick::next(now(), policy.interval.min(CROWD_SPREAD), &question)
        }
        Err(_) => tick::next(now(), CROWD_SPREAD, &view.key.to_string()),
    }
}

/// The next tick of the question, or earlier when the decision asks for it, or
/// later when the source does.
fn next_due(
    policy: &Policy,
    cluster: &ClusterKey,
    primary: Option<&Reading>,
    recheck: Option<Timestamp>,
    asked_at: Timestamp,
) -> Timestamp {
    let now = now();
    let tick = tick::next(now, policy.interval, &question(policy, cluster));
    let mut due = recheck
        .filter(|at| *at > now)
        .map_or(tick, |at| at.min(tick));
    if primary.is_some_and(|primary| primary.reason.is_configuration()) {
        due = due.max(asked_at.checked_add(CONFIGURATION_PAUSE).unwrap_or(due));
    }
    if let Some(pause) = primary.and_then(|primary| primary.retry_after) {
        due = due.max(now.checked_add(pause).unwrap_or(due));
    }
    due
}
