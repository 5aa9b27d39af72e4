//! A watch that goes on: lists, follows, lists again when it must.

use std::fmt;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::{self, Event, ExponentialBackoff};

use super::api::chain;

/// How long one watch request lasts. A connection that died silently is noticed
/// soon after that, by the client's read time-out at the latest.
const WATCH_SECONDS: u32 = 60;
/// First pause after a watch failed.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A watch that held for so long starts anew with short pauses.
const SETTLED: Duration = Duration::from_secs(60);

/// Takes in what a watch tells. Objects are raw, so that none can end the watch.
pub(super) trait Sink: Send {
    /// A new list begins.
    fn begin(&mut self);
    /// The object is as given.
    fn seen(&mut self, object: DynamicObject);
    /// Everything there is was [seen](Sink::seen) since the list began.
    fn complete(&mut self);
    /// The object was deleted.
    fn gone(&mut self, object: &DynamicObject);
    /// The watch failed and is tried again.
    fn failed(&mut self, failure: Failure);
}

/// Why a watch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server does not know the resource: its definition is not installed.
    NotServed,
    /// The position was too old; everything is listed again.
    Expired,
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotServed => f.write_str("the API server does not know the kind"),
            Failure::Expired => f.write_str("the watch was too old"),
            Failure::Other(problem) => f.write_str(problem),
        }
    }
}

impl From<&watcher::Error> for Failure {
    fn from(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
                if status.code == 404 =>
            {
                Failure::NotServed
            }
            watcher::Error::WatchError(status) if status.code == 410 => Failure::Expired,
            other => Failure::Other(chain(other)),
        }
    }
}

/// Watches for ever; it ends by being dropped.
pub(super) async fn follow(api: Api<DynamicObject>, labels: &str, mut sink: impl Sink) {
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
    if !labels.is_empty() {
        config = config.labels(labels);
    }
    let pauses = ExponentialBuilder::new()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times();
    let pauses = ExponentialBackoff::from(pauses);
    let mut events = watcher::watcher(api, config)
        .backoff(ResetTimerBackoff::new(pauses, SETTLED))
        .boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => sink.begin(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => sink.seen(object),
            Ok(Event::InitDone) => sink.complete(),
            Ok(Event::Delete(object)) => sink.gone(&object),
            Err(error) => sink.failed(Failure::from(&error)),
        }
    }
}
