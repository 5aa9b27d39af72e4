//! What becomes of a stored object when its document is read again. Pure: the
//! document and what is stored go in, what is to be stored comes out.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::objects::Document;
use super::stored::{DOCUMENT_ERROR, FILE, Kind, REMOVED_AT, Stored, StoredRun};
use crate::api::conditions::{self, types};
use crate::api::defrag::{EtcdDefrag, EtcdDefragSpec, EtcdDefragStatus};
use crate::api::document::Object;
use crate::core::reason::Reason;
use crate::core::run::RunRecord;
use crate::engine::ObjectKey;

/// What is known of an object's document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Situation<'a> {
    Present(&'a Document),
    /// It cannot be said; why not.
    Doubt(&'a str),
    Gone,
}

/// A target's or a policy's next stored form.
///
/// The generation grows whenever what the document says changes, and also when
/// it becomes unusable or usable again: both are news to whoever works by it.
pub(super) fn declared<S: Clone + PartialEq, T: Clone + Default>(
    kind: Kind,
    key: &ObjectKey,
    stored: Option<&Stored<S, T>>,
    situation: Situation<'_>,
    spec: impl Fn(&Object) -> Option<(&ObjectMeta, &S)>,
    now: Timestamp,
) -> Option<Stored<S, T>> {
    let mut next = match (stored, situation) {
        (Some(stored), _) => stored.clone(),
        (None, Situation::Present(_)) => Stored::new(kind, key, None, now),
        (None, Situation::Doubt(_) | Situation::Gone) => return None,
    };
    let error = match situation {
        Situation::Present(document) => {
            next.annotate(FILE, Some(document.file.to_string()));
            next.annotate(REMOVED_AT, None);
            match &document.object {
                Ok(object) => {
                    if let Some((metadata, spec)) = spec(object) {
                        next.metadata.labels.clone_from(&metadata.labels);
                        next.spec = Some(spec.clone());
                    }
                    None
                }
                Err(error) => Some(error.clone()),
            }
        }
        Situation::Doubt(why) => Some(format!(
            "{why}; the object counts as it was before, and starts nothing"
        )),
        Situation::Gone => {
            if next.annotation(REMOVED_AT).is_none() {
                next.annotate(REMOVED_AT, Some(now.to_string()));
            }
            return Some(next);
        }
    };
    next.annotate(DOCUMENT_ERROR, error);
    if let Some(stored) = stored {
        let changed = stored.spec != next.spec
            || stored.annotation(DOCUMENT_ERROR) != next.annotation(DOCUMENT_ERROR);
        if changed {
            next.next_generation();
        }
    }
    Some(next)
}

/// What becomes of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunFate {
    /// Nothing is stored and nothing is to be.
    None,
    /// To be stored like this, when it differs.
    Store(Box<StoredRun>),
    /// It never became a run, and its document is gone.
    Forget,
    /// The document asks for a name that a policy's run has.
    Conflict(String),
}

/// True once the run's spec was valid and recorded. Until then it is no run:
/// it is stored so that its errors show, and its document may change freely.
pub(super) fn accepted(run: &StoredRun) -> bool {
    run.status.phase.is_some()
}

/// A run's next stored form.
///
/// The first valid spec is recorded and stays in force; only `suspend` and
/// `ttlSecondsAfterFinished` may change after that. A document that vanished
/// asks for the run's end; one that became unreadable asks for nothing.
pub(super) fn run(
    key: &ObjectKey,
    stored: Option<&StoredRun>,
    situation: Situation<'_>,
    now: Timestamp,
) -> RunFate {
    let fate = |run: StoredRun| RunFate::Store(Box::new(run));
    let Some(stored) = stored else {
        return match situation {
            Situation::Present(document) => fate(first_seen(key, document, now)),
            Situation::Doubt(_) | Situation::Gone => RunFate::None,
        };
    };
    if stored.annotation(FILE).is_none() {
        let Situation::Present(document) = situation else {
            return RunFate::None;
        };
        let maker = stored
            .owner()
            .map_or("somebody else", |owner| owner.name.as_str());
        return RunFate::Conflict(format!(
            "{}:{}: the run {key} was made by the policy {maker}; give the one in the file another name",
            document.file, document.line
        ));
    }
    if !accepted(stored) {
        return match situation {
            Situation::Present(document) => {
                let mut next = first_seen(key, document, now);
                if !accepted(&next) {
                    // Still not valid: only what is said about it may be new.
                    next.metadata = ObjectMeta {
                        annotations: next.metadata.annotations,
                        ..stored.metadata.clone()
                    };
                    let previous = std::mem::replace(&mut next.status, stored.status.clone());
                    refuse(&mut next.status, previous.message.unwrap_or_default(), now);
                }
                fate(next)
            }
            Situation::Doubt(_) => RunFate::None,
            Situation::Gone => RunFate::Forget,
        };
    }
    if stored.metadata.deletion_timestamp.is_some() {
        return RunFate::None;
    }
    let mut next = stored.clone();
    match situation {
        Situation::Gone => next.metadata.deletion_timestamp = Some(Time(now)),
        Situation::Doubt(why) => {
            complain(
                &mut next,
                Some(format!("{why}; the run goes on as it was recorded")),
                now,
            );
        }
        Situation::Present(document) => {
            next.annotate(FILE, Some(document.file.to_string()));
            let complaint = match &document.object {
                Ok(object) => match object.as_ref() {
                    Object::Run(wanted) => edit(&mut next, wanted).err(),
                    Object::Target(_) | Object::Policy(_) => None,
                },
                Err(error) => Some(format!("{error}; the run goes on as it was recorded")),
            };
            complain(&mut next, complaint, now);
        }
    }
    fate(next)
}

fn first_seen(key: &ObjectKey, document: &Document, now: Timestamp) -> StoredRun {
    let (spec, error) = match document.object.as_deref() {
        Ok(Object::Run(run)) => (Some(run.spec.clone()), None),
        Ok(Object::Target(_) | Object::Policy(_)) => (None, None),
        Err(error) => (None, Some(error.clone())),
    };
    let mut stored = StoredRun::new(Kind::Run, key, spec, now);
    stored.annotate(FILE, Some(document.file.to_string()));
    match error {
        None => {
            let previous = EtcdDefragStatus::default();
            stored.status =
                EtcdDefragStatus::from_record(&RunRecord::default(), Some(1), &previous, now);
        }
        Some(error) => {
            stored.annotate(DOCUMENT_ERROR, Some(error.clone()));
            refuse(&mut stored.status, error, now);
        }
    }
    stored
}

fn refuse(status: &mut EtcdDefragStatus, error: String, now: Timestamp) {
    status.reason = Some(Reason::InvalidSpec.as_str().to_owned());
    conditions::set(
        &mut status.conditions,
        types::READY,
        false,
        Reason::InvalidSpec,
        error.clone(),
        now,
        Some(1),
    );
    status.message = Some(error);
}

/// Takes over what may change.
fn edit(stored: &mut StoredRun, wanted: &EtcdDefrag) -> Result<(), String> {
    stored.metadata.labels.clone_from(&wanted.metadata.labels);
    let Some(recorded) = &stored.spec else {
        return Ok(());
    };
    if *recorded == wanted.spec {
        return Ok(());
    }
    let mut allowed: EtcdDefragSpec = recorded.clone();
    allowed.run.suspend = wanted.spec.run.suspend;
    allowed.run.ttl_seconds_after_finished = wanted.spec.run.ttl_seconds_after_finished;
    if allowed != wanted.spec {
        return Err(
            "the spec of a run cannot change but for suspend and ttlSecondsAfterFinished; the run goes on as it was \
             recorded; restore the file, or write a run with another name"
                .to_owned(),
        );
    }
    stored.spec = Some(allowed);
    stored.next_generation();
    Ok(())
}

/// Shows what is wrong with the document of a run that goes on regardless.
fn complain(stored: &mut StoredRun, complaint: Option<String>, now: Timestamp) {
    if stored.annotation(DOCUMENT_ERROR) == complaint.as_deref() {
        return;
    }
    let generation = Some(stored.generation());
    let (ready, reason, message) = match &complaint {
        Some(text) => (false, Reason::InvalidSpec, text.as_str()),
        None => (true, Reason::Accepted, Reason::Accepted.sentence()),
    };
    conditions::set(
        &mut stored.status.conditions,
        types::READY,
        ready,
        reason,
        message,
        now,
        generation,
    );
    stored.annotate(DOCUMENT_ERROR, complaint);
}
