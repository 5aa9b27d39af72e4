//! The chart's rules are enough, and none is too much: with all of them nothing that defragd asks
//! for is refused and each is used, and without any one of them something is refused.

use std::collections::BTreeSet;
use std::path::PathBuf;

use defragd_harness::{
    Cluster, Controller, Error, Etcd, Kube, KubeApi, Release, RunningController,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::play::{LOOK, Play, SILENT, foreign_kinds, metrics_api};
use crate::rights::{Right, Seen};
use crate::support::WAIT;

/// Controllers at work at the same time.
const TOGETHER: usize = 8;
const DEFRAGD: &str = env!("CARGO_BIN_EXE_defragd");

struct World {
    api: KubeApi,
    /// One for all: whoever has a policy for it only says what it would do.
    watched: Cluster,
    /// One for all that is really swept, by those whose turn it is.
    swept: Cluster,
    seen: watch::Sender<Seen>,
}

impl World {
    async fn new() -> Result<Self, Error> {
        // With the plug-in that asks for the rule about finalizers, as OpenShift has it.
        let plug_in = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
        let etcd = || Etcd::default().members(1).start();
        let kube = Kube::default().extra_args([plug_in]).start();
        let (api, watched, swept) = tokio::try_join!(kube, etcd(), etcd())?;
        for definition in foreign_kinds() {
            let list = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            api.create(list, &definition).await?;
        }
        let services = "/apis/apiregistration.k8s.io/v1/apiservices";
        api.create(services, &metrics_api()).await?;
        Ok(Self {
            api,
            watched,
            swept,
            seen: watch::Sender::new(Seen::default()),
        })
    }

    /// Reads the audit log, for ever.
    async fn look(&self) -> Result<(), Error> {
        let mut position = 0;
        loop {
            let requests = self.api.audit_since(&mut position)?;
            self.seen.send_modify(|seen| {
                for request in &requests {
                    seen.take(request);
                }
            });
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until nothing of what is wanted has still to be seen.
    async fn until_seen(&self, missing: impl Fn(&Seen) -> Vec<String>) {
        let mut seen = self.seen.subscribe();
        let all = seen.wait_for(|seen| missing(seen).is_empty());
        let in_time = tokio::time::timeout(WAIT, all).await;
        if !in_time.is_ok_and(|seen| seen.is_ok()) {
            panic!("not seen: {:?}", missing(&self.seen.borrow()));
        }
    }

    async fn rights(&self, role: &str) -> Result<Vec<Right>, Error> {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{role}");
        let role = self.api.get(&path).await?.unwrap_or_default();
        let rights = Right::of_role(&role);
        assert!(!rights.is_empty(), "{path}: {role:#}");
        Ok(rights)
    }

    fn play<'a>(&'a self, namespace: &'a str) -> Play<'a> {
        Play {
            api: &self.api,
            namespace,
            watched: self.watched.endpoints(),
            swept: self.swept.endpoints(),
        }
    }
}

#[tokio::test]
async fn every_rule_is_needed_and_nothing_else_is() -> Result<(), Error> {
    let world = World::new().await?;
    tokio::select! {
        looking = world.look() => looking,
        proven = prove(&world) => proven,
    }
}

async fn prove(world: &World) -> Result<(), Error> {
    let everywhere = everything_is_used_and_nothing_refused(world, &[], "defragd").await?;
    let own = ["own"];
    let in_namespaces = everything_is_used_and_nothing_refused(world, &own, "defragd-own").await?;
    assert_eq!(everywhere, in_namespaces, "the rules are the same");

    let cases = (0..in_namespaces.len()).map(|without| {
        let rights = &in_namespaces;
        async move { without_one(world, rights, without).await }
    });
    stream::iter(cases)
        .buffer_unordered(TOGETHER)
        .try_collect()
        .await
}

/// A release in some namespaces or, without any, in all, at work in the namespace `own`.
async fn everything_is_used_and_nothing_refused(
    world: &World,
    namespaces: &[&str],
    name: &str,
) -> Result<Vec<Right>, Error> {
    let source = json!({ "name": "main", "prometheus": { "url": SILENT } });
    let values = json!({
        "watchNamespaces": namespaces,
        "crds": { "install": namespaces.is_empty() },
        "config": { "sources": [source] },
    });
    let place = namespaces.first().copied().unwrap_or("everywhere");
    let release = Release::install(&world.api, name, place, &values).await?;
    let role = match namespaces {
        [] => format!("clusterroles/{name}"),
        _ => format!("namespaces/{place}/roles/{name}"),
    };
    let mut rights = world.rights(&role).await?;
    let lease = format!("namespaces/{place}/roles/{name}-lease");
    rights.extend(world.rights(&lease).await?);

    let user = release.user(&world.api).await?;
    let play = world.play(place);
    play.begin().await?;
    let pod = release.pod(&world.api, DEFRAGD, "defragd-0").await?;
    let defragd = pod.start().await?;
    let all_used = world.until_seen(|seen| {
        let unused = rights.iter().filter(|right| !seen.used(&user, right));
        unused.map(|right| format!("a use of {right}")).collect()
    });
    let both = async { tokio::try_join!(play.take_the_name_of_a_run(), play.fall_back_twice()) };
    tokio::select! {
        () = all_used => {}
        ended = play.keep_writing_to_a_target() => ended?,
        ended = async { both.await?; std::future::pending::<Result<(), Error>>().await } => ended?,
    }
    stop(&defragd).await?;
    let seen = world.seen.borrow();
    assert_eq!(seen.refusals(&user), Vec::<String>::new());
    let allowed: BTreeSet<Right> = rights.iter().map(Right::request).collect();
    let acts = seen.acts(&user);
    let others: Vec<&Right> = acts.difference(&allowed).collect();
    assert!(others.is_empty(), "{others:?} by no rule of the chart");
    Ok(rights)
}

async fn stop(defragd: &RunningController) -> Result<(), Error> {
    let ended = defragd.stop().await?;
    let log = defragd.log_tail();
    assert!(
        ended.is_some_and(|status| status.success()),
        "{ended:?}: {log}"
    );
    Ok(())
}

/// An account with all of the rights but one, at work in a namespace of its own.
async fn without_one(world: &World, rights: &[Right], without: usize) -> Result<(), Error> {
    let missing = &rights[without];
    let namespace = format!("without-{without}");
    let kubeconfig = account(world, &namespace, rights, missing).await?;
    let user = format!("system:serviceaccount:{namespace}:defragd");
    let play = world.play(&namespace);
    play.begin().await?;
    let defragd = Controller::new(DEFRAGD, &kubeconfig)
        .pod(&namespace, "defragd-0")
        .args(["--namespace", &namespace, "--config"])
        .args([config(world, &namespace)])
        .launch()?;
    let refused = world.until_seen(|seen| {
        let others = seen.refusals(&user);
        let refused = seen.refused(&user, missing);
        let unseen = (!refused).then(|| format!("a refusal without {missing}, but of {others:?}"));
        unseen.into_iter().collect()
    });
    let driven = async {
        match (missing.verb.as_str(), missing.resource.as_str()) {
            ("get", "etcdtargets") => play.keep_writing_to_a_target().await?,
            ("get", "etcddefrags") => play.take_the_name_of_a_run().await?,
            ("patch", "events") => play.fall_back_twice().await?,
            _ => {}
        }
        std::future::pending::<Result<(), Error>>().await
    };
    tokio::select! {
        () = refused => {}
        ended = driven => ended?,
    }
    // As the page says.
    match missing.resource.as_str() {
        "secrets" => play.target_says("with-user", "SecretUnusable").await?,
        // Everything else works: a run ends and is removed.
        "events" if missing.verb == "create" => play.run_is_removed("once").await?,
        "*" if missing.verb == "list" => play.policy_says("outside", "AuthFailed").await?,
        "*" => play.policy_says("of-pod", "AuthFailed").await?,
        "pods" if missing.verb == "list" => play.target_says("pods", "MembersUnresolved").await?,
        _ => {}
    }
    defragd.check()?;
    defragd.kill()?;
    let seen = world.seen.borrow();
    let others: Vec<String> = seen.refusals(&user);
    assert_eq!(others, [missing.request().to_string()], "without {missing}");
    Ok(())
}

fn config(world: &World, namespace: &str) -> PathBuf {
    let path = world.api.scratch().join(format!("{namespace}.yaml"));
    let text = format!("sources: [{{name: main, prometheus: {{url: '{SILENT}'}}}}]");
    std::fs::write(&path, text).expect("a file of the test's own");
    path
}

/// A namespace with the account `defragd` in it, and a kubeconfig for it.
async fn account(
    world: &World,
    namespace: &str,
    rights: &[Right],
    missing: &Right,
) -> Result<PathBuf, Error> {
    let api = &world.api;
    let named = |name: &str| json!({ "metadata": { "name": name } });
    api.create("/api/v1/namespaces", &named(namespace)).await?;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    api.create(&accounts, &named("defragd")).await?;
    let left = rights.iter().filter(|right| *right != missing);
    let mut role = named("defragd");
    role["rules"] = left.map(Right::rule).collect::<Value>();
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    api.create(&format!("{path}/roles"), &role).await?;
    let mut binding = named("defragd");
    let group = "rbac.authorization.k8s.io";
    binding["roleRef"] = json!({ "apiGroup": group, "kind": "Role", "name": "defragd" });
    let subject = json!({ "kind": "ServiceAccount", "name": "defragd", "namespace": namespace });
    binding["subjects"] = json!([subject]);
    api.create(&format!("{path}/rolebindings"), &binding)
        .await?;
    let token = api.service_account_token(namespace, "defragd").await?;
    api.kubeconfig_for_token(&token, namespace)
}
