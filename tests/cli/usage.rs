//! Command lines that are wrong, and passwords on them.

use crate::{defragd, run, write};

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
