//! Runs that the leader may not read any more, while it may still write.

use std::time::Duration;

use defragd_harness::{Error, Etcd};
use serde_json::{Value, json};

use crate::support::{Scene, play, policy, run, shared_api};

/// Longer than what was seen last is good for, and a busy machine.
const TOO_OLD: Duration = Duration::from_secs(240);

/// T51, T54: what others made meanwhile is not known, so nothing is made beside it.
#[test]
fn nothing_is_made_while_the_runs_cannot_be_read() -> Result<(), Error> {
    play(async {
        let etcd = Etcd::default().members(1);
        let scene = Scene::set(shared_api().await?, "unread", etcd).await?;
        let a = scene.replica("a", &[]).await?;
        scene.until_leader("a", TOO_OLD).await?;
        let quiet = json!({ "signal": { "probe": { "rule": { "freeSpaceAbove": "1Ti" } } } });
        scene.apply(&[policy("p", &quiet)]).await?;
        scene.until_decided("p", "SignalNotFiring").await?;

        let rights = take_away(&scene).await?;
        // The watch that was begun before goes on for a minute.
        scene
            .until(TOO_OLD, "what is known to be too old", async || {
                let seen = scene.remembered("p").await.map_err(|e| e.to_string())?;
                let decision = &seen["decision"];
                let message = decision["message"].as_str().unwrap_or_default();
                if decision["reason"] == "RunsUnreadable" && message.contains("forbidden") {
                    Ok(())
                } else {
                    Err(seen.to_string())
                }
            })
            .await?;
        let path = format!("{}/p", scene.path("etcddefragpolicies"));
        let fires = json!({ "spec": { "signal": { "probe": { "rule": {
            "freeSpaceAbove": null, "all": true,
        } } } } });
        scene.api.patch(&path, &fires).await?;
        let by_hand = json!({ "suspend": true });
        scene.apply(&[run("by-hand", &by_hand)]).await?;
        scene
            .until(TOO_OLD, "the signal to fire", async || {
                let seen = scene.remembered("p").await.map_err(|e| e.to_string())?;
                seen["firingSince"]
                    .is_string()
                    .then_some(())
                    .ok_or(seen.to_string())
            })
            .await?;
        scene.until_renewed(3).await?;
        scene.until_decided("p", "RunsUnreadable").await?;
        assert_eq!(scene.runs().await?.len(), 1, "only the one by hand");

        // It may be read again: the one by hand is seen, and waited for.
        let role = json!({ "rules": rights });
        scene.api.patch(&role_of("unread"), &role).await?;
        scene.until_decided("p", "ClusterBusy").await?;
        let delete = ["delete", "defrag/by-hand", "--namespace=unread"];
        scene.api.kubectl(&delete).await?;
        scene.until_complete().await?;
        let log = a.process.logged();
        let told = log.lines().filter(|line| line.contains("unable to watch"));
        assert!(told.count() < 5, "each failure is told once: {log}");
        a.check()
    })
}

fn role_of(namespace: &str) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/a-defragd")
}

/// Takes the right to list and watch runs from the replica, and returns the rules as they were.
async fn take_away(scene: &Scene) -> Result<Value, Error> {
    let path = role_of("unread");
    let role = scene.api.get(&path).await?.unwrap_or_default();
    let rights = role["rules"].clone();
    let mut without = rights.clone();
    for rule in without.as_array_mut().into_iter().flatten() {
        let resources = rule["resources"].as_array().cloned().unwrap_or_default();
        let reads = rule["verbs"]
            .as_array()
            .is_some_and(|verbs| verbs.contains(&json!("watch")));
        if rule["apiGroups"] == json!(["defragd.dev"]) && reads {
            let others = resources.iter().filter(|name| **name != "etcddefrags");
            rule["resources"] = others.cloned().collect();
        }
    }
    assert_ne!(without, rights);
    scene.api.patch(&path, &json!({ "rules": without })).await?;
    Ok(rights)
}
