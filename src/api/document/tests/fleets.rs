//! Policies that select their clusters: what is said of bad ones, by validation and by the
//! rules in the CRD.

use super::cel::cel_errors;
use super::*;

/// A policy with a selector in place of a reference.
fn fleet(changes: &str) -> String {
    let text = policy(changes);
    text.replace("  clusterRef: {name: demo}\n", "")
}

const SELECTOR: &str = "clusterSelector: {matchLabels: {tier: prod}}\n";
const LABELLED: &str =
    "signal: {prometheus: {source: main, query: up, above: 1, clusterLabel: cluster}}";

#[test]
fn good_ones_pass_both() {
    let requirements = "clusterSelector: {matchExpressions: [{key: tier, operator: In, values: [a, b]}, {key: x/y, \
                        operator: DoesNotExist}], kinds: [EtcdTarget, EtcdCluster.operator.etcd.io]}\n";
    for good in [
        fleet(&format!("{SELECTOR}{LABELLED}\nmaxConcurrentRuns: 3")),
        fleet(&format!("{requirements}{LABELLED}")),
        fleet("clusterSelector: {}"),
        fleet(&format!(
            "{SELECTOR}signal: {{prometheus: {{source: main, query: up, above: 1, sameForAll: true}}}}"
        )),
        policy(LABELLED),
    ] {
        assert_eq!(verdict(&good), "", "{good}");
        for object in parse("p.yaml", &good).objects {
            assert_eq!(cel_errors(&object.value), Vec::<String>::new(), "{good}");
        }
    }
}

#[test]
fn bad_ones_are_refused_with_a_remedy() {
    for (bad, said, by_cel) in [
        (fleet(""), "no cluster is given; give clusterRef", true),
        (
            policy(&format!("{SELECTOR}{LABELLED}")),
            "clusterRef and clusterSelector exclude one another; give only one of them",
            true,
        ),
        (
            fleet(&format!(
                "{SELECTOR}signal: {{prometheus: {{source: main, query: up, above: 1}}}}"
            )),
            "so one series would fire for every cluster that is selected; name the label",
            true,
        ),
        (
            policy("maxConcurrentRuns: 2"),
            "needs clusterSelector: one cluster has one run at a time; remove it",
            true,
        ),
        (
            fleet(&format!("{SELECTOR}maxConcurrentRuns: 0")),
            "spec.maxConcurrentRuns",
            false,
        ),
        (
            policy(
                "signal: {prometheus: {source: main, query: up, above: 1, clusterLabel: c, clusterLabelFrom: d}}",
            ),
            "needs clusterSelector: with clusterRef the cluster's name is meant; remove it",
            true,
        ),
        (
            fleet(&format!(
                "{SELECTOR}signal: {{prometheus: {{source: main, query: up, above: 1, clusterLabel: c, \
                 sameForAll: true}}}}"
            )),
            "clusterLabel and sameForAll exclude one another",
            true,
        ),
        (
            fleet(&format!(
                "{SELECTOR}signal: {{alert: {{source: am, matchers: ['alertname=a', 'b=c']}}}}"
            )),
            "spec.signal.alert: \"alertname=a, b=c\" does not say which cluster it is about, so it would fire for \
             every cluster that is selected; give a policy with clusterRef for each cluster, or ask Prometheus with \
             clusterLabel",
            true,
        ),
        (
            fleet(&format!(
                "{SELECTOR}signal: {{metric: {{external: {{name: m}}, above: 1}}}}"
            )),
            "spec.signal.metric: \"m\" does not say which cluster it is about",
            true,
        ),
        (
            fleet("clusterSelector: {matchExpressions: [{key: tier, operator: In}]}"),
            "In and NotIn compare with values, and none is given; give at least one",
            true,
        ),
        (
            fleet(
                "clusterSelector: {matchExpressions: [{key: tier, operator: Exists, values: [a]}]}",
            ),
            "\"a\" has no meaning with Exists and DoesNotExist; remove the values",
            true,
        ),
        (
            fleet("clusterSelector: {matchLabels: {\"a b\": c}}"),
            "\"a b\" is not the key of a label",
            false,
        ),
        (
            fleet("clusterSelector: {kinds: [EtcdTarget, EtcdTarget]}"),
            "is given twice; remove it",
            false,
        ),
    ] {
        let verdict = verdict(&bad);
        assert!(verdict.contains(said), "{verdict}\n{bad}");
        if by_cel {
            for object in parse("p.yaml", &bad).objects {
                assert_ne!(cel_errors(&object.value), Vec::<String>::new(), "{bad}");
            }
        }
    }
}
