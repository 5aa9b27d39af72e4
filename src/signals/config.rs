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
use super::webhook::config::{WebhookConfig, WebhookSpec};
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
    /// An Alertmanager that is asked, or those of one set: then each is asked.
    pub alertmanager: Option<HttpSpec>,
    /// An Alertmanager that delivers.
    pub webhook: Option<WebhookSpec>,
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
    /// With one URL for each Alertmanager of the set.
    Alertmanager(HttpConfig),
    Webhook(WebhookConfig),
}

impl SourceKind {
    /// The kind as it stands in the administrator's file.
    pub const fn field(&self) -> &'static str {
        match self {
            SourceKind::Prometheus(_) => "prometheus",
            SourceKind::Alertmanager(_) => "alertmanager",
            SourceKind::Webhook(_) => "webhook",
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
        let SourceSpec {
            name,
            prometheus,
            alertmanager,
            webhook,
        } = spec;
        check_name(&at, &name)?;
        if !names.insert(name.clone()) {
            return Err(ConfigError {
                field: format!("{at}.name"),
                problem: format!("{name:?} is used twice, wanted a unique name"),
            });
        }
        // Each kind with what makes it ready; one more kind is one more line.
        let kinds: Vec<Result<SourceKind, ConfigError>> = [
            prometheus.map(|http| {
                http.validate(&format!("{at}.prometheus"), "/api/v1")
                    .map(SourceKind::Prometheus)
            }),
            alertmanager.map(|set| {
                set.validate(&format!("{at}.alertmanager"), "/api/v2")
                    .map(SourceKind::Alertmanager)
            }),
            webhook.map(|webhook| {
                webhook
                    .validate(&format!("{at}.webhook"))
                    .map(SourceKind::Webhook)
            }),
        ]
        .into_iter()
        .flatten()
        .collect();
        let kind = exactly_one(&at, kinds)?;
        if matches!(kind, SourceKind::Webhook(_)) {
            check_object_name(&at, &name)?;
        }
        ready.push(SourceConfig { name, kind });
    }
    Ok(ready)
}

fn exactly_one(
    at: &str,
    kinds: Vec<Result<SourceKind, ConfigError>>,
) -> Result<SourceKind, ConfigError> {
    const KINDS: &str = "prometheus, alertmanager or webhook";
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

/// What is delivered is kept in an object whose name has this one in it.
fn check_object_name(at: &str, name: &str) -> Result<(), ConfigError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = name.chars().all(|c| plain(c) || c == '-') && name.ends_with(plain);
    if fits {
        return Ok(());
    }
    Err(ConfigError {
        field: format!("{at}.name"),
        problem: format!(
            "{name:?} is no name for a webhook, wanted lower-case letters, digits and hyphens, such \
             as \"alertmanager\""
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
            "sources[0]: the kind of source is missing: add prometheus, alertmanager or webhook"
        );
    }

    #[test]
    fn a_webhook_has_a_secret_and_a_plain_name() {
        let fails = |text: &str| validate(specs(text)).unwrap_err().to_string();
        for (text, words) in [
            (
                "[{name: a, webhook: {}}]",
                "sources[0].webhook.bearerTokenFile: missing",
            ),
            (
                "[{name: A, webhook: {bearerTokenFile: /t}}]",
                "sources[0].name: \"A\" is no name for a webhook",
            ),
            (
                "[{name: a-, webhook: {bearerTokenFile: /t}}]",
                "is no name for a webhook",
            ),
            (
                "[{name: a, webhook: {bearerTokenFile: /t, expireAfter: 1s}}]",
                "webhook.expireAfter: \"1s\" is out of bounds",
            ),
            (
                "[{name: a, webhook: {bearerTokenFile: /t, maxBodyBytes: 1}}]",
                "webhook.maxBodyBytes: 1 bytes are out",
            ),
            (
                "[{name: a, webhook: {bearerTokenFile: /t}, prometheus: {url: 'http://p'}}]",
                "sources[0].webhook: set beside prometheus",
            ),
        ] {
            assert!(fails(text).contains(words), "{text}: {}", fails(text));
        }
        let ready = validate(specs(
            "[{name: a, webhook: {basicAuth: {username: u, passwordFile: /p}}}]",
        ));
        assert_eq!(ready.unwrap()[0].kind.field(), "webhook");
    }

    #[test]
    fn a_set_of_alertmanagers_has_one_or_several_urls() {
        let set = |fields: &str| {
            validate(specs(&format!(
                "[{{name: am, alertmanager: {{{fields}}}}}]"
            )))
        };
        let urls = |fields: &str| match &set(fields).unwrap()[0].kind {
            SourceKind::Alertmanager(set) => set.urls.len(),
            _ => 0,
        };
        assert_eq!(urls("url: 'http://a:9093'"), 1);
        assert_eq!(
            urls("urls: ['http://a:9093', 'http://b:9093/prefix'], timeout: 3s"),
            2
        );
        for (fields, words) in [
            ("", "alertmanager.url: missing"),
            ("urls: []", "alertmanager.urls: 0 URLs, wanted 1 to 8"),
            (
                "url: 'http://a', urls: ['http://b']",
                "alertmanager.urls: set beside url",
            ),
            (
                "urls: ['http://a', 'ftp://b']",
                "alertmanager.urls[1]: the scheme \"ftp\"",
            ),
            (
                "urls: ['http://a/', 'http://a']",
                "alertmanager.urls[1]: listed twice",
            ),
            (
                "url: 'http://a/api/v2'",
                "alertmanager.url: the URL ends in /api/v2",
            ),
        ] {
            let error = set(fields).unwrap_err().to_string();
            assert!(error.contains(words), "{fields}: {error}");
        }
    }

    #[test]
    fn debug_shows_no_header_value() {
        let specs =
            specs("[{name: main, prometheus: {url: 'http://p', headers: {X-Key: hunter2}}}]");
        assert!(!format!("{specs:?}").contains("hunter2"));
        assert!(!format!("{:?}", validate(specs).unwrap()).contains("hunter2"));
    }
}
