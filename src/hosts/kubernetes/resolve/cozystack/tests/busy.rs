//! What makes a cluster busy: its operator's changes and defragmentations.

use super::*;
use crate::hosts::kubernetes::resolve::fixtures::cozystack_defrag;

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
