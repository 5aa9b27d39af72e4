//! What is kept of deliveries, and where.

use std::collections::BTreeSet;
use std::fmt;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::core::alert::{Entry, Inbox, Labels};
use crate::core::signal::bounded;

/// The version of what is written here.
const FORMAT: u32 = 1;

/// Where the alerts of each source are kept.
pub trait AlertStore: fmt::Debug + Send + Sync + 'static {
    /// What is stored of a source.
    fn load<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Kept, StoreError>>;

    /// Stores it in place of what was loaded with this version. When this returns
    /// it survives a crash.
    fn save<'a>(
        &'a self,
        source: &'a str,
        content: String,
        version: Option<String>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// What is stored of one source.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Kept {
    /// `None` when nothing has been stored yet.
    pub content: Option<String>,
    /// Tells whether somebody else has stored something since.
    pub version: Option<String>,
}

/// Why something is not stored, or not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else stored something in the meantime.
    #[error("somebody else stores at the same time")]
    Conflict,
    /// With the operation, and what to do.
    #[error("{0}")]
    Failed(String),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    format: u32,
    received_at: Option<Timestamp>,
    alerts: Vec<WrittenAlert>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenAlert {
    labels: Labels,
    firing: bool,
    starts_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_at: Option<Timestamp>,
    received_at: Timestamp,
}

/// The text that is stored.
pub(super) fn written(inbox: &Inbox) -> String {
    let alerts = inbox.entries.iter().cloned().map(|entry| {
        let Entry {
            labels,
            firing,
            starts_at,
            ends_at,
            received_at,
        } = entry;
        WrittenAlert {
            labels,
            firing,
            starts_at,
            ends_at,
            received_at,
        }
    });
    let written = Written {
        format: FORMAT,
        received_at: inbox.received_at,
        alerts: alerts.collect(),
    };
    // Text, numbers and times: nothing of it can fail to become JSON.
    serde_json::to_string(&written).unwrap_or_default()
}

impl Kept {
    /// What was written.
    pub(super) fn inbox(&self) -> Result<Inbox, StoreError> {
        let Some(content) = &self.content else {
            return Ok(Inbox::default());
        };
        let unusable = |problem: &str| {
            StoreError::Failed(format!(
                "the stored alerts cannot be used: {}; remove them to start over",
                bounded(problem, 200)
            ))
        };
        let Written {
            format,
            received_at,
            alerts,
        } = serde_json::from_str(content).map_err(|error| unusable(&error.to_string()))?;
        if format != FORMAT {
            return Err(unusable(&format!(
                "they are of format {format}, wanted {FORMAT}"
            )));
        }
        let mut entries: Vec<Entry> = alerts
            .into_iter()
            .map(|alert| {
                let WrittenAlert {
                    labels,
                    firing,
                    starts_at,
                    ends_at,
                    received_at,
                } = alert;
                Entry {
                    labels,
                    firing,
                    starts_at,
                    ends_at,
                    received_at,
                }
            })
            .collect();
        entries.sort_by(|a, b| a.labels.cmp(&b.labels));
        let labels: BTreeSet<&Labels> = entries.iter().map(|entry| &entry.labels).collect();
        if labels.len() < entries.len() {
            return Err(unusable("an alert stands there twice"));
        }
        Ok(Inbox {
            entries,
            received_at,
        })
    }
}
