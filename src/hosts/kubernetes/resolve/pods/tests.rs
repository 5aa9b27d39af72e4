use serde_json::{Value, json};

use crate::core::reason::Reason;

use super::*;

/// A pod as the API server has it.
fn pod(value: &Value) -> PodView {
    let pod: Pod = serde_json::from_value(value.clone()).unwrap();
    PodView::from(&pod)
}

/// The pod that a kubelet shows for kubeadm's static etcd.
fn static_pod(node: &str, address: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("etcd-{node}"),
            "namespace": "kube-system",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"component": "etcd", "tier": "control-plane"},
            "annotations": {"kubernetes.io/config.mirror": "8a3f", "kubernetes.io/config.source": "file"},
        },
        "spec": {
            "hostNetwork": true,
            "nodeName": node,
            "containers": [{
                "name": "etcd",
                "command": ["etcd", format!("--advertise-client-urls=https://{address}:2379")],
            }],
        },
        "status": {
            "phase": "Running",
            "hostIP": address,
            "podIP": address,
            "podIPs": [{"ip": address}],
        },
    })
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("component".to_owned(), "etcd".to_owned())])
}

fn find(pods: &[Value]) -> Result<Members, Note> {
    find_as("https", &labels(), pods)
}

fn find_as(
    scheme: &str,
    match_labels: &BTreeMap<String, String>,
    pods: &[Value],
) -> Result<Members, Note> {
    let pods: Vec<PodView> = pods.iter().map(pod).collect();
    let selector = PodSelector {
        namespace: "kube-system",
        match_labels,
        port: 2379,
        scheme,
    };
    super::pods(&selector, &pods)
}

fn urls(members: &Members) -> Vec<&str> {
    members
        .endpoints
        .iter()
        .map(|url| url.as_str().trim_end_matches('/'))
        .collect()
}

/// Three members, the middle one changed by what is merged into it.
fn three(change: &Value) -> Vec<Value> {
    let mut pods: Vec<Value> = [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")]
        .map(|(node, address)| static_pod(node, address))
        .into();
    merge(&mut pods[1], change);
    pods
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

#[test]
fn static_pods_are_found_at_the_addresses_of_their_hosts() {
    let mut pods = three(&json!({}));
    pods.push(json!({
        "metadata": {"name": "coredns", "labels": {"k8s-app": "kube-dns"}},
        "status": {"phase": "Running", "podIP": "10.1.0.1"},
    }));
    // Whatever order the watch has them in.
    pods.reverse();
    let members = find(&pods).unwrap();
    assert_eq!(
        urls(&members),
        [
            "https://10.0.0.1:2379",
            "https://10.0.0.2:2379",
            "https://10.0.0.3:2379"
        ]
    );
    assert_eq!(members.busy, None);
    assert!(members.remarks.is_empty(), "{:?}", members.remarks);
}

#[test]
fn addresses_of_both_families_stand_in_urls_as_they_must() {
    for (status, expected) in [
        (json!({"podIP": "10.0.0.9"}), "http://10.0.0.9:2379"),
        (json!({"podIP": "fd00::9"}), "http://[fd00::9]:2379"),
        // Dual stack: the family that the cluster prefers is the pod's first.
        (
            json!({"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}, {"ip": "fd00::9"}]}),
            "http://10.0.0.9:2379",
        ),
        (
            json!({"podIP": "fd00::9", "podIPs": [{"ip": "fd00::9"}, {"ip": "10.0.0.9"}]}),
            "http://[fd00::9]:2379",
        ),
        (
            json!({"podIPs": [{"ip": "fd00:0:0::0009"}]}),
            "http://[fd00::9]:2379",
        ),
    ] {
        let mut pod = static_pod("a", "10.0.0.1");
        pod["status"] = status;
        pod["status"]["phase"] = json!("Running");
        let members = find_as("http", &labels(), &[pod]).unwrap();
        assert_eq!(urls(&members), [expected]);
    }
}

#[test]
fn what_cannot_be_asked_is_left_out_and_named() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z"}});
    for (change, remark, busy) in [
        (
            json!({"status": {"phase": "Pending"}}),
            "etcd-b is Pending",
            false,
        ),
        (
            json!({"status": {"phase": "Failed"}}),
            "etcd-b is Failed",
            false,
        ),
        (
            json!({"status": {"phase": "Succeeded"}}),
            "etcd-b is Succeeded",
            false,
        ),
        (
            json!({"status": {"podIP": null, "podIPs": null}}),
            "etcd-b has no address",
            false,
        ),
        (
            json!({"status": {"podIP": "", "podIPs": []}}),
            "etcd-b has no address",
            false,
        ),
        (
            json!({"status": {"podIP": "10.0.0.1.svc"}}),
            "etcd-b has the address \"10.0.0.1.svc\", which is none",
            false,
        ),
        (
            json!({"status": {"podIP": "10.0.0.2:1@evil"}}),
            "etcd-b has the address \"10.0.0.2:1@evil\", which is none",
            false,
        ),
        (deleted.clone(), "etcd-b is being deleted", true),
    ] {
        let members = find(&three(&change)).unwrap();
        assert_eq!(
            urls(&members),
            ["https://10.0.0.1:2379", "https://10.0.0.3:2379"],
            "{change}"
        );
        assert_eq!(members.remarks, [format!("left out: {remark}")], "{change}");
        assert_eq!(members.busy.is_some(), busy, "{change}");
    }
    // R11: a member is about to go away.
    let busy = find(&three(&deleted)).unwrap().busy.unwrap();
    assert_eq!(busy.reason, Reason::ClusterChanging);
    assert_eq!(busy.message, "pod etcd-b is being deleted");
    // One that has ended and waits to be collected changes nothing.
    let mut ended = deleted;
    ended["status"] = json!({"phase": "Failed"});
    assert_eq!(find(&three(&ended)).unwrap().busy, None);
}

#[test]
fn unready_pods_and_pods_of_other_revisions_are_members_still() {
    for change in [
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        json!({"metadata": {"labels": {"controller-revision-hash": "etcd-7d"}}}),
        json!({"status": {"phase": "Unknown"}}),
        json!({"status": {"phase": null}}),
    ] {
        let members = find(&three(&change)).unwrap();
        assert_eq!(members.endpoints.len(), 3, "{change}");
        assert_eq!(members.busy, None, "{change}");
    }
}

#[test]
fn at_one_address_the_newest_pod_is_the_member() {
    for (created, name, remark) in [
        (
            "2026-01-02T00:00:00Z",
            "etcd-b2",
            "etcd-b is older than etcd-b2",
        ),
        (
            "2025-01-02T00:00:00Z",
            "etcd-b2",
            "etcd-b2 is older than etcd-b",
        ),
        // Of one moment: which one does not matter, it is the same each time.
        (
            "2026-01-01T00:00:00Z",
            "etcd-b2",
            "etcd-b2 is older than etcd-b",
        ),
    ] {
        let mut pods = three(&json!({}));
        let mut twin = static_pod("b", "10.0.0.2");
        twin["metadata"]["name"] = json!(name);
        twin["metadata"]["creationTimestamp"] = json!(created);
        pods.push(twin);
        let members = find(&pods).unwrap();
        assert_eq!(members.endpoints.len(), 3);
        assert_eq!(members.remarks, [format!("left out: {remark} at 10.0.0.2")]);
        pods.reverse();
        assert_eq!(find(&pods).unwrap(), members);
    }
}

#[test]
fn a_rolling_update_is_waited_for() {
    // The old pod and the new one, beside each other for a moment.
    let mut pods = three(&json!({"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z"}}));
    let mut new = static_pod("b", "10.0.0.4");
    new["metadata"]["name"] = json!("etcd-b2");
    pods.push(new);
    let members = find(&pods).unwrap();
    assert_eq!(members.endpoints.len(), 3);
    assert_eq!(
        members.busy.map(|note| note.reason),
        Some(Reason::ClusterChanging)
    );
}

#[test]
fn who_finds_nothing_is_told_where_it_was_looked() {
    let pending = json!({"status": {"phase": "Pending"}});
    let mut one = three(&pending);
    one.remove(2);
    one.remove(0);
    let many: Vec<Value> = (0..70)
        .map(|i| static_pod(&format!("n{i:02}"), &format!("10.0.1.{i}")))
        .collect();
    let other = BTreeMap::from([
        ("component".to_owned(), "etcd".to_owned()),
        ("tier".to_owned(), "events".to_owned()),
    ]);
    for (labels, pods, expected) in [
        (
            labels(),
            vec![],
            "no pod in namespace kube-system matches component=etcd (0 pods looked at); \
             etcd was looked for at port 2379 over https",
        ),
        (
            other,
            three(&json!({})),
            "no pod in namespace kube-system matches component=etcd,tier=events (3 pods looked at); \
             etcd was looked for at port 2379 over https",
        ),
        (
            labels(),
            one,
            "no pod in namespace kube-system that matches component=etcd can be asked (etcd-b is Pending); \
             etcd was looked for at port 2379 over https",
        ),
        (
            labels(),
            many.clone(),
            "70 pods in namespace kube-system match component=etcd, want at most 64: name more labels",
        ),
        (
            BTreeMap::new(),
            many,
            "spec.podSelector.matchLabels is empty, name the labels of the members' pods",
        ),
    ] {
        let note = find_as("https", &labels, &pods).unwrap_err();
        assert_eq!(note.reason, Reason::MembersUnresolved);
        assert_eq!(note.message, expected);
    }
}

#[test]
fn long_lists_are_cut_short() {
    let pods: Vec<Value> = (0..9)
        .map(|i| {
            let mut pod = static_pod(&format!("n{i}"), "10.0.0.1");
            pod["status"] = json!({"phase": "Pending"});
            pod
        })
        .collect();
    let note = find(&pods).unwrap_err();
    assert!(
        note.message.contains("etcd-n0 is Pending") && note.message.contains("and 4 more"),
        "{}",
        note.message
    );
}

#[test]
fn of_a_pod_the_arguments_of_the_container_etcd_are_kept() {
    let view = pod(&json!({
        "metadata": {"name": "x"},
        "spec": {"containers": [
            {"name": "sidecar", "args": ["--listen-client-urls=https://0.0.0.0:2379"]},
            {"name": "etcd", "command": ["/usr/local/bin/etcd"], "args": ["--name=x"]},
        ]},
    }));
    assert_eq!(view.arguments, ["/usr/local/bin/etcd", "--name=x"]);
    assert_eq!(pod(&json!({})), PodView::default());
}
