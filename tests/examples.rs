//! Every policy that a reader may copy, from `examples/policies` and from the pages, is parsed,
//! validated and decided upon: it stays quiet when its signal is quiet, and when its signal fires it
//! holds, waits for its window, creates one run and then cools down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use defragd::api::document::{Located, Object, parse};
use defragd::api::validate::{self, Place};
use defragd::core::alert::{self, Alert, AlertSignal};
use defragd::core::decide::{
    ClusterState, Decision, Facts, Policy, RunEnd, RunSummary, created, decide,
};
use defragd::core::key::ClusterKind;
use defragd::core::probe;
use defragd::core::reason::Reason;
use defragd::core::rule::{Quota, QuotaSource, Rule};
use defragd::core::signal::{
    Answer, AnswerKind, MetricAnswer, MetricItem, MetricSignal, Presence, PrometheusSignal,
    Reading, Series, Signal, SignalState, Threshold, judge, judge_metric,
};
use defragd::core::view::{ClusterId, MemberId, MemberStatus, MemberView, Observation};
use defragd::hosts::config::Config;
use jiff::{SignedDuration, Timestamp};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

/// The fenced `yaml` blocks of a page that hold objects, and the line of each.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in page.lines().enumerate() {
        match &mut open {
            Some((_, block)) if line.trim_start() != "```" => {
                block.push_str(line);
                block.push('\n');
            }
            Some(_) => blocks.extend(open.take()),
            None if line.trim_start() == "```yaml" => open = Some((number + 1, String::new())),
            None => {}
        }
    }
    blocks.retain(|(_, block)| block.contains("apiVersion: defragd.dev"));
    blocks
}

fn objects(label: &str, text: &str) -> Vec<Located<Object>> {
    let parsed = parse(label, text);
    let errors: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(!parsed.objects.is_empty(), "{label} holds no object");
    for object in &parsed.objects {
        let errors: Vec<String> = object
            .value
            .errors(Place::Anywhere)
            .iter()
            .map(|e| object.locate(e).to_string())
            .collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }
    parsed.objects
}

#[test]
fn every_example_is_valid_and_decides_as_it_says() {
    let files = files(&root().join("examples/policies"), "yaml");
    assert!(files.len() >= 5, "the examples are gone: {files:?}");
    for file in files {
        let label = file
            .strip_prefix(root())
            .unwrap_or(&file)
            .display()
            .to_string();
        let objects = objects(&label, &read(&file));
        let mut targets = BTreeSet::new();
        let mut policies = 0;
        for object in &objects {
            match &object.value {
                Object::Target(target) => {
                    validate::target(target, Place::Anywhere).expect("checked above");
                    targets.insert(object.value.name().to_owned());
                }
                Object::Policy(policy) => {
                    policies += 1;
                    let Some(cluster) = &policy.spec.cluster_ref else {
                        assert!(!targets.is_empty(), "{label} is whole: it has targets too");
                        decide_on(&label, &object.value);
                        continue;
                    };
                    // Other operators' objects are not ours to show.
                    let shown = targets.contains(&cluster.name);
                    assert!(
                        shown || cluster.cluster_kind() != Some(ClusterKind::EtcdTarget),
                        "{label} is whole: it has the target {} too",
                        cluster.name
                    );
                }
                Object::Run(_) => {}
            }
            decide_on(&label, &object.value);
        }
        assert!(policies > 0, "{label} shows a policy");
    }
}

#[test]
fn every_manifest_in_the_pages_is_valid_and_decides_as_it_says() {
    let mut pages = files(&root().join("docs"), "md");
    pages.extend(
        [root().join("README.md")]
            .into_iter()
            .filter(|page| page.exists()),
    );
    for page in pages {
        for (line, block) in blocks(&read(&page)) {
            let label = format!("{} (block at line {line})", page.display());
            for object in objects(&label, &block) {
                decide_on(&label, &object.value);
            }
        }
    }
}

/// The policy of the README and of the demo, as it must work word for word.
#[test]
fn the_demo_s_policy_decides_as_it_says() {
    let label = "tests/fixtures/demo.yaml";
    for object in objects(label, &read(&root().join(label))) {
        decide_on(label, &object.value);
    }
}

fn decide_on(label: &str, object: &Object) {
    let Object::Policy(object) = object else {
        return;
    };
    let policy = validate::policy(object, Place::Anywhere).expect("checked before");
    let label = format!(
        "{label}: {}",
        object.metadata.name.as_deref().unwrap_or_default()
    );
    let (firing, quiet) = readings(&policy.signal);
    assert_eq!(
        firing.state,
        SignalState::Firing,
        "{label}: {}",
        firing.message
    );
    assert_eq!(
        quiet.state,
        SignalState::NotFiring,
        "{label}: {}",
        quiet.message
    );
    if let Some(fallback) = &policy.fallback {
        assert_eq!(
            probe::judge(&fallback.rule, &fragmented()).state,
            SignalState::Firing,
            "{label}: fallback"
        );
        assert_eq!(
            probe::judge(&fallback.rule, &compact()).state,
            SignalState::NotFiring,
            "{label}: fallback"
        );
    }
    stays_quiet(&label, &policy, &quiet);
    fires_once_and_cools_down(&label, &policy, &firing);
}

/// Monday noon in Europe; every window of an example is closed then, or has an opening within days.
fn start() -> Timestamp {
    "2026-01-05T11:00:00Z".parse().expect("a time")
}

fn evaluate(
    policy: &Policy,
    state: &ClusterState,
    reading: &Reading,
    blockers: &[Reading],
    runs: &[RunSummary],
    now: Timestamp,
) -> Decision {
    let facts = Facts {
        now,
        policy: "example",
        uid: "uid",
        cluster: "default/example",
        primary: Some(reading.clone()),
        fallback: None,
        emergency: None,
        blockers: Some(blockers),
        runs: Ok(runs),
    };
    decide(policy, state.clone(), &facts)
}

fn reason(decision: &Decision) -> Reason {
    decision.note.reason
}

/// The policy itself says that nothing is to start.
fn stands_still(policy: &Policy) -> bool {
    policy.suspend || policy.dry_run || policy.paused_until.is_some_and(|until| until > start())
}

fn stays_quiet(label: &str, policy: &Policy, quiet: &Reading) {
    let passing = passing(policy);
    let mut state = ClusterState::default();
    let mut now = start();
    for _ in 0..200 {
        let decision = evaluate(policy, &state, quiet, &passing, &[], now);
        assert!(
            decision.create.is_none(),
            "{label}: {}",
            decision.note.message
        );
        if !stands_still(policy) {
            assert_eq!(
                reason(&decision),
                Reason::SignalNotFiring,
                "{label}: {}",
                decision.note.message
            );
        }
        state = decision.state;
        now += policy.interval;
    }
}

/// What its blockers say when none is on.
fn passing(policy: &Policy) -> Vec<Reading> {
    let signals = policy.blockers.iter().map(|blocker| &blocker.signal);
    signals.map(|signal| readings(signal).1).collect()
}

/// Each blocker alone holds back the run that is due, and so does its silence.
fn is_blocked(
    label: &str,
    policy: &Policy,
    state: &ClusterState,
    firing: &Reading,
    now: Timestamp,
) {
    for (i, blocker) in policy.blockers.iter().enumerate() {
        let down = Reading::error(Reason::SourceUnavailable, "connection refused");
        for on in [readings(&blocker.signal).0, down] {
            let mut said = passing(policy);
            said[i] = on;
            let decision = evaluate(policy, state, firing, &said, &[], now);
            assert_eq!(
                reason(&decision),
                Reason::Blocked,
                "{label}: {}",
                blocker.name
            );
            let message = &decision.note.message;
            assert!(message.contains(&blocker.name), "{label}: {message}");
        }
    }
}

fn fires_once_and_cools_down(label: &str, policy: &Policy, firing: &Reading) {
    let passing = passing(policy);
    let mut state = ClusterState::default();
    let mut now = start();
    let mut waits = BTreeSet::new();
    let mut steps = 0;
    let run = loop {
        let decision = evaluate(policy, &state, firing, &passing, &[], now);
        if decision.create.is_some() {
            is_blocked(label, policy, &state, firing, now);
        }
        state = decision.state.clone();
        if let Some(run) = &decision.create {
            break run.clone();
        }
        waits.insert(reason(&decision));
        match reason(&decision) {
            Reason::HoldingFor => {
                now = decision
                    .recheck
                    .map_or(now + policy.interval, |at| at.min(now + policy.interval));
            }
            Reason::OutsideWindow | Reason::Blackout | Reason::Paused => {
                now = state
                    .next_eligible
                    .unwrap_or_else(|| panic!("{label}: nothing ever opens"));
            }
            Reason::Suspended | Reason::DryRun => {
                assert!(stands_still(policy), "{label}: {}", decision.note.message);
                return;
            }
            other => panic!("{label}: {other}: {}", decision.note.message),
        }
        steps += 1;
        assert!(
            steps < 10_000,
            "{label}: never starts a run; waited for {waits:?}"
        );
    };
    assert_eq!(
        waits.contains(&Reason::HoldingFor),
        policy.hold_for.is_positive(),
        "{label}: {waits:?}"
    );
    assert!(
        now.duration_since(start()) >= policy.hold_for,
        "{label}: it must hold for {:#}",
        policy.hold_for
    );

    state = created(policy, state, &run, now);
    let mut runs = vec![RunSummary {
        name: run.name,
        own: true,
        created_at: now,
        dry_run: false,
        end: None,
    }];
    now += policy.interval;
    let decision = evaluate(policy, &state, firing, &passing, &runs, now);
    assert_eq!(
        (reason(&decision), &decision.create),
        (Reason::RunInProgress, &None),
        "{label}"
    );

    let ended = now;
    runs[0].end = Some(RunEnd {
        at: ended,
        succeeded: true,
        reason: Reason::SweepComplete,
        reclaimed: 64 * GIB,
        touched: true,
    });
    // The metrics behind it still show what was: a look-back, or a forecast.
    let mut seen = BTreeSet::new();
    state = decision.state;
    while now < ended + policy.cooldown {
        let decision = evaluate(policy, &state, firing, &passing, &runs, now);
        assert!(
            decision.create.is_none(),
            "{label}: runs again within the cooldown"
        );
        seen.insert(reason(&decision));
        state = decision.state;
        now += policy.interval;
    }
    assert!(seen.contains(&Reason::CoolingDown), "{label}: {seen:?}");
}

/// What the signal says when it should fire, and when it should not.
fn readings(signal: &Signal) -> (Reading, Reading) {
    match signal {
        Signal::Prometheus(signal) => answers(signal),
        Signal::Metric(signal) => values(signal),
        Signal::Alert(signal) => alerts(signal),
        Signal::Probe(rule) => probes(rule),
    }
}

fn values(signal: &MetricSignal) -> (Reading, Reading) {
    let now = start();
    let judged = |value: i64| {
        let item = MetricItem {
            labels: BTreeMap::new(),
            value: value.to_string(),
            at: Some(now),
            window: SignedDuration::ZERO,
            about: None,
            metric: None,
        };
        let answer = MetricAnswer {
            items: vec![item],
            received_at: now,
            ahead: SignedDuration::ZERO,
        };
        // Evidence is younger than any run here.
        Reading {
            sampled_at: None,
            ..judge_metric(signal, "any", &answer)
        }
    };
    let (least, most) = (judged(0), judged(1 << 50));
    match signal.threshold {
        Threshold::Above(_) => (most, least),
        Threshold::Below(_) => (least, most),
    }
}

fn answers(signal: &PrometheusSignal) -> (Reading, Reading) {
    let judged = |values: &[f64]| {
        let member =
            |i: usize| BTreeMap::from([("instance".to_owned(), format!("10.0.0.{i}:2379"))]);
        let series = values.iter().enumerate().map(|(i, value)| Series {
            labels: member(i + 1),
            value: *value,
        });
        let answer = Answer {
            result: AnswerKind::Vector(series.collect()),
            warnings: Vec::new(),
            partial: false,
        };
        judge(signal, &answer, Presence::Present)
    };
    // A reduced query returns a series a member, any other one that is reduced already.
    let members = if signal.reduce.is_some() { 3 } else { 1 };
    match signal.threshold {
        Some(Threshold::Above(limit)) => (
            judged(&vec![limit.as_f64() + 1.0; members]),
            judged(&vec![limit.as_f64() - 1.0; members]),
        ),
        Some(Threshold::Below(limit)) => (
            judged(&vec![limit.as_f64() - 0.01; members]),
            judged(&vec![limit.as_f64() + 0.01; members]),
        ),
        None => (judged(&[0.3]), judged(&[])),
    }
}

/// One alert with the labels of etcd's own rule, active and then gone.
fn alerts(signal: &AlertSignal) -> (Reading, Reading) {
    let labels = [
        ("alertname", "etcdDatabaseHighFragmentationRatio"),
        ("severity", "warning"),
        ("job", "etcd"),
    ];
    let active = Alert {
        labels: labels
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        starts_at: start(),
        updated_at: start() + jiff::SignedDuration::from_hours(24 * 30),
        ..Alert::default()
    };
    let later = start() + jiff::SignedDuration::from_hours(24 * 60);
    (
        alert::judge(signal, &[active], later),
        alert::judge(signal, &[], later),
    )
}

fn probes(rule: &Rule) -> (Reading, Reading) {
    (
        probe::judge(rule, &fragmented()),
        probe::judge(rule, &compact()),
    )
}

/// Members near their quota with little in use.
fn fragmented() -> Observation {
    observation(7 * GIB + 500 * MIB, GIB)
}

fn compact() -> Observation {
    observation(200 * MIB, 190 * MIB)
}

fn observation(db_size: u64, in_use: u64) -> Observation {
    let member = |id: u64| MemberView {
        id: MemberId(id),
        name: format!("m{id}"),
        learner: false,
        status: Ok(MemberStatus {
            version: "3.6.16".to_owned(),
            db_size,
            db_size_in_use: Some(in_use),
            quota: Quota::Known {
                bytes: 8 * GIB,
                source: QuotaSource::Status,
            },
            leader: Some(MemberId(1)),
            raft_term: 2,
            raft_index: 100,
            raft_applied_index: Some(100),
            revision: 50,
            alarms: BTreeSet::new(),
            errors: Vec::new(),
        }),
        metrics: None,
    };
    Observation {
        at: start(),
        members: Ok((1..=3).map(member).collect()),
        alarms: Ok(BTreeSet::new()),
        cluster_ids: BTreeSet::from([ClusterId(7)]),
        expected_voters: None,
    }
}

#[test]
fn blocks_are_found_where_a_reader_sees_them() {
    let page = "text\n```yaml\napiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\n```\n```yaml\nspec: {}\n```\n\
                - in a list\n  ```yaml\n  apiVersion: defragd.dev/v1alpha1\n  ```\n```sh\napiVersion: defragd.dev\n```\n";
    let found: Vec<usize> = blocks(page).iter().map(|(line, _)| *line).collect();
    assert_eq!(found, [2, 10]);
}

/// A file that is added here is found by nobody, unless it lies where a test looks and the README says so.
#[test]
fn every_example_is_listed_and_lies_where_a_test_looks() {
    let readme = read(&root().join("README.md"));
    let examples = root().join("examples");
    let mut names: Vec<PathBuf> = Vec::new();
    // Above and below; tests/kubernetes_objects applies the policies and runs the CronJob.
    for folder in ["policies", "config"] {
        names.extend(files(&examples.join(folder), "yaml"));
    }
    for file in &names {
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        assert!(readme.contains(name), "the README does not list {name}");
    }
    names.push(examples.join("cronjob.yaml"));
    // tests/alertmanager runs these three.
    let three = ["alertmanager.yaml", "defragd.yaml", "rules.yaml"];
    names.extend(three.map(|name| examples.join("alertmanager").join(name)));
    names.sort();
    assert_eq!(below(&examples), names, "a file that no test runs");
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder can be listed").path())
        .flat_map(|path| match path.is_dir() {
            true => below(&path),
            false => vec![path],
        })
        .collect();
    found.sort();
    found
}

/// Administrators' files, as `standalone`, `controller` and `lint --config` read them.
#[test]
fn administrators_files_are_accepted() {
    let files = files(&root().join("examples/config"), "yaml");
    assert!(!files.is_empty());
    for file in files {
        let config = Config::parse(&file, &read(&file)).unwrap_or_else(|e| panic!("{e}"));
        assert!(!config.sources.is_empty(), "{}", file.display());
    }
}

/// The files on the page about sources, its table of fields left to its readers.
#[test]
fn administrators_files_on_pages_are_accepted() {
    let page = root().join("docs/sources.md");
    let text = read(&page);
    let mut seen = 0;
    for block in text.split("```yaml\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        Config::parse(&page, block).unwrap_or_else(|e| panic!("{e}"));
        seen += 1;
    }
    assert!(seen > 0);
}
