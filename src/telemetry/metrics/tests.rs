use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::core::decide::{Blocked, ClusterState, LastRun, Origin, SignalRecord};
use crate::core::key::{ClusterKey, ClusterKind, ObjectKey, PolicyOn};
use crate::core::reason::Reason;
use crate::core::rule::{Quota, QuotaSource};
use crate::core::run::{Note, Outcome, Phase, Role, RunRecord};
use crate::core::signal::SignalState;
use crate::core::view::{
    Alarm, AlarmKind, MemberId, MemberStatus, MemberView, Observation, Trouble,
};
use crate::signals::SourceStats;
use crate::signals::webhook::{Delivery, DeliveryStats};
use crate::telemetry::{Evaluated, Series, Telemetry, Unfinished};

const DOCUMENT: &str = include_str!("../../../docs/metrics.md");

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "default".into(),
        name: name.into(),
    }
}

fn target(name: &str) -> ClusterKey {
    ClusterKey::target(key(name))
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
    format!("{}{unit}{end}", metric.name)
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
        last_success: Some(at(5)),
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
        blocked: Some(Blocked {
            since: at(16),
            by: Vec::new(),
            message: String::new(),
            too_long: false,
        }),
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

/// Tells of the policy `p` and the cluster `t`, as their workers would.
fn tell(telemetry: &Arc<Telemetry>) -> [Series; 3] {
    let series = [
        telemetry.policy_series(&on("p")),
        telemetry.cluster_series(&target("t")),
        telemetry.fleet_series(&key("f")),
    ];
    telemetry.fleet_seen(&key("f"), 3, 0, Some(2));
    evaluated(telemetry, &state());
    telemetry.cluster_observed(
        &target("t"),
        Reason::MemberUnreachable,
        Some(&observation()),
    );
    series
}

/// A policy on the cluster `t`.
fn on(name: &str) -> PolicyOn {
    PolicyOn {
        policy: key(name),
        cluster: target("t"),
    }
}

fn evaluated(telemetry: &Telemetry, state: &ClusterState) {
    let evaluated = Evaluated {
        state,
        value: state.signal.as_ref().and_then(|signal| signal.value),
        blocked_since: Some(at(15)),
    };
    telemetry.policy_evaluated(&on("p"), evaluated);
}

/// Every metric has a series.
fn full() -> String {
    let telemetry = Arc::new(Telemetry::default());
    let _series = tell(&telemetry);
    telemetry.run_finished(&target("t"), &finished());
    let waits = RunRecord {
        gate: Some(Note::new(Reason::NoLeader, "")),
        ..RunRecord::default()
    };
    let begun = RunRecord {
        started_at: Some(at(9)),
        gate: Some(Note::new(Reason::ApplyLag, "")),
        ..RunRecord::default()
    };
    let unfinished = |record, second| Unfinished {
        cluster: &CLUSTER,
        created_at: at(second),
        record,
    };
    telemetry.unfinished_runs([unfinished(&waits, 7), unfinished(&begun, 8)].into_iter());
    telemetry.error("policy");
    telemetry.state_written(true);
    telemetry.leader(true);
    telemetry.round(at(40));
    telemetry.watched("EtcdTarget", 3);
    telemetry.watch_failed("EtcdTarget");
    let took = Duration::from_millis(30);
    telemetry.api_request("patch", "etcddefrags/status", Some(409), took);
    telemetry.api_request("get", "leases", None, took);
    telemetry.api_request("watch", "etcdtargets", Some(200), took);
    let mut stats = SourceStats {
        shared: 3,
        ..SourceStats::default()
    };
    stats.requests.insert("200".to_owned(), 2);
    let mut scrape = telemetry.scrape();
    scrape.sources.insert("main".to_owned(), stats);
    let pushed = DeliveryStats {
        deliveries: BTreeMap::from([(Delivery::Stored, 2), (Delivery::Unauthorized, 1)]),
        alerts: BTreeMap::from([("new", 1)]),
    };
    scrape.deliveries.insert("pushed".to_owned(), pushed);
    scrape.render(0).unwrap()
}

static CLUSTER: std::sync::LazyLock<ClusterKey> = std::sync::LazyLock::new(|| target("t"));

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
            let series = text.lines().find(|line| {
                line.starts_with(&full_name(metric)) && line.contains(&format!("{label}=\""))
            });
            assert!(series.is_some(), "{label} of {}", metric.name);
        }
    }
    assert!(text.ends_with("# EOF\n"));
}

/// What OpenMetrics asks of names, beyond what the encoder sees to.
#[test]
fn names_carry_base_units_and_series_are_unique() {
    for metric in ALL {
        let name = metric.name;
        for word in name.split('_') {
            let units = [
                "total", "info", "count", "sum", "bucket", "created", "seconds", "bytes",
            ];
            let suffix = units.contains(&word) && !name.contains("created_timestamp");
            assert!(!suffix, "{name}: {word} comes from type or unit");
        }
        let timed = name.ends_with("_timestamp") || name.ends_with("_duration");
        assert!(!timed || metric.unit == Some("seconds"), "{name}");
    }
    let mut seen = BTreeSet::new();
    for line in full().lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0.to_owned();
        assert!(seen.insert(series), "{line} stands there twice");
    }
}

#[test]
fn values_are_what_was_told() {
    let text = full();
    let member =
        "namespace=\"default\",name=\"t\",kind=\"EtcdTarget\",member=\"one\",member_id=\"abc\"";
    for line in [
        "defragd_policy_info{namespace=\"default\",name=\"p\",cluster=\"t\",cluster_kind=\"EtcdTarget\"} 1",
        "defragd_policy_signal_state{namespace=\"default\",name=\"p\",cluster=\"t\",cluster_kind=\"EtcdTarget\",state=\"Firing\"} 1.0",
        "defragd_policy_signal_state{namespace=\"default\",name=\"p\",cluster=\"t\",cluster_kind=\"EtcdTarget\",state=\"Error\"} 0.0",
        "defragd_policy_decision{namespace=\"default\",name=\"p\",cluster=\"t\",cluster_kind=\"EtcdTarget\",reason=\"CoolingDown\"} 1.0",
        "defragd_policy_firing_since_timestamp_seconds{namespace=\"default\",name=\"p\",cluster=\"t\",cluster_kind=\"EtcdTarget\"} 10.0",
        "defragd_policy_blocked_since_timestamp_seconds{namespace=\"default\",name=\"p\",cluster=\"t\",cluster_kind=\"EtcdTarget\"} 15.0",
        "defragd_policy_blockers_since_timestamp_seconds{namespace=\"default\",name=\"p\",cluster=\"t\",cluster_kind=\"EtcdTarget\"} 16.0",
        "defragd_policy_clusters{namespace=\"default\",name=\"f\"} 3.0",
        "defragd_policy_unmatched_series{namespace=\"default\",name=\"f\"} 2.0",
        "defragd_policy_last_success_timestamp_seconds{namespace=\"default\",name=\"p\",cluster=\"t\",cluster_kind=\"EtcdTarget\"} 5.0",
        "defragd_cluster_health{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\",reason=\"MemberUnreachable\"} 1.0",
        "defragd_cluster_runs_total{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\",outcome=\"Complete\"} 1",
        "defragd_cluster_runs_total{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\",outcome=\"Failed\"} 0",
        "defragd_cluster_reclaimed_bytes_total{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\"} 600",
        "defragd_cluster_unfinished_runs{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\"} 2.0",
        "defragd_cluster_unfinished_run_created_timestamp_seconds{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\"} 7.0",
        // The run that began goes before the older one that waits for it.
        "defragd_cluster_run_gate{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\",reason=\"ApplyLag\"} 1.0",
        "defragd_runs_total{outcome=\"Complete\",reason=\"SweepComplete\"} 1",
        "defragd_member_defragmentation_duration_seconds_bucket{le=\"1.0\"} 0",
        "defragd_member_defragmentation_duration_seconds_bucket{le=\"2.5\"} 1",
        "defragd_member_defragmentation_duration_seconds_bucket{le=\"+Inf\"} 1",
        "defragd_cluster_member_up{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\",member=\"two\",member_id=\"2\"} 0.0",
        &format!("defragd_cluster_member_apply_lag_entries{{{member}}} 2.0"),
        &format!("defragd_cluster_member_quota_bytes{{{member}}} 2000.0"),
        &format!("defragd_cluster_member_alarm{{{member},alarm=\"NOSPACE\"}} 1.0"),
        &format!("defragd_cluster_member_alarm{{{member},alarm=\"CORRUPT\"}} 0.0"),
        "defragd_source_requests_total{source=\"main\",code=\"200\"} 2",
        "defragd_errors_total{what=\"policy\"} 1",
        "defragd_errors_total{what=\"worker\"} 0",
        "defragd_leader 1.0",
        "defragd_leader_transitions_total 1",
        "defragd_objects{kind=\"EtcdTarget\"} 3.0",
        "defragd_watch_restarts_total{kind=\"EtcdTarget\"} 1",
        "defragd_api_requests_total{verb=\"patch\",resource=\"etcddefrags/status\",code=\"409\"} 1",
        "defragd_api_requests_total{verb=\"get\",resource=\"leases\",code=\"none\"} 1",
        "defragd_api_request_duration_seconds_bucket{le=\"0.1\",verb=\"patch\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    for absent in [
        // Unknown is absent, not zero.
        "db_size_bytes{namespace=\"default\",name=\"t\",kind=\"EtcdTarget\",member=\"two\"",
        // How long a watch lasts says nothing.
        "verb=\"watch\"} ",
    ] {
        assert!(!text.contains(absent), "{absent} is in\n{text}");
    }
}

#[test]
fn t103_series_of_what_is_gone_disappear() {
    let telemetry = Arc::new(Telemetry::default());
    let series = tell(&telemetry);
    let mut fewer = observation();
    fewer.members = fewer
        .members
        .map(|members| members.into_iter().take(1).collect());
    telemetry.cluster_observed(&target("t"), Reason::ClusterHealthy, Some(&fewer));
    let text = telemetry.render().unwrap();
    assert!(
        !text.contains("member=\"two\""),
        "a member that left: {text}"
    );
    drop(series);
    let text = telemetry.render().unwrap();
    assert!(!text.contains("name=\""), "{text}");

    // The worker of a removed object may still have something to say.
    evaluated(&telemetry, &state());
    telemetry.cluster_observed(&target("t"), Reason::ClusterHealthy, Some(&fewer));
    telemetry.run_finished(&target("t"), &finished());
    let text = telemetry.render().unwrap();
    assert!(!text.contains("name=\""), "{text}");
    assert!(
        text.contains("defragd_runs_total{"),
        "what was counted stays"
    );
}

#[test]
fn t103_an_object_that_came_back_keeps_its_series_when_its_old_worker_ends() {
    let telemetry = Arc::new(Telemetry::default());
    let old = tell(&telemetry);
    let _new = tell(&telemetry);
    drop(old);
    let text = telemetry.render().unwrap();
    assert!(text.contains("defragd_policy_decision{"), "{text}");
    assert!(text.contains("defragd_cluster_member_up{"), "{text}");
}

/// Somebody may watch `member_up == 0` and nothing else.
#[test]
fn members_of_a_cluster_that_gives_no_list_are_down_not_gone() {
    let telemetry = Arc::new(Telemetry::default());
    let _series = tell(&telemetry);
    let silent = Observation {
        members: Err(Trouble {
            reason: Reason::MemberListUnavailable,
            message: String::new(),
        }),
        ..observation()
    };
    telemetry.cluster_observed(&target("t"), Reason::MemberListUnavailable, Some(&silent));
    let text = telemetry.render().unwrap();
    let ups: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("defragd_cluster_member_up{"))
        .collect();
    assert_eq!(ups.len(), 2, "{text}");
    assert!(ups.iter().all(|up| up.ends_with(" 0.0")), "{text}");
    assert!(
        !text.contains("defragd_cluster_member_db_size_bytes{"),
        "{text}"
    );

    telemetry.cluster_observed(&target("t"), Reason::InvalidSpec, None);
    let text = telemetry.render().unwrap();
    assert!(
        !text.contains("defragd_cluster_member_up{"),
        "where to look is not known: {text}"
    );
    assert!(text.contains("reason=\"InvalidSpec\"} 1.0"), "{text}");
}

#[test]
fn clusters_of_one_name_and_different_kinds_are_told_apart() {
    let telemetry = Arc::new(Telemetry::default());
    let clusters = ClusterKind::ALL.map(|kind| ClusterKey {
        kind,
        object: key("t"),
    });
    let _series = clusters.each_ref().map(|c| telemetry.cluster_series(c));
    for cluster in &clusters {
        telemetry.cluster_observed(cluster, Reason::ClusterHealthy, Some(&observation()));
    }
    let text = telemetry.render().unwrap();
    for kind in [
        "EtcdTarget",
        "EtcdCluster.etcd-operator.cozystack.io",
        "EtcdCluster.operator.etcd.io",
    ] {
        let series = format!(
            "defragd_cluster_health{{namespace=\"default\",name=\"t\",kind=\"{kind}\",reason=\"ClusterHealthy\"}} 1.0"
        );
        assert!(text.lines().any(|line| line == series), "{text}");
    }
}

/// etcd takes any text as the name of a member.
#[test]
fn label_values_are_escaped() {
    let telemetry = Arc::new(Telemetry::default());
    let _series = telemetry.cluster_series(&target("t"));
    let mut seen = observation();
    for member in seen.members.iter_mut().flatten() {
        member.name = "a\"b\\c\nd} 1".to_owned();
    }
    telemetry.cluster_observed(&target("t"), Reason::ClusterHealthy, Some(&seen));
    let text = telemetry.render().unwrap();
    assert!(text.contains(r#"member="a\"b\\c\nd} 1","#), "{text}");
}

/// A replica that lost its leadership knows nothing of objects any more.
#[test]
fn t49_a_replica_that_waits_shows_no_objects() {
    let telemetry = Arc::new(Telemetry::default());
    telemetry.leader(true);
    let series = tell(&telemetry);
    let record = RunRecord::default();
    let unfinished = || Unfinished {
        cluster: &CLUSTER,
        created_at: at(1),
        record: &record,
    };
    telemetry.unfinished_runs(std::iter::once(unfinished()));
    let text = telemetry.render().unwrap();
    assert!(text.contains("defragd_cluster_unfinished_runs{"), "{text}");
    telemetry.leader(false);
    // The engine ends its workers.
    drop(series);
    telemetry.unfinished_runs(std::iter::once(unfinished()));
    let text = telemetry.render().unwrap();
    assert!(!text.contains("name=\""), "{text}");
    assert!(text.contains("defragd_leader 0.0"), "{text}");
    assert!(telemetry.alive().is_ok());
}

/// Shows how long a page takes that is as large as they get: with `--nocapture`,
/// and `--release` for a number that means something.
#[test]
fn a_page_of_ten_thousand_policies() {
    const POLICIES: usize = 10_000;
    let telemetry = Arc::new(Telemetry::default());
    // Most of them are not blocked.
    let state = ClusterState {
        blocked: None,
        ..state()
    };
    let mut series = Vec::new();
    for i in 0..POLICIES {
        let policy = on(&format!("policy-number-{i}"));
        series.push(telemetry.policy_series(&policy));
        let evaluated = Evaluated {
            state: &state,
            value: Some(123_456_789.0),
            blocked_since: None,
        };
        telemetry.policy_evaluated(&policy, evaluated);
    }
    let mut best = [Duration::MAX; 2];
    let mut text = String::new();
    for _ in 0..5 {
        let start = std::time::Instant::now();
        let scrape = telemetry.scrape();
        let copied = start.elapsed();
        text = scrape.render(text.len()).unwrap();
        best = [best[0].min(copied), best[1].min(start.elapsed())];
    }
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    eprintln!(
        "{lines} series of {POLICIES} policies, {} bytes: copied in {:?}, copied and written in {:?}",
        text.len(),
        best[0],
        best[1]
    );
    let of_policies = text
        .lines()
        .filter(|line| line.contains("{namespace="))
        .count();
    assert!(of_policies <= 15 * POLICIES, "{of_policies} series");
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

/// Who tells something and who reads take the same locks: whatever order they are
/// taken in, nobody may wait for one who waits for him.
#[test]
fn nobody_who_tells_waits_for_a_scrape() {
    const ROUNDS: usize = 3_000;
    let telemetry = Arc::new(Telemetry::default());
    let mut series: Vec<_> = tell(&telemetry).into_iter().collect();
    // A copy that takes its time, so that the two meet in it.
    series.extend((0..1_000).map(|i| telemetry.policy_series(&on(&format!("policy-{i}")))));
    let (done, both) = std::sync::mpsc::channel();
    let telling = {
        let (telemetry, done) = (telemetry.clone(), done.clone());
        move || {
            let record = RunRecord::default();
            for round in 0..10 * ROUNDS {
                let unfinished = Unfinished {
                    cluster: &CLUSTER,
                    created_at: at(1),
                    record: &record,
                };
                telemetry.unfinished_runs(std::iter::once(unfinished));
                telemetry.leader(round % 2 == 0);
                telemetry.run_finished(&CLUSTER, &record);
                telemetry.watched("EtcdDefrag", round);
                drop(telemetry.cluster_series(&CLUSTER));
            }
            done.send(()).unwrap();
        }
    };
    // They go with the thread: to drop them takes the lock too.
    let reading = move || {
        let _series = series;
        for _ in 0..ROUNDS {
            let _ = (telemetry.scrape(), telemetry.alive());
            // Else the lock is taken again before the other has awoken.
            std::thread::sleep(Duration::from_micros(100));
        }
        done.send(()).unwrap();
    };
    std::thread::spawn(telling);
    std::thread::spawn(reading);
    for _ in 0..2 {
        let ended = both.recv_timeout(Duration::from_secs(60));
        assert!(ended.is_ok(), "each waits for the other");
    }
}
