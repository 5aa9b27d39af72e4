//! Who may do what once the chart is installed, asked of a real API server.

use std::time::Duration;

use defragd_harness::{Error, Kube, KubeApi, eventually};
use serde_json::{Value, json};

use crate::helm::{chart, text};

const DEADLINE: Duration = Duration::from_secs(60);
const OWN: &str = "defragd.dev";

/// A question to the API server: verb, API group, resource with its subresource, name, namespace.
type Question<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

/// Asks about all at once and returns those questions whose answer is not as expected.
async fn unexpected(
    api: &KubeApi,
    user: &str,
    groups: &[&str],
    expected: bool,
    questions: &[Question<'_>],
) -> Result<Vec<String>, Error> {
    let reviews: Vec<Value> = questions
        .iter()
        .map(|(verb, group, resource, name, namespace)| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": user, "groups": groups, "resourceAttributes": {
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "name": name, "namespace": namespace,
                }},
            })
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": reviews});
    let answers = api
        .kubectl_with_input(
            &[
                "create",
                "-f",
                "-",
                "--output=jsonpath={.status.allowed}{\"\\n\"}",
            ],
            &list.to_string(),
        )
        .await?;
    let answers: Vec<bool> = answers.lines().map(|line| line == "true").collect();
    assert_eq!(answers.len(), questions.len(), "{answers:?}");
    let differing = questions
        .iter()
        .zip(answers)
        .filter(|(_, allowed)| *allowed != expected);
    Ok(differing
        .map(|(question, _)| format!("{question:?}"))
        .collect())
}

async fn assert_may(
    api: &KubeApi,
    who: &Account<'_>,
    expected: bool,
    questions: &[Question<'_>],
) -> Result<(), Error> {
    let user = format!("system:serviceaccount:{}:{}", who.0, who.1);
    let groups = ["system:serviceaccounts", "system:authenticated"];
    // A binding that was just made takes a moment to count.
    let asked = eventually(
        DEADLINE,
        format!("{user} to be allowed: {expected}"),
        async || match unexpected(api, &user, &groups, expected, questions).await {
            Ok(wrong) if wrong.is_empty() => Ok(()),
            Ok(wrong) => Err(wrong.join("\n")),
            Err(error) => Err(error.to_string()),
        },
    );
    asked.await
}

/// Namespace and name.
struct Account<'a>(&'a str, &'a str);

/// What the account may in a namespace that it watches.
fn watched(namespace: &str) -> Vec<Question<'_>> {
    let mut questions = Vec::new();
    for resource in ["etcdtargets", "etcddefragpolicies", "etcddefrags"] {
        questions.extend(["get", "list", "watch"].map(|verb| (verb, OWN, resource, "", namespace)));
    }
    questions.extend([
        ("create", OWN, "etcddefrags", "", namespace),
        ("patch", OWN, "etcddefrags", "", namespace),
        ("delete", OWN, "etcddefrags", "", namespace),
        ("patch", OWN, "etcdtargets/status", "", namespace),
        ("patch", OWN, "etcddefragpolicies/status", "", namespace),
        ("patch", OWN, "etcddefrags/status", "", namespace),
        ("list", "", "pods", "", namespace),
        ("watch", "", "pods", "", namespace),
        ("create", "events.k8s.io", "events", "", namespace),
        ("patch", "events.k8s.io", "events", "", namespace),
        ("get", "", "secrets", "any", namespace),
        (
            "watch",
            "etcd-operator.cozystack.io",
            "etcdmembers",
            "",
            namespace,
        ),
        ("list", "operator.etcd.io", "etcdclusters", "", namespace),
        (
            "list",
            "external.metrics.k8s.io",
            "any_metric",
            "",
            namespace,
        ),
        (
            "get",
            "custom.metrics.k8s.io",
            "pods/any_metric",
            "any",
            namespace,
        ),
    ]);
    questions
}

/// What it may nowhere.
fn never(namespace: &str) -> Vec<Question<'_>> {
    vec![
        ("list", "", "secrets", "", namespace),
        ("watch", "", "secrets", "", namespace),
        ("create", "", "secrets", "", namespace),
        ("get", "", "configmaps", "", namespace),
        ("delete", "", "pods", "", namespace),
        ("create", "", "pods/exec", "", namespace),
        ("update", OWN, "etcdtargets", "", namespace),
        ("patch", OWN, "etcddefragpolicies", "", namespace),
        ("create", OWN, "etcddefragpolicies", "", namespace),
        ("deletecollection", OWN, "etcddefrags", "", namespace),
        ("update", OWN, "etcddefrags/status", "", namespace),
        (
            "patch",
            "etcd-operator.cozystack.io",
            "etcdclusters",
            "",
            namespace,
        ),
        ("patch", "operator.etcd.io", "etcdclusters", "", namespace),
        (
            "create",
            "rbac.authorization.k8s.io",
            "rolebindings",
            "",
            namespace,
        ),
        ("get", "coordination.k8s.io", "leases", "other", namespace),
        (
            "delete",
            "coordination.k8s.io",
            "leases",
            "defragd",
            namespace,
        ),
        ("list", "coordination.k8s.io", "leases", "", namespace),
    ]
}

/// What it may in its own namespace.
fn lease(namespace: &str) -> [Question<'_>; 3] {
    [
        ("create", "coordination.k8s.io", "leases", "", namespace),
        ("get", "coordination.k8s.io", "leases", "defragd", namespace),
        (
            "update",
            "coordination.k8s.io",
            "leases",
            "defragd",
            namespace,
        ),
    ]
}

async fn install(
    api: &KubeApi,
    release: &str,
    namespace: &str,
    rest: &[&str],
) -> Result<(), Error> {
    let chart = text(&chart());
    let namespace = format!("--namespace={namespace}");
    let args = ["install", release, &chart, &namespace, "--create-namespace"];
    api.helm(&[&args[..], rest].concat()).await.map(drop)
}

#[tokio::test]
async fn accounts_and_people_may_what_the_page_says() -> Result<(), Error> {
    let api = Kube::default()
        .with_controller_manager()
        // As OpenShift has it.
        .extra_args(["--enable-admission-plugins=OwnerReferencesPermissionEnforcement"])
        .start()
        .await?;
    for namespace in ["team-a", "team-b", "team-c"] {
        api.kubectl(&["create", "namespace", namespace]).await?;
    }
    install(&api, "defragd", "defragd-system", &[]).await?;
    everywhere(&api).await?;
    people(&api).await?;
    owners(&api).await?;
    in_some_namespaces(&api).await?;
    secrets_of_some_namespaces(&api).await
}

async fn everywhere(api: &KubeApi) -> Result<(), Error> {
    let account = Account("defragd-system", "defragd");
    // The empty namespace stands for all of them.
    assert_may(
        api,
        &account,
        true,
        &[watched(""), watched("team-a")].concat(),
    )
    .await?;
    assert_may(api, &account, true, &lease("defragd-system")).await?;
    assert_may(
        api,
        &account,
        false,
        &[never(""), never("defragd-system")].concat(),
    )
    .await?;
    assert_may(api, &account, false, &lease("team-a")).await
}

/// The cluster's own roles, filled by the controller manager.
async fn people(api: &KubeApi) -> Result<(), Error> {
    let resources = ["etcdtargets", "etcddefragpolicies", "etcddefrags"];
    let every = |verbs: &[&'static str], namespace| -> Vec<Question<'static>> {
        let pairs = resources
            .iter()
            .flat_map(|r| verbs.iter().map(move |v| (*v, *r)));
        pairs
            .map(|(verb, resource)| (verb, OWN, resource, "", namespace))
            .collect()
    };
    let read = ["get", "list", "watch"];
    let write = ["create", "update", "patch", "delete"];
    let status: Vec<Question<'_>> = [
        "etcdtargets/status",
        "etcddefragpolicies/status",
        "etcddefrags/status",
    ]
    .into_iter()
    .flat_map(|resource| ["patch", "update"].map(|verb| (verb, OWN, resource, "", "team-a")))
    .collect();
    for (user, role) in [("vera", "view"), ("edda", "edit"), ("adam", "admin")] {
        let flags = [&format!("--clusterrole={role}"), &format!("--user={user}")];
        let args = [
            "create",
            "rolebinding",
            user,
            "--namespace=team-a",
            flags[0],
            flags[1],
        ];
        api.kubectl(&args).await?;
        let may_write = role != "view";
        let mut allowed = every(&read, "team-a");
        let mut refused = [
            status.clone(),
            every(&read, "team-b"),
            every(&write, "team-b"),
        ]
        .concat();
        if may_write {
            &mut allowed
        } else {
            &mut refused
        }
        .extend(every(&write, "team-a"));
        let what = format!("{user} to have what {role} has");
        eventually(DEADLINE, what, async || {
            match unexpected(api, user, &["system:authenticated"], true, &allowed).await {
                Ok(missing) if missing.is_empty() => Ok(()),
                Ok(missing) => Err(missing.join("\n")),
                Err(error) => Err(error.to_string()),
            }
        })
        .await?;
        let extra = unexpected(api, user, &["system:authenticated"], false, &refused).await?;
        assert!(extra.is_empty(), "{user} may {extra:?}");
    }
    Ok(())
}

/// A run that blocks the deletion of its policy is refused without the rule about finalizers.
async fn owners(api: &KubeApi) -> Result<(), Error> {
    api.apply(
        "{apiVersion: defragd.dev/v1alpha1, kind: EtcdDefragPolicy, metadata: {name: owner, namespace: team-a}, \
         spec: {clusterRef: {name: main}, signal: {probe: {}}}}",
    )
    .await?;
    let path = "/apis/defragd.dev/v1alpha1/namespaces/team-a/etcddefragpolicies/owner";
    let policy = api.get(path).await?.expect("it was just applied");
    let run = json!({
        "apiVersion": "defragd.dev/v1alpha1",
        "kind": "EtcdDefrag",
        "metadata": {"generateName": "owned-", "namespace": "team-a", "ownerReferences": [{
            "apiVersion": "defragd.dev/v1alpha1", "kind": "EtcdDefragPolicy", "name": "owner",
            "uid": policy["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        }]},
        "spec": {"clusterRef": {"name": "main"}},
    });
    let create = async || {
        let as_account = "--as=system:serviceaccount:defragd-system:defragd";
        api.kubectl_with_input(&["create", "-f", "-", as_account], &run.to_string())
            .await
    };
    create().await?;

    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/defragd";
    let rules = api.get(role).await?.expect("the chart made it")["rules"].clone();
    let rules = rules.as_array().expect("rules");
    let about = rules
        .iter()
        .position(|rule| rule["resources"][0] == "etcddefragpolicies/finalizers");
    let patch = json!([{"op": "remove", "path": format!("/rules/{}", about.expect("the rule"))}]);
    let patch = format!("--patch={patch}");
    api.kubectl(&["patch", "clusterrole", "defragd", "--type=json", &patch])
        .await?;
    eventually(DEADLINE, "the run to be refused", async || {
        match create().await {
            Err(error) if error.to_string().contains("cannot set blockOwnerDeletion") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// A second release, beside the first one's CRDs, that may create nothing outside of its namespaces.
async fn in_some_namespaces(api: &KubeApi) -> Result<(), Error> {
    let values = text(&crate::helm::values("namespaced"));
    install(api, "scoped", "scoped-system", &["--values", &values]).await?;
    let account = Account("scoped-system", "scoped-defragd");
    assert_may(
        api,
        &account,
        true,
        &[watched("team-a"), watched("team-b")].concat(),
    )
    .await?;
    assert_may(api, &account, true, &lease("scoped-system")).await?;
    let elsewhere = [watched("team-c"), watched("scoped-system"), watched("")].concat();
    assert_may(api, &account, false, &elsewhere).await?;
    assert_may(api, &account, false, &never("team-a")).await
}

async fn secrets_of_some_namespaces(api: &KubeApi) -> Result<(), Error> {
    let chart = text(&chart());
    let set = "--set=rbac.secretNamespaces={team-b}";
    api.helm(&[
        "upgrade",
        "defragd",
        &chart,
        "--namespace=defragd-system",
        set,
    ])
    .await?;
    let account = Account("defragd-system", "defragd");
    assert_may(
        api,
        &account,
        true,
        &[("get", "", "secrets", "any", "team-b")],
    )
    .await?;
    let elsewhere =
        ["", "team-a", "defragd-system"].map(|namespace| ("get", "", "secrets", "any", namespace));
    assert_may(api, &account, false, &elsewhere).await
}
