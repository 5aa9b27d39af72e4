//! Alerts as Alertmanager knows them: which ones a policy means, what they say,
//! and what is kept of those that are pushed.
//!
//! Labels and annotations are data of somebody else: they are compared and, cut
//! short and escaped, shown; nothing is ever made of them.

mod inbox;
mod judge;
mod matcher;
mod pattern;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use inbox::{Delivered, Entry, Inbox, InboxError, LATE, Outcome};
pub use judge::{judge, judge_pushed, merge};
pub use matcher::{MAX_MATCHER, MAX_MATCHERS, Matcher, MatcherError, Matchers, Operator};

/// An alert of a source that an administrator configured.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertSignal {
    pub source: String,
    pub matchers: Matchers,
    /// Alerts that are silenced fire too.
    pub silenced: bool,
    /// Alerts that are inhibited by others fire too.
    pub inhibited: bool,
}

/// The labels of one alert.
pub type Labels = BTreeMap<String, String>;

/// One alert that its sender considers as active.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Alert {
    pub labels: Labels,
    /// Since when it fires, by the clock of who evaluates its rule.
    pub starts_at: Timestamp,
    /// When somebody last said so, on this machine's clock.
    pub updated_at: Timestamp,
    /// Alertmanager has not yet looked at it.
    pub unprocessed: bool,
    pub silences: Vec<Silence>,
    /// Fingerprints of the alerts that inhibit it.
    pub inhibited_by: Vec<String>,
    /// Time intervals of a route that mute it.
    pub muted_by: Vec<String>,
}

/// A silence that covers an alert, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Silence {
    pub id: String,
    pub author: Option<String>,
    pub comment: Option<String>,
    pub ends_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests;
