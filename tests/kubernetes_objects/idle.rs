//! Nothing is written while nothing happens.

use std::time::{Duration, Instant};

use defragd_harness::{Error, Etcd, Kube, KubeApi, Prometheus, RunningController, eventually};
use serde_json::{Value, json};

use crate::support::{Case, WAIT, api, controller, items, list, policy, renewals, target, writes};

/// How long is looked.
const LOOK: Duration = Duration::from_secs(120);
/// How long nothing must have been written for everything to be settled.
const SETTLED: Duration = Duration::from_secs(5);
const POLICIES: usize = 100;

#[tokio::test]
async fn a_hundred_idle_policies_write_nothing() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    let cluster = Etcd::default().members(1).start().await?;
    let second = Duration::from_secs(1);
    let prometheus = Prometheus::default().scrape_etcd(&cluster, second);
    let prometheus = prometheus.start().await?;
    let config = json!({
        "sources": [{ "name": "main", "prometheus": { "url": prometheus.url() } }],
    });
    let file = api.scratch().join("defragd.yaml");
    std::fs::write(&file, config.to_string()).expect("the folder is the test's own");
    let args = ["--config".into(), file.into_os_string()];
    let defragd = controller(&api).await?.args(args).start().await?;
    let case = Case::new(&api, &defragd, "idle").await?;

    let mut objects = vec![target("demo", &cluster)];
    objects.extend((0..POLICIES).map(|i| {
        // Values that change all the time, and stay on their side of the threshold.
        let query = format!("time() + {i}");
        let signal = if i % 2 == 0 {
            json!({ "probe": { "rule": { "freeSpaceAbove": "1Ti" } } })
        } else {
            json!({ "prometheus": { "source": "main", "query": query, "below": 1 } })
        };
        let spec = json!({ "signal": signal, "interval": "10s" });
        policy(&format!("idle-{i}"), "demo", spec)
    }));
    api.apply(&list(case.namespace, &objects).to_string())
        .await?;
    let path = case.path("etcddefragpolicies", "");
    case.watch("all policies to be evaluated", async || {
        let policies = api.get(path.trim_end_matches('/')).await;
        let policies = items(policies.map_err(|e| e.to_string())?);
        let quiet =
            |policy: &&Value| policy["status"]["clusters"][0]["signal"]["state"] == "NotFiring";
        match policies.iter().filter(quiet).count() {
            POLICIES => Ok(()),
            count => Err(format!(
                "{count} of {}: {:?}",
                policies.len(),
                policies.first()
            )),
        }
    })
    .await?;

    let before = settled(&api).await?;
    assert!(before > POLICIES, "{before} writes");
    still(&api, &defragd, before, LOOK).await?;
    let before = settled(&api).await?;

    // A new process finds everything as it would write it.
    let ended = defragd.stop().await?;
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    defragd.start_again().await?;
    still(&api, &defragd, before, LOOK / 4).await?;
    assert!(case.runs().await?.is_empty());
    assert_eq!(cluster.defragmentations().await?, [0.0]);
    Ok(())
}

/// Waits until nothing has been written for a while, and says how much was.
async fn settled(api: &KubeApi) -> Result<usize, Error> {
    let (mut count, mut since) = (0, Instant::now());
    eventually(WAIT, "the writes to end", async || {
        let now = writes(api).map_err(|e| e.to_string())?;
        if now.len() != count {
            (count, since) = (now.len(), Instant::now());
        }
        if since.elapsed() >= SETTLED {
            Ok(count)
        } else {
            Err(format!("{count} writes, last {:?}", now.last()))
        }
    })
    .await
}

/// Nothing more is written for so long, while signals are asked and the lease is renewed.
async fn still(
    api: &KubeApi,
    defragd: &RunningController,
    before: usize,
    long: Duration,
) -> Result<(), Error> {
    let asked = "defragd_source_requests_total{source=\"main\",code=\"200\"}";
    let began = Instant::now();
    let logged = defragd.logged().len();
    let (renewed, polled) = (renewals(api)?, defragd.metric(asked).await?.unwrap_or(0.0));
    eventually(long + WAIT, "the time to pass", async || {
        defragd.check().map_err(|e| e.to_string())?;
        let polls = defragd.metric(asked).await.map_err(|e| e.to_string())?;
        let polls = polls.unwrap_or(0.0) - polled;
        // Every policy was evaluated twice at least: half of them poll.
        if began.elapsed() >= long && polls >= POLICIES as f64 {
            Ok(())
        } else {
            Err(format!("{polls} polls in {:?}", began.elapsed()))
        }
    })
    .await?;
    let written = writes(api)?;
    let written = &written[before.min(written.len())..];
    // On a machine that is busy with other tests a probe may have no answer in time. That is
    // something to write, and so is its end.
    let log = defragd.logged().split_off(logged);
    let failed = log.lines().filter(|line| line.contains("reason=Probe"));
    let failed = failed.count();
    assert!(
        written.len() <= 2 * failed,
        "{written:#?} and {failed} failed probes: {log}"
    );
    let renewals = renewals(api)? - renewed;
    assert!(renewals > 2, "{renewals}");
    println!(
        "{renewals} renewals of the lease and {} other writes in {:?}",
        written.len(),
        began.elapsed()
    );
    Ok(())
}
