//! `defragd lint` gives the verdict of the hosts.

use serde_json::Value;
use tempfile::TempDir;

use crate::{TARGET, path_of, run, write};

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

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A file with nothing wrong.
fn good(folder: &TempDir) -> String {
    let text = format!("{TARGET}{}", policy("1h", BYTES));
    write(folder, "good.yaml", &text)
}

/// A file with a wrong value, a query that does not parse and an unknown field.
fn bad(folder: &TempDir) -> String {
    let unknown = TARGET
        .replace("endpoints", "endpoint")
        .replace("demo", "other");
    let text = format!("{TARGET}{}---\n{unknown}", policy("0s", "max("));
    write(folder, "bad.yaml", &text)
}

/// A file with a byte threshold for a ratio.
fn ratio(folder: &TempDir) -> String {
    let query =
        "sum(etcd_mvcc_db_total_size_in_use_in_bytes) / sum(etcd_mvcc_db_total_size_in_bytes)";
    let text = format!("{TARGET}{}", policy("1h", query));
    write(folder, "ratio.yaml", &text)
}

#[test]
fn nothing_is_said_of_what_is_right() {
    let folder = folder();
    let (code, stdout, stderr) = run(&["lint", &good(&folder)]);
    assert_eq!(
        (code, stdout.as_str(), stderr.as_str()),
        (0, "", "1 file: 0 errors, 0 warnings\n")
    );
}

#[test]
fn each_error_has_its_place_and_none_hides_another() {
    let folder = folder();
    let bad = bad(&folder);
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
}

/// A byte threshold for a ratio is accepted and was hardly meant, nor a fire at much in use.
#[test]
fn what_was_hardly_meant_is_warned_of() {
    let folder = folder();
    let (code, stdout, stderr) = run(&["lint", &ratio(&folder)]);
    assert!(
        code == 0 && stdout.contains("warning: spec.signal.prometheus"),
        "{stdout}"
    );
    assert!(stderr.ends_with("0 errors, 2 warnings\n"), "{stderr}");
}

#[test]
fn the_configuration_knows_the_sources() {
    let folder = folder();
    let good = good(&folder);
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
}

/// The files that a source names are opened as `standalone` does, which may be elsewhere.
#[test]
fn files_that_a_source_names_may_be_elsewhere() {
    let folder = folder();
    let good = good(&folder);
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
}

#[test]
fn what_only_one_host_can_do_is_right_without_a_word_about_the_host() {
    let pods = TARGET.replace(
        "endpoints: [\"http://127.0.0.1:2379\"]",
        "podSelector: {matchLabels: {component: etcd}}",
    );
    let folder = folder();
    let pods = write(&folder, "pods.yaml", &pods);
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
}

/// The same target in several of its files is an error.
#[test]
fn a_folder_stands_for_its_files() {
    let whole = folder();
    for file in [good, bad, ratio] {
        file(&whole);
    }
    write(&whole, "defragd.conf", "sources: []\n");
    let (code, stdout, stderr) = run(&["lint", &path_of(whole.path())]);
    assert!(code == 1 && stderr.starts_with("3 files: "), "{stderr}");
    assert!(stdout.contains("is given twice"), "{stdout}");
    let empty = folder();
    let (code, _, stderr) = run(&["lint", &path_of(empty.path())]);
    assert!(code == 2 && stderr.contains("holds no *.yaml"), "{stderr}");
}
