//! What the chart refuses, and in which words.

use std::collections::BTreeSet;
use std::path::Path;

use defragd::hosts::config::Config;
use serde_json::Value;

use crate::helm::{read, template};

/// Values that are refused, and what the refusal must name. Those of `config` are refused by the program
/// as well; the chart says it before a pod does.
const BAD: &[(&str, &str)] = &[
    ("replicaCounts: 2", "replicaCounts"),
    ("replicaCount: two", "/replicaCount"),
    ("replicaCount: -1", "/replicaCount"),
    ("image: {tag: 1.0}", "/image/tag"),
    ("image: {name: x}", "name"),
    ("image: {digest: abc}", "/image/digest"),
    ("image: {pullPolicy: Sometimes}", "/image/pullPolicy"),
    ("imagePullSecrets: [registry]", "/imagePullSecrets/0"),
    ("fullnameOverride: Defragd", "/fullnameOverride"),
    ("sourceSecrets: [{name: x}]", "/sourceSecrets/0"),
    ("sourceSecrets: [a/b]", "/sourceSecrets/0"),
    ("sourceSecrets: [a, a]", "/sourceSecrets"),
    ("maxConcurrentRuns: 0", "/maxConcurrentRuns"),
    ("watchNamespaces: team-a", "/watchNamespaces"),
    ("watchNamespaces: ['*']", "/watchNamespaces/0"),
    ("watchNamespaces: [a, a]", "/watchNamespaces"),
    ("crds: {install: 'yes'}", "/crds/install"),
    ("crds: {keep: false}", "keep"),
    ("rbac: {secretNamespaces: [A]}", "/rbac/secretNamespaces/0"),
    (
        "serviceAccount: {annotations: {a: 1}}",
        "/serviceAccount/annotations/a",
    ),
    ("listen: {address: '::'}", "/listen/address"),
    ("listen: {port: 0}", "/listen/port"),
    (
        "serviceMonitor: {enabled: true, interval: 30}",
        "/serviceMonitor/interval",
    ),
    (
        "serviceMonitor: {interval: 30 s}",
        "/serviceMonitor/interval",
    ),
    ("networkPolicy: {egress: {}}", "/networkPolicy/egress"),
    (
        "podDisruptionBudget: {maxUnavailable: half}",
        "/podDisruptionBudget/maxUnavailable",
    ),
    ("podDisruptionBudget: {minAvailable: 1}", "minAvailable"),
    (
        "terminationGracePeriodSeconds: 0",
        "/terminationGracePeriodSeconds",
    ),
    ("extraArgs: [controller]", "/extraArgs/0"),
    (
        "topologySpreadConstraints: {}",
        "/topologySpreadConstraints",
    ),
    ("existingConfigMap: A_B", "/existingConfigMap"),
    ("config: {source: []}", "source"),
    ("config: {sources: {}}", "/config/sources"),
    ("config: {sources: [{name: a}]}", "prometheus"),
    (
        "config: {sources: [{name: a b, prometheus: {url: 'http://h'}}]}",
        "/config/sources/0/name",
    ),
    ("config: {sources: [{name: a, prometheus: {}}]}", "url"),
    (
        "config: {sources: [{name: a, prometheus: {url: 'ftp://h'}}]}",
        "/config/sources/0/prometheus/url",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://u:p@h'}}]}",
        "/config/sources/0/prometheus/url",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', password: x}}]}",
        "password",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', headers: {Authorization: x}}}]}",
        "/config/sources/0/prometheus/headers/Authorization",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', basicAuth: {username: u}}}]}",
        "passwordFile",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', basicAuth: {passwordFile: /p}}}]}",
        "/config/sources/0/prometheus/basicAuth",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', bearerTokenFile: /t, basicAuth: {username: u, passwordFile: /p}}}]}",
        "/config/sources/0/prometheus",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'https://h', caFile: /c, insecureSkipVerify: true}}]}",
        "/config/sources/0/prometheus",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'https://h', certFile: /c}}]}",
        "keyFile",
    ),
    (
        "config: {sources: [{name: a, prometheus: {timeout: 1s}}]}",
        "/config/sources/0/prometheus",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', urls: ['http://i']}}]}",
        "/config/sources/0/prometheus",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', params: {query: up}}}]}",
        "invalid propertyName 'query'",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', oauth2: {tokenURL: 'http://t', clientID: c}}}]}",
        "/config/sources/0/prometheus/oauth2",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', bearerTokenFile: /t, oauth2: {tokenURL: 'http://t', clientID: c, clientSecretFile: /s}}}]}",
        "/config/sources/0/prometheus",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', timeout: 10}}]}",
        "/config/sources/0/prometheus/timeout",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', maxBodyBytes: 8MB}}]}",
        "/config/sources/0/prometheus/maxBodyBytes",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', requestsPerSecond: 0}}]}",
        "/config/sources/0/prometheus/requestsPerSecond",
    ),
    ("config: {sources: [{name: a, alertmanager: {}}]}", "url"),
    (
        "config: {sources: [{name: a, alertmanager: {urls: []}}]}",
        "/config/sources/0/alertmanager/urls",
    ),
    (
        "config: {sources: [{name: a, webhook: {}}]}",
        "/config/sources/0/webhook",
    ),
    (
        "config: {sources: [{name: A, webhook: {bearerTokenFile: /t}}]}",
        "/config/sources/0",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h'}, webhook: {bearerTokenFile: /t}}]}",
        "/config/sources/0",
    ),
    ("webhook: {sources: [A]}", "/webhook/sources/0"),
    ("webhook: {port: 0}", "/webhook/port"),
    (
        "config: {limits: {runsPerHour: 0}}",
        "/config/limits/runsPerHour",
    ),
    (
        "config: {limits: {shutdownTimeout: soon}}",
        "/config/limits/shutdownTimeout",
    ),
    ("config: {log: {format: xml}}", "/config/log/format"),
    // What a schema cannot say.
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h'}}, {name: a, prometheus: {url: 'http://i'}}]}",
        "config.sources[1].name: \"a\" is used twice",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', bearerTokenFile: /etc/defragd/secrets/prom/token}}]}",
        "config.sources[0].prometheus.bearerTokenFile: \"/etc/defragd/secrets/prom/token\" lies in no Secret that is \
         mounted; add \"prom\" to sourceSecrets",
    ),
    (
        "{sourceSecrets: [other], config: {sources: [{name: a, prometheus: {url: 'http://h', \
         basicAuth: {username: u, passwordFile: /etc/defragd/secrets/prom/password}}}]}}",
        "config.sources[0].prometheus.basicAuth.passwordFile",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', oauth2: {tokenURL: 'http://t', clientID: c, \
         clientSecretFile: /etc/defragd/secrets/login/secret}}}]}",
        "config.sources[0].prometheus.oauth2.clientSecretFile: \"/etc/defragd/secrets/login/secret\" lies in no Secret",
    ),
    (
        "config: {sources: [{name: a, prometheus: {url: 'http://h', headerFiles: {X-Scope-OrgID: \
         /etc/defragd/secrets/mimir/tenant}}}]}",
        "config.sources[0].prometheus.headerFiles.X-Scope-OrgID: \"/etc/defragd/secrets/mimir/tenant\" lies in no Secret",
    ),
    (
        "config: {sources: [{name: a, alertmanager: {url: 'http://h', bearerTokenFile: /etc/defragd/secrets/am/token}}]}",
        "config.sources[0].alertmanager.bearerTokenFile: \"/etc/defragd/secrets/am/token\" lies in no Secret",
    ),
    (
        "{existingConfigMap: mine, config: {sources: [{name: a, prometheus: {url: 'http://h'}}]}}",
        "existingConfigMap: \"mine\" is set beside config.sources",
    ),
];

#[tokio::test]
async fn bad_values_are_refused_by_the_field_s_name() {
    let mut wrong = String::new();
    for (values, named) in BAD {
        match template(values, &[]).await {
            Ok(_) => wrong += &format!("{values}\n  is accepted\n"),
            Err(words) if words.contains(named) => {}
            Err(words) => wrong += &format!("{values}\n  wanted {named}\n  got    {words}\n"),
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The schema is no stricter than the program where it says what the program says too.
#[test]
fn the_program_refuses_the_same_configurations() {
    let only_charts = ["lies in no Secret", "passwordFile", "existingConfigMap"];
    let mut compared = 0;
    for (values, named) in BAD {
        let values: Value = serde_yaml::from_str(values).expect("YAML");
        let Some(config) = values.get("config") else {
            continue;
        };
        if values.get("existingConfigMap").is_some()
            || values.get("sourceSecrets").is_some()
            || named.contains(only_charts[0])
        {
            continue;
        }
        compared += 1;
        let text = serde_yaml::to_string(config).expect("plain data");
        let verdict = Config::parse(Path::new("defragd.yaml"), &text);
        assert!(verdict.is_err(), "accepted by the program:\n{text}");
    }
    assert!(compared > 15, "{compared}");
}

#[tokio::test]
async fn values_that_must_be_accepted() {
    for values in [
        // As a part of another chart, with a condition.
        "{global: {image: x}, enabled: true}",
        "podSecurityContext: {runAsUser: null}",
        "resources: {limits: {memory: null}}",
        "topologySpreadConstraints: []",
        "podDisruptionBudget: {maxUnavailable: 100%}",
        "existingConfigMap: mine",
        "config: {sources: [{name: am, alertmanager: {urls: ['http://a', 'http://b'], params: {x: y}}}]}",
        "{sourceSecrets: [s], config: {sources: [{name: a, prometheus: {urls: ['https://a/p', 'https://b/p'], \
         params: {dedup: true, max: 5, 'extra[]': [a, b]}, headerFiles: {X-Scope-OrgID: \
         /etc/defragd/secrets/s/tenant}, proxyFromEnvironment: true, oauth2: {tokenURL: 'https://t/token?x=y', \
         clientID: c, clientSecretFile: /etc/defragd/secrets/s/secret, scopes: ['a:read'], endpointParams: \
         {audience: x}, tls: {caFile: /etc/defragd/secrets/s/ca}}}}]}}",
        "listen: {address: '[::1]'}",
        "config: {sources: [{name: a, prometheus: {url: 'https://h', caFile: /c, insecureSkipVerify: false}}]}",
        "config: {sources: [{name: a, prometheus: {url: 'http://h', bearerTokenFile: /run/t}}]}",
        "config: {log: {level: 'info,defragd=debug'}}",
    ] {
        let rendered = template(values, &[]).await;
        let rendered = rendered.unwrap_or_else(|words| panic!("{values}: {words}"));
        assert!(!rendered.contains("runAsUser: null"), "{values}");
    }
}

/// Schema and defaults name the same things: nothing can be set that has no default, and the other way round.
#[test]
fn schema_and_defaults_have_the_same_fields() {
    let schema: Value =
        serde_json::from_str(&read("charts/defragd/values.schema.json")).expect("JSON");
    let values: Value = serde_yaml::from_str(&read("charts/defragd/values.yaml")).expect("YAML");
    compare("", &schema, &values);
}

fn compare(path: &str, schema: &Value, values: &Value) {
    let (Some(properties), Some(values)) = (schema["properties"].as_object(), values.as_object())
    else {
        return;
    };
    assert_eq!(
        schema["additionalProperties"], false,
        "{path} takes anything"
    );
    // An empty object is a default whose fields have none of their own.
    if values.is_empty() {
        return;
    }
    let said: BTreeSet<&String> = properties
        .keys()
        .filter(|name| !(path.is_empty() && ["global", "enabled"].contains(&name.as_str())))
        .collect();
    let given: BTreeSet<&String> = values.keys().collect();
    if path != ".resources" {
        assert_eq!(said, given, "{path}");
    }
    for (name, value) in values {
        compare(&format!("{path}.{name}"), &properties[name], value);
    }
}
