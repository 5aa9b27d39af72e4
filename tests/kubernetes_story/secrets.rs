//! TLS and users from Secrets: of the object's own namespace alone, read again for each run, and
//! told to nobody.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use defragd::core::reason::Reason;
use defragd_harness::{
    Cluster, Error, Etcd, KubeApi, Pki, Release, RunningController, Status, Tls,
};
use serde_json::{Value, json};

use crate::support::{TEAM, install, run, start, target, until, wait_for_success};

const OTHER: &str = "other";
const USER: &str = "sweeper";
/// What must not be found anywhere.
const PLANTED: [&str; 5] = [
    "planted-first-password",
    "planted-second-password",
    "planted-in-the-other-namespace",
    "planted-instead-of-a-certificate",
    "planted-name-of-a-user",
];

struct World {
    // The order matters: defragd ends before what it watches.
    defragd: RunningController,
    release: Release,
    api: KubeApi,
    cluster: Cluster,
}

impl World {
    /// A cluster with TLS on both sides and users, a namespace beside the team's, and a release
    /// that tells all that it can.
    async fn new() -> Result<Self, Error> {
        let etcd = Etcd::default().tls(Tls::Mutual).auth("root", "root's");
        let (api, cluster) = tokio::try_join!(KubeApi::start(), etcd.start())?;
        let mut client = cluster.client(0).await?;
        let added = async {
            client.user_add(USER, PLANTED[0], None).await?;
            client.user_grant_role(USER, "root").await
        };
        added.await.expect("root may add a user");
        // The requests themselves are otherwise left out, with the answers that cannot be read.
        let level = "--log-level=debug,kube_client::client::builder=debug";
        let release = install(&api, &json!({ "extraArgs": [level] })).await?;
        api.kubectl(&["create", "namespace", OTHER]).await?;
        let defragd = start(&api, &release, "defragd-0").await?;
        Ok(Self {
            defragd,
            release,
            api,
            cluster,
        })
    }

    fn pki(&self) -> &Pki {
        self.cluster.pki().expect("it was started with TLS")
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Result<Status, Error> {
        until(&self.api, &self.defragd, what, wanted).await
    }

    /// Waits until the run says that it waits for this, and has touched nothing.
    async fn waits(&self, run: &str, reason: Reason) -> Result<(), Error> {
        let status = self
            .until(&format!("{run} to wait: {reason}"), |s| {
                s.condition("EtcdDefrag", run, "Healthy") == Some(("False", reason.as_str()))
            })
            .await?;
        let run = &status.item("EtcdDefrag", run)["status"];
        assert_eq!(
            (&run["phase"], &run["members"]),
            (&json!("Pending"), &Value::Null)
        );
        Ok(())
    }

    /// Waits until the target says that this is wrong with it, and how.
    async fn refuses(&self, target: &str, reason: Reason, words: &str) -> Result<(), Error> {
        let status = self
            .until(&format!("{target} to be wrong: {reason}"), |s| {
                s.condition("EtcdTarget", target, "Ready") == Some(("False", reason.as_str()))
            })
            .await?;
        let status = &status.item("EtcdTarget", target)["status"];
        let message = status["conditions"][0]["message"].as_str();
        assert!(message.is_some_and(|m| m.contains(words)), "{status:#}");
        Ok(())
    }

    async fn apply(&self, objects: &[Value]) -> Result<String, Error> {
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        self.api.apply(&documents.join("\n---\n")).await
    }

    /// A target of the cluster with these Secrets.
    fn target(&self, name: &str, tls: &str, user: &str) -> Value {
        let secret = |name: &str| json!({ "secretRef": { "name": name } });
        let endpoints = self.cluster.endpoints();
        let spec = json!({ "endpoints": endpoints, "tls": secret(tls), "auth": secret(user) });
        target(name, spec)
    }

    /// A Secret with the cluster's authority and this certificate.
    fn tls(&self, name: &str, (certificate, key): (PathBuf, PathBuf)) -> Value {
        let entries = json!({
            "ca.crt": read(&self.pki().ca()),
            "tls.crt": read(&certificate),
            "tls.key": read(&key),
        });
        secret(TEAM, name, entries)
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("the test's own certificates can be read")
}

fn secret(namespace: &str, name: &str, entries: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": namespace },
        "stringData": entries,
    })
}

fn user(namespace: &str, name: &str, user: &str, password: &str) -> Value {
    let entries = json!({ "username": user, "password": password });
    secret(namespace, name, entries)
}

#[tokio::test]
async fn secrets_are_read_again_stay_in_their_namespace_and_are_told_to_nobody() -> Result<(), Error>
{
    let world = World::new().await?;
    a_rotated_secret_works_for_the_next_run(&world).await?;
    no_secret_of_another_namespace_is_read(&world).await?;
    what_cannot_be_used_is_not_repeated(&world).await?;
    nothing_of_a_secret_is_told(&world).await
}

async fn a_rotated_secret_works_for_the_next_run(world: &World) -> Result<(), Error> {
    let user_in = |password| user(TEAM, "etcd-user", USER, password);
    let right = world.pki().client();
    world
        .apply(&[
            world.tls("etcd-client", right.clone()),
            user_in(PLANTED[0]),
            world.target("main", "etcd-client", "etcd-user"),
            run("first", "main"),
        ])
        .await?;
    wait_for_success(&world.api, "first").await?;
    assert_eq!(world.cluster.defragmentations().await?, [1.0; 3]);

    // The password is another one now, and the Secret tells it later.
    let mut client = world.cluster.client(0).await?;
    let changed = client.user_change_password(USER, PLANTED[1]).await;
    changed.expect("root may change a password");
    world.apply(&[run("second", "main")]).await?;
    world.waits("second", Reason::PermissionDenied).await?;
    world.apply(&[user_in(PLANTED[1])]).await?;
    wait_for_success(&world.api, "second").await?;

    // A certificate that the servers do not trust, and then one that they do.
    let foreign = world.pki().other_client();
    world
        .apply(&[
            world.tls("etcd-client-2", foreign),
            world.target("main-2", "etcd-client-2", "etcd-user"),
            run("third", "main-2"),
        ])
        .await?;
    world.waits("third", Reason::PermissionDenied).await?;
    world.apply(&[world.tls("etcd-client-2", right)]).await?;
    wait_for_success(&world.api, "third").await?;
    assert_eq!(world.cluster.defragmentations().await?, [3.0; 3]);
    Ok(())
}

async fn no_secret_of_another_namespace_is_read(world: &World) -> Result<(), Error> {
    world
        .apply(&[user(OTHER, "only-there", USER, PLANTED[2])])
        .await?;
    for name in [
        "other/only-there",
        "../other/only-there",
        "..",
        "only there",
    ] {
        let refused = world
            .apply(&[world.target("thief", "etcd-client", name)])
            .await;
        let words = refused.expect_err("no name of an object").to_string();
        assert!(words.contains("spec.auth.secretRef.name"), "{words}");
    }
    world
        .apply(&[world.target("thief", "etcd-client", "only-there")])
        .await?;
    let words = "there is no Secret team/only-there; create it, or correct the name";
    world
        .refuses("thief", Reason::SecretUnusable, words)
        .await?;

    let user = world.release.user(&world.api).await?;
    let mut asked = BTreeSet::new();
    for request in world.api.audit()? {
        let about = &request["objectRef"];
        if request["user"]["username"] == user.as_str() && about["resource"] == "secrets" {
            let part = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
            asked.insert((request["verb"].to_string(), part("namespace"), part("name")));
        }
    }
    let wanted = ["etcd-client", "etcd-client-2", "etcd-user", "only-there"]
        .map(|name| ("\"get\"".to_owned(), TEAM.to_owned(), name.to_owned()));
    assert_eq!(asked, BTreeSet::from(wanted));
    Ok(())
}

/// A Secret may hold anything: a key in the wrong place, or what is no certificate.
async fn what_cannot_be_used_is_not_repeated(world: &World) -> Result<(), Error> {
    let garbage = json!({ "ca.crt": PLANTED[3], "tls.crt": PLANTED[3], "tls.key": PLANTED[3] });
    let half = json!({ "ca.crt": read(&world.pki().ca()), "tls.crt": PLANTED[3] });
    let (_, key) = world.pki().client();
    let swapped = json!({
        "ca.crt": read(&world.pki().ca()),
        "tls.crt": read(&key),
        "tls.key": PLANTED[3],
    });
    world
        .apply(&[
            secret(TEAM, "garbage", garbage),
            secret(TEAM, "half", half),
            secret(TEAM, "swapped", swapped),
            secret(TEAM, "no-password", json!({ "username": PLANTED[4] })),
            user(TEAM, "wrong", PLANTED[4], PLANTED[2]),
            world.target("garbage", "garbage", "etcd-user"),
            world.target("half", "half", "etcd-user"),
            world.target("swapped", "swapped", "etcd-user"),
            world.target("no-password", "etcd-client", "no-password"),
            world.target("wrong", "etcd-client", "wrong"),
        ])
        .await?;
    let unusable = [
        (
            "garbage",
            "key \"ca.crt\" of Secret team/garbage holds no PEM certificate",
        ),
        (
            "half",
            "Secret team/half has no key \"tls.key\" to go with \"tls.crt\"",
        ),
        (
            "swapped",
            "key \"tls.key\" of Secret team/swapped holds no PEM private key",
        ),
        (
            "no-password",
            "Secret team/no-password has no key \"password\"; add it",
        ),
    ];
    for (target, words) in unusable {
        world.refuses(target, Reason::SecretUnusable, words).await?;
    }
    let words = "check auth's user and password";
    world
        .refuses("wrong", Reason::PermissionDenied, words)
        .await
}

async fn nothing_of_a_secret_is_told(world: &World) -> Result<(), Error> {
    let everything = ["get", "defragd,events", "--all-namespaces", "--output=yaml"];
    let told = [
        ("the log", world.defragd.logged()),
        ("metrics", world.defragd.metrics().await?),
        ("objects and events", world.api.kubectl(&everything).await?),
    ];
    let (_, key) = world.pki().client();
    let key = read(&key);
    let line = key
        .lines()
        .nth(1)
        .expect("a key has a line between its borders");
    for (place, text) in told {
        assert!(
            text.contains("etcd-user") || place == "metrics",
            "{place} is that of this test"
        );
        for planted in PLANTED.into_iter().chain([line]) {
            assert!(!text.contains(planted), "{planted} is told in {place}");
        }
    }
    Ok(())
}
