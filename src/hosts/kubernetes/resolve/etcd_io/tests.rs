use serde_json::{Value, json};

use super::super::SecretValue;
use super::super::fixtures::{etcd_io_cluster, key, object, set, urls};
use super::*;

/// What the watches hold, to be changed.
struct World {
    cluster: Value,
    pods: Vec<PodView>,
}

impl World {
    fn new() -> Self {
        World {
            cluster: etcd_io_cluster(),
            pods: Vec::new(),
        }
    }

    fn set(mut self, pointer: &str, value: Value) -> Self {
        set(&mut self.cluster, pointer, value);
        self
    }

    /// The pods' own arguments, one pod each.
    fn pods(mut self, arguments: &[&[&str]]) -> Self {
        self.pods = arguments
            .iter()
            .enumerate()
            .map(|(i, arguments)| pod(&format!("etcd-{i}"), arguments))
            .collect();
        self
    }

    fn resolve(self) -> Result<Resolved, Note> {
        let cluster = object(self.cluster);
        let pods: Vec<_> = self.pods.into_iter().map(Arc::new).collect();
        etcd_io(
            &key("etcd"),
            &EtcdIo {
                installed: true,
                cluster: Some(&cluster),
                pods: &pods,
            },
        )
    }

    fn found(self) -> Resolved {
        self.resolve().unwrap()
    }

    fn refused(self) -> Note {
        self.resolve().unwrap_err()
    }
}

fn pod(name: &str, arguments: &[&str]) -> PodView {
    PodView {
        name: name.to_owned(),
        labels: [("app", "etcd"), ("controller", "etcd")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        phase: "Running".to_owned(),
        address: Some("10.0.0.1".to_owned()),
        arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
        ..PodView::default()
    }
}

const PLAIN: &[&str] = &[
    "/usr/local/bin/etcd",
    "--name=$(POD_NAME)",
    "--listen-client-urls=http://0.0.0.0:2379",
];
const TLS: &[&str] = &[
    "/usr/local/bin/etcd",
    "--listen-client-urls=https://0.0.0.0:2379",
    "--client-cert-auth=true",
];

#[test]
fn a_settled_cluster_is_reached_by_its_full_names() {
    let resolved = World::new().found();
    assert_eq!(
        urls(&resolved.members.endpoints),
        [
            "http://etcd-0.etcd.shop.svc.cluster.local:2379",
            "http://etcd-1.etcd.shop.svc.cluster.local:2379",
            "http://etcd-2.etcd.shop.svc.cluster.local:2379",
        ]
    );
    assert_eq!(
        resolved,
        Resolved {
            members: Members {
                endpoints: resolved.members.endpoints.clone(),
                busy: None,
                remarks: Vec::new(),
            },
            addresses: BTreeMap::new(),
            tls: None,
            auth: None,
            expected_voters: 3,
            quota_bytes: None,
            metrics_urls: Vec::new(),
            cluster_id: None,
        }
    );
}

#[test]
fn a_cluster_that_cannot_be_told_says_why() {
    let absent = etcd_io(
        &key("etcd"),
        &EtcdIo {
            installed: false,
            cluster: None,
            pods: &[],
        },
    )
    .unwrap_err();
    assert_eq!(absent.reason, Reason::ClusterNotFound);
    assert_eq!(
        absent.message,
        "EtcdCluster.operator.etcd.io/shop/etcd does not exist: \
         operator.etcd.io/v1alpha1 is not installed in this cluster"
    );
    for (world, reason, expected) in [
        (
            World::new().set("/metadata/deletionTimestamp", json!("2026-01-02T00:00:00Z")),
            Reason::ClusterChanging,
            "EtcdCluster.operator.etcd.io/shop/etcd is being deleted",
        ),
        (
            World::new().set("/spec/size", Value::Null),
            Reason::MembersUnresolved,
            "EtcdCluster.operator.etcd.io/shop/etcd: spec.size is not set, want the number of members",
        ),
        (
            World::new().set("/spec/size", json!(0)),
            Reason::MembersUnresolved,
            "spec.size is 0: no member runs",
        ),
        (
            World::new().set("/spec/size", json!(4_000_000_000_u32)),
            Reason::MembersUnresolved,
            "spec.size is 4000000000, want at most 64",
        ),
        (
            World::new().set("/spec/size", json!("3")),
            Reason::MembersUnresolved,
            "spec.size \"3\" cannot be read",
        ),
        (
            World::new().set("/spec/etcdOptions/0", json!(1)),
            Reason::MembersUnresolved,
            "spec.etcdOptions[0] 1 cannot be read",
        ),
        (
            World::new().set("/status", Value::Null),
            Reason::MembersUnresolved,
            "status.memberCount is not set: its operator has not seen a member of it yet",
        ),
    ] {
        let note = world.refused();
        assert_eq!(note.reason, reason, "{expected}");
        assert!(note.message.contains(expected), "{}", note.message);
    }
}

/// R11: scaling, upgrading, a learner, a spec that the operator has not seen.
#[test]
fn a_cluster_that_its_operator_changes_is_busy() {
    for (world, expected) in [
        (
            World::new().set(
                "/status/conditions/1",
                json!({"type": "Progressing", "status": "True", "reason": "ScalingInProgress", "message": "from 3 to 5"}),
            ),
            "its operator says Progressing: ScalingInProgress: from 3 to 5",
        ),
        (
            World::new().set("/metadata/generation", json!(3)),
            "its operator has seen generation 2 of it and not 3",
        ),
        (
            World::new().set("/status/memberCount", json!(4)),
            "it has 4 members and spec.size is 3",
        ),
        (
            World::new().set("/status/currentReplicas", json!(2)),
            "it has 2 pods and spec.size is 3",
        ),
        (
            World::new().set("/status/members/2/isLearner", json!(true)),
            "one of its members is a learner",
        ),
        (
            World::new().set("/spec/version", json!("v3.6.7")),
            "spec.version is 3.6.7 and its members run 3.6.5",
        ),
        (
            World::new()
                .set("/spec/version", json!("v3.6.7"))
                .set("/status/members/1/version", json!("3.6.7")),
            "its members run 3.6.5 and 3.6.7",
        ),
    ] {
        let busy = world.found().members.busy.expect(expected);
        assert_eq!(busy.reason, Reason::ClusterChanging);
        assert_eq!(busy.message, expected);
    }
    // Several at once are all told.
    let several = World::new()
        .set("/spec/size", json!(5))
        .set("/metadata/generation", json!(3))
        .found();
    assert_eq!(several.members.endpoints.len(), 5);
    assert_eq!(
        several.members.busy.unwrap().message,
        "its operator has seen generation 2 of it and not 3; \
         it has 3 members and spec.size is 5; it has 3 pods and spec.size is 5"
    );
}

#[test]
fn what_proves_no_change_does_not_make_it_busy() {
    for world in [
        World::new().set("/spec/version", json!("latest")),
        World::new().set("/spec/version", json!("v3.6.5-arm64")),
        World::new().set("/status/currentVersion", Value::Null),
        World::new().set("/status/observedGeneration", Value::Null),
        World::new().set("/status/readyReplicas", json!(2)),
        World::new().set("/status/members", Value::Null),
        // A member that did not answer its operator.
        World::new().set("/status/members/0/version", json!("")),
        // These are mixed up: nothing of one member alone is believed.
        World::new()
            .set("/status/members/0/isHealthy", json!(false))
            .set("/status/members/0/name", json!(9)),
    ] {
        let resolved = world.found();
        assert_eq!(resolved.members.busy, None);
        assert_eq!(resolved.members.endpoints.len(), 3);
    }
}

#[test]
fn tls_is_what_the_pods_serve() {
    let server = |key| SecretValue {
        secret: "etcd-server-tls".to_owned(),
        key,
    };
    let full = Tls {
        ca: server("ca.crt"),
        identity: Some((server("tls.crt"), server("tls.key"))),
    };
    let asked = || World::new().set("/spec/tls", json!({"provider": "auto"}));
    let assumed = "its members are taken to serve TLS because spec.tls is set; \
         v0.2.0 of its operator serves plain HTTP all the same, which only the pods tell";
    let ignored = "spec.tls is set, and its pods serve plain HTTP all the same";
    let both: &[&str] = &["--listen-client-urls=http://127.0.0.1:2379, https://0.0.0.0:2379"];
    let option = |value: &str| json!([format!("--listen-client-urls={value}")]);
    for (what, world, tls, remark) in [
        ("v0.3.0", asked().pods(&[TLS, TLS, TLS]), true, None),
        (
            "v0.2.0",
            asked().pods(&[PLAIN, PLAIN, PLAIN]),
            false,
            Some(ignored),
        ),
        ("no pods seen", asked(), true, Some(assumed)),
        (
            "pods that do not tell",
            asked().pods(&[&[], &["etcd"]]),
            true,
            Some(assumed),
        ),
        ("one pod is enough", asked().pods(&[TLS]), true, None),
        ("both", asked().pods(&[both]), true, None),
        (
            "plain",
            World::new().pods(&[PLAIN, PLAIN, PLAIN]),
            false,
            None,
        ),
        (
            "by an option",
            asked().set("/spec/etcdOptions", option("http://0.0.0.0:2379")),
            false,
            None,
        ),
        (
            "the pods know better",
            asked()
                .set("/spec/etcdOptions", option("http://0.0.0.0:2379"))
                .pods(&[TLS]),
            true,
            None,
        ),
        (
            "empty is set",
            World::new().set("/spec/tls", json!({})).pods(&[TLS]),
            true,
            None,
        ),
    ] {
        let resolved = world.found();
        assert_eq!(resolved.tls, tls.then(|| full.clone()), "{what}");
        let scheme = if tls { "https" } else { "http" };
        assert_eq!(
            urls(&resolved.members.endpoints)[0],
            format!("{scheme}://etcd-0.etcd.shop.svc.cluster.local:2379"),
            "{what}"
        );
        assert_eq!(
            resolved.members.remarks,
            remark.map(str::to_owned).into_iter().collect::<Vec<_>>(),
            "{what}"
        );
    }
    // Half of them restarted with TLS.
    let mixed = asked().pods(&[TLS, PLAIN, PLAIN]).found();
    assert!(mixed.tls.is_some());
    assert_eq!(
        mixed.members.busy.unwrap().message,
        "some of its pods serve TLS and some do not"
    );
    // Certificates that nobody but the user knows of.
    let foreign = World::new().pods(&[TLS]).refused();
    assert_eq!(foreign.reason, Reason::SecretUnusable);
    assert!(
        foreign
            .message
            .contains("describe the cluster by an EtcdTarget"),
        "{}",
        foreign.message
    );
}

#[test]
fn pods_of_others_tell_nothing() {
    let mut world = World::new();
    world.pods = vec![
        pod("etcd-7", TLS),
        pod("other-0", TLS),
        PodView {
            labels: BTreeMap::new(),
            ..pod("etcd-0", TLS)
        },
    ];
    let resolved = world.found();
    assert_eq!(resolved, World::new().found());
}

#[test]
fn pods_tell_addresses_and_departures() {
    let mut world = World::new().pods(&[PLAIN, PLAIN, PLAIN]);
    world.pods[1].deleting = true;
    world.pods[2].address = Some("fd00::3".to_owned());
    let resolved = world.found();
    let host = |i| format!("etcd-{i}.etcd.shop.svc.cluster.local");
    assert_eq!(
        resolved.addresses,
        BTreeMap::from([
            (host(0), "10.0.0.1".parse().unwrap()),
            (host(2), "fd00::3".parse().unwrap()),
        ])
    );
    assert_eq!(
        resolved.members.busy.unwrap().message,
        "pod etcd-1 is being deleted"
    );
}

/// R47.
#[test]
fn the_quota_stands_in_the_options() {
    for (options, expected, remarks) in [
        (
            json!(["--quota-backend-bytes=8589934592"]),
            Some(8_589_934_592),
            0,
        ),
        (
            json!(["--quota-backend-bytes 8589934592"]),
            Some(8_589_934_592),
            0,
        ),
        (
            json!(["--quota-backend-bytes", "8589934592"]),
            Some(8_589_934_592),
            0,
        ),
        (
            json!(["--quota-backend-bytes=1", "--quota-backend-bytes=2"]),
            Some(2),
            0,
        ),
        (json!(["--quota-backend-bytes=0"]), None, 0),
        (json!(["--quota-backend-bytes=-1"]), None, 0),
        (json!(["--quota-backend-bytes=8Gi"]), None, 1),
        (json!(["--quota-backend-bytes"]), None, 0),
        (json!([]), None, 0),
        (Value::Null, None, 0),
    ] {
        let resolved = World::new()
            .set("/spec/etcdOptions", options.clone())
            .found();
        assert_eq!(resolved.quota_bytes, expected, "{options}");
        assert_eq!(resolved.members.remarks.len(), remarks, "{options}");
    }
}
