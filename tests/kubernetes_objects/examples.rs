//! Every object of `examples/` on a real API server, and the CronJob's command on a real etcd.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use defragd_harness::{Cluster, Error, Etcd, Kube, KubeApi, Tls};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{DEFRAGD, MIB, api, checkout, named};

/// All files below a folder of the checkout.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => BTreeSet::from([path]),
        })
        .collect()
}

fn documents(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("it can be read");
    let documents = serde_yaml::Deserializer::from_str(&text);
    let documents = documents.map(|one| Value::deserialize(one).expect("it is YAML"));
    documents.collect()
}

#[tokio::test]
async fn the_api_server_takes_every_example() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    let mut known = BTreeSet::from(["default".to_owned(), "kube-system".to_owned()]);
    let mut kinds = BTreeSet::new();
    let examples = checkout("examples");
    // Files of other programs, and of defragd's own administrator; each has a test of its own.
    let others = ["alertmanager", "config"].map(|folder| examples.join(folder));
    for file in files(&examples) {
        if others.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        let objects = documents(&file);
        for object in &objects {
            kinds.insert(object["kind"].as_str().unwrap_or_default().to_owned());
            let namespace = object["metadata"]["namespace"].as_str();
            if let Some(namespace) = namespace.filter(|n| known.insert((*n).to_owned())) {
                api.apply(&named("Namespace", namespace).to_string())
                    .await?;
            }
        }
        let taken = dry_run(&api, &file).await?;
        let taken = taken
            .lines()
            .filter(|l| l.ends_with("created (server dry run)"));
        assert_eq!(taken.count(), objects.len(), "{}", file.display());
    }
    let wanted = ["CronJob", "EtcdDefragPolicy", "EtcdTarget"].map(str::to_owned);
    assert!(kinds.is_superset(&wanted.into()), "{kinds:?}");
    Ok(())
}

/// With everything that the API server only warns of as an error: a field that it does not know is
/// in a typing mistake.
async fn dry_run(api: &KubeApi, file: &Path) -> Result<String, Error> {
    let file = file.display().to_string();
    let strict = ["--validate=strict", "--warnings-as-errors"];
    let args = ["apply", "--dry-run=server", "-f", &file];
    api.kubectl(&[&args[..], &strict].concat()).await
}

fn cron_job() -> Value {
    documents(&checkout("examples/cronjob.yaml")).remove(0)
}

/// Of the pod that it makes.
fn pod(cron_job: &Value) -> &Value {
    &cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
}

#[test]
fn the_cron_job_never_piles_up_and_has_no_rights() {
    let whole = cron_job();
    let spec = &whole["spec"];
    assert_eq!(spec["concurrencyPolicy"], "Forbid");
    assert!(spec["startingDeadlineSeconds"].is_u64());
    let job = &spec["jobTemplate"]["spec"];
    assert_eq!(job["backoffLimit"], 0);
    let pod = pod(&whole);
    assert_eq!(
        (&pod["restartPolicy"], &pod["automountServiceAccountToken"]),
        (&json!("Never"), &json!(false))
    );
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(container["image"], format!("defragd:{version}"));

    // The Job ends it only when the sweep has not ended by itself.
    let seconds = |flag: &str| {
        let args = container["args"].as_array().expect("it has arguments");
        let value = args.iter().find_map(|arg| arg.as_str()?.strip_prefix(flag));
        let span = defragd::core::duration::parse(value.expect("it is given"));
        span.expect("it is a duration").as_secs()
    };
    let sweep = seconds("--wait=") + seconds("--active-deadline=");
    let deadline = job["activeDeadlineSeconds"].as_i64();
    assert!(deadline > Some(sweep), "{deadline:?} and {sweep}");
}

/// The comment says of exit codes what the command says of itself.
#[test]
fn the_cron_job_tells_the_exit_codes() {
    let help = Command::new(DEFRAGD)
        .args(["sweep", "--help"])
        .output()
        .expect("it can be started");
    let help = String::from_utf8_lossy(&help.stdout);
    let (_, codes) = help.split_once("Exit codes:\n").expect("they are there");
    let codes: BTreeSet<&str> = codes.lines().map(str::trim).collect();
    let text = fs::read_to_string(checkout("examples/cronjob.yaml")).expect("it is there");
    let told = text.lines().filter_map(|line| line.strip_prefix("#   "));
    let told: BTreeSet<&str> = told.map(str::trim).collect();
    assert_eq!(told, codes);
}

/// The command with nothing else in place of its own but endpoints, and the folder that stands for
/// the mounted Secret.
fn command(cluster: &Cluster, secret: &Path) -> Command {
    let whole = cron_job();
    let pod = pod(&whole);
    let container = &pod["containers"][0];
    let (mount, volume) = (&container["volumeMounts"][0], &pod["volumes"][0]);
    assert_eq!(mount["name"], volume["name"]);
    assert!(volume["secret"]["secretName"].is_string(), "{volume}");
    let mounted = mount["mountPath"].as_str().expect("it is mounted");
    let secret = secret.display().to_string();
    let args = container["args"].as_array().expect("it has arguments");
    let mut command = Command::new(DEFRAGD);
    for arg in args {
        let arg = arg.as_str().expect("arguments are texts");
        command.arg(match arg.starts_with("--endpoints=") {
            true => format!("--endpoints={}", cluster.endpoints().join(",")),
            false => arg.replace(mounted, &secret),
        });
    }
    command
}

async fn run(cluster: &Cluster, secret: &Path) -> Output {
    let mut command = command(cluster, secret);
    let ran = tokio::task::spawn_blocking(move || command.output()).await;
    ran.expect("it does not panic").expect("it can be started")
}

#[tokio::test]
async fn the_cron_job_sweeps_a_cluster_with_certificates() -> Result<(), Error> {
    let cluster = Etcd::default().tls(Tls::Mutual).start().await?;
    let secret = cluster.scratch().join("secret");
    fs::create_dir(&secret).expect("the folder is the test's own");
    let pki = cluster.pki().expect("it was started with TLS");
    let (certificate, key) = pki.client();
    for (file, entry) in [
        (pki.ca(), "ca.crt"),
        (certificate, "tls.crt"),
        (key, "tls.key"),
    ] {
        fs::copy(file, secret.join(entry)).expect("they are the test's own");
    }

    let nothing = run(&cluster, &secret).await;
    assert_eq!(nothing.status.code(), Some(0), "{nothing:?}");
    let said = String::from_utf8_lossy(&nothing.stdout);
    assert!(said.contains("complete (NothingDue)"), "{said}");

    cluster.fragment(130 * MIB, 8 * MIB).await?;
    let swept = run(&cluster, &secret).await;
    assert_eq!(swept.status.code(), Some(0), "{swept:?}");
    let said = String::from_utf8_lossy(&swept.stdout);
    assert!(said.contains("complete (SweepComplete)"), "{said}");
    assert_eq!(cluster.defragmentations().await?, [1.0; 3]);
    Ok(())
}
