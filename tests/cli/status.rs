//! `defragd status` beside a running process and after its end.

use std::fs;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use defragd_harness::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{TARGET, path_of, run};

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
