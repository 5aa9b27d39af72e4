//! Events, told in the background: one that cannot be stored for a while is
//! logged and holds up nobody.
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
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

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

/// How often one event is tried, and the pause after the first attempt, which doubles: the
/// API server stands still while the etcd behind it is defragmented.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(500);
/// How long a stop waits for what is still to be told.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Where events are handed in.
#[derive(Clone, Debug)]
pub(super) struct Events(mpsc::Sender<(ObjectReference, Event)>);

/// What is being told, in the background.
#[derive(Debug)]
pub(super) struct Telling {
    last: CancellationToken,
    task: JoinHandle<()>,
}

impl Telling {
    /// Takes no more events, and waits a little until those at hand are told.
    pub(super) async fn finish(mut self) {
        self.last.cancel();
        if tokio::time::timeout(LAST_WORDS, &mut self.task)
            .await
            .is_err()
        {
            self.task.abort();
            tracing::warn!("events that could not be stored within {LAST_WORDS:?} are dropped");
        }
    }
}

impl Events {
    /// Starts telling, under the name of this replica.
    pub(super) fn start(client: Client, instance: String) -> (Self, Telling) {
        let (hand_in, mut handed_in) = mpsc::channel::<(ObjectReference, Event)>(WAITING);
        let mut recorder = Recorder {
            client,
            instance,
            told: BTreeMap::new(),
            pause: PAUSE,
        };
        let last = CancellationToken::new();
        let close = last.clone();
        let task = tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    biased;
                    // What was handed in before is still received.
                    () = close.cancelled(), if !handed_in.is_closed() => {
                        handed_in.close();
                        continue;
                    }
                    next = handed_in.recv() => next,
                };
                let Some((about, event)) = next else { break };
                if let Err(error) = recorder.tell(&about, &event).await {
                    tracing::warn!(
                        object = about.name, reason = %event.note.reason, %error,
                        "unable to store an event"
                    );
                }
            }
        });
        (Events(hand_in), Telling { last, task })
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
    /// After a first attempt.
    pause: Duration,
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
            // Twice the same count is the same.
            let patched = insistently(self.pause, || api.patch(&told.name, &params, &patch));
            match patched.await {
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
        match insistently(self.pause, || api.create(&params, &stored)).await {
            Ok(_) => {}
            // Its time is in the name: it is this one, and the answer was lost.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        let told = Told {
            name,
            count: 1,
            last: Instant::now(),
        };
        self.told.insert(said, told);
        Ok(())
    }
}

/// One request, again and again while it may have another answer soon.
async fn insistently<T, R>(pause: Duration, request: impl Fn() -> R) -> Result<T, ApiError>
where
    R: Future<Output = kube::Result<T>>,
{
    let mut pause = pause;
    for _ in 1..ATTEMPTS {
        match bounded(REQUEST_TIMEOUT, request()).await {
            Err(error) if error.may_pass() => {
                tracing::debug!(%error, "an event is told again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            done => return done,
        }
    }
    bounded(REQUEST_TIMEOUT, request()).await
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
    use wiremock::matchers::method;
    use wiremock::{Mock, MockServer, ResponseTemplate};

    use super::*;
    use crate::core::reason::Reason;
    use crate::core::run::Note;
    use crate::engine::{About, ObjectKey};

    /// Answers so, once.
    async fn answers(server: &MockServer, code: u16) {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "code": code });
        let answer = ResponseTemplate::new(code).set_body_json(status);
        let mock = Mock::given(method("POST")).respond_with(answer);
        mock.up_to_n_times(1).expect(1).mount(server).await;
    }

    /// The names of events that somebody asked to store.
    async fn asked(server: &MockServer) -> Vec<String> {
        let requests = server.received_requests().await.unwrap();
        let bodies = requests.iter().map(|request| {
            let event: ApiEvent = serde_json::from_slice(&request.body).unwrap();
            event.metadata.name.unwrap()
        });
        bodies.collect()
    }

    async fn recorder(server: &MockServer) -> Recorder {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut config = kube::Config::new(server.uri().parse().unwrap());
        config.default_retry = false;
        Recorder {
            client: Client::try_from(config).unwrap(),
            instance: "defragd-0".to_owned(),
            told: BTreeMap::new(),
            pause: Duration::from_millis(1),
        }
    }

    async fn tell(recorder: &mut Recorder) -> Result<(), ApiError> {
        let about = ObjectReference {
            name: Some("r".to_owned()),
            namespace: Some("a".to_owned()),
            ..ObjectReference::default()
        };
        let event = Event {
            about: About::Run(ObjectKey {
                namespace: "a".into(),
                name: "r".into(),
            }),
            warning: false,
            note: Note::new(Reason::SweepComplete, "done"),
        };
        recorder.tell(&about, &event).await
    }

    #[tokio::test]
    async fn an_event_whose_answer_was_lost_is_the_same_event() {
        let server = MockServer::start().await;
        for code in [429, 503, 500, 409] {
            answers(&server, code).await;
        }
        let mut recorder = recorder(&server).await;
        tell(&mut recorder).await.unwrap();
        let asked = asked(&server).await;
        assert_eq!(asked.len(), 4);
        assert!(asked.iter().all(|name| *name == asked[0]), "{asked:?}");
        assert_eq!(recorder.told.len(), 1, "it is stored");
    }

    #[tokio::test]
    async fn what_is_refused_is_told_once() {
        let server = MockServer::start().await;
        answers(&server, 403).await;
        let mut recorder = recorder(&server).await;
        assert_eq!(tell(&mut recorder).await.unwrap_err().code(), Some(403));
        assert_eq!(asked(&server).await.len(), 1);
    }

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
