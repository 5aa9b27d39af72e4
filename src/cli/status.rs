//! `defragd status`: what a state folder says, in words. It reads files only,
//! so it works beside the running process and without one.

use std::fmt::Write;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::output::{self, Format, member_table, size, took};
use super::{CliError, Exit};
use crate::api::conditions::{self, Condition, ConditionStatus, types};
use crate::api::defrag::{EtcdDefragSpec, EtcdDefragStatus, MemberStatus};
use crate::api::policy::{
    ClusterStatus, EtcdDefragPolicySpec, EtcdDefragPolicyStatus, RunOutcome, SpellStatus,
    SummaryStatus,
};
use crate::api::scalar::Time;
use crate::api::target::{EtcdTargetSpec, EtcdTargetStatus};
use crate::core::duration;
use crate::core::quantity::human_bytes;
use crate::core::reason::Reason;
use crate::core::run::{Outcome, Phase, Role};
use crate::core::signal::SignalState;
use crate::engine::now;
use crate::hosts::standalone::{self, Inventory, Item};

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
        policy(&mut text, item, now);
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

fn policy(
    text: &mut String,
    item: &Item<EtcdDefragPolicySpec, EtcdDefragPolicyStatus>,
    now: Timestamp,
) {
    let spec = item.spec.as_ref();
    heading(text, &format!("Policy {}", key(&item.metadata)));
    if let Some(problem) = complaint(&item.status.conditions, types::READY) {
        field(text, "not ready", problem);
    }
    if item.status.clusters.is_empty() {
        if let Some(named) = spec.and_then(|spec| spec.cluster_ref.as_ref()) {
            field(text, "cluster", &named.name);
        }
        field(text, "decision", "not evaluated yet");
    }
    let hold_for = spec.and_then(|spec| spec.hold_for.as_deref());
    match item
        .status
        .summary
        .as_ref()
        .filter(|s| s.clusters.is_some())
    {
        Some(summary) => fleet(text, &item.status, summary, hold_for, now),
        None => {
            for cluster in &item.status.clusters {
                policy_on(text, cluster, hold_for, now);
            }
        }
    }
    if let Some(degraded) = conditions::get(&item.status.conditions, types::DEGRADED)
        && degraded.status == ConditionStatus::True
    {
        field(text, "degraded", note(&degraded.reason, &degraded.message));
    }
}

/// Clusters of one policy that are shown in words.
const SHOWN: usize = 20;

/// All clusters in a few words, and in full those of which there is more to say than
/// that they are quiet.
fn fleet(
    text: &mut String,
    status: &EtcdDefragPolicyStatus,
    summary: &SummaryStatus,
    hold_for: Option<&str>,
    now: Timestamp,
) {
    field(text, "clusters", &summary.cluster);
    for (name, counts) in [
        ("signals", &summary.signal),
        ("decisions", &summary.decision),
    ] {
        if !counts.is_empty() {
            field(text, name, counts);
        }
    }
    if let Some(problem) = complaint(&status.conditions, types::SERIES_MATCHED) {
        field(text, "series", problem);
    }
    let quiet = |cluster: &&ClusterStatus| {
        let decision = cluster.decision.as_ref().map(|note| note.reason.as_str());
        decision == Some(Reason::SignalNotFiring.as_str()) || cluster.absent_since.is_some()
    };
    let (quiet, others): (Vec<_>, Vec<_>) = status.clusters.iter().partition(quiet);
    for cluster in others.iter().take(SHOWN) {
        policy_on(text, cluster, hold_for, now);
    }
    if let Some(more) = others.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        field(
            text,
            "more",
            format_args!("{more} clusters; --output json has them all"),
        );
    }
    let left = quiet
        .iter()
        .filter(|cluster| cluster.absent_since.is_some());
    let left = left.count();
    if quiet.len() > left {
        field(
            text,
            "quiet",
            format_args!("{} clusters", quiet.len() - left),
        );
    }
    if left > 0 {
        field(
            text,
            "left",
            format_args!("{left} clusters that match no longer and are remembered for a while"),
        );
    }
}

/// Why did it not run on this cluster, in words.
fn policy_on(text: &mut String, cluster: &ClusterStatus, hold_for: Option<&str>, now: Timestamp) {
    field(text, "cluster", &cluster.name);
    match &cluster.decision {
        Some(decision) => field(text, "decision", note(&decision.reason, &decision.message)),
        None => field(text, "decision", "not evaluated yet"),
    }
    match &cluster.signal {
        Some(signal) => {
            let value = signal.value.map(|v| format!(" at {v}")).unwrap_or_default();
            let sampled = signal
                .sampled_at
                .map(|at| format!(" (sampled {})", relative(at, now)))
                .unwrap_or_default();
            field(
                text,
                "signal",
                format_args!(
                    "{}{value}{sampled}: {}",
                    SignalState::from(signal.state).as_str(),
                    note(&signal.reason, &signal.message)
                ),
            );
        }
        None => field(text, "signal", "not read yet"),
    }
    if let Some(since) = cluster.firing_since {
        let wanted = hold_for
            .map(|span| format!(", must hold for {span}"))
            .unwrap_or_default();
        field(
            text,
            "firing",
            format_args!("since {since} ({}){wanted}", relative(since, now)),
        );
    }
    if let Some(since) = cluster.failing_since {
        let who = if cluster.fallback_active {
            "; the fallback decides"
        } else {
            ""
        };
        field(
            text,
            "failing",
            format_args!(
                "no usable answer since {since} ({}){who}",
                relative(since, now)
            ),
        );
    }
    if let Some(at) = cluster.next_eligible_time.filter(|at| at.timestamp() > now) {
        field(
            text,
            "eligible",
            format_args!("not before {at} ({})", relative(at, now)),
        );
    }
    if let Some(blocked) = &cluster.blocked {
        let long = if blocked.too_long {
            ", longer than maxBlockedFor"
        } else {
            ""
        };
        field(
            text,
            "blocked",
            format_args!(
                "since {} ({}){long}: {}",
                blocked.since,
                relative(blocked.since, now),
                blocked.message
            ),
        );
    }
    if let Some(name) = &cluster.active_run {
        field(text, "running", name);
    }
    match &cluster.last_run {
        Some(last) => {
            let gain = last
                .reclaimed_bytes
                .map(|bytes| format!(", {} given back", human_bytes(bytes)))
                .unwrap_or_default();
            let own = if last.own {
                ""
            } else {
                ", made by somebody else"
            };
            field(
                text,
                "last run",
                format_args!(
                    "{}: {} ({}){gain}, ended {}{own}",
                    last.name,
                    match last.outcome {
                        RunOutcome::Complete => "complete",
                        RunOutcome::Failed => "failed",
                    },
                    last.reason,
                    relative(last.finished_at, now)
                ),
            );
        }
        None => field(text, "last run", "none known"),
    }
    if cluster.backoff_level > 0 || cluster.failure_level > 0 {
        field(
            text,
            "back-off",
            format_args!(
                "runs in a row that gave back too little: {}; that failed: {}",
                cluster.backoff_level, cluster.failure_level
            ),
        );
    }
    for (i, spell) in cluster.timeline.iter().enumerate() {
        field(
            text,
            if i == 0 { "time line" } else { "" },
            told(spell, now),
        );
    }
}

/// A line of the time line: when, for how long, what.
fn told(spell: &SpellStatus, now: Timestamp) -> String {
    let until = spell.until.map_or(now, Time::timestamp);
    let lasted = until.duration_since(spell.since.timestamp());
    let lasted = duration::human(lasted.max(SignedDuration::ZERO));
    let times = match spell.times {
        1 => String::new(),
        n => format!(", {n} times"),
    };
    let sofar = if spell.until.is_some() { "" } else { " so far" };
    format!(
        "{} for {lasted}{sofar}{times}  {}",
        spell.since,
        note(&spell.reason, &spell.message)
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::defrag::NoteStatus;
    use crate::api::policy::{LastRunStatus, SignalOrigin, SignalStateStatus, SignalStatus};
    use crate::api::scalar::Number;

    fn at(second: i64) -> Time {
        Timestamp::from_second(1_800_000_000 + second)
            .unwrap()
            .into()
    }

    fn spell(reason: Reason, since: i64, until: Option<i64>, times: u32) -> SpellStatus {
        SpellStatus {
            reason: reason.as_str().to_owned(),
            message: String::new(),
            since: at(since),
            until: until.map(at),
            times,
        }
    }

    #[test]
    fn a_fleet_is_told_in_counts_and_by_those_that_are_not_quiet() {
        let with = |name: &str, reason: Reason| ClusterStatus {
            name: name.to_owned(),
            decision: Some(NoteStatus {
                reason: reason.as_str().to_owned(),
                message: String::new(),
            }),
            ..ClusterStatus::default()
        };
        let left = ClusterStatus {
            absent_since: Some(at(0)),
            ..ClusterStatus::default()
        };
        let summary = SummaryStatus {
            cluster: "2 clusters".to_owned(),
            decision: "1 PolicyBusy, 1 SignalNotFiring".to_owned(),
            ..SummaryStatus::default()
        };
        let status = EtcdDefragPolicyStatus {
            clusters: vec![
                with("a", Reason::PolicyBusy),
                with("b", Reason::SignalNotFiring),
                left,
            ],
            ..EtcdDefragPolicyStatus::default()
        };
        let mut text = String::new();
        fleet(&mut text, &status, &summary, None, at(100).timestamp());
        let expected = "  clusters   2 clusters
  decisions  1 PolicyBusy, 1 SignalNotFiring
  cluster    a
  decision   PolicyBusy: as many runs of this policy go on as it allows
  signal     not read yet
  last run   none known
  quiet      1 clusters
  left       1 clusters that match no longer and are remembered for a while
";
        assert_eq!(text, expected);
    }

    /// T60, T63: what a person asks first, "why did it not run?", in words.
    #[test]
    fn a_policy_says_why_it_did_not_run() {
        let cluster = ClusterStatus {
            name: "demo".to_owned(),
            signal: Some(SignalStatus {
                state: SignalStateStatus::Firing,
                reason: Reason::SignalFiring.as_str().to_owned(),
                value: Some(Number(209_715_200.0)),
                message: "above 100Mi".to_owned(),
                sampled_at: Some(at(98)),
                origin: SignalOrigin::Primary,
            }),
            firing_since: Some(at(40)),
            last_run: Some(LastRunStatus {
                name: "fragmented-1".to_owned(),
                outcome: RunOutcome::Complete,
                reason: Reason::SweepComplete.as_str().to_owned(),
                reclaimed_bytes: Some(3 << 20),
                reclaimed: None,
                finished_at: at(10),
                own: false,
                touched: true,
            }),
            backoff_level: 1,
            next_eligible_time: Some(at(7210)),
            decision: Some(NoteStatus {
                reason: Reason::BackingOff.as_str().to_owned(),
                message: String::new(),
            }),
            timeline: vec![
                spell(Reason::Blocked, -3600, Some(10), 3),
                spell(Reason::BackingOff, 10, None, 1),
            ],
            ..ClusterStatus::default()
        };
        let mut text = String::new();
        policy_on(&mut text, &cluster, Some("30s"), at(100).timestamp());
        let expected = "  cluster    demo
  decision   BackingOff: backing off after a run that gave back too little
  signal     Firing at 209715200 (sampled 2s ago): SignalFiring: above 100Mi
  firing     since 2027-01-15T08:00:40.000Z (1m ago), must hold for 30s
  eligible   not before 2027-01-15T10:00:10.000Z (in 1h 58m 30s)
  last run   fragmented-1: complete (SweepComplete), 3 MiB given back, ended 1m 30s ago, made by somebody else
  back-off   runs in a row that gave back too little: 1; that failed: 0
  time line  2027-01-15T07:00:00.000Z for 1h 10s, 3 times  Blocked: a blocker holds the run back
             2027-01-15T08:00:10.000Z for 1m 30s so far  BackingOff: backing off after a run that gave back too little
";
        assert_eq!(text, expected);
    }
}
