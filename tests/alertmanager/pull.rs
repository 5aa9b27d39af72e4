//! Alertmanager is asked.

use std::fs;

use defragd::core::alert::{AlertSignal, Matcher, Matchers};
use defragd::core::signal::SignalState;
use defragd::signals::Sources;
use defragd::signals::config::validate;
use defragd_harness::{Alertmanager, Error, Etcd, Prometheus, Status, eventually};
use serde_json::json;

use crate::support::{
    ALERT, WAIT, after_polls, alert, asks, defragd, fragmented, objects, said, source, until,
};

/// T79: no alert, an alert about something else, a silence and an inhibition start nothing; the
/// silence's author is told. With its end the alert counts since it began.
#[tokio::test]
async fn t79_silenced_and_inhibited_alerts_start_nothing() -> Result<(), Error> {
    let inhibits = json!({
        "route": { "receiver": "nobody" },
        "receivers": [{ "name": "nobody" }],
        "inhibit_rules": [{
            "source_matchers": ["alertname=\"upgrade\""],
            "target_matchers": ["severity=\"warning\""],
        }],
    });
    let (cluster, am) = tokio::try_join!(
        fragmented(),
        Alertmanager::default().config(inhibits).start()
    )?;
    let defragd = defragd()?;
    defragd.configure(&json!({ "sources": [source(&[&am])] }))?;
    defragd.put(
        "objects.yaml",
        &objects(&cluster, &asks("am"), json!({ "for": "10m" })),
    )?;
    am.post(&alert(3600, json!({ "alertname": "other" })))
        .await?;
    defragd.start().await?;
    let status = until(&defragd, "an answer", |s| said(s).0 == "NotFiring").await?;
    assert!(
        said(&status).1.contains("no alert matches"),
        "{:?}",
        said(&status)
    );

    let id = am
        .silence(&format!("alertname={ALERT}"), "ops", "while we upgrade")
        .await?;
    am.post(&alert(3600, json!({}))).await?;
    let silenced = until(&defragd, "the silence", |s| said(s).1.contains("silenced")).await?;
    let (state, message) = said(&silenced);
    assert_eq!(state, "NotFiring");
    assert!(
        message.contains(&format!("silenced by {id} until "))
            && message.contains(", by ops (while we upgrade)"),
        "{message}"
    );
    assert_eq!(silenced.decision("p"), "SignalNotFiring");
    assert_eq!(after_polls(&defragd, 6.0).await?.runs().len(), 0);

    am.post(&alert(10, json!({ "alertname": "upgrade" })))
        .await?;
    am.unsilence(&id).await?;
    until(&defragd, "the inhibition", |s| {
        said(s).1.contains("inhibited by the alert ")
    })
    .await?;
    assert_eq!(after_polls(&defragd, 3.0).await?.runs().len(), 0);

    // Asked for, it counts, and has for an hour: longer than `for`.
    let mut signal = asks("am");
    signal["alert"]["include"] = json!(["Inhibited"]);
    defragd.put(
        "objects.yaml",
        &objects(&cluster, &signal, json!({ "for": "10m", "cooldown": "1h" })),
    )?;
    let done = until(&defragd, "the run", Status::one_is_complete).await?;
    assert_eq!(done.policy("p")["signal"]["state"], "Firing");
    assert_eq!(cluster.defragmentations().await?, [1.0]);

    // S37: still active, but nobody has said so since the run ended.
    defragd.put(
        "objects.yaml",
        &objects(&cluster, &signal, json!({ "for": "10m", "cooldown": "1s" })),
    )?;
    until(&defragd, "the age of the alert", |s| {
        s.decision("p") == "SampleTooOld"
    })
    .await?;
    am.post(&alert(3600, json!({}))).await?;
    let holding = until(&defragd, "the alert to count again", |s| {
        s.decision("p") == "HoldingFor"
    })
    .await?;
    let run_ended = &holding.policy("p")["lastRun"]["finishedAt"];
    assert_eq!(
        &holding.policy("p")["firingSince"],
        run_ended,
        "not before the end of the run"
    );
    assert_eq!(holding.runs().len(), 1);
    Ok(())
}

/// T78: an alert that is pending in Prometheus is none to Alertmanager, however long it is; with the same
/// alert firing the signal fires.
#[tokio::test]
async fn t78_a_pending_alert_does_not_reach_alertmanager() -> Result<(), Error> {
    let (cluster, am) = tokio::try_join!(fragmented(), Alertmanager::default().start())?;
    let defragd = defragd()?;
    defragd.configure(&json!({ "sources": [source(&[&am])] }))?;
    // It only says what it would do.
    let spec = json!({ "for": "30d", "dryRun": true });
    defragd.put("objects.yaml", &objects(&cluster, &asks("am"), spec))?;
    let rules = defragd.objects().with_file_name("rules.yaml");
    let due_after = |time: &str| {
        let rule = json!({ "alert": ALERT, "expr": "vector(1)", "for": time });
        let rules_of = json!({ "groups": [{ "name": "g", "rules": [rule] }] });
        fs::write(&rules, rules_of.to_string()).expect("a file in a folder of the test");
    };
    due_after("1d");
    let prometheus = Prometheus::default()
        .rules(&rules)
        .alertmanagers([am.address()])
        .extra_args(["--web.enable-lifecycle", "--rules.alert.resend-delay=1s"])
        .start()
        .await?;
    let alerts = |state: &str| format!("ALERTS{{alertname=\"{ALERT}\",alertstate=\"{state}\"}}");
    let there = |samples: &[_]| samples.len() == 1;
    prometheus.wait_for(&alerts("pending"), there).await?;
    defragd.start().await?;
    until(&defragd, "an answer", |s| said(s).0 == "NotFiring").await?;
    let status = after_polls(&defragd, 6.0).await?;
    let (state, message) = said(&status);
    assert_eq!(state, "NotFiring", "{message}");
    assert!(message.contains("no alert matches"), "{message}");
    let still = prometheus.query(&alerts("pending")).await?;
    assert!(there(&still), "{still:?}");

    due_after("0s");
    prometheus.reload().await?;
    prometheus.wait_for(&alerts("firing"), there).await?;
    until(&defragd, "the alert", |s| said(s).0 == "Firing").await?;
    Ok(())
}

/// No answer is an error and never the end of an alert; of a set, one that answers is enough.
#[tokio::test]
async fn a_set_answers_as_long_as_one_of_it_does() -> Result<(), Error> {
    let first = Alertmanager::default().clustered().start().await?;
    let (second, cluster) =
        tokio::try_join!(Alertmanager::default().joins(&first).start(), fragmented())?;
    let defragd = defragd()?;
    defragd.configure(&json!({ "sources": [source(&[&first, &second])] }))?;
    defragd.put(
        "objects.yaml",
        &objects(&cluster, &asks("am"), json!({ "for": "30d" })),
    )?;
    // Only one of them has heard of each: the set knows both.
    first.post(&alert(60, json!({ "instance": "a" }))).await?;
    second.post(&alert(30, json!({ "instance": "b" }))).await?;
    defragd.start().await?;
    until(&defragd, "both alerts", |s| {
        said(s).1.contains("2 alerts are active")
    })
    .await?;

    // A silence spreads through the set.
    let id = second.silence("instance=a", "ops", "seen").await?;
    until(&defragd, "the silence", |s| {
        said(s).1.contains("1 more suppressed")
    })
    .await?;
    second.unsilence(&id).await?;

    first.pause()?;
    let status = until(&defragd, "one that does not answer", |s| {
        said(s).1.contains("1 of 2 Alertmanagers gave no answer")
            || s.policy("p")["signal"]["value"] == "1"
    })
    .await?;
    assert_eq!(said(&status).0, "Firing");
    let since = status.policy("p")["firingSince"].clone();
    second.stop().await?;
    let failing = until(&defragd, "an error", |s| said(s).0 == "Error").await?;
    assert!(
        said(&failing).1.contains("none of 2 Alertmanagers answers"),
        "{:?}",
        said(&failing)
    );
    assert_eq!(
        failing.policy("p")["firingSince"],
        since,
        "nobody said that it ended"
    );
    second.start_again().await?;
    second.post(&alert(30, json!({ "instance": "b" }))).await?;
    eventually(WAIT, "it to fire again", async || {
        let status = defragd.status().await.map_err(|e| e.to_string())?;
        if said(&status).0 == "Firing" {
            Ok(())
        } else {
            Err(format!("{:?}", said(&status)))
        }
    })
    .await?;
    Ok(())
}

/// T84: of a blocker's set all have to say no, as the one that is away may be the only one that
/// knows of an upgrade.
#[tokio::test]
async fn a_blocker_wants_a_no_of_the_whole_set() -> Result<(), Error> {
    let (first, second, cluster) = tokio::try_join!(
        Alertmanager::default().start(),
        Alertmanager::default().start(),
        Etcd::default().members(1).start(),
    )?;
    second.stop().await?;
    let defragd = defragd()?;
    defragd.configure(&json!({ "sources": [source(&[&first, &second])] }))?;
    let probe = json!({ "probe": { "rule": { "all": true } } });
    let blocker = json!({ "name": "upgrade", "signal": asks("am") });
    let spec = json!({ "blockers": [blocker], "cooldown": "1h" });
    defragd.put("objects.yaml", &objects(&cluster, &probe, spec))?;
    defragd.start().await?;
    let held = until(&defragd, "the blocker", |s| {
        s.policy("p")["blocked"]["by"][0]["reason"] == "Inconclusive"
    })
    .await?;
    let message = held.policy("p")["blocked"]["message"].to_string();
    assert!(
        message.contains("1 of 2 Alertmanagers gave no answer"),
        "{message}"
    );
    assert_eq!(after_polls(&defragd, 3.0).await?.runs().len(), 0);
    second.start_again().await?;
    until(&defragd, "the run", Status::one_is_complete).await?;
    Ok(())
}

/// Matchers as Alertmanager reads them, names and values of any script among them: it filters by them, and
/// what it answers is compared once more.
#[tokio::test]
async fn matchers_mean_what_they_mean_to_alertmanager() -> Result<(), Error> {
    defragd_harness::install_tls_provider();
    let am = Alertmanager::default().start().await?;
    am.post(&alert(
        60,
        json!({ "größe": "zwölf", "path": r"a\b", "quoted": "say \"x\"" }),
    ))
    .await?;
    am.post(&alert(
        30,
        json!({ "severity": "critical", "lines": "a\nb" }),
    ))
    .await?;
    let specs = serde_json::from_value(json!([source(&[&am])])).expect("a source");
    let sources = Sources::from_config(validate(specs).expect("it is valid")).expect("no files");
    let name = format!("alertname={ALERT}");
    for (matcher, wanted) in [
        ("severity=\"warning\"", 1.0),
        ("severity=~\"warning|critical\"", 2.0),
        ("severity=~\"warn\"", 0.0),
        ("severity!~\"warn.*\"", 1.0),
        ("severity!=\"critical\"", 1.0),
        ("\"größe\"=\"zwölf\"", 1.0),
        ("größe=~\"zw.lf\"", 1.0),
        ("größe=\"\"", 1.0),
        (r#"path="a\\b""#, 1.0),
        (r#"path=~"a\\\\b""#, 1.0),
        (r#"path=~"a.b""#, 1.0),
        (r#"quoted="say \"x\"""#, 1.0),
        (r#"lines="a\nb""#, 1.0),
        (r#"lines=~"a.b""#, 0.0),
        (r#"severity=~"\w+""#, 2.0),
        (r#"severity=~"[[:alpha:]]{8}""#, 1.0),
    ] {
        let matchers = [&name, matcher].map(|text| Matcher::parse(text).expect(text));
        let signal = AlertSignal {
            source: "am".to_owned(),
            matchers: Matchers::new(matchers.into()),
            silenced: false,
            inhibited: false,
        };
        let reading = sources.alert(&signal, jiff::Timestamp::now(), true).await;
        assert_eq!(
            reading.value.unwrap_or(0.0),
            wanted,
            "{matcher}: {}",
            reading.message
        );
        assert_ne!(
            reading.state,
            SignalState::Error,
            "{matcher}: {}",
            reading.message
        );
    }
    Ok(())
}
