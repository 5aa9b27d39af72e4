//! `defragd lint`: the verdict that the hosts would give, before they see a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{CliError, Exit, output};
use crate::api::document::{self, MAX_FILE, Parsed};
use crate::api::lint::{self, Finding, KnownSource, Severity};
use crate::api::validate::Place;
use crate::hosts::config::Config;
use crate::signals::Source;
use crate::signals::config::{SourceConfig, SourceKind};

/// How findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line each: file:line: severity: field: message
    Text,
    /// One JSON document, nothing else
    Json,
}

/// Where the objects are going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Host {
    /// defragd controller: pods, Secrets and other operators' clusters, no files
    Kubernetes,
    /// defragd standalone: files, nothing of Kubernetes
    Standalone,
}

impl From<Host> for Place {
    fn from(host: Host) -> Self {
        match host {
            Host::Kubernetes => Place::Kubernetes,
            Host::Standalone => Place::Standalone,
        }
    }
}

/// Checks manifests as the hosts do, and says what they accept but was hardly meant
///
/// Exits with 1 when there is an error; warnings alone do not count.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  defragd lint --for standalone --config defragd.yaml objects/")]
pub(super) struct Args {
    /// Files, or folders whose *.yaml, *.yml and *.json files are meant
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The administrator's file; with it, names and kinds of sources are checked too
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The host that the files are for; without it, what one of the two takes is right
    #[arg(long = "for", value_name = "HOST", value_enum)]
    host: Option<Host>,

    /// How the findings are written to standard output
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let mut sources: Option<Vec<KnownSource>> = None;
    let mut findings = Vec::new();
    if let Some(path) = &args.config {
        let config = Config::load(path).map_err(|e| CliError::Usage(e.to_string()))?;
        sources = Some(config.sources.iter().map(known).collect());
        findings.extend(files_of_sources(path, config.sources));
    }
    let place = args.host.map_or(Place::Anywhere, Place::from);
    let files = files(&args.files)?;
    let mut parsed = Parsed::default();
    for file in &files {
        parsed.merge(document::parse(file, &read(file)?));
    }
    findings.extend(lint::lint(&parsed, sources.as_deref(), place));
    match args.output {
        Format::Text => {
            let lines: String = findings
                .iter()
                .map(|finding| format!("{finding}\n"))
                .collect();
            output::emit(&lines)?;
        }
        Format::Json => output::emit_object(&json!({ "findings": as_json(&findings) }), false)?,
    }
    let errors = findings
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .count();
    output::say(format_args!(
        "{}: {}, {}",
        count(files.len(), "file"),
        count(errors, "error"),
        count(findings.len() - errors, "warning")
    ));
    Ok(if errors == 0 {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn known(source: &SourceConfig) -> KnownSource {
    KnownSource {
        name: source.name.clone(),
        kind: match source.kind {
            SourceKind::Prometheus(_) => lint::SourceKind::Prometheus,
            SourceKind::Alertmanager(_) => lint::SourceKind::Alertmanager,
            SourceKind::Webhook(_) => lint::SourceKind::Webhook,
        },
    }
}

/// What `standalone` would refuse at its start about the files that the sources
/// name. A warning: lint may run on a machine that does not have them.
fn files_of_sources(config: &Path, sources: Vec<SourceConfig>) -> Vec<Finding> {
    sources
        .into_iter()
        .enumerate()
        .filter_map(|(i, source)| {
            let kind = source.kind.field();
            let error = Source::new(source).err()?;
            let cause = std::error::Error::source(&error)
                .map(|cause| format!(" ({cause})"))
                .unwrap_or_default();
            Some(Finding {
                severity: Severity::Warning,
                file: config.display().to_string(),
                line: 1,
                path: format!("sources[{i}].{kind}"),
                message: format!("{error}{cause}; here at least, standalone would not start"),
            })
        })
        .collect()
}

fn as_json(findings: &[Finding]) -> Vec<serde_json::Value> {
    findings
        .iter()
        .map(
            |Finding {
                 severity,
                 file,
                 line,
                 path,
                 message,
             }| {
                json!({
                    "severity": severity.as_str(),
                    "file": file,
                    "line": line,
                    "path": path,
                    "message": message,
                })
            },
        )
        .collect()
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// The files meant, each once, in the order given; those of a folder by name.
/// The rule for folders is the standalone host's.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut files: Vec<PathBuf> = Vec::new();
    for path in given {
        let found = if path.is_dir() {
            let found = folder(path).map_err(|e| unreadable(path, &e))?;
            if found.is_empty() {
                return Err(CliError::Usage(format!(
                    "FILE {path:?}: the folder holds no *.yaml, *.yml or *.json file, give another one"
                )));
            }
            found
        } else {
            vec![path.clone()]
        };
        for file in found {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

fn folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_manifest = [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end));
        if is_manifest && !name.starts_with('.') && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads no more than the parser takes; it says itself when that was not all.
fn read(path: &Path) -> Result<String, CliError> {
    use std::io::Read;
    let mut text = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE as u64 + 1).read_to_end(&mut text))
        .map_err(|e| unreadable(path, &e))?;
    String::from_utf8(text).map_err(|_| {
        CliError::Usage(format!(
            "FILE {path:?}: is not UTF-8 text, save it as UTF-8"
        ))
    })
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::Usage(format!(
        "FILE {path:?}: unable to read it ({error}), check the path and its permissions"
    ))
}
