//! When a window opens, on the wall clock alone: no zone, no gaps, no folds.

use std::fmt;
use std::sync::Arc;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::{DateTime, Time, Weekday};
use jiff::{Span, ToSpan};

use super::error::{CronText, WindowError};

/// How much of a bad text is repeated in a message.
const SHOWN: usize = 64;

/// The recurrence of a window.
#[derive(Debug, Clone, PartialEq)]
pub enum Recurrence {
    /// On some weekdays at a time of day.
    Weekly {
        /// Never empty.
        days: WeekdaySet,
        /// A whole minute.
        start: Time,
    },
    /// Whenever a cron expression matches.
    Cron(CronRecurrence),
}

impl Recurrence {
    /// The first start after `t`, exclusive.
    pub(super) fn next_after(&self, t: DateTime) -> Option<DateTime> {
        let t = whole_minute(t)?;
        match self {
            // Eight days hold each weekday's start at least once after `t`.
            Self::Weekly { days, start } => {
                self::nearby(t, *days, *start, [0, 1, 2, 3, 4, 5, 6, 7])
                    .find(|candidate| *candidate > t)
            }
            Self::Cron(cron) => cron.inner.pattern.find_next_occurrence(&t, false).ok(),
        }
    }

    /// The last start up to `t`, inclusive.
    pub(super) fn last_at_or_before(&self, t: DateTime) -> Option<DateTime> {
        let t = whole_minute(t)?;
        match self {
            Self::Weekly { days, start } => {
                self::nearby(t, *days, *start, [0, -1, -2, -3, -4, -5, -6, -7])
                    .find(|candidate| *candidate <= t)
            }
            Self::Cron(cron) => cron.inner.pattern.find_previous_occurrence(&t, true).ok(),
        }
    }
}

/// Starts are whole minutes, so a comparison with `t` is one with its minute.
fn whole_minute(t: DateTime) -> Option<DateTime> {
    t.with().second(0).subsec_nanosecond(0).build().ok()
}

/// The starts on the days around `t`, in the order of `offsets`.
fn nearby(
    t: DateTime,
    days: WeekdaySet,
    start: Time,
    offsets: [i64; 8],
) -> impl Iterator<Item = DateTime> {
    offsets.into_iter().filter_map(move |offset| {
        let offset: Span = offset.days();
        let date = t.date().checked_add(offset).ok()?;
        days.contains(date.weekday())
            .then(|| date.to_datetime(start))
    })
}

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weekly { days, start } => {
                write!(f, "{days} {:02}:{:02}", start.hour(), start.minute())
            }
            Self::Cron(cron) => write!(f, "cron {:?}", cron.as_str()),
        }
    }
}

/// A cron expression of five fields, with the text that it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct CronRecurrence {
    // Shared: a pattern has seven tables, and policies are cloned.
    inner: Arc<CronInner>,
}

#[derive(Debug, PartialEq)]
struct CronInner {
    source: String,
    pattern: Cron,
}

impl CronRecurrence {
    pub(super) fn parse(text: &str) -> Result<Self, WindowError> {
        let refuse = |reason| WindowError::Cron {
            value: text.chars().take(SHOWN).collect(),
            reason,
        };
        let fields = text.split_whitespace().count();
        // Shorthands such as @daily are one field.
        let is_shorthand = fields == 1 && text.trim_start().starts_with('@');
        if !is_shorthand && fields != 5 {
            return Err(refuse(CronText::Fields(fields)));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Optional)
            .year(Year::Optional)
            .build();
        let pattern = parser
            .parse(text)
            .map_err(|error| refuse(CronText::Unreadable(error.to_string())))?;
        // The calendar repeats after 400 years: what does not match by then never will.
        let some_day = jiff::civil::date(2000, 1, 1).at(0, 0, 0, 0);
        if pattern.find_next_occurrence(&some_day, true).is_err() {
            return Err(refuse(CronText::Never));
        }
        Ok(Self {
            inner: Arc::new(CronInner {
                source: text.to_owned(),
                pattern,
            }),
        })
    }

    /// The expression as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.inner.source
    }
}

/// A set of weekdays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeekdaySet(u8);

const WEEKDAYS: [(Weekday, &str); 7] = [
    (Weekday::Monday, "Monday"),
    (Weekday::Tuesday, "Tuesday"),
    (Weekday::Wednesday, "Wednesday"),
    (Weekday::Thursday, "Thursday"),
    (Weekday::Friday, "Friday"),
    (Weekday::Saturday, "Saturday"),
    (Weekday::Sunday, "Sunday"),
];

impl WeekdaySet {
    /// All seven.
    pub const EVERY_DAY: Self = Self(0b111_1111);

    /// Reads English names, short (`Fri`) or long (`Friday`), in any case; none
    /// given means every day.
    ///
    /// # Errors
    /// [`WindowError::Day`] for the first name that is no weekday.
    pub fn parse(names: &[&str]) -> Result<Self, WindowError> {
        if names.is_empty() {
            return Ok(Self::EVERY_DAY);
        }
        let mut set = 0;
        for name in names {
            let is_it = |long: &str| {
                name.eq_ignore_ascii_case(long) || name.eq_ignore_ascii_case(&long[..3])
            };
            match WEEKDAYS.iter().position(|(_, long)| is_it(long)) {
                Some(index) => set |= 1 << index,
                None => {
                    return Err(WindowError::Day {
                        value: name.chars().take(SHOWN).collect(),
                    });
                }
            }
        }
        Ok(Self(set))
    }

    /// Whether the day belongs to it.
    #[must_use]
    pub fn contains(self, day: Weekday) -> bool {
        self.0 & (1 << day.to_monday_zero_offset()) != 0
    }
}

impl fmt::Display for WeekdaySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::EVERY_DAY {
            return f.write_str("every day");
        }
        let names = WEEKDAYS
            .iter()
            .filter(|(day, _)| self.contains(*day))
            .map(|(_, long)| &long[..3]);
        for (index, name) in names.enumerate() {
            write!(f, "{}{name}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Reads `HH:MM`.
pub(super) fn parse_start(text: &str) -> Result<Time, WindowError> {
    let refuse = || WindowError::Start {
        value: text.chars().take(SHOWN).collect(),
    };
    let digits = |part: &str| {
        let is_two_digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        if is_two_digits {
            part.parse::<i8>().ok()
        } else {
            None
        }
    };
    let (hour, minute) = text.split_once(':').ok_or_else(refuse)?;
    let (hour, minute) = digits(hour).zip(digits(minute)).ok_or_else(refuse)?;
    Time::new(hour, minute, 0, 0).map_err(|_| refuse())
}
