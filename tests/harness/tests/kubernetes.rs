//! The harness itself, on a real Kubernetes API server.

use std::time::Duration;

use defragd_harness::{Error, Etcd, Fault, Kube, KubeApi, Tls, eventually};

const SECONDS: Duration = Duration::from_secs(20);

const CONFIG_MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: default}
data: {key: value}
";
const KEPT: &str = "/api/v1/namespaces/default/configmaps/kept";

const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: default}
";

fn config_map(name: &str, metadata: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: default{metadata}}}}}"
    )
}

#[tokio::test]
async fn an_api_server_is_frozen_woken_and_restarted_with_its_objects() -> Result<(), Error> {
    let api = KubeApi::start().await?;
    let namespaces = api.kubectl(&["get", "namespaces", "-o", "name"]).await?;
    assert!(namespaces.contains("namespace/default"), "{namespaces}");
    let version = api.kubectl(&["version"]).await?;
    assert!(version.contains("Server Version: v1.34.4"), "{version}");
    api.apply(CONFIG_MAP).await?;
    let before = api.get(KEPT).await?.expect("it was just applied");
    assert_eq!(before["data"]["key"], "value");

    api.pause()?;
    let limit = Duration::from_secs(1);
    let silent = tokio::time::timeout(limit, api.page("/readyz")).await;
    assert!(silent.is_err(), "{silent:?}");
    api.resume()?;
    eventually(SECONDS, "an answer", async || api.page("/readyz").await).await?;

    api.restart().await?;
    assert_eq!(api.get(KEPT).await?, Some(before.clone()));
    api.stop_api_server().await?;
    assert!(api.get(KEPT).await.is_err());
    api.start_api_server().await?;
    assert_eq!(api.get(KEPT).await?, Some(before));

    let refused = api.apply("{apiVersion: v1, kind: ConfigMap}").await;
    let message = refused.expect_err("it has no name").to_string();
    assert!(
        message.contains("kubectl apply -f - ended with"),
        "{message}"
    );
    assert!(message.contains("name"), "{message}");
    Ok(())
}

#[tokio::test]
async fn an_account_may_what_its_rules_say_and_is_found_in_the_audit() -> Result<(), Error> {
    let api = KubeApi::start().await?;
    api.apply(ACCOUNT).await?;
    api.apply(CONFIG_MAP).await?;
    let token = api.service_account_token("default", "nobody").await?;
    let nobody = api.kubeconfig_for_token(&token, "default")?;
    let look = ["get", "configmap", "kept", "-o", "jsonpath={.data.key}"];
    let refused = api.kubectl_as(&nobody, &look).await;
    let message = refused.expect_err("no rule allows it").to_string();
    let user = "system:serviceaccount:default:nobody";
    assert!(
        message.contains("Forbidden") && message.contains(user),
        "{message}"
    );

    let role = [
        "create",
        "role",
        "look",
        "--verb=get",
        "--resource=configmaps",
    ];
    api.kubectl(&role).await?;
    let to = ["--role=look", "--serviceaccount=default:nobody"];
    api.kubectl(&[&["create", "rolebinding", "look"], &to[..]].concat())
        .await?;
    let allowed = eventually(SECONDS, "the binding to count", async || {
        api.kubectl_as(&nobody, &look).await
    });
    assert_eq!(allowed.await?, "value");

    let codes: Vec<_> = api
        .audit()?
        .into_iter()
        .filter(|event| event["user"]["username"] == user && event["verb"] == "get")
        .filter(|event| event["objectRef"]["name"] == "kept")
        .map(|event| event["responseStatus"]["code"].clone())
        .collect();
    assert_eq!(codes.first(), Some(&403.into()), "{codes:?}");
    assert_eq!(codes.last(), Some(&200.into()), "{codes:?}");
    assert!(!format!("{api:?}").contains(api.admin_token()));
    Ok(())
}

#[tokio::test]
async fn what_lost_its_owner_is_collected_and_a_namespace_goes_with_all_in_it() -> Result<(), Error>
{
    let api = Kube::default().with_controller_manager().start().await?;
    api.apply(CONFIG_MAP).await?;
    let owner = api.get(KEPT).await?.expect("it was just applied");
    let uid = &owner["metadata"]["uid"];
    let references =
        format!(", ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: kept, uid: {uid}}}]");
    api.apply(&config_map("owned", &references)).await?;
    api.kubectl(&["delete", "configmap", "kept"]).await?;
    api.wait_until_gone("/api/v1/namespaces/default/configmaps/owned")
        .await?;

    api.kubectl(&["create", "namespace", "short"]).await?;
    api.kubectl(&["create", "configmap", "in-it", "--namespace=short"])
        .await?;
    api.kubectl(&["delete", "namespace", "short", "--wait=false"])
        .await?;
    api.wait_until_gone("/api/v1/namespaces/short").await?;

    api.kubectl(&["create", "deployment", "web", "--image=none"])
        .await?;
    api.wait_for(
        "/api/v1/namespaces/default/pods?labelSelector=app=web",
        |pods| pods["items"][0]["status"]["phase"] == "Pending",
    )
    .await?;
    let ended = api.stop_controller_manager().await?;
    assert!(ended.is_some());
    api.start_controller_manager().await
}

#[tokio::test]
async fn a_proxy_cuts_off_those_behind_it_and_nobody_else() -> Result<(), Error> {
    let api = KubeApi::start().await?;
    let (proxy, kubeconfig) = api
        .proxied_kubeconfig(api.admin_token(), "kube-system")
        .await?;
    let ask = ["get", "configmaps", "-o", "name"];
    let seen = api.kubectl_as(&kubeconfig, &ask).await?;
    assert!(seen.contains("configmap/extension-apiserver"), "{seen}");
    let impatient = [&ask[..], &["--request-timeout=1s"]].concat();
    for fault in [Fault::Cut, Fault::BlackHole] {
        proxy.set(fault);
        assert!(api.kubectl_as(&kubeconfig, &impatient).await.is_err());
        assert_eq!(api.kubectl(&ask).await?, "");
    }
    proxy.set(Fault::Pass);
    assert_eq!(api.kubectl_as(&kubeconfig, &ask).await?, seen);
    Ok(())
}

#[tokio::test]
async fn an_api_server_works_on_a_given_cluster_with_tls() -> Result<(), Error> {
    let cluster = Etcd::default().tls(Tls::Mutual).start().await?;
    let api = Kube::default()
        .on_etcd(&cluster)
        .extra_args(["--watch-cache=false"])
        .start()
        .await?;
    assert!(api.own_etcd().is_none());
    api.apply(CONFIG_MAP).await?;
    let leader = cluster.leader().await?;
    let mut client = cluster.client(leader).await?;
    let key = "/registry/configmaps/default/kept";
    let stored = client.get(key, None).await.expect("etcd answers");
    assert_eq!(stored.count(), 1);
    Ok(())
}

#[tokio::test]
async fn helm_installs_a_chart() -> Result<(), Error> {
    let api = KubeApi::start().await?;
    let version = api.helm(&["version", "--short"]).await?;
    assert!(version.starts_with("v3.22.0"), "{version}");
    let chart = api.scratch().join("chart");
    let templates = chart.join("templates");
    std::fs::create_dir_all(&templates).expect("a folder of the test's own");
    let write = |path, text: &str| std::fs::write(path, text).expect("a file of the test's own");
    write(
        chart.join("Chart.yaml"),
        "{apiVersion: v2, name: little, version: 1.0.0, kubeVersion: '>=1.34.0'}",
    );
    write(templates.join("map.yaml"), CONFIG_MAP);
    let chart = chart.display().to_string();
    api.helm(&["template", "little", &chart]).await?;
    api.helm(&["install", "little", &chart]).await?;
    assert!(api.get(KEPT).await?.is_some());
    api.helm(&["uninstall", "little"]).await?;
    assert_eq!(api.get(KEPT).await?, None);
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_cannot_start_is_reported_with_its_log() {
    let failed = Kube::default().extra_args(["--no-such-flag"]).start().await;
    let message = failed
        .expect_err("the API server refuses an unknown flag")
        .to_string();
    assert!(message.contains("no-such-flag"), "{message}");
}
