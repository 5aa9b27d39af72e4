use std::collections::BTreeSet;

use super::*;
use crate::core::decide::{ClusterState, LastRun, Origin, SignalRecord};
use crate::core::run::{Note, Outcome, Phase, Role, RunRecord};
use crate::core::view::{Alarm, AlarmKind, MemberStatus, MemberView, Observation, Trouble};
use crate::telemetry::Telemetry;

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// As it stands in a scrape.
fn full_name(metric: &Metric) -> String {
    let unit = metric
        .unit
        .map(|unit| format!("_{unit}"))
        .unwrap_or_default();
    let end = match metric.kind {
        MetricType::Counter => "_total",
        MetricType::Info => "_info",
        MetricType::Gauge | MetricType::Histogram | MetricType::Unknown => "",
    };
    format!("{PREFIX}_{}{unit}{end}", metric.name)
}

fn row(metric: &Metric) -> String {
    let labels: Vec<String> = metric
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let kind = metric.kind.as_str();
    format!(
        "| `{}` | {kind} | {} | {} |",
        full_name(metric),
        labels.join(", "),
        metric.help
    )
}

#[test]
fn the_documentation_holds_the_same_table() {
    let written: Vec<&str> = DOCUMENT
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let wanted: Vec<String> = ALL.iter().map(row).collect();
    assert_eq!(
        written,
        wanted,
        "docs/metrics.md should hold:\n{}",
        wanted.join("\n")
    );
}

fn state() -> ClusterState {
    ClusterState {
        signal: Some(SignalRecord {
            state: SignalState::Firing,
            reason: Reason::SignalFiring,
            value: Some(1.5),
            message: String::new(),
            sampled_at: None,
            origin: Origin::Primary,
        }),
        firing_since: Some(at(10)),
        last_run: Some(LastRun {
            name: "r".to_owned(),
            succeeded: true,
            reason: Reason::SweepComplete,
            reclaimed: Some(1),
            finished_at: at(5),
            own: true,
            touched: true,
        }),
        next_eligible: Some(at(20)),
        decision: Some(Note::new(Reason::CoolingDown, "")),
        ..ClusterState::default()
    }
}

fn observation() -> Observation {
    let id = MemberId(0xabc);
    let status = MemberStatus {
        version: "3.6.0".to_owned(),
        db_size: 1000,
        db_size_in_use: Some(400),
        quota: Quota::Known {
            bytes: 2000,
            source: QuotaSource::Status,
        },
        leader: Some(id),
        raft_term: 1,
        raft_index: 7,
        raft_applied_index: Some(5),
        revision: 1,
        alarms: BTreeSet::new(),
        errors: Vec::new(),
    };
    let silent = Trouble {
        reason: Reason::MemberUnreachable,
        message: String::new(),
    };
    let view = |id, name: &str, status| MemberView {
        id,
        name: name.to_owned(),
        learner: false,
        status,
        metrics: None,
    };
    Observation {
        at: at(30),
        members: Ok(vec![
            view(id, "one", Ok(status)),
            view(MemberId(2), "two", Err(silent)),
        ]),
        alarms: Ok(BTreeSet::from([Alarm {
            member: id,
            kind: AlarmKind::NoSpace,
        }])),
        cluster_ids: BTreeSet::new(),
        expected_voters: None,
    }
}

fn finished() -> RunRecord {
    let member = crate::core::run::MemberRecord {
        id: MemberId(0xabc),
        name: "one".to_owned(),
        role: Role::Leader,
        outcome: Outcome::Defragmented,
        reason: Reason::Defragmented,
        message: String::new(),
        db_size_before: Some(1000),
        db_size_after: Some(400),
        in_use_before: None,
        in_use_after: None,
        started_at: Some(at(1)),
        finished_at: Some(at(3)),
        attempts: 1,
        call: None,
    };
    RunRecord {
        phase: Phase::Complete,
        members: vec![member],
        result: Some(Note::new(Reason::SweepComplete, "")),
        ..RunRecord::default()
    }
}

/// Every metric has a series.
fn full() -> String {
    let telemetry = Telemetry::default();
    telemetry.policy_evaluated(&key("p"), &state(), state().signal.and_then(|s| s.value));
    telemetry.target_observed(&key("t"), &observation());
    telemetry.run_finished(&key("r"), &finished());
    telemetry.error("policy");
    telemetry.state_written(true);
    telemetry.round(at(40));
    let mut stats = SourceStats {
        shared: 3,
        ..SourceStats::default()
    };
    stats.requests.insert("200".to_owned(), 2);
    let numbers = telemetry.numbers().clone();
    render(numbers, BTreeMap::from([("main".to_owned(), stats)])).unwrap()
}

#[test]
fn every_documented_metric_is_served_and_no_other() {
    let text = full();
    let served: BTreeSet<String> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("# TYPE ")?
                .split(' ')
                .next()
                .map(str::to_owned)
        })
        .collect();
    let base = |metric: &Metric| {
        let name = full_name(metric);
        name.trim_end_matches("_total")
            .trim_end_matches("_info")
            .to_owned()
    };
    let documented: BTreeSet<String> = ALL.iter().map(base).collect();
    assert_eq!(served, documented, "{text}");
    for metric in ALL {
        for label in metric.labels {
            assert!(
                text.contains(&format!("{label}=\"")),
                "{label} of {}",
                metric.name
            );
        }
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn values_are_what_was_told() {
    let text = full();
    for line in [
        "defragd_policy_signal_state{namespace=\"default\",name=\"p\",state=\"Firing\"} 1.0",
        "defragd_policy_signal_state{namespace=\"default\",name=\"p\",state=\"Error\"} 0.0",
        "defragd_policy_decision{namespace=\"default\",name=\"p\",reason=\"CoolingDown\"} 1.0",
        "defragd_policy_firing_since_timestamp_seconds{namespace=\"default\",name=\"p\"} 10.0",
        "defragd_runs_total{outcome=\"Complete\",reason=\"SweepComplete\"} 1",
        "defragd_reclaimed_bytes_total 600",
        "defragd_member_defragmentation_duration_seconds_bucket{le=\"1.0\"} 0",
        "defragd_member_defragmentation_duration_seconds_bucket{le=\"2.5\"} 1",
        "defragd_member_defragmentation_duration_seconds_bucket{le=\"+Inf\"} 1",
        "defragd_target_member_up{namespace=\"default\",name=\"t\",member=\"two\",member_id=\"2\"} 0.0",
        "defragd_target_member_apply_lag_entries{namespace=\"default\",name=\"t\",member=\"one\",member_id=\"abc\"} 2.0",
        "defragd_source_requests_total{source=\"main\",code=\"200\"} 2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    let alarm = "defragd_target_member_alarm{namespace=\"default\",name=\"t\",member=\"one\",member_id=\"abc\",alarm=\"NOSPACE\"} 1.0";
    assert!(text.lines().any(|line| line == alarm), "{text}");
    assert!(
        !text.contains("db_size_bytes{namespace=\"default\",name=\"t\",member=\"two\""),
        "unknown is absent, not zero"
    );
}

#[test]
fn t103_series_of_what_is_gone_disappear() {
    let telemetry = Telemetry::default();
    telemetry.policy_evaluated(&key("p"), &state(), state().signal.and_then(|s| s.value));
    telemetry.target_observed(&key("t"), &observation());
    let mut fewer = observation();
    fewer.members = fewer
        .members
        .map(|members| members.into_iter().take(1).collect());
    telemetry.target_observed(&key("t"), &fewer);
    assert!(
        !telemetry.render().unwrap().contains("member=\"two\""),
        "a member that left"
    );
    telemetry.forget_policy(&key("p"));
    telemetry.forget_target(&key("t"));
    let text = telemetry.render().unwrap();
    assert!(!text.contains("name=\""), "{text}");
}

#[test]
fn an_earlier_success_stays_known_after_a_failure() {
    let telemetry = Telemetry::default();
    telemetry.policy_evaluated(&key("p"), &state(), state().signal.and_then(|s| s.value));
    let mut failed = state();
    failed.last_run = failed.last_run.map(|run| LastRun {
        succeeded: false,
        finished_at: at(50),
        ..run
    });
    telemetry.policy_evaluated(&key("p"), &failed, None);
    let text = telemetry.render().unwrap();
    assert!(
        text.contains(
            "defragd_policy_last_success_timestamp_seconds{namespace=\"default\",name=\"p\"} 5.0"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "defragd_policy_last_run_timestamp_seconds{namespace=\"default\",name=\"p\"} 50.0"
        ),
        "{text}"
    );
}

#[test]
fn alive_and_ready_are_different_questions() {
    let telemetry = Telemetry::default();
    assert!(telemetry.alive().is_ok(), "the start has its time");
    assert!(!telemetry.is_ready());
    telemetry.ready();
    telemetry.round(at(1));
    assert!(telemetry.alive().is_ok() && telemetry.is_ready());
}
