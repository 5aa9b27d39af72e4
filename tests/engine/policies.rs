//! Policies of many clusters in one engine.

use std::num::NonZeroU32;
use std::sync::Arc;

use defragd::core::decide::{Policy, RunStart};
use defragd::core::reason::Reason;
use defragd::core::run::Note;
use defragd::engine::{Limits, PolicyView};
use jiff::SignedDuration;

use crate::memory::{Memory, NOWHERE, Working, key, on, policy, put_target, run};

#[tokio::test(flavor = "multi_thread")]
async fn t101_a_change_is_news_to_the_policies_of_its_cluster_only() {
    let host = Memory::new();
    for on in ["a", "b"] {
        put_target(&host, on, &[NOWHERE.to_owned()]);
        for i in 0..50 {
            let name = format!("{on}{i}");
            let quiet = policy(&name, on, |policy| policy.suspend = true);
            host.views.put_policy(Arc::new(quiet));
        }
    }
    let evaluated = |host: &Memory, on: &str| -> Vec<u32> {
        let heard = host.heard().evaluations;
        let counts = heard.iter().filter(|(key, _)| key.name.starts_with(on));
        counts.map(|(_, count)| *count).collect()
    };
    let working = Working::start(&host, Limits::default());
    host.until("one evaluation of each", |host| {
        ["a", "b"].map(|on| evaluated(host, on)) == [vec![1; 50], vec![1; 50]]
    })
    .await;

    host.views.put_run(Arc::new(run("r", "a")));
    host.until("another one of those on a", |host| {
        evaluated(host, "a").iter().all(|count| *count >= 2)
    })
    .await;
    assert_eq!(evaluated(&host, "b"), vec![1; 50]);
    working.stop().await;
}

/// Many policies of one cluster each see the runs of all others: which run it is that the
/// cluster is busy with is told at a policy's own time, and not at every change.
#[tokio::test(flavor = "multi_thread")]
async fn another_run_on_a_busy_cluster_is_no_news_before_the_interval() {
    let host = Memory::new();
    put_target(&host, "c", &[NOWHERE.to_owned()]);
    host.views.put_policy(Arc::new(policy("rare", "c", |_| {})));
    let often = |policy: &mut Policy| policy.interval = SignedDuration::from_secs(1);
    host.views.put_policy(Arc::new(policy("often", "c", often)));
    host.views.put_run(Arc::new(run("first", "c")));
    let says = |host: &Memory, name: &str, run: &str| {
        let view = host.views.policy(&on(name, "c")).unwrap();
        let decision = view.state.decision.as_ref();
        let message = format!("run {run} has the cluster or waits for it");
        decision == Some(&Note::new(Reason::ClusterBusy, message))
    };
    let looks = |host: &Memory| host.heard().evaluations[&key("rare")];
    let working = Working::start(&host, Limits::default());
    host.until("both to see the first run", |host| {
        says(host, "rare", "first") && says(host, "often", "first")
    })
    .await;

    let before = looks(&host);
    host.views.put_run(Arc::new(run("second", "c")));
    host.views.remove_run(&key("first"));
    host.until(
        "the one with the short interval to see the second",
        |host| says(host, "often", "second"),
    )
    .await;
    host.until("another look of the other one", |host| looks(host) > before)
        .await;
    assert!(says(&host, "rare", "first"), "its interval is a day");

    // That the cluster is free is news.
    host.views.remove_run(&key("second"));
    host.until("the end of the last run to be seen", |host| {
        !says(host, "rare", "first") && !says(host, "often", "second")
    })
    .await;
    working.stop().await;
}

/// A policy whose trigger has changed: it makes a run whatever its signal says.
fn triggered(name: &str) -> PolicyView {
    policy(name, name, |policy| policy.trigger = Some("now".to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_administrators_limit_counts_runs_of_all_policies() {
    let host = Memory::new();
    let names = ["a", "b", "c", "d"];
    for name in names {
        put_target(&host, name, &[NOWHERE.to_owned()]);
        host.views.put_policy(Arc::new(triggered(name)));
    }
    // One that was not kept counts by what its policy remembers, once.
    let mut remembers = policy("e", "e", |_| {});
    let start = |name: &str| RunStart {
        name: name.to_owned(),
        at: defragd::engine::now(),
    };
    remembers.state.run_starts = vec![start("old"), start("older")];
    host.views.put_policy(Arc::new(remembers));
    host.views.put_run(Arc::new(defragd::engine::RunView {
        owner: Some(key("e")),
        created_at: defragd::engine::now(),
        ..run("old", "e")
    }));
    let limits = Limits {
        runs_per_hour: NonZeroU32::new(4),
        ..Limits::default()
    };
    let working = Working::start(&host, limits);
    let decision = |host: &Memory, name: &str| -> Option<Note> {
        host.views
            .policy_units(&key(name))
            .first()?
            .state
            .decision
            .clone()
    };
    let refused = |host: &Memory| -> Vec<Note> {
        let decisions = names.iter().filter_map(|name| decision(host, name));
        decisions
            .filter(|note| note.reason == Reason::CreationLimited)
            .collect()
    };
    host.until("two runs and two refusals", |host| {
        host.heard().created.len() == 2 && refused(host).len() == 2
    })
    .await;
    for note in refused(&host) {
        assert!(
            note.message
                .contains("policies made 4 runs within the last hour, and limits.runsPerHour is 4"),
            "{}",
            note.message
        );
    }
    working.stop().await;
}
