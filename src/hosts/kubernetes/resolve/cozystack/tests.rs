use serde_json::{Value, json};

use super::super::fixtures::{
    cozystack_cluster, cozystack_defrag, cozystack_members, key, object, set, urls,
};
use super::*;
use crate::core::reason::Reason;

/// What the watches hold, to be changed.
struct World {
    cluster: Value,
    members: Vec<Value>,
    defrags: Vec<Value>,
    pods: Vec<PodView>,
}

impl World {
    fn new() -> Self {
        World {
            cluster: cozystack_cluster(),
            members: cozystack_members(),
            defrags: Vec::new(),
            pods: Vec::new(),
        }
    }

    fn set(mut self, pointer: &str, value: Value) -> Self {
        set(&mut self.cluster, pointer, value);
        self
    }

    fn member(mut self, n: usize, pointer: &str, value: Value) -> Self {
        set(&mut self.members[n], pointer, value);
        self
    }

    fn resolve(self) -> Result<Resolved, Note> {
        let World {
            cluster,
            members,
            defrags,
            pods,
        } = self;
        let cluster = object(cluster);
        let members: Vec<_> = members.into_iter().map(object).collect();
        let defrags: Vec<_> = defrags.into_iter().map(object).collect();
        let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
        cozystack(
            &key("etcd"),
            &Cozystack {
                installed: true,
                cluster: Some(&cluster),
                members: &members,
                defrags: &defrags,
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

fn secret(secret: &str, key: &'static str) -> SecretValue {
    SecretValue {
        secret: secret.to_owned(),
        key,
    }
}

#[test]
fn a_settled_cluster_is_reached_as_its_operator_reaches_it() {
    let mut world = World::new();
    // Whatever order the watch has them in.
    world.members.reverse();
    let resolved = world.found();
    assert_eq!(
        urls(&resolved.members.endpoints),
        [
            "https://etcd-0.etcd.shop.svc:2379",
            "https://etcd-fx2lq.etcd.shop.svc:2379",
            "https://etcd-w9m4k.etcd.shop.svc:2379",
        ]
    );
    assert_eq!(
        urls(&resolved.metrics_urls)[0],
        "http://etcd-0.etcd.shop.svc:2381/metrics"
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
            tls: Some(Tls {
                ca: secret("etcd-server-tls", "ca.crt"),
                identity: Some((
                    secret("etcd-operator-client-tls", "tls.crt"),
                    secret("etcd-operator-client-tls", "tls.key"),
                )),
            }),
            auth: None,
            expected_voters: 3,
            quota_bytes: Some(8_000_000_000),
            metrics_urls: resolved.metrics_urls.clone(),
            cluster_id: Some(ClusterId(0x769f_1c9e_0d72_3d0b)),
        }
    );
}

#[test]
fn a_cluster_that_is_not_there_or_not_any_more_says_so() {
    let seen = |installed| Cozystack {
        installed,
        cluster: None,
        members: &[],
        defrags: &[],
        pods: &[],
    };
    let absent = cozystack(&key("etcd"), &seen(true)).unwrap_err();
    assert_eq!(absent.reason, Reason::ClusterNotFound);
    assert_eq!(
        absent.message,
        "EtcdCluster.etcd-operator.cozystack.io/shop/etcd does not exist"
    );
    let unknown = cozystack(&key("etcd"), &seen(false)).unwrap_err();
    assert_eq!(unknown.reason, Reason::ClusterNotFound);
    assert_eq!(
        unknown.message,
        "EtcdCluster.etcd-operator.cozystack.io/shop/etcd does not exist: \
         etcd-operator.cozystack.io/v1alpha2 is not installed in this cluster"
    );
    let going = World::new()
        .set("/metadata/deletionTimestamp", json!("2026-01-02T00:00:00Z"))
        .refused();
    assert_eq!(going.reason, Reason::ClusterChanging);
    assert!(going.message.ends_with("shop/etcd is being deleted"));
}

#[test]
fn a_cluster_without_members_to_ask_is_unresolved() {
    let deleted = json!("2026-01-02T00:00:00Z");
    let mut gone = World::new().member(0, "/metadata/deletionTimestamp", deleted);
    gone.members.truncate(1);
    let mut dormant = World::new().member(0, "/spec/dormant", json!(true));
    dormant.members.truncate(1);
    let mut none = World::new();
    none.members.clear();
    for (what, world, expected) in [
        (
            "not looked at",
            World::new().set("/status/observed", Value::Null),
            "status.observed is not set: its operator has not looked at it yet",
        ),
        (
            "no status",
            World::new().set("/status", Value::Null),
            "status.observed is not set",
        ),
        (
            "parked",
            World::new().set("/status/observed/replicas", json!(0)),
            "status.observed.replicas is 0: the cluster is parked and no member runs",
        ),
        (
            "huge",
            World::new().set("/status/observed/replicas", json!(65)),
            "status.observed.replicas is 65, want at most 64",
        ),
        (
            "never bootstrapped",
            World::new().set("/status/clusterID", json!("")),
            "status.clusterID is not set: the cluster has never been bootstrapped",
        ),
        ("no member", none, "0 EtcdMembers of it run, want 3"),
        (
            "waking up",
            dormant,
            "0 EtcdMembers of it run (dormant: etcd-0), want 3",
        ),
        (
            "the last one goes",
            gone,
            "0 EtcdMembers of it run (being deleted: etcd-0), want 3",
        ),
    ] {
        let note = world.refused();
        assert_eq!(note.reason, Reason::MembersUnresolved, "{what}");
        assert!(
            note.message
                .starts_with("EtcdCluster.etcd-operator.cozystack.io/shop/etcd: ")
                && note.message.contains(expected),
            "{what}: {}",
            note.message
        );
    }
}

#[test]
fn a_field_that_cannot_be_understood_is_named_with_its_value() {
    for (world, expected) in [
        (
            World::new().set("/status/observed/replicas", json!("three")),
            "EtcdCluster.etcd-operator.cozystack.io/shop/etcd: status.observed.replicas \"three\" cannot be read",
        ),
        (
            World::new().set("/status/observed/replicas", json!(-1)),
            "status.observed.replicas -1 cannot be read",
        ),
        (
            World::new().set("/status/observed", json!({"version": "3.6.5"})),
            "status.observed {\"version\":\"3.6.5\"} cannot be read (missing field `replicas`)",
        ),
        (
            World::new().set("/status/conditions/1/status", json!(true)),
            "status.conditions[1].status true cannot be read",
        ),
        (
            World::new().set("/spec/tls", json!("yes")),
            "spec.tls \"yes\" cannot be read",
        ),
        (World::new().set("/spec", json!(7)), "spec 7 cannot be read"),
        (
            World::new().set("/status/clusterID", json!("cluster one")),
            "status.clusterID \"cluster one\" is not a cluster's id",
        ),
        (
            World::new().set("/status/clusterID", json!("1234567890abcdef0")),
            "status.clusterID \"1234567890abcdef0\" is not a cluster's id",
        ),
        (
            World::new().member(1, "/spec/dormant", json!("no")),
            "EtcdMember.etcd-operator.cozystack.io/shop/etcd-fx2lq: spec.dormant \"no\" cannot be read",
        ),
        (
            World::new().member(1, "/spec/options/quotaBackendBytes", json!(-5)),
            "spec.options.quotaBackendBytes -5 cannot be read",
        ),
        (
            World::new().member(
                0,
                "/metadata/annotations/etcd-operator.cozystack.io~1headless-service-name",
                json!("evil.example/"),
            ),
            "the headless Service's name \"evil.example/\" cannot stand in a member's address",
        ),
    ] {
        let note = world.refused();
        assert_eq!(note.reason, Reason::MembersUnresolved);
        assert!(note.message.contains(expected), "{}", note.message);
    }
}

#[test]
fn what_nobody_needs_may_have_any_shape() {
    let world = World::new()
        .set("/spec/storage", json!(5))
        .set("/spec/later", json!({"than": "this"}))
        .set("/spec/options", json!("any"))
        .set("/status/readyMembers", json!("many"))
        .set("/status/conditions", Value::Null)
        .member(0, "/spec/storage", json!([]))
        .member(0, "/status/memberID", json!(7));
    assert_eq!(world.found(), World::new().found());
}

#[test]
fn members_of_others_are_not_taken_for_its_own() {
    let mut world = World::new();
    let mut other = cozystack_members().remove(1);
    set(&mut other, "/metadata/name", json!("other-0"));
    set(
        &mut other,
        "/metadata/labels/etcd-operator.cozystack.io~1cluster",
        json!("other"),
    );
    // Not even their mistakes are.
    set(&mut other, "/spec/dormant", json!("?"));
    let mut labelled = cozystack_members().remove(1);
    set(&mut labelled, "/metadata/name", json!("stray"));
    set(&mut labelled, "/spec/clusterName", json!("other"));
    let mut bare = cozystack_members().remove(1);
    set(&mut bare, "/metadata/labels", Value::Null);
    world.members.extend([other, labelled, bare]);
    assert_eq!(world.found(), World::new().found());
}

#[test]
fn adopted_members_are_below_the_service_they_came_with() {
    let resolved = World::new()
        .member(
            0,
            "/metadata/annotations/etcd-operator.cozystack.io~1headless-service-name",
            json!("etcd-headless"),
        )
        .found();
    assert_eq!(
        urls(&resolved.members.endpoints)[..2],
        [
            "https://etcd-0.etcd-headless.shop.svc:2379",
            "https://etcd-fx2lq.etcd.shop.svc:2379"
        ]
    );
    assert_eq!(
        urls(&resolved.metrics_urls)[0],
        "http://etcd-0.etcd-headless.shop.svc:2381/metrics"
    );
}

/// R11: scaling, replacing, adopting a changed spec.
#[test]
fn a_cluster_that_its_operator_changes_is_busy() {
    let progressing = |reason: &str, message: &str| json!({"type": "Progressing", "status": "True", "reason": reason, "message": message});
    let leaving = || {
        World::new().member(
            2,
            "/metadata/deletionTimestamp",
            json!("2026-01-02T00:00:00Z"),
        )
    };
    let mut fewer = World::new();
    fewer.members.truncate(2);
    for (world, endpoints, expected) in [
        (
            World::new().set("/spec/replicas", json!(5)),
            3,
            "spec.replicas is 5 and its operator still works towards 3",
        ),
        (
            World::new()
                .set("/spec/replicas", Value::Null)
                .set("/status/observed/replicas", json!(1)),
            3,
            "spec.replicas is 3 and its operator still works towards 1; \
             it has 3 members and its operator works towards 1",
        ),
        (
            fewer,
            2,
            "it has 2 members and its operator works towards 3",
        ),
        (
            leaving(),
            2,
            "it has 2 members and its operator works towards 3; \
             etcd-w9m4k is being deleted, its member is about to be removed",
        ),
        (
            World::new().member(2, "/status/isVoter", json!(false)),
            3,
            "etcd-w9m4k is not a voter yet",
        ),
        (
            World::new().member(2, "/status", Value::Null),
            3,
            "etcd-w9m4k is not a voter yet",
        ),
        (
            World::new().set(
                "/status/conditions/1",
                progressing("SpecChanged", "adopting\nnew spec"),
            ),
            3,
            "its operator says Progressing: SpecChanged: adopting new spec",
        ),
        (
            World::new().set("/status/conditions/1", progressing("", "")),
            3,
            "its operator says Progressing",
        ),
    ] {
        let members = world.found().members;
        assert_eq!(members.endpoints.len(), endpoints, "{expected}");
        let busy = members.busy.expect(expected);
        assert_eq!(busy.reason, Reason::ClusterChanging);
        assert_eq!(busy.message, expected);
    }
}

#[test]
fn what_its_operator_does_not_act_on_does_not_make_it_busy() {
    for world in [
        // It deletes no pod for another version or other options.
        World::new()
            .set("/spec/version", json!("3.6.7"))
            .set("/status/observed/version", json!("3.6.7"))
            .member(
                0,
                "/status/conditions",
                json!([{"type": "VersionDrifted", "status": "True", "reason": "VersionMismatch"}]),
            )
            .member(0, "/status/version", json!("3.6.4")),
        // Members that are not ready: etcd is asked about that.
        World::new()
            .set(
                "/status/conditions/2",
                json!({"type": "Degraded", "status": "True", "reason": "MembersUnhealthy"}),
            )
            .member(0, "/status/conditions/0/status", json!("False")),
        // A member at rest beside those that run.
        {
            let mut world = World::new();
            let mut resting = cozystack_members().remove(0);
            set(&mut resting, "/metadata/name", json!("etcd-rest"));
            set(&mut resting, "/spec/dormant", json!(true));
            world.members.push(resting);
            world
        },
    ] {
        let resolved = world.found();
        assert_eq!(resolved.members.busy, None);
        assert_eq!(resolved.members.endpoints.len(), 3);
    }
}

/// R78: somebody else defragments.
#[test]
fn the_operators_own_defragmentation_makes_it_busy_until_it_ends() {
    let with = |defrags: Vec<Value>| {
        let mut world = World::new();
        world.defrags = defrags;
        world.found().members
    };
    for phase in ["Running", "Pending", "Paused by a later version"] {
        let busy = with(vec![cozystack_defrag(phase)]).busy.unwrap();
        assert_eq!(busy.reason, Reason::ClusterChanging);
        assert_eq!(
            busy.message,
            format!("EtcdDefrag.etcd-operator.cozystack.io nightly is {phase}")
        );
    }
    for phase in ["Complete", "Failed"] {
        let members = with(vec![cozystack_defrag(phase)]);
        assert_eq!(members.busy, None, "{phase}");
        assert!(members.remarks.is_empty());
    }
    // The kind came before its controller: without one, no phase ever appears.
    let mut inert = cozystack_defrag("");
    set(&mut inert, "/status", Value::Null);
    for defrag in [cozystack_defrag(""), inert] {
        let members = with(vec![defrag]);
        assert_eq!(members.busy, None);
        assert_eq!(
            members.remarks,
            [
                "EtcdDefrag.etcd-operator.cozystack.io nightly has no phase: \
              no operator acts on it, it is not waited for"
            ]
        );
    }
    let mut other = cozystack_defrag("Running");
    set(&mut other, "/spec/clusterRef/name", json!("other"));
    assert_eq!(with(vec![other]).busy, None);
    // One that cannot be read may be at work on this cluster.
    let mut odd = cozystack_defrag("Running");
    set(&mut odd, "/status/phase", json!(3));
    let busy = with(vec![odd]).busy.unwrap().message;
    assert!(
        busy.contains("nightly: status.phase 3 cannot be read"),
        "{busy}"
    );
}

#[test]
fn secrets_are_those_that_the_mode_of_tls_has() {
    let identity = |name| Some((secret(name, "tls.crt"), secret(name, "tls.key")));
    for (client, ca, expected) in [
        (
            json!({"serverSecretRef": {"name": "own-server"}}),
            "own-server",
            None,
        ),
        (
            json!({
                "serverSecretRef": {"name": "own-server"},
                "operatorClientSecretRef": {"name": "own-client"},
            }),
            "own-server",
            identity("own-client"),
        ),
        (
            json!({"certManager": {"serverIssuerRef": {"name": "ca"}}}),
            "etcd-server-tls",
            None,
        ),
        (
            json!({"certManager": {
                "serverIssuerRef": {"name": "ca"},
                "operatorClientIssuerRef": {"name": "ca"},
            }}),
            "etcd-server-tls",
            identity("etcd-operator-client-tls"),
        ),
        // Handed over from own Secrets to cert-manager: the named one wins.
        (
            json!({
                "serverSecretRef": {"name": "own-server"},
                "certManager": {"operatorClientIssuerRef": {"name": "ca"}},
            }),
            "own-server",
            identity("etcd-operator-client-tls"),
        ),
    ] {
        let tls = World::new()
            .set("/spec/tls/client", client.clone())
            .found()
            .tls
            .unwrap();
        assert_eq!(tls.ca, secret(ca, "ca.crt"), "{client}");
        assert_eq!(tls.identity, expected, "{client}");
    }
    for tls in [
        Value::Null,
        json!({}),
        json!({"peer": {"secretRef": {"name": "peer"}}}),
        json!({"client": null}),
    ] {
        let resolved = World::new().set("/spec/tls", tls).found();
        assert_eq!(resolved.tls, None);
        assert_eq!(
            urls(&resolved.members.endpoints)[0],
            "http://etcd-0.etcd.shop.svc:2379"
        );
    }
}

#[test]
fn secrets_that_cannot_be_named_are_refused() {
    for (pointer, value, expected) in [
        (
            "/spec/tls/client",
            json!({}),
            "spec.tls.client.serverSecretRef.name is not set",
        ),
        (
            "/spec/tls/client",
            json!({"serverSecretRef": {"name": ""}, "certManager": {}}),
            "spec.tls.client.serverSecretRef.name is not set",
        ),
        (
            "/spec/tls/client",
            json!({"serverSecretRef": {"name": "../../kube-system/secrets/ca"}}),
            "spec.tls.client.serverSecretRef.name \"../../kube-system/secrets/ca\" is not the name of a Secret",
        ),
        (
            "/spec/tls/client",
            json!({"serverSecretRef": {"name": "a"}, "operatorClientSecretRef": {}}),
            "spec.tls.client.operatorClientSecretRef.name is not set",
        ),
    ] {
        let note = World::new().set(pointer, value).refused();
        assert_eq!(note.reason, Reason::SecretUnusable);
        assert!(note.message.contains(expected), "{}", note.message);
    }
}

#[test]
fn a_user_is_named_only_once_etcd_asks_for_one() {
    let auth = json!({"enabled": true, "rootCredentialsSecretRef": {"name": "etcd-root"}});
    for (spec, status, expected) in [
        (Some(auth.clone()), Some(json!(true)), true),
        (Some(auth.clone()), Some(json!(false)), false),
        (Some(auth), None, false),
        (None, Some(json!(true)), false),
        (Some(json!({"enabled": false})), Some(json!(true)), false),
        (Some(json!({})), Some(json!(true)), false),
    ] {
        let resolved = World::new()
            .set("/spec/auth", json!(spec))
            .set("/status/authEnabled", json!(status))
            .found();
        let expected = expected.then(|| Auth {
            user: "root",
            password: secret("etcd-root", "password"),
        });
        assert_eq!(resolved.auth, expected, "{spec:?} {status:?}");
    }
    let note = World::new()
        .set("/spec/auth", json!({"enabled": true}))
        .set("/status/authEnabled", json!(true))
        .refused();
    assert_eq!(note.reason, Reason::SecretUnusable);
    assert!(
        note.message
            .contains("spec.auth.rootCredentialsSecretRef.name is not set"),
        "{}",
        note.message
    );
}

/// R47: a member's own options before those that the operator has in mind.
#[test]
fn the_quota_is_the_members_own() {
    const MEMBER: &str = "/spec/options/quotaBackendBytes";
    const OBSERVED: &str = "/status/observed/options/quotaBackendBytes";
    let all = |mut world: World, value: &Value| {
        for n in 0..3 {
            world = world.member(n, MEMBER, value.clone());
        }
        world
    };
    for (world, expected, remarks) in [
        (all(World::new(), &json!(4)), Some(4), 0),
        (all(World::new(), &Value::Null), Some(8_000_000_000), 0),
        (
            all(World::new().set(OBSERVED, json!(5)), &json!(0)),
            Some(5),
            0,
        ),
        (
            all(World::new().set(OBSERVED, json!(0)), &json!(0)),
            None,
            0,
        ),
        (
            all(
                World::new().set("/status/observed/options", Value::Null),
                &Value::Null,
            ),
            None,
            0,
        ),
        (World::new().member(1, MEMBER, json!(7)), Some(7), 1),
        // A member without any has etcd's default.
        (
            all(World::new().set(OBSERVED, Value::Null), &Value::Null).member(
                0,
                MEMBER,
                json!(8_000_000_000_u64),
            ),
            Some(2_147_483_648),
            1,
        ),
        // What the spec asks for is not what runs.
        (
            World::new().set("/spec/options/quotaBackendBytes", json!(1)),
            Some(8_000_000_000),
            0,
        ),
    ] {
        let resolved = world.found();
        assert_eq!(resolved.quota_bytes, expected);
        assert_eq!(resolved.members.remarks.len(), remarks, "{expected:?}");
    }
}

#[test]
fn pods_tell_addresses_and_departures() {
    let pod = |name: &str, phase: &str, address: &str| PodView {
        name: name.to_owned(),
        labels: [(CLUSTER, "etcd"), ("app.kubernetes.io/name", "etcd")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        phase: phase.to_owned(),
        address: Some(address.to_owned()),
        ..PodView::default()
    };
    let mut world = World::new();
    world.pods = vec![
        pod("etcd-0", "Running", "10.0.0.1"),
        pod("etcd-fx2lq", "Pending", "10.0.0.2"),
        PodView {
            deleting: true,
            ..pod("etcd-w9m4k", "Running", "10.0.0.3")
        },
        // A snapshot's pod has the cluster's label, and may have any name.
        PodView {
            labels: [(CLUSTER.to_owned(), "etcd".to_owned())].into(),
            ..pod("etcd-fx2lq", "Running", "10.0.0.9")
        },
        pod("stranger", "Running", "10.0.0.8"),
    ];
    let resolved = world.found();
    assert_eq!(
        resolved.addresses,
        BTreeMap::from([(
            "etcd-0.etcd.shop.svc".to_owned(),
            "10.0.0.1".parse().unwrap()
        )])
    );
    assert_eq!(resolved.members.endpoints.len(), 3);
    assert_eq!(
        resolved.members.busy.unwrap().message,
        "pod etcd-w9m4k is being deleted"
    );
}
