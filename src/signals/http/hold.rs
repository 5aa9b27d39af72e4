//! Leaving a source alone that asked for it: 429 with `Retry-After`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::SignedDuration;

use super::say;
use crate::core::reason::Reason;
use crate::signals::failure::Failure;

/// Until when the source is left alone, for all questions alike.
#[derive(Default)]
pub(super) struct Hold(Mutex<Option<Instant>>);

impl Hold {
    /// What is answered in the source's place while it is left alone.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(until) = *held else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            *held = None;
            return Ok(());
        }
        Err(Failure {
            reason: Reason::RateLimited,
            message: format!("the source asked to be left alone for {} more", say(left)),
            retry_after: SignedDuration::try_from(left).ok(),
        })
    }

    /// Begins, or goes on, for as long as the source asked.
    pub(super) fn until_over(&self, wait: SignedDuration) {
        let until = Duration::try_from(wait)
            .ok()
            .and_then(|wait| Instant::now().checked_add(wait));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}
