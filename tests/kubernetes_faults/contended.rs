//! Others write to the same objects all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use defragd_harness::{Error, Etcd, KubeApi};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Scene, WAIT, members, play, policy, run, shared_api};

/// Every status is written on the condition that the object is as it was known, and it hardly ever is:
/// somebody writes labels and annotations of run, policy and target without a pause, and now and then
/// their specs. Everything is recorded all the same, and nothing of what others wrote is lost.
#[test]
fn others_write_to_the_same_objects_without_a_pause() -> Result<(), Error> {
    play(async {
        let api = shared_api().await?;
        let scene = Scene::set(api.clone(), "contended", Etcd::default()).await?;
        let a = scene.replica("a", &[]).await?;
        scene.until_leader("a", WAIT).await?;
        scene
            .apply(&[
                policy("busy", &json!({ "suspend": true })),
                run("by-hand", &json!({ "suspend": true })),
            ])
            .await?;
        scene.until_decided("busy", "Suspended").await?;
        let path = |kind: &str, name: &str| format!("{}/{name}", scene.path(kind));
        let writers = [
            Writer::begin(
                &api,
                path("etcddefragpolicies", "busy"),
                |n| json!({ "historyLimit": { "successful": 3 + n % 2 } }),
            ),
            Writer::begin(
                &api,
                path("etcddefrags", "by-hand"),
                |n| json!({ "ttlSecondsAfterFinished": 86_400 + n % 2 }),
            ),
            Writer::begin(
                &api,
                path("etcdtargets", "demo"),
                |n| json!({ "quotaBytes": 2_147_483_648_u64 + (n % 2) * 1024 }),
            ),
        ];
        // The run of somebody else first, then the policy's own.
        let began = Instant::now();
        let go_on = json!({ "spec": { "suspend": false } });
        api.patch(&path("etcddefrags", "by-hand"), &go_on).await?;
        let complete = |run: &Value| run["status"]["phase"] == "Complete";
        scene
            .until_runs("the run to be complete", |runs| runs.iter().all(complete))
            .await?;
        println!("the run was complete after {:.1?}", began.elapsed());
        let go_on = json!({ "spec": { "suspend": false, "cooldown": "1s", "backoff": { "minReclaim": "1" } } });
        api.patch(&path("etcddefragpolicies", "busy"), &go_on)
            .await?;
        let runs = scene
            .until_runs("the policy's run to be complete", |runs| {
                runs.len() == 2 && runs.iter().all(complete)
            })
            .await?;
        println!(
            "the policy's run was complete after {:.1?}",
            began.elapsed()
        );
        let pause = json!({ "spec": { "suspend": true } });
        api.patch(&path("etcddefragpolicies", "busy"), &pause)
            .await?;
        // What is stored when the run is complete may be older than the run.
        scene
            .until(WAIT, "the run to be remembered", async || {
                let seen = scene.remembered("busy").await.map_err(|e| e.to_string())?;
                let last = &seen["lastRun"];
                if last["own"] == true && seen["decision"]["reason"] == "Suspended" {
                    Ok(())
                } else {
                    Err(seen.to_string())
                }
            })
            .await?;
        // Target and policy go on being written, because their specs go on changing.
        let statuses = ["etcddefrags", "etcddefragpolicies", "etcdtargets"];
        scene
            .until(WAIT, "a conflict on the status of each kind", async || {
                let writes = a.writes(&api).map_err(|e| e.to_string())?;
                let met = |kind: &&str| {
                    let refused = writes.iter().filter(|write| write.code == 409);
                    refused.clone().any(|write| write.is_of_status(kind))
                };
                if statuses.iter().all(met) {
                    Ok(())
                } else {
                    Err(format!("{writes:?}"))
                }
            })
            .await?;

        for writer in writers {
            let (path, written) = (writer.path.clone(), writer.end().await?);
            println!("{path}: {written:?}");
            let object = api.get(&path).await?.unwrap_or_default();
            assert_eq!(
                object["metadata"]["annotations"]["noise"], written.last,
                "{object:#}"
            );
            assert_eq!(
                object["metadata"]["labels"]["noise"], written.last,
                "{object:#}"
            );
        }
        let remembered = scene.remembered("busy").await?;
        assert_eq!(
            remembered["lastRun"]["outcome"], "Complete",
            "{remembered:#}"
        );
        assert_eq!(remembered["lastRun"]["own"], true, "{remembered:#}");
        let runs_now = scene.runs().await?;
        assert_eq!(runs_now.len(), 2, "{runs_now:#?}");
        for run in &runs {
            assert!(
                members(run).all(|m| m["outcome"] == "Defragmented" && m["attempts"] == 1),
                "{run:#}"
            );
        }
        assert_eq!(scene.cluster.defragmentations().await?, [2.0; 3]);
        let writes = a.writes(&api)?;
        let refused = writes.iter().filter(|write| write.code == 409).count();
        println!("of {} writes {refused} met a conflict", writes.len());
        a.check()
    })
}

/// Somebody who writes to one object as fast as the API server takes it.
struct Writer {
    path: String,
    enough: Arc<AtomicBool>,
    writing: JoinHandle<Result<Written, Error>>,
}

#[derive(Debug)]
struct Written {
    last: String,
    #[expect(dead_code, reason = "printed")]
    per_second: f64,
}

impl Writer {
    /// `spec` tells what every hundredth write changes.
    fn begin(api: &Arc<KubeApi>, path: String, spec: fn(u64) -> Value) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let (api, stop, to) = (api.clone(), enough.clone(), path.clone());
        let writing = tokio::spawn(async move {
            let began = Instant::now();
            let mut n: u64 = 0;
            let mut last = String::new();
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                last = n.to_string();
                let noise = json!({ "noise": last });
                let mut patch = json!({ "metadata": { "annotations": noise, "labels": noise } });
                if n.is_multiple_of(100) {
                    patch["spec"] = spec(n / 100);
                }
                api.patch(&to, &patch).await?;
            }
            Ok(Written {
                last,
                per_second: n as f64 / began.elapsed().as_secs_f64(),
            })
        });
        Self {
            path,
            enough,
            writing,
        }
    }

    async fn end(self) -> Result<Written, Error> {
        self.enough.store(true, Ordering::Relaxed);
        self.writing.await.expect("a writer does not panic")
    }
}
