//! What is rendered, word for word, and what must be true of it.

use std::fs;
use std::path::Path;

use defragd::hosts::config::Config;
use serde_json::Value;

use crate::helm::{chart, helm, objects, of_kind, read, template, text, values};

const VALUES: [&str; 4] = ["default", "namespaced", "tls-sources", "everything"];

/// Everything but the CRDs, which have a test of their own.
async fn rendered(name: &str) -> String {
    let given = fs::read_to_string(values(name)).expect("the values are there");
    template(&given, &["--set", "crds.install=false"])
        .await
        .unwrap_or_else(|words| panic!("{name}: {words}"))
}

#[tokio::test]
async fn renders_are_as_reviewed() {
    for name in VALUES {
        let text = rendered(name).await;
        insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!(name, text);
        });
    }
}

#[tokio::test]
async fn the_linter_has_nothing_to_say() {
    for name in VALUES {
        let said = helm(&[
            "lint",
            "--strict",
            &text(&chart()),
            "--values",
            &text(&values(name)),
        ])
        .await;
        let said = said.unwrap_or_else(|words| panic!("{name}: {words}"));
        assert!(said.contains("0 chart(s) failed"), "{name}: {said}");
    }
}

#[tokio::test]
async fn defragd_accepts_its_rendered_configuration() {
    let mut sources = Vec::new();
    for name in VALUES {
        let objects = objects(&rendered(name).await);
        let map = of_kind(&objects, "ConfigMap")[0];
        let file = map["data"]["defragd.yaml"]
            .as_str()
            .expect("it holds the file");
        let config = Config::parse(Path::new("defragd.yaml"), file)
            .unwrap_or_else(|error| panic!("{name}: {error}\n{file}"));
        sources.extend(config.sources.into_iter().map(|source| source.name));
    }
    assert_eq!(
        sources,
        ["plain", "token", "mutual", "main", "am", "pushed"]
    );
}

#[tokio::test]
async fn pods_are_replaced_when_and_only_when_the_configuration_changes() {
    let checksum = async |set: &[&str]| {
        let given = fs::read_to_string(values("tls-sources")).expect("the values are there");
        let rendered = template(&given, set).await.expect("it renders");
        let objects = objects(&rendered);
        let pods = &of_kind(&objects, "Deployment")[0]["spec"]["template"];
        pods["metadata"]["annotations"]["checksum/config"].clone()
    };
    let before = checksum(&[]).await;
    assert!(before.is_string());
    assert_ne!(before, checksum(&["--set", "config.log.level=debug"]).await);
    assert_eq!(
        before,
        checksum(&["--set", "serviceMonitor.enabled=true"]).await
    );
}

#[tokio::test]
async fn crds_are_the_generated_ones_and_kept() {
    let rendered = template("", &["--show-only", "templates/crds.yaml"]).await;
    let mut rendered = objects(&rendered.expect("it renders"));
    for crd in &mut rendered {
        let metadata = crd["metadata"].as_object_mut().expect("metadata");
        let annotations = metadata.remove("annotations").expect("annotations");
        assert_eq!(
            annotations,
            serde_json::json!({"helm.sh/resource-policy": "keep"})
        );
        assert!(metadata.remove("labels").is_some());
    }
    let generated = objects(&defragd::api::crds::to_yaml().expect("plain data"));
    assert_eq!(generated.len(), 3);
    assert_eq!(rendered, generated);

    let without = template("", &["--set", "crds.install=false"])
        .await
        .expect("it renders");
    assert!(of_kind(&objects(&without), "CustomResourceDefinition").is_empty());
}

#[test]
fn chart_and_program_have_one_version() {
    let chart: Value = serde_yaml::from_str(&read("charts/defragd/Chart.yaml")).expect("YAML");
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
}

/// No two objects of one kind, namespace and name; every one is in a namespace that was asked for.
#[tokio::test]
async fn objects_are_where_they_should_be() {
    for (name, namespaces) in [
        ("default", &["defragd-system"][..]),
        ("namespaced", &["defragd-system", "team-a", "team-b"]),
        ("everything", &["defragd-system", "etcd", "kube-system"]),
    ] {
        let objects = objects(&rendered(name).await);
        let mut seen = std::collections::BTreeSet::new();
        for object in &objects {
            let metadata = &object["metadata"];
            let key = format!(
                "{} {} {}",
                object["kind"], metadata["namespace"], metadata["name"]
            );
            assert!(seen.insert(key.clone()), "{name}: {key} twice");
            match metadata["namespace"].as_str() {
                Some(namespace) => assert!(namespaces.contains(&namespace), "{name}: {key}"),
                None => {
                    let kind = object["kind"].as_str().unwrap_or_default();
                    assert!(kind.starts_with("ClusterRole"), "{name}: {key}");
                    assert_ne!(name, "namespaced", "{key} is of the whole cluster");
                }
            }
        }
    }
}

/// A long release name, and one with dots, still give names that Kubernetes takes.
#[tokio::test]
async fn long_names_are_cut() {
    let long = "a.release-with-a-name-as-long-as-helm-allows-it-to-be";
    let chart = chart();
    let rendered = helm(&["template", long, &text(&chart)]).await;
    let rendered = objects(&rendered.unwrap_or_else(|words| panic!("{words}")));
    for object in rendered {
        let name = object["metadata"]["name"].as_str().expect("a name");
        assert!(name.len() <= 63 && !name.ends_with('-'), "{name}");
        let service = object["kind"] == "Service";
        assert!(
            !(service && name.contains('.')),
            "{name} is no name of a Service"
        );
    }
    let other = objects(
        &helm(&["template", "etcd", &text(&chart)])
            .await
            .expect("it renders"),
    );
    assert_eq!(
        of_kind(&other, "ServiceAccount")[0]["metadata"]["name"],
        "etcd-defragd"
    );
}
