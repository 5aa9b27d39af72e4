//! What `defragd status` shows: read from the state folder alone, beside a
//! running process or without one.

use std::path::Path;

use kube::core::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use super::store::{self, StateError};
use super::stored::{REMOVED_AT, Stored};
use crate::api::defrag::{EtcdDefragSpec, EtcdDefragStatus};
use crate::api::policy::{EtcdDefragPolicySpec, EtcdDefragPolicyStatus};
use crate::api::target::{EtcdTargetSpec, EtcdTargetStatus};

/// An object and its status. The spec is absent when no document of the object
/// could ever be read; the status says why.
#[derive(Clone, Debug, PartialEq)]
pub struct Item<S, T> {
    pub metadata: ObjectMeta,
    pub spec: Option<S>,
    pub status: T,
    /// The whole object, as an API would return it.
    pub value: Value,
}

/// Every object that a state folder knows, each list by namespace and name.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Whether a process works on the folder; without one the rest is as it was
    /// last stored.
    pub running: bool,
    pub targets: Vec<Item<EtcdTargetSpec, EtcdTargetStatus>>,
    pub policies: Vec<Item<EtcdDefragPolicySpec, EtcdDefragPolicyStatus>>,
    pub runs: Vec<Item<EtcdDefragSpec, EtcdDefragStatus>>,
    /// What is wrong with documents and belongs to none of the objects.
    pub documents: Vec<String>,
    /// State files that cannot be used.
    pub unusable: Vec<String>,
}

impl Inventory {
    /// All objects: targets, policies, runs.
    pub fn items(&self) -> Vec<&Value> {
        let targets = self.targets.iter().map(|item| &item.value);
        let policies = self.policies.iter().map(|item| &item.value);
        let runs = self.runs.iter().map(|item| &item.value);
        targets.chain(policies).chain(runs).collect()
    }
}

/// Reads the state folder. Keeps no lock: each file is whole at any moment.
///
/// # Errors
/// When it is not a state folder, or cannot be read.
pub fn inventory(state: &Path) -> Result<Inventory, StateError> {
    let running = store::is_held(state)?;
    let loaded = store::load(state)?;
    Ok(Inventory {
        running,
        targets: loaded.targets.into_values().filter_map(item).collect(),
        policies: loaded.policies.into_values().filter_map(item).collect(),
        runs: loaded.runs.into_values().filter_map(item).collect(),
        documents: store::read_documents(state)?,
        unusable: loaded.unusable.values().map(ToString::to_string).collect(),
    })
}

/// Removed objects are remembered, and not shown.
fn item<S: Serialize, T: Serialize>(stored: Stored<S, T>) -> Option<Item<S, T>> {
    if stored.annotation(REMOVED_AT).is_some() {
        return None;
    }
    // What was read from JSON can be written as JSON.
    let value = serde_json::to_value(&stored).unwrap_or_default();
    let Stored {
        metadata,
        spec,
        status,
        ..
    } = stored;
    Some(Item {
        metadata,
        spec,
        status,
        value,
    })
}
