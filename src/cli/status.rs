//! `defragd status`: what a state folder says, in words. It reads files only,
//! so it works beside the running process and without one.

use std::fmt::Write;
use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::output::{self, Format, member_table, size, took};
use super::{CliError, Exit};
use crate::api::conditions::{self, Condition, ConditionStatus, types};
use crate::api::defrag::{EtcdDefragSpec, EtcdDefragStatus, MemberStatus};
use crate::api::scalar::Time;
use crate::api::target::{EtcdTargetSpec, EtcdTargetStatus};
use crate::core::duration;
use crate::core::reason::Reason;
use crate::core::run::{Outcome, Phase, Role};
use crate::engine::now;
use crate::hosts::standalone::{self, Inventory, Item};

mod policy;

/// Says what the standalone host knows, and why a policy did not run
///
/// Reads the state folder, beside the running process or without it. Nothing is
/// asked of etcd or of any source.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  defragd status --state /var/lib/defragd
  defragd status --state /var/lib/defragd --output json | jq '.items[].status'")]
pub(super) struct Args {
    /// The state folder of `defragd standalone`
    #[arg(long, value_name = "DIR")]
    state: PathBuf,

    /// How the answer is written to standard output
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let inventory = standalone::inventory(&args.state)
        .map_err(|e| CliError::Usage(format!("--state {:?}: {e}", args.state)))?;
    match args.output {
        Format::Text => output::emit(&text(&inventory, now()))?,
        Format::Json | Format::Yaml => {
            let mut answer = json!({ "running": inventory.running, "items": inventory.items() });
            // What belongs to no object would otherwise be missing here.
            for (key, list) in [
                ("documentErrors", &inventory.documents),
                ("stateErrors", &inventory.unusable),
            ] {
                if !list.is_empty() {
                    answer[key] = json!(list);
                }
            }
            output::emit_object(&answer, args.output == Format::Yaml)?;
        }
    }
    Ok(Exit::Done)
}

fn text(inventory: &Inventory, now: Timestamp) -> String {
    let Inventory {
        running,
        targets,
        policies,
        runs,
        documents,
        unusable,
    } = inventory;
    let mut text = String::new();
    if !running {
        line(
            &mut text,
            format_args!(
                "defragd is not running on this state folder; what follows is as it was last stored"
            ),
        );
    }
    let head = text.len();
    for (title, problems) in [
        ("Documents that cannot be used", documents),
        ("State files that cannot be used", unusable),
    ] {
        if !problems.is_empty() {
            heading(&mut text, title);
            for problem in problems {
                line(&mut text, format_args!("  {problem}"));
            }
        }
    }
    for item in policies {
        policy::policy(&mut text, item, now);
    }
    for item in runs {
        run_of(&mut text, item, now);
    }
    for item in targets {
        target(&mut text, item);
    }
    if text.len() == head {
        text.push_str("nothing is known yet: no object has been read into this state folder\n");
    }
    text
}

/// Writing into a string cannot fail.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(line);
    text.push('\n');
}

fn heading(text: &mut String, title: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    line(text, format_args!("{title}"));
}

fn field(text: &mut String, name: &str, value: impl std::fmt::Display) {
    line(text, format_args!("  {name:<10} {value}"));
}

fn key(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or("default");
    format!(
        "{namespace}/{}",
        metadata.name.as_deref().unwrap_or_default()
    )
}

/// The condition `type_` when it is not true, as `reason: message`.
fn complaint(list: &[Condition], type_: &str) -> Option<String> {
    conditions::get(list, type_)
        .filter(|condition| condition.status != ConditionStatus::True)
        .map(|condition| note(&condition.reason, &condition.message))
}

fn note(reason: &str, message: &str) -> String {
    match (message, reason.parse::<Reason>()) {
        ("", Ok(known)) => format!("{reason}: {}", known.sentence()),
        ("", Err(_)) => reason.to_owned(),
        (message, _) => format!("{reason}: {message}"),
    }
}

/// How long ago, or how long until then.
fn relative(at: Time, now: Timestamp) -> String {
    let span = now.duration_since(at.timestamp());
    if span.is_negative() {
        format!("in {}", duration::human(span.abs()))
    } else {
        format!("{} ago", duration::human(span))
    }
}

fn run_of(text: &mut String, item: &Item<EtcdDefragSpec, EtcdDefragStatus>, now: Timestamp) {
    let status = &item.status;
    let cluster = item
        .spec
        .as_ref()
        .map_or("", |spec| spec.cluster_ref.name.as_str());
    heading(
        text,
        &format!("Run {} on cluster {cluster}", key(&item.metadata)),
    );
    let phase = status
        .phase
        .map_or("not looked at yet", |phase| Phase::from(phase).as_str());
    let why = match (&status.reason, &status.message) {
        (Some(reason), message) => {
            format!(", {}", note(reason, message.as_deref().unwrap_or_default()))
        }
        (None, _) => String::new(),
    };
    field(text, "phase", format_args!("{phase}{why}"));
    match (status.started_at, status.completed_at) {
        (_, Some(at)) => field(text, "ended", relative(at, now)),
        (Some(at), None) => field(text, "began", relative(at, now)),
        (None, None) => {}
    }
    for warning in &status.warnings {
        field(text, "warning", warning);
    }
    if !status.members.is_empty() {
        let rows: Vec<_> = status.members.iter().map(member).collect();
        let members = member_table(&rows);
        for row in members.lines() {
            line(text, format_args!("  {row}"));
        }
    }
}

fn member(member: &MemberStatus) -> [String; 8] {
    let name = match member.name.as_str() {
        "" => member.member_id.clone(),
        name => format!("{name} ({})", member.member_id),
    };
    let span = match (member.started_at, member.finished_at) {
        (Some(from), Some(to)) => took(to.timestamp().duration_since(from.timestamp())),
        _ => "-".to_owned(),
    };
    [
        name,
        Role::from(member.role).as_str().to_owned(),
        Outcome::from(member.outcome).as_str().to_owned(),
        size(member.db_size_before),
        size(member.db_size_after),
        size(member.reclaimed_bytes),
        span,
        note(&member.reason, &member.message),
    ]
}

fn target(text: &mut String, item: &Item<EtcdTargetSpec, EtcdTargetStatus>) {
    let status = &item.status;
    heading(text, &format!("Target {}", key(&item.metadata)));
    match conditions::get(&status.conditions, types::READY) {
        Some(ready) => {
            let word = if ready.status == ConditionStatus::True {
                "ready"
            } else {
                "not ready"
            };
            field(text, word, note(&ready.reason, &ready.message));
        }
        None => field(text, "ready", "not looked at yet"),
    }
    if let Some(id) = &status.cluster_id {
        field(text, "cluster", id);
    }
    for member in &status.members {
        let role = member
            .role
            .map_or("does not answer", |role| Role::from(role).as_str());
        let version = member
            .version
            .as_deref()
            .map(|v| format!(", etcd {v}"))
            .unwrap_or_default();
        field(
            text,
            "member",
            format_args!("{} ({}): {role}{version}", member.name, member.member_id),
        );
    }
}
