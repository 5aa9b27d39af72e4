//! Many policies at once.

use defragd_harness::{Error, Etcd, Kube};
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{Case, api, controller, items, list, outline, policy, rests, target, time};

const CLUSTERS: usize = 5;
const POLICIES: usize = 200;
/// Runs that may go on at a time.
const LIMIT: usize = 3;
/// Policies of each cluster that are triggered.
const TRIGGERED: usize = 2;

/// T42: each firing and each trigger makes one run, runs of a cluster take turns, and there are
/// never more than allowed.
#[tokio::test]
async fn two_hundred_policies_over_five_clusters() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    let clusters = (0..CLUSTERS).map(|_| Etcd::default().members(1).start());
    let clusters = try_join_all(clusters).await?;
    let limit = LIMIT.to_string();
    let args = ["--max-concurrent-runs", limit.as_str()];
    let defragd = controller(&api).await?.args(args).start().await?;
    let case = Case::new(&api, &defragd, "load").await?;

    let name = |i: usize| format!("etcd-{i}");
    let mut objects: Vec<Value> = clusters
        .iter()
        .enumerate()
        .map(|(i, cluster)| target(&name(i), cluster))
        .collect();
    objects.extend((0..POLICIES).map(|i| {
        let spec = json!({ "interval": "10s" });
        policy(&format!("policy-{i}"), &name(i % CLUSTERS), spec)
    }));
    api.apply(&list(case.namespace, &objects).to_string())
        .await?;
    all_rest(&case).await?;
    let runs = case.runs().await?;
    let told: Vec<_> = runs.iter().map(outline).collect();
    assert_eq!(runs.len(), CLUSTERS, "one of forty made the run: {told:#?}");
    for cluster in &clusters {
        assert_eq!(cluster.defragmentations().await?, [1.0]);
    }

    for i in 0..CLUSTERS * TRIGGERED {
        let path = case.path("etcddefragpolicies", &format!("policy-{i}"));
        let patch = json!({ "spec": { "trigger": "now" } });
        api.patch(&path, &patch).await?;
    }
    let all = CLUSTERS * (TRIGGERED + 1);
    let ended = |runs: &[Value]| {
        let complete = runs
            .iter()
            .filter(|run| run["status"]["phase"] == "Complete");
        complete.count() == all
    };
    case.until_runs("all runs to end", ended).await?;
    all_rest(&case).await?;
    let runs = case.runs().await?;
    assert_eq!(runs.len(), all);
    for cluster in &clusters {
        let count = cluster.defragmentations().await?;
        assert_eq!(count, [1.0 + TRIGGERED as f64]);
    }

    let spans: Vec<_> = runs.iter().map(span).collect();
    for (run, (cluster, began, _)) in runs.iter().zip(&spans) {
        let meanwhile =
            |span: &&(&Value, Timestamp, Timestamp)| span.1 <= *began && *began < span.2;
        let others: Vec<_> = spans.iter().filter(meanwhile).collect();
        assert!(others.len() <= LIMIT, "{}: {others:?}", outline(run));
        let same = others.iter().filter(|span| span.0 == *cluster).count();
        assert!(same <= 1, "{}: {others:?}", outline(run));
    }
    Ok(())
}

/// The cluster that a run had, from when to when.
fn span(run: &Value) -> (&Value, Timestamp, Timestamp) {
    (
        &run["spec"]["clusterRef"]["name"],
        time(&run["status"]["startedAt"]),
        time(&run["status"]["completedAt"]),
    )
}

/// Waits until every policy says that its cluster rests after a run.
async fn all_rest(case: &Case<'_>) -> Result<(), Error> {
    let path = case.path("etcddefragpolicies", "");
    case.watch("all policies to rest", async || {
        let policies = case.api.get(path.trim_end_matches('/')).await;
        let policies = items(policies.map_err(|e| e.to_string())?);
        let (rest, others): (Vec<_>, Vec<_>) = policies.iter().partition(|policy| rests(policy));
        match rest.len() {
            POLICIES => Ok(()),
            count => Err(format!(
                "{count}, {}",
                others.first().map_or(String::new(), |p| outline(p))
            )),
        }
    })
    .await
}
