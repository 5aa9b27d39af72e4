//! The rules in the CRDs against the validation that both hosts run.

use kube::core::cel;

use super::*;

/// What the API server would say by the rules in the CRD.
pub(super) fn cel_errors(object: &Object) -> Vec<String> {
    let outcome = match object {
        Object::Target(o) => cel::validate_cel(o.as_ref()),
        Object::Policy(o) => cel::validate_cel(o.as_ref()),
        Object::Run(o) => cel::validate_cel(o.as_ref()),
    };
    outcome
        .err()
        .map(|e| vec![e.to_string()])
        .unwrap_or_default()
}

/// What a schema cannot say is refused by the API server already.
#[test]
fn cel_refuses_what_a_schema_cannot() {
    let bad = [
        policy("signal: {}"),
        policy("signal: {probe: {}, prometheus: {source: main, query: up, above: 1}}"),
        policy("signal: {probe: {}, alert: {source: am, matchers: [alertname=a]}}"),
        policy(&prometheus("source: main, query: up, above: 1, below: 0")),
        policy(&prometheus("source: main, query: up, reduce: Max")),
        policy(&prometheus("source: main, query: up, above: 100mi")),
        policy("signal: {prometheus: {source: main, query: up}}\nonError: Fallback"),
        policy(
            "signal: {prometheus: {source: main, query: up}}\nonError: Hold\nfallback: {after: 1m}",
        ),
        policy("fallback: {after: 1m}"),
        policy("cooldown: 0s"),
        policy("backoff: {minReclaim: 0}"),
        policy("emergency: {noSpace: false}"),
        policy("windows: [{start: \"22:00\", cron: 0 22 * * *, length: 1h}]"),
        policy("maxBlockedFor: 1h"),
        policy("blockers: [{name: a, signal: {}}]"),
        policy(
            "blockers: [{name: a, signal: {prometheus: {source: main, query: up, above: 1, below: 0}}}]",
        ),
        policy("windows: [{length: 1h}]"),
        policy("windows: [{cron: 0 22 * * *, days: [Fri], length: 1h}]"),
        policy("windows: [{start: \"22:00\", length: 0s}]"),
        run("rule: {}"),
        run("rule: {all: false}"),
        run("rule: {all: true, expression: dbSize > 1}"),
        run("rule: {minReclaim: 1Mi}"),
        run("rule: {freeSpaceAbove: 10Mi, minReclaim: 11Mi}"),
        run("rule: {freeSpaceAbove: 0}"),
        run("memberTimeout: 0s"),
        target("endpoints: [\"https://h:2379\"]"),
        target("endpoints: [\"http://h:2379\"]\ntls: {caFile: ca}"),
        target("endpoints: [\"https://h:2379\"]\ntls: {caFile: ca, keyFile: k}"),
        target("endpoints: [\"http://h:2379\"]\nquotaBytes: 0"),
        target("endpoints: [\"http://h:2379\"]\nmetricsURLs: [\"https://h/metrics\"]"),
        target("memberCount: 3"),
        target("endpoints: [\"http://h:2379\"]\npodSelector: {matchLabels: {a: b}}"),
        target("podSelector: {matchLabels: {a: b}, scheme: https}"),
        target("podSelector: {matchLabels: {a: b}}\ntls: {secretRef: {name: x}}"),
        target("podSelector: {matchLabels: {a: b}, scheme: https}\ntls: {caFile: ca}"),
        target("podSelector: {matchLabels: {a: b}}\nauth: {usernameFile: u, passwordFile: p}"),
        target(&format!(
            "podSelector: {{matchLabels: {{{}: b}}}}",
            "a".repeat(318)
        )),
        target("endpoints: [\"https://h:2379\"]\ntls: {serverName: h}"),
        target("endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: x}, caFile: ca}"),
        target(
            "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: x}, certFile: c, keyFile: k}",
        ),
        target(
            "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: x}}\n\
             auth: {usernameFile: u, passwordFile: p}",
        ),
        target("endpoints: [\"http://h:2379\"]\nauth: {}"),
        target("endpoints: [\"http://h:2379\"]\nauth: {passwordFile: p}"),
        target(
            "endpoints: [\"http://h:2379\"]\n\
             auth: {secretRef: {name: x}, usernameFile: u, passwordFile: p}",
        ),
        policy("clusterRef: {kind: EtcdCluster, name: x}"),
        policy("clusterRef: {apiVersion: operator.etcd.io/v1alpha1, name: x}"),
        policy("clusterRef: {apiVersion: defragd.dev/v1alpha1, kind: EtcdCluster, name: x}"),
    ];
    for text in bad {
        let parsed = parse("p.yaml", &text);
        assert_eq!(parsed.errors, [], "{text}");
        assert!(
            !cel_errors(&parsed.objects[0].value).is_empty(),
            "the CRD accepts\n{text}"
        );
        assert!(
            !parsed.objects[0].value.errors(Place::Anywhere).is_empty(),
            "validation accepts\n{text}"
        );
    }
}

#[test]
fn cel_keeps_the_spec_of_a_run() {
    let object = |changes: &str| match parse("p.yaml", &run(changes)).objects.remove(0).value {
        Object::Run(run) => *run,
        other => panic!("{other:?}"),
    };
    let old = object("leader: Move");
    for (changes, allowed) in [
        ("leader: Move", true),
        (
            "leader: Move\nsuspend: true\nttlSecondsAfterFinished: 5",
            true,
        ),
        ("leader: Skip", false),
        ("dryRun: true\nleader: Move", false),
        ("rule: {all: true}\nleader: Move", false),
        ("", false),
    ] {
        let outcome = cel::validate_cel_update(&object(changes), &old);
        assert_eq!(outcome.is_ok(), allowed, "{changes}: {outcome:?}");
    }
}

/// Where a cluster is may change, from one way of saying it to the other too.
#[test]
fn cel_lets_a_target_change_its_shape() {
    let object = |changes: &str| match parse("p.yaml", &target(changes)).objects.remove(0).value {
        Object::Target(target) => *target,
        other => panic!("{other:?}"),
    };
    let shapes = [
        "endpoints: [\"http://h:2379\"]",
        "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: x}}",
        "podSelector: {matchLabels: {a: b}}",
    ]
    .map(object);
    for old in &shapes {
        for new in &shapes {
            cel::validate_cel_update(new, old).unwrap();
        }
    }
}
