//! Clusters of the operator by cozystack: what is seen of one, and what is made of it.

mod access;
mod busy;
mod members;

use serde_json::{Value, json};

use super::super::fixtures::{cozystack_cluster, cozystack_members, key, object, set, urls};
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
