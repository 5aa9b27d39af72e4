//! Tables of bad manifests with every message that they get, and of good ones.

use std::fmt::Write as _;

use super::*;

mod admission;
mod cel;
mod fleets;
mod places;
mod reach;
mod targets;

/// A manifest and everything that is said about it.
fn verdict(text: &str) -> String {
    let parsed = parse("p.yaml", text);
    let mut all = parsed.errors;
    for object in &parsed.objects {
        all.extend(object.errors(Place::Anywhere));
    }
    all.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A policy of which `changes` replaces the fields that it names.
fn policy(changes: &str) -> String {
    let mut text =
        "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefragPolicy\nmetadata: {name: p}\nspec:\n"
            .to_owned();
    for (field, default) in [
        ("clusterRef", "  clusterRef: {name: demo}\n"),
        ("signal", "  signal: {probe: {}}\n"),
    ] {
        if !changes
            .lines()
            .any(|line| line.starts_with(&format!("{field}:")))
        {
            text.push_str(default);
        }
    }
    indent(text, changes)
}

fn run(changes: &str) -> String {
    let head = "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefrag\nmetadata: {name: r}\nspec:\n  clusterRef: {name: demo}\n";
    indent(head.to_owned(), changes)
}

fn target(changes: &str) -> String {
    let head = "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: t}\nspec:\n";
    indent(head.to_owned(), changes)
}

fn indent(mut text: String, lines: &str) -> String {
    for line in lines.lines() {
        writeln!(text, "  {line}").unwrap();
    }
    text
}

fn prometheus(fields: &str) -> String {
    format!("signal: {{prometheus: {{{fields}}}}}")
}

/// Every case with what is said about it, as one text to look through.
fn table(cases: &[(&str, String)], wrap: fn(&str) -> String) -> String {
    let mut out = String::new();
    for (name, changes) in cases {
        let said = verdict(&wrap(changes));
        assert!(
            !said.is_empty(),
            "{name}: nothing was said about\n{changes}"
        );
        writeln!(
            out,
            "# {name}\n{}\n{}\n",
            changes.trim_end(),
            said.replace("p.yaml:", "→ p.yaml:")
        )
        .unwrap();
    }
    out
}

fn cases<const N: usize>(cases: [(&'static str, &str); N]) -> Vec<(&'static str, String)> {
    cases
        .into_iter()
        .map(|(name, text)| (name, text.to_owned()))
        .collect()
}

fn bad_policies() -> Vec<(&'static str, String)> {
    let p = prometheus;
    let mut all = cases([
        ("unknown field", "cooldwn: 1h"),
        ("unknown field, nothing alike", "zzz: 1"),
        (
            "fields that do not exist here",
            "clusterSelector: {}\nblocker: []",
        ),
        (
            "wrong types",
            "suspend: \"yes\"\nwindows: {}\ninterval: 30\nmaxRunsPerDay: \"3\"\nbackoff: 2",
        ),
        ("empty field", "runTemplate:\n  rule:"),
        (
            "a huge number as a name",
            "clusterRef: {name: 99999999999999999999} # é",
        ),
        ("wrong word", "onError: hold"),
        (
            "zero durations",
            "cooldown: 0s\ninterval: \"0\"\nbackoff: {max: 0s}",
        ),
        (
            "negative, fractional, unitless, overflowing durations",
            "for: -5m\ninterval: 1.5s\ncooldown: \"30\"\nbackoff: {max: 300y}",
        ),
        (
            "durations out of bounds",
            "for: 31d\ninterval: 500ms\ncooldown: 31d\nbackoff: {max: 91d}",
        ),
        ("interval too long", "interval: 2h"),
        (
            "back-off shorter than the cooldown",
            "cooldown: 2h\nbackoff: {max: 1h}",
        ),
        (
            "back-off shorter than the default cooldown",
            "backoff: {max: 30m}",
        ),
        (
            "numbers out of range",
            "maxRunsPerDay: 0\nbackoff: {factor: 11}\nhistoryLimit: {successful: -1, failed: 101}",
        ),
        (
            "sizes that turn the guard off",
            "backoff: {minReclaim: 0}\nrunTemplate: {rule: {quotaUsageAbove: 80%, minReclaim: \"0\"}}",
        ),
        (
            "two signals",
            "signal: {probe: {}, prometheus: {source: main, query: up, above: 1}}",
        ),
        ("no signal", "signal: {}"),
        (
            "alerts",
            "signal:\n  alert:\n    source: ''\n    matchers: ['alertname', 'a=~\"(\"', 'b=\"x', '{c=\"d\"}', 'e==f', '']",
        ),
        (
            "any alert",
            "signal: {alert: {source: am, matchers: ['severity!=\"none\"']}}",
        ),
        (
            "an alert and a probe",
            "signal: {probe: {}, alert: {source: am, matchers: [alertname=a]}}",
        ),
        (
            "suppressed how",
            "signal: {alert: {source: am, matchers: [alertname=a], include: [Muted]}}",
        ),
        (
            "fallback missing",
            "signal: {prometheus: {source: main, query: up, above: 1}}\nonError: Fallback\nnoData: Fallback",
        ),
        (
            "fallback unused",
            "signal: {prometheus: {source: main, query: up, above: 1}}\nonError: Hold\nfallback: {after: 10m}",
        ),
        ("fallback beside a probe", "fallback: {after: 10m}"),
        (
            "fallback at once",
            "signal: {prometheus: {source: main, query: up, above: 1}}\nfallback: {after: 0s}",
        ),
        (
            "fallback without a duration",
            "signal: {prometheus: {source: main, query: up, above: 1}}\nfallback: {}",
        ),
        (
            "T73 unknown zone",
            "windows: [{days: [Fri], start: \"22:00\", length: 6h, timeZone: Europe/Berlin_}]",
        ),
        (
            "T73 never Local",
            "windows: [{start: \"22:00\", length: 6h, timeZone: Local}]",
        ),
        (
            "empty zone",
            "windows: [{start: \"22:00\", length: 6h, timeZone: \"\"}]",
        ),
        ("empty window", "windows: [{start: \"22:00\", length: 0s}]"),
        ("window without start", "windows:\n- length: 6h"),
        (
            "window with both",
            "blackouts:\n- {start: \"22:00\", cron: 0 22 * * 5, length: 6h}",
        ),
        (
            "window with wrong parts",
            "windows:\n- {days: [Fry], start: \"22:00\", length: 6h}\n- {start: \"25:00\", length: 6h}\n- {start: \"22:00\", length: 8d}\n- {cron: 61 * * * *, length: 1h}\n- {days: [Fri], cron: 0 22 * * *, length: 1h}",
        ),
        (
            "emergency without an emergency",
            "emergency: {noSpace: false}",
        ),
        (
            "blockers",
            "blockers:\n- {name: Up grade, signal: {probe: {}}}\n- {name: a, signal: {}}\n- {name: a, signal: {prometheus: {source: main, query: up >}}}\n- {name: b}\n- {name: c, signal: {probe: {}}, noData: Hold}",
        ),
        (
            "blockers that do not fit",
            "blockers:\n- {name: Up grade, signal: {probe: {}}}\n- {name: a, signal: {}}\n- {name: a, signal: {prometheus: {source: main, query: up >}}}\n- {name: b, signal: {prometheus: {source: main, query: up, above: 1, below: 0}}}",
        ),
        (
            "two blockers of one name",
            "blockers: [{name: a, signal: {probe: {}}}, {name: a, signal: {probe: {}}}]",
        ),
        ("maxBlockedFor without blockers", "maxBlockedFor: 1h"),
        (
            "maxBlockedFor at once",
            "maxBlockedFor: 0s\nblockers: [{name: a, signal: {probe: {}}}]",
        ),
        (
            "percentages",
            "emergency: {quotaUsageAbove: 95}\nrunTemplate: {rule: {quotaUsageAbove: 100%}}",
        ),
        (
            "percentages, more",
            "emergency: {quotaUsageAbove: \"0.9\"}\nrunTemplate: {rule: {quotaUsageAbove: 100%}}",
        ),
        ("unknown fields hide nothing", "dryrun: true\ncooldown: 0s"),
        ("paused until a day", "pausedUntil: 2026-01-31"),
        (
            "another kind of cluster",
            "clusterRef: {apiVersion: v1, kind: EtcdClutser, name: Demo_1}",
        ),
        (
            "a cluster of nobody",
            "clusterRef: {kind: EtcdCluster, name: Demo_1}",
        ),
        (
            "a cluster of ours",
            "clusterRef: {apiVersion: defragd.dev/v1alpha1, kind: EtcdCluster, name: demo}",
        ),
        (
            "a target of theirs",
            "clusterRef: {apiVersion: operator.etcd.io/v1alpha1, name: demo}",
        ),
        (
            "the template has no cluster",
            "runTemplate: {clusterRef: {name: demo}}",
        ),
        (
            "several at once, in other corners",
            "signal:\n  prometheus:\n    source: main\n    query: up >\n    above: 1Q\ncooldown: 0s\nwindows:\n- start: \"22:00\"\n  length: 6h\n  timeZone: Mars/Olympus\nrunTemplate:\n  rule:\n    freeSpaceAbove: 0",
        ),
    ]);
    let many: Vec<String> = (0..9)
        .map(|i| format!("{{name: b{i}, signal: {{probe: {{}}}}}}"))
        .collect();
    all.push((
        "too many blockers",
        format!("blockers: [{}]", many.join(", ")),
    ));
    all.push(("trigger too long", format!("trigger: {}", "x".repeat(257))));
    all.extend([
        ("S15 quantities", p("source: main, query: up, above: 100mi")),
        ("S15 overflow", p("source: main, query: up, above: 100E")),
        (
            "S15 unquoted fraction",
            p("source: main, query: up, below: 0.5"),
        ),
        ("S16 blank query", p("source: main, query: '  ', above: 1")),
        (
            "S16 unparsable query",
            p("source: main, query: 'sum(rate(x[5m])', above: 1"),
        ),
        (
            "S16 NaN threshold",
            p("source: main, query: up, above: NaN"),
        ),
        (
            "S16 .nan threshold",
            p("source: main, query: up, above: .nan"),
        ),
        (
            "S08 range vector",
            p("source: main, query: 'up[5m]', above: 1"),
        ),
        (
            "above and below",
            p("source: main, query: up, above: 1, below: 0"),
        ),
        (
            "reduce without threshold",
            p("source: main, query: up > 1, reduce: Max"),
        ),
        ("a scalar always fires", p("source: main, query: 1 + 1")),
        (
            "S32 a policy names no URL",
            p("source: main, url: 'http://x', query: up"),
        ),
        ("nameless source", p("source: '', query: up")),
        ("missing query", p("source: main")),
    ]);
    all
}

fn bad_runs() -> Vec<(&'static str, String)> {
    cases([
        (
            "two kinds of rule",
            "rule: {all: true, freeSpaceAbove: 1Mi}",
        ),
        (
            "three kinds of rule",
            "rule: {all: true, freeSpaceAbove: 1Mi, expression: dbSize > 1}",
        ),
        ("empty rule", "rule: {}"),
        ("rule that says no", "rule: {all: false}"),
        ("minReclaim alone", "rule: {minReclaim: 1Mi}"),
        (
            "minReclaim above freeSpaceAbove",
            "rule: {freeSpaceAbove: 10Mi, quotaUsageAbove: 80%, minReclaim: 11Mi}",
        ),
        (
            "sizes",
            "rule: {freeSpaceAbove: -1, quotaUsageAbove: 80%, minReclaim: 1500m}",
        ),
        ("S15 unquoted fraction", "rule: {freeSpaceAbove: 0.5}"),
        ("overflow", "rule: {freeSpaceAbove: 9223372036854775808}"),
        (
            "a number beyond every integer",
            "compaction: {keepRevisions: 99999999999999999999}",
        ),
        (
            "a size beyond every integer",
            "rule: {freeSpaceAbove: 99999999999999999999}",
        ),
        (
            "a number beyond 128 bits, and one below zero",
            "settle: {maxRaftLag: -99999999999999999999}\ncompaction:\n  keepRevisions: 99999999999999999999999999999999999999999",
        ),
        (
            "a part instead of a percentage",
            "rule: {quotaUsageAbove: 0.8}",
        ),
        ("a small part", "rule: {quotaUsageAbove: 0.001}"),
        (
            "CEL that does not compile",
            "rule: {expression: 'dbSize >'}",
        ),
        ("CEL that gives a number", "rule: {expression: dbSize + 1}"),
        ("CEL with another name", "rule: {expression: dbSise > 1}"),
        ("compaction to the head", "compaction: {keepRevisions: 0}"),
        ("compaction without a number", "compaction: {}"),
        ("a leader mode that does not exist", "leader: move"),
        (
            "durations out of bounds",
            "memberTimeout: 1s\nactiveDeadline: 25h\nsettle: {timeout: 2h, maxRaftLag: 6000}",
        ),
        (
            "zero durations",
            "memberTimeout: 0s\nactiveDeadline: 0s\nsettle: {timeout: 0s}",
        ),
        ("negative ttl", "ttlSecondsAfterFinished: -1"),
        ("a ttl is seconds", "ttlSecondsAfterFinished: 1h"),
        ("snapshot is of another release", "snapshot: {}"),
    ])
}

#[test]
fn bad_policies_get_field_value_and_remedy() {
    insta::assert_snapshot!(table(&bad_policies(), policy));
}

#[test]
fn bad_runs_get_field_value_and_remedy() {
    insta::assert_snapshot!(table(&bad_runs(), run));
}

#[test]
fn bad_documents_get_file_and_line() {
    let table = table(
        &cases([
            ("not YAML", "a: [b\n"),
            ("not an object", "- a\n- b\n"),
            (
                "a field twice",
                "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nkind: EtcdTarget\n",
            ),
            (
                "another kind",
                "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {}\n",
            ),
            (
                "a kind with a slip",
                "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefragPolcy\nmetadata: {name: x}\n",
            ),
            (
                "another version",
                "apiVersion: defragd.dev/v1\nkind: EtcdTarget\nmetadata: {name: x}\n",
            ),
            ("no header", "metadata: {name: x}\n"),
            (
                "no name",
                "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nspec: {endpoints: [\"http://h:1\"]}\n",
            ),
            (
                "empty name",
                "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: \"\"}\nspec: {endpoints: [\"http://h:1\"]}\n",
            ),
            (
                "a number as name",
                "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: 1}\nspec: {endpoints: [\"http://h:1\"]}\n",
            ),
            (
                "a name that is none",
                "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: ../etc/passwd}\nspec: {endpoints: [\"http://h:1\"]}\n",
            ),
            (
                "no spec",
                "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: x, label: y}\nspecs: {}\n",
            ),
            (
                "tags and odd keys",
                "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: x}\nspec: {endpoints: !list [], 1: 2}\n",
            ),
        ]),
        str::to_owned,
    );
    insta::assert_snapshot!(table);
}

/// The line of the field, several documents a file, the good ones not lost.
#[test]
fn a_bad_document_does_not_stop_the_others() {
    let text = "# a comment\n---\n---\napiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: a}\n\
        spec:\n  endpoints:\n  - http://a:2379\n  - b:2379\n--- # broken\nkind: [\n---\n\
        apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata:\n  name: c\nspec: {endpoints: [\"http://c:2379\"]}\n...\n\
        apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata:\n  name: c\nspec: {endpoints: [\"http://d:2379\"]}\n";
    for text in [
        text.to_owned(),
        text.replace('\n', "\r\n"),
        format!("\u{feff}{text}"),
    ] {
        let parsed = parse("dir/p.yaml", &text);
        let names: Vec<(&str, usize)> = parsed
            .objects
            .iter()
            .map(|o| (o.value.name(), o.line))
            .collect();
        assert_eq!(names, [("a", 4), ("c", 14)]);
        let wrong = &parsed.objects[0].value.errors(Place::Anywhere)[0];
        assert_eq!(wrong.path, "spec.endpoints[1]");
        assert_eq!(parsed.objects[0].line_of(&wrong.path), 10);
        let lines: Vec<usize> = parsed.errors.iter().map(|e| e.line).collect();
        assert_eq!(lines.len(), 2, "{:?}", parsed.errors);
        assert!(
            (11..=13).contains(&lines[0]),
            "the syntax error: {:?}",
            parsed.errors[0]
        );
        assert_eq!(
            parsed.errors[1].to_string(),
            "dir/p.yaml:23: metadata.name: EtcdTarget \"c\" is given twice, first at dir/p.yaml:17; \
             rename or remove one of them"
        );
    }
}

#[test]
fn huge_and_hostile_texts_are_refused() {
    let said = verdict(&" ".repeat(MAX_FILE + 1));
    assert!(said.contains("more than 4194304; split it"), "{said}");
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(!verdict(&deep).is_empty());
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..20 {
        let alias = format!("*a{}", i - 1);
        writeln!(bomb, "a{i}: &a{i} [{}]", vec![alias; 10].join(", ")).unwrap();
    }
    assert!(!verdict(&bomb).is_empty());
}

/// The policy of the documentation, word for word.
const DEMO: &str = "\
apiVersion: defragd.dev/v1alpha1
kind: EtcdTarget
metadata: {name: demo}
spec: {endpoints: [\"http://127.0.0.1:2379\", \"http://127.0.0.1:2479\", \"http://127.0.0.1:2579\"]}
---
apiVersion: defragd.dev/v1alpha1
kind: EtcdDefragPolicy
metadata: {name: fragmented}
spec:
  clusterRef: {name: demo}
  signal:
    prometheus:
      source: main
      query: max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)
      above: 100Mi
  for: 3s
  interval: 1s
  cooldown: 1m
  backoff: {factor: 2, max: 1d, minReclaim: 32Mi}
  runTemplate:
    rule: {freeSpaceAbove: 50Mi}
    leader: Move
";

fn good() -> Vec<String> {
    let mut all = vec![DEMO.to_owned()];
    all.extend(
        [
            "runTemplate: {}",
            "signal: {probe: {rule: {all: true}}}",
            "signal: {probe: {rule: {quotaUsageAbove: 80%}}}",
            "for: 45m0s\ninterval: 1h\ncooldown: 30d\nbackoff: {factor: 1, max: 90d, minReclaim: 1}\nmaxRunsPerDay: 48",
            "cooldown: 2d",
            "maxBlockedFor: 90d\nblockers:\n- {name: up-1, signal: {prometheus: {source: main, query: up, above: 1, reduce: Any}}, noData: Pass}\n- {name: b, signal: {probe: {rule: {all: true}}}, noData: Block}",
            "blockers: []",
            "windows: [{days: [Fri, saturday], start: \"22:00\", length: 6h, timeZone: Europe/Berlin}, {cron: 0 3 * * *, length: 1h}]\nblackouts: [{start: \"00:00\", length: 10m}]",
            "signal: {prometheus: {source: main, query: up, below: \"0.5\", reduce: Any}}\nonError: Fire\nnoData: Fallback\nfallback: {after: 1m}",
            "signal: {prometheus: {source: main, query: up < 1}}\nfallback: {after: 1m, probe: {rule: {expression: dbSize > 1}}}",
            "emergency: {noSpace: true}\nsuspend: true\npausedUntil: \"2026-01-31T22:00:00+01:00\"\ndryRun: false\ntrigger: now\nhistoryLimit: {successful: 0, failed: 100}",
            "clusterRef: {apiVersion: defragd.dev/v1alpha1, kind: EtcdTarget, name: a.b-c}",
            "clusterRef: {apiVersion: etcd-operator.cozystack.io/v1alpha2, kind: EtcdCluster, name: etcd}",
            "clusterRef: {apiVersion: operator.etcd.io/v1alpha1, kind: EtcdCluster, name: etcd}",
        ]
        .map(policy),
    );
    for above in [
        "100Mi",
        "\"1500m\"",
        "1e3",
        "1E",
        "-5",
        "\"-5\"",
        "0",
        "104857600",
    ] {
        all.push(policy(&prometheus(&format!(
            "source: main, query: up, above: {above}"
        ))));
    }
    all.extend(
        [
            "rule: {all: true}",
            "rule: {freeSpaceAbove: 10Mi}",
            "rule: {freeSpaceAbove: 32Mi, quotaUsageAbove: 1%, minReclaim: 33554432}",
            "rule: {expression: 'dbQuotaUsage > 0.8 || dbSize - dbSizeInUse > 200*1024*1024'}\nleader: InPlace",
            "compaction: {keepRevisions: 1}\nleader: Skip\ndisarmNoSpace: false\nsettle: {maxRaftLag: 0, timeout: 1s}\nmemberTimeout: 6h\nactiveDeadline: 24h\nallowSingleMember: true\ndryRun: true\nsuspend: true\nttlSecondsAfterFinished: 0",
        ]
        .map(run),
    );
    all.extend(
        [
            "endpoints: [\"http://h\"]",
            "endpoints: [\"https://h:2379\", \"https://[::1]:2379\"]\nmemberCount: 3\nquotaBytes: 8Gi\ntls: {caFile: ca, certFile: c, keyFile: k, serverName: etcd.local}\nauth: {usernameFile: u, passwordFile: p}\nmetricsURLs: [\"http://h:2381/metrics\"]",
            "endpoints: [\"https://h:2379\"]\ntls: {secretRef: {name: etcd-client}, serverName: etcd.local}\nauth: {secretRef: {name: etcd.root}}\nmetricsURLs: [\"https://h:2381/metrics\"]",
            "podSelector: {matchLabels: {component: etcd}}",
            "podSelector: {matchLabels: {app.kubernetes.io/name: etcd, tier: \"\", a_b.C-d: X_y.Z-0}, port: 65535, scheme: http}\nauth: {secretRef: {name: etcd}}",
            "podSelector: {matchLabels: {component: etcd}, port: 1, scheme: https}\ntls: {secretRef: {name: etcd}}\nmemberCount: 3",
        ]
        .map(target),
    );
    all
}

#[test]
fn good_manifests_pass() {
    for text in good() {
        assert_eq!(verdict(&text), "", "{text}");
    }
}

/// A status in a file is somebody's copy; only the host says how a run ended.
#[test]
fn a_status_in_a_manifest_is_left_out() {
    let text = format!(
        "{}status: {{phase: Complete, junk: 1}}\n",
        run("leader: Move")
    );
    let parsed = parse("p.yaml", &text);
    assert_eq!(parsed.errors, []);
    let Object::Run(run) = &parsed.objects[0].value else {
        panic!()
    };
    assert_eq!(run.status, None);
}
