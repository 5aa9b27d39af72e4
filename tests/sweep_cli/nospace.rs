//! Full clusters.

use std::time::Duration;

use defragd_harness::{Error, Etcd, eventually};

use crate::running::{MIB, defragmentations, sweep};

/// R38, R39, R41: NOSPACE admits the sweep and is disarmed after it.
#[tokio::test]
async fn nospace_is_swept_away_and_disarmed() -> Result<(), Error> {
    let cluster = Etcd::default().quota_bytes(24 << 20).start().await?;
    let full = cluster.fill(48 * MIB, 512 << 10).await;
    assert!(matches!(full, Err(Error::Etcd { .. })), "{full:?}");
    eventually(Duration::from_secs(10), "the alarm", async || {
        cluster
            .alarms()
            .await
            .is_ok_and(|alarms| !alarms.is_empty())
    })
    .await?;

    // Full and not fragmented: no defragmentation helps, and the alarm stays.
    let advice = ["--quota-usage-above", "80%", "--output", "json"];
    let object = sweep(&cluster, &advice).await.object();
    assert_eq!(object["status"]["defragmented"], 0, "{object:#}");
    assert!(!cluster.alarms().await?.is_empty());
    assert_eq!(defragmentations(&cluster).await?, [0.0; 3]);

    // Deletes and compactions pass a NOSPACE alarm. What they free is reported by later commits
    // only, so there are a few more deletes.
    cluster.etcdctl(&["del", "fill/00000010", "fill0"]).await?;
    let revision = cluster.client(0).await?.status().await.ok();
    let revision = revision
        .as_ref()
        .and_then(|s| s.header())
        .map_or(0, |header| header.revision());
    cluster
        .etcdctl(&["compact", "--physical", &revision.to_string()])
        .await?;
    let mut next = 0;
    eventually(
        Duration::from_secs(20),
        "8 MiB to give back everywhere",
        async || {
            cluster
                .etcdctl(&["del", &format!("fill/{next:08}")])
                .await
                .map_err(|e| e.to_string())?;
            next += 1;
            let sizes = cluster.sizes().await.map_err(|e| e.to_string())?;
            if sizes.iter().all(|s| s.free() > 8 * MIB) {
                Ok(())
            } else {
                Err(format!("{sizes:?}"))
            }
        },
    )
    .await?;
    let flags = ["--free-space-above", "8Mi", "--output", "json"];
    let ran = sweep(&cluster, &flags).await.expect(0).says("is disarmed");
    let object = ran.object();
    assert_eq!(object["status"]["defragmented"], 3);
    let disarmed = object["status"]["alarmsDisarmed"]
        .as_array()
        .expect("alarms");
    assert!(
        !disarmed.is_empty() && disarmed.iter().all(|alarm| alarm["gone"] == true),
        "{object:#}"
    );
    assert!(cluster.alarms().await?.is_empty());
    cluster.put("again", "written").await
}

/// R32: a full file without free pages is left alone, with the right advice.
#[tokio::test]
async fn a_full_unfragmented_cluster_is_left_alone() -> Result<(), Error> {
    let cluster = Etcd::default().quota_bytes(48 << 20).start().await?;
    cluster.fill(32 * MIB, 1 << 20).await?;
    eventually(
        Duration::from_secs(20),
        "every member to be more than half full",
        async || {
            let sizes = cluster.sizes().await.map_err(|e| e.to_string())?;
            if sizes.iter().all(|s| s.db > 25 * MIB) {
                Ok(())
            } else {
                Err(format!("{sizes:?}"))
            }
        },
    )
    .await?;
    let ran = sweep(&cluster, &["--quota-usage-above", "50%"])
        .await
        .expect(0);
    ran.says("complete (NothingDue)")
        .says("full but not fragmented")
        .says("raise the quota, delete keys");
    assert_eq!(defragmentations(&cluster).await?, [0.0; 3]);
    Ok(())
}
