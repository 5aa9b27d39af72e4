//! What is kept of alerts that are pushed.
//!
//! Deliveries come twice, late, in the wrong order, and from two Alertmanagers
//! that do not know the same. What is kept is the same whatever the order: an
//! alert is known by its labels, and one firing of it by its `startsAt`.

use jiff::{SignedDuration, Timestamp};

use super::Labels;

/// How long after "resolved" a word of the same firing counts as a late one. An
/// Alertmanager tries a delivery for as long as its group's interval, 5m.
pub const LATE: SignedDuration = SignedDuration::from_mins(5);
/// How long the end of an alert is remembered, for late deliveries.
const ENDS_KEPT: SignedDuration = SignedDuration::from_mins(30);
/// How long a firing alert stays in the inbox that nobody speaks about any more.
const SILENT_KEPT: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Most alerts kept of one source.
const MAX_ENTRIES: usize = 1000;
/// Most bytes of labels of one alert.
const MAX_LABELS: usize = 8 * 1024;
/// Most bytes of all of them as they are stored, which is as JSON: a ConfigMap holds
/// 1 MiB.
const MAX_STORED: usize = 768 * 1024;
/// Bytes that are stored of an alert besides its labels: names of fields, and times.
const FRAME: usize = 160;

/// One alert as it was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub labels: Labels,
    pub firing: bool,
    pub starts_at: Timestamp,
    /// When it ended, or is going to end by its sender's word.
    pub ends_at: Option<Timestamp>,
}

/// One alert as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub labels: Labels,
    pub firing: bool,
    pub starts_at: Timestamp,
    pub ends_at: Option<Timestamp>,
    /// When what is kept was last said, on this machine's clock.
    pub received_at: Timestamp,
}

/// All alerts of one source, sorted by labels.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Inbox {
    pub entries: Vec<Entry>,
    /// When a delivery last came.
    pub received_at: Option<Timestamp>,
}

/// What a delivered alert changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A firing of which nothing was known.
    New,
    /// Said before.
    Repeated,
    /// The end of a firing.
    Resolved,
    /// From before what is known already.
    Late,
    /// Not kept, as its labels are too long.
    TooLong { bytes: usize },
}

/// Why a delivery cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboxError {
    #[error("an alert has {bytes} bytes of labels, at most {MAX_LABELS} are kept")]
    LabelsTooLong { bytes: usize },
    #[error("an alert has no labels")]
    NoLabels,
    #[error(
        "more alerts fire than are kept of one source ({MAX_ENTRIES}, with {MAX_STORED} bytes as JSON)"
    )]
    Full,
}

impl Inbox {
    /// Takes in a delivery as a whole, or nothing of it. Only alerts with too many
    /// bytes of labels are left out: their sender may be right, and others of the
    /// delivery must not be lost with them.
    ///
    /// # Errors
    /// What cannot be kept; also when all would be left out.
    pub fn take(
        &mut self,
        delivery: &[Delivered],
        now: Timestamp,
    ) -> Result<Vec<Outcome>, InboxError> {
        let sizes: Vec<usize> = delivery.iter().map(|alert| size(&alert.labels)).collect();
        if sizes.contains(&0) {
            return Err(InboxError::NoLabels);
        }
        if let Some(&bytes) = sizes.first()
            && sizes.iter().all(|bytes| *bytes > MAX_LABELS)
        {
            return Err(InboxError::LabelsTooLong { bytes });
        }
        let mut next = self.clone();
        // Nothing remembered lies in the future, whatever the clock did.
        for entry in &mut next.entries {
            entry.received_at = entry.received_at.min(now);
        }
        next.received_at = Some(now);
        next.forget(now);
        let take = |(alert, bytes)| match bytes {
            0..=MAX_LABELS => next.one(alert, now),
            _ => Outcome::TooLong { bytes },
        };
        let outcomes = delivery.iter().zip(sizes).map(take).collect();
        next.make_room()?;
        *self = next;
        Ok(outcomes)
    }

    fn one(&mut self, alert: &Delivered, now: Timestamp) -> Outcome {
        let new = Entry {
            labels: alert.labels.clone(),
            firing: alert.firing,
            starts_at: alert.starts_at,
            ends_at: alert.ends_at,
            received_at: now,
        };
        let found = self
            .entries
            .binary_search_by(|e| e.labels.cmp(&alert.labels));
        let entry = match found {
            Ok(at) => &mut self.entries[at],
            Err(at) => {
                let firing = new.firing;
                self.entries.insert(at, new);
                return if firing {
                    Outcome::New
                } else {
                    Outcome::Resolved
                };
            }
        };
        match (entry.firing, alert.firing) {
            (true, true) => {
                let newer = alert.starts_at > entry.starts_at;
                if newer {
                    *entry = new;
                    return Outcome::New;
                }
                // Also from one that knows of an earlier start: it fires.
                entry.received_at = now;
                if alert.starts_at == entry.starts_at {
                    entry.ends_at = alert.ends_at;
                }
                Outcome::Repeated
            }
            (true, false) => {
                let ended = alert.ends_at.unwrap_or(alert.starts_at);
                if alert.starts_at < entry.starts_at && ended < entry.starts_at {
                    return Outcome::Late;
                }
                *entry = Entry {
                    starts_at: entry.starts_at.max(alert.starts_at),
                    ..new
                };
                Outcome::Resolved
            }
            (false, true) => {
                let fresh = alert.starts_at > entry.starts_at
                    || now.duration_since(entry.received_at) > LATE;
                if !fresh {
                    return Outcome::Late;
                }
                *entry = new;
                Outcome::New
            }
            (false, false) => {
                if alert.starts_at > entry.starts_at {
                    *entry = new;
                    return Outcome::Resolved;
                }
                Outcome::Repeated
            }
        }
    }

    fn forget(&mut self, now: Timestamp) {
        self.entries.retain(|entry| {
            let kept = if entry.firing { SILENT_KEPT } else { ENDS_KEPT };
            now.duration_since(entry.received_at) < kept
        });
    }

    /// Ends of alerts go first, the oldest before the others.
    fn make_room(&mut self) -> Result<(), InboxError> {
        let mut bytes: usize = self.entries.iter().map(|e| stored(&e.labels)).sum();
        while self.entries.len() > MAX_ENTRIES || bytes > MAX_STORED {
            let oldest = (0..self.entries.len())
                .filter(|at| !self.entries[*at].firing)
                .min_by_key(|at| self.entries[*at].received_at);
            let Some(oldest) = oldest else {
                return Err(InboxError::Full);
            };
            bytes -= stored(&self.entries.remove(oldest).labels);
        }
        Ok(())
    }
}

/// Bytes of names and values.
fn size(labels: &Labels) -> usize {
    labels.iter().map(|(k, v)| k.len() + v.len()).sum()
}

/// Bytes of an alert with these labels as JSON.
fn stored(labels: &Labels) -> usize {
    let text = |text: &String| 2 + text.bytes().map(escaped).sum::<usize>();
    // A colon and a comma stand after the two.
    let pairs = labels.iter().map(|(k, v)| text(k) + text(v) + 2);
    FRAME + pairs.sum::<usize>()
}

/// Bytes of one byte in a string of JSON.
const fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    }
}
