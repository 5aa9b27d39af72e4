//! What people and the controller manager delete, replace and get in the way of, and when.

use std::time::Duration;

use defragd::core::name;
use defragd_harness::{Cluster, Error, Etcd, Fault, Kube, KubeApi, RunningController, eventually};
use serde_json::{Value, json};

use crate::support::{
    Case, MIB, WAIT, api, controller, list, nowhere, outline, policy, rests, run, target, time,
};

const FINALIZER: &str = "defragd.dev/sweep";

/// All cases have the API server and defragd in common, each has a namespace and a cluster.
#[tokio::test]
async fn what_is_deleted_in_mid_sweep_ends_in_order() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    api.start_controller_manager().await?;
    let defragd = controller(&api).await?.start().await?;
    futures::try_join!(
        a_run_in_mid_member(&api, &defragd),
        a_policy_in_mid_sweep(&api, &defragd),
        a_target_in_mid_sweep(&api, &defragd),
        a_namespace_in_mid_sweep(&api, &defragd),
        a_namespace_whose_run_never_began(&api, &defragd),
        a_namespace_whose_cluster_died_in_mid_sweep(&api, &defragd),
    )?;
    Ok(())
}

#[tokio::test]
async fn names_are_used_again_and_by_others() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    api.start_controller_manager().await?;
    let defragd = controller(&api).await?.start().await?;
    futures::try_join!(
        another_run_of_the_same_name(&api, &defragd),
        another_policy_of_the_same_name(&api, &defragd),
        another_target_of_the_same_name(&api, &defragd),
        the_name_of_a_run_is_taken(&api, &defragd),
        two_targets_of_one_cluster(&api, &defragd),
        finished_runs_are_removed(&api, &defragd),
    )?;
    Ok(())
}

/// R77: the member in progress is the last, and the run goes when its end is known.
async fn a_run_in_mid_member(api: &KubeApi, defragd: &RunningController) -> Result<(), Error> {
    let case = Case::new(api, defragd, "run-deleted").await?;
    let cluster = proxied().await?;
    let objects = [target("demo", &cluster), run("by-hand", "demo", json!({}))];
    case.apply(&objects).await?;
    in_the_middle(&cluster).await?;

    case.delete("etcddefrags.defragd.dev", "by-hand").await?;
    let held = |run: &Value| run["metadata"]["deletionTimestamp"].is_string();
    let run = case.until("etcddefrags", "by-hand", "the deletion", held);
    let run = run.await?;
    assert_eq!(run["metadata"]["finalizers"], json!([FINALIZER]));
    set(&cluster, Fault::Pass);
    case.until_gone(&case.path("etcddefrags", "by-hand"))
        .await?;
    ended_early(&cluster).await
}

/// T61: the garbage collector deletes the policy's run, which ends after the member in progress.
async fn a_policy_in_mid_sweep(api: &KubeApi, defragd: &RunningController) -> Result<(), Error> {
    let case = Case::new(api, defragd, "policy-deleted").await?;
    let cluster = proxied().await?;
    let objects = [target("demo", &cluster), policy("gone", "demo", json!({}))];
    case.apply(&objects).await?;
    in_the_middle(&cluster).await?;
    let runs = case.runs().await?;
    assert_eq!(runs.len(), 1, "{runs:?}");
    let owner = &runs[0]["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("EtcdDefragPolicy"), &json!("gone"))
    );
    assert_eq!(
        (&owner["controller"], &owner["blockOwnerDeletion"]),
        (&json!(true), &json!(true))
    );

    case.delete("etcddefragpolicies.defragd.dev", "gone")
        .await?;
    let deleted = |runs: &[Value]| {
        runs.iter()
            .all(|run| run["metadata"]["deletionTimestamp"].is_string())
    };
    let runs = case.until_runs("the run to be deleted", deleted).await?;
    assert_eq!(runs.len(), 1, "it went in mid-member");
    set(&cluster, Fault::Pass);
    case.until_runs("the run to be gone", <[Value]>::is_empty)
        .await?;
    case.until_gone(&case.path("etcddefragpolicies", "gone"))
        .await?;
    ended_early(&cluster).await
}

/// The sweep goes on with the connection that it has.
async fn a_target_in_mid_sweep(api: &KubeApi, defragd: &RunningController) -> Result<(), Error> {
    let case = Case::new(api, defragd, "target-deleted").await?;
    let cluster = proxied().await?;
    let objects = [target("demo", &cluster), run("by-hand", "demo", json!({}))];
    case.apply(&objects).await?;
    in_the_middle(&cluster).await?;
    case.delete("etcdtargets.defragd.dev", "demo").await?;
    case.until_gone(&case.path("etcdtargets", "demo")).await?;
    set(&cluster, Fault::Pass);
    case.until_complete("by-hand").await?;
    assert_eq!(cluster.defragmentations().await?, [1.0; 3]);

    case.apply(&[run("later", "demo", json!({}))]).await?;
    let waits = |run: &Value| run["status"]["reason"] == "ClusterNotFound";
    case.until("etcddefrags", "later", "to wait for the target", waits)
        .await?;
    Ok(())
}

async fn a_namespace_in_mid_sweep(api: &KubeApi, defragd: &RunningController) -> Result<(), Error> {
    let case = Case::new(api, defragd, "namespace-deleted").await?;
    let cluster = proxied().await?;
    let objects = [target("demo", &cluster), policy("gone", "demo", json!({}))];
    case.apply(&objects).await?;
    in_the_middle(&cluster).await?;
    delete_namespace(&case).await?;
    let path = format!("/api/v1/namespaces/{}", case.namespace);
    case.watch("the namespace to be emptied", async || {
        let object = api.get(&path).await.map_err(|e| e.to_string())?;
        let object = object.unwrap_or_default();
        if object.is_null() || !object["status"]["conditions"].is_null() {
            Ok(())
        } else {
            Err(outline(&object))
        }
    })
    .await?;
    set(&cluster, Fault::Pass);
    case.until_gone(&path).await?;
    ended_early(&cluster).await
}

/// Nothing holds a namespace whose etcd cluster never answered.
async fn a_namespace_whose_run_never_began(
    api: &KubeApi,
    defragd: &RunningController,
) -> Result<(), Error> {
    let case = Case::new(api, defragd, "never-began").await?;
    let objects = [
        nowhere("demo"),
        run("by-hand", "demo", json!({})),
        run("second", "demo", json!({})),
        policy("patient", "demo", json!({})),
    ];
    case.apply(&objects).await?;
    let one_waits_for_the_other = |runs: &[Value]| {
        let queued = |run: &&Value| run["status"]["reason"] == "Queued";
        runs.iter().filter(queued).count() == 1
            && runs.iter().all(|run| run["status"]["reason"].is_string())
    };
    case.until_runs("a reason", one_waits_for_the_other).await?;
    delete_namespace(&case).await?;
    let path = format!("/api/v1/namespaces/{}", case.namespace);
    case.until_gone(&path).await
}

/// A run that cannot reach its cluster any more is let go.
async fn a_namespace_whose_cluster_died_in_mid_sweep(
    api: &KubeApi,
    defragd: &RunningController,
) -> Result<(), Error> {
    let case = Case::new(api, defragd, "cluster-died").await?;
    let cluster = proxied().await?;
    let objects = [target("demo", &cluster), run("by-hand", "demo", json!({}))];
    case.apply(&objects).await?;
    in_the_middle(&cluster).await?;
    for i in 0..cluster.members().len() {
        cluster.kill(i)?;
    }
    set(&cluster, Fault::Cut);
    delete_namespace(&case).await?;
    let path = format!("/api/v1/namespaces/{}", case.namespace);
    case.until_gone(&path).await
}

/// What the first one did is not held against the second.
async fn another_run_of_the_same_name(
    api: &KubeApi,
    defragd: &RunningController,
) -> Result<(), Error> {
    let case = Case::new(api, defragd, "run-again").await?;
    let cluster = Etcd::default().members(1).start().await?;
    let by_hand = run("by-hand", "demo", json!({}));
    case.apply(&[target("demo", &cluster), by_hand.clone()])
        .await?;
    let first = case.until_complete("by-hand").await?;
    replace(&case, &by_hand).await?;
    let second = |run: &Value| {
        run["metadata"]["uid"] != first["metadata"]["uid"] && run["status"]["phase"] == "Complete"
    };
    case.until("etcddefrags", "by-hand", "the second to end", second)
        .await?;
    assert_eq!(cluster.defragmentations().await?, [2.0]);
    Ok(())
}

/// It begins anew: with no memory of the first, and with runs of its own.
async fn another_policy_of_the_same_name(
    api: &KubeApi,
    defragd: &RunningController,
) -> Result<(), Error> {
    let case = Case::new(api, defragd, "policy-again").await?;
    let cluster = Etcd::default().members(1).start().await?;
    let again = policy("again", "demo", json!({}));
    case.apply(&[target("demo", &cluster), again.clone()])
        .await?;
    let first = case.until("etcddefragpolicies", "again", "a rest", rests);
    let first = first.await?;
    replace(&case, &again).await?;
    let again_rests =
        |policy: &Value| policy["metadata"]["uid"] != first["metadata"]["uid"] && rests(policy);
    let second = case.until("etcddefragpolicies", "again", "another rest", again_rests);
    let second = second.await?;
    let own = |runs: &[Value]| {
        runs.iter()
            .all(|run| run["metadata"]["ownerReferences"][0]["uid"] == second["metadata"]["uid"])
    };
    let runs = case.until_runs("the first one's run to go", own).await?;
    assert!(runs.len() <= 1, "{runs:?}");
    let count = cluster.defragmentations().await?[0];
    assert_eq!(count, 1.0 + runs.len() as f64, "one for each policy's run");
    Ok(())
}

/// The second is another cluster, and nothing of the first is said about it.
async fn another_target_of_the_same_name(
    api: &KubeApi,
    defragd: &RunningController,
) -> Result<(), Error> {
    let case = Case::new(api, defragd, "target-again").await?;
    let clusters = [
        Etcd::default().members(1).start().await?,
        Etcd::default().members(1).start().await?,
    ];
    let id = |target: &Value| target["status"]["clusterID"].as_str().map(str::to_owned);
    case.apply(&[target("demo", &clusters[0])]).await?;
    let known = |target: &Value| id(target).is_some();
    let first = case.until("etcdtargets", "demo", "its id", known).await?;
    replace(&case, &target("demo", &clusters[1])).await?;
    let other = |target: &Value| known(target) && id(target) != id(&first);
    case.until("etcdtargets", "demo", "the other's id", other)
        .await?;
    case.apply(&[run("by-hand", "demo", json!({}))]).await?;
    case.until_complete("by-hand").await?;
    assert_eq!(clusters[0].defragmentations().await?, [0.0]);
    assert_eq!(clusters[1].defragmentations().await?, [1.0]);
    Ok(())
}

/// A run that the policy did not make is left alone, and said to be in the way.
async fn the_name_of_a_run_is_taken(
    api: &KubeApi,
    defragd: &RunningController,
) -> Result<(), Error> {
    let case = Case::new(api, defragd, "name-taken").await?;
    let cluster = Etcd::default().members(1).start().await?;
    let quick = policy("quick", "demo", json!({ "for": "30s" }));
    case.apply(&[target("demo", &cluster), quick]).await?;
    let fires = |policy: &Value| policy["status"]["clusters"][0]["firingSince"].is_string();
    let seen = case.until("etcddefragpolicies", "quick", "to fire", fires);
    let seen = seen.await?;
    let remembered = &seen["status"]["clusters"][0];
    let name = name::of_episode(
        "quick",
        seen["metadata"]["uid"].as_str().unwrap_or_default(),
        &format!("{}/demo", case.namespace),
        time(&remembered["firingSince"]),
        None,
    );
    let foreign = run(&name, "elsewhere", json!({ "suspend": true }));
    case.apply(&[foreign]).await?;
    let refused =
        |policy: &Value| policy["status"]["clusters"][0]["decision"]["reason"] == "NameConflict";
    case.until("etcddefragpolicies", "quick", "the conflict", refused)
        .await?;
    let runs = case.runs().await?;
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(runs[0]["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(cluster.defragmentations().await?, [0.0]);

    case.delete("etcddefrags.defragd.dev", &name).await?;
    let owned =
        |runs: &[Value]| matches!(runs, [run] if run["metadata"]["ownerReferences"].is_array());
    case.until_runs("the policy's own run", owned).await?;
    case.until_complete(&name).await?;
    assert_eq!(cluster.defragmentations().await?, [1.0]);
    Ok(())
}

/// Whatever they are called: runs take turns by the id of the cluster.
async fn two_targets_of_one_cluster(
    api: &KubeApi,
    defragd: &RunningController,
) -> Result<(), Error> {
    let case = Case::new(api, defragd, "two-targets").await?;
    let cluster = proxied().await?;
    set(&cluster, Fault::Delay(Duration::from_millis(100)));
    case.apply(&[target("one", &cluster), target("two", &cluster)])
        .await?;
    for name in ["one", "two"] {
        let known = |target: &Value| target["status"]["clusterID"].is_string();
        case.until("etcdtargets", name, "its id", known).await?;
    }
    case.apply(&[run("one", "one", json!({})), run("two", "two", json!({}))])
        .await?;
    let (one, two) = futures::try_join!(case.until_complete("one"), case.until_complete("two"))?;
    let began = |run: &Value| time(&run["status"]["startedAt"]);
    let ended = |run: &Value| time(&run["status"]["completedAt"]);
    assert!(
        ended(&one) <= began(&two) || ended(&two) <= began(&one),
        "both at a time: {} and {}",
        outline(&one),
        outline(&two)
    );
    assert_eq!(cluster.defragmentations().await?, [2.0; 3]);
    Ok(())
}

/// By the policy's limit, and by the run's own time.
async fn finished_runs_are_removed(
    api: &KubeApi,
    defragd: &RunningController,
) -> Result<(), Error> {
    let case = Case::new(api, defragd, "history").await?;
    let clusters = [
        Etcd::default().members(1).start().await?,
        Etcd::default().members(1).start().await?,
    ];
    let spec = |suspend: bool| {
        policy(
            "often",
            "many",
            json!({
                "cooldown": "1s",
                "backoff": { "factor": 1, "max": "1s" },
                "historyLimit": { "successful": 1 },
                "suspend": suspend,
            }),
        )
    };
    case.apply(&[
        target("many", &clusters[0]),
        target("short", &clusters[1]),
        run("short", "short", json!({ "ttlSecondsAfterFinished": 1 })),
        spec(false),
    ])
    .await?;
    case.until_gone(&case.path("etcddefrags", "short")).await?;
    assert_eq!(clusters[1].defragmentations().await?, [1.0]);

    case.watch("four runs", async || {
        match clusters[0].defragmentations().await {
            Ok(count) if count[0] >= 4.0 => Ok(()),
            Ok(count) => Err(format!("{count:?}")),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    case.apply(&[spec(true)]).await?;
    let suspended =
        |policy: &Value| policy["status"]["clusters"][0]["decision"]["reason"] == "Suspended";
    case.until("etcddefragpolicies", "often", "to rest", suspended)
        .await?;
    let one = |runs: &[Value]| matches!(runs, [run] if run["status"]["phase"] == "Complete");
    case.until_runs("one run to be left", one).await?;
    Ok(())
}

/// Three members behind proxies.
async fn proxied() -> Result<Cluster, Error> {
    let cluster = Etcd::default().proxied().raft_log_entries(100).start();
    let cluster = cluster.await?;
    cluster.fragment(24 * MIB, 2 * MIB).await?;
    Ok(cluster)
}

/// One member has been defragmented, and what it answered has most likely not arrived.
async fn in_the_middle(cluster: &Cluster) -> Result<(), Error> {
    set(cluster, Fault::Delay(Duration::from_millis(250)));
    eventually(WAIT, "the first defragmentation", async || {
        match cluster.defragmentations().await {
            Ok(counts) if counts.iter().sum::<f64>() >= 1.0 => Ok(()),
            Ok(counts) => Err(format!("{counts:?}")),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    set(cluster, Fault::BlackHole);
    Ok(())
}

fn set(cluster: &Cluster, fault: Fault) {
    for i in 0..cluster.members().len() {
        cluster.proxy(i).set(fault);
    }
}

/// Nobody had two turns, and not everybody one.
async fn ended_early(cluster: &Cluster) -> Result<(), Error> {
    let counts = cluster.defragmentations().await?;
    assert!(
        counts.iter().all(|n| *n <= 1.0) && counts.contains(&0.0),
        "{counts:?}"
    );
    Ok(())
}

async fn delete_namespace(case: &Case<'_>) -> Result<(), Error> {
    let args = ["delete", "namespace", case.namespace, "--wait=false"];
    case.api.kubectl(&args).await.map(drop)
}

/// Deletes the object and makes another one of its name, as fast as it goes.
async fn replace(case: &Case<'_>, object: &Value) -> Result<(), Error> {
    let list = list(case.namespace, std::slice::from_ref(object));
    let args = ["replace", "--force", "-f", "-"];
    case.api
        .kubectl_with_input(&args, &list.to_string())
        .await
        .map(drop)
}
