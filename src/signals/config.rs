//! The `sources:` part of the administrator's file.
//!
//! ```yaml
//! sources:
//!   - name: main
//!     prometheus:
//!       url: https://prometheus.example:9090/prefix
//!       bearerTokenFile: /etc/defragd/token
//! ```
//!
//! Policies name a source; what it is, where it is and who asks it is settled
//! here and nowhere else (S32). Secrets stand in files, never in this one.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::http::config::{HttpConfig, HttpSpec};
use crate::core::signal::bounded;

/// As long as a label of DNS: the name becomes a metric label.
const LONGEST_NAME: usize = 63;

/// Why the administrator's sources cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The path of the field, such as `sources[0].prometheus.url`.
    pub field: String,
    /// What was seen, what was wanted, and what to do.
    pub problem: String,
}

/// One entry of `sources:` as it is written: a name and exactly one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceSpec {
    /// The name that policies use.
    pub name: String,
    /// What speaks the Prometheus HTTP API.
    pub prometheus: Option<HttpSpec>,
}

/// A source, ready to be used.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    pub name: String,
    pub kind: SourceKind,
}

/// What a source is, and how it is reached.
#[derive(Clone, Debug)]
pub enum SourceKind {
    Prometheus(HttpConfig),
}

impl SourceKind {
    /// The kind as it stands in the administrator's file.
    pub const fn field(&self) -> &'static str {
        match self {
            SourceKind::Prometheus(_) => "prometheus",
        }
    }
}

/// Turns the written sources into ready ones.
///
/// # Errors
/// The first field that cannot be used. Files are not opened here.
pub fn validate(specs: Vec<SourceSpec>) -> Result<Vec<SourceConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut ready = Vec::with_capacity(specs.len());
    for (index, spec) in specs.into_iter().enumerate() {
        let at = format!("sources[{index}]");
        let SourceSpec { name, prometheus } = spec;
        check_name(&at, &name)?;
        if !names.insert(name.clone()) {
            return Err(ConfigError {
                field: format!("{at}.name"),
                problem: format!("{name:?} is used twice, wanted a unique name"),
            });
        }
        // Each kind with what makes it ready; one more kind is one more line.
        let kinds: Vec<Result<SourceKind, ConfigError>> = [prometheus.map(|http| {
            http.validate(&format!("{at}.prometheus"), "/api/v1")
                .map(SourceKind::Prometheus)
        })]
        .into_iter()
        .flatten()
        .collect();
        let kind = exactly_one(&at, kinds)?;
        ready.push(SourceConfig { name, kind });
    }
    Ok(ready)
}

fn exactly_one(
    at: &str,
    kinds: Vec<Result<SourceKind, ConfigError>>,
) -> Result<SourceKind, ConfigError> {
    const KINDS: &str = "prometheus";
    let mut kinds = kinds.into_iter();
    let Some(kind) = kinds.next() else {
        return Err(ConfigError {
            field: at.to_owned(),
            problem: format!("the kind of source is missing: add {KINDS}"),
        });
    };
    let kind = kind?;
    match kinds.next() {
        None => Ok(kind),
        Some(other) => {
            let other = other?;
            Err(ConfigError {
                field: format!("{at}.{}", other.field()),
                problem: format!(
                    "set beside {}, wanted exactly one kind: make two sources of it",
                    kind.field()
                ),
            })
        }
    }
}

fn check_name(at: &str, name: &str) -> Result<(), ConfigError> {
    let fits = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if fits {
        return Ok(());
    }
    Err(ConfigError {
        field: format!("{at}.name"),
        problem: format!(
            "{:?} is no name, wanted 1 to {LONGEST_NAME} letters, digits, dots, hyphens or \
             underscores",
            bounded(name, LONGEST_NAME)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(text: &str) -> Vec<SourceSpec> {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn names_are_unique_and_plain() {
        let named = |names: &[&str]| {
            let text: Vec<String> = names
                .iter()
                .map(|n| format!("{{name: '{n}', prometheus: {{url: 'http://p'}}}}"))
                .collect();
            specs(&format!("[{}]", text.join(", ")))
        };
        assert_eq!(validate(named(&["a", "b"])).unwrap().len(), 2);
        assert_eq!(
            validate(named(&["a", "a"])).unwrap_err().field,
            "sources[1].name"
        );
        for bad in ["", "a b", "ü"] {
            assert_eq!(
                validate(named(&[bad])).unwrap_err().field,
                "sources[0].name",
                "{bad}"
            );
        }
    }

    #[test]
    fn a_source_is_of_a_kind() {
        let error = validate(specs("[{name: a}]")).unwrap_err().to_string();
        assert_eq!(
            error,
            "sources[0]: the kind of source is missing: add prometheus"
        );
    }

    #[test]
    fn debug_shows_no_header_value() {
        let specs =
            specs("[{name: main, prometheus: {url: 'http://p', headers: {X-Key: hunter2}}}]");
        assert!(!format!("{specs:?}").contains("hunter2"));
        assert!(!format!("{:?}", validate(specs).unwrap()).contains("hunter2"));
    }
}
