//! The example of docs/alertmanager.md as a whole: etcd's own rule in Prometheus, a route of
//! Alertmanager, a policy; by asking and by delivery. Only times, sizes and addresses are others.

use std::fs;
use std::time::Duration;

use defragd_harness::{
    Alertmanager, AlertmanagerServer, Cluster, Defragd, Error, Prometheus, PrometheusServer, Status,
};

use crate::support::{ALERT, TOKEN, defragd, example, fragmented, said, until, yaml};

/// The policy of the example for this cluster of one member.
fn policy(cluster: &Cluster, source: &str) -> String {
    let endpoint = cluster.endpoints().remove(0);
    example(
        "policies/alert.yaml",
        &[
            ("http://127.0.0.1:2379", &endpoint),
            ("when-it-is-fragmented", "p"),
            ("source: am", &format!("source: {source}")),
            ("for: 10m", "for: 1s"),
            ("interval: 30s", "interval: 1s"),
            (
                "cooldown: 6h",
                "cooldown: 6h\n  runTemplate: {rule: {all: true}, allowSingleMember: true}",
            ),
        ],
    )
}

/// The administrator's file of the example, with its token.
fn configure(defragd: &Defragd, am: &str) -> Result<(), Error> {
    let token = defragd.objects().with_file_name("token");
    fs::write(&token, TOKEN).expect("a file in a folder of the test");
    defragd.configure(&yaml(&example(
        "alertmanager/defragd.yaml",
        &[
            ("http://127.0.0.1:9093", am),
            ("/etc/defragd/webhook-token", &token.display().to_string()),
        ],
    )))
}

/// The route of the example.
async fn alertmanager(defragd: &Defragd, address: &str) -> Result<AlertmanagerServer, Error> {
    let token = defragd.objects().with_file_name("token");
    let config = example(
        "alertmanager/alertmanager.yaml",
        &[
            ("127.0.0.1:9464", address),
            (
                "/etc/alertmanager/defragd-token",
                &token.display().to_string(),
            ),
            ("group_wait: 10s", "group_wait: 100ms"),
            ("group_interval: 1m", "group_interval: 1s"),
            ("repeat_interval: 5m", "repeat_interval: 1s"),
        ],
    );
    Alertmanager::default().config(yaml(&config)).start().await
}

/// The rule of the example.
async fn prometheus(
    defragd: &Defragd,
    cluster: &Cluster,
    am: &AlertmanagerServer,
) -> Result<PrometheusServer, Error> {
    let rules = defragd.objects().with_file_name("rules.yaml");
    let text = example(
        "alertmanager/rules.yaml",
        &[("for: 10m", "for: 1s"), ("104857600", "10485760")],
    );
    fs::write(&rules, text).expect("a file in a folder of the test");
    Prometheus::default()
        .scrape_etcd(cluster, Duration::from_millis(500))
        .rules(rules)
        .alertmanagers([am.address()])
        .extra_args(["--rules.alert.resend-delay=1s"])
        .start()
        .await
}

/// Asked: a silence of amtool stops it, and its end lets one run start.
#[tokio::test]
async fn the_example_by_asking() -> Result<(), Error> {
    let (cluster, defragd) = (fragmented().await?, defragd()?);
    // Nobody listens at port 1: the route of the example is not needed here.
    configure(&defragd, "http://127.0.0.1:1")?;
    let am = alertmanager(&defragd, "127.0.0.1:1").await?;
    configure(&defragd, &am.url())?;
    let silence = am
        .silence(&format!("alertname={ALERT}"), "ops", "not today")
        .await?;
    let _prometheus = prometheus(&defragd, &cluster, &am).await?;
    defragd.put("objects.yaml", &policy(&cluster, "am"))?;
    defragd.start().await?;
    let held = until(&defragd, "the silence", |s| said(s).1.contains(&silence)).await?;
    assert!(
        said(&held).1.contains("by ops (not today)"),
        "{:?}",
        said(&held)
    );
    assert_eq!(
        (held.decision("p"), held.runs().len()),
        ("SignalNotFiring", 0)
    );
    am.unsilence(&silence).await?;
    until(&defragd, "the run", Status::one_is_complete).await?;
    // Nothing is fragmented any more, so Prometheus takes the alert back.
    let after = until(&defragd, "the end of the alert", |s| {
        said(s).0 == "NotFiring"
    })
    .await?;
    assert!(
        said(&after).1.contains("no alert matches"),
        "{:?}",
        said(&after)
    );
    assert_eq!(
        (after.runs().len(), cluster.defragmentations().await?),
        (1, vec![1.0])
    );
    Ok(())
}

/// Delivered: what is silenced is not delivered, and what is delivered starts one run.
#[tokio::test]
async fn the_example_by_delivery() -> Result<(), Error> {
    let (cluster, defragd) = (fragmented().await?, defragd()?);
    configure(&defragd, "http://127.0.0.1:1")?;
    defragd.put("objects.yaml", &policy(&cluster, "pushed"))?;
    defragd.start().await?;
    let am = alertmanager(&defragd, &defragd.address()).await?;
    let silence = am
        .silence(&format!("alertname={ALERT}"), "ops", "not today")
        .await?;
    let prometheus = prometheus(&defragd, &cluster, &am).await?;
    prometheus
        .wait_for(
            &format!("ALERTS{{alertname=\"{ALERT}\",alertstate=\"firing\"}}"),
            |v| !v.is_empty(),
        )
        .await?;
    let held = until(&defragd, "nothing to be delivered", |s| {
        said(s).0 == "NoData"
    })
    .await?;
    assert_eq!(held.runs().len(), 0);
    am.unsilence(&silence).await?;
    until(&defragd, "the run", Status::one_is_complete).await?;
    let after = until(&defragd, "the end of the alert", |s| {
        said(s).0 == "NotFiring"
    })
    .await?;
    assert_eq!(
        (after.runs().len(), cluster.defragmentations().await?),
        (1, vec![1.0])
    );
    Ok(())
}
