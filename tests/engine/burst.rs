//! Many policies that fire at one instant: the administrator's limits, and who is next.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use defragd::core::promql::PromQuery;
use defragd::core::quantity::Quantity;
use defragd::core::reason::Reason;
use defragd::core::run::Note;
use defragd::core::signal::{PrometheusSignal, Signal, Threshold};
use defragd::engine::{Limits, PolicyView, now};
use defragd::signals::config::{SourceConfig, SourceSpec, validate};
use defragd_harness::{Prometheus, PrometheusServer};
use jiff::{SignedDuration, Timestamp};

use crate::memory::{Memory, NOWHERE, Working, on, policy, put_target};

fn sources(prometheus: &PrometheusServer) -> Vec<SourceConfig> {
    let text = format!(
        "[{{name: main, prometheus: {{url: '{}'}}}}]",
        prometheus.url()
    );
    let specs: Vec<SourceSpec> = serde_yaml::from_str(&text).unwrap();
    validate(specs).unwrap()
}

/// Fires for all who ask from that second on.
fn after(second: i64) -> Signal {
    Signal::Prometheus(PrometheusSignal {
        source: "main".to_owned(),
        query: PromQuery::parse("vector(time())").unwrap(),
        threshold: Some(Threshold::Above(
            Quantity::parse(&second.to_string()).unwrap(),
        )),
        reduce: None,
    })
}

fn put(host: &Memory, name: &str, signal: &Signal, edit: impl FnOnce(&mut PolicyView)) {
    put_target(host, name, &[NOWHERE.to_owned()]);
    let mut view = policy(name, name, |policy| {
        policy.signal = signal.clone();
        policy.interval = SignedDuration::from_secs(2);
    });
    edit(&mut view);
    host.views.put_policy(Arc::new(view));
}

fn decision(host: &Memory, name: &str) -> Option<Note> {
    host.views.policy(&on(name, name))?.state.decision.clone()
}

/// T53, T101: a thousand at once, and a restart in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_becomes_runs_at_the_limit_the_longest_firing_first() {
    const POLICIES: usize = 1_000;
    const PER_MINUTE: u32 = 6_000;
    let prometheus = Prometheus::default().start().await.unwrap();
    let host = Memory::new();
    host.ends_at_once.store(true, Ordering::SeqCst);
    // Each has fired for a time of its own, which its name does not tell, and all have to
    // fire until the same instant.
    let began = now();
    let due = began + SignedDuration::from_secs(8);
    let signal = after(0);
    for i in 0..POLICIES {
        let age = i64::try_from(i * 617 % POLICIES).unwrap();
        put(&host, &format!("p{i}"), &signal, |view| {
            let since = began - SignedDuration::from_secs(age);
            let mut policy = view.spec.as_deref().unwrap().clone();
            policy.hold_for = due.duration_since(since);
            view.spec = Ok(Arc::new(policy));
            view.state.firing_since = Some(since);
            view.state.evidence_at = Some(began);
        });
    }
    let limits = Limits {
        runs_per_minute: NonZeroU32::new(PER_MINUTE),
        ..Limits::default()
    };
    let working = Working::with(&host, limits, sources(&prometheus));
    host.until_quietly("a part of the runs", |host| host.made() >= POLICIES / 3)
        .await;
    working.stop().await;
    let before = host.made();
    assert!(before < POLICIES, "the restart is in the middle: {before}");

    let working = Working::with(&host, limits, sources(&prometheus));
    host.until_quietly("all runs", |host| host.made() >= POLICIES)
        .await;
    // Time for one too many: every policy is looked at again.
    let evaluations: u32 = host.heard().evaluations.values().sum();
    host.until_quietly("another look", |host| {
        let more: u32 = host.heard().evaluations.values().sum();
        more > evaluations + u32::try_from(POLICIES).unwrap()
    })
    .await;
    working.stop().await;

    let heard = host.heard();
    assert_eq!(heard.created.len(), POLICIES, "none lost, none doubled");
    let names: BTreeSet<_> = heard.created.iter().collect();
    assert_eq!(names.len(), POLICIES);
    let policies: BTreeSet<_> = heard.made_for.iter().map(|(_, policy)| policy).collect();
    assert_eq!(policies.len(), POLICIES, "one for each");

    let mut order: Vec<_> = heard.made_for.clone();
    let since: BTreeSet<_> = order.iter().filter_map(|(since, _)| *since).collect();
    assert_eq!(
        since.len(),
        POLICIES,
        "each kept the time since when it fires"
    );
    order.sort();
    // Those who were let go store their runs side by side, and on a busy machine some of them
    // two seconds late.
    let late = 2 * PER_MINUTE as usize / 60;
    let displaced = |(place, made): (usize, &(Option<Timestamp>, _))| {
        order.binary_search(made).unwrap().abs_diff(place)
    };
    let worst = heard
        .made_for
        .iter()
        .enumerate()
        .map(displaced)
        .max()
        .unwrap();
    assert!(worst <= late, "somebody went {worst} places out of turn");

    let mut at: Vec<Timestamp> = host.views.runs().iter().map(|run| run.created_at).collect();
    at.sort_unstable();
    let took = at[POLICIES - 1].duration_since(at[0]).as_millis();
    let least = (POLICIES as i128 - 3) * 60_000 / i128::from(PER_MINUTE);
    assert!(
        took >= least,
        "{POLICIES} runs within {took} ms, at least {least} ms are right"
    );
    eprintln!(
        "{POLICIES} runs in {took} ms, {before} before the restart; at most {worst} places out of turn"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_hour_allows_goes_to_those_who_have_fired_for_longest() {
    let prometheus = Prometheus::default().start().await.unwrap();
    let host = Memory::new();
    host.ends_at_once.store(true, Ordering::SeqCst);
    let signal = after(0);
    // The names say nothing about who is first.
    let names = ["f", "d", "b", "e", "c", "a"];
    let began = now();
    for (i, name) in names.iter().enumerate() {
        put(&host, name, &signal, |view| {
            let age = SignedDuration::from_secs(600 - i64::try_from(i).unwrap());
            view.state.firing_since = Some(began - age);
            view.state.evidence_at = Some(began);
        });
    }
    let limits = Limits {
        runs_per_hour: NonZeroU32::new(3),
        ..Limits::default()
    };
    let working = Working::with(&host, limits, sources(&prometheus));
    let limited = |host: &Memory, name: &str| {
        decision(host, name).is_some_and(|note| note.reason == Reason::CreationLimited)
    };
    host.until("three runs and three that wait", |host| {
        host.made() == 3 && ["e", "c", "a"].iter().all(|name| limited(host, name))
    })
    .await;
    let made: BTreeSet<String> = host
        .heard()
        .made_for
        .iter()
        .map(|(_, policy)| policy.name.to_string())
        .collect();
    assert_eq!(made, ["f", "d", "b"].map(str::to_owned).into());
    for name in ["e", "c", "a"] {
        let view = host.views.policy(&on(name, name)).unwrap();
        let message = decision(&host, name).unwrap().message;
        assert!(
            message.starts_with(
                "policies made 3 runs within the last hour, and limits.runsPerHour is 3; "
            ),
            "{message}"
        );
        let wait = view.state.next_eligible.unwrap().duration_since(began);
        assert!((3_590..3_700).contains(&wait.as_secs()), "{name}: {wait:#}");
    }
    working.stop().await;
}
