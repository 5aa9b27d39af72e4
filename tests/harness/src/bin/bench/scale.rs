//! What a controller with ten thousand policies costs, and one with a policy that selects a
//! thousand clusters: memory, processor, questions to Prometheus, writes to the API
//! server, and how soon a sample that crosses a threshold leads to a run. All servers
//! are real: a kube-apiserver, a Prometheus that scrapes one exporter, and a hundred
//! etcd servers.

mod exporter;
mod maker;

use std::path::Path;
use std::time::{Duration, Instant};

use defragd_harness::{
    Cluster, Controller, Etcd, EtcdVersion, KubeApi, Prometheus, PrometheusVersion,
    RunningController,
};
use serde_json::{Value, json};

use self::exporter::Exporter;
use self::maker::Maker;
use crate::Failure;

/// Clusters of one member each. There may be more targets: then several lead to one.
const ETCDS: usize = 100;
/// Policies with one query ask once for all of them.
const QUERIES_PER_TARGET: usize = 10;
const INTERVAL: Duration = Duration::from_secs(60);
const HOLD: Duration = Duration::from_secs(5);
const SCRAPE: Duration = Duration::from_secs(1);
/// How long the steady state is looked at.
const WINDOW: Duration = Duration::from_secs(120);
/// How many clusters begin to fire at one moment.
const CROSSING: usize = 10;
const NAMESPACE: &str = "bench";
/// Clock ticks a second in /proc on every Linux that matters.
const TICKS: f64 = 100.0;
const MIB: f64 = 1024.0 * 1024.0;

/// What there is to look after.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scenario {
    /// So many policies; each names its cluster.
    Policies(usize),
    /// One policy, which selects so many clusters.
    Fleet(usize),
}

impl Scenario {
    fn targets(self) -> usize {
        match self {
            Scenario::Policies(_) => ETCDS,
            Scenario::Fleet(clusters) => clusters,
        }
    }

    /// What is evaluated and remembered by itself: a policy on a cluster.
    fn units(self) -> usize {
        match self {
            Scenario::Policies(count) | Scenario::Fleet(count) => count,
        }
    }

    fn queries(self) -> usize {
        match self {
            Scenario::Policies(count) => count.min(ETCDS * QUERIES_PER_TARGET),
            Scenario::Fleet(_) => 1,
        }
    }

    fn policies(self) -> Vec<Value> {
        match self {
            Scenario::Policies(count) => (0..count).map(policy).collect(),
            Scenario::Fleet(_) => vec![fleet()],
        }
    }

    fn title(self) -> String {
        match self {
            Scenario::Policies(count) => format!("{count} policies on {ETCDS} targets"),
            Scenario::Fleet(count) => format!("one policy that selects {count} targets"),
        }
    }
}

pub(crate) async fn bench(scenario: Scenario, defragd: &Path) -> Result<(), Failure> {
    eprintln!("bench: starting a kube-apiserver, {ETCDS} etcd servers and a Prometheus");
    let api = KubeApi::start().await?;
    let exporter = Exporter::start(scenario.targets()).await?;
    let prometheus = Prometheus::version(PrometheusVersion::V3)
        .scrape("bench", [exporter.address.clone()], SCRAPE)
        .start()
        .await?;
    let mut clusters: Vec<Cluster> = Vec::new();
    for _ in 0..ETCDS {
        let etcd = Etcd::version(EtcdVersion::V3_6).members(1).start().await?;
        clusters.push(etcd);
    }
    let crds = std::process::Command::new(defragd).arg("crds").output()?;
    api.apply(std::str::from_utf8(&crds.stdout)?).await?;
    api.kubectl(&["wait", "--for=condition=Established", "crd", "--all"])
        .await?;
    api.kubectl(&["create", "namespace", NAMESPACE]).await?;
    let maker = Maker::new(&api)?;
    let config = api.scratch().join("bench-defragd.yaml");
    let url = prometheus.url();
    std::fs::write(
        &config,
        format!(
            "sources: [{{name: main, prometheus: {{url: '{url}', requestsPerSecond: 100, burst: 100}}}}]\n\
             log: {{level: warn}}\n"
        ),
    )?;

    let idle = idle(&api, defragd, &config).await?;

    eprintln!("bench: making {}", scenario.title());
    let targets = (0..scenario.targets()).map(|i| target(i, &clusters[i % clusters.len()]));
    maker.make("etcdtargets", targets).await?;
    let policies = scenario.policies().into_iter();
    maker.make("etcddefragpolicies", policies).await?;

    eprintln!("bench: starting defragd beside them");
    let began = Instant::now();
    let controller = controller(&api, defragd, &config).start().await?;
    let ready = began.elapsed();
    let first = Instant::now();
    settle(&controller, scenario.units()).await?;
    eprintln!(
        "bench: all were evaluated and stored after {:.0} s, waiting until nothing is written any more",
        first.elapsed().as_secs_f64()
    );
    quiet(&controller).await?;
    let steady = steady(&controller, scenario.queries()).await?;

    eprintln!("bench: {CROSSING} clusters cross their threshold");
    let delays = crossing(&maker, &exporter).await?;
    report(scenario, idle, ready, &steady, &delays);
    controller.stop().await?;
    Ok(())
}

fn controller(api: &KubeApi, defragd: &Path, config: &Path) -> Controller {
    Controller::new(defragd, &api.kubeconfig_admin())
        .pod(NAMESPACE, "bench")
        .args(["--config".into(), config.as_os_str().to_owned()])
}

/// Resident memory without any object, in MiB.
async fn idle(api: &KubeApi, defragd: &Path, config: &Path) -> Result<f64, Failure> {
    let controller = controller(api, defragd, config).start().await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let resident = process(&controller)?.resident;
    controller.stop().await?;
    Ok(resident)
}

fn target(i: usize, cluster: &Cluster) -> Value {
    json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": "EtcdTarget",
        "metadata": {"name": format!("t{i}"), "namespace": NAMESPACE, "labels": {"tier": "bench"}},
        "spec": {"endpoints": cluster.endpoints()},
    })
}

fn policy(i: usize) -> Value {
    let target = i % ETCDS;
    let query = i / ETCDS % QUERIES_PER_TARGET;
    let query = format!("max(bench_reclaimable_bytes{{cluster=\"t{target}\"}}) + {query}");
    let mut policy = asking(&format!("p{i}"), &query);
    policy["spec"]["clusterRef"] = json!({"name": format!("t{target}")});
    policy
}

/// The policy that selects every target. As many of its runs may go on as clusters cross.
fn fleet() -> Value {
    let mut policy = asking("fleet", "max by (cluster) (bench_reclaimable_bytes)");
    policy["spec"]["clusterSelector"] = json!({"matchLabels": {"tier": "bench"}});
    policy["spec"]["maxConcurrentRuns"] = json!(CROSSING);
    policy["spec"]["signal"]["prometheus"]["clusterLabel"] = json!("cluster");
    policy
}

/// What all policies have in common.
fn asking(name: &str, query: &str) -> Value {
    json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": "EtcdDefragPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "signal": {"prometheus": {"source": "main", "query": query, "above": "100Mi"}},
            "for": format!("{}s", HOLD.as_secs()),
            "interval": format!("{}s", INTERVAL.as_secs()),
            "cooldown": "1h",
            "runTemplate": {"allowSingleMember": true},
        },
    })
}

/// What the kernel tells of the process.
#[derive(Clone, Copy, Debug)]
struct Process {
    /// MiB.
    resident: f64,
    /// Seconds.
    cpu: f64,
}

fn process(controller: &RunningController) -> Result<Process, Failure> {
    let pid = controller.pid().ok_or("defragd does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))
        .ok_or("/proc tells no VmRSS")?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name, which stands in brackets: utime and stime are fields 14 and 15.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .ok_or("/proc tells no stat")?
        .1
        .split_whitespace()
        .collect();
    let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(Process {
        resident: resident.trim().parse::<f64>()? / 1024.0,
        cpu: ticks / TICKS,
    })
}

/// The sum of all series of a metric whose line holds `part`.
fn sum(page: &str, metric: &str, part: &str) -> f64 {
    page.lines()
        .filter(|line| line.starts_with(metric) && line.contains(part))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// Requests that change something, besides the renewals of the lease. The one replica of the
/// benchmark renews it every two seconds, whatever there is to do.
fn writes(page: &str) -> f64 {
    let changing = |line: &&str| {
        let verbs = ["create", "patch", "update", "delete"];
        verbs
            .iter()
            .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
            && !line.contains("resource=\"leases\"")
    };
    page.lines()
        .filter(|line| line.starts_with("defragd_api_requests_total{"))
        .filter(changing)
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// Waits until every policy has an answer on every cluster.
async fn settle(controller: &RunningController, units: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(900);
    loop {
        let page = controller.metrics().await?;
        let known = sum(&page, "defragd_policy_signal_state{", "state=\"NotFiring\"");
        if known >= units as f64 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{known} of {units} policies were evaluated in time").into());
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// Waits until nothing was written for as long as every policy takes to be asked again.
async fn quiet(controller: &RunningController) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(900);
    let mut last = (writes(&controller.metrics().await?), Instant::now());
    while last.1.elapsed() < INTERVAL + Duration::from_secs(10) {
        if Instant::now() > deadline {
            return Err("writes to the API server did not come to rest".into());
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let now = writes(&controller.metrics().await?);
        if now > last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Steady {
    resident: f64,
    cores: f64,
    questions: f64,
    /// Distinct queries times polls in the window.
    allowed: f64,
    writes: f64,
}

async fn steady(controller: &RunningController, queries: usize) -> Result<Steady, Failure> {
    let questions = |page: &str| sum(page, "defragd_source_requests_total{", "");
    let (page, before, began) = (
        controller.metrics().await?,
        process(controller)?,
        Instant::now(),
    );
    eprintln!("bench: the steady state for {} s", WINDOW.as_secs());
    tokio::time::sleep(WINDOW).await;
    let (after, took) = (process(controller)?, began.elapsed().as_secs_f64());
    let now = controller.metrics().await?;
    Ok(Steady {
        resident: after.resident,
        cores: (after.cpu - before.cpu) / took,
        questions: questions(&now) - questions(&page),
        // A window may begin just before a poll and end just after one.
        allowed: queries as f64 * (took / INTERVAL.as_secs_f64() + 1.0),
        writes: writes(&now) - writes(&page),
    })
}

/// From the first crossing sample to each run that exists.
async fn crossing(maker: &Maker, exporter: &Exporter) -> Result<Vec<Duration>, Failure> {
    exporter.cross(CROSSING);
    let deadline = Instant::now() + INTERVAL + HOLD + Duration::from_secs(120);
    let mut delays: Vec<Duration> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    while delays.len() < CROSSING {
        if Instant::now() > deadline {
            return Err(format!("{} of {CROSSING} runs were made in time", delays.len()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let Some(served) = exporter.served() else {
            continue;
        };
        for run in maker.runs().await? {
            let cluster = run["spec"]["clusterRef"]["name"].to_string();
            if seen.insert(cluster) {
                delays.push(served.elapsed());
            }
        }
    }
    delays.sort();
    Ok(delays)
}

fn report(scenario: Scenario, idle: f64, ready: Duration, steady: &Steady, delays: &[Duration]) {
    let longest = delays.last().copied().unwrap_or_default().as_secs_f64();
    let median = delays
        .get(delays.len() / 2)
        .copied()
        .unwrap_or_default()
        .as_secs_f64();
    let bound = (INTERVAL + HOLD + Duration::from_secs(1)).as_secs_f64();
    println!(
        "{}, interval {} s, distinct queries: {}",
        scenario.title(),
        INTERVAL.as_secs(),
        scenario.queries()
    );
    println!("| figure | measured | goal |");
    println!("| --- | --- | --- |");
    println!(
        "| resident memory, MiB | {:.1} | at most 150 |",
        steady.resident
    );
    println!("| processor, cores | {:.3} | at most 0.25 |", steady.cores);
    println!(
        "| questions to Prometheus / (distinct queries x polls) | {:.2} | at most 1.00 |",
        steady.questions / steady.allowed
    );
    println!(
        "| writes to the API server in {} s, besides the lease's renewals | {} | 0 |",
        WINDOW.as_secs(),
        steady.writes
    );
    println!(
        "| start to ready, s | {:.1} | at most 10 |",
        ready.as_secs_f64()
    );
    println!(
        "| crossing sample to run / (interval + for + 1 s), longest of {CROSSING} | {:.2} ({longest:.1} s, median {median:.1} s) | at most 1.00 |",
        longest / bound
    );
    println!("| idle, without objects, MiB | {idle:.1} | at most 20 |");
    println!(
        "| resident memory - idle, a policy on a cluster, KiB | {:.1} | |",
        (steady.resident - idle) * MIB / 1024.0 / scenario.units() as f64
    );
}
