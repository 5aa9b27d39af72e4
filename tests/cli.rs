//! The command line without any etcd: help, usage errors, verdicts, generated texts.

use std::fs;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use defragd_harness::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const SUBCOMMANDS: [&str; 6] = [
    "sweep",
    "standalone",
    "status",
    "lint",
    "crds",
    "completions",
];

const TARGET: &str = "\
apiVersion: defragd.dev/v1alpha1
kind: EtcdTarget
metadata: {name: demo}
spec: {endpoints: [\"http://127.0.0.1:2379\"]}
";

fn policy(cooldown: &str, query: &str) -> String {
    format!(
        "---
apiVersion: defragd.dev/v1alpha1
kind: EtcdDefragPolicy
metadata: {{name: fragmented}}
spec:
  clusterRef: {{name: demo}}
  signal:
    prometheus:
      source: main
      query: {query}
      above: 100Mi
  cooldown: {cooldown}
"
    )
}

const BYTES: &str = "max(etcd_mvcc_db_total_size_in_bytes)";

fn defragd(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_defragd"));
    command.args(args);
    command
}

/// Exit code, standard output, standard error.
fn run(args: &[&str]) -> (i32, String, String) {
    let output = defragd(args).output().expect("the binary starts");
    (
        output.status.code().expect("it is not killed"),
        String::from_utf8(output.stdout).expect("UTF-8"),
        String::from_utf8(output.stderr).expect("UTF-8"),
    )
}

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("the folder is ours");
    path_of(&path)
}

fn path_of(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    let (code, overview, _) = run(&["--help"]);
    assert_eq!(code, 0);
    for subcommand in SUBCOMMANDS {
        assert!(
            overview.contains(&format!("\n  {subcommand}")),
            "{overview}"
        );
        for help in ["--help", "-h"] {
            let (code, text, _) = run(&[subcommand, help]);
            let example = format!("defragd {subcommand}");
            let examples = text.split("Example").nth(1).unwrap_or_default();
            assert!(
                code == 0 && examples.contains(&example),
                "{subcommand} {help}: {text}"
            );
        }
    }
    let (code, version, _) = run(&["--version"]);
    assert_eq!(
        (code, version),
        (0, format!("defragd {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn a_wrong_command_line_names_flag_value_and_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let not_pem = write(&folder, "not.pem", "no certificate");
    let sweep =
        |flags: &[&'static str]| [&["sweep", "--endpoints", "http://127.0.0.1:1"], flags].concat();
    let table: Vec<(Vec<&str>, &[&str])> = vec![
        (vec![], &["Usage: defragd"]),
        (vec!["sweep"], &["--endpoints"]),
        (
            vec!["sweep", "--endpoints", "10.0.0.1:2379"],
            &["--endpoints", "10.0.0.1:2379", "write http://10.0.0.1:2379"],
        ),
        (
            vec!["sweep", "--endpoints", "http://a:2379/v3"],
            &["--endpoints", "remove \"/v3\""],
        ),
        (
            vec!["sweep", "--endpoints", "https://a:2379"],
            &["https://a:2379", "set --cacert"],
        ),
        (
            vec!["sweep", "--endpoints", ""],
            &["--endpoints: is empty", "write a URL"],
        ),
        (
            vec!["sweep", "--endpoints", "http://127.0.0.1:1,"],
            &[
                "--endpoints",
                "endpoint 2 of 2 is empty",
                "remove the comma",
            ],
        ),
        (
            sweep(&["--cacert", "/nowhere", "--servername", "etcd.local"]),
            &[
                "--endpoints http://127.0.0.1:1",
                "https://",
                "remove --cacert and --servername",
            ],
        ),
        (
            vec![
                "sweep",
                "--endpoints",
                "https://a:1",
                "--cacert",
                "/nowhere",
                "--servername",
                "*.example.com",
            ],
            &["--servername", "*.example.com", "write the name"],
        ),
        (
            vec![
                "sweep",
                "--endpoints",
                "https://a:1",
                "--cacert",
                "/nowhere",
            ],
            &["--cacert", "/nowhere", "check the path"],
        ),
        (
            vec!["sweep", "--endpoints", "https://a:1", "--cacert", &not_pem],
            &["--cacert", "not.pem", "-----BEGIN CERTIFICATE-----"],
        ),
        (
            vec!["sweep", "--endpoints", "https://a:1", "--cert", "c.pem"],
            &["--key"],
        ),
        (sweep(&["--user", "root"]), &["--password-file"]),
        (
            sweep(&["--user", "root:hunter2", "--password-file", "f"]),
            &["--user", "--password-file"],
        ),
        (
            sweep(&["--user", "root", "--password-file", "/nowhere"]),
            &["--password-file", "/nowhere"],
        ),
        (
            sweep(&["--rule", "dbSize >"]),
            &["--rule", "does not parse"],
        ),
        (
            sweep(&["--rule", "dbSize + 1"]),
            &["--rule", "gives a number"],
        ),
        (
            sweep(&["--rule", "dbsize > 1"]),
            &["--rule", "dbsize", "dbSizeInUse"],
        ),
        (
            sweep(&["--rule", "all", "--free-space-above", "1Mi"]),
            &["--rule", "--free-space-above", "exclude"],
        ),
        (
            sweep(&["--free-space-above", "0"]),
            &["--free-space-above", "\"0\""],
        ),
        (
            sweep(&["--free-space-above", "200MB"]),
            &["--free-space-above", "200MB"],
        ),
        (
            sweep(&["--quota-usage-above", "80"]),
            &["--quota-usage-above", "\"80\"", "80%"],
        ),
        (
            sweep(&["--keep-revisions", "0"]),
            &["--keep-revisions", "0", "keep at least 1"],
        ),
        (
            sweep(&["--keep-revisions", "-1"]),
            &["--keep-revisions", "-1", "keep at least 1"],
        ),
        (
            sweep(&["--max-raft-lag", "-1"]),
            &["--max-raft-lag", "-1", "5000"],
        ),
        (
            sweep(&["--leader", "shoot"]),
            &["--leader", "shoot", "inplace"],
        ),
        (
            sweep(&["--active-deadline", "0s"]),
            &["--active-deadline", "\"0s\""],
        ),
        (
            sweep(&["--member-timeout", "1s"]),
            &["--member-timeout", "\"1s\"", "5s"],
        ),
        (
            sweep(&["--settle-timeout", "2x"]),
            &["--settle-timeout", "2x", "unit"],
        ),
        (
            sweep(&["--max-raft-lag", "9999"]),
            &["--max-raft-lag", "9999", "5000"],
        ),
        (
            sweep(&["--member-count", "0"]),
            &["--member-count", "0", "1..=63"],
        ),
        (
            sweep(&["--member-count", "-1"]),
            &["--member-count", "-1", "1..=63"],
        ),
        (
            sweep(&["--wait", "10"]),
            &["--wait", "\"10\"", "lacks a unit"],
        ),
        (sweep(&["--output", "xml"]), &["--output", "xml", "json"]),
        (
            vec![
                "standalone",
                "--objects",
                "o",
                "--state",
                "s",
                "--listen",
                "9464",
            ],
            &["--listen", "9464"],
        ),
        (
            vec![
                "standalone",
                "--objects",
                "o",
                "--state",
                "s",
                "--config",
                "/nowhere",
            ],
            &["/nowhere"],
        ),
        (
            vec!["status", "--state", "/nowhere"],
            &["--state", "/nowhere"],
        ),
        (
            vec!["lint", "/nowhere.yaml"],
            &["/nowhere.yaml", "check the path"],
        ),
        (vec!["completions", "cobol"], &["cobol", "fish"]),
    ];
    for (args, words) in table {
        let (code, stdout, stderr) = run(&args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        for word in words {
            assert!(
                stderr.contains(word),
                "{args:?} does not say {word:?}: {stderr}"
            );
        }
        assert!(!stderr.contains("hunter2"), "a secret: {stderr}");
    }
}

#[test]
fn a_password_in_a_url_is_refused_and_not_repeated() {
    let (code, _, stderr) = run(&["sweep", "--endpoints", "http://root:hunter2@10.0.0.1:2379"]);
    assert!(
        code == 2 && stderr.contains("10.0.0.1") && !stderr.contains("hunter2"),
        "{stderr}"
    );
}

#[test]
fn a_password_can_come_through_standard_input() {
    let flags = [
        "sweep",
        "--endpoints",
        "http://127.0.0.1:1",
        "--wait",
        "0s",
        "--user",
        "root",
    ];
    for (input, code) in [("hunter2\n", 3), ("", 2), ("two\nlines\n", 2)] {
        let output = defragd(&flags)
            .args(["--password-file", "-"])
            .write_stdin(input)
            .output()
            .expect("the binary starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{input:?}: {stderr}");
        assert_eq!(code == 2, stderr.contains("--password-file"), "{stderr}");
    }
}

#[test]
fn lint_gives_the_hosts_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = write(
        &folder,
        "good.yaml",
        &format!("{TARGET}{}", policy("1h", BYTES)),
    );
    let (code, stdout, stderr) = run(&["lint", &good]);
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (0, "", "1 file: 0 errors, 0 warnings\n")
    );

    // A wrong value, a query that does not parse, an unknown field: each with its place, and none
    // hides another.
    let unknown = TARGET
        .replace("endpoints", "endpoint")
        .replace("demo", "other");
    let bad = format!("{TARGET}{}---\n{unknown}", policy("0s", "max("));
    let bad = write(&folder, "bad.yaml", &bad);
    let (code, stdout, _) = run(&["lint", &bad]);
    assert_eq!(code, 1);
    for (line, words) in [
        (16, "spec.cooldown: \"0s\""),
        (14, "spec.signal.prometheus.query: "),
        (21, "spec.endpoint: "),
    ] {
        let place = format!("{bad}:{line}: error: ");
        assert!(
            stdout
                .lines()
                .any(|l| l.starts_with(&place) && l.contains(words)),
            "no {place}…{words} in {stdout}"
        );
    }

    // A byte threshold for a ratio is accepted and was hardly meant, nor a fire at much in use.
    let ratio =
        "sum(etcd_mvcc_db_total_size_in_use_in_bytes) / sum(etcd_mvcc_db_total_size_in_bytes)";
    let ratio = write(
        &folder,
        "ratio.yaml",
        &format!("{TARGET}{}", policy("1h", ratio)),
    );
    let (code, stdout, stderr) = run(&["lint", &ratio]);
    assert!(
        code == 0 && stdout.contains("warning: spec.signal.prometheus"),
        "{stdout}"
    );
    assert!(stderr.ends_with("0 errors, 2 warnings\n"), "{stderr}");

    // The configuration knows the sources.
    let config = "sources: [{name: other, prometheus: {url: \"http://127.0.0.1:9090\"}}]\n";
    let config = write(&folder, "defragd.conf", config);
    let (code, stdout, _) = run(&["lint", "--config", &config, "--output", "json", &good]);
    assert_eq!(code, 1);
    let answer: Value = serde_json::from_str(&stdout).expect("JSON");
    let finding = &answer["findings"][0];
    assert_eq!(
        (&finding["severity"], &finding["line"]),
        (&"error".into(), &13.into()),
        "{answer:#}"
    );
    assert_eq!(finding["path"], "spec.signal.prometheus.source");

    // The files that a source names are opened as `standalone` does, which may be elsewhere.
    let absent =
        "sources: [{name: main, prometheus: {url: \"https://p\", caFile: /nowhere.pem}}]\n";
    let absent = write(&folder, "absent.conf", absent);
    let (code, stdout, _) = run(&["lint", "--config", &absent, &good]);
    assert!(
        code == 0
            && stdout.contains("warning: sources[0].prometheus: ")
            && stdout.contains("/nowhere.pem"),
        "{code}: {stdout}"
    );

    // What only one host can do is right without a word about the host.
    let pods = TARGET.replace(
        "endpoints: [\"http://127.0.0.1:2379\"]",
        "podSelector: {matchLabels: {component: etcd}}",
    );
    let pods_only = tempfile::tempdir().expect("a folder");
    let pods = write(&pods_only, "pods.yaml", &pods);
    for (host, expected) in [(None, 0), (Some("kubernetes"), 0), (Some("standalone"), 1)] {
        let mut args = vec!["lint", &pods];
        args.extend(host.iter().flat_map(|host| ["--for", host]));
        let (code, stdout, stderr) = run(&args);
        assert_eq!(code, expected, "{host:?}: {stdout}{stderr}");
        assert_eq!(
            stdout.contains("spec.podSelector: it works in Kubernetes only"),
            code == 1,
            "{stdout}"
        );
    }
    let (code, _, stderr) = run(&["lint", "--for", "nomad", &pods]);
    assert!(code == 2 && stderr.contains("kubernetes"), "{stderr}");

    // A folder stands for its files; the same target in several of them is an error.
    let (code, stdout, stderr) = run(&["lint", &path_of(folder.path())]);
    assert!(code == 1 && stderr.starts_with("3 files: "), "{stderr}");
    assert!(stdout.contains("is given twice"), "{stdout}");
    let empty = tempfile::tempdir().expect("a folder");
    let (code, _, stderr) = run(&["lint", &path_of(empty.path())]);
    assert!(code == 2 && stderr.contains("holds no *.yaml"), "{stderr}");
}

#[test]
fn crds_are_yaml_for_every_kind() {
    let (code, text, _) = run(&["crds"]);
    assert_eq!(code, 0);
    let mut kinds = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let crd: Value = serde::Deserialize::deserialize(document).expect("YAML");
        assert_eq!(crd["kind"], "CustomResourceDefinition");
        kinds.push(
            crd["spec"]["names"]["kind"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    assert_eq!(kinds, ["EtcdTarget", "EtcdDefragPolicy", "EtcdDefrag"]);
}

#[test]
fn completions_know_every_subcommand() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, script, _) = run(&["completions", shell]);
        assert_eq!(code, 0);
        for subcommand in SUBCOMMANDS {
            assert!(
                script.contains(subcommand),
                "{shell} does not know {subcommand}"
            );
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    // More than a pipe holds, so that the write meets the closed end.
    let mut child = Process::new(env!("CARGO_BIN_EXE_defragd"))
        .arg("crds")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{output:?}");
}

/// The process beside which `status` reads; killed when a test ends early.
struct Standalone(std::process::Child);

impl Drop for Standalone {
    fn drop(&mut self) {
        // Both fail when it has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn status_answers_beside_the_running_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let (objects, state) = (folder.path().join("objects"), folder.path().join("state"));
    fs::create_dir(&objects).expect("the folder is ours");
    let probing = "---
apiVersion: defragd.dev/v1alpha1
kind: EtcdDefragPolicy
metadata: {name: probing}
spec:
  clusterRef: {name: demo}
  signal: {probe: {rule: {freeSpaceAbove: 50Mi}}}
  interval: 1s
---
apiVersion: defragd.dev/v1alpha1
kind: EtcdDefragPolicy
metadata: {name: broken}
spec:
  clusterRef: {name: demo}
  signal: {probe: {}}
  interval: 0s
";
    // Nobody listens on port 1.
    let target = TARGET.replace("2379", "1");
    fs::write(objects.join("all.yaml"), format!("{target}{probing}")).expect("the folder is ours");
    let (objects, state) = (path_of(&objects), path_of(&state));
    let child = Process::new(env!("CARGO_BIN_EXE_defragd"))
        .args([
            "standalone",
            "--objects",
            &objects,
            "--state",
            &state,
            "--log-level",
            "warn",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut child = Standalone(child);

    let status = ["status", "--state", &state, "--output", "json"];
    eventually(
        Duration::from_secs(20),
        "every object with its status",
        async || {
            let (code, stdout, stderr) = run(&status);
            if code != 0 {
                return Err(stderr);
            }
            let answer: Value = serde_json::from_str(&stdout).map_err(|e| e.to_string())?;
            let items = answer["items"].as_array().cloned().unwrap_or_default();
            let find = |name: &str| items.iter().find(|item| item["metadata"]["name"] == name);
            let decided = find("probing").is_some_and(|policy| {
                policy["status"]["clusters"][0]["decision"]["reason"].is_string()
            });
            let refused =
                find("broken").is_some_and(|policy| policy.to_string().contains("spec.interval"));
            let seen = find("demo").is_some_and(|target| target["status"]["conditions"].is_array());
            if items.len() == 3 && decided && refused && seen {
                Ok(())
            } else {
                Err(stdout)
            }
        },
    )
    .await
    .expect("the process records what it decides");

    const STOPPED: &str =
        "defragd is not running on this state folder; what follows is as it was last stored\n";
    let (code, text, _) = run(&["status", "--state", &state]);
    assert_eq!(code, 0);
    assert!(!text.contains("not running"), "{text}");
    for words in [
        "Policy default/probing\n",
        "  signal     Error: ProbeFailed: ",
        "  last run   none known\n",
        "Policy default/broken\n  not ready  InvalidSpec: all.yaml:20: spec.interval: \"0s\"",
        "Target default/demo\n  not ready  ",
    ] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    let (code, yaml, _) = run(&["status", "--state", &state, "--output", "yaml"]);
    let answer: Value = serde_yaml::from_str(&yaml).expect("YAML");
    assert_eq!(
        (code, answer["items"].as_array().map(Vec::len)),
        (0, Some(3))
    );
    assert_eq!(answer["running"], true);

    // A second process is kept out, and the first ends in order.
    let (code, _, stderr) = run(&["standalone", "--objects", &objects, "--state", &state]);
    assert!(
        code == 1 && stderr.contains(&child.0.id().to_string()),
        "{code}: {stderr}"
    );
    kill_process(Pid::from_child(&child.0), Signal::TERM).expect("it runs");
    let ended = child.0.wait().expect("it ends");
    assert_eq!(ended.code(), Some(0));

    // What it knew is still told, and that nobody keeps it up to date.
    let (code, text, _) = run(&["status", "--state", &state]);
    assert!(
        code == 0 && text.starts_with(STOPPED) && text.contains("\nPolicy default/probing\n"),
        "{text}"
    );
    let (_, stdout, _) = run(&status);
    let answer: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(
        (&answer["running"], answer["items"].as_array().map(Vec::len)),
        (&false.into(), Some(3))
    );
}
