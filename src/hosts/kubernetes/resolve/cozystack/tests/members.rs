//! Which members there are, and what they and their pods tell.

use super::*;

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
