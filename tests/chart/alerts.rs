//! The alerts: about metrics that there are, and right on a real Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::get;
use defragd_harness::{Error, Prometheus, Sample};
use promql_parser::parser::{Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

use crate::docs::{code, rows};
use crate::helm::{chart, objects, of_kind, read, template};

/// The alerts of the file, by name.
fn alerts() -> BTreeMap<String, Value> {
    let file: Value =
        serde_yaml::from_str(&read("charts/defragd/files/alerts.yaml")).expect("YAML");
    let groups = file["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"));
    rules
        .map(|rule| {
            (
                rule["alert"].as_str().expect("a name").to_owned(),
                rule.clone(),
            )
        })
        .collect()
}

/// What an expression selects by, and what it keeps.
#[derive(Default)]
struct Seen {
    selectors: Vec<VectorSelector>,
    kept: BTreeSet<String>,
}

impl ExprVisitor for Seen {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        match expr {
            Expr::VectorSelector(selector) => self.selectors.push(selector.clone()),
            Expr::MatrixSelector(selector) => self.selectors.push(selector.vs.clone()),
            Expr::Aggregate(aggregate) => {
                if let Some(LabelModifier::Include(labels)) = &aggregate.modifier {
                    self.kept.extend(labels.labels.iter().cloned());
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

/// The labels that an alert's words name.
fn said(alert: &Value) -> BTreeSet<String> {
    let words = alert["annotations"].to_string();
    let named = words.split("$labels.").skip(1);
    named
        .map(|rest| rest.chars().take_while(char::is_ascii_alphabetic).collect())
        .collect()
}

#[test]
fn alerts_are_about_metrics_that_there_are() {
    let page = read("docs/metrics.md");
    let metrics: BTreeMap<String, BTreeSet<String>> = [
        "## Policies",
        "## Clusters",
        "## Runs",
        "## Sources",
        "## The process",
    ]
    .into_iter()
    .flat_map(|heading| rows(&page, heading))
    .map(|row| (code(row[0]).remove(0), code(row[2]).into_iter().collect()))
    .collect();
    for (name, alert) in alerts() {
        let text = alert["expr"].as_str().expect("an expression");
        let expr = promql_parser::parser::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut seen = Seen::default();
        walk_expr(&mut seen, &expr).expect("it never fails");
        assert!(!seen.selectors.is_empty(), "{name}");
        for selector in &seen.selectors {
            let metric = selector.name.as_deref().expect("a metric's name");
            let labels = metrics
                .get(metric)
                .unwrap_or_else(|| panic!("{name}: docs/metrics.md has no {metric}"));
            let used = selector
                .matchers
                .matchers
                .iter()
                .map(|matcher| &matcher.name);
            for label in used.chain(&seen.kept) {
                assert!(labels.contains(label), "{name}: {metric} has no {label}");
            }
        }
        let lost: Vec<_> = said(&alert).difference(&seen.kept).cloned().collect();
        assert!(
            lost.is_empty(),
            "{name}: its words name {lost:?}, which the expression drops"
        );
        assert!(alert["annotations"]["summary"].is_string(), "{name}");
        assert!(alert["annotations"]["description"].is_string(), "{name}");
    }
}

#[test]
fn every_alert_is_in_the_chart_s_page() {
    let documented: BTreeSet<String> = rows(&read("charts/defragd/README.md"), "## Alerts")
        .iter()
        .map(|row| code(row[0]).remove(0))
        .collect();
    assert_eq!(alerts().into_keys().collect::<BTreeSet<_>>(), documented);
}

/// What the chart wraps is the file, braces and all.
#[tokio::test]
async fn the_rule_object_holds_the_alerts_as_they_are() {
    let rendered = objects(
        &template("prometheusRule: {enabled: true}", &[])
            .await
            .expect("it renders"),
    );
    let file: Value =
        serde_yaml::from_str(&read("charts/defragd/files/alerts.yaml")).expect("YAML");
    assert_eq!(of_kind(&rendered, "PrometheusRule")[0]["spec"], file);
}

/// A page of metrics as a leading replica shows it. The objects of the namespace `calm` are well; those of
/// `ill` are there only while something is wrong.
fn page(ill: bool, failed_writes: u64) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let mut page = format!(
        "defragd_engine_last_round_timestamp_seconds {}\n\
         defragd_api_requests_total{{verb=\"patch\",resource=\"etcddefrags\",code=\"200\"}} {failed_writes}\n\
         defragd_api_requests_total{{verb=\"patch\",resource=\"etcddefrags\",code=\"409\"}} {failed_writes}\n",
        if ill { now - 1000 } else { now },
    );
    let mut object = |namespace: &str, ill: bool| {
        let since = if ill { now - 90_000 } else { now - 60 };
        let policy = format!("namespace=\"{namespace}\",name=\"p\"");
        let cluster = format!("namespace=\"{namespace}\",name=\"c\",kind=\"EtcdTarget\"");
        let member = format!("{cluster},member=\"m0\",member_id=\"8e9e05c52164694d\"");
        let bad = u8::from(ill);
        page += &format!(
            "defragd_policy_signal_state{{{policy},state=\"Error\"}} {bad}\n\
             defragd_policy_signal_state{{{policy},state=\"NotFiring\"}} {}\n\
             defragd_policy_blocked_since_timestamp_seconds{{{policy}}} {since}\n\
             defragd_policy_failure_level{{{policy}}} {}\n\
             defragd_cluster_unfinished_run_created_timestamp_seconds{{{cluster}}} {since}\n\
             defragd_cluster_member_alarm{{{member},alarm=\"NOSPACE\"}} {bad}\n\
             defragd_cluster_member_alarm{{{member},alarm=\"CORRUPT\"}} {bad}\n\
             defragd_cluster_member_db_in_use_bytes{{{member}}} {}\n\
             defragd_cluster_member_quota_bytes{{{member}}} 100\n",
            1 - bad,
            bad * 3,
            if ill { 81 } else { 79 },
        );
    };
    object("calm", false);
    if ill {
        object("ill", true);
        page += &format!(
            "defragd_api_requests_total{{verb=\"patch\",resource=\"etcddefrags\",code=\"500\"}} {failed_writes}\n"
        );
    }
    page
}

fn names(alerts: &[Sample]) -> BTreeSet<&str> {
    alerts
        .iter()
        .map(|alert| alert.labels["alertname"].as_str())
        .collect()
}

#[tokio::test]
async fn each_alert_is_raised_for_what_is_ill_and_for_nothing_else() -> Result<(), Error> {
    let ill = Arc::new(AtomicBool::new(true));
    let writes = Arc::new(AtomicU64::new(0));
    let shown = ill.clone();
    let metrics = async move || {
        page(
            shown.load(Ordering::SeqCst),
            writes.fetch_add(1, Ordering::SeqCst),
        )
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/metrics", get(metrics))).await
    });

    let every = alerts().into_keys().collect::<BTreeSet<_>>();
    let every: BTreeSet<&str> = every.iter().map(String::as_str).collect();
    let prometheus = Prometheus::default()
        .scrape("defragd", [address.to_string()], Duration::from_secs(1))
        .rules(chart().join("files/alerts.yaml"))
        .start()
        .await?;
    let raised = prometheus
        .wait_for("ALERTS", |alerts| names(alerts) == every)
        .await?;
    for alert in &raised {
        let about = alert.labels.get("namespace");
        assert!(
            about.is_none_or(|namespace| namespace == "ill"),
            "{alert:?}"
        );
    }
    // Those without a time to wait fire at once.
    let firing = prometheus.query("ALERTS{alertstate=\"firing\"}").await?;
    assert!(
        names(&firing).is_subset(&["DefragdEtcdCorrupt", "DefragdRunsFail"].into()),
        "{firing:?}"
    );

    ill.store(false, Ordering::SeqCst);
    // Its rate is over five minutes.
    let rest = "ALERTS{alertname!=\"DefragdStatusNotStored\"}";
    prometheus
        .wait_for(rest, |alerts| alerts.is_empty())
        .await?;
    server.abort();
    Ok(())
}
