//! The CustomResourceDefinitions, generated from the Rust types.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

use super::defrag::EtcdDefrag;
use super::policy::EtcdDefragPolicy;
use super::target::EtcdTarget;

/// The CRDs of all kinds, in the order in which a person meets them.
///
/// They differ from what the derive makes in one point: no field is nullable.
/// An empty field (`rule:` with nothing behind it) is a slip in a manifest, not
/// a way to leave the field out; both hosts refuse it.
pub fn crds() -> Vec<CustomResourceDefinition> {
    [
        EtcdTarget::crd(),
        EtcdDefragPolicy::crd(),
        EtcdDefrag::crd(),
    ]
    .into_iter()
    .map(|mut crd| {
        for version in &mut crd.spec.versions {
            if let Some(schema) = version
                .schema
                .as_mut()
                .and_then(|s| s.open_api_v3_schema.as_mut())
            {
                forbid_null(schema);
            }
        }
        crd
    })
    .collect()
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    // The value that stands for null among those of an optional enum.
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        forbid_null(property);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        forbid_null(values);
    }
    if let Some(items) = &mut schema.items {
        match items {
            JSONSchemaPropsOrArray::Schema(item) => forbid_null(item),
            JSONSchemaPropsOrArray::Schemas(items) => items.iter_mut().for_each(forbid_null),
        }
    }
}

/// All CRDs as one YAML stream, ready for `kubectl apply -f`.
///
/// # Errors
/// None that a caller could cause: the CRDs are plain data.
pub fn to_yaml() -> Result<String, serde_yaml::Error> {
    let mut text = String::new();
    for crd in crds() {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(&crd)?);
    }
    Ok(text)
}

/// Kind and schema of its `spec`, for the check of a file's fields.
pub(super) fn spec_schemas() -> &'static [(String, Value)] {
    static SCHEMAS: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
        crds()
            .into_iter()
            .map(|crd| {
                let schema = crd
                    .spec
                    .versions
                    .into_iter()
                    .next()
                    .and_then(|version| version.schema?.open_api_v3_schema)
                    .and_then(|schema| schema.properties?.remove("spec"))
                    .and_then(|spec| serde_json::to_value(spec).ok())
                    .unwrap_or_default();
                (crd.spec.names.kind, schema)
            })
            .collect()
    });
    &SCHEMAS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For people, and for the chart.
    const COPIES: [&str; 2] = ["docs/reference/crds.yaml", "charts/defragd/files/crds.yaml"];

    /// `UPDATE_CRDS=1 cargo test crds` writes the copies anew.
    #[test]
    fn the_committed_copies_are_what_the_types_say() {
        let generated = to_yaml().unwrap();
        for copy in COPIES {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(copy);
            if std::env::var_os("UPDATE_CRDS").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &generated).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                committed == generated,
                "{copy} differs from the types; run `make crds`"
            );
        }
    }

    /// Visits every schema below `schema`.
    fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{name}"), property, visit);
        }
        if schema["items"].is_object() {
            walk(&format!("{path}[]"), &schema["items"], visit);
        }
        if schema["additionalProperties"].is_object() {
            walk(&format!("{path}[]"), &schema["additionalProperties"], visit);
        }
    }

    #[test]
    fn schemas_are_structural() {
        for crd in crds() {
            let kind = crd.spec.names.kind.clone();
            let crd = serde_json::to_value(&crd).unwrap();
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            walk(&kind, schema, &mut |path, schema| {
                let open = schema["x-kubernetes-int-or-string"] == true;
                assert!(
                    open || schema["type"].is_string(),
                    "{path} has no type: {schema}"
                );
                assert!(schema.get("nullable").is_none(), "{path} is nullable");
                for banned in [
                    "anyOf",
                    "oneOf",
                    "allOf",
                    "not",
                    "$ref",
                    "x-kubernetes-preserve-unknown-fields",
                ] {
                    assert!(
                        schema.get(banned).is_none(),
                        "{path} has {banned}: {schema}"
                    );
                }
                if let Some(format) = schema["format"].as_str() {
                    assert!(
                        matches!(format, "int32" | "int64" | "date-time"),
                        "{path}: {format}"
                    );
                }
                let named = path != kind && !path.ends_with("[]") && !path.ends_with(".metadata");
                assert!(
                    !named || schema["description"].is_string(),
                    "{path} has no description"
                );
            });
        }
    }

    #[test]
    fn names_do_not_clash_and_the_status_is_a_subresource() {
        let mut names = std::collections::BTreeSet::new();
        for crd in crds() {
            let version = &crd.spec.versions[0];
            assert!(version.subresources.as_ref().unwrap().status.is_some());
            assert!(
                !version
                    .additional_printer_columns
                    .as_ref()
                    .unwrap()
                    .is_empty()
            );
            let n = &crd.spec.names;
            assert_eq!(n.categories.as_deref(), Some(&["defragd".to_owned()][..]));
            let all = n
                .short_names
                .iter()
                .flatten()
                .chain(&n.singular)
                .chain([&n.plural]);
            for name in all {
                assert!(names.insert(name.clone()), "{name} names two things");
            }
        }
    }
}
