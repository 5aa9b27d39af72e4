use std::path::Path;

use super::*;
use crate::api::document::parse;
use crate::api::target::TargetTls;

const TARGET: &str = "---
apiVersion: defragd.dev/v1alpha1
kind: EtcdTarget
metadata: {name: demo}
spec: {endpoints: [\"http://127.0.0.1:2379\"]}
";

fn said(text: &str, sources: Option<&[&str]>) -> Vec<String> {
    let sources: Option<Vec<String>> = sources.map(|s| s.iter().map(|n| (*n).to_owned()).collect());
    lint(&parse("p.yaml", text), sources.as_deref(), Place::Anywhere)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn policy(spec: &str) -> String {
    let mut text =
        "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefragPolicy\nmetadata: {name: p}\nspec:\n  clusterRef: {name: demo}\n"
            .to_owned();
    for line in spec.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    text + TARGET
}

#[test]
fn accepted_but_hardly_meant() {
    let prometheus = |query: &str, rest: &str| {
        policy(&format!(
            "signal: {{prometheus: {{source: main, query: '{query}', {rest}}}}}"
        ))
    };
    let cases = [
        (
            "units",
            prometheus(
                "etcd_mvcc_db_total_size_in_use_in_bytes / etcd_mvcc_db_total_size_in_bytes",
                "below: 100Mi",
            ),
        ),
        (
            "always fires",
            prometheus("etcd_mvcc_db_total_size_in_bytes", ""),
        ),
        (
            "look-back",
            prometheus(
                "predict_linear(etcd_mvcc_db_total_size_in_bytes[4h], 3600)",
                "above: 8Gi, reduce: Any",
            ),
        ),
        (
            "in use above",
            prometheus(
                "etcd_mvcc_db_total_size_in_use_in_bytes / etcd_mvcc_db_total_size_in_bytes",
                "above: '0.5'",
            ),
        ),
        (
            "in use above, as an alerting rule",
            prometheus(
                "max(etcd_mvcc_db_total_size_in_use_in_bytes) / max(last_over_time(etcd_mvcc_db_total_size_in_bytes[5m])) > 0.5 and etcd_mvcc_db_total_size_in_bytes > 1e8",
                "",
            ),
        ),
        (
            "for below a usual scrape interval",
            policy("signal: {metric: {external: {name: m}, above: 1Mi}}\nfor: 30s\ninterval: 5s"),
        ),
        (
            "for below interval",
            policy("signal: {probe: {}}\nfor: 10s\ninterval: 1m"),
        ),
        (
            "window below deadline",
            policy(
                "signal: {probe: {}}\nwindows:\n- {start: \"22:00\", length: 6h}\n- {start: \"12:00\", length: 30m}",
            ),
        ),
        (
            "R05",
            policy("signal: {probe: {}}\nrunTemplate: {leader: Skip}"),
        ),
        (
            "probe of all",
            policy("signal: {probe: {rule: {all: true}}}"),
        ),
        (
            "blind",
            policy(
                "signal: {prometheus: {source: main, query: up == 0}}\nonError: Fire\nnoData: Fire",
            ),
        ),
        (
            "minReclaim",
            policy(
                "signal: {probe: {rule: {freeSpaceAbove: 1Gi, minReclaim: 1Mi}}}\nrunTemplate: {rule: {freeSpaceAbove: 1Gi, minReclaim: 1Mi}}",
            ),
        ),
        (
            "blockers",
            policy(
                "signal: {probe: {}}\nmaxBlockedFor: 10s\nblockers:\n- {name: itself, signal: {probe: {}}}\n- {name: always, signal: {prometheus: {source: main, query: up}}}",
            ),
        ),
        (
            "timeouts",
            policy("signal: {probe: {}}\nrunTemplate: {memberTimeout: 2h, suspend: true}"),
        ),
        (
            "no target",
            policy("signal: {probe: {}}").replace("name: demo}\nspec: {", "name: other}\nspec: {"),
        ),
        (
            "some alert",
            policy(
                "signal: {alert: {source: am, matchers: [severity=warning], include: [Silenced]}}",
            ),
        ),
        ("no port", TARGET.replace(":2379", "")),
        (
            "other namespace",
            policy("signal: {probe: {}}")
                .replace("metadata: {name: p}", "metadata: {name: p, namespace: n}"),
        ),
    ];
    let mut out = String::new();
    for (name, text) in cases {
        let said = said(&text, None);
        assert!(!said.is_empty(), "{name}");
        assert!(
            said.iter().all(|s| s.contains(": warning: ")),
            "{name}: {said:?}"
        );
        out.push_str(&format!("# {name}\n{}\n\n", said.join("\n")));
    }
    insta::assert_snapshot!(out);
}

#[test]
fn unknown_sources_are_errors_when_the_configuration_is_known() {
    let text = policy("signal: {prometheus: {source: mian, query: up == 0}}");
    assert_eq!(said(&text, None), Vec::<String>::new());
    assert_eq!(said(&text, Some(&["mian"])), Vec::<String>::new());
    assert_eq!(
        said(&text, Some(&["main", "other"])),
        [
            "p.yaml:6: error: spec.signal.prometheus.source: \"mian\" is not a configured source; \
             use one of main, other, or add it to the configuration"
        ]
    );
    assert_eq!(said(&text, Some(&[])).len(), 1);
    let text = policy(
        "signal: {probe: {}}\nblockers: [{name: a, signal: {prometheus: {source: mian, query: up == 0}}}]",
    );
    assert_eq!(
        said(&text, Some(&["main"])),
        [
            "p.yaml:7: error: spec.blockers[0].signal.prometheus.source: \"mian\" is not a configured source; \
             use one of main, or add it to the configuration"
        ]
    );
}

#[test]
fn errors_come_by_line_together_with_warnings() {
    let text = policy("signal: {probe: {}}\nfor: 10s\ninterval: 1m").replace("http://", "")
        + "---\nkind: [\n";
    let lines: Vec<String> = said(&text, None)
        .iter()
        .map(|s| s[..17].to_owned())
        .collect();
    assert_eq!(
        lines,
        [
            "p.yaml:7: warning",
            "p.yaml:13: error:",
            "p.yaml:16: error:"
        ]
    );
}

/// The clusters of other operators are no objects of ours; nobody misses a file of them.
#[test]
fn unknown_sources_of_alerts_are_errors_too() {
    let text = policy("signal: {alert: {source: ma, matchers: [alertname=a]}}");
    assert_eq!(said(&text, None), Vec::<String>::new());
    assert_eq!(
        said(&text, Some(&["am"])),
        [
            "p.yaml:6: error: spec.signal.alert.source: \"ma\" is not a configured source; use one of am, or add it \
             to the configuration"
        ]
    );
}

#[test]
fn clusters_of_other_operators_are_not_looked_for() {
    let text = policy("signal: {probe: {}}").replace(
        "clusterRef: {name: demo}",
        "clusterRef: {apiVersion: operator.etcd.io/v1alpha1, kind: EtcdCluster, name: elsewhere}",
    );
    assert_eq!(said(&text, None), Vec::<String>::new());
    let findings = lint(&parse("p.yaml", &text), None, Place::Standalone);
    let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "p.yaml:5: error: spec.clusterRef.kind: \"EtcdCluster\" works in Kubernetes only, not in defragd \
             standalone; describe the cluster by an EtcdTarget with endpoints"
        ]
    );
}

/// Every example is complete, valid, and free of findings.
#[test]
fn examples_lint_clean() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policies");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let parsed = parse(&path, &text);
        // What names things of Kubernetes is for Kubernetes; all else works in both hosts.
        let of_kubernetes = parsed.objects.iter().any(|o| match &o.value {
            Object::Target(target) => {
                let spec = &target.spec;
                let secret = |tls: &TargetTls| tls.secret_ref.is_some();
                spec.pod_selector.is_some() || spec.tls.as_ref().is_some_and(secret)
            }
            Object::Policy(policy) => {
                let named = policy.spec.cluster_ref.as_ref();
                named.is_some_and(|named| named.cluster_kind() != Some(ClusterKind::EtcdTarget))
            }
            Object::Run(_) => false,
        });
        let mut places = vec![Place::Anywhere, Place::Kubernetes];
        if !of_kubernetes {
            places.push(Place::Standalone);
        }
        for place in places {
            let findings = lint(&parsed, Some(&["main".to_owned(), "am".to_owned()]), place);
            let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert_eq!(findings, Vec::<String>::new(), "{place:?}");
        }
        let kinds: Vec<&str> = parsed.objects.iter().map(|o| o.value.kind()).collect();
        assert!(
            [
                &["EtcdTarget", "EtcdDefragPolicy"][..],
                &["EtcdTarget", "EtcdTarget", "EtcdDefragPolicy"],
                &["EtcdDefragPolicy"]
            ]
            .contains(&&kinds[..]),
            "{}: {kinds:?}",
            path.display()
        );
        assert!(
            text.starts_with("# "),
            "{} does not say what it is for",
            path.display()
        );
        seen += 1;
    }
    assert!(seen >= 9, "only {seen} examples in {}", folder.display());
}

#[test]
fn fleets_without_targets_and_queries_without_their_label_are_told() {
    let text = "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefragPolicy\nmetadata: {name: p}\nspec:\n  \
                clusterSelector: {matchLabels: {tier: prod}}\n  signal: {prometheus: {source: main, query: \
                'max(etcd_x_bytes)', above: 1Gi, clusterLabel: cluster}}\n";
    let findings = lint(&parse("p.yaml", text), None, Place::Anywhere);
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert!(
        findings[0].contains("spec.clusterSelector"),
        "{findings:#?}"
    );
    assert!(
        findings[1].contains("aggregate by (cluster)"),
        "{findings:#?}"
    );
}
