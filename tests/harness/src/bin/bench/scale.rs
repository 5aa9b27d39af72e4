//! What a controller with ten thousand policies costs: memory, processor, questions to
//! Prometheus, writes to the API server, and how soon a sample that crosses a
//! threshold leads to a run. All servers are real: a kube-apiserver, a Prometheus
//! that scrapes one exporter, and an etcd for each target.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use defragd_harness::{
    Cluster, Controller, Etcd, EtcdVersion, KubeApi, Prometheus, PrometheusVersion,
    RunningController,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::Failure;

const TARGETS: usize = 100;
/// Policies with one query ask once for all of them.
const QUERIES_PER_TARGET: usize = 10;
const INTERVAL: Duration = Duration::from_secs(60);
const HOLD: Duration = Duration::from_secs(5);
const SCRAPE: Duration = Duration::from_secs(1);
/// How long the steady state is looked at.
const WINDOW: Duration = Duration::from_secs(120);
/// How many clusters begin to fire at one moment.
const CROSSING: usize = 10;
/// Requests to the API server at a time while objects are made.
const MAKERS: usize = 24;
const NAMESPACE: &str = "bench";
/// Clock ticks a second in /proc on every Linux that matters.
const TICKS: f64 = 100.0;
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) async fn bench(policies: usize, defragd: &Path) -> Result<(), Failure> {
    eprintln!("bench: starting a kube-apiserver, {TARGETS} etcd servers and a Prometheus");
    let api = KubeApi::start().await?;
    let exporter = Exporter::start().await?;
    let prometheus = Prometheus::version(PrometheusVersion::V3)
        .scrape("bench", [exporter.address.clone()], SCRAPE)
        .start()
        .await?;
    let mut clusters: Vec<Cluster> = Vec::new();
    for _ in 0..TARGETS {
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

    eprintln!("bench: making {TARGETS} targets and {policies} policies");
    maker
        .make("etcdtargets", clusters.iter().enumerate().map(target))
        .await?;
    maker
        .make("etcddefragpolicies", (0..policies).map(policy))
        .await?;

    eprintln!("bench: starting defragd beside them");
    let began = Instant::now();
    let controller = controller(&api, defragd, &config).start().await?;
    let ready = began.elapsed();
    let first = Instant::now();
    settle(&controller, policies).await?;
    eprintln!(
        "bench: every policy was evaluated and stored after {:.0} s, waiting until nothing is written any more",
        first.elapsed().as_secs_f64()
    );
    quiet(&controller).await?;
    let steady = steady(&controller).await?;

    eprintln!("bench: {CROSSING} clusters cross their threshold");
    let delays = crossing(&maker, &exporter).await?;
    report(policies, idle, ready, &steady, &delays);
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

fn target((i, cluster): (usize, &Cluster)) -> Value {
    json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": "EtcdTarget",
        "metadata": {"name": format!("t{i}"), "namespace": NAMESPACE},
        "spec": {"endpoints": cluster.endpoints()},
    })
}

fn policy(i: usize) -> Value {
    let target = i % TARGETS;
    let query = i / TARGETS % QUERIES_PER_TARGET;
    json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": "EtcdDefragPolicy",
        "metadata": {"name": format!("p{i}"), "namespace": NAMESPACE},
        "spec": {
            "clusterRef": {"name": format!("t{target}")},
            "signal": {"prometheus": {
                "source": "main",
                "query": format!("max(bench_reclaimable_bytes{{cluster=\"t{target}\"}}) + {query}"),
                "above": "100Mi",
            }},
            "for": format!("{}s", HOLD.as_secs()),
            "interval": format!("{}s", INTERVAL.as_secs()),
            "cooldown": "1h",
            "runTemplate": {"allowSingleMember": true},
        },
    })
}

/// Makes objects over one connection pool.
struct Maker {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Maker {
    fn new(api: &KubeApi) -> Result<Self, Failure> {
        let ca = reqwest::Certificate::from_pem(&std::fs::read(api.ca())?)?;
        Ok(Maker {
            http: reqwest::Client::builder().tls_certs_only([ca]).build()?,
            url: api.url(),
            token: api.admin_token().to_owned(),
        })
    }

    fn path(&self, plural: &str) -> String {
        format!(
            "{}/apis/defragd.dev/v1alpha1/namespaces/{NAMESPACE}/{plural}",
            self.url
        )
    }

    async fn make(
        &self,
        plural: &str,
        objects: impl Iterator<Item = Value>,
    ) -> Result<(), Failure> {
        let path = self.path(plural);
        let mut waiting = tokio::task::JoinSet::new();
        for object in objects {
            if waiting.len() == MAKERS
                && let Some(made) = waiting.join_next().await
            {
                made??;
            }
            let request = self
                .http
                .post(&path)
                .bearer_auth(&self.token)
                .header("Content-Type", "application/json")
                .body(object.to_string());
            waiting.spawn(async move {
                request.send().await?.error_for_status()?;
                Ok::<_, reqwest::Error>(())
            });
        }
        while let Some(made) = waiting.join_next().await {
            made??;
        }
        Ok(())
    }

    async fn runs(&self) -> Result<Vec<Value>, Failure> {
        let request = self
            .http
            .get(self.path("etcddefrags"))
            .bearer_auth(&self.token);
        let text = request.send().await?.error_for_status()?.text().await?;
        let mut list: Value = serde_json::from_str(&text)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Err("the list of runs has no items".into()),
        }
    }
}

/// Serves one gauge for each cluster, and knows when a change of it was first served.
struct Exporter {
    address: String,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    firing: usize,
    served: Option<Instant>,
}

impl Exporter {
    async fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                // Whatever is asked, there is one answer.
                let _ = stream.read(&mut request).await;
                let body = page(&serving);
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Ok(Exporter { address, shared })
    }

    fn cross(&self, clusters: usize) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.firing = clusters;
        shared.served = None;
    }

    /// When the crossing samples were first served.
    fn served(&self) -> Option<Instant> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.served
    }
}

fn page(shared: &Mutex<Shared>) -> String {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.firing > 0 && shared.served.is_none() {
        shared.served = Some(Instant::now());
    }
    let mut text = String::new();
    for i in 0..TARGETS {
        let bytes = if i < shared.firing {
            500 << 20
        } else {
            1 << 20
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "bench_reclaimable_bytes{{cluster=\"t{i}\"}} {bytes}");
    }
    text
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

fn writes(page: &str) -> f64 {
    ["create", "patch", "update", "delete"]
        .iter()
        .map(|verb| {
            sum(
                page,
                "defragd_api_requests_total{",
                &format!("verb=\"{verb}\""),
            )
        })
        .sum()
}

/// Waits until every policy has an answer.
async fn settle(controller: &RunningController, policies: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(900);
    loop {
        let page = controller.metrics().await?;
        let known = sum(&page, "defragd_policy_signal_state{", "state=\"NotFiring\"");
        if known >= policies as f64 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{known} of {policies} policies were evaluated in time").into());
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

async fn steady(controller: &RunningController) -> Result<Steady, Failure> {
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
    let distinct = (TARGETS * QUERIES_PER_TARGET) as f64;
    Ok(Steady {
        resident: after.resident,
        cores: (after.cpu - before.cpu) / took,
        questions: questions(&now) - questions(&page),
        // A window may begin just before a poll and end just after one.
        allowed: distinct * (took / INTERVAL.as_secs_f64() + 1.0),
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

fn report(policies: usize, idle: f64, ready: Duration, steady: &Steady, delays: &[Duration]) {
    let longest = delays.last().copied().unwrap_or_default().as_secs_f64();
    let median = delays
        .get(delays.len() / 2)
        .copied()
        .unwrap_or_default()
        .as_secs_f64();
    let bound = (INTERVAL + HOLD + Duration::from_secs(1)).as_secs_f64();
    println!(
        "{policies} policies on {TARGETS} targets, interval {} s, {} distinct queries",
        INTERVAL.as_secs(),
        TARGETS * QUERIES_PER_TARGET
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
        "| writes to the API server in {} s | {} | 0 |",
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
        "| resident memory / idle, a policy, KiB | {:.1} | |",
        (steady.resident - idle) * MIB / 1024.0 / policies as f64
    );
}
