//! Events, told in the background: one that cannot be stored is logged and
//! holds up nobody.
//!
//! The same thing said again about the same object is counted up. kube's own
//! recorder takes two events for the same by their reason alone, and would tell
//! of a policy's second run in the words of its first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as ApiEvent, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

use super::api::{ApiError, REQUEST_TIMEOUT, bounded};
use crate::engine::Event;

/// Who reports.
const CONTROLLER: &str = "defragd";
/// Events that may wait to be stored; more are dropped and logged.
const WAITING: usize = 1024;
/// The longest note that the API server takes, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The longest name that the API server takes, in bytes.
const NAME_LIMIT: usize = 253;
/// An event said again after this time is a new one; client-go's default for
/// a series.
const SAME_SERIES: Duration = Duration::from_secs(6 * 60);

/// Where events are handed in.
#[derive(Clone, Debug)]
pub(super) struct Events(mpsc::Sender<(ObjectReference, Event)>);

impl Events {
    /// Starts telling, under the name of this replica.
    pub(super) fn start(client: Client, instance: String) -> Self {
        let (hand_in, mut handed_in) = mpsc::channel::<(ObjectReference, Event)>(WAITING);
        let mut recorder = Recorder {
            client,
            instance,
            told: BTreeMap::new(),
        };
        tokio::spawn(async move {
            while let Some((about, event)) = handed_in.recv().await {
                if let Err(error) = recorder.tell(&about, &event).await {
                    tracing::warn!(
                        object = about.name, reason = %event.note.reason, %error,
                        "unable to store an event"
                    );
                }
            }
        });
        Events(hand_in)
    }

    pub(super) fn tell(&self, about: ObjectReference, event: Event) {
        if let Err(error) = self.0.try_send((about, event)) {
            tracing::warn!(%error, "an event is dropped");
        }
    }
}

/// Stores events, and remembers those of late.
struct Recorder {
    client: Client,
    instance: String,
    told: BTreeMap<Said, Told>,
}

/// What makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    /// Of the object, or its name where that is not known.
    object: String,
    reason: &'static str,
    note: String,
}

/// An event that is stored.
#[derive(Debug)]
struct Told {
    name: String,
    count: i32,
    last: Instant,
}

impl Recorder {
    async fn tell(&mut self, about: &ObjectReference, event: &Event) -> Result<(), ApiError> {
        self.told
            .retain(|_, told| told.last.elapsed() < SAME_SERIES);
        let said = Said {
            object: about.uid.clone().or(about.name.clone()).unwrap_or_default(),
            reason: event.note.reason.as_str(),
            note: shortened(&event.note.message, NOTE_LIMIT),
        };
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let api: Api<ApiEvent> = Api::namespaced(self.client.clone(), namespace);
        if let Some(told) = self.told.get_mut(&said) {
            let series = EventSeries {
                count: told.count.saturating_add(1),
                last_observed_time: MicroTime(Timestamp::now()),
            };
            let patch = Patch::Merge(json!({ "series": series }));
            let params = PatchParams::default();
            match bounded(REQUEST_TIMEOUT, api.patch(&told.name, &params, &patch)).await {
                Ok(_) => {
                    told.count = series.count;
                    told.last = Instant::now();
                    return Ok(());
                }
                // Somebody removed it.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let stored = api_event(about, &said, event.warning, &self.instance);
        let name = stored.metadata.name.clone().unwrap_or_default();
        let params = PostParams::default();
        bounded(REQUEST_TIMEOUT, api.create(&params, &stored)).await?;
        let told = Told {
            name,
            count: 1,
            last: Instant::now(),
        };
        self.told.insert(said, told);
        Ok(())
    }
}

/// A new event, said for the first time now.
fn api_event(about: &ObjectReference, said: &Said, warning: bool, instance: &str) -> ApiEvent {
    let now = Timestamp::now();
    ApiEvent {
        metadata: ObjectMeta {
            name: Some(name_at(about.name.as_deref().unwrap_or(CONTROLLER), now)),
            namespace: about.namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some(said.reason.to_owned()),
        reason: Some(said.reason.to_owned()),
        note: Some(said.note.clone()),
        type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
        event_time: Some(MicroTime(now)),
        regarding: Some(about.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..ApiEvent::default()
    }
}

/// The object's name and the time, as client-go names events.
fn name_at(object: &str, now: Timestamp) -> String {
    let time = format!(".{:x}", now.as_nanosecond());
    // Names of objects are ASCII.
    let stem: String = object.chars().take(NAME_LIMIT - time.len()).collect();
    format!("{}{time}", stem.trim_end_matches(['-', '.']))
}

/// At most `limit` bytes, cut between characters.
fn shortened(text: &str, limit: usize) -> String {
    const MORE: &str = "…";
    let mut text = text.to_owned();
    if text.len() > limit {
        let mut end = limit - MORE.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MORE);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(shortened("short", NOTE_LIMIT), "short");
        for text in ["x".repeat(5000), "ä".repeat(3000), "界".repeat(900)] {
            let cut = shortened(&text, NOTE_LIMIT);
            assert!(cut.len() <= NOTE_LIMIT && cut.len() > NOTE_LIMIT - 8);
            assert!(cut.ends_with('…') && text.starts_with(cut.trim_end_matches('…')));
        }
    }

    #[test]
    fn events_of_objects_with_long_names_have_valid_names() {
        let now: Timestamp = "2026-01-05T11:00:00Z".parse().unwrap();
        assert_eq!(name_at("main", now), "main.1887d0a84b24e000");
        let cut = NAME_LIMIT - ".1887d0a84b24e000".len();
        for object in [
            "a".repeat(253),
            format!("{}-{}", "a".repeat(cut - 1), "b".repeat(20)),
        ] {
            let name = name_at(&object, now);
            assert!(name.len() <= NAME_LIMIT && !name.contains("-."), "{name}");
        }
    }
}
