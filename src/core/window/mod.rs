//! When runs may start: windows, blackouts, and what they say together.
//!
//! A window opens at a wall-clock time of its zone and stays open for an elapsed
//! time. Wall clocks jump, so three rules settle what that means (T71):
//!
//! - a start that the clock skips opens at the first instant that exists, which
//!   is the jump itself;
//! - a start that the clock shows twice opens at the first of the two;
//! - the length is elapsed time, whatever the clock shows meanwhile.
//!
//! All three follow from one monotone map from wall-clock starts to instants
//! ([`Window::resolve`]), so that one search serves weekly and cron windows.

mod error;
mod recurrence;
mod schedule;

pub use error::{CronText, WindowError};
pub use recurrence::{CronRecurrence, Recurrence, WeekdaySet};
pub use schedule::{ClosedBy, Gate, Schedule};

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use super::duration;

/// The longest weekly window: beyond it the next one would have begun.
const MAX_WEEKLY: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The longest cron window: a cron expression can be as rare as once a year.
const MAX_CRON: SignedDuration = SignedDuration::from_hours(366 * 24);

/// How many openings that follow upon each other without a pause are joined
/// before a window counts as one that does not close.
const MAX_JOINED: usize = 512;

/// A recurring span of time. The end is exclusive (T69).
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    recurrence: Recurrence,
    length: SignedDuration,
    zone: TimeZone,
}

impl Window {
    /// A window on some weekdays: `days` by their English names, short or long,
    /// in any case (none given: every day), `start` as `HH:MM`, `length` as a
    /// Prometheus duration, `zone` as an IANA name (empty: UTC).
    ///
    /// # Errors
    /// [`WindowError`], which names the wrong field.
    pub fn weekly(
        days: &[&str],
        start: &str,
        length: &str,
        zone: &str,
    ) -> Result<Self, WindowError> {
        let recurrence = Recurrence::Weekly {
            days: WeekdaySet::parse(days)?,
            start: recurrence::parse_start(start)?,
        };
        Ok(Self {
            recurrence,
            length: parse_length(length, MAX_WEEKLY)?,
            zone: parse_zone(zone)?,
        })
    }

    /// A window that opens whenever a cron expression of five fields matches.
    ///
    /// # Errors
    /// [`WindowError`], which names the wrong field; also an expression that
    /// never matches, such as the 30th of February.
    pub fn cron(expression: &str, length: &str, zone: &str) -> Result<Self, WindowError> {
        let recurrence = Recurrence::Cron(CronRecurrence::parse(expression)?);
        Ok(Self {
            recurrence,
            length: parse_length(length, MAX_CRON)?,
            zone: parse_zone(zone)?,
        })
    }

    /// When it opens.
    #[must_use]
    pub fn recurrence(&self) -> &Recurrence {
        &self.recurrence
    }

    /// How long it stays open, in elapsed time.
    #[must_use]
    pub fn length(&self) -> SignedDuration {
        self.length
    }

    /// The zone of its wall clock.
    #[must_use]
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Whether `t` lies inside, the end excluded.
    #[must_use]
    pub fn contains(&self, t: Timestamp) -> bool {
        // All openings have one length, so the latest is the last to close.
        self.opening_at_or_before(t)
            .is_some_and(|start| t.duration_since(start) < self.length)
    }

    /// The first opening after `t`, exclusive, whether or not `t` is inside.
    /// `None` when there is none before the calendar ends.
    #[must_use]
    pub fn opening_after(&self, t: Timestamp) -> Option<Timestamp> {
        let start = self.recurrence.next_after(self.last_shown(t)?)?;
        self.resolve(start)
    }

    /// When the window that contains `t` closes. Openings that overlap or touch
    /// count as one. `None` when `t` is outside, or when no end is in sight.
    #[must_use]
    pub fn current_end(&self, t: Timestamp) -> Option<Timestamp> {
        let mut start = self
            .opening_at_or_before(t)
            .filter(|start| t.duration_since(*start) < self.length)?;
        for _ in 0..MAX_JOINED {
            let end = start.checked_add(self.length).ok()?;
            match self.opening_at_or_before(end) {
                Some(later) if later > start => start = later,
                _ => return Some(end),
            }
        }
        None
    }

    fn opening_at_or_before(&self, t: Timestamp) -> Option<Timestamp> {
        let start = self.recurrence.last_at_or_before(self.last_shown(t)?)?;
        self.resolve(start)
    }

    /// The instant at which a wall-clock start opens. Monotone: a later start
    /// never opens earlier.
    fn resolve(&self, start: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(start);
        let skipped_by = match ambiguous.offset() {
            AmbiguousOffset::Gap { before, .. } => Some(before),
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => None,
        };
        match skipped_by {
            // Read with the offset before the jump, a skipped time lies at or
            // after the jump, and the jump is the last one up to there.
            Some(before) => {
                let shifted = before.to_timestamp(start).ok()?;
                self.zone
                    .preceding(just_after(shifted)?)
                    .next()
                    .map(|jump| jump.timestamp())
            }
            // The first of two.
            None => ambiguous.earlier().ok(),
        }
    }

    /// The latest wall-clock time that the zone has shown up to `t`. While a
    /// clock that was turned back catches up, that is later than what it shows
    /// at `t`. Exactly the starts up to it have opened by `t`.
    fn last_shown(&self, t: Timestamp) -> Option<DateTime> {
        let shown = self.zone.to_datetime(t);
        let Some(jump) = self.zone.preceding(just_after(t)?).next() else {
            return Some(shown);
        };
        let before = jump
            .timestamp()
            .checked_sub(SignedDuration::from_nanos(1))
            .ok()?;
        Some(shown.max(self.zone.to_datetime(before)))
    }
}

/// `preceding` is exclusive, and the jump at `t` itself is wanted.
fn just_after(t: Timestamp) -> Option<Timestamp> {
    t.checked_add(SignedDuration::from_nanos(1)).ok()
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.iana_name().unwrap_or("UTC");
        write!(
            f,
            "{} for {} ({zone})",
            self.recurrence,
            duration::format(self.length)
        )
    }
}

fn parse_length(text: &str, max: SignedDuration) -> Result<SignedDuration, WindowError> {
    let length = duration::parse(text).map_err(WindowError::Length)?;
    if length.is_zero() {
        return Err(WindowError::EmptyLength {
            value: text.to_owned(),
        });
    }
    if length > max {
        return Err(WindowError::LongLength {
            value: text.to_owned(),
            max: duration::format(max),
        });
    }
    Ok(length)
}

/// Only names of the IANA database that is built in: "Local" and the files that
/// some machines keep beside their zones would mean something else on the next
/// machine (T73).
fn parse_zone(name: &str) -> Result<TimeZone, WindowError> {
    if name.is_empty() {
        return Ok(TimeZone::UTC);
    }
    TimeZoneDatabase::bundled()
        .get(name)
        .map_err(|_| WindowError::Zone {
            value: name.chars().take(64).collect(),
        })
}

#[cfg(test)]
mod tests;
