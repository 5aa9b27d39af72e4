//! What the API server and lint think of the same manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use defragd_harness::{Error, Kube, KubeApi, objects};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{DEFRAGD, api, checkout, run};
use crate::table::{POLICIES, RUNS, Row, TARGETS, Verdict};

const KINDS: [(&str, &[Row]); 3] = [
    ("EtcdTarget", TARGETS),
    ("EtcdDefragPolicy", POLICIES),
    ("EtcdDefrag", RUNS),
];

/// Every rule of the definitions refuses something here, and every difference between the two
/// verdicts is one that the table explains.
#[tokio::test]
async fn the_api_server_and_lint_agree() -> Result<(), Error> {
    let api = api(Kube::default()).await?;
    let folder = api.scratch().join("manifests");
    fs::create_dir(&folder).expect("the folder is the test's own");
    for (kind, rows) in KINDS {
        for (name, spec, _) in rows {
            let file = folder.join(format!("{}.yaml", id(kind, name)));
            // JSON is YAML.
            fs::write(file, manifest(kind, name, spec).to_string()).expect("it can be written");
        }
    }

    let linted = Command::new(DEFRAGD)
        .args(["lint", "--for", "kubernetes", "--output", "json"])
        .arg(&folder)
        .output()
        .expect("it can be started");
    let linted: Value = serde_json::from_slice(&linted.stdout).expect("JSON");
    let mut errors: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in linted["findings"].as_array().into_iter().flatten() {
        if finding["severity"] == "error" {
            let file = finding["file"].as_str().unwrap_or_default();
            let id = file
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .trim_end_matches(".yaml");
            let message = finding["message"].to_string();
            errors.entry(id.to_owned()).or_default().push(message);
        }
    }

    let text = folder.display().to_string();
    let dry_run = ["apply", "--dry-run=server", "-f", &text];
    let answer = match api.kubectl(&dry_run).await {
        Ok(output) => output,
        Err(Error::Command { output, .. }) => output,
        Err(other) => return Err(other),
    };
    let (taken, refusals) = answers(&answer);
    let mut wrong = Vec::new();
    for (kind, rows) in KINDS {
        for (name, spec, verdict) in rows {
            let id = id(kind, name);
            let lint = errors.get(&id);
            let taken = taken.contains(&id);
            let refusal = refusals.iter().find(|refusal| is_about(refusal, &id));
            let as_told = match verdict {
                Verdict::Good => taken && lint.is_none(),
                Verdict::Bad(words) => {
                    lint.is_some() && refusal.is_some_and(|refusal| refusal.contains(words))
                }
                Verdict::LintOnly(_) => taken && lint.is_some(),
            };
            if !as_told {
                wrong.push(format!(
                    "{id} {spec}: {verdict:?}\n  server: {taken} {refusal:?}\n  lint: {lint:?}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\n{} of them",
        wrong.join("\n"),
        wrong.len()
    );

    let changes = changes_of_a_run(&api).await?;
    for (kind, messages) in rules() {
        let mut said: String = refusals
            .iter()
            .filter(|refusal| refusal.contains(&format!("{}-", kind.to_lowercase())))
            .cloned()
            .collect();
        if kind == "EtcdDefrag" {
            said.push_str(&changes);
        }
        let silent: Vec<_> = messages
            .iter()
            .filter(|rule| !said.contains(*rule))
            .collect();
        assert!(
            silent.is_empty(),
            "nothing in the table breaks these rules of {kind}: {silent:#?}"
        );
    }
    Ok(())
}

/// What a reader is told lint knows and the API server does not.
#[test]
fn the_documents_say_what_only_lint_knows() {
    let page = fs::read_to_string(checkout("docs/target.md")).expect("the page is there");
    let (_, after) = page
        .split_once("## What only lint says")
        .expect("the section is there");
    let section = after.split("\n## ").next().unwrap_or_default();
    let why: BTreeSet<&str> = KINDS
        .iter()
        .flat_map(|(_, rows)| rows.iter())
        .filter_map(|(_, _, verdict)| match verdict {
            Verdict::LintOnly(why) => Some(*why),
            Verdict::Good | Verdict::Bad(_) => None,
        })
        .collect();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .count();
    assert_eq!(
        rows,
        why.len() + 2,
        "a header, a line, and one row for each of {why:#?}"
    );
    for reason in why {
        assert!(section.contains(reason), "{reason}");
    }
}

fn id(kind: &str, name: &str) -> String {
    format!("{}-{name}", kind.to_lowercase())
}

fn manifest(kind: &str, name: &str, spec: &str) -> Value {
    let spec = spec.replace("LONG", &"a".repeat(9000));
    let spec: Value = serde_yaml::from_str(&spec).expect("the table is YAML");
    let mut whole = match kind {
        "EtcdTarget" => json!({}),
        "EtcdDefragPolicy" => json!({ "clusterRef": { "name": "a" }, "signal": { "probe": {} } }),
        _ => json!({ "clusterRef": { "name": "a" } }),
    };
    if let (Some(whole), Value::Object(spec)) = (whole.as_object_mut(), spec) {
        whole.extend(spec);
        whole.retain(|_, value| !value.is_null());
    }
    let mut object = objects::object(kind, &id(kind, name), &whole);
    object["metadata"]["namespace"] = json!("default");
    object
}

/// The names of what was taken, and each refusal with all its lines.
fn answers(output: &str) -> (BTreeSet<String>, Vec<String>) {
    let mut taken = BTreeSet::new();
    let mut refusals: Vec<String> = Vec::new();
    for line in output.lines() {
        if let Some((object, _)) = line.split_once(" created (server dry run)") {
            let name = object.rsplit('/').next().unwrap_or_default();
            taken.insert(name.to_owned());
        } else if line.starts_with("The ")
            || line.starts_with("Error from server")
            || refusals.is_empty()
        {
            refusals.push(line.to_owned());
        } else if let Some(last) = refusals.last_mut() {
            last.push('\n');
            last.push_str(line);
        }
    }
    (taken, refusals)
}

fn is_about(refusal: &str, id: &str) -> bool {
    refusal.contains(&format!("\"{id}\"")) || refusal.contains(&format!("/{id}.yaml"))
}

/// The messages of the rules of each kind's spec.
fn rules() -> Vec<(String, BTreeSet<String>)> {
    let text = fs::read_to_string(checkout("docs/reference/crds.yaml")).expect("it is there");
    let documents = serde_yaml::Deserializer::from_str(&text);
    let definitions = documents.map(|one| Value::deserialize(one).expect("a definition"));
    definitions
        .map(|definition| {
            let kind = definition["spec"]["names"]["kind"]
                .as_str()
                .unwrap_or_default();
            let schema = &definition["spec"]["versions"][0]["schema"];
            let mut messages = BTreeSet::new();
            collect(schema, &mut messages);
            assert!(!messages.is_empty(), "{kind}");
            (kind.to_owned(), messages)
        })
        .collect()
}

fn collect(schema: &Value, messages: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            let rules = map
                .get("x-kubernetes-validations")
                .and_then(Value::as_array);
            for rule in rules.into_iter().flatten() {
                messages.extend(rule["message"].as_str().map(str::to_owned));
            }
            map.values().for_each(|value| collect(value, messages));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, messages)),
        _ => {}
    }
}

/// What a run was asked for stands, but for the two fields that may be changed. Says all refusals.
async fn changes_of_a_run(api: &KubeApi) -> Result<String, Error> {
    let mut by_hand = run("by-hand", "a", json!({ "suspend": true }));
    by_hand["metadata"]["namespace"] = json!("default");
    api.apply(&by_hand.to_string()).await?;
    let path = "/apis/defragd.dev/v1alpha1/namespaces/default/etcddefrags/by-hand";
    for change in [
        json!({ "suspend": false }),
        json!({ "ttlSecondsAfterFinished": 5 }),
        json!({ "suspend": null }),
    ] {
        api.patch(path, &json!({ "spec": change })).await?;
    }
    let mut refusals = String::new();
    for change in [
        json!({ "clusterRef": { "name": "b" } }),
        json!({ "rule": null }),
        json!({ "dryRun": true }),
        json!({ "memberTimeout": "5m" }),
    ] {
        match api.patch(path, &json!({ "spec": change })).await {
            Ok(object) => panic!("{change} was taken: {object}"),
            Err(error) => refusals.push_str(&error.to_string()),
        }
    }
    Ok(refusals)
}
