//! An API server that is busy and says so: 429.

use std::time::Duration;

use defragd_harness::{Error, Etcd, Fault, Kube, KubeApi, TcpProxy};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{Replica, Scene, WAIT, own_api, play, run};

const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: talker, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: talker, namespace: default}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: talker, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: talker}
subjects: [{kind: ServiceAccount, name: talker, namespace: default}]
";

/// The API server takes one change at a time, and one takes very long. Nothing is begun that cannot be
/// recorded; a short while of it is borne, a long one costs the lease, and both are made up for.
#[test]
fn an_api_server_that_is_too_busy_is_waited_for() -> Result<(), Error> {
    play(async {
        let api = own_api(Kube::default().extra_args([
            "--enable-priority-and-fairness=false",
            "--max-mutating-requests-inflight=1",
        ]))
        .await?;
        let scene = Scene::set(api.clone(), "throttled", Etcd::default().proxied()).await?;
        let (a, b) = scene.replicas().await?;
        api.apply(ACCOUNT).await?;
        scene.set_members(Fault::Delay(Duration::from_millis(250)));

        let talker = Talker::begin(&api).await?;
        scene.apply(&[run("by-hand", &json!({}))]).await?;
        until_refused(&scene, &a, 1).await?;
        assert_eq!(scene.cluster.defragmentations().await?, [0.0; 3]);
        talker.end().await;
        scene.until_finished(1.0).await?;
        assert_eq!(
            scene.leader().await?.as_deref(),
            Some("a"),
            "it was a short while"
        );

        let talker = Talker::begin(&api).await?;
        scene
            .until(WAIT, "the leader to lose its lease", async || {
                let log = a.process.logged();
                log.contains("no longer leading").then_some(()).ok_or(log)
            })
            .await?;
        let before: f64 = scene.cluster.defragmentations().await?.iter().sum();
        assert!(before < 3.0, "the run was to be interrupted");
        talker.end().await;
        let done = scene.until_complete().await?;
        assert_eq!(
            scene.cluster.defragmentations().await?,
            [1.0; 3],
            "{done:#}"
        );
        let refused = refused(&scene, &a)? + refused(&scene, &b)?;
        println!("writes that were answered with 429: {refused}");
        a.check()?;
        b.check()
    })
}

fn refused(scene: &Scene, replica: &Replica) -> Result<usize, Error> {
    let writes = replica.writes(&scene.api)?;
    Ok(writes.iter().filter(|write| write.code == 429).count())
}

async fn until_refused(scene: &Scene, replica: &Replica, wanted: usize) -> Result<(), Error> {
    scene
        .until(WAIT, "a write to be refused", async || {
            match refused(scene, replica) {
                Ok(count) if count >= wanted => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
}

/// Somebody who says a large thing slowly: while the API server listens it has no ear for others.
struct Talker {
    proxy: TcpProxy,
    talking: JoinHandle<()>,
}

impl Talker {
    /// Returns when the API server listens.
    async fn begin(api: &KubeApi) -> Result<Self, Error> {
        /// Longer than a lease; the piece that goes through a proxy at once is 64 KiB.
        const PAUSE: Duration = Duration::from_secs(3);
        const SIZE: usize = 900 << 10;
        let token = api.service_account_token("default", "talker").await?;
        let (proxy, _) = api.proxied_kubeconfig(&token, "default").await?;
        let ca = std::fs::read(api.ca()).expect("the authority is there");
        let ca = reqwest::Certificate::from_pem(&ca).expect("it is a certificate");
        let http = reqwest::Client::builder()
            .tls_certs_only([ca])
            .build()
            .expect("a client can be built");
        let url = format!("https://{}", proxy.address());
        // The connection is made before everything takes long.
        let version = http.get(format!("{url}/version")).send().await;
        assert!(version.is_ok(), "{version:?}");
        proxy.set(Fault::Delay(PAUSE));
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "generateName": "long-" },
            "data": { "said": "x".repeat(SIZE) },
        });
        let request = http
            .post(format!("{url}/api/v1/namespaces/default/configmaps"))
            .bearer_auth(token)
            .header("content-type", "application/json")
            .body(object.to_string());
        let talking = tokio::spawn(async move {
            // However it is answered: that it was listened to is all that counts.
            let _ = request.send().await;
        });
        Ok(Self { proxy, talking })
    }

    /// Says the rest at once.
    async fn end(self) {
        self.proxy.set(Fault::Pass);
        let _ = self.talking.await;
    }
}
