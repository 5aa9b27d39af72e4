//! The worker of one policy on one cluster: when the signal is read, and what becomes of
//! that.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::decide::ClusterState;
use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::signal::Reading;
use crate::core::tick;

use super::cluster::connection;
use super::conclude::{Concluded, Concluding, report};
use super::host::{Host, HostError, PolicyOn, PolicyView};
use super::now;
use super::pace::{Steps, asked_at_tick};
use super::queue::Place;
use super::read::{Readings, question, read};
use super::shared::PolicyShared;

/// How often a question is asked again that only a changed configuration can mend.
const CONFIGURATION_PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// Pause before an evaluation that could not be recorded is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// Least time between two looks at a policy of which nothing changed.
const BETWEEN_LOOKS: SignedDuration = SignedDuration::from_secs(1);

/// Longest wait of a policy that appears in a crowd.
const CROWD_SPREAD: SignedDuration = SignedDuration::from_mins(1);
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

/// Why a policy is looked at.
#[derive(Clone, Copy, Debug)]
struct Occasion {
    /// The moment as of which its signal is asked.
    asked_at: Timestamp,
    /// Its own time has come; else something changed before.
    in_time: bool,
}

impl Occasion {
    fn tick(tick: Timestamp) -> Self {
        Occasion {
            asked_at: asked_at_tick(tick),
            in_time: true,
        }
    }

    fn change() -> Self {
        Occasion {
            asked_at: now(),
            in_time: false,
        }
    }
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
    let mut steps = shared.paces.join_as_policy();
    let place = shared.creating.queues.place(&key);
    let mut occasion = match first {
        First::At(asked_at) => Occasion {
            asked_at,
            in_time: true,
        },
        First::InCrowd => {
            let tick = host.policy(&key).map_or_else(now, |view| crowd_tick(&view));
            tokio::select! {
                () = tokio::time::sleep(tick.duration_since(now()).unsigned_abs()) => {}
                () = shutdown.cancelled() => {}
            }
            Occasion::tick(tick)
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
        let evaluation = evaluate(&shared, &view, &mut steps, &place, occasion, &shutdown);
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
            Some(next) => occasion = next,
            None => break,
        }
    }
    shared.creating.leave(&key);
}

/// Waits until the policy is due, or something changed that makes it so; `None`
/// when the process stops.
async fn wait<H: Host>(
    host: &H,
    place: &Place<'_>,
    key: &PolicyOn,
    due: Option<Timestamp>,
    before: u64,
    changes: &mut watch::Receiver<u64>,
    shutdown: &CancellationToken,
) -> Option<Occasion> {
    loop {
        let wait = due.map_or(Duration::MAX, |at| {
            at.duration_since(now())
                .max(SignedDuration::ZERO)
                .unsigned_abs()
        });
        tokio::select! {
            () = tokio::time::sleep(wait) => {
                return Some(Occasion::tick(due.unwrap_or_else(now)));
            }
            changed = changes.changed() => {
                // Most changes concern somebody else; they must not make us poll.
                if changed.is_err() || after_change(host, key) != Some(before) {
                    return Some(Occasion::change());
                }
            }
            () = place.woken() => return Some(Occasion::change()),
            () = shutdown.cancelled() => return None,
        }
    }
}

/// What, apart from time, makes another evaluation worth while: the spec, the
/// target, and which runs on the cluster there are and have ended.
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
        (&run.key, run.record.phase.is_terminal()).hash(&mut hasher);
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
    steps: &mut Steps,
    place: &Place<'_>,
    Occasion { asked_at, in_time }: Occasion,
    shutdown: &CancellationToken,
) -> Result<Option<Timestamp>, HostError> {
    let policy = match &view.spec {
        Ok(policy) => policy.clone(),
        Err(errors) => {
            steps.leave();
            let note = Note::new(Reason::InvalidSpec, errors.clone());
            place.leave();
            cannot_evaluate(shared, view, note).await?;
            return Ok(None);
        }
    };
    let connection = match connection(&*shared.base.host, &view.cluster) {
        Ok(connection) => connection,
        Err(note) => {
            steps.leave();
            // It must not keep the others of its fleet waiting.
            place.leave();
            cannot_evaluate(shared, view, note).await?;
            return Ok(None);
        }
    };
    let at = now();
    let question = question(&policy, &view.cluster);
    let readings = if policy.stands_still(at) {
        steps.signal.leave();
        Readings::unasked(at)
    } else {
        steps.signal.keep(&question, policy.interval);
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
        steps: &steps.blockers,
        ready: &ready(readings.primary.as_ref()),
        in_time,
        shutdown,
    };
    let Some(Concluded { recheck }) = concluding.conclude().await? else {
        return Ok(None);
    };
    // Only now: who asks the same may have come meanwhile.
    let interval = match readings.unasked_at {
        None => steps.signal.keep(&question, policy.interval),
        Some(_) => policy.interval,
    };
    Ok(Some(next_due(
        tick::next(now(), interval, &question),
        readings.primary.as_ref(),
        recheck,
        asked_at,
    )))
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
/// later when only a changed configuration helps. A source that wants to be left
/// alone sees to that itself: the fallback, windows and other sources go on.
fn next_due(
    tick: Timestamp,
    primary: Option<&Reading>,
    recheck: Option<Timestamp>,
    asked_at: Timestamp,
) -> Timestamp {
    // It may have passed while the evaluation went on: then it is due now, not at the
    // next tick.
    let soonest = asked_at.checked_add(BETWEEN_LOOKS).unwrap_or(tick);
    let mut due = recheck.map_or(tick, |at| at.max(soonest).min(tick));
    if primary.is_some_and(|primary| primary.reason.is_configuration()) {
        due = due.max(asked_at.checked_add(CONFIGURATION_PAUSE).unwrap_or(due));
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where many statuses are stored each takes its time: `for` may be over by then.
    #[test]
    fn what_became_due_during_an_evaluation_is_due_at_once() {
        let seconds = SignedDuration::from_secs;
        let asked_at = now() - seconds(7);
        let tick = now() + seconds(60);
        let due = |recheck| next_due(tick, None, recheck, asked_at);
        let passed = asked_at + seconds(5);
        assert_eq!(due(Some(passed)), passed);
        assert_eq!(due(Some(tick - seconds(1))), tick - seconds(1));
        assert_eq!(due(Some(tick + seconds(1))), tick);
        assert_eq!(due(None), tick);
        // However often it asks for it, nobody is asked all the time.
        assert_eq!(due(Some(asked_at)), asked_at + BETWEEN_LOOKS);
    }
}
