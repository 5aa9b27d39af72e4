//! What a watch is told of has been compacted away.

use defragd_harness::{Error, Etcd, Fault, Kube};
use serde_json::json;

use crate::support::{Scene, WAIT, own_api, play, policy, target};

/// 410: everything is listed again, and what was changed and deleted meanwhile shows.
#[test]
fn a_watch_that_has_expired_begins_anew() -> Result<(), Error> {
    play(async {
        // Its watch cache would remember what its etcd has forgotten.
        let api = own_api(Kube::default().extra_args(["--watch-cache=false"])).await?;
        let scene = Scene::set(api.clone(), "expired", Etcd::default().members(1)).await?;
        let a = scene.replica("a", &[]).await?;
        let quiet = json!({ "signal": { "probe": { "rule": { "freeSpaceAbove": "1Ti" } } } });
        let names = ["stays", "changes", "goes"];
        let policies = names.map(|name| policy(name, &quiet));
        let endpoints = scene.cluster.endpoints();
        scene
            .apply(&[&policies[..], &[target("other", &endpoints)]].concat())
            .await?;
        for name in names {
            scene.until_decided(name, "SignalNotFiring").await?;
        }
        let known = async |kind: &str| {
            let name = format!("defragd_objects{{kind=\"{kind}\"}}");
            a.process.metric(&name).await.map_err(|e| e.to_string())
        };
        assert_eq!(known("etcddefragpolicies").await, Ok(Some(3.0)));
        assert_eq!(known("etcdtargets").await, Ok(Some(2.0)));

        a.proxy.set(Fault::Cut);
        let namespace = ["--namespace", "expired"];
        let delete = async |object| {
            let words = ["delete", object];
            api.kubectl(&[&words[..], &namespace].concat()).await
        };
        delete("defragpolicy/goes").await?;
        delete("etcdtarget/other").await?;
        let path = format!("{}/changes", scene.path("etcddefragpolicies"));
        api.patch(&path, &json!({ "spec": { "suspend": true } }))
            .await?;
        scene.apply(&[policy("comes", &quiet)]).await?;
        compact(&api).await?;
        a.proxy.set(Fault::Pass);

        scene
            .until(WAIT, "the watch to begin anew", async || {
                let log = a.process.logged();
                let said = log.contains("the watch was too old, everything is listed again");
                let seen = (
                    known("etcddefragpolicies").await?,
                    known("etcdtargets").await?,
                );
                if said && seen == (Some(3.0), Some(1.0)) {
                    Ok(())
                } else {
                    Err(format!("{said}, {seen:?}"))
                }
            })
            .await?;
        scene.until_decided("changes", "Suspended").await?;
        scene.until_decided("comes", "SignalNotFiring").await?;
        let stored = scene.object("etcddefragpolicies", "changes").await?;
        assert_eq!(
            stored["status"]["observedGeneration"], stored["metadata"]["generation"],
            "{stored:#}"
        );
        a.check()
    })
}

/// Makes the etcd behind the API server forget everything but what there is now.
async fn compact(api: &defragd_harness::KubeApi) -> Result<(), Error> {
    let etcd = api.own_etcd().expect("this API server has its own");
    let revision = etcd.status(0).await?.revision.to_string();
    let done = etcd.etcdctl(&["compact", "--physical", &revision]).await?;
    assert!(done.status.success(), "{done:?}");
    Ok(())
}
