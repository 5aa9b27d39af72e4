//! From alerts to a signal's state.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Alert, AlertSignal, Entry, Inbox, Labels, Silence};
use crate::core::reason::Reason;
use crate::core::signal::{Reading, SignalState, bounded};

/// The longest message of a reading, in characters.
const MESSAGE_CHARS: usize = 600;
/// How much of an alert's labels a message shows, in characters.
const LABELS_CHARS: usize = 160;
/// How much of a silence's author and comment a message shows, in characters.
const AUTHOR_CHARS: usize = 60;
const COMMENT_CHARS: usize = 80;

/// Judges what Alertmanager answered: the alerts that it has at this moment.
///
/// One alert that matches and is not suppressed fires. The reading's value is
/// how many there are, it fires since the earliest `startsAt` of them, and its
/// evidence is as old as the newest word about one of them (S37). No alert, or
/// suppressed ones only, is `NotFiring` (T79).
pub fn judge(signal: &AlertSignal, alerts: &[Alert], now: Timestamp) -> Reading {
    let matching: Vec<&Alert> = alerts
        .iter()
        .filter(|alert| signal.matchers.match_labels(&alert.labels))
        .collect();
    let (active, held): (Vec<&Alert>, Vec<&Alert>) = matching
        .into_iter()
        .partition(|alert| suppression(signal, alert).is_none());
    if active.is_empty() {
        let message = match held.first() {
            None => format!("no alert matches {}", signal.matchers),
            Some(first) => {
                let why = suppression(signal, first).unwrap_or_default();
                match held.len() {
                    1 => format!("the alert {} is {why}", shown(&first.labels)),
                    n => format!(
                        "{n} alerts match and none is active, among them {}, which is {why}",
                        shown(&first.labels)
                    ),
                }
            }
        };
        return Reading::new(
            SignalState::NotFiring,
            Reason::SignalNotFiring,
            bounded(&message, MESSAGE_CHARS),
        );
    }
    firing(
        &active
            .iter()
            .map(|alert| (&alert.labels, alert.starts_at, alert.updated_at))
            .collect::<Vec<_>>(),
        held.len(),
        now,
    )
}

/// Judges what was pushed (T80, T81). A firing alert counts until its own end or
/// `expires`, whichever comes first; from then on nobody knows, which is no data.
pub fn judge_pushed(
    signal: &AlertSignal,
    inbox: &Inbox,
    expires: impl Fn(&Entry) -> Timestamp,
    now: Timestamp,
) -> Reading {
    let no_data = |message: String| {
        Reading::new(
            SignalState::NoData,
            Reason::NoData,
            bounded(&message, MESSAGE_CHARS),
        )
    };
    if inbox.received_at.is_none() {
        return no_data("no alert has been delivered yet".to_owned());
    }
    let matching = || {
        inbox
            .entries
            .iter()
            .filter(|entry| entry.firing && signal.matchers.match_labels(&entry.labels))
    };
    let active: Vec<_> = matching()
        .filter(|entry| now < expires(entry))
        .map(|entry| (&entry.labels, entry.starts_at, entry.received_at))
        .collect();
    if !active.is_empty() {
        return firing(&active, 0, now);
    }
    let last = matching().max_by_key(|entry| entry.received_at);
    match last {
        Some(entry) => no_data(format!(
            "the alert {} was last delivered as firing at {} and counts until {}; its end was not delivered",
            shown(&entry.labels),
            entry.received_at,
            expires(entry)
        )),
        None => Reading::new(
            SignalState::NotFiring,
            Reason::SignalNotFiring,
            bounded(
                &format!("no delivered alert that fires matches {}", signal.matchers),
                MESSAGE_CHARS,
            ),
        ),
    }
}

fn firing(active: &[(&Labels, Timestamp, Timestamp)], held: usize, now: Timestamp) -> Reading {
    let since = active.iter().map(|(_, since, _)| *since).min();
    let newest = active.iter().map(|(_, _, at)| *at).max();
    let first = active.iter().min_by_key(|(_, since, _)| *since);
    let (labels, started) = first.map_or((String::new(), now), |(labels, since, _)| {
        (shown(labels), *since)
    });
    let mut message = match active.len() {
        1 => format!("the alert {labels} is active since {started}"),
        n => format!("{n} alerts are active, the first of them {labels} since {started}"),
    };
    if held > 0 {
        message.push_str(&format!("; {held} more suppressed"));
    }
    Reading {
        value: u32::try_from(active.len()).ok().map(f64::from),
        sampled_at: newest.map(|at| at.min(now)),
        firing_since: since.map(|at| at.min(now)),
        ..Reading::new(
            SignalState::Firing,
            Reason::SignalFiring,
            bounded(&message, MESSAGE_CHARS),
        )
    }
}

/// Why the alert does not count, as it goes on after "is".
fn suppression(signal: &AlertSignal, alert: &Alert) -> Option<String> {
    if let Some(silence) = alert.silences.iter().max_by_key(|silence| silence.ends_at)
        && !signal.silenced
    {
        return Some(silenced(silence));
    }
    if let Some(by) = alert.inhibited_by.first()
        && !signal.inhibited
    {
        return Some(format!(
            "inhibited by the alert {}",
            bounded(by, AUTHOR_CHARS)
        ));
    }
    if let Some(interval) = alert.muted_by.first()
        && !signal.silenced
    {
        return Some(format!(
            "muted by the time interval {}",
            bounded(interval, AUTHOR_CHARS)
        ));
    }
    alert
        .unprocessed
        .then(|| "not processed by Alertmanager yet".to_owned())
}

/// "silenced by ID until T, by AUTHOR (COMMENT)"
fn silenced(silence: &Silence) -> String {
    let Silence {
        id,
        author,
        comment,
        ends_at,
    } = silence;
    let mut text = format!("silenced by {}", bounded(id, AUTHOR_CHARS));
    if let Some(until) = ends_at {
        text.push_str(&format!(" until {until}"));
    }
    if let Some(author) = author.as_deref().filter(|author| !author.is_empty()) {
        text.push_str(&format!(", by {}", bounded(author, AUTHOR_CHARS)));
    }
    if let Some(comment) = comment.as_deref().filter(|comment| !comment.is_empty()) {
        text.push_str(&format!(" ({})", bounded(comment, COMMENT_CHARS)));
    }
    text
}

/// An alert by its labels, bounded and escaped.
fn shown(labels: &Labels) -> String {
    let name = labels.get("alertname").map_or("", String::as_str);
    let others: Vec<String> = labels
        .iter()
        .filter(|(key, _)| *key != "alertname")
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    bounded(&format!("{name}{{{}}}", others.join(", ")), LABELS_CHARS)
}

/// Puts the answers of several Alertmanagers of one set together: an alert that
/// one of them has is there, and a silence that one of them knows holds.
pub fn merge(answers: Vec<Vec<Alert>>) -> Vec<Alert> {
    let mut merged: BTreeMap<Labels, Alert> = BTreeMap::new();
    for alert in answers.into_iter().flatten() {
        match merged.get_mut(&alert.labels) {
            None => {
                merged.insert(alert.labels.clone(), alert);
            }
            Some(known) => {
                let Alert {
                    labels: _,
                    starts_at,
                    updated_at,
                    unprocessed,
                    silences,
                    inhibited_by,
                    muted_by,
                } = alert;
                known.starts_at = known.starts_at.min(starts_at);
                known.updated_at = known.updated_at.max(updated_at);
                known.unprocessed &= unprocessed;
                known.silences.extend(silences);
                known.inhibited_by.extend(inhibited_by);
                known.muted_by.extend(muted_by);
            }
        }
    }
    merged.into_values().collect()
}
