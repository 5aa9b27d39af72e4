//! What follows from a reading: decides, records, and creates the run that is due.

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::core::decide::{
    ClusterState, CreateRun, DEGRADED_AFTER, Decision, Facts, Policy, blocked_since, created,
    decide, note_decision,
};
use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::signal::Reading;
use crate::etcd::Connection;
use crate::telemetry::Evaluated;

use super::create::{Allowed, Held, Made};
use super::host::{About, Event, Host, HostError, PolicyReport, PolicyView};
use super::now;
use super::pace::BlockerSteps;
use super::queue::{Due, Place};
use super::read::{AsOf, Readings, blockers};
use super::run::listed;
use super::shared::PolicyShared;

/// How long before its turn a policy in line is looked at.
const EARLY: SignedDuration = SignedDuration::from_secs(1);

/// One evaluation, once its signal was read.
pub(super) struct Concluding<'a, H> {
    pub(super) shared: &'a PolicyShared<H>,
    pub(super) view: &'a PolicyView,
    pub(super) place: &'a Place<'a>,
    pub(super) policy: &'a Policy,
    pub(super) connection: &'a Connection,
    pub(super) readings: &'a Readings,
    pub(super) steps: &'a BlockerSteps,
    pub(super) ready: &'a Note,
    /// The policy's own time has come; else something changed before.
    pub(super) in_time: bool,
    pub(super) shutdown: &'a CancellationToken,
}

/// What an evaluation came to.
pub(super) struct Concluded {
    /// When something is due before the next regular evaluation.
    pub(super) recheck: Option<Timestamp>,
}

impl<H: Host> Concluding<'_, H> {
    /// Decides, records, and creates the run if one is due. `None` when the process
    /// stops before anything could be decided.
    pub(super) async fn conclude(&self) -> Result<Option<Concluded>, HostError> {
        let known = &self.view.state;
        let mut decision = self.decide(known, None);
        // The episode began when the signal was read, not when the run's turn came.
        let known = &ClusterState {
            firing_since: decision.state.firing_since,
            gap_since: decision.state.gap_since,
            evidence_at: decision.state.evidence_at,
            ..known.clone()
        };
        if decision.asks_blockers {
            let Some(said) = self.ask_blockers(AsOf::Tick).await else {
                return Ok(None);
            };
            decision = self.decide(known, Some(&said));
        } else {
            // Nobody keeps step with a policy that asks no blockers.
            self.steps.leave();
        }
        match decision.create.clone() {
            None => {
                // It wants no run now.
                self.place.leave();
                self.shared.creating.leave(&self.view.on());
                self.end(decision).await
            }
            Some(run) => self.begin(known, decision, &run).await,
        }
    }

    /// Waits for the run's turn, and creates it if it is due then too.
    async fn begin(
        &self,
        known: &ClusterState,
        mut decision: Decision,
        run: &CreateRun,
    ) -> Result<Option<Concluded>, HostError> {
        let creating = &self.shared.creating;
        let host = &*self.shared.base.host;
        let due = self.due_in_fleet(&decision);
        if let Some(due) = due
            && let Err(note) = self.place.join(host, due).await
        {
            creating.leave(&self.view.on());
            return self.end(held(decision, note)).await;
        }
        let stood = creating.stand(host, self.view, &decision.state, run, self.shutdown);
        let allowed = match Box::pin(stood).await {
            Ok(allowed) => allowed,
            Err(Held { note, until }) => {
                self.tell_trouble(&note);
                decision.state.next_eligible = until;
                // A little early, so that it stands there when its turn comes.
                decision.recheck = until.and_then(|at| at.checked_sub(EARLY).ok());
                return self.end(held(decision, note)).await;
            }
        };
        let mut said = None;
        if !self.policy.blockers.is_empty() {
            // The answers may be as old as their tick; a run needs one of now.
            said = self.ask_blockers(AsOf::Now).await;
            if said.is_none() {
                creating.give_back(&allowed);
                return Ok(None);
            }
        }
        let mut next = None;
        if let Some(due) = due {
            match self.place.turn(host, due) {
                Ok(turn) => next = Some(turn),
                Err(note) => {
                    creating.give_back(&allowed);
                    return self.end(held(decision, note)).await;
                }
            }
        }
        let turn = creating.turn(host, &self.view.cluster).await;
        let decision = self.decide(known, said.as_deref());
        if decision.create.is_none() {
            // Somebody else was first. To say so takes no turn, and many may have to.
            self.place.leave();
            drop((turn, next));
            creating.give_back(&allowed);
            return self.end(decision).await;
        }
        let decision = self.carry_out(decision, &allowed).await?;
        self.place.leave();
        let ended = self.end(decision).await;
        // Only now what became of the run is stored.
        drop((turn, next));
        ended
    }

    /// Its place among the policy's clusters, where that limits their runs.
    fn due_in_fleet(&self, decision: &Decision) -> Option<Due> {
        let limit = self.policy.fleet.as_ref()?.max_concurrent_runs;
        Some(Due {
            since: decision.state.firing_since.unwrap_or_else(now),
            limit,
        })
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
    async fn end(&self, decision: Decision) -> Result<Option<Concluded>, HostError> {
        let Decision {
            mut state, recheck, ..
        } = decision;
        self.keep_words(&mut state);
        let value = self.readings.value(state.fallback_active);
        report(self.shared, self.view, &state, self.ready, value).await?;
        Ok(Some(Concluded { recheck }))
    }

    /// That the cluster is busy with another run than before is told at the policy's own
    /// time. A hundred policies of one cluster would write a hundred statuses for each of
    /// their runs.
    fn keep_words(&self, state: &mut ClusterState) {
        let busy = |note: &Note| note.reason == Reason::ClusterBusy;
        let known = self.view.state.decision.as_ref().filter(|note| busy(note));
        if !self.in_time
            && state.decision.as_ref().is_some_and(busy)
            && let Some(known) = known
        {
            state.decision = Some(known.clone());
        }
    }

    /// `None` when the process stops.
    async fn ask_blockers(&self, as_of: AsOf) -> Option<Vec<Reading>> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => None,
            said = self.blockers(as_of) => Some(said),
        }
    }

    async fn blockers(&self, as_of: AsOf) -> Vec<Reading> {
        let cluster = &self.view.cluster;
        let (shared, connection) = (self.shared, self.connection);
        blockers(shared, self.policy, cluster, connection, self.steps, as_of).await
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

/// The run is due, and something else is before it.
fn held(decision: Decision, note: Note) -> Decision {
    let state = ClusterState {
        decision: Some(note),
        ..decision.state
    };
    Decision { state, ..decision }
}

/// Stores what is remembered, and tells what changed.
pub(super) async fn report<H: Host>(
    shared: &PolicyShared<H>,
    view: &PolicyView,
    state: &ClusterState,
    ready: &Note,
    value: Option<f64>,
) -> Result<(), HostError> {
    announce(shared, view, state);
    let mut state = state.clone();
    let before = view.state.decision.as_ref().map(|note| note.reason);
    note_decision(&mut state, before, now());
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
