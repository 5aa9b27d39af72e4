//! Labels, annotations, authors and comments of somebody who means harm: bounded and escaped wherever
//! they are shown, and never a metric label.

use std::fs;

use defragd_harness::{Alertmanager, Defragd, Error, Etcd, Prometheus};
use serde_json::{Value, json};

use crate::support::{ALERT, TOKEN, asks, defragd, said, source, until};

/// What would talk to a terminal, forge a line of a log, turn the text around, or be taken for a format.
const EVIL: &str =
    "\u{1b}[31mevil\u{7}\r\n2026-01-01T00:00:00Z  INFO forged {} {0} %s %n \u{202e}$(reboot)";
/// The longest line that may come of it.
const LINE: usize = 8 * 1024;

fn objects(endpoints: &[String], signals: &[(&str, Value)]) -> String {
    let target = json!({
        "apiVersion": "defragd.dev/v1alpha1", "kind": "EtcdTarget",
        "metadata": { "name": "demo" }, "spec": { "endpoints": endpoints },
    });
    let mut all = vec![target.to_string()];
    for (name, signal) in signals {
        let policy = json!({
            "apiVersion": "defragd.dev/v1alpha1", "kind": "EtcdDefragPolicy",
            "metadata": { "name": name },
            "spec": {
                "clusterRef": { "name": "demo" }, "signal": signal, "interval": "1s", "dryRun": true,
            },
        });
        all.push(policy.to_string());
    }
    all.join("\n---\n")
}

/// PromQL for a series with a label of 64 KiB: each turn doubles it.
fn long_label() -> String {
    let text = EVIL.replace('\\', "\\\\").replace('"', "\\\"");
    let text: String = text
        .chars()
        .map(|c| match c {
            '\u{1b}' => r"\x1b".to_owned(),
            '\u{7}' => r"\a".to_owned(),
            '\r' => r"\r".to_owned(),
            '\n' => r"\n".to_owned(),
            // A `$` would stand for a group.
            '$' => "$$".to_owned(),
            c => c.to_string(),
        })
        .collect();
    let mut query = format!(r#"label_replace(vector(200), "evil", "{text}", "", "")"#);
    for _ in 0..10 {
        query = format!(r#"label_replace({query}, "evil", "$1$1", "evil", "(?s:(.*))")"#);
    }
    query
}

/// An alert with labels and annotations of that kind.
fn alert(value: &str) -> Value {
    let began = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(1);
    json!([{
        "labels": { "alertname": ALERT, "evil": value },
        "annotations": { "summary": format!("annotated {value}") },
        "startsAt": began.to_string(),
    }])
}

#[tokio::test]
async fn what_others_write_is_shown_short_and_escaped_and_is_no_metric_label() -> Result<(), Error>
{
    let (cluster, am, prometheus) = tokio::try_join!(
        Etcd::default().members(1).start(),
        Alertmanager::default().start(),
        Prometheus::default().start(),
    )?;
    let defragd = defragd()?;
    let token = defragd.folder().join("token");
    fs::write(&token, TOKEN).expect("a file in a folder of the test");
    defragd.configure(&json!({
        "sources": [
            source(&[&am]),
            { "name": "main", "prometheus": { "url": prometheus.url() } },
            { "name": "pushed", "webhook": { "bearerTokenFile": token } },
        ],
        "log": { "level": "info,defragd=debug" },
    }))?;
    let series = json!({ "source": "main", "query": long_label(), "above": 100 });
    let several = json!({ "source": "main", "query": long_label() });
    let silenced = json!({ "alert": { "source": "am", "matchers": ["alertname=\"silenced\""] } });
    defragd.put(
        "objects.yaml",
        &objects(
            &cluster.endpoints(),
            &[
                ("p", asks("am")),
                ("silenced", silenced),
                ("series", json!({ "prometheus": series })),
                ("rule", json!({ "prometheus": several })),
                ("pushed", asks("pushed")),
            ],
        ),
    )?;
    let long = EVIL.repeat(64 * 1024 / EVIL.len() + 1);
    am.post(&alert(&long)).await?;
    let mut held = alert(&long);
    held[0]["labels"]["alertname"] = json!("silenced");
    am.post(&held).await?;
    am.silence("alertname=silenced", EVIL, &EVIL.repeat(100))
        .await?;
    defragd.start().await?;
    let answer = prometheus.query(&long_label()).await?;
    assert!(
        answer[0].labels["evil"].len() > 64 * 1024,
        "it is as long as it is meant to be"
    );

    // Too long to be kept; and the longest that is.
    assert_eq!(deliver(&defragd, &long).await, 400);
    assert_eq!(
        deliver(&defragd, &EVIL.repeat(7000 / EVIL.len())).await,
        200
    );
    let status = until(&defragd, "all of it to be seen", |s| {
        let fires = |policy: &str| s.policy(policy)["signal"]["state"] == "Firing";
        let silenced = &s.policy("silenced")["signal"]["message"];
        ["p", "series", "rule", "pushed"].into_iter().all(fires)
            && silenced
                .as_str()
                .is_some_and(|message| message.contains("silenced by"))
    })
    .await?;
    assert!(
        said(&status).1.contains("evil="),
        "it is shown: {:?}",
        said(&status)
    );
    for policy in ["p", "silenced", "series", "rule", "pushed"] {
        let message = status.policy(policy)["signal"]["message"].as_str();
        let message = message.expect("a message");
        let length = message.chars().count();
        assert!(length <= 601, "{length} characters: {message}");
        assert!(!message.contains("annotated"), "{message}");
        is_harmless(policy, message);
    }

    let metrics = defragd.page("/metrics").await?;
    for word in ["evil", "forged", "annotated", ALERT] {
        assert!(
            !metrics.contains(word),
            "{word} is in the metrics:\n{metrics}"
        );
    }
    defragd.stop().await?;
    is_harmless("the log", &defragd.logged());
    is_harmless("status", &defragd.status_text().await?);
    Ok(())
}

async fn deliver(defragd: &Defragd, value: &str) -> u16 {
    let mut alerts = alert(value);
    alerts[0]["status"] = json!("firing");
    alerts[0]["endsAt"] = json!("0001-01-01T00:00:00Z");
    let message = json!({ "version": "4", "truncatedAlerts": 0, "alerts": alerts });
    let url = format!("http://{}/api/v1/alerts/pushed", defragd.address());
    let request = reqwest::Client::new().post(&url).bearer_auth(TOKEN);
    let answer = request.body(message.to_string()).send().await;
    answer.expect("it answers").status().as_u16()
}

/// No control characters, nothing that turns text around, no line of its making, none too long.
fn is_harmless(place: &str, text: &str) {
    for line in text.lines() {
        let odd = line.chars().find(|c| c.is_control() || *c == '\u{202e}');
        assert_eq!(odd, None, "{place}: {line:?}");
        assert!(!line.starts_with("2026-01-01T00:00:00Z"), "{place}: {line}");
        assert!(
            line.len() <= LINE,
            "{place}: {} bytes in a line",
            line.len()
        );
    }
}
