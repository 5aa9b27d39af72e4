//! The chart on a real API server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use defragd_harness::{Error, KubeApi, eventually};

use crate::helm::{chart, read, template, text, values};

const DEADLINE: Duration = Duration::from_secs(60);
const CRDS: [&str; 3] = ["etcdtargets", "etcddefragpolicies", "etcddefrags"];
const SYSTEM: &str = "--namespace=defragd-system";

fn crd(plural: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.defragd.dev")
}

async fn helm(
    api: &KubeApi,
    verb: &str,
    release: &str,
    chart: &Path,
    rest: &[&str],
) -> Result<String, Error> {
    let chart = text(chart);
    let args = [verb, release, &chart, SYSTEM];
    api.helm(&[&args[..], rest].concat()).await
}

async fn uninstall(api: &KubeApi, release: &str) -> Result<String, Error> {
    api.helm(&["uninstall", release, SYSTEM, "--wait"]).await
}

/// Everything that carries the release's label, by kind and name.
async fn left_of(api: &KubeApi, release: &str) -> Result<Vec<String>, Error> {
    let kinds = "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,networkpolicies,roles,\
                 rolebindings,clusterroles,clusterrolebindings,customresourcedefinitions";
    let label = format!("--selector=app.kubernetes.io/instance={release}");
    let found = api
        .kubectl(&["get", kinds, "--all-namespaces", &label, "--output=name"])
        .await?;
    Ok(found.lines().map(str::to_owned).collect())
}

/// The manifests that the notes tell the reader to apply.
fn manifests_of(notes: &str) -> Vec<String> {
    let blocks = notes.split("kubectl apply -f - <<'END'\n").skip(1);
    blocks
        .map(|block| {
            let (manifest, _) = block.split_once("\n   END").expect("it ends");
            let lines = manifest
                .lines()
                .map(|line| line.strip_prefix("   ").unwrap_or(line));
            lines.collect::<Vec<_>>().join("\n")
        })
        .collect()
}

#[tokio::test]
async fn install_upgrade_uninstall_and_install_again() -> Result<(), Error> {
    let api = KubeApi::start().await?;
    let chart = chart();

    // Plainly installed, it has nothing to do; the notes say how that changes.
    let notes = helm(&api, "install", "defragd", &chart, &["--create-namespace"]).await?;
    let wait = [
        "wait",
        "crd",
        "--all",
        "--for=condition=Established",
        "--timeout=60s",
    ];
    api.kubectl(&wait).await?;
    let all = ["get", "defragd", "--all-namespaces", "--output=name"];
    let listed = eventually(DEADLINE, "the kinds to be known", async || {
        api.kubectl(&all).await
    });
    assert_eq!(listed.await?, "");
    let manifests = manifests_of(&notes);
    assert_eq!(manifests.len(), 2, "{notes}");
    for manifest in &manifests {
        api.apply(manifest).await?;
    }
    let objects = "etcdtarget.defragd.dev/main\netcddefragpolicy.defragd.dev/fragmented\n";
    let mut kept: Vec<&str> = objects.lines().collect();
    kept.sort_unstable();
    let seen = async || -> Result<Vec<String>, Error> {
        let names = api.kubectl(&all).await?;
        let mut names: Vec<String> = names.lines().map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    };
    assert_eq!(seen().await?, kept);

    everything_is_accepted(&api).await?;
    crds_are_upgraded(&api).await?;
    assert_eq!(seen().await?, kept);

    uninstall(&api, "defragd").await?;
    let crds: Vec<String> = CRDS
        .iter()
        .map(|plural| format!("customresourcedefinition.apiextensions.k8s.io/{plural}.defragd.dev"))
        .collect();
    let mut left = left_of(&api, "defragd").await?;
    left.sort_by_key(|name| crds.iter().position(|crd| crd == name));
    assert_eq!(left, crds);
    assert_eq!(seen().await?, kept);

    // The same name takes them up again, with the CRDs of its chart.
    helm(&api, "install", "defragd", &chart, &[]).await?;
    assert_eq!(first_column(&api).await?, "Members");
    assert_eq!(seen().await?, kept);

    // Another name does not get them by mistake.
    let refused = helm(&api, "install", "other", &chart, &[]).await;
    let words = refused
        .expect_err("they belong to the first release")
        .to_string();
    assert!(words.contains("invalid ownership metadata"), "{words}");
    uninstall(&api, "defragd").await?;
    let refused = helm(&api, "install", "other", &chart, &[]).await;
    let words = refused
        .expect_err("they still say whose they are")
        .to_string();
    assert!(words.contains("CustomResourceDefinition"), "{words}");
    helm(&api, "install", "other", &chart, &["--take-ownership"]).await?;
    assert!(left_of(&api, "defragd").await?.is_empty());
    assert_eq!(seen().await?, kept);
    Ok(())
}

/// Every optional part but those for the Prometheus operator, whose kinds are not installed here.
async fn everything_is_accepted(api: &KubeApi) -> Result<(), Error> {
    api.kubectl(&["create", "namespace", "etcd"]).await?;
    let given = fs::read_to_string(values("everything")).expect("the values are there");
    let off = "--set=serviceMonitor.enabled=false,prometheusRule.enabled=false";
    let rendered = template(&given, &[off]).await.expect("it renders");
    // As another release, because a Service's address cannot be changed, nor a Deployment's selector.
    let strict = [
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "--server-side",
        "-f",
        "-",
    ];
    api.kubectl_with_input(&[&strict[..], &["--force-conflicts"]].concat(), &rendered)
        .await?;
    let file = text(&values("everything"));
    let args = ["--values", &file, off, "--set=crds.install=false"];
    helm(api, "install", "everything", &chart(), &args).await?;
    uninstall(api, "everything").await?;
    assert!(left_of(api, "everything").await?.is_empty());
    Ok(())
}

/// `helm upgrade` with a chart whose CRDs are newer, then with one that leaves them out.
async fn crds_are_upgraded(api: &KubeApi) -> Result<(), Error> {
    let newer = api.scratch().join("newer");
    copy(&chart(), &newer);
    let file = newer.join("files/crds.yaml");
    let crds = fs::read_to_string(&file).expect("it was copied");
    let changed = crds.replace("      name: Members\n", "      name: Newer\n");
    assert_ne!(crds, changed);
    fs::write(&file, changed).expect("it can be written");
    assert_eq!(first_column(api).await?, "Members");
    helm(api, "upgrade", "defragd", &newer, &[]).await?;
    assert_eq!(first_column(api).await?, "Newer");

    helm(
        api,
        "upgrade",
        "defragd",
        &newer,
        &["--set=crds.install=false"],
    )
    .await?;
    for plural in CRDS {
        let kept = api.get(&crd(plural)).await?.expect("it is kept");
        assert!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept}");
    }
    helm(
        api,
        "upgrade",
        "defragd",
        &newer,
        &["--set=crds.install=true"],
    )
    .await?;
    assert_eq!(first_column(api).await?, "Newer");
    Ok(())
}

/// The name of the first column that `kubectl get etcdtargets` prints after the object's own.
async fn first_column(api: &KubeApi) -> Result<String, Error> {
    let target = api
        .get(&crd("etcdtargets"))
        .await?
        .expect("it is installed");
    let column = &target["spec"]["versions"][0]["additionalPrinterColumns"][0]["name"];
    Ok(column.as_str().unwrap_or_default().to_owned())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the chart can be read") {
        let entry = entry.expect("the chart can be read");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

#[test]
fn notes_are_taken_apart_as_a_reader_does() {
    let notes =
        "text\n   kubectl apply -f - <<'END'\n   kind: A\n   spec:\n     b: c\n   END\nmore\n";
    assert_eq!(manifests_of(notes), ["kind: A\nspec:\n  b: c"]);
    assert!(read("charts/defragd/templates/NOTES.txt").contains("<<'END'"));
}
