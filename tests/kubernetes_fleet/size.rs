//! A thousand clusters in one policy: what its status takes, and that nothing is written while
//! nothing happens.

use std::time::{Duration, Instant};

use defragd_harness::case::{WAIT, condition, writes};
use defragd_harness::objects::{self, list};
use defragd_harness::{Case, Cluster, Error, Etcd, KubeApi, eventually};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::support::{api, controller, entry, fleet, prometheus, selected};

/// As many as one policy serves.
const CLUSTERS: usize = 1000;
/// Real clusters, which so many targets lead to.
const ETCDS: usize = 10;
/// How long is looked.
const LOOK: Duration = Duration::from_secs(30);
/// How long nothing must have been written for everything to be settled.
const SETTLED: Duration = Duration::from_secs(5);
/// What etcd takes in one request by default.
const ETCD_LIMIT: usize = 1_572_864;

fn name(i: usize) -> String {
    format!("etcd-{i:04}")
}

fn member(i: usize, etcds: &[Cluster]) -> Value {
    let endpoints = etcds[i % etcds.len()].endpoints();
    selected(objects::target(&name(i), &endpoints))
}

/// Whether everything is known of everybody: all fire, the one run goes on for all that lead to its
/// etcd, the others wait for their turn, and nobody's series is missed.
fn all_known(policy: &Value) -> bool {
    let status = &policy["status"];
    let summary = &status["summary"];
    let clusters = status["clusters"].as_array();
    let reasons: Vec<&str> = clusters
        .into_iter()
        .flatten()
        .filter_map(|cluster| cluster["decision"]["reason"].as_str())
        .collect();
    let waiting = reasons.iter().filter(|reason| **reason == "PolicyBusy");
    summary["clusters"] == CLUSTERS
        && summary["firing"] == CLUSTERS
        && summary["running"] == CLUSTERS / ETCDS
        && reasons.len() == CLUSTERS
        && waiting.count() == CLUSTERS - CLUSTERS / ETCDS
        && status["unmatchedSeries"]["listed"] == json!(["stranger"])
}

fn writes_of_policy(api: &KubeApi) -> Result<usize, Error> {
    let written = writes(api)?;
    let policy = written.iter().filter(|w| w.contains("etcddefragpolicies"));
    Ok(policy.count())
}

/// Waits until the policy has not been written for a while, and says how often it was.
async fn settled(api: &KubeApi) -> Result<usize, Error> {
    let (mut count, mut since) = (0, Instant::now());
    eventually(WAIT, "the writes to end", async || {
        let now = writes_of_policy(api).map_err(|e| e.to_string())?;
        if now != count {
            (count, since) = (now, Instant::now());
        }
        if since.elapsed() >= SETTLED {
            Ok(count)
        } else {
            Err(format!("{count} writes"))
        }
    })
    .await
}

/// T103: a thousand clusters that all fire stay within the limits of one object.
#[tokio::test]
async fn t103_a_thousand_clusters_in_one_policy() -> Result<(), Error> {
    let fragmented = (0..CLUSTERS).map(|i| (name(i), 200_000_000 + i as u64));
    let prometheus = prometheus(fragmented.chain([("stranger".to_owned(), 1)])).await?;
    let etcds = try_join_all((0..ETCDS).map(|_| Etcd::default().members(1).start())).await?;
    let api = api().await?;
    let defragd = controller(&api, &prometheus).await?;
    let case = Case::new(&api, &defragd, "fleet").await?;
    let mut objects: Vec<Value> = (0..CLUSTERS).map(|i| member(i, &etcds)).collect();
    objects.push(fleet(&json!({
        "interval": "2s",
        // It holds the one run that may go on, so that all others wait.
        "runTemplate": { "rule": { "all": true }, "suspend": true, "allowSingleMember": true },
    })));
    for part in objects.chunks(250) {
        api.apply(&list(case.namespace, part).to_string()).await?;
    }

    let runs = case
        .until_runs("the one run", |runs| runs.len() == 1)
        .await?;
    assert_eq!(runs[0]["spec"]["suspend"], true);
    case.until("etcddefragpolicies", "fleet", "all to be known", all_known)
        .await?;
    // Sentences may still be on their way.
    let before = settled(&api).await?;

    // As it is stored: with who owns which field.
    let policy = api.get(&case.path("etcddefragpolicies", "fleet")).await?;
    let policy = policy.expect("it is there");
    let size = policy.to_string().len();
    let owners = policy["metadata"]["managedFields"].to_string().len();
    println!(
        "{size} bytes, {owners} of them for managed fields; {before} writes until all was quiet"
    );
    assert!(size < ETCD_LIMIT * 2 / 3, "{size} bytes");
    assert!(owners < 4096, "{owners} bytes for who owns which field");
    assert!(all_known(&policy), "{}", policy["status"]["summary"]);
    let table = ["get", "defragpolicy", "--namespace=fleet"];
    let table = api.kubectl(&table).await?;
    assert!(
        table.contains("1000 clusters") && table.contains("1000 Firing"),
        "{table}"
    );

    // Far fewer writes than clusters: what comes together is stored together.
    assert!(before < CLUSTERS / 4, "{before} writes");
    let polls = "defragd_source_requests_total{source=\"main\",code=\"200\"}";
    let asked = defragd.metric(polls).await?.unwrap_or(0.0);
    let began = Instant::now();
    eventually(LOOK + WAIT, "the time to pass", async || {
        defragd.check().map_err(|e| e.to_string())?;
        let now = defragd.metric(polls).await.map_err(|e| e.to_string())?;
        let polled = now.unwrap_or(0.0) - asked;
        if began.elapsed() >= LOOK && polled >= 10.0 {
            Ok(())
        } else {
            Err(format!("{polled} polls in {:?}", began.elapsed()))
        }
    })
    .await?;
    let polled = defragd.metric(polls).await?.unwrap_or(0.0) - asked;
    let ticks = began.elapsed().as_secs_f64() / 2.0;
    // One for all of them, and one for the age of samples, because a run goes on.
    assert!(
        polled <= 2.0 * (ticks + 2.0),
        "{polled} requests in {ticks} ticks"
    );
    assert_eq!(
        writes_of_policy(&api)?,
        before,
        "{:#?}",
        writes(&api)?.last()
    );

    // One loses its label, and another one is deleted.
    let relabel = json!({ "metadata": { "labels": { "tier": "test" } } });
    api.patch(&case.path("etcdtargets", &name(1)), &relabel)
        .await?;
    case.delete("etcdtargets", &name(2)).await?;
    let policy = case
        .until("etcddefragpolicies", "fleet", "two to leave", |policy| {
            policy["status"]["summary"]["clusters"] == CLUSTERS - 2
        })
        .await?;
    for i in [1, 2] {
        assert!(entry(&policy, &name(i))["absentSince"].is_string(), "{i}");
    }

    // More than the most: it says so, names them, and serves the others.
    let more: Vec<Value> = (0..4).map(|i| member(CLUSTERS + i, &etcds)).collect();
    api.apply(&list(case.namespace, &more).to_string()).await?;
    let policy = case
        .until(
            "etcddefragpolicies",
            "fleet",
            "too many to be told",
            |policy| condition(policy, "Ready")["reason"] == "TooManyClusters",
        )
        .await?;
    let message = condition(&policy, "Ready")["message"].to_string();
    assert!(
        message.contains("etcd-1002, etcd-1003") && message.contains("select fewer by labels"),
        "{message}"
    );
    assert_eq!(case.runs().await?.len(), 1);
    Ok(())
}
