//! Every command that the pages and the notes show works as it stands there, in the order of the page.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use defragd_harness::{Error, KubeApi, objects, servers};
use serde_json::json;
use tokio::process::Command;

use crate::helm::{chart, read};

/// What the pages call NAME and NAMESPACE.
const NAME: &str = "fragmentation";
const NAMESPACE: &str = "kube-system";
/// What is done on Kubernetes. The others belong to the plain machines.
const KUBERNETES: [&str; 3] = ["helm ", "kubectl ", "defragd crds "];

/// The commands of a page: what follows the prompt in its console blocks.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut inside = false;
    for line in page.lines().map(str::trim) {
        match line.strip_prefix("$ ") {
            _ if line.starts_with("```") => inside = line == "```console",
            Some(command) if inside => commands.push(command.to_owned()),
            None if inside && commands.last().is_some_and(|c| c.ends_with('\\')) => {
                let last = commands.last_mut().expect("seen right now");
                last.truncate(last.len() - 1);
                last.push_str(line);
            }
            _ => {}
        }
    }
    commands.retain(|command| KUBERNETES.iter().any(|word| command.starts_with(word)));
    commands
}

/// The yaml blocks of a page.
fn blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("```yaml\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

/// Somebody in a checkout, with the commands at hand.
struct Reader<'a> {
    api: &'a KubeApi,
    folder: PathBuf,
    path: String,
}

impl<'a> Reader<'a> {
    async fn new(api: &'a KubeApi) -> Result<Self, Error> {
        let folder = api.scratch().join("checkout");
        std::fs::create_dir(&folder).expect("the folder is the test's own");
        let charts = chart();
        let charts = charts.parent().expect("it is in a folder");
        std::os::unix::fs::symlink(charts, folder.join("charts")).expect("it can be linked");
        let defragd = PathBuf::from(env!("CARGO_BIN_EXE_defragd"));
        let programs = [
            servers::kubernetes("kubectl").await?,
            servers::helm().await?,
            defragd,
        ];
        let mut path: Vec<String> = programs
            .iter()
            .filter_map(|program| Some(program.parent()?.display().to_string()))
            .collect();
        path.extend(std::env::var("PATH"));
        Ok(Self {
            api,
            folder,
            path: path.join(":"),
        })
    }

    fn has(&self, file: &str, text: &str) {
        std::fs::write(self.folder.join(file), text).expect("the folder is the test's own");
    }

    /// Runs a script as a shell does, to its first failure.
    async fn runs(&self, script: &str) -> String {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", &self.folder)
            .env("KUBECONFIG", self.api.kubeconfig_admin())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .expect("bash can be started");
        assert!(output.status.success(), "{script}\n{output:?}");
        if script.contains("helm install") {
            self.knows_the_kinds().await;
        }
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What is typed within a second of an install may be too early.
    async fn knows_the_kinds(&self) {
        for kind in ["etcdtargets", "etcddefragpolicies", "etcddefrags"] {
            let path = KubeApi::defragd_path(NAMESPACE, kind);
            let known = self.api.wait_for(&path, |_| true).await;
            known.expect("the API server serves the kind");
        }
    }

    /// Runs the commands of a page, which is said to show so many.
    async fn follows(&self, page: &str, number: usize) {
        let commands = commands(page);
        assert_eq!(commands.len(), number, "{commands:#?}");
        for command in commands {
            let command = command
                .replace("NAMESPACE", NAMESPACE)
                .replace("NAME", NAME);
            self.runs(&command).await;
        }
    }

    async fn begins_anew(&self) {
        self.runs("helm uninstall defragd --namespace defragd")
            .await;
    }
}

#[tokio::test]
async fn every_command_of_the_pages_works() -> Result<(), Error> {
    let api = KubeApi::start().await?;
    let reader = Reader::new(&api).await?;

    let page = read("docs/kubernetes.md");
    let (values, manifests): (Vec<&str>, Vec<&str>) = blocks(&page)
        .into_iter()
        .partition(|block| block.starts_with("# values.yaml"));
    assert_eq!((values.len(), manifests.len()), (1, 1));
    reader.has("values.yaml", values[0]);
    reader.has("policy.yaml", blocks(&read("README.md"))[0]);
    reader.follows(&read("README.md"), 3).await;
    reader.begins_anew().await;

    a_run_is_there(&api, manifests[0]).await?;
    reader.follows(&page, 4).await;
    reader.begins_anew().await;

    reader.follows(&read("charts/defragd/README.md"), 1).await;
    reader.follows(&read("docs/upgrade.md"), 10).await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crds = api.get(crds).await?.expect("the API server has the kind");
    assert_eq!(crds["items"], json!([]), "everything was to be removed");
    Ok(())
}

/// With a finalizer that nobody takes away, and a Lease that nobody holds.
async fn a_run_is_there(api: &KubeApi, manifests: &str) -> Result<(), Error> {
    api.apply(manifests).await?;
    let mut run = objects::run(NAME, "main", &json!({}));
    run["metadata"]["namespace"] = json!(NAMESPACE);
    run["metadata"]["finalizers"] = json!(["defragd.dev/sweep"]);
    api.apply(&run.to_string()).await?;
    let condition = json!({
        "type": "Succeeded",
        "status": "True",
        "reason": "SweepComplete",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let path = KubeApi::defragd_path(NAMESPACE, "etcddefrags");
    let status = json!({ "status": { "conditions": [condition] } });
    api.patch(&format!("{path}/{NAME}/status"), &status).await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": "defragd", "namespace": "defragd" },
    });
    api.apply(&lease.to_string()).await.map(drop)
}

/// The notes are written for a shell from their first command to their last.
#[tokio::test]
async fn every_command_of_the_notes_works() -> Result<(), Error> {
    let api = KubeApi::start().await?;
    let reader = Reader::new(&api).await?;
    let source = "{config: {sources: [{name: main, prometheus: {url: 'http://127.0.0.1:9'}}]}}";
    reader.has("values.yaml", source);
    for (namespace, with) in [("plain", ""), ("asks", "--values values.yaml")] {
        let install = "helm install defragd charts/defragd --create-namespace";
        let notes = reader
            .runs(&format!("{install} --namespace {namespace} {with}"))
            .await;
        let script: Vec<&str> = notes
            .lines()
            .filter_map(|line| line.strip_prefix("   "))
            .collect();
        let said = reader.runs(&script.join("\n")).await;
        assert!(
            said.contains("etcddefragpolicy.defragd.dev/fragmented"),
            "{said}"
        );
        reader
            .runs(&format!(
                "helm uninstall defragd --namespace {namespace}\n\
                 kubectl delete crd --all"
            ))
            .await;
    }
    Ok(())
}

#[test]
fn commands_are_found_where_a_reader_sees_them() {
    let page = "$ kubectl no\n```console\n$ kubectl get \\\n    a\noutput\n$ make demo\n```\n\
                1. text\n   ```console\n   $ helm list\n   ```\n```sh\n$ helm no\n```\n";
    assert_eq!(commands(page), ["kubectl get a", "helm list"]);
    assert!(Path::new(env!("CARGO_BIN_EXE_defragd")).is_file());
}
