//! How far one question has come, for the moment its time is up.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// What a question waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Stage {
    /// Files, or a token server.
    #[default]
    Credentials,
    /// Room within the limit of requests a second.
    Turn,
    /// The source.
    Answer,
}

#[derive(Default)]
pub(super) struct Progress(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    stage: Stage,
    sent_at: Option<Timestamp>,
}

impl Progress {
    pub(super) fn enter(&self, stage: Stage) {
        self.seen(|seen| seen.stage = stage);
    }

    pub(super) fn sent(&self, at: Timestamp) {
        self.seen(|seen| seen.sent_at = Some(at));
    }

    pub(super) fn stage(&self) -> Stage {
        self.seen(|seen| seen.stage)
    }

    /// When the last request was sent.
    pub(super) fn sent_at(&self) -> Option<Timestamp> {
        self.seen(|seen| seen.sent_at)
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
