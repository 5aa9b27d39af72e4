//! The pages say what the chart does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::helm::{objects, of_kind, read, template};

/// The rows of a page's tables below the heading: the cells of each, without those of the head.
pub(crate) fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, after) = page
        .split_once(&format!("{heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = after.split("\n#").next().unwrap_or_default();
    let table = section.lines().filter(|line| line.starts_with("| "));
    table
        .skip(2)
        .map(|line| {
            let line = line.trim_start_matches('|').trim_end_matches('|');
            line.split(" | ").map(str::trim).collect()
        })
        .collect()
}

/// What stands between backticks.
pub(crate) fn code(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_table_of_values_is_complete_and_right() {
    let values: Value = serde_yaml::from_str(&read("charts/defragd/values.yaml")).expect("YAML");
    let page = read("charts/defragd/README.md");
    let mut documented = BTreeSet::new();
    for row in rows(&page, "## Values") {
        let name = code(row[0]).remove(0);
        let pointer = format!("/{}", name.replace('.', "/"));
        let value = values
            .pointer(&pointer)
            .unwrap_or_else(|| panic!("{name} is no value"));
        match code(row[1]).as_slice() {
            [default] if row[1].starts_with('`') => {
                let default: Value = serde_yaml::from_str(default).expect("a default is YAML");
                assert_eq!(&default, value, "{name}");
            }
            _ => assert!(value.is_object(), "the default of {name} is missing"),
        }
        documented.insert(name);
    }
    let mut missing = Vec::new();
    leaves("", &values, &documented, &mut missing);
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}

fn leaves(path: &str, value: &Value, documented: &BTreeSet<String>, missing: &mut Vec<String>) {
    if documented.contains(path) {
        return;
    }
    match value.as_object() {
        Some(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
                leaves(&path, value, documented, missing);
            }
        }
        _ => missing.push(path.to_owned()),
    }
}

/// A rule as a set of words that can be compared: group, resources, verbs, names.
type Rule = (String, BTreeSet<String>, BTreeSet<String>, Vec<String>);

fn rules_of(role: &Value) -> BTreeSet<Rule> {
    let words = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.map(|word| word.as_str().expect("a word").to_owned())
            .collect()
    };
    let rules = role["rules"].as_array().expect("rules");
    rules
        .iter()
        .map(|rule| {
            let group = words(&rule["apiGroups"]).remove(0);
            (
                if group.is_empty() {
                    "core".to_owned()
                } else {
                    group
                },
                words(&rule["resources"]).into_iter().collect(),
                words(&rule["verbs"]).into_iter().collect(),
                words(&rule["resourceNames"]),
            )
        })
        .collect()
}

fn documented_rules(heading: &str) -> BTreeSet<Rule> {
    let page = read("docs/rbac.md");
    let rules: Vec<Rule> = rows(&page, heading)
        .iter()
        .map(|row| {
            let group = code(row[0]).pop().unwrap_or_else(|| row[0].to_owned());
            let (resources, names) = match row[1].split_once("named") {
                Some((resources, names)) => (code(resources), code(names)),
                None => (code(row[1]), Vec::new()),
            };
            assert_eq!(row.len(), 5, "{row:?}");
            assert!(!row[3].is_empty() && !row[4].is_empty(), "{row:?} says why");
            (
                group,
                resources.into_iter().collect(),
                code(row[2]).into_iter().collect(),
                names,
            )
        })
        .collect();
    let set: BTreeSet<Rule> = rules.iter().cloned().collect();
    assert_eq!(set.len(), rules.len(), "a rule stands there twice");
    set
}

const WATCHED: &str = "## In the namespaces that it watches";

#[tokio::test]
async fn every_rule_is_documented_and_no_other() {
    let rendered = objects(&template("", &[]).await.expect("it renders"));
    let roles: BTreeMap<&str, &Value> = of_kind(&rendered, "ClusterRole")
        .into_iter()
        .map(|role| (role["metadata"]["name"].as_str().expect("a name"), role))
        .collect();
    assert_eq!(
        roles.keys().copied().collect::<Vec<_>>(),
        ["defragd", "defragd-edit", "defragd-view"]
    );
    assert_eq!(rules_of(roles["defragd"]), documented_rules(WATCHED));
    let own = of_kind(&rendered, "Role");
    assert_eq!(own.len(), 1);
    assert_eq!(
        rules_of(own[0]),
        documented_rules("## In its own namespace")
    );
}

#[tokio::test]
async fn a_webhook_adds_its_documented_rules_and_no_other() {
    let webhook = "config: {sources: [{name: pushed, webhook: {bearerTokenFile: /t}}]}";
    for values in [webhook, "webhook: {sources: [pushed]}"] {
        let rendered = objects(&template(values, &[]).await.expect("it renders"));
        let own: Vec<&Value> = of_kind(&rendered, "Role")
            .into_iter()
            .filter(|role| role["metadata"]["name"] == "defragd-alerts")
            .collect();
        assert_eq!(own.len(), 1, "{values}");
        assert_eq!(
            rules_of(own[0]),
            documented_rules("## For sources that are delivered to")
        );
        let services = of_kind(&rendered, "Service");
        let names: Vec<&Value> = services.iter().map(|s| &s["metadata"]["name"]).collect();
        assert_eq!(names, ["defragd-metrics", "defragd-webhook"], "{values}");
    }
}

#[tokio::test]
async fn the_same_rules_hold_in_namespaces_only() {
    let rendered = objects(
        &template("watchNamespaces: [a, b]", &[])
            .await
            .expect("it renders"),
    );
    for namespace in ["a", "b"] {
        let roles = of_kind(&rendered, "Role");
        let here: Vec<_> = roles
            .iter()
            .filter(|role| role["metadata"]["namespace"] == namespace)
            .collect();
        assert_eq!(here.len(), 1, "{namespace}");
        assert_eq!(rules_of(here[0]), documented_rules(WATCHED), "{namespace}");
    }
    let bindings = of_kind(&rendered, "ClusterRoleBinding");
    assert!(bindings.is_empty(), "{bindings:?}");

    // Secrets of one namespace, all else of every one.
    let narrowed = objects(
        &template("rbac: {secretNamespaces: [etcd]}", &[])
            .await
            .expect("it renders"),
    );
    let cluster: BTreeSet<Rule> = of_kind(&narrowed, "ClusterRole")
        .into_iter()
        .filter(|role| role["metadata"]["name"] == "defragd")
        .flat_map(rules_of)
        .collect();
    let secrets: BTreeSet<Rule> = of_kind(&narrowed, "Role")
        .into_iter()
        .filter(|role| role["metadata"]["namespace"] == "etcd")
        .flat_map(rules_of)
        .collect();
    let all = documented_rules(WATCHED);
    assert!(secrets.iter().all(|rule| rule.1.contains("secrets")) && secrets.len() == 1);
    assert_eq!(
        cluster.union(&secrets).cloned().collect::<BTreeSet<_>>(),
        all
    );
    assert!(cluster.is_disjoint(&secrets));
}

#[tokio::test]
async fn the_metrics_apis_can_be_left_out() {
    let rendered = template("rbac: {metricsApis: false}", &[]).await;
    let rendered = objects(&rendered.expect("it renders"));
    let rules: BTreeSet<Rule> = of_kind(&rendered, "ClusterRole")
        .into_iter()
        .filter(|role| role["metadata"]["name"] == "defragd")
        .flat_map(rules_of)
        .collect();
    let (metrics, others): (BTreeSet<Rule>, BTreeSet<Rule>) = documented_rules(WATCHED)
        .into_iter()
        .partition(|rule| rule.0.ends_with(".metrics.k8s.io"));
    assert_eq!(metrics.len(), 2);
    assert_eq!(rules, others);
}
