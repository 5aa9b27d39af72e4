//! Events, told in the background: one that cannot be stored is logged and
//! holds up nobody.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event as ApiEvent, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use super::api::{REQUEST_TIMEOUT, bounded};
use crate::engine::Event;

/// Events that may wait to be stored; more are dropped and logged.
const WAITING: usize = 1024;
/// The longest note that the API server takes, in bytes.
const NOTE_LIMIT: usize = 1024;

/// Where events are handed in.
#[derive(Clone, Debug)]
pub(super) struct Events(mpsc::Sender<(ObjectReference, Event)>);

impl Events {
    /// Starts telling, under the name of this replica.
    pub(super) fn start(client: Client, instance: String) -> Self {
        let (hand_in, mut handed_in) = mpsc::channel::<(ObjectReference, Event)>(WAITING);
        let recorder = Recorder::new(
            client,
            Reporter {
                controller: "defragd".to_owned(),
                instance: Some(instance),
            },
        );
        tokio::spawn(async move {
            while let Some((about, event)) = handed_in.recv().await {
                let event = api_event(event);
                let publish = recorder.publish(&event, &about);
                if let Err(error) = bounded(REQUEST_TIMEOUT, publish).await {
                    tracing::warn!(
                        object = about.name, reason = event.reason, %error,
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

fn api_event(event: Event) -> ApiEvent {
    let Event {
        about: _,
        warning,
        note,
    } = event;
    let reason = note.reason.as_str().to_owned();
    ApiEvent {
        type_: if warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        action: reason.clone(),
        reason,
        note: Some(shortened(note.message, NOTE_LIMIT)),
        secondary: None,
    }
}

/// At most `limit` bytes, cut between characters.
fn shortened(mut text: String, limit: usize) -> String {
    const MORE: &str = "…";
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
        assert_eq!(shortened("short".to_owned(), NOTE_LIMIT), "short");
        for text in ["x".repeat(5000), "ä".repeat(3000), "界".repeat(900)] {
            let cut = shortened(text.clone(), NOTE_LIMIT);
            assert!(cut.len() <= NOTE_LIMIT && cut.len() > NOTE_LIMIT - 8);
            assert!(cut.ends_with('…') && text.starts_with(cut.trim_end_matches('…')));
        }
    }
}
