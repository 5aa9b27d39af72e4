//! What only one of the hosts can do, judged for each of them.

use super::*;

fn said(text: &str, place: Place) -> String {
    let parsed = parse("p.yaml", text);
    assert_eq!(parsed.errors, [], "{text}");
    let said: Vec<String> = parsed.objects[0]
        .errors(place)
        .iter()
        .map(|e| format!("→ {e}"))
        .collect();
    said.join("\n")
}

/// An object that one host takes whole is right somewhere; the other says field, value and remedy.
#[test]
fn what_one_host_cannot_do_it_refuses() {
    use Place::{Anywhere, Kubernetes, Standalone};
    let cases = [
        (
            "files",
            Standalone,
            target(
                "endpoints: [\"https://h:2379\"]\ntls: {caFile: ca.crt, certFile: c.crt, keyFile: c.key}\n\
                 auth: {usernameFile: u, passwordFile: p}",
            ),
        ),
        (
            "Secrets",
            Kubernetes,
            target(
                "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: etcd-client}}\n\
                 auth: {secretRef: {name: etcd-root}}",
            ),
        ),
        (
            "pods",
            Kubernetes,
            target("podSelector: {matchLabels: {component: etcd}}"),
        ),
        (
            "a policy for cozystack's cluster",
            Kubernetes,
            policy(
                "clusterRef: {apiVersion: etcd-operator.cozystack.io/v1alpha2, kind: EtcdCluster, name: etcd}",
            ),
        ),
        (
            "a run on etcd-io's cluster",
            Kubernetes,
            run("").replace(
                "{name: demo}",
                "{apiVersion: operator.etcd.io/v1alpha1, kind: EtcdCluster, name: etcd}",
            ),
        ),
    ];
    let mut out = String::new();
    for (name, home, text) in cases {
        let other = if home == Kubernetes {
            Standalone
        } else {
            Kubernetes
        };
        assert_eq!(said(&text, Anywhere), "", "{name}");
        assert_eq!(said(&text, home), "", "{name}");
        let said = said(&text, other);
        assert!(!said.is_empty(), "{name}");
        writeln!(out, "# {name}, in {other:?}\n{said}\n").unwrap();
    }
    insta::assert_snapshot!(out);
}

/// A remedy names what can be done where the object is.
#[test]
fn remedies_are_those_of_the_place() {
    use Place::{Anywhere, Kubernetes, Standalone};
    let mut out = String::new();
    for (name, text) in [
        ("https", "endpoints: [\"https://h:2379\"]"),
        ("no authority", "endpoints: [\"https://h:2379\"]\ntls: {}"),
        ("no user", "endpoints: [\"http://h:2379\"]\nauth: {}"),
    ] {
        for place in [Anywhere, Kubernetes, Standalone] {
            let said = said(&target(text), place);
            writeln!(out, "# {name}, {place:?}\n{said}\n").unwrap();
        }
    }
    insta::assert_snapshot!(out);
}

/// What moves from one host to the other unchanged.
#[test]
fn plain_objects_work_everywhere() {
    for text in [
        target("endpoints: [\"http://h:2379\"]\nmemberCount: 3"),
        policy("signal: {probe: {}}"),
        run("leader: Move"),
    ] {
        for place in [Place::Anywhere, Place::Kubernetes, Place::Standalone] {
            assert_eq!(said(&text, place), "", "{place:?}: {text}");
        }
    }
}

#[test]
fn references_lead_to_the_cluster_that_they_name() {
    use crate::api::defrag::ClusterRef;
    use crate::core::key::ClusterKind;
    let all = [
        (None, None, Some(ClusterKind::EtcdTarget)),
        (None, Some("EtcdTarget"), Some(ClusterKind::EtcdTarget)),
        (Some(API_VERSION), None, Some(ClusterKind::EtcdTarget)),
        (
            Some("etcd-operator.cozystack.io/v1alpha2"),
            Some("EtcdCluster"),
            Some(ClusterKind::CozystackCluster),
        ),
        (
            Some("operator.etcd.io/v1alpha1"),
            Some("EtcdCluster"),
            Some(ClusterKind::EtcdIoCluster),
        ),
        (None, Some("EtcdCluster"), None),
        (Some(API_VERSION), Some("EtcdCluster"), None),
        (Some("operator.etcd.io/v1alpha1"), None, None),
        (Some("operator.etcd.io/v1"), Some("EtcdCluster"), None),
    ];
    for (version, kind, known) in all {
        let cluster = ClusterRef {
            api_version: version.map(str::to_owned),
            kind: kind.map(str::to_owned),
            name: "etcd".to_owned(),
        };
        assert_eq!(cluster.cluster_kind(), known, "{cluster:?}");
        let key = cluster.key("prod".into());
        assert_eq!(key.kind, known.unwrap_or(ClusterKind::EtcdTarget));
        assert_eq!(key.object.to_string(), "prod/etcd");
        if let (Some(version), Some(known)) = (version, known) {
            assert_eq!(version, format!("{}/{}", known.group(), known.version()));
        }
    }
}
