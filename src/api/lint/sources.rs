//! What a policy names must be in the administrator's file, and be of a kind that can
//! say what the signal asks.

use crate::api::validate::quoted;

/// What a source of the administrator's file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// It answers PromQL.
    Prometheus,
    /// It is asked for alerts.
    Alertmanager,
    /// Alerts are delivered to it.
    Webhook,
}

impl SourceKind {
    /// The kind as it stands in the administrator's file.
    pub const fn field(self) -> &'static str {
        match self {
            SourceKind::Prometheus => "prometheus",
            SourceKind::Alertmanager => "alertmanager",
            SourceKind::Webhook => "webhook",
        }
    }
}

/// A source of the administrator's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSource {
    pub name: String,
    pub kind: SourceKind,
}

/// Kinds that answer PromQL.
pub(super) const QUERIES: &[SourceKind] = &[SourceKind::Prometheus];
/// Kinds that know of alerts.
pub(super) const ALERTS: &[SourceKind] = &[SourceKind::Alertmanager, SourceKind::Webhook];

/// What is wrong with the name of a source that must be of one of the kinds `wanted`,
/// and what to do.
pub(super) fn problem(
    name: &str,
    wanted: &[SourceKind],
    sources: &[KnownSource],
) -> Option<String> {
    let suits = |source: &&KnownSource| wanted.contains(&source.kind);
    let words: Vec<&str> = wanted.iter().map(|kind| kind.field()).collect();
    let words = words.join(" or ");
    let problem = match sources.iter().find(|source| source.name == name) {
        None => "is not a configured source".to_owned(),
        Some(source) if suits(&source) => return None,
        Some(source) => format!(
            "is a source of the kind {}, wanted {words}",
            source.kind.field()
        ),
    };
    let others: Vec<&str> = sources
        .iter()
        .filter(suits)
        .map(|source| source.name.as_str())
        .collect();
    let remedy = if others.is_empty() {
        format!("add one of the kind {words} to sources in the configuration, which has none")
    } else {
        format!(
            "use one of {}, or add it to the configuration",
            others.join(", ")
        )
    };
    Some(format!("{} {problem}; {remedy}", quoted(name)))
}
