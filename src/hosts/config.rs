//! The administrator's file, `defragd.yaml`: which sources of signals there are,
//! limits that hold for all policies, and the log.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::core::duration;
use crate::signals::config::{SourceConfig, SourceSpec};
pub use crate::telemetry::logs::LogFormat;

/// How long a stop waits when the file does not say: longer than the engine
/// waits for a call under way (10 s), so that what became of it is recorded.
const DEFAULT_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// The level when the file does not say.
const DEFAULT_LEVEL: &str = "info";

/// What an administrator configured, ready to use.
#[derive(Clone, Debug)]
pub struct Config {
    pub sources: Vec<SourceConfig>,
    pub limits: Limits,
    pub log: LogConfig,
}

impl Default for Config {
    /// No sources: policies can ask probes only.
    fn default() -> Self {
        Config {
            sources: Vec::new(),
            limits: Limits::default(),
            log: LogConfig::default(),
        }
    }
}

/// Limits that hold for all policies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Runs that policies may create within any hour; `None`: as many as their
    /// own limits allow.
    pub runs_per_hour: Option<NonZeroU32>,
    /// Runs that policies may create within any minute, evenly spread.
    pub runs_per_minute: Option<NonZeroU32>,
    /// How long a stop waits for what is under way to be recorded.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            runs_per_hour: None,
            runs_per_minute: None,
            shutdown_timeout: DEFAULT_SHUTDOWN_TIMEOUT,
        }
    }
}

/// How the log is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub format: LogFormat,
    /// A level, or directives such as `info,defragd::signals=debug`.
    pub level: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            format: LogFormat::Text,
            level: DEFAULT_LEVEL.to_owned(),
        }
    }
}

/// Why the administrator's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "the configuration {path:?} cannot be read: {source}; give the path of a readable file"
    )]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The position is part of the problem's text where it is known.
    #[error("{path}: {field}{problem}", path = path.display(), field = Field(field))]
    Invalid {
        path: PathBuf,
        field: String,
        problem: String,
    },
}

/// A field before its problem, or nothing.
struct Field<'a>(&'a str);

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() || self.0 == "." {
            Ok(())
        } else {
            write!(f, "{}: ", self.0)
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Written {
    sources: Vec<SourceSpec>,
    limits: WrittenLimits,
    log: WrittenLog,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WrittenLimits {
    runs_per_hour: Option<NonZeroU32>,
    runs_per_minute: Option<NonZeroU32>,
    shutdown_timeout: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WrittenLog {
    format: LogFormat,
    level: Option<String>,
}

impl Config {
    /// Reads and validates the file.
    ///
    /// # Errors
    /// With the file, the line where it is known, the field, the value, and the
    /// remedy. A value that might be a secret is not repeated.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Config::parse(path, &text)
    }

    /// Validates the text of the file `path`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let invalid = |field: String, problem: String| ConfigError::Invalid {
            path: path.to_owned(),
            field,
            problem,
        };
        let nothing = text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let written: Written = if nothing {
            Written::default()
        } else {
            serde_path_to_error::deserialize(serde_yaml::Deserializer::from_str(text)).map_err(
                |error| {
                    let field = error.path().to_string();
                    let (field, problem) = in_words(&field, &error.inner().to_string());
                    invalid(field, problem)
                },
            )?
        };
        let Written {
            sources,
            limits,
            log,
        } = written;
        let sources = crate::signals::config::validate(sources)
            .map_err(|error| invalid(error.field, error.problem))?;
        let shutdown_timeout = match &limits.shutdown_timeout {
            None => DEFAULT_SHUTDOWN_TIMEOUT,
            Some(text) => timeout(text)
                .map_err(|problem| invalid("limits.shutdownTimeout".to_owned(), problem))?,
        };
        let level = log.level.unwrap_or_else(|| DEFAULT_LEVEL.to_owned());
        crate::telemetry::logs::check_level(&level).map_err(|problem| {
            let problem = format!(
                "{level:?} is not a level ({problem}); write error, warn, info, debug or trace"
            );
            invalid("log.level".to_owned(), problem)
        })?;
        Ok(Config {
            sources,
            limits: Limits {
                runs_per_hour: limits.runs_per_hour,
                runs_per_minute: limits.runs_per_minute,
                shutdown_timeout,
            },
            log: LogConfig {
                format: log.format,
                level,
            },
        })
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let duration = duration::parse(text).map_err(|error| error.to_string())?;
    let wait = duration.unsigned_abs();
    if wait < Duration::from_secs(1) || wait > Duration::from_secs(600) {
        return Err(format!(
            "{text:?} is not between 1s and 10m; write a duration such as \"20s\""
        ));
    }
    Ok(wait)
}

/// The field, and what is wrong with it, from a deserializer's words: what was
/// seen, where, and what to write instead.
fn in_words(field: &str, message: &str) -> (String, String) {
    let message = discreet(message);
    // The parser says the path too, up to where it noticed.
    let message = match message.split_once(": ") {
        Some((path, rest)) if !path.contains(' ') && field.starts_with(path) => rest,
        _ => &message,
    };
    let (message, place) = match message.rsplit_once(" at line ") {
        Some((message, place)) => (
            message,
            format!(" (line {})", place.replacen(" column", ", column", 1)),
        ),
        None => (message, String::new()),
    };
    let whole =
        |problem: &str, remedy: &str| (field.to_owned(), format!("{problem}{place}; {remedy}"));
    if let Some(rest) = message.strip_prefix("missing field ") {
        let missing = rest.trim_matches('`');
        let field = match field {
            "" | "." => missing.to_owned(),
            around => format!("{around}.{missing}"),
        };
        return (field, format!("it is missing{place}; add it"));
    }
    let (problem, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
    // "one of `a`, `b`" and "`a` or `b`" both read on after "write".
    let names = expected.replace('`', "");
    if problem.starts_with("unknown field ") {
        return whole(
            "the field is unknown",
            &format!("remove it, or write {names}"),
        );
    }
    if let Some(value) = problem.strip_prefix("unknown variant ") {
        let value = value.trim_matches('`');
        return whole(
            &format!("{value:?} is not a value that this field takes"),
            &format!("write {names}"),
        );
    }
    let seen = ["invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|kind| problem.strip_prefix(kind));
    match seen {
        Some(seen) => whole(
            &format!("it is {}", found(seen)),
            &format!("write {}", wanted(expected)),
        ),
        None => match message.strip_prefix("wanted ") {
            Some(wanted) => whole("the value does not fit", &format!("write {wanted}")),
            None if message.starts_with("duplicate ") => {
                whole("it is given twice", "remove one of them")
            }
            None => whole(message, "correct the syntax"),
        },
    }
}

/// What stood there; a deserializer's words for it are those of Rust.
fn found(seen: &str) -> String {
    let (kind, value) = seen.split_once(" `").unwrap_or((seen, ""));
    match kind {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "unit value" => "empty".to_owned(),
        "integer" | "floating point" | "boolean" => {
            value.split('`').next().unwrap_or_default().to_owned()
        }
        other => other.to_owned(),
    }
}

/// What a field takes, by what a deserializer expected.
fn wanted(expected: &str) -> String {
    match expected {
        "a sequence" => "a list, one entry a line after a dash",
        "a map" => "fields below it",
        "a string" | "path string" => "a text, in quotes where it looks like something else",
        "a boolean" => "true or false",
        "u32" => "a whole number from 0 to 4294967295",
        "a nonzero u32" => "a whole number from 1 to 4294967295",
        "f64" => "a number such as 10",
        other if other.starts_with("struct ") => "fields below it",
        other => other,
    }
    .to_owned()
}

/// Takes values out of a deserializer's words: `invalid type: string "hunter2"`
/// could tell a password that stands in the wrong place.
fn discreet(message: &str) -> String {
    let Some(start) = message.find("string \"") else {
        return message.to_owned();
    };
    let rest = &message[start..];
    match rest.rfind("\", expected") {
        Some(end) => format!("{}a text{}", &message[..start], &rest[end + 1..]),
        None => format!("{}a text", &message[..start]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("defragd.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_means_defaults() {
        for text in ["", "# only a comment\n", "{}"] {
            let config = parse(text).unwrap();
            assert_eq!(
                (config.sources.len(), config.limits, config.log),
                (0, Limits::default(), LogConfig::default())
            );
        }
    }

    #[test]
    fn everything_is_read() {
        let config = parse(
            "sources:\n- name: main\n  prometheus: {url: 'http://127.0.0.1:9090'}\n\
             limits: {runsPerHour: 4, runsPerMinute: 2, shutdownTimeout: 30s}\nlog: {format: json, level: 'warn,defragd=debug'}\n",
        )
        .unwrap();
        assert_eq!(config.sources[0].name, "main");
        assert_eq!(config.limits.runs_per_hour, NonZeroU32::new(4));
        assert_eq!(config.limits.runs_per_minute, NonZeroU32::new(2));
        assert_eq!(config.limits.shutdown_timeout, Duration::from_secs(30));
        assert_eq!(
            config.log,
            LogConfig {
                format: LogFormat::Json,
                level: "warn,defragd=debug".to_owned()
            }
        );
    }

    #[test]
    fn bad_input_names_file_field_and_remedy() {
        let cases = [
            (
                "sourcez: []",
                "defragd.yaml: sourcez: the field is unknown; remove it, or write one of sources, limits, log",
            ),
            (
                "limits: {runsPerHour: 0}",
                "limits.runsPerHour: it is 0 (line 1, column 23); write a whole number from 1",
            ),
            (
                "limits: {runsPerHour: 99999999999999999999}",
                "limits.runsPerHour: it is 99999999999999999999",
            ),
            (
                "limits: {runsPerHour: many}",
                "limits.runsPerHour: it is a text (line 1",
            ),
            (
                "limits: {runsPerHour: 0.5}",
                "limits.runsPerHour: it is 0.5 (line 1",
            ),
            ("limits: {shutdownTimeout: 0s}", "limits.shutdownTimeout"),
            ("limits: {shutdownTimeout: 1h}", "not between 1s and 10m"),
            (
                "log: {format: xml}",
                "log.format: \"xml\" is not a value that this field takes",
            ),
            ("log: {format: xml}", "; write text or json"),
            (
                "log: 3",
                "log: it is 3 (line 1, column 6); write fields below it",
            ),
            (
                "sources: {name: a}",
                "sources: it is an object (line 1, column 10); write a list",
            ),
            (
                "sources: [{name: a}]",
                "sources[0]: the kind of source is missing: add prometheus, alertmanager or webhook",
            ),
            ("sources: [3]", "sources[0]: it is 3"),
            (
                "sources:\n- name: a\n  prometheus: {url: 'http://h', foo: 1}",
                "defragd.yaml: sources[0].prometheus.foo: the field is unknown (line 3, column 33); remove it, or write one of url, urls, basicAuth",
            ),
            (
                "sources: [{name: a, prometheus: {url: 'http://h', basicAuth: {username: u}}}]",
                "sources[0].prometheus.basicAuth.passwordFile: it is missing (line 1",
            ),
            (
                "sources: [{name: a, prometheus: {url: 'http://h', insecureSkipVerify: 1}}]",
                "sources[0].prometheus.insecureSkipVerify: it is 1 (line 1, column 71); write true or false",
            ),
            (
                "sources: [{name: a, prometheus: {url: 'http://h', maxBodyBytes: []}}]",
                "sources[0].prometheus.maxBodyBytes: the value does not fit",
            ),
            (
                "sources: [{name: a, prometheus: {url: 'http://h', params: {a: {b: c}}}}]",
                "sources[0].prometheus.params.a: the value does not fit (line 1",
            ),
            (
                "sources: [{name: a, prometheus: {url: 'http://h', oauth2: {tokenURL: 'http://t'}}}]",
                "sources[0].prometheus.oauth2.clientID: it is missing (line 1",
            ),
            (
                "sources: [{name: a, prometheus: {timeout: 1s}}]",
                "sources[0].prometheus.url: missing: set it, or urls",
            ),
            (
                "log: {level: 'a=b=c'}",
                "write error, warn, info, debug or trace",
            ),
            (
                "sources: [{name: a, prometheus: {url: 'ftp://x'}}]",
                "sources[0].prometheus.url",
            ),
            ("sources: [", "; correct the syntax"),
            ("log: {level: info, level: warn}", "it is given twice"),
        ];
        let mut wrong = String::new();
        for (text, part) in cases {
            let error = parse(text).unwrap_err();
            if !error.starts_with("defragd.yaml: ") || !error.contains(part) {
                wrong.push_str(&format!("{text}\n  wanted {part}\n  got    {error}\n"));
            }
        }
        assert!(wrong.is_empty(), "\n{wrong}");
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_repeated() {
        for text in [
            "sources: [{name: a, prometheus: {url: 'http://h', headers: 'Bearer hunter2'}}]",
            "sources: [{name: a, prometheus: {url: 'http://h', basicAuth: 'me:hunter2'}}]",
            "sources: [{name: a, prometheus: {url: 'http://h', basicAuth: {password: hunter2}}}]",
            "sources: [{name: a, prometheus: {url: 'http://h', oauth2: {clientSecret: hunter2}}}]",
            "sources: [{name: a, prometheus: {url: 'http://h', oauth2: 'me:hunter2'}}]",
            "sources: [{name: a, prometheus: {url: 'http://h', headerFiles: ['hunter2']}}]",
            "sources: [{name: a, prometheus: {url: 'http://h', urls: 'http://u:hunter2@h'}}]",
            "sources: [{name: a, prometheus: {urls: ['http://u:hunter2@h']}}]",
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
