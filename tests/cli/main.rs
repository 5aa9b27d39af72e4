//! The command line without any etcd: help, usage errors, verdicts, generated texts.

mod lint;
mod status;
mod usage;

use std::fs;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use assert_cmd::Command;
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
