//! Manifests, good and bad.

use Verdict::{Bad, Good, LintOnly};

/// What becomes of a manifest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// The API server and lint take it.
    Good,
    /// Both refuse it; the API server in these words, among others.
    Bad(&'static str),
    /// Only lint refuses it, because the API server cannot know this.
    LintOnly(&'static str),
}

/// A name, a spec in YAML, and what becomes of it. `LONG` stands for very many letters.
pub(crate) type Row = (&'static str, &'static str, Verdict);

// Why the API server takes what lint refuses.
const QUERY: &str = "a query is a text to the API server";
const EXPRESSION: &str = "so is an expression";
const TIME: &str = "and so is a time of day, a day, a zone and a schedule";
const SPAN: &str = "durations are compared as texts only, their length is not known";
const URL: &str = "of a URL only the beginning is looked at";
const FILE: &str = "the kind is the same for standalone, which reads files";
const BYTES: &str = "fractions of a byte are quantities";
const NAMES: &str = "the grammar of names inside of other values is not looked at";

pub(crate) const TARGETS: &[Row] = &[
    ("plain", "{endpoints: ['http://10.0.0.1:2379']}", Good),
    (
        "whole",
        "{endpoints: ['https://10.0.0.1:2379', 'https://10.0.0.2:2379'], memberCount: 3, quotaBytes: 8Gi, \
         tls: {secretRef: {name: etcd-client}, serverName: etcd.example}, auth: {secretRef: {name: etcd-root}}, \
         metricsURLs: ['https://10.0.0.1:2381/metrics']}",
        Good,
    ),
    ("ipv6", "{endpoints: ['http://[fd00::1]:2379']}", Good),
    (
        "by-pods",
        "{podSelector: {matchLabels: {component: etcd}}}",
        Good,
    ),
    (
        "by-pods-tls",
        "{podSelector: {matchLabels: {app.kubernetes.io/name: etcd, empty: ''}, port: 2379, scheme: https}, \
         tls: {secretRef: {name: etcd-client}}}",
        Good,
    ),
    (
        "neither",
        "{}",
        Bad("exactly one of endpoints and podSelector is needed"),
    ),
    (
        "both",
        "{endpoints: ['http://10.0.0.1:2379'], podSelector: {matchLabels: {a: b}}}",
        Bad("exactly one of endpoints and podSelector is needed"),
    ),
    ("no-endpoint", "{endpoints: []}", Bad("at least 1 items")),
    (
        "no-scheme",
        "{endpoints: ['10.0.0.1:2379']}",
        Bad("^https?://"),
    ),
    (
        "long-url",
        "{endpoints: ['http://LONG:2379']}",
        Bad("may not be more than 2048"),
    ),
    (
        "https-without-tls",
        "{endpoints: ['https://10.0.0.1:2379']}",
        Bad("https endpoints need tls"),
    ),
    (
        "http-with-tls",
        "{endpoints: ['http://10.0.0.1:2379'], tls: {secretRef: {name: a}}}",
        Bad("http endpoints must not have it"),
    ),
    (
        "pods-https-without-tls",
        "{podSelector: {matchLabels: {a: b}, scheme: https}}",
        Bad("podSelector.scheme: https needs tls"),
    ),
    (
        "pods-http-with-tls",
        "{podSelector: {matchLabels: {a: b}}, tls: {secretRef: {name: a}}}",
        Bad("with tls the scheme must be https"),
    ),
    (
        "pods-with-files",
        "{podSelector: {matchLabels: {a: b}, scheme: https}, tls: {caFile: /ca.pem}}",
        Bad("podSelector needs secretRef in tls and auth"),
    ),
    (
        "files-and-secrets",
        "{endpoints: ['https://10.0.0.1:2379'], tls: {secretRef: {name: a}}, auth: {usernameFile: /u, passwordFile: /p}}",
        Bad("tls and auth must both use secretRef"),
    ),
    (
        "pods-any",
        "{podSelector: {matchLabels: {}}}",
        Bad("at least 1 properties"),
    ),
    (
        "pods-no-labels",
        "{podSelector: {port: 2379}}",
        Bad("matchLabels"),
    ),
    (
        "pods-empty-key",
        "{podSelector: {matchLabels: {'': b}}}",
        Bad("the key of a label has 1 to 317 characters"),
    ),
    (
        "pods-odd-value",
        "{podSelector: {matchLabels: {a: '-b'}}}",
        Bad("matchLabels"),
    ),
    (
        "pods-odd-key",
        "{podSelector: {matchLabels: {'a/b/c': b}}}",
        LintOnly(NAMES),
    ),
    (
        "pods-port",
        "{podSelector: {matchLabels: {a: b}, port: 65536}}",
        Bad("65535"),
    ),
    (
        "pods-scheme",
        "{podSelector: {matchLabels: {a: b}, scheme: ftp}}",
        Bad("Unsupported value"),
    ),
    (
        "no-member",
        "{endpoints: ['http://10.0.0.1:2379'], memberCount: 0}",
        Bad("greater than or equal to 1"),
    ),
    (
        "many-members",
        "{endpoints: ['http://10.0.0.1:2379'], memberCount: 64}",
        Bad("less than or equal to 63"),
    ),
    (
        "quota-zero",
        "{endpoints: ['http://10.0.0.1:2379'], quotaBytes: 0}",
        Bad("must be a positive size"),
    ),
    (
        "quota-words",
        "{endpoints: ['http://10.0.0.1:2379'], quotaBytes: much}",
        Bad("must be a positive size"),
    ),
    (
        "quota-half-byte",
        "{endpoints: ['http://10.0.0.1:2379'], quotaBytes: 500m}",
        LintOnly(BYTES),
    ),
    (
        "tls-nothing",
        "{endpoints: ['https://10.0.0.1:2379'], tls: {serverName: etcd}}",
        Bad("exactly one of secretRef (Kubernetes) and caFile (standalone) is needed"),
    ),
    (
        "tls-secret-and-files",
        "{endpoints: ['https://10.0.0.1:2379'], tls: {secretRef: {name: a}, certFile: /c, keyFile: /k}}",
        Bad("secretRef excludes certFile and keyFile"),
    ),
    (
        "tls-half",
        "{endpoints: ['https://10.0.0.1:2379'], tls: {caFile: /ca, certFile: /c}}",
        Bad("certFile and keyFile go together"),
    ),
    (
        "tls-file",
        "{endpoints: ['https://10.0.0.1:2379'], tls: {caFile: /ca}}",
        LintOnly(FILE),
    ),
    (
        "tls-other-namespace",
        "{endpoints: ['https://10.0.0.1:2379'], tls: {secretRef: {name: a, namespace: kube-system}}}",
        Bad("namespace"),
    ),
    (
        "tls-path-of-a-secret",
        "{endpoints: ['https://10.0.0.1:2379'], tls: {secretRef: {name: ../a}}}",
        Bad("secretRef.name"),
    ),
    (
        "tls-server-name",
        "{endpoints: ['https://10.0.0.1:2379'], tls: {secretRef: {name: a}, serverName: 'a b'}}",
        LintOnly(NAMES),
    ),
    (
        "auth-nothing",
        "{endpoints: ['http://10.0.0.1:2379'], auth: {}}",
        Bad(
            "exactly one of secretRef (Kubernetes) and usernameFile with passwordFile (standalone) is needed",
        ),
    ),
    (
        "auth-half",
        "{endpoints: ['http://10.0.0.1:2379'], auth: {usernameFile: /u}}",
        Bad("usernameFile and passwordFile go together"),
    ),
    (
        "metrics-https-without-tls",
        "{endpoints: ['http://10.0.0.1:2379'], metricsURLs: ['https://10.0.0.1:2381/metrics']}",
        Bad("https metricsURLs need tls"),
    ),
    (
        "with-user",
        "{endpoints: ['http://me:secret@10.0.0.1:2379']}",
        LintOnly(URL),
    ),
    (
        "with-path",
        "{endpoints: ['http://10.0.0.1:2379/v3']}",
        LintOnly(URL),
    ),
    (
        "twice",
        "{endpoints: ['http://10.0.0.1:2379', 'http://10.0.0.1:2379']}",
        LintOnly(URL),
    ),
    (
        "unknown-field",
        "{endpoints: ['http://10.0.0.1:2379'], endpoint: a}",
        Bad("unknown field"),
    ),
];

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
        "template-cluster",
        "{runTemplate: {clusterRef: {name: b}}}",
        Bad("unknown field"),
    ),
];

/// For `clusterRef: {name: a}`.
pub(crate) const RUNS: &[Row] = &[
    ("plain", "{}", Good),
    (
        "whole",
        "{rule: {quotaUsageAbove: 80%, minReclaim: 50Mi, freeSpaceAbove: 200Mi}, compaction: {keepRevisions: 1}, leader: Skip, \
         disarmNoSpace: true, settle: {maxRaftLag: 0, timeout: 1s}, memberTimeout: 5s, activeDeadline: 24h, \
         allowSingleMember: true, dryRun: true, suspend: true, ttlSecondsAfterFinished: 0}",
        Good,
    ),
    ("all", "{rule: {all: true}}", Good),
    (
        "expression",
        "{rule: {expression: 'dbQuotaUsage > 0.8 || dbSizeFree > 200*1024*1024'}}",
        Good,
    ),
    ("bytes", "{rule: {freeSpaceAbove: 104857600}}", Good),
    ("no-cluster", "{clusterRef: null}", Bad("clusterRef")),
    (
        "no-api",
        "{clusterRef: {kind: EtcdCluster, name: a}}",
        Bad("kind EtcdCluster needs apiVersion"),
    ),
    (
        "wrong-api",
        "{clusterRef: {apiVersion: defragd.dev/v1alpha1, kind: EtcdCluster, name: a}}",
        Bad("apiVersion and kind do not fit each other"),
    ),
    (
        "rule-empty",
        "{rule: {}}",
        Bad("exclude one another; one of them is needed"),
    ),
    (
        "rule-two",
        "{rule: {all: true, freeSpaceAbove: 1Mi}}",
        Bad("exclude one another; one of them is needed"),
    ),
    (
        "rule-not-all",
        "{rule: {all: false}}",
        Bad("all can only be true"),
    ),
    (
        "rule-least-alone",
        "{rule: {minReclaim: 1Mi}}",
        Bad("minReclaim alone asks for nothing"),
    ),
    (
        "rule-least-larger",
        "{rule: {minReclaim: 2Gi, freeSpaceAbove: 1Gi}}",
        Bad("minReclaim must not be larger than freeSpaceAbove"),
    ),
    (
        "rule-negative",
        "{rule: {freeSpaceAbove: -1Mi}}",
        Bad("must be a positive size"),
    ),
    (
        "rule-percent",
        "{rule: {quotaUsageAbove: 80}}",
        Bad("quotaUsageAbove"),
    ),
    (
        "rule-all-percent",
        "{rule: {quotaUsageAbove: 0%}}",
        Bad("quotaUsageAbove"),
    ),
    (
        "rule-no-expression",
        "{rule: {expression: ''}}",
        Bad("expression"),
    ),
    (
        "rule-odd-expression",
        "{rule: {expression: 'dbSize >'}}",
        LintOnly(EXPRESSION),
    ),
    (
        "rule-odd-name",
        "{rule: {expression: 'dbSizes > 5'}}",
        LintOnly(EXPRESSION),
    ),
    (
        "rule-half-byte",
        "{rule: {freeSpaceAbove: 500m}}",
        LintOnly(BYTES),
    ),
    (
        "compact-head",
        "{compaction: {keepRevisions: 0}}",
        Bad("greater than or equal to 1"),
    ),
    ("compact-nothing", "{compaction: {}}", Bad("keepRevisions")),
    ("odd-leader", "{leader: Kill}", Bad("Unsupported value")),
    (
        "settle-lag",
        "{settle: {maxRaftLag: 5001}}",
        Bad("less than or equal to 5000"),
    ),
    (
        "settle-never",
        "{settle: {timeout: 0s}}",
        Bad("must be longer than zero"),
    ),
    ("settle-long", "{settle: {timeout: 2h}}", LintOnly(SPAN)),
    ("member-short", "{memberTimeout: 1s}", LintOnly(SPAN)),
    ("deadline-short", "{activeDeadline: 30s}", LintOnly(SPAN)),
    (
        "deadline-odd",
        "{activeDeadline: 1h1d}",
        Bad("activeDeadline"),
    ),
    (
        "ttl-negative",
        "{ttlSecondsAfterFinished: -1}",
        Bad("greater than or equal to 0"),
    ),
    (
        "ttl-for-ever",
        "{ttlSecondsAfterFinished: 315360001}",
        Bad("less than or equal to 315360000"),
    ),
    ("flag-word", "{dryRun: 'yes'}", Bad("dryRun")),
];
