//! Leaving a source alone that asked for it, by `Retry-After`.
//!
//! A pause delays no policy: the source's answer meanwhile is an error that costs
//! no request, and what a policy makes of that goes on as ever.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::core::reason::Reason;
use crate::signals::failure::Failure;

/// Until when somebody is left alone, for all questions alike.
pub(in crate::signals) struct Hold {
    /// As a sentence begins.
    who: &'static str,
    held: Mutex<Option<Held>>,
}

struct Held {
    until: Instant,
    /// The same on the clock on the wall, in whole seconds: a sentence that is the
    /// same as long as the pause lasts is written once.
    shown: Timestamp,
    reason: Reason,
}

impl Hold {
    pub(in crate::signals) fn new(who: &'static str) -> Self {
        Hold {
            who,
            held: Mutex::new(None),
        }
    }

    /// What is answered in its place while it is left alone.
    pub(in crate::signals) fn check(&self) -> Result<(), Failure> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = held.as_ref() else {
            return Ok(());
        };
        if known.until <= Instant::now() {
            *held = None;
            return Ok(());
        }
        let message = format!("{} asked to be left alone until {}", self.who, known.shown);
        Err(Failure::new(known.reason, message))
    }

    /// Begins for as long as it asked, or goes on: of several pauses the one that
    /// ends last counts.
    pub(in crate::signals) fn begin(&self, wait: SignedDuration, reason: Reason) {
        let until = Duration::try_from(wait)
            .ok()
            .and_then(|wait| Instant::now().checked_add(wait));
        let (Some(until), Ok(shown)) = (until, Timestamp::now().checked_add(wait)) else {
            return;
        };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_none_or(|known| known.until < until) {
            *held = Some(Held {
                until,
                shown: Timestamp::from_second(shown.as_second() + 1).unwrap_or(shown),
                reason,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_pause_does_not_end_a_longer_one() {
        let hold = Hold::new("it");
        assert_eq!(hold.check(), Ok(()));
        hold.begin(SignedDuration::from_hours(1), Reason::SourceUnavailable);
        let first = hold.check().unwrap_err();
        assert_eq!(first.reason, Reason::SourceUnavailable);
        for shorter in [0, 30] {
            hold.begin(SignedDuration::from_secs(shorter), Reason::RateLimited);
            assert_eq!(hold.check().unwrap_err(), first, "{shorter}");
        }
        hold.begin(SignedDuration::from_hours(2), Reason::RateLimited);
        assert_eq!(hold.check().unwrap_err().reason, Reason::RateLimited);
    }

    #[test]
    fn a_pause_of_no_length_is_none() {
        let hold = Hold::new("it");
        hold.begin(SignedDuration::ZERO, Reason::RateLimited);
        assert_eq!(hold.check(), Ok(()));
    }
}
