//! Healthy clusters of every version.

use defragd_harness::{Error, Etcd, EtcdVersion};

use crate::running::{MIB, defragmentations, delete_filled, reason, sweep};

/// A dry run that changes nothing, a sweep, and a second one with nothing to do.
async fn plain_sweep(version: EtcdVersion) -> Result<(), Error> {
    let cluster = Etcd::version(version).start().await?;
    cluster.fragment(40 * MIB, 4 * MIB).await?;
    let (before, leader, term) = (
        cluster.sizes().await?,
        cluster.leader().await?,
        cluster.term().await?,
    );

    let flags = ["--free-space-above", "16Mi", "--output", "json"];
    let dry = sweep(&cluster, &[&flags[..], &["--dry-run"]].concat())
        .await
        .expect(0)
        .object();
    assert_eq!(
        (&dry["status"]["phase"], reason(&dry)),
        (&"Complete".into(), "DryRun")
    );
    assert_eq!(defragmentations(&cluster).await?, [0.0; 3]);
    assert_eq!(
        (cluster.leader().await?, cluster.term().await?),
        (leader, term)
    );

    let object = sweep(&cluster, &flags).await.expect(0).object();
    assert_eq!(object["apiVersion"], "defragd.dev/v1alpha1");
    assert_eq!(object["kind"], "EtcdDefrag");
    assert_eq!(object["metadata"]["name"], "sweep");
    assert_eq!(object["spec"]["rule"]["freeSpaceAbove"], "16Mi");
    let status = &object["status"];
    assert_eq!(
        (&status["phase"], reason(&object)),
        (&"Complete".into(), "SweepComplete")
    );
    assert_eq!(status["defragmented"], 3);
    assert_eq!(status["clusterID"], format!("{:x}", cluster.id()));
    assert!(
        status["reclaimedBytes"].as_u64() > Some(3 * 28 * MIB),
        "{status:#}"
    );
    assert_eq!(
        defragmentations(&cluster).await?,
        [1.0; 3],
        "each member once"
    );
    for (before, after) in before.iter().zip(cluster.sizes().await?) {
        assert!(after.db < before.db / 2, "{before:?} → {after:?}");
    }

    // R03: leadership moved once, to a member that was done; the leader came last.
    assert_ne!(cluster.leader().await?, leader);
    assert_eq!(
        cluster.term().await?,
        term + 1,
        "no term but the transfer's"
    );
    let old_leader = format!("{:x}", cluster.member(leader).id());
    let transfers = status["leaderTransfers"].as_array().expect("transfers");
    assert_eq!(transfers.len(), 1);
    assert_eq!(
        (&transfers[0]["from"], &transfers[0]["outcome"]),
        (&old_leader.clone().into(), &"Done".into())
    );
    let members = status["members"].as_array().expect("members");
    let last = members
        .iter()
        .max_by_key(|m| m["startedAt"].as_str())
        .expect("three members");
    assert_eq!(last["memberID"], old_leader);
    for member in members {
        assert_eq!(
            (&member["outcome"], &member["attempts"]),
            (&"Defragmented".into(), &1.into())
        );
        assert!(
            member["dbSizeAfter"].as_u64() < member["dbSizeBefore"].as_u64(),
            "{member:#}"
        );
    }
    for condition in status["conditions"].as_array().expect("conditions") {
        assert_eq!(condition["status"], "True", "{condition:#}");
        assert_eq!(condition["observedGeneration"], 1);
    }

    // R31: nothing to give back, nothing is touched.
    let again = sweep(&cluster, &["--free-space-above", "16Mi"])
        .await
        .expect(0);
    again
        .says("complete (NothingDue)")
        .says("OUTCOME")
        .says("not more than freeSpaceAbove 16 MiB");
    assert_eq!(defragmentations(&cluster).await?, [1.0; 3]);
    Ok(())
}

#[tokio::test]
async fn sweeps_etcd_3_4() -> Result<(), Error> {
    plain_sweep(EtcdVersion::V3_4).await
}

#[tokio::test]
async fn sweeps_etcd_3_5() -> Result<(), Error> {
    plain_sweep(EtcdVersion::V3_5).await
}

#[tokio::test]
async fn sweeps_etcd_3_6() -> Result<(), Error> {
    plain_sweep(EtcdVersion::V3_6).await
}

#[tokio::test]
async fn sweeps_etcd_3_7() -> Result<(), Error> {
    plain_sweep(EtcdVersion::V3_7).await
}

/// The leader's modes, a compaction and a CEL rule, on one cluster.
#[tokio::test]
async fn leader_modes_compaction_and_expressions() -> Result<(), Error> {
    let cluster = Etcd::default().start().await?;
    let (leader, term) = (cluster.leader().await?, cluster.term().await?);
    let leader_id = format!("{:x}", cluster.member(leader).id());

    // R05: told, not silently left out.
    let skipping = [
        "--rule",
        "dbSize > 0",
        "--leader",
        "skip",
        "--output",
        "json",
    ];
    let object = sweep(&cluster, &skipping).await.expect(0).object();
    let members = object["status"]["members"].as_array().expect("members");
    let skipped = members
        .iter()
        .find(|m| m["memberID"] == leader_id)
        .expect("the leader");
    assert_eq!(
        (&skipped["outcome"], &skipped["reason"]),
        (&"Skipped".into(), &"LeaderSkipped".into())
    );
    assert_eq!(object["status"]["defragmented"], 2);

    // R29: deleted values are given back only when the compaction is physical.
    cluster.fill(12 * MIB, 256 << 10).await?;
    delete_filled(&cluster).await?;
    let in_place = [
        "--rule",
        "all",
        "--leader",
        "inplace",
        "--keep-revisions",
        "1",
        "--output",
        "json",
    ];
    let object = sweep(&cluster, &in_place).await.expect(0).object();
    assert_eq!(object["status"]["compaction"]["state"], "Done");
    assert_eq!(object["status"]["defragmented"], 3);
    assert!(object["status"].get("leaderTransfers").is_none());
    for sizes in cluster.sizes().await? {
        assert!(sizes.db < 4 * MIB, "{sizes:?}");
    }
    assert_eq!(
        (cluster.leader().await?, cluster.term().await?),
        (leader, term),
        "nothing moved"
    );

    // On a cluster where nobody writes, members show what a compaction freed only when something
    // commits: the sweep sees to that, or it would find nothing due here.
    cluster.fill(16 * MIB, 256 << 10).await?;
    for n in 0..8 {
        let (from, to) = (format!("fill/0000000{n}"), format!("fill/0000000{}", n + 1));
        let keys = match n {
            0 => ["del", "fill/00000008", "fill0"],
            _ => ["del", &from, &to],
        };
        let output = cluster.etcdctl(&keys).await?;
        assert!(output.status.success(), "{output:?}");
    }
    let compacting = [
        "--free-space-above",
        "8Mi",
        "--keep-revisions",
        "1",
        "--output",
        "json",
    ];
    let object = sweep(&cluster, &compacting).await.expect(0).object();
    assert_eq!(object["status"]["defragmented"], 3, "{object:#}");
    Ok(())
}
