//! Manifests of policies.

use super::Verdict::{Bad, Good, LintOnly};
use super::{MATCHER, QUERY, Row, SPAN, TIME};

/// For `clusterRef: {name: a}` and the signal `probe: {}`, which a spec may replace.
pub(crate) const POLICIES: &[Row] = &[
    ("plain", "{}", Good),
    (
        "whole",
        "{signal: {prometheus: {source: main, query: 'max(a - b)', above: 500Mi, reduce: Max}}, for: 10m, \
         interval: 30s, noData: Hold, onError: Fallback, fallback: {after: 15m, probe: {rule: {quotaUsageAbove: 80%, minReclaim: 100Mi}}}, \
         windows: [{days: [Sat, Sun], start: '22:00', length: 4h, timeZone: Europe/Berlin}], \
         blackouts: [{cron: '0 8 * * 1', length: 1h}], cooldown: 12h, backoff: {factor: 2, max: 2d, minReclaim: 64Mi}, \
         maxRunsPerDay: 2, emergency: {quotaUsageAbove: 90%, noSpace: true}, suspend: false, \
         pausedUntil: '2026-01-31T22:00:00Z', dryRun: true, trigger: now, historyLimit: {successful: 0, failed: 100}, \
         runTemplate: {rule: {freeSpaceAbove: 200Mi}, compaction: {keepRevisions: 1000}, leader: InPlace, disarmNoSpace: false, \
         settle: {maxRaftLag: 100, timeout: 2m}, memberTimeout: 10m, activeDeadline: 45m, ttlSecondsAfterFinished: 60}}",
        Good,
    ),
    (
        "no-threshold",
        "{signal: {prometheus: {source: main, query: 'a > 5'}}}",
        Good,
    ),
    (
        "below-nothing",
        "{signal: {prometheus: {source: main, query: a, below: '0.5'}}}",
        Good,
    ),
    (
        "external-metric",
        "{signal: {metric: {external: {name: 'a.b|c', selector: {matchLabels: {x: y}, \
         matchExpressions: [{key: k8s.io/a, operator: In, values: [b, c]}, {key: d, operator: Exists}]}}, above: 100Mi, reduce: Max}}}",
        Good,
    ),
    (
        "object-metric",
        "{signal: {metric: {object: {describedObject: {apiVersion: apps/v1, kind: StatefulSet, name: etcd}, name: m}, below: '0.5'}}}",
        Good,
    ),
    (
        "metric-of-nothing",
        "{signal: {metric: {above: 1}}}",
        Bad("exactly one of external and object is needed"),
    ),
    (
        "metric-of-both",
        "{signal: {metric: {external: {name: m}, object: {describedObject: {kind: Pod, name: a}, name: m}, above: 1}}}",
        Bad("exactly one of external and object is needed"),
    ),
    (
        "metric-uncompared",
        "{signal: {metric: {external: {name: m}}}}",
        Bad("exactly one of above and below is needed"),
    ),
    (
        "metric-as-path",
        "{signal: {metric: {external: {name: ../m}, above: 1}}}",
        Bad("spec.signal.metric.external.name"),
    ),
    (
        "metric-empty-selector",
        "{signal: {metric: {external: {name: m, selector: {}}, above: 1}}}",
        Bad("a selector needs matchLabels or matchExpressions"),
    ),
    (
        "metric-key-of-nothing",
        "{signal: {metric: {external: {name: m, selector: {matchLabels: {'': a}}}, above: 1}}}",
        Bad("the key of a label has 1 to 317 characters"),
    ),
    (
        "metric-values-of-exists",
        "{signal: {metric: {external: {name: m, selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}, above: 1}}}",
        Bad("In and NotIn need values"),
    ),
    (
        "metric-without-values",
        "{signal: {metric: {external: {name: m, selector: {matchExpressions: [{key: a, operator: NotIn}]}}, above: 1}}}",
        Bad("In and NotIn need values"),
    ),
    (
        "metric-kind",
        "{signal: {metric: {object: {describedObject: {kind: pods/x, name: a}, name: m}, above: 1}}}",
        Bad("describedObject.kind"),
    ),
    (
        "metric-and-probe",
        "{signal: {probe: {}, metric: {external: {name: m}, above: 1}}}",
        Bad("exactly one signal is needed"),
    ),
    (
        "cozystack",
        "{clusterRef: {apiVersion: etcd-operator.cozystack.io/v1alpha2, kind: EtcdCluster, name: a}}",
        Good,
    ),
    (
        "etcd-io",
        "{clusterRef: {apiVersion: operator.etcd.io/v1alpha1, kind: EtcdCluster, name: a}}",
        Good,
    ),
    (
        "own-api",
        "{clusterRef: {apiVersion: defragd.dev/v1alpha1, kind: EtcdTarget, name: a}}",
        Good,
    ),
    (
        "alert",
        "{signal: {alert: {source: am, matchers: ['alertname=\"a\"', 'severity=~\"b|c\"'], include: [Silenced, Inhibited]}}}",
        Good,
    ),
    (
        "fleet-of-alerts",
        "{clusterRef: null, clusterSelector: {}, signal: {alert: {source: am, matchers: ['alertname=a']}}}",
        Bad("clusterSelector needs a prometheus or a probe signal"),
    ),
    (
        "fleet-of-metrics",
        "{clusterRef: null, clusterSelector: {}, signal: {metric: {external: {name: m}, above: 1}}}",
        Bad("clusterSelector needs a prometheus or a probe signal"),
    ),
    (
        "fleet-blocked-by-both",
        "{clusterRef: null, clusterSelector: {}, blockers: [{name: a, signal: {alert: {source: am, matchers: ['alertname=a']}}}, \
         {name: b, signal: {metric: {external: {name: m}, above: 1}}}]}",
        Good,
    ),
    (
        "blocked-by-nothing",
        "{maxBlockedFor: 1h}",
        Bad("maxBlockedFor needs blockers"),
    ),
    (
        "blockers",
        "{maxBlockedFor: 1h, blockers: [{name: upgrade, signal: {prometheus: {source: main, query: up == 0}}}, \
         {name: alerts, noData: Pass, signal: {alert: {source: am, matchers: ['alertname=a']}}}]}",
        Good,
    ),
    (
        "alert-and-probe",
        "{signal: {probe: {}, alert: {source: am, matchers: ['alertname=a']}}}",
        Bad("exactly one signal is needed"),
    ),
    (
        "no-matchers",
        "{signal: {alert: {source: am, matchers: []}}}",
        Bad("should have at least 1 items"),
    ),
    (
        "no-matcher",
        "{signal: {alert: {source: am, matchers: ['alertname']}}}",
        LintOnly(MATCHER),
    ),
    (
        "any-alert",
        "{signal: {alert: {source: am, matchers: ['severity!=critical']}}}",
        LintOnly(MATCHER),
    ),
    (
        "include-more",
        "{signal: {alert: {source: am, matchers: ['alertname=a'], include: [Muted]}}}",
        Bad("Unsupported value"),
    ),
    (
        "fleet",
        "{clusterRef: null, clusterSelector: {matchLabels: {tier: prod}, matchExpressions: [{key: x/y, operator: In, \
         values: [a]}, {key: z, operator: Exists}], kinds: [EtcdTarget, EtcdCluster.operator.etcd.io]}, maxConcurrentRuns: 2, \
         signal: {prometheus: {source: main, query: a, above: 1, clusterLabel: cluster, clusterLabelFrom: x/y}}}",
        Good,
    ),
    (
        "fleet-of-all",
        "{clusterRef: null, clusterSelector: {}, signal: {prometheus: {source: main, query: a, above: 1, sameForAll: true}}}",
        Good,
    ),
    (
        "labelled",
        "{signal: {prometheus: {source: main, query: a, above: 1, clusterLabel: cluster}}}",
        Good,
    ),
    (
        "neither-cluster",
        "{clusterRef: null}",
        Bad("exactly one of clusterRef and clusterSelector is needed"),
    ),
    (
        "two-clusters",
        "{clusterSelector: {}}",
        Bad("exactly one of clusterRef and clusterSelector is needed"),
    ),
    (
        "runs-of-one",
        "{maxConcurrentRuns: 2}",
        Bad("maxConcurrentRuns needs clusterSelector"),
    ),
    (
        "too-many-at-once",
        "{clusterRef: null, clusterSelector: {}, maxConcurrentRuns: 101}",
        Bad("should be less than or equal to 100"),
    ),
    (
        "fleet-without-label",
        "{clusterRef: null, clusterSelector: {}, signal: {prometheus: {source: main, query: a, above: 1}}}",
        Bad("with clusterSelector prometheus needs clusterLabel"),
    ),
    (
        "label-of-one",
        "{signal: {prometheus: {source: main, query: a, above: 1, clusterLabel: c, clusterLabelFrom: d}}}",
        Bad("clusterLabelFrom and sameForAll need clusterSelector"),
    ),
    (
        "label-from-alone",
        "{clusterRef: null, clusterSelector: {}, \
         signal: {prometheus: {source: main, query: a, above: 1, clusterLabelFrom: d}}}",
        Bad("clusterLabelFrom needs clusterLabel"),
    ),
    (
        "label-and-same",
        "{clusterRef: null, clusterSelector: {}, \
         signal: {prometheus: {source: main, query: a, above: 1, clusterLabel: c, sameForAll: true}}}",
        Bad("clusterLabel and sameForAll exclude one another"),
    ),
    (
        "in-nothing",
        "{clusterRef: null, clusterSelector: {matchExpressions: [{key: a, operator: In}]}}",
        Bad("In and NotIn need values, Exists and DoesNotExist take none"),
    ),
    (
        "empty-label-key",
        "{clusterRef: null, clusterSelector: {matchLabels: {'': b}}}",
        Bad("the key of a label has 1 to 317 characters"),
    ),
    (
        "other-operator",
        "{clusterRef: null, clusterSelector: {matchExpressions: [{key: a, operator: Is}]}}",
        Bad("Unsupported value"),
    ),
    (
        "kind-of-nobody",
        "{clusterRef: null, clusterSelector: {kinds: [Pod]}}",
        Bad("Unsupported value"),
    ),
    (
        "no-signal",
        "{signal: {}}",
        Bad("exactly one signal is needed"),
    ),
    (
        "two-signals",
        "{signal: {probe: {}, prometheus: {source: main, query: a, above: 1}}}",
        Bad("exactly one signal is needed"),
    ),
    (
        "no-api",
        "{clusterRef: {kind: EtcdCluster, name: a}}",
        Bad("kind EtcdCluster needs apiVersion"),
    ),
    (
        "wrong-api",
        "{clusterRef: {apiVersion: operator.etcd.io/v1alpha1, name: a}}",
        Bad("apiVersion and kind do not fit each other"),
    ),
    (
        "other-kind",
        "{clusterRef: {kind: Pod, name: a}}",
        Bad("Unsupported value"),
    ),
    (
        "other-version",
        "{clusterRef: {apiVersion: operator.etcd.io/v2, kind: EtcdCluster, name: a}}",
        Bad("Unsupported value"),
    ),
    (
        "odd-cluster",
        "{clusterRef: {name: A_B}}",
        Bad("clusterRef.name"),
    ),
    (
        "no-cluster",
        "{clusterRef: {name: ''}}",
        Bad("clusterRef.name"),
    ),
    (
        "other-namespace",
        "{clusterRef: {name: a, namespace: b}}",
        Bad("unknown field"),
    ),
    (
        "above-and-below",
        "{signal: {prometheus: {source: main, query: a, above: 1, below: 2}}}",
        Bad("above and below exclude one another"),
    ),
    (
        "reduce-alone",
        "{signal: {prometheus: {source: main, query: a, reduce: Max}}}",
        Bad("reduce needs above or below"),
    ),
    (
        "odd-reduce",
        "{signal: {prometheus: {source: main, query: a, above: 1, reduce: Median}}}",
        Bad("Unsupported value"),
    ),
    (
        "odd-above",
        "{signal: {prometheus: {source: main, query: a, above: lots}}}",
        Bad("must be a quantity"),
    ),
    (
        "odd-below",
        "{signal: {prometheus: {source: main, query: a, below: lots}}}",
        Bad("must be a quantity"),
    ),
    (
        "no-source",
        "{signal: {prometheus: {query: a, above: 1}}}",
        Bad("source"),
    ),
    (
        "no-query",
        "{signal: {prometheus: {source: main, query: '', above: 1}}}",
        Bad("query"),
    ),
    (
        "long-query",
        "{signal: {prometheus: {source: main, query: LONG, above: 1}}}",
        Bad("8192"),
    ),
    (
        "odd-query",
        "{signal: {prometheus: {source: main, query: 'max(', above: 1}}}",
        LintOnly(QUERY),
    ),
    (
        "always",
        "{signal: {prometheus: {source: main, query: '1'}}}",
        LintOnly(QUERY),
    ),
    (
        "fallback-missing",
        "{onError: Fallback}",
        Bad("onError: Fallback and noData: Fallback need a fallback"),
    ),
    (
        "fallback-unused",
        "{signal: {prometheus: {source: main, query: a, above: 1}}, onError: Hold, fallback: {after: 5m}}",
        Bad("the fallback is never used"),
    ),
    (
        "fallback-of-probe",
        "{fallback: {after: 5m}}",
        Bad("a probe has no fallback"),
    ),
    (
        "fallback-at-once",
        "{signal: {prometheus: {source: main, query: a, above: 1}}, fallback: {after: 0s}}",
        Bad("must be longer than zero"),
    ),
    ("odd-silence", "{noData: Panic}", Bad("Unsupported value")),
    ("odd-for", "{for: soon}", Bad("spec.for")),
    ("odd-interval", "{interval: 1.5m}", Bad("spec.interval")),
    (
        "no-interval",
        "{interval: 0s}",
        Bad("must be longer than zero"),
    ),
    ("long-interval", "{interval: 2h}", LintOnly(SPAN)),
    ("short-interval", "{interval: 100ms}", LintOnly(SPAN)),
    (
        "no-cooldown",
        "{cooldown: '0'}",
        Bad("must be longer than zero"),
    ),
    ("long-cooldown", "{cooldown: 31d}", LintOnly(SPAN)),
    (
        "short-backoff",
        "{cooldown: 2d, backoff: {max: 1d}}",
        LintOnly(SPAN),
    ),
    (
        "odd-backoff",
        "{backoff: {factor: 11}}",
        Bad("less than or equal to 10"),
    ),
    (
        "free-backoff",
        "{backoff: {minReclaim: 0}}",
        Bad("must be a positive size"),
    ),
    (
        "zero-backoff",
        "{backoff: {max: 0s}}",
        Bad("must be longer than zero"),
    ),
    (
        "window-of-nothing",
        "{windows: [{length: 1h}]}",
        Bad("exactly one of start and cron is needed"),
    ),
    (
        "window-of-both",
        "{windows: [{start: '22:00', cron: '0 1 * * *', length: 1h}]}",
        Bad("exactly one of start and cron is needed"),
    ),
    (
        "window-days-of-cron",
        "{blackouts: [{days: [Mon], cron: '0 1 * * *', length: 1h}]}",
        Bad("days go with start, not with cron"),
    ),
    (
        "window-of-no-length",
        "{windows: [{start: '22:00', length: 0s}]}",
        Bad("must be longer than zero"),
    ),
    (
        "window-zone-empty",
        "{windows: [{start: '22:00', length: 1h, timeZone: ''}]}",
        Bad("timeZone"),
    ),
    (
        "window-odd-zone",
        "{windows: [{start: '22:00', length: 1h, timeZone: Mars/Olympus}]}",
        LintOnly(TIME),
    ),
    (
        "window-odd-day",
        "{windows: [{days: [Funday], start: '22:00', length: 1h}]}",
        LintOnly(TIME),
    ),
    (
        "window-odd-start",
        "{windows: [{start: '25:00', length: 1h}]}",
        LintOnly(TIME),
    ),
    (
        "window-odd-cron",
        "{windows: [{cron: 'every day', length: 1h}]}",
        LintOnly(TIME),
    ),
    (
        "no-emergency",
        "{emergency: {noSpace: false}}",
        Bad("an emergency needs quotaUsageAbove or noSpace: true"),
    ),
    (
        "odd-emergency",
        "{emergency: {quotaUsageAbove: 100%}}",
        Bad("quotaUsageAbove"),
    ),
    ("odd-pause", "{pausedUntil: tomorrow}", Bad("pausedUntil")),
    (
        "never",
        "{maxRunsPerDay: 0}",
        Bad("greater than or equal to 1"),
    ),
    (
        "too-often",
        "{maxRunsPerDay: 49}",
        Bad("less than or equal to 48"),
    ),
    (
        "long-trigger",
        "{trigger: LONG}",
        Bad("may not be more than 256"),
    ),
    (
        "long-history",
        "{historyLimit: {failed: 101}}",
        Bad("less than or equal to 100"),
    ),
    (
        "probe-empty-rule",
        "{signal: {probe: {rule: {}}}}",
        Bad("exclude one another; one of them is needed"),
    ),
    (
        "template-not-all",
        "{runTemplate: {rule: {all: false}}}",
        Bad("all can only be true"),
    ),
    (
        "probe-least-alone",
        "{signal: {probe: {rule: {minReclaim: 1Mi}}}}",
        Bad("minReclaim alone asks for nothing"),
    ),
    (
        "template-least-larger",
        "{runTemplate: {rule: {minReclaim: 2Gi, freeSpaceAbove: 1Gi}}}",
        Bad("minReclaim must not be larger than freeSpaceAbove"),
    ),
    (
        "template-cluster",
        "{runTemplate: {clusterRef: {name: b}}}",
        Bad("unknown field"),
    ),
];
