//! Three benchmarks. The first: what a sweep costs beside bare `etcdctl defrag`, on the
//! same three members in the same run. The others are in `scale`. See docs/benchmarks.md.
//! Figures are ratios where there is something to compare; nothing here is asserted,
//! a slow machine fails no test.

mod load;
mod scale;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use defragd_harness::{Cluster, Etcd, EtcdVersion, install_tls_provider};

use self::scale::Scenario;

const GIB: u64 = 1 << 30;
const LIVE: u64 = GIB / 10;
const MEMBERS: usize = 3;
/// The sum of what all members have spent in finished defragmentations, in seconds.
const SPENT: &str = "etcd_disk_backend_defrag_duration_seconds_sum";
const USAGE: &str = "usage: bench [ROUNDS]               sweeps (3 rounds; each fills the cluster twice)\n\
       bench controller [POLICIES]  a controller in Kubernetes (10000 policies)\n\
       bench fleet [CLUSTERS]       one policy that selects clusters (1000)";
const ROUNDS: usize = 3;
const POLICIES: usize = 10_000;
/// As many as one policy serves.
const CLUSTERS: usize = 1000;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Sweep,
    Etcdctl,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Sweep => "defragd sweep",
            Contender::Etcdctl => "etcdctl defrag",
        }
    }
}

/// What one contender did in one round.
#[derive(Clone, Debug)]
struct Measured {
    wall: Duration,
    /// The members' own times for their defragmentations, in seconds.
    calls: Vec<f64>,
    /// Longest request of any client while it worked.
    stall: Duration,
    requests: usize,
    failed: usize,
    /// Raft terms that passed without a transfer that was asked for.
    terms_lost: u64,
}

impl Measured {
    fn wall_ratio(&self) -> f64 {
        self.wall.as_secs_f64() / self.calls.iter().sum::<f64>()
    }

    fn stall_ratio(&self) -> f64 {
        self.stall.as_secs_f64() / self.calls.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let what = args.next_if(|arg| arg == "controller" || arg == "fleet");
    let usual = match what.as_deref() {
        None => ROUNDS,
        Some("fleet") => CLUSTERS,
        Some(_) => POLICIES,
    };
    let count = match args.next().map(|text| text.parse::<usize>()) {
        None => usual,
        Some(Ok(count)) if count > 0 => count,
        Some(_) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    install_tls_provider();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("bench: failed to start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let measured = runtime.block_on(async {
        let scenario = match what.as_deref() {
            None => return bench(count).await,
            Some("fleet") => Scenario::Fleet(count),
            Some(_) => Scenario::Policies(count),
        };
        scale::bench(scenario, &sibling("defragd")?).await
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(rounds: usize) -> Result<(), Failure> {
    let sweep = sibling("defragd")?;
    eprintln!("bench: starting three members of etcd 3.6");
    let cluster = Etcd::version(EtcdVersion::V3_6)
        .members(MEMBERS)
        .quota_bytes(8 * GIB as i64)
        // Else the members keep all of what was put in memory too.
        .raft_log_entries(50)
        .start()
        .await?;
    let mut results: Vec<(Contender, Measured)> = Vec::new();
    for round in 1..=rounds {
        // In turn first and second, so that neither gains from what the other left warm.
        let order = match round % 2 {
            1 => [Contender::Sweep, Contender::Etcdctl],
            _ => [Contender::Etcdctl, Contender::Sweep],
        };
        for contender in order {
            eprintln!("bench: round {round} of {rounds}: 1 GiB a member, a tenth live");
            cluster.fragment(GIB, LIVE).await?;
            cluster.await_healthy().await?;
            eprintln!("bench: round {round} of {rounds}: {}", contender.name());
            results.push((contender, measure(&cluster, contender, &sweep).await?));
        }
    }
    report(&results);
    Ok(())
}

/// A binary that was built beside this one.
fn sibling(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(format!(
            "there is no {}: build it, or use `make bench`",
            path.display()
        )
        .into())
    }
}

async fn measure(
    cluster: &Cluster,
    contender: Contender,
    sweep: &PathBuf,
) -> Result<Measured, Failure> {
    let before = spent(cluster).await?;
    let term = cluster.term().await?;
    let load = load::start(cluster).await?;
    let started = Instant::now();
    let transfers = match contender {
        Contender::Sweep => run_sweep(cluster, sweep).await?,
        Contender::Etcdctl => {
            let output = cluster
                .etcdctl(&["defrag", "--command-timeout=300s"])
                .await?;
            if !output.status.success() {
                return Err(format!(
                    "etcdctl defrag: {}",
                    String::from_utf8_lossy(&output.stderr)
                )
                .into());
            }
            0
        }
    };
    let wall = started.elapsed();
    let seen = load.stop().await;
    if let Some(failure) = &seen.failure {
        eprintln!("bench: a request failed: {failure}");
    }
    let after = spent(cluster).await?;
    let calls = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after - before)
        .collect();
    Ok(Measured {
        wall,
        calls,
        stall: seen.longest,
        requests: seen.requests,
        failed: seen.failed,
        terms_lost: (cluster.term().await? - term).saturating_sub(transfers),
    })
}

/// Returns how many transfers of leadership the sweep asked for.
async fn run_sweep(cluster: &Cluster, sweep: &PathBuf) -> Result<u64, Failure> {
    let mut command = tokio::process::Command::new(sweep);
    command
        .args(["sweep", "--output", "json", "--endpoints"])
        .arg(cluster.endpoints().join(","));
    let output = command.output().await?;
    if !output.status.success() {
        return Err(format!("defragd sweep: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let run: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let done = run["status"]["defragmented"].as_u64();
    if done != Some(MEMBERS as u64) {
        return Err(format!("the sweep defragmented {done:?} of {MEMBERS} members").into());
    }
    Ok(run["status"]["leaderTransfers"]
        .as_array()
        .map_or(0, |all| all.len() as u64))
}

async fn spent(cluster: &Cluster) -> Result<Vec<f64>, Failure> {
    let mut spent = Vec::new();
    for i in 0..MEMBERS {
        let seconds = cluster.metric(i, SPENT).await?;
        spent.push(seconds.ok_or_else(|| format!("member {i} has no {SPENT}"))?);
    }
    Ok(spent)
}

fn report(results: &[(Contender, Measured)]) {
    println!(
        "| {:<14} | wall s | sum of calls s | longest call s | longest stall s | wall / calls | stall / call | terms lost | requests (failed) |",
        "contender"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (contender, m) in results {
        println!(
            "| {:<14} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} ({}) |",
            contender.name(),
            m.wall.as_secs_f64(),
            m.calls.iter().sum::<f64>(),
            m.calls.iter().copied().fold(0.0, f64::max),
            m.stall.as_secs_f64(),
            m.wall_ratio(),
            m.stall_ratio(),
            m.terms_lost,
            m.requests,
            m.failed,
        );
    }
    println!();
    for contender in [Contender::Sweep, Contender::Etcdctl] {
        let mine = || {
            results
                .iter()
                .filter(|(c, _)| *c == contender)
                .map(|(_, m)| m)
        };
        println!(
            "median of {}: wall / sum of calls {:.2}, longest stall / longest call {:.2}, stall {:.2} s, terms lost {}",
            contender.name(),
            median(mine().map(Measured::wall_ratio)),
            median(mine().map(Measured::stall_ratio)),
            median(mine().map(|m| m.stall.as_secs_f64())),
            mine().map(|m| m.terms_lost).sum::<u64>(),
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
