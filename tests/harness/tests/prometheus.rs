//! The harness itself, on real Prometheus.

use std::time::Duration;

use defragd_harness::{Error, Etcd, Prometheus, PrometheusVersion, Tls};

const SECOND: Duration = Duration::from_secs(1);

async fn scrapes(version: PrometheusVersion, tls: Option<Tls>) -> Result<(), Error> {
    let etcd = Etcd::default().members(1);
    let etcd = match tls {
        Some(tls) => etcd.tls(tls),
        None => etcd,
    };
    let cluster = etcd.start().await?;
    let prometheus = Prometheus::version(version)
        .scrape_etcd(&cluster, SECOND)
        .basic_auth("scrooge", "pa\"ss")
        .tls()
        .start()
        .await?;
    let query = "etcd_mvcc_db_total_size_in_bytes";
    let samples = prometheus
        .wait_for(query, |samples| samples.len() == 1)
        .await?;
    assert_eq!(samples[0].labels["job"], "etcd");
    assert!(samples[0].value > 0.0);
    prometheus.stop().await?;
    assert!(prometheus.query(query).await.is_err());
    prometheus.start_again().await?;
    prometheus
        .wait_for("scalar(vector(2))", |samples| samples[0].value == 2.0)
        .await?;
    let refused = prometheus
        .query("sum(")
        .await
        .expect_err("the query does not parse");
    assert!(refused.to_string().contains("parse error"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn prometheus_2_scrapes_etcd() -> Result<(), Error> {
    scrapes(PrometheusVersion::V2, None).await
}

#[tokio::test]
async fn prometheus_3_scrapes_etcd() -> Result<(), Error> {
    scrapes(PrometheusVersion::V3, Some(Tls::Mutual)).await
}
