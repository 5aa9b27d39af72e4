//! What holds for every resolver and for any input.

use std::sync::Arc;

use kube::api::DynamicObject;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{self, key, object, set};
use super::*;

#[test]
fn text_of_others_stays_on_one_short_line() {
    assert_eq!(clip("a\nb\u{1b}[31m"), "a b [31m");
    let long = clip(&"ä".repeat(1000));
    assert_eq!(long.chars().count(), 161);
    assert!(long.ends_with('…'));
    assert_eq!(clip(&"a".repeat(160)).len(), 160);
}

/// Values of every type, nested a little, with what resolvers look for in them.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u32..70).prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        ".{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("etcd"),
            Just("True"),
            Just("Progressing"),
            Just("Running"),
            Just("769f1c9e0d723d0b"),
            Just("--quota-backend-bytes=-1"),
            Just("--listen-client-urls=https://0.0.0.0:2379"),
            Just("../../other/secrets/x"),
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A place in a fixture, by the numbers of the children on the way.
fn replace_somewhere(value: &mut Value, path: &[usize], new: Value) {
    let Some((step, path)) = path.split_first() else {
        *value = new;
        return;
    };
    match value {
        Value::Object(map) if !map.is_empty() => {
            let n = step % map.len();
            if let Some((_, child)) = map.iter_mut().nth(n) {
                replace_somewhere(child, path, new);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let n = step % items.len();
            replace_somewhere(&mut items[n], path, new);
        }
        other => *other = new,
    }
}

fn pods_of(cluster: &str, names: &[String], phase: &str, address: &str) -> Vec<Arc<PodView>> {
    names
        .iter()
        .map(|name| {
            Arc::new(PodView {
                name: name.clone(),
                labels: [
                    ("app", cluster),
                    ("controller", cluster),
                    ("app.kubernetes.io/name", "etcd"),
                    ("etcd-operator.cozystack.io/cluster", cluster),
                ]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
                phase: phase.to_owned(),
                address: Some(address.to_owned()),
                arguments: vec![address.to_owned()],
                ..PodView::default()
            })
        })
        .collect()
}

/// What everybody who connects relies on.
fn check(namespace: &str, result: Result<Resolved, Note>) {
    match result {
        Ok(resolved) => {
            let endpoints = &resolved.members.endpoints;
            assert!(!endpoints.is_empty() && endpoints.len() <= MAX_MEMBERS);
            let within = format!(".{namespace}.svc");
            for url in endpoints {
                assert_eq!(url.scheme() == "https", resolved.tls.is_some(), "{url}");
                assert!(url.host_str().unwrap().contains(&within), "{url}");
                assert!(url.path() == "/" && url.username().is_empty(), "{url}");
            }
            for name in [
                &resolved.tls.map(|tls| tls.ca),
                &resolved.auth.map(|a| a.password),
            ]
            .into_iter()
            .flatten()
            {
                assert!(!name.secret.contains('/'), "{name:?}");
            }
            assert_ne!(resolved.quota_bytes, Some(0));
            if let Some(note) = resolved.members.busy {
                assert_eq!(note.reason, Reason::ClusterChanging);
            }
        }
        Err(note) => {
            assert!(!note.message.is_empty() && note.message.len() < 4096);
            assert!(!note.message.contains('\n'), "{}", note.message);
        }
    }
}

proptest! {
    #[test]
    fn no_object_of_cozystack_makes_it_panic(
        path in prop::collection::vec(0_usize..8, 1..7),
        which in 0_usize..3,
        new in any_json(),
        annotation in ".{0,20}",
        phase in prop_oneof![Just("Running".to_owned()), ".{0,8}"],
        address in ".{0,16}",
    ) {
        let mut cluster = fixtures::cozystack_cluster();
        let mut members: Vec<Value> = fixtures::cozystack_members();
        let mut defrag = fixtures::cozystack_defrag("Running");
        match which {
            0 => replace_somewhere(&mut cluster["spec"], &path[1..], new.clone()),
            1 => replace_somewhere(&mut members[0]["spec"], &path[1..], new.clone()),
            _ => replace_somewhere(&mut defrag, &path[1..], json!({"spec": new, "status": new})),
        }
        if path[0] % 2 == 0 {
            replace_somewhere(&mut cluster["status"], &path[1..], new);
        }
        set(&mut members[1], "/metadata/annotations/etcd-operator.cozystack.io~1headless-service-name", json!(annotation));
        let names: Vec<String> = members.iter().map(|m| m["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect();
        let members: Vec<_> = members.into_iter().map(object).collect();
        let cluster = object(cluster);
        let defrags = match serde_json::from_value::<DynamicObject>(defrag) {
            Ok(defrag) => vec![Arc::new(defrag)],
            Err(_) => Vec::new(),
        };
        let seen = Cozystack {
            installed: true,
            cluster: Some(&cluster),
            members: &members,
            defrags: &defrags,
            pods: &pods_of("etcd", &names, &phase, &address),
        };
        check("shop", super::cozystack(&key("etcd"), &seen));
    }

    #[test]
    fn no_object_of_etcd_io_makes_it_panic(
        path in prop::collection::vec(0_usize..8, 0..5),
        in_status in any::<bool>(),
        new in any_json(),
        address in prop_oneof![Just("--listen-client-urls=https://:1,x".to_owned()), ".{0,16}"],
        namespace in prop_oneof![Just("shop".to_owned()), ".{0,8}"],
    ) {
        let mut cluster = fixtures::etcd_io_cluster();
        let part = if in_status { "status" } else { "spec" };
        replace_somewhere(&mut cluster[part], &path, new);
        let cluster = object(cluster);
        let names = ["etcd-0".to_owned(), "etcd-1".to_owned()];
        let seen = EtcdIo {
            installed: true,
            cluster: Some(&cluster),
            pods: &pods_of("etcd", &names, "Running", &address),
        };
        let mut key = key("etcd");
        key.namespace = namespace.into();
        check(&key.namespace, super::etcd_io(&key, &seen));
    }

    #[test]
    fn no_pods_make_it_panic(
        drawn in prop::collection::vec(
            (prop_oneof![Just("Running".to_owned()), ".{0,8}"], any::<bool>(), any::<std::net::IpAddr>(), proptest::option::of(".{0,16}")),
            0..70,
        ),
        port in any::<u16>(),
        label in ".{0,6}",
    ) {
        let match_labels = BTreeMap::from([("app".to_owned(), label.clone())]);
        let drawn: Vec<PodView> = drawn
            .into_iter()
            .enumerate()
            // Names differ within a namespace.
            .map(|(i, (phase, deleting, ip, address))| PodView {
                name: format!("etcd-{i}"),
                labels: BTreeMap::from([("app".to_owned(), label.clone())]),
                phase,
                deleting,
                address: address.or(Some(ip.to_string())),
                ..PodView::default()
            })
            .collect();
        let selector = PodSelector { namespace: "shop", match_labels: &match_labels, port, scheme: "http" };
        let found = super::pods(&selector, &drawn);
        let mut turned = drawn;
        turned.reverse();
        prop_assert_eq!(&super::pods(&selector, &turned), &found);
        if let Ok(members) = found {
            let distinct: std::collections::BTreeSet<_> = members.endpoints.iter().collect();
            prop_assert_eq!(distinct.len(), members.endpoints.len());
        }
    }
}
