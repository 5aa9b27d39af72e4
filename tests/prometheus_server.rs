//! The Prometheus source against real servers, 2 and 3: credentials that rotate,
//! path prefixes, replicas, names and annotations of Prometheus 3, warnings.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use defragd::core::promql::PromQuery;
use defragd::core::quantity::Quantity;
use defragd::core::reason::Reason;
use defragd::core::signal::{PrometheusSignal, Reading, Reduce, SignalState, Threshold};
use defragd::signals::Sources;
use defragd::signals::config::{SourceSpec, validate};
use defragd::signals::prometheus::PrometheusSource;
use defragd_harness::{
    Error, Prometheus, PrometheusServer, PrometheusVersion, install_tls_provider,
};
use jiff::Timestamp;
use tempfile::TempDir;

const BOTH: [PrometheusVersion; 2] = [PrometheusVersion::V2, PrometheusVersion::V3];

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).expect("a file");
}

/// A file of rules; they are evaluated each second.
fn rules(folder: &TempDir, rules: &str) -> PathBuf {
    let file = folder.path().join("rules.yml");
    write(&file, &format!("groups: [{{name: g, rules: [{rules}]}}]"));
    file
}

fn source(fields: &str) -> Arc<PrometheusSource> {
    install_tls_provider();
    let text = format!("[{{name: main, prometheus: {{{fields}}}}}]");
    let specs: Vec<SourceSpec> = serde_yaml::from_str(&text).expect("the test's own sources");
    Sources::from_config(validate(specs).expect("the test's own sources"))
        .expect("a client")
        .prometheus("main")
        .expect("the only source")
        .clone()
}

/// Reads a query that fires above 5.
async fn read(source: &PrometheusSource, query: &str, reduce: Option<Reduce>) -> Reading {
    let limit = Threshold::Above(Quantity::parse("5").expect("a quantity"));
    ask(source, query, Some(limit), reduce).await
}

/// Reads a query that fires when it returns anything, as an alerting rule does.
async fn read_alert(source: &PrometheusSource, query: &str) -> Reading {
    ask(source, query, None, None).await
}

async fn ask(
    source: &PrometheusSource,
    query: &str,
    threshold: Option<Threshold>,
    reduce: Option<Reduce>,
) -> Reading {
    let signal = PrometheusSignal {
        source: "main".to_owned(),
        query: PromQuery::parse(query).expect("the test's own query"),
        threshold,
        reduce,
    };
    source.read(&signal, Timestamp::now(), true).await
}

#[track_caller]
fn assert_error(reading: &Reading, reason: Reason, word: &str) {
    assert_eq!(reading.state, SignalState::Error, "{reading:?}");
    assert_eq!(reading.reason, reason, "{reading:?}");
    assert!(reading.message.contains(word), "{reading:?}");
}

#[track_caller]
fn assert_fires(reading: &Reading) {
    assert_eq!(reading.state, SignalState::Firing, "{reading:?}");
}

#[tokio::test]
async fn s26_a_password_and_a_client_certificate_rotate() -> Result<(), Error> {
    for version in BOTH {
        let server = Prometheus::version(version)
            .basic_auth("scrooge", "pa:ss")
            .mutual_tls()
            .start()
            .await?;
        let pki = server.pki().expect("it speaks TLS");
        let folder = folder();
        let file = |name: &str| folder.path().join(name);
        let (cert, key, password) = (file("cert"), file("key"), file("password"));
        let (stranger, stranger_key) = pki.other_client();
        fs::copy(stranger, &cert).expect("a file");
        fs::copy(stranger_key, &key).expect("a file");
        write(&password, "wrong\n");
        let url = server.url();
        let ca = pki.ca();
        let source = source(&format!(
            "url: '{url}', caFile: '{}', certFile: '{}', keyFile: '{}', \
             basicAuth: {{username: scrooge, passwordFile: '{}'}}",
            ca.display(),
            cert.display(),
            key.display(),
            password.display()
        ));
        let refused = read(&source, "vector(7)", None).await;
        assert_eq!(refused.reason, Reason::SourceUnavailable, "{refused:?}");
        let (known, known_key) = pki.client();
        fs::copy(known, &cert).expect("a file");
        fs::copy(known_key, &key).expect("a file");
        let refused = read(&source, "vector(7)", None).await;
        assert_error(&refused, Reason::AuthFailed, "401");
        assert!(!refused.message.contains("wrong"), "{refused:?}");
        write(&password, "pa:ss\n");
        assert_fires(&read(&source, "vector(7)", None).await);
    }
    Ok(())
}

#[tokio::test]
async fn another_authority_is_not_trusted() -> Result<(), Error> {
    let server = Prometheus::version(PrometheusVersion::V3)
        .tls()
        .start()
        .await?;
    let pki = server.pki().expect("it speaks TLS");
    let fields = |ca: PathBuf| format!("url: '{}', caFile: '{}'", server.url(), ca.display());
    let trusted = source(&fields(pki.ca()));
    assert_fires(&read(&trusted, "vector(7)", None).await);
    let other = source(&fields(pki.other_ca()));
    let reading = read(&other, "vector(7)", None).await;
    assert_error(&reading, Reason::SourceUnavailable, "certificate");
    Ok(())
}

#[tokio::test]
async fn a_path_prefix_is_kept_and_its_lack_is_named() -> Result<(), Error> {
    for version in BOTH {
        let server = Prometheus::version(version)
            .prefix("/metrics/prom")
            .start()
            .await?;
        let with = source(&format!("url: '{}/'", server.url()));
        assert_fires(&read(&with, "vector(7)", None).await);
        let root = server.url().trim_end_matches("/metrics/prom");
        let without = source(&format!("url: '{root}'"));
        let reading = read(&without, "vector(7)", None).await;
        assert_error(&reading, Reason::SourceAnswerUnusable, "path prefix");
    }
    Ok(())
}

#[tokio::test]
async fn replicas_take_over_from_each_other() -> Result<(), Error> {
    let (a, b) = tokio::join!(
        Prometheus::version(PrometheusVersion::V2).start(),
        Prometheus::version(PrometheusVersion::V3).start()
    );
    let (a, b) = (a?, b?);
    let source = source(&format!("urls: ['{}', '{}']", a.url(), b.url()));
    assert_fires(&read(&source, "vector(7)", None).await);
    a.stop().await?;
    assert_fires(&read(&source, "vector(7)", None).await);
    // The one that answered is stayed with, also when the other is back.
    a.start_again().await?;
    assert_fires(&read(&source, "vector(7)", None).await);
    let failed = source.stats().requests.get("connect").copied();
    assert_eq!(failed, Some(1), "{:?}", source.stats());
    b.stop().await?;
    assert_fires(&read(&source, "vector(7)", None).await);
    Ok(())
}

async fn with_rules(
    version: PrometheusVersion,
    text: &str,
) -> Result<(TempDir, PrometheusServer), Error> {
    let folder = folder();
    let file = rules(&folder, text);
    let server = Prometheus::version(version).rules(file).start().await?;
    Ok((folder, server))
}

#[tokio::test]
async fn prometheus_3_knows_names_of_any_characters() -> Result<(), Error> {
    let (_folder, server) = with_rules(
        PrometheusVersion::V3,
        "{record: etcd.db.größe, expr: vector(7), labels: {k8s.pod: etcd-0}}",
    )
    .await?;
    let query = "{\"etcd.db.größe\", \"k8s.pod\"=\"etcd-0\"}";
    server.wait_for(query, |samples| samples.len() == 1).await?;
    let source = source(&format!("url: '{}'", server.url()));
    let reading = read(&source, query, None).await;
    assert_fires(&reading);
    assert!(
        reading.message.contains("\"k8s.pod\"=\"etcd-0\""),
        "{reading:?}"
    );
    // S37: its evidence is asked for by the same names.
    assert!(reading.sampled_at.is_some(), "{reading:?}");
    // S02: what is compared is there, and the condition is false.
    let false_now = format!("sum by (\"k8s.pod\") ({query}) > 10");
    let reading = read(&source, &false_now, None).await;
    assert_eq!(reading.state, SignalState::NotFiring, "{reading:?}");

    // Prometheus 2 says that it does not.
    let old = Prometheus::version(PrometheusVersion::V2).start().await?;
    let source = self::source(&format!("url: '{}'", old.url()));
    assert_error(
        &read(&source, query, None).await,
        Reason::QueryInvalid,
        "parse error",
    );
    Ok(())
}

#[tokio::test]
async fn s13_infos_do_not_matter_and_s11_warnings_do() -> Result<(), Error> {
    let (_folder, server) = with_rules(
        PrometheusVersion::V3,
        "{record: size, expr: vector(1), labels: {instance: a}}, \
         {record: size, expr: vector(1), labels: {instance: b}}",
    )
    .await?;
    // An information: the name is not that of a counter.
    let query = "max(rate(size[10s]))";
    server.wait_for(query, |samples| samples.len() == 1).await?;
    let url = format!("{}/api/v1/query?query={query}", server.url());
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let answer = client.get(url).send().await.expect("an answer");
    let answer = answer.text().await.expect("a text");
    assert!(answer.contains("\"infos\""), "{answer}");
    let plain = source(&format!("url: '{}'", server.url()));
    let reading = read(&plain, query, None).await;
    assert_eq!(reading.state, SignalState::NotFiring, "{reading:?}");
    // A warning: the answer is cut off at the administrator's limit.
    let limited = source(&format!("url: '{}', params: {{limit: 1}}", server.url()));
    let reading = read(&limited, "size", Some(Reduce::Any)).await;
    assert_eq!(reading.state, SignalState::Inconclusive, "{reading:?}");
    assert!(reading.message.contains("the source warns"), "{reading:?}");
    let reading = read(&limited, "size * 7", Some(Reduce::Any)).await;
    assert_fires(&reading);
    Ok(())
}

#[tokio::test]
async fn series_of_replicas_are_named_and_reduced() -> Result<(), Error> {
    for version in BOTH {
        let (_folder, server) = with_rules(
            version,
            "{record: size, expr: vector(7), labels: {replica: a}}, \
             {record: size, expr: vector(7), labels: {replica: b}}",
        )
        .await?;
        server
            .wait_for("size", |samples| samples.len() == 2)
            .await?;
        let source = source(&format!("url: '{}'", server.url()));
        let reading = read(&source, "size", None).await;
        assert_error(&reading, Reason::ResultUnsuitable, "max without (replica)");
        assert_fires(&read(&source, "size", Some(Reduce::Max)).await);
        assert_fires(&read(&source, "max without (replica) (size)", None).await);
    }
    Ok(())
}

/// The rules of one alert that is due after this time.
fn due_after(time: &str) -> String {
    format!("{{alert: Fragmented, expr: vector(1), for: {time}}}")
}

/// T78: an alert that is pending does not fire, whoever asks for it.
#[tokio::test]
async fn t78_a_pending_alert_is_not_firing() -> Result<(), Error> {
    for version in BOTH {
        let folder = folder();
        let server = Prometheus::version(version)
            .rules(rules(&folder, &due_after("1d")))
            .extra_args(["--web.enable-lifecycle"])
            .start()
            .await?;
        let source = source(&format!("url: '{}'", server.url()));
        let alerts =
            |state: &str| format!("ALERTS{{alertname=\"Fragmented\", alertstate=\"{state}\"}}");
        let (pending, firing) = (alerts("pending"), alerts("firing"));
        let there = |samples: &[_]| samples.len() == 1;
        server.wait_for(&pending, there).await?;
        let either = "ALERTS{alertname=\"Fragmented\"}";
        // By itself, compared, and as a number.
        for query in [
            &pending,
            &either.to_owned(),
            &firing,
            &format!("{firing} == 1"),
            &format!("max by (alertname, alertstate) ({either})"),
        ] {
            let reading = read_alert(&source, query).await;
            assert_eq!(reading.state, SignalState::NotFiring, "{reading:?}");
        }
        let counted = format!("10 * (count({firing}) or vector(0))");
        let reading = read(&source, &counted, None).await;
        assert_eq!(
            (reading.state, reading.value),
            (SignalState::NotFiring, Some(0.0)),
            "{reading:?}"
        );

        // The same alert is due at once.
        rules(&folder, &due_after("0s"));
        server.reload().await?;
        server.wait_for(&firing, there).await?;
        assert_fires(&read_alert(&source, &firing).await);
        assert_fires(&read_alert(&source, either).await);
        assert_fires(&read_alert(&source, &format!("{firing} == 1")).await);
        assert_fires(&read(&source, &counted, None).await);
        let gone = |samples: &[_]| samples.is_empty();
        server.wait_for(&pending, gone).await?;
        let reading = read_alert(&source, &pending).await;
        assert_eq!(reading.state, SignalState::NotFiring, "{reading:?}");
    }
    Ok(())
}
