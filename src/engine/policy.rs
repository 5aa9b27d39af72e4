//! The worker of one policy on one cluster: reads the signal at each tick, decides, records,
//! creates.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;

use crate::core::decide::{
    ClusterState, CreateRun, DEGRADED_AFTER, Decision, Facts, Policy, RunSummary, blocked_since,
    created, decide, note_decision,
};
use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::signal::Reading;
use crate::core::tick;
use crate::etcd::Connection;
use crate::signals::Sources;
use crate::telemetry::Evaluated;

use super::cluster::connection;
use super::create::{Allowed, Creating, Held, Made};
use super::fleet::{GATHER, Place};
use super::host::{About, Event, Host, HostError, PolicyOn, PolicyReport, PolicyView};
use super::now;
use super::pace::{Pace, Paces};
use super::read::{AsOf, Readings, blockers, question, read};
use super::run::{Shared, summary};

/// How often a question is asked again that only a changed configuration can mend.
const CONFIGURATION_PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// What policies have at hand.
pub(super) struct PolicyShared<H> {
    pub(super) base: Shared<H>,
    pub(super) sources: Arc<Sources>,
    pub(super) creating: Creating,
    pub(super) paces: Paces,
}

/// Pause before an evaluation that could not be recorded is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// How long before its turn a policy in line is looked at.
const EARLY: SignedDuration = SignedDuration::from_secs(1);

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
    let mut pace = shared.paces.join();
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
        let evaluation = evaluate(&shared, &view, &mut pace, &place, asked_at, &shutdown);
        let due = match Box::pin(evaluation).await {
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
    shared.creating.leave(&key);
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
    pace: &mut Pace,
    place: &Place<'_>,
    asked_at: Timestamp,
    shutdown: &CancellationToken,
) -> Result<Option<Timestamp>, HostError> {
    let policy = match &view.spec {
        Ok(policy) => policy.clone(),
        Err(errors) => {
            pace.leave();
            let note = Note::new(Reason::InvalidSpec, errors.clone());
            place.leave();
            cannot_evaluate(shared, view, note).await?;
            return Ok(None);
        }
    };
    let connection = match connection(&*shared.base.host, &view.cluster) {
        Ok(connection) => connection,
        Err(note) => {
            pace.leave();
            // It must not keep the others of its fleet waiting.
            place.leave();
            cannot_evaluate(shared, view, note).await?;
            return Ok(None);
        }
    };
    let at = now();
    let question = question(&policy, &view.cluster);
    let readings = if policy.stands_still(at) {
        pace.leave();
        Readings::unasked(at)
    } else {
        pace.keep(&question, policy.interval);
        tokio::select! {
            biased;
            // A source that does not answer must not keep the process.
            () = shutdown.cancelled() => return Ok(None),
            readings = read(shared, &policy, view, &connection, asked_at) => readings,
        }
    };
    let concluding = Concluding {
        shared,
        view,
        place,
        policy: &policy,
        connection: &connection,
        readings: &readings,
        ready: &ready(readings.primary.as_ref()),
        shutdown,
    };
    let Some(Concluded { recheck, pause }) = concluding.conclude().await? else {
        return Ok(None);
    };
    // Only now: who asks the same may have come meanwhile.
    let interval = match readings.unasked_at {
        None => pace.keep(&question, policy.interval),
        Some(_) => policy.interval,
    };
    let due = next_due(
        tick::next(now(), interval, &question),
        readings.primary.as_ref(),
        recheck,
        asked_at,
    );
    let paused = pause.and_then(|pause| now().checked_add(pause).ok());
    Ok(Some(due.max(paused.unwrap_or(due))))
}

/// The object stands as it is until it changes; what is remembered stays.
async fn cannot_evaluate<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    note: Note,
) -> Result<(), HostError> {
    shared.creating.leave(&view.on());
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

/// One evaluation, once its signal was read.
struct Concluding<'a, H> {
    shared: &'a PolicyShared<H>,
    view: &'a PolicyView,
    place: &'a Place<'a>,
    policy: &'a Policy,
    connection: &'a Connection,
    readings: &'a Readings,
    ready: &'a Note,
    shutdown: &'a CancellationToken,
}

/// What an evaluation came to.
struct Concluded {
    /// When something is due before the next regular evaluation.
    recheck: Option<Timestamp>,
    /// For how long a blocker's source asked to be left alone.
    pause: Option<SignedDuration>,
}

impl<H: Host> Concluding<'_, H> {
    /// Decides, records, and creates the run if one is due. `None` when the process
    /// stops before anything could be decided.
    async fn conclude(&self) -> Result<Option<Concluded>, HostError> {
        let (shared, view) = (self.shared, self.view);
        let known = &view.state;
        let mut decision = self.decide(known, None);
        // The episode began when the signal was read, not when the run's turn came.
        let known = &ClusterState {
            firing_since: decision.state.firing_since,
            gap_since: decision.state.gap_since,
            evidence_at: decision.state.evidence_at,
            ..known.clone()
        };
        let mut pause = None;
        if decision.asks_blockers {
            let Some(said) = self.ask_blockers(AsOf::Tick).await else {
                return Ok(None);
            };
            pause = said.iter().filter_map(|reading| reading.retry_after).max();
            decision = self.decide(known, Some(&said));
        }
        let Some(run) = decision.create.clone() else {
            self.leave();
            return self.end(decision, pause).await;
        };
        if let Err(note) = self.wait_in_fleet(&decision).await {
            shared.creating.leave(&view.on());
            decision.state.decision = Some(note);
            return self.end(decision, pause).await;
        }
        let stood = shared.creating.stand(
            &*shared.base.host,
            view,
            &decision.state,
            &run,
            self.shutdown,
        );
        let allowed = match Box::pin(stood).await {
            Ok(allowed) => allowed,
            Err(Held { note, until }) => {
                self.tell_trouble(&note);
                decision.state.decision = Some(note);
                decision.state.next_eligible = until;
                // A little early, so that it stands there when its turn comes.
                decision.recheck = until.and_then(|at| at.checked_sub(EARLY).ok());
                return self.end(decision, pause).await;
            }
        };
        let said = if self.policy.blockers.is_empty() {
            None
        } else {
            // The answers may be as old as their tick; a run needs one of now.
            let Some(said) = self.ask_blockers(AsOf::Now).await else {
                shared.creating.give_back(&allowed);
                return Ok(None);
            };
            Some(said)
        };
        let _next = match self.turn_in_fleet(&decision).await {
            Ok(turn) => turn,
            Err(note) => {
                shared.creating.give_back(&allowed);
                decision.state.decision = Some(note);
                return self.end(decision, pause).await;
            }
        };
        let _turn = shared
            .creating
            .turn(&*shared.base.host, &view.cluster)
            .await;
        let decision = self.decide(known, said.as_deref());
        let decision = self.carry_out(decision, &allowed).await?;
        self.place.leave();
        self.end(decision, pause).await
    }

    /// It wants no run now.
    fn leave(&self) {
        self.place.leave();
        self.shared.creating.leave(&self.view.on());
    }

    /// Joins those of the policy's clusters that are due, where it limits their runs.
    ///
    /// # Errors
    /// When others are before it.
    async fn wait_in_fleet(&self, decision: &Decision) -> Result<(), Note> {
        let Some(fleet) = &self.policy.fleet else {
            return Ok(());
        };
        let since = decision.state.firing_since.unwrap_or_else(now);
        if self.place.enter(since) {
            tokio::time::sleep(GATHER).await;
        }
        let host = &*self.shared.base.host;
        self.place.admit(host, since, fleet.max_concurrent_runs)
    }

    /// The turn among the policy's clusters, to be held until the run is stored; `None`
    /// where it does not limit their runs.
    ///
    /// # Errors
    /// When others are before it by now.
    async fn turn_in_fleet(
        &self,
        decision: &Decision,
    ) -> Result<Option<OwnedMutexGuard<()>>, Note> {
        let Some(fleet) = &self.policy.fleet else {
            return Ok(None);
        };
        let since = decision.state.firing_since.unwrap_or_else(now);
        let turn = self.place.turn().await;
        let host = &*self.shared.base.host;
        self.place.admit(host, since, fleet.max_concurrent_runs)?;
        Ok(Some(turn))
    }

    /// Creates the run if it is still due. To be called in turn.
    async fn carry_out(
        &self,
        mut decision: Decision,
        allowed: &Allowed,
    ) -> Result<Decision, HostError> {
        let Some(run) = decision.create.clone() else {
            self.shared.creating.give_back(allowed);
            return Ok(decision);
        };
        // The episode that the run's name is made of is stored before the run; that
        // it was created is said once it was.
        let intended = ClusterState {
            decision: self.view.state.decision.clone(),
            ..decision.state.clone()
        };
        if let Err(error) = store(self.shared, self.view, &intended, self.ready).await {
            self.shared.creating.give_back(allowed);
            return Err(error);
        }
        decision.state = self.create(decision.state, &run, allowed).await;
        Ok(decision)
    }

    async fn create(
        &self,
        state: ClusterState,
        run: &CreateRun,
        allowed: &Allowed,
    ) -> ClusterState {
        let (shared, view) = (self.shared, self.view);
        let made = shared
            .creating
            .make(&*shared.base.host, view, run, allowed)
            .await;
        match made {
            Ok(Made { at, new }) => {
                if new {
                    let message = format!("run {}: {}", run.name, run.note.message);
                    event(shared, view, false, Note::new(Reason::RunCreated, message));
                }
                created(self.policy, state, run, at)
            }
            Err(note) => {
                self.tell_trouble(&note);
                ClusterState {
                    decision: Some(note),
                    ..state
                }
            }
        }
    }

    /// That a run waits in line is no trouble.
    fn tell_trouble(&self, note: &Note) {
        let known = self.view.state.decision.as_ref() == Some(note);
        if note.reason != Reason::CreationLimited && !known {
            event(self.shared, self.view, true, note.clone());
        }
    }

    /// Records what was decided.
    async fn end(
        &self,
        decision: Decision,
        pause: Option<SignedDuration>,
    ) -> Result<Option<Concluded>, HostError> {
        let Decision { state, recheck, .. } = decision;
        let value = self.readings.value(state.fallback_active);
        report(self.shared, self.view, &state, self.ready, value).await?;
        Ok(Some(Concluded { recheck, pause }))
    }

    /// `None` when the process stops.
    async fn ask_blockers(&self, as_of: AsOf) -> Option<Vec<Reading>> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => None,
            said = blockers(self.shared, self.policy, &self.view.cluster, self.connection, as_of) => Some(said),
        }
    }

    fn decide(&self, known: &ClusterState, said: Option<&[Reading]>) -> Decision {
        let view = self.view;
        let summaries = listed(&*self.shared.base.host, view);
        let cluster = view.cluster.to_string();
        let facts = Facts {
            now: self.readings.unasked_at.unwrap_or_else(now),
            policy: &view.key.name,
            uid: &view.uid,
            cluster: &cluster,
            primary: self.readings.primary.clone(),
            fallback: self.readings.fallback.clone(),
            emergency: self.readings.emergency.clone(),
            blockers: said,
            runs: summaries.as_deref().map_err(Clone::clone),
        };
        decide(self.policy, known.clone(), &facts)
    }
}

pub(super) fn listed<H: Host>(host: &H, view: &PolicyView) -> Result<Vec<RunSummary>, String> {
    let runs = host
        .runs_on(&view.cluster)
        .map_err(|error| error.to_string())?;
    Ok(runs.iter().map(|run| summary(run, &view.key)).collect())
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
    let mut state = state.clone();
    note_decision(&mut state, now());
    let state = &state;
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
    let too_long = |state: &ClusterState| state.blocked.as_ref().is_some_and(|b| b.too_long);
    if too_long(state)
        && !too_long(old)
        && let Some(note) = &state.decision
    {
        let note = Note::new(Reason::BlockedTooLong, note.message.clone());
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

/// The next `tick` of the question, or earlier when the decision asks for it, or
/// later when the source does.
fn next_due(
    tick: Timestamp,
    primary: Option<&Reading>,
    recheck: Option<Timestamp>,
    asked_at: Timestamp,
) -> Timestamp {
    let now = now();
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
