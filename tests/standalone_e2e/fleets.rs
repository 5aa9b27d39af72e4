//! One policy for many clusters, which come and go.

use std::time::Duration;

use defragd_harness::objects::object;
use defragd_harness::pages::number;
use defragd_harness::{Cluster, Defragd, Error, Etcd, Prometheus, Status};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::support::{MIB, defragd, is_complete, until};

/// A target that the policy selects.
fn member(name: &str, cluster: &Cluster) -> Value {
    let mut target = object(
        "EtcdTarget",
        name,
        &json!({ "endpoints": cluster.endpoints() }),
    );
    target["metadata"]["labels"] = json!({ "tier": "prod" });
    target
}

fn fleet(spec: Value) -> Value {
    let whole = json!({
        "clusterSelector": { "matchLabels": { "tier": "prod" } },
        "signal": { "prometheus": {
            "source": "main",
            "query": "max by (job) (etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)",
            "above": "30Mi",
            "clusterLabel": "job",
        } },
        "interval": "1s",
        "for": "1s",
        "cooldown": "1h",
        "runTemplate": { "rule": { "all": true }, "allowSingleMember": true },
    });
    object(
        "EtcdDefragPolicy",
        "fleet",
        &defragd_harness::objects::extended(whole, &spec),
    )
}

/// What the policy remembers of a cluster; null when it does not.
fn on<'a>(status: &'a Status, cluster: &str) -> &'a Value {
    let clusters = &status.item("EtcdDefragPolicy", "fleet")["status"]["clusters"];
    let clusters = clusters.as_array().map_or(&[][..], Vec::as_slice);
    let found = clusters.iter().find(|known| known["name"] == cluster);
    found.unwrap_or(&Value::Null)
}

fn states(status: &Status, names: &[&str]) -> Vec<String> {
    let state = |name: &&str| {
        on(status, name)["signal"]["state"]
            .as_str()
            .unwrap_or("-")
            .to_owned()
    };
    names.iter().map(state).collect()
}

/// Three clusters with series, one without, and series of a cluster that nobody describes: only the
/// fragmented one is defragmented, and the query is asked once for all.
#[tokio::test]
async fn each_cluster_is_judged_by_its_own_series() -> Result<(), Error> {
    let clusters = try_join_all((0..4).map(|_| Etcd::default().members(1).start())).await?;
    let often = Duration::from_millis(500);
    let mut prometheus = Prometheus::default();
    for (job, place) in [("a", 0), ("b", 1), ("c", 2), ("stranger", 2)] {
        let address = clusters[place].member(0).address().to_string();
        prometheus = prometheus.scrape(job, [address], often);
    }
    let prometheus = prometheus.start().await?;
    let defragd = defragd()?;
    defragd.configure(&json!({
        "sources": [{ "name": "main", "prometheus": { "url": prometheus.url() } }]
    }))?;
    let names = ["a", "b", "c", "d"];
    let all: Vec<Value> = names
        .iter()
        .zip(&clusters)
        .map(|(n, c)| member(n, c))
        .collect();
    let write = |targets: &[Value], spec: Value| {
        let documents = targets.iter().cloned().chain([fleet(spec)]);
        let documents: Vec<String> = documents.map(|document| document.to_string()).collect();
        defragd.put("objects.yaml", &documents.join("\n---\n"))
    };
    write(&all, json!({}))?;
    defragd.start().await?;
    let quiet = ["NotFiring", "NotFiring", "NotFiring", "NoData"];
    until(&defragd, "the first evaluations", |s| {
        states(s, &names) == quiet
    })
    .await?;

    clusters[0].fragment(64 * MIB, 2 * MIB).await?;
    let done = until(&defragd, "the run on a", |s| {
        s.runs().iter().any(|run| is_complete(run)) && on(s, "a")["lastRun"].is_object()
    })
    .await?;
    assert_eq!(done.runs().len(), 1, "{done:#?}");
    assert_eq!(done.runs()[0]["spec"]["clusterRef"]["name"], "a");
    for (place, count) in [1.0, 0.0, 0.0, 0.0].into_iter().enumerate() {
        assert_eq!(
            clusters[place].defragmentations().await?,
            [count],
            "{place}"
        );
    }
    let quiet_again = until(&defragd, "a to be quiet again", |s| {
        states(s, &names) == quiet
    })
    .await?;
    let policy = &quiet_again.item("EtcdDefragPolicy", "fleet")["status"];
    assert_eq!(
        policy["unmatchedSeries"]["listed"],
        json!(["stranger"]),
        "{policy:#}"
    );
    assert_eq!(policy["unmatchedSeries"]["series"], 1);
    assert_eq!(policy["summary"]["cluster"], "4 clusters");
    assert_eq!(policy["summary"]["signal"], "1 NoData, 3 NotFiring");
    let matched = quiet_again.condition("EtcdDefragPolicy", "fleet", "SeriesMatched");
    assert_eq!(matched, Some(("False", "SeriesUnmatched")));

    // Once for all four of them and for what is unknown: with every poll more questions are
    // answered by it than there are requests.
    let page = defragd.page("/metrics").await?;
    let count = |name: &str| number(&page, name).unwrap_or(0.0);
    let asked = count("defragd_source_requests_total{source=\"main\",code=\"200\"}");
    let shared = count("defragd_source_shared_answers_total{source=\"main\"}");
    assert!(shared > asked, "{asked} requests, {shared} shared answers");
    assert_eq!(
        count("defragd_policy_clusters{namespace=\"default\",name=\"fleet\"}"),
        4.0
    );
    let unmatched = "defragd_policy_unmatched_series{namespace=\"default\",name=\"fleet\"}";
    assert_eq!(count(unmatched), 1.0);

    // The label goes, and the target of another one; what is remembered stays for a while.
    let mut fewer = all.clone();
    fewer[0]["metadata"]["labels"] = json!({});
    fewer.remove(1);
    write(&fewer, json!({}))?;
    until(&defragd, "two clusters", |s| {
        on(s, "a")["absentSince"].is_string() && on(s, "b")["absentSince"].is_string()
    })
    .await?;
    let page = defragd.page("/metrics").await?;
    assert!(!page.contains("name=\"fleet\",cluster=\"a\""), "{page}");
    assert!(page.contains("name=\"fleet\",cluster=\"c\""), "{page}");

    write(&all, json!({}))?;
    let back = until(&defragd, "all four again", |s| states(s, &names) == quiet).await?;
    assert_eq!(on(&back, "a")["absentSince"], Value::Null);
    assert_eq!(
        on(&back, "a")["lastRun"],
        on(&done, "a")["lastRun"],
        "its cooldown still counts"
    );

    // A changed trigger makes one run on each, but for the limit.
    write(&all, json!({ "trigger": "now", "maxConcurrentRuns": 4 }))?;
    until(&defragd, "a run on each", |s| {
        s.runs().iter().filter(|run| is_complete(run)).count() == 5
    })
    .await?;
    for (place, count) in [2.0, 1.0, 1.0, 1.0].into_iter().enumerate() {
        assert_eq!(
            clusters[place].defragmentations().await?,
            [count],
            "{place}"
        );
    }
    Ok(())
}

/// A filtering query in a fleet: a cluster whose condition is false does not fire, and one without
/// series has no data.
#[tokio::test]
async fn an_empty_answer_is_looked_behind_for_each_cluster() -> Result<(), Error> {
    let clusters = try_join_all((0..2).map(|_| Etcd::default().members(1).start())).await?;
    let address = clusters[0].member(0).address().to_string();
    let often = Duration::from_millis(500);
    let prometheus = Prometheus::default()
        .scrape("a", [address], often)
        .start()
        .await?;
    let defragd = defragd()?;
    defragd.configure(&json!({
        "sources": [{ "name": "main", "prometheus": { "url": prometheus.url() } }]
    }))?;
    let spec = json!({ "signal": { "prometheus": {
        "source": "main",
        "query": "etcd_mvcc_db_total_size_in_bytes > 1e12",
        "clusterLabel": "job",
    } } });
    start(&defragd, &clusters, spec).await?;
    let status = until(&defragd, "both to be evaluated", |s| {
        states(s, &["a", "b"]) == ["NotFiring", "NoData"]
    })
    .await?;
    assert!(status.runs().is_empty());
    Ok(())
}

/// Starts it with a fleet of the clusters `a` and `b`.
async fn start(defragd: &Defragd, clusters: &[Cluster], spec: Value) -> Result<(), Error> {
    let documents = [
        member("a", &clusters[0]),
        member("b", &clusters[1]),
        fleet(spec),
    ];
    let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
    defragd.put("objects.yaml", &documents.join("\n---\n"))?;
    defragd.start().await
}

/// T84: a probe as a blocker looks at the cluster whose run is due, so one cluster of a fleet waits
/// and the others do not.
#[tokio::test]
async fn t84_a_probe_holds_back_the_run_on_its_own_cluster_alone() -> Result<(), Error> {
    let clusters = try_join_all((0..2).map(|_| Etcd::default().members(1).start())).await?;
    clusters[0].fragment(40 * MIB, 2 * MIB).await?;
    let defragd = defragd()?;
    defragd.configure(&json!({ "sources": [] }))?;
    let spec = json!({
        "signal": { "probe": { "rule": { "all": true } } },
        "maxBlockedFor": "2s",
        "blockers": [{ "name": "large", "signal": {
            "probe": { "rule": { "freeSpaceAbove": "10Mi" } } } }],
    });
    start(&defragd, &clusters, spec).await?;

    let status = until(&defragd, "the run on b, and a to be blocked", |s| {
        on(s, "b")["lastRun"].is_object() && on(s, "a")["blocked"]["tooLong"] == true
    })
    .await?;
    let ended: Vec<&Value> = status.runs();
    assert_eq!(ended.len(), 1, "{status:#?}");
    assert_eq!(ended[0]["spec"]["clusterRef"]["name"], "b");
    assert_eq!(
        on(&status, "a")["blocked"]["by"],
        json!([{ "name": "large", "reason": "SignalFiring" }])
    );
    assert!(on(&status, "b")["blocked"].is_null(), "{status:#?}");
    let condition = |status: &Status| {
        let found = status.condition("EtcdDefragPolicy", "fleet", "Blocked");
        found.map(|(status, reason)| (status.to_owned(), reason.to_owned()))
    };
    let words = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
    assert_eq!(condition(&status), words("True", "BlockedTooLong"));
    let page = defragd.page("/metrics").await?;
    let since = |cluster: &str| {
        let name = format!(
            "defragd_policy_blockers_since_timestamp_seconds{{namespace=\"default\",name=\"fleet\",\
             cluster=\"{cluster}\",cluster_kind=\"EtcdTarget\"}}"
        );
        number(&page, &name)
    };
    assert!(since("a").is_some() && since("b").is_none(), "{page}");

    // Somebody does by hand what the blocker waits for.
    clusters[0].etcdctl(&["defrag"]).await?;
    let status = until(&defragd, "the run on a", |s| {
        on(s, "a")["lastRun"].is_object() && on(s, "a")["blocked"].is_null()
    })
    .await?;
    assert_eq!(condition(&status), words("False", "Accepted"));
    assert_eq!(clusters[0].defragmentations().await?, [2.0]);
    assert_eq!(clusters[1].defragmentations().await?, [1.0]);
    Ok(())
}
