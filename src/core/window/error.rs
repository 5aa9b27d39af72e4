//! What can be wrong with a window.

use std::fmt;

use crate::core::duration::DurationError;

/// Why a window was refused. [`WindowError::field`] says which of its fields is
/// to blame, so that the caller can prefix the path of the window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// A name that is no weekday.
    #[error("day {value:?} is unknown, want an English weekday such as \"Fri\" or \"Friday\"")]
    Day {
        /// The name given.
        value: String,
    },
    /// The start is no time of day.
    #[error(
        "start {value:?} is not a time of day, want \"HH:MM\" from \"00:00\" to \"23:59\" such as \"22:00\""
    )]
    Start {
        /// The text given.
        value: String,
    },
    /// The length does not parse.
    #[error("the length is wrong: {0}")]
    Length(DurationError),
    /// The length is zero.
    #[error("length {value:?} makes an empty window, want at least a moment such as \"1h\"")]
    EmptyLength {
        /// The text given.
        value: String,
    },
    /// The length is beyond what the recurrence makes sense of.
    #[error("length {value:?} is too long, want at most {max:?}")]
    LongLength {
        /// The text given.
        value: String,
        /// The longest that is accepted.
        max: String,
    },
    /// The cron expression does not parse or never matches.
    #[error(
        "cron expression {value:?} {reason}, want five fields such as \"0 22 * * 5\" (minute hour day month weekday)"
    )]
    Cron {
        /// The text given.
        value: String,
        /// What is wrong with it.
        reason: CronText,
    },
    /// The zone is not in the IANA database.
    #[error(
        "time zone {value:?} is unknown, want an IANA name such as \"Europe/Berlin\" or \"UTC\" (never \"Local\")"
    )]
    Zone {
        /// The name given.
        value: String,
    },
}

/// What is wrong with a cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CronText {
    /// It has this many fields.
    Fields(usize),
    /// Its parser's words.
    Unreadable(String),
    /// No date ever matches.
    Never,
}

impl fmt::Display for CronText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields(count) => write!(f, "has {count} fields"),
            Self::Unreadable(reason) => {
                write!(f, "does not parse ({})", reason.trim_end_matches('.'))
            }
            Self::Never => f.write_str("never matches any date"),
        }
    }
}

impl WindowError {
    /// The field of the window that is wrong, as it is spelled in an object.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::Day { .. } => "days",
            Self::Start { .. } => "start",
            Self::Length(_) | Self::EmptyLength { .. } | Self::LongLength { .. } => "length",
            Self::Cron { .. } => "cron",
            Self::Zone { .. } => "timeZone",
        }
    }
}
