//! Targets that are not valid, with everything that is said about them.

use super::*;

pub(super) fn bad_targets() -> Vec<(&'static str, String)> {
    cases([
        ("no endpoints", "endpoints: []"),
        ("endpoints missing", "memberCount: 3"),
        (
            "without scheme",
            "endpoints: [\"127.0.0.1:2379\", localhost, \"etcd:2379\"]",
        ),
        (
            "other schemes and shapes",
            "endpoints: [\"ftp://h:1\", \"http://\", \"http://h:1/x\", \"http://h:99999\", \"http://h:0\"]",
        ),
        (
            "a password is never repeated",
            "endpoints: [\"http://root:hunter2@h:2379\", \"root:hunter2@h\"]",
        ),
        (
            "twice",
            "endpoints: [\"http://h:2379\", \"http://h:2379/\"]",
        ),
        (
            "https without tls",
            "endpoints: [\"https://h:2379\"]\nmetricsURLs: [\"https://h:9090/metrics\", \"http://h:9090/metrics?token=hunter2\"]",
        ),
        (
            "http with tls",
            "endpoints: [\"http://h:2379\"]\ntls: {caFile: ca.crt}",
        ),
        (
            "half an identity",
            "endpoints: [\"https://h:2379\"]\ntls: {caFile: ca.crt, certFile: c.crt, serverName: \"a b\"}",
        ),
        (
            "a server name with a wildcard",
            "endpoints: [\"https://h:2379\"]\ntls: {caFile: ca.crt, serverName: \"*.example.com\"}",
        ),
        (
            "a server name in brackets",
            "endpoints: [\"https://h:2379\"]\ntls: {caFile: ca.crt, serverName: \"[::1]\"}",
        ),
        ("no authority", "endpoints: [\"https://h:2379\"]\ntls: {}"),
        (
            "empty files",
            "endpoints: [\"http://h:2379\"]\nauth: {usernameFile: \"\", passwordFile: p}",
        ),
        (
            "half a user",
            "endpoints: [\"http://h:2379\"]\nauth: {usernameFile: u}",
        ),
        (
            "numbers",
            "endpoints: [\"http://h:2379\"]\nmemberCount: 0\nquotaBytes: 0",
        ),
        (
            "capitals and blanks",
            "endpoints: [\"HTTP://h:2379\", \" http://g:2379\"]",
        ),
        (
            "both ways to the members",
            "podSelector: {matchLabels: {component: etcd}}\nendpoints: [\"http://h:2379\"]",
        ),
        (
            "an empty list beside the pods",
            "podSelector: {matchLabels: {component: etcd}}\nendpoints: []",
        ),
        ("no labels", "podSelector: {}"),
        ("every pod", "podSelector: {matchLabels: {}}"),
        (
            "labels that are none",
            "podSelector:\n  matchLabels:\n    a b: c\n    UPPER.example/x: v\n    /x: v\n    a/b/c: v\n    \"\": v\n    -x: v\n    app: no blanks\n    tier: \"-\"\n    long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ),
        (
            "labels of other types",
            "podSelector:\n  matchLabels:\n    a: 1\n    b: true\n    c:\n    d: [x]\n  port: \"2379\"\n  scheme: HTTPS",
        ),
        ("ports", "podSelector: {matchLabels: {a: b}, port: 0}"),
        (
            "a port too high",
            "podSelector: {matchLabels: {a: b}, port: 65536}",
        ),
        (
            "expressions are not read",
            "podSelector: {matchLabels: {a: b}, matchExpressions: []}",
        ),
        (
            "https pods without tls",
            "podSelector: {matchLabels: {a: b}, scheme: https}",
        ),
        (
            "http pods with tls",
            "podSelector: {matchLabels: {a: b}, scheme: http}\ntls: {secretRef: {name: x}}",
        ),
        (
            "pods with tls and no scheme",
            "podSelector: {matchLabels: {a: b}}\ntls: {secretRef: {name: x}}",
        ),
        (
            "pods and files",
            "podSelector: {matchLabels: {a: b}, scheme: https}\ntls: {caFile: ca.crt}\nauth: {usernameFile: u, passwordFile: p}",
        ),
        (
            "a Secret for TLS, files for the user",
            "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: x}}\nauth: {usernameFile: u, passwordFile: p}",
        ),
        (
            "Secrets and files",
            "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: x}, caFile: ca.crt, keyFile: k}\nauth: {secretRef: {name: x}, usernameFile: u}",
        ),
        (
            "neither Secret nor file",
            "endpoints: [\"https://h:2379\"]\ntls: {serverName: h}\nauth: {}",
        ),
        (
            "names of Secrets",
            "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: kube-system/etcd}}\nauth: {secretRef: {name: \"\"}}",
        ),
        (
            "a Secret of another namespace",
            "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: etcd, namespace: kube-system}}",
        ),
        (
            "a Secret by its name alone",
            "endpoints: [\"https://h:2379\"]\ntls: {secretRef: etcd}\nauth: {secretRef: {}}",
        ),
    ])
}

#[test]
fn bad_targets_get_field_value_and_remedy() {
    let table = table(&bad_targets(), target);
    let said: Vec<&str> = table.lines().filter(|line| line.starts_with('→')).collect();
    assert!(
        !said.iter().any(|line| line.contains("hunter2")),
        "a password was repeated"
    );
    insta::assert_snapshot!(table);
}

/// Kubernetes takes a prefix of 253 characters and a name of 63, and so many labels are enough.
#[test]
fn labels_are_bounded() {
    let labels = |labels: &[String]| {
        verdict(&target(&format!(
            "podSelector: {{matchLabels: {{{}}}}}",
            labels.join(", ")
        )))
    };
    let long =
        |prefix: usize, name: usize| format!("{}/{}: x", "p".repeat(prefix), "n".repeat(name));
    assert_eq!(labels(&[long(253, 63)]), "");
    for wrong in [long(254, 1), long(1, 64), long(0, 1)] {
        let said = labels(&[wrong]);
        assert!(said.contains("is not the key of a label"), "{said}");
    }
    let many = |n: usize| (0..n).map(|i| format!("l{i}: x")).collect::<Vec<_>>();
    assert_eq!(labels(&many(16)), "");
    assert!(labels(&many(17)).contains("17 are too many; give at most 16"));
}

/// Fields are only ever added: what an older release stored is read, and written as it was.
#[test]
fn what_an_older_release_wrote_still_reads() {
    let stored = serde_json::json!({
        "apiVersion": API_VERSION,
        "kind": "EtcdTarget",
        "metadata": { "name": "t" },
        "spec": {
            "endpoints": ["https://h:2379"],
            "tls": { "caFile": "ca", "certFile": "c", "keyFile": "k" },
            "auth": { "usernameFile": "u", "passwordFile": "p" },
        },
        "status": {
            "clusterID": "1",
            "voters": 3,
            "members": [{ "memberID": "2", "name": "a" }],
        },
    });
    let target: EtcdTarget = serde_json::from_value(stored.clone()).unwrap();
    assert!(crate::api::validate::target(&target, Place::Standalone).is_ok());
    assert_eq!(serde_json::to_value(&target).unwrap(), stored);
}
