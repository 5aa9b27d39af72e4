//! The chart's rules are enough, and none is too much: with all of them nothing that defragd asks
//! for is refused and each is used, and without any one of them something is refused.

use std::collections::BTreeSet;
use std::path::PathBuf;

use defragd_harness::{
    Cluster, Controller, Error, Etcd, Kube, KubeApi, Release, RunningController, eventually,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::delivered::{self, Deliveries};
use crate::play::{COZYSTACK, ETCD_IO, LOOK, Play, SILENT, foreign_kinds, metrics_api};
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

    /// Each right that a binding gives to this user, by name.
    async fn rights(&self, user: &str) -> Result<Vec<Right>, Error> {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let mut rights = Vec::new();
        for kind in ["clusterrolebindings", "rolebindings"] {
            let list = self.api.get(&format!("{rbac}/{kind}")).await?;
            let list = list.unwrap_or_default();
            let bindings = list["items"].as_array().into_iter().flatten();
            for binding in bindings.filter(|binding| binds(binding, user)) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let name = text(&binding["roleRef"]["name"]);
                let path = match text(&binding["roleRef"]["kind"]).as_str() {
                    "ClusterRole" => format!("{rbac}/clusterroles/{name}"),
                    _ => {
                        let namespace = text(&binding["metadata"]["namespace"]);
                        format!("{rbac}/namespaces/{namespace}/roles/{name}")
                    }
                };
                let role = self.api.get(&path).await?.unwrap_or_default();
                rights.extend(Right::of_role(&role));
            }
        }
        rights.sort();
        let twice = rights.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(!rights.is_empty() && twice.is_none(), "{user}: {twice:?}");
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

/// Whether the binding is about this user, a service account.
fn binds(binding: &Value, user: &str) -> bool {
    let subjects = binding["subjects"].as_array().into_iter().flatten();
    let names = subjects.map(|subject| {
        let part = |field: &str| subject[field].as_str().unwrap_or_default();
        let (namespace, name) = (part("namespace"), part("name"));
        format!("system:serviceaccount:{namespace}:{name}")
    });
    names.into_iter().any(|name| name == user)
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
    let (for_deliveries, others): (Vec<Right>, Vec<Right>) = in_namespaces
        .iter()
        .cloned()
        .partition(|right| right.resource == "configmaps");
    assert_eq!(everywhere, others, "the rules are the same");
    let verbs = for_deliveries.iter().map(|right| right.verb.as_str());
    assert_eq!(verbs.collect::<Vec<_>>(), ["create", "get", "update"]);

    let cases = (0..in_namespaces.len()).map(|without| {
        let rights = &in_namespaces;
        async move { without_one(world, rights, without).await }
    });
    stream::iter(cases)
        .buffer_unordered(TOGETHER)
        .try_collect()
        .await
}

/// A release in all namespaces or, with a source that is delivered to, in some.
async fn everything_is_used_and_nothing_refused(
    world: &World,
    namespaces: &[&str],
    name: &str,
) -> Result<Vec<Right>, Error> {
    let delivered = !namespaces.is_empty();
    let values = json!({
        "watchNamespaces": namespaces,
        "crds": { "install": namespaces.is_empty() },
        "config": { "sources": sources(world, delivered) },
    });
    let place = namespaces.first().copied().unwrap_or("everywhere");
    let release = Release::install(&world.api, name, place, &values).await?;
    let user = release.user(&world.api).await?;
    let rights = world.rights(&user).await?;
    let play = world.play(place);
    play.begin().await?;
    let pod = release.pod(&world.api, DEFRAGD, "defragd-0").await?;
    let defragd = pod.start().await?;
    let deliveries = match delivered {
        true => Some(Deliveries::begin(&world.api, place, &defragd).await?),
        false => None,
    };
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
    if let Some(deliveries) = &deliveries {
        deliveries.arrive().await?;
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

fn sources(world: &World, delivered: bool) -> Value {
    let asked = json!({ "name": "main", "prometheus": { "url": SILENT } });
    match delivered {
        true => json!([asked, delivered::source(&world.api)]),
        false => json!([asked]),
    }
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
    let deliveries = match missing.resource.as_str() {
        "configmaps" => Some(Deliveries::begin(&world.api, &namespace, &defragd).await?),
        _ => None,
    };
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
    as_the_page_says(&play, &defragd, missing).await?;
    is_named(world, &defragd, &namespace, missing).await?;
    if let Some(deliveries) = &deliveries {
        deliveries.are_refused(&missing.verb).await?;
        give(world, &namespace, rights).await?;
        deliveries.arrive().await?;
    }
    defragd.check()?;
    defragd.kill()?;
    let seen = world.seen.borrow();
    let others: Vec<String> = seen.refusals(&user);
    assert_eq!(others, [missing.request().to_string()], "without {missing}");
    Ok(())
}

/// Waits until what the page says of the missing right shows.
async fn as_the_page_says(
    play: &Play<'_>,
    defragd: &RunningController,
    missing: &Right,
) -> Result<(), Error> {
    let about = (missing.group.as_str(), missing.resource.as_str());
    match (about, missing.verb.as_str()) {
        ((_, "secrets"), _) => play.target_says("with-user", "SecretUnusable").await,
        // Everything else works: a run ends and is removed.
        ((_, "events"), "create") => play.run_is_removed("once").await,
        (("external.metrics.k8s.io", _), _) => play.policy_says("outside", "AuthFailed").await,
        (("custom.metrics.k8s.io", _), _) => play.policy_says("of-pod", "AuthFailed").await,
        ((_, "pods"), "list") => play.target_says("pods", "MembersUnresolved").await,
        ((COZYSTACK, _), "list") => {
            let words = missing.refusal();
            play.run_says("cozystack", "MembersUnresolved", &words)
                .await
        }
        ((ETCD_IO, _), "list") => {
            let words = missing.refusal();
            play.run_says("etcd-io", "MembersUnresolved", &words).await
        }
        // What was listed is known, and is not followed.
        ((COZYSTACK | ETCD_IO, resource), _) => {
            watch_fails(defragd, &format!("{resource}.{}", missing.group)).await
        }
        ((_, "pods"), _) => watch_fails(defragd, "pods").await,
        _ => Ok(()),
    }
}

async fn watch_fails(defragd: &RunningController, resource: &str) -> Result<(), Error> {
    let name = format!("defragd_watch_restarts_total{{kind=\"{resource}\"}}");
    eventually(WAIT, format!("{name} to count"), async || {
        match defragd.metric(&name).await {
            Ok(Some(count)) if count > 0.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Waits until the log or an object says which right is missing.
async fn is_named(
    world: &World,
    defragd: &RunningController,
    namespace: &str,
    missing: &Right,
) -> Result<(), Error> {
    let words = missing.refusal();
    eventually(WAIT, format!("somebody to say: {words}"), async || {
        let objects = world.api.defragd(namespace).await;
        let objects = objects.map_err(|e| e.to_string())?;
        let told = format!("{}{}", defragd.logged(), objects.0);
        // Quotes are quoted in both.
        if told.replace('\\', "").contains(&words) {
            Ok(())
        } else {
            Err(format!("{}; {}", objects.outline(), defragd.log_tail()))
        }
    })
    .await
}

fn config(world: &World, namespace: &str) -> PathBuf {
    let path = world.api.scratch().join(format!("{namespace}.yaml"));
    // JSON is YAML.
    let text = json!({ "sources": sources(world, true) }).to_string();
    std::fs::write(&path, text).expect("a file of the test's own");
    path
}

/// Lets the account of this namespace do all of this.
async fn give(world: &World, namespace: &str, rights: &[Right]) -> Result<(), Error> {
    let rules: Value = rights.iter().map(Right::rule).collect();
    let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/defragd");
    let patch = json!({ "rules": rules });
    world.api.patch(&role, &patch).await.map(drop)
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
