use std::collections::BTreeSet;
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

/// Those called `am` and `hook` know of alerts, and all others answer PromQL.
fn known(name: &str) -> KnownSource {
    KnownSource {
        name: name.to_owned(),
        kind: match name {
            "am" => SourceKind::Alertmanager,
            "hook" => SourceKind::Webhook,
            _ => SourceKind::Prometheus,
        },
    }
}

fn said(text: &str, sources: Option<&[&str]>) -> Vec<String> {
    let sources: Option<Vec<KnownSource>> = sources.map(|s| s.iter().copied().map(known).collect());
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

fn hardly_meant() -> Vec<(&'static str, String)> {
    let prometheus = |query: &str, rest: &str| {
        policy(&format!(
            "signal: {{prometheus: {{source: main, query: '{query}', {rest}}}}}"
        ))
    };
    vec![
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
            "blockers of each kind",
            policy(
                "signal: {probe: {}}\nblockers:\n- {name: a, signal: {alert: {source: am, matchers: [severity=critical], include: [Silenced]}}}\n\
                 - {name: b, signal: {metric: {external: {name: etcd_backup_ratio}, above: 1Ki}}}\n\
                 - {name: c, signal: {probe: {rule: {all: true}}}}\n\
                 - {name: d, signal: {probe: {rule: {freeSpaceAbove: 1Gi, minReclaim: 1Mi}}}}\n\
                 - {name: e, signal: {prometheus: {source: main, query: etcd_in_use_bytes / etcd_size_bytes, above: '0.9'}}}",
            ),
        ),
        (
            "units of a metric",
            policy(
                "signal: {metric: {object: {describedObject: {kind: Service, name: etcd, apiVersion: v1}, name: etcd_free_bytes}, above: '0.5'}}",
            ),
        ),
        (
            "fallback of all",
            policy(
                "signal: {prometheus: {source: main, query: up == 0}}\nfallback: {after: 1h, probe: {rule: {all: true}}}\nnoData: Fallback",
            ),
        ),
        (
            "minReclaim of a fallback",
            policy(
                "signal: {prometheus: {source: main, query: up == 0}}\nfallback: {after: 1h, probe: {rule: {freeSpaceAbove: 1Gi, minReclaim: 1Mi}}}\nnoData: Fallback",
            ),
        ),
        (
            "fleet",
            policy(
                "signal: {prometheus: {source: main, query: 'max(etcd_x_bytes)', above: 1Gi, clusterLabel: cluster}}",
            )
            .replace("clusterRef: {name: demo}", "clusterSelector: {matchLabels: {tier: prod}}"),
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
    ]
}

#[test]
fn accepted_but_hardly_meant() {
    let mut out = String::new();
    for (name, text) in hardly_meant() {
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

/// The hosts say `SourceUnsuitable` of each.
#[test]
fn sources_of_another_kind_are_errors_too() {
    let all: &[&str] = &["main", "am", "hook"];
    let query = |source: &str| format!("prometheus: {{source: {source}, query: up == 0}}");
    let alert = |source: &str| format!("alert: {{source: {source}, matchers: [alertname=a]}}");
    let signal = |signal: &str| policy(&format!("signal: {{{signal}}}"));
    let blocker = |signal: &str| {
        policy(&format!(
            "signal: {{probe: {{}}}}\nblockers: [{{name: a, signal: {{{signal}}}}}]"
        ))
    };
    for right in [query("main"), alert("am"), alert("hook")] {
        assert_eq!(said(&signal(&right), Some(all)), Vec::<String>::new());
        assert_eq!(said(&blocker(&right), Some(all)), Vec::<String>::new());
    }
    for (wrong, field, kind, remedy) in [
        (
            query("am"),
            "prometheus.source: \"am\"",
            "alertmanager, wanted prometheus",
            "use one of main",
        ),
        (
            query("hook"),
            "prometheus.source: \"hook\"",
            "webhook, wanted prometheus",
            "use one of main",
        ),
        (
            alert("main"),
            "alert.source: \"main\"",
            "prometheus, wanted alertmanager or webhook",
            "use one of am, hook",
        ),
    ] {
        let verdict = format!(
            "{field} is a source of the kind {kind}; {remedy}, or add it to the configuration"
        );
        assert_eq!(
            said(&signal(&wrong), Some(all)),
            [format!("p.yaml:6: error: spec.signal.{verdict}")]
        );
        assert_eq!(
            said(&blocker(&wrong), Some(all)),
            [format!(
                "p.yaml:7: error: spec.blockers[0].signal.{verdict}"
            )]
        );
    }
    assert_eq!(
        said(&signal(&alert("main")), Some(&["main"])),
        [
            "p.yaml:6: error: spec.signal.alert.source: \"main\" is a source of the kind prometheus, wanted alertmanager \
             or webhook; add one of the kind alertmanager or webhook to sources in the configuration, which has none"
        ]
    );
}

/// Fields of the table in docs/policy.md are those that some case is warned of.
#[test]
fn each_warning_stands_in_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/policy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("## What lint warns of").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<String> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|fields| fields.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    let mut warned = BTreeSet::new();
    for (_, text) in hardly_meant() {
        for finding in lint(&parse("p.yaml", &text), None, Place::Anywhere) {
            let mut path = finding.path.trim_start_matches("spec.").to_owned();
            for digit in '0'..='9' {
                path = path.replace(digit, "");
            }
            warned.insert(path);
        }
    }
    assert_eq!(listed, warned);
}

/// The clusters of other operators are no objects of ours; nobody misses a file of them.
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
            let findings = lint(&parsed, Some(&[known("main"), known("am")]), place);
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
