//! Clients of all members, at a steady rate whatever the answers take.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use defragd_harness::Cluster;
use etcd_client::{Client, Error};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::{Failure, MEMBERS};

/// Requests a second, over all members: every other one a put, the rest
/// linearizable gets.
const RATE: u32 = 200;

/// What the clients have seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) longest: Duration,
    pub(crate) requests: usize,
    pub(crate) failed: usize,
    /// What the first failed request was told.
    pub(crate) failure: Option<String>,
}

/// A load that goes on until it is stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    longest: Mutex<Duration>,
    requests: AtomicUsize,
    failed: AtomicUsize,
    failure: Mutex<Option<String>>,
}

/// Starts one client a member; each request goes to the next member.
pub(crate) async fn start(cluster: &Cluster) -> Result<Load, Failure> {
    let mut clients = Vec::new();
    for i in 0..MEMBERS {
        clients.push(cluster.client(i).await?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let shared = Arc::new(Shared::default());
    let task = tokio::spawn(generate(clients, stop.clone(), shared.clone()));
    Ok(Load { stop, task, shared })
}

impl Load {
    /// Sends nothing new, waits for the answers still out, and tells what was seen.
    pub(crate) async fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        if self.task.await.is_err() {
            self.shared.failed.fetch_add(1, Ordering::Relaxed);
        }
        Seen {
            longest: *self
                .shared
                .longest
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
            requests: self.shared.requests.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Relaxed),
            failure: self
                .shared
                .failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        }
    }
}

async fn generate(clients: Vec<Client>, stop: Arc<AtomicBool>, shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut requests = JoinSet::new();
    for (n, client) in (0_u64..).zip(clients.iter().cycle()) {
        ticks.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let client = client.clone();
        let shared = shared.clone();
        requests.spawn(async move {
            let started = Instant::now();
            let result = request(client, n).await;
            let took = started.elapsed();
            shared.requests.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = result {
                shared.failed.fetch_add(1, Ordering::Relaxed);
                let mut failure = shared
                    .failure
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error.to_string());
            }
            let mut longest = shared
                .longest
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *longest = took.max(*longest);
        });
        while requests.try_join_next().is_some() {}
    }
    while requests.join_next().await.is_some() {}
}

async fn request(mut client: Client, n: u64) -> Result<(), Error> {
    let key = format!("load/{}", n % 100);
    if n.is_multiple_of(2) {
        client.put(key, "x".repeat(100), None).await.map(|_| ())
    } else {
        client.get(key, None).await.map(|_| ())
    }
}
