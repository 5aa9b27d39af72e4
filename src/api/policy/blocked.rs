//! What holds runs back, in spec and status, and the time line of decisions.

use std::collections::BTreeSet;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClusterStatus, SignalSpec};
use crate::api::defrag::convert::reason;
use crate::api::scalar::{Time, mirror};
use crate::api::schema;
use crate::core::decide::{self, Blocked, BlockedBy, Spell, TIMELINE_TOTAL};
use crate::core::reason::Reason;

/// A signal that holds runs back while it fires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct BlockerSpec {
    /// Its name, unique within the policy.
    #[schemars(schema_with = "schema::label_name")]
    pub name: String,
    /// What is asked, as in `spec.signal`. It is asked when a run would start, and
    /// again right before the run is created.
    #[schemars(schema_with = "signal")]
    pub signal: SignalSpec,
    /// What it counts as without data. Block (the default): nobody knows, so
    /// nothing starts. Pass: there is nothing in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_data: Option<BlockerNoData>,
}

/// The schema of a signal without the rules of its probe: for each entry of a list they would
/// cost more than the API server allows. Validation says what they say.
fn signal(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<SignalSpec>();
    if let Some(probe) = schema.pointer_mut("/properties/probe") {
        without_rules(probe);
    }
    schema
}

fn without_rules(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

mirror! {
    /// What a blocker without data counts as.
    BlockerNoData = decide::OnNoData { Block, Pass }
}

/// What holds back a run that is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct BlockedStatus {
    /// Since when a run that was due has been held back.
    pub since: Time,
    /// The blockers that are on.
    #[serde(default)]
    pub by: Vec<BlockedByStatus>,
    /// What they said when that last changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For longer than `maxBlockedFor`.
    #[serde(default)]
    pub too_long: bool,
}

/// A blocker that is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct BlockedByStatus {
    /// Its name.
    pub name: String,
    /// Why it is on.
    pub reason: String,
}

/// A time during which the decision was the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct SpellStatus {
    /// What was decided.
    pub reason: String,
    /// What was said last, cut short.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it was first decided.
    pub since: Time,
    /// When something else was decided; absent for the decision that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// How often it began, when it went and came back within ten minutes.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    #[schemars(schema_with = "schema::int32")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

fn is_once(times: &u32) -> bool {
    *times == 1
}

impl From<&Blocked> for BlockedStatus {
    fn from(blocked: &Blocked) -> Self {
        let Blocked {
            since,
            by,
            message,
            too_long,
        } = blocked;
        let by = by.iter().map(|BlockedBy { name, reason }| BlockedByStatus {
            name: name.clone(),
            reason: reason.as_str().to_owned(),
        });
        BlockedStatus {
            since: (*since).into(),
            by: by.collect(),
            message: message.clone(),
            too_long: *too_long,
        }
    }
}

impl BlockedStatus {
    pub(super) fn to_blocked(&self) -> Blocked {
        let by = self.by.iter().map(|by| BlockedBy {
            name: by.name.clone(),
            reason: reason(&by.reason),
        });
        Blocked {
            since: self.since.into(),
            by: by.collect(),
            message: self.message.clone(),
            too_long: self.too_long,
        }
    }
}

impl From<&Spell> for SpellStatus {
    fn from(spell: &Spell) -> Self {
        let Spell {
            reason,
            message,
            since,
            until,
            times,
        } = spell;
        SpellStatus {
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            since: (*since).into(),
            until: until.map(Time::from),
            times: *times,
        }
    }
}

impl SpellStatus {
    pub(super) fn to_spell(&self) -> Spell {
        Spell {
            reason: reason(&self.reason),
            message: self.message.clone(),
            since: self.since.into(),
            until: self.until.map(Time::timestamp),
            times: self.times,
        }
    }
}

/// Bounds the time lines of all clusters together. Those that only say that a signal
/// does not fire go first, and of both kinds the oldest: a thousand quiet clusters
/// leave room for the few that did something. What was kept is kept again, so that
/// storing it once more is no news.
pub(super) fn keep_small(clusters: &mut [ClusterStatus]) {
    let mut all: Vec<(bool, Timestamp, usize, usize)> = Vec::new();
    for (i, cluster) in clusters.iter().enumerate() {
        let mut last = Timestamp::MIN;
        for (j, spell) in cluster.timeline.iter().enumerate() {
            let tells = spell.reason != Reason::SignalNotFiring.as_str();
            // One that came back stands since the one before it ended.
            let began = spell.since.timestamp().max(last);
            last = spell.until.map_or(began, Time::timestamp);
            all.push((tells, last, i, j));
        }
    }
    let excess = all.len().saturating_sub(TIMELINE_TOTAL);
    if excess == 0 {
        return;
    }
    all.sort_unstable();
    let gone: BTreeSet<(usize, usize)> = all[..excess]
        .iter()
        .map(|spell| (spell.2, spell.3))
        .collect();
    for (i, cluster) in clusters.iter_mut().enumerate() {
        let mut places = 0..;
        cluster
            .timeline
            .retain(|_| places.next().is_some_and(|j| !gone.contains(&(i, j))));
    }
}
