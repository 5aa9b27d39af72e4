//! Filling a database, and making holes in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{CompactionOptions, DeleteOptions};
use tokio::task::JoinSet;

use super::Cluster;
use crate::{Error, eventually};

/// etcd takes requests up to 1.5 MiB.
const LARGEST: u64 = 1 << 20;
const SMALLEST: u64 = 4 << 10;
/// Enough to keep the leader's disk busy, few enough that raft never lags by thousands.
const WRITERS: usize = 8;
/// How long all members may take to show what was written and compacted.
const SHOWN: Duration = Duration::from_secs(60);

impl Cluster {
    /// Writes keys `fill/…` until `bytes_total` of values of `value_size` are stored. Returns how
    /// many. Keys of an earlier call are written again.
    ///
    /// # Errors
    /// When the cluster does not take one, a full one for example.
    pub async fn fill(&self, bytes_total: u64, value_size: usize) -> Result<u64, Error> {
        self.fill_under("fill", bytes_total, value_size).await
    }

    async fn fill_under(&self, prefix: &str, total: u64, value_size: usize) -> Result<u64, Error> {
        let leader = self.leader().await?;
        let count = total.div_ceil(value_size as u64);
        let next = Arc::new(AtomicU64::new(0));
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let mut client = self.guarded(leader).await?;
            let (next, prefix) = (Arc::clone(&next), prefix.to_owned());
            writers.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return Ok(());
                    }
                    client
                        .put(key(&prefix, n), vec![b'x'; value_size], None)
                        .await?;
                }
            });
        }
        while let Some(written) = writers.join_next().await {
            written
                .map_err(|e| Error::io("run a writer", e.into()))?
                .map_err(self.member(leader).failed("put a key"))?;
        }
        Ok(count)
    }

    /// Makes every running member's file about `total_bytes` large with about `live_bytes` of it in
    /// use: writes values, deletes most, compacts, and waits until all members show it. Returns
    /// when a defragmentation would give back the rest.
    ///
    /// # Errors
    /// When the cluster does not take the writes, or a member does not show the result in time.
    pub async fn fragment(&self, total_bytes: u64, live_bytes: u64) -> Result<(), Error> {
        let value_size = (total_bytes / 64).clamp(SMALLEST, LARGEST);
        // usize is enough for a mebibyte on every machine.
        self.fill_under("fragment", total_bytes, value_size as usize)
            .await?;
        let leader = self.leader().await?;
        let mut client = self.guarded(leader).await?;
        let first_dead = key("fragment", live_bytes.div_ceil(value_size));
        let deleted = client
            .delete(
                first_dead,
                Some(DeleteOptions::new().with_range("fragment0")),
            )
            .await
            .map_err(self.member(leader).failed("delete keys"))?;
        let revision = deleted
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision);
        client
            .compact(revision, Some(CompactionOptions::new().with_physical()))
            .await
            .map_err(self.member(leader).failed("compact"))?;
        // The answer says that the leader has freed the pages; the others do it on their own. Both
        // show it only after later commits, so give them something to commit.
        let dead = total_bytes.saturating_sub(live_bytes);
        let wanted = dead - dead / 8;
        eventually(
            SHOWN,
            format!("every running member to have {wanted} bytes free"),
            async || {
                client
                    .put("fragment-shown", "", None)
                    .await
                    .map_err(|e| e.to_string())?;
                let running = self
                    .members()
                    .iter()
                    .enumerate()
                    .filter(|(_, m)| m.pid().is_some());
                for (i, member) in running {
                    let sizes = self.status(i).await.map_err(|e| e.to_string())?.sizes;
                    if sizes.free() < wanted {
                        return Err(format!("{} has {sizes:?}", member.name()));
                    }
                }
                Ok(())
            },
        )
        .await
    }
}

/// Of one length, so that the order of the keys is the order of the numbers.
fn key(prefix: &str, n: u64) -> String {
    format!("{prefix}/{n:08}")
}
