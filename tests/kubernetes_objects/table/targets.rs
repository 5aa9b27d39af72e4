//! Manifests of targets.

use super::Verdict::{Bad, Good, LintOnly};
use super::{BYTES, FILE, NAMES, Row, URL};

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
