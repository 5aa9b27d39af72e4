//! The last decisions of a policy on a cluster, so that last night can be explained today.

use jiff::{SignedDuration, Timestamp};

use crate::core::reason::Reason;
use crate::core::signal::bounded;

use super::ClusterState;

/// Most spells that are kept of one cluster.
pub const TIMELINE: usize = 20;
/// Most spells that are kept of all clusters of one policy, so that the object stays small.
pub const TIMELINE_TOTAL: usize = 200;
/// A decision that comes back within this time goes on with its spell.
const FLAPPING: SignedDuration = SignedDuration::from_mins(10);
/// How much of a message is kept, in characters.
const MESSAGE_CHARS: usize = 200;

/// A time during which the decision was the same.
///
/// The spell of the decision that stands has no end, so a decision that goes on
/// changes nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spell {
    pub reason: Reason,
    /// What was said last, cut short.
    pub message: String,
    /// When it was first decided.
    pub since: Timestamp,
    /// When something else was decided; absent for the decision that stands.
    pub until: Option<Timestamp>,
    /// How often it began: more than once when it went and came back within ten minutes.
    pub times: u32,
}

/// Takes the decision that was made at `now` into the time line; `before` is the
/// reason of the one that stood.
///
/// The same reason goes on with its spell. A reason that was left less than ten
/// minutes ago does so too and only counts, so decisions that flap never push out
/// what was before them. A decision that goes on although its spell is gone had no
/// room where it was stored, and does not come back: each look at it would be a write.
pub fn note_decision(state: &mut ClusterState, before: Option<Reason>, now: Timestamp) {
    let Some(note) = &state.decision else { return };
    let message = bounded(&note.message, MESSAGE_CHARS);
    let timeline = &mut state.timeline;
    let stands = timeline.last().is_some_and(|spell| spell.until.is_none());
    if !stands && before == Some(note.reason) {
        return;
    }
    if let Some(current) = timeline.last_mut() {
        if current.reason == note.reason && current.until.is_none() {
            current.message = message;
            return;
        }
        current.until.get_or_insert(now.max(current.since));
    }
    let lately = |spell: &Spell| {
        let left = spell.until.map(|until| now.duration_since(until));
        spell.reason == note.reason && left.is_some_and(|left| left < FLAPPING)
    };
    let spell = match timeline.iter().rposition(lately) {
        Some(found) => {
            let old = timeline.remove(found);
            Spell {
                message,
                until: None,
                times: old.times.saturating_add(1),
                ..old
            }
        }
        None => Spell {
            reason: note.reason,
            message,
            since: now,
            until: None,
            times: 1,
        },
    };
    timeline.push(spell);
    let excess = timeline.len().saturating_sub(TIMELINE);
    timeline.drain(..excess);
}
