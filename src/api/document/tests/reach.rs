//! What an object cannot reach: no field of any kind leads to a URL, a header, a tenant, a Secret, a
//! file or a namespace that is not its author's, but for those of a target that are listed here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::api::crds::crds;

/// Fields that would lead elsewhere, as other programs have them.
const ELSEWHERE: [&str; 38] = [
    "url",
    "urls",
    "endpoint",
    "endpoints",
    "host",
    "address",
    "headers",
    "headerFiles",
    "tenant",
    "token",
    "bearerToken",
    "bearerTokenFile",
    "basicAuth",
    "oauth2",
    "username",
    "password",
    "usernameFile",
    "passwordFile",
    "auth",
    "tls",
    "caFile",
    "certFile",
    "keyFile",
    "insecureSkipVerify",
    "proxy",
    "proxyURL",
    "proxyFromEnvironment",
    "params",
    "secretRef",
    "secretName",
    "configMapRef",
    "valueFrom",
    "file",
    "path",
    "namespace",
    "namespaces",
    "namespaceSelector",
    "kubeconfig",
];

/// Parts of names that such a field would have.
const WORDS: [&str; 14] = [
    "url",
    "endpoint",
    "host",
    "address",
    "header",
    "tenant",
    "token",
    "password",
    "username",
    "secret",
    "file",
    "path",
    "namespace",
    "proxy",
];

/// The only fields that lead somewhere. `secretRef` has a name and nothing else.
const KNOWN: [&str; 11] = [
    "EtcdTarget spec.auth",
    "EtcdTarget spec.auth.passwordFile",
    "EtcdTarget spec.auth.secretRef",
    "EtcdTarget spec.auth.usernameFile",
    "EtcdTarget spec.endpoints",
    "EtcdTarget spec.metricsURLs",
    "EtcdTarget spec.tls",
    "EtcdTarget spec.tls.caFile",
    "EtcdTarget spec.tls.certFile",
    "EtcdTarget spec.tls.keyFile",
    "EtcdTarget spec.tls.secretRef",
];

/// A step from an object to one in it.
#[derive(Clone)]
enum Step {
    Field(String),
    Element,
}

fn path(steps: &[Step]) -> String {
    steps
        .iter()
        .fold("spec".to_owned(), |path, step| match step {
            Step::Field(name) => format!("{path}.{name}"),
            Step::Element => format!("{path}[0]"),
        })
}

/// An object that has only this at the end of the steps.
fn nested(steps: &[Step], inner: Value) -> Value {
    steps.iter().rev().fold(inner, |inner, step| match step {
        Step::Field(name) => json!({ name.as_str(): inner }),
        Step::Element => json!([inner]),
    })
}

/// Every object that a spec may hold, by the schema that the API server has.
fn objects(schema: &Value, steps: &[Step], found: &mut Vec<(Vec<Step>, BTreeSet<String>)>) {
    if schema["type"] == "array" {
        return objects(&schema["items"], &[steps, &[Step::Element]].concat(), found);
    }
    let Some(fields) = schema["properties"].as_object() else {
        return;
    };
    found.push((steps.to_vec(), fields.keys().cloned().collect()));
    for (name, field) in fields {
        objects(
            field,
            &[steps, &[Step::Field(name.clone())]].concat(),
            found,
        );
    }
}

#[test]
fn s32_no_field_leads_elsewhere() {
    let mut leading = BTreeSet::new();
    let mut tried = 0;
    for crd in crds() {
        let kind = crd.spec.names.kind.clone();
        let crd = serde_json::to_value(&crd).unwrap();
        let spec = crd
            .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
            .unwrap();
        let mut found = Vec::new();
        objects(spec, &[], &mut found);
        for (steps, fields) in found {
            let at = path(&steps);
            let suspicious = fields.iter().filter(|field| {
                let field = field.to_lowercase();
                WORDS.iter().any(|word| field.contains(word)) || ELSEWHERE.contains(&field.as_str())
            });
            leading.extend(suspicious.map(|field| format!("{kind} {at}.{field}")));
            for field in ELSEWHERE.iter().filter(|field| !fields.contains(**field)) {
                let text = json!({
                    "apiVersion": API_VERSION,
                    "kind": kind,
                    "metadata": { "name": "a" },
                    "spec": nested(&steps, json!({ *field: "http://evil.example/" })),
                });
                let said = verdict(&text.to_string());
                let wanted = format!(" {at}.{field}: the field is unknown");
                assert!(said.contains(&wanted), "{kind}: {wanted} is not in\n{said}");
                tried += 1;
            }
        }
    }
    assert_eq!(leading, KNOWN.map(str::to_owned).into());
    assert!(tried > 1000, "{tried} is too few to be all");
}

/// A name leads to nothing but an object of that name beside its author's.
#[test]
fn s32_no_name_leads_elsewhere() {
    type Wrap = fn(&str) -> String;
    let names: [(&str, Wrap); 8] = [
        ("clusterRef", |name| {
            policy(&format!("clusterRef: {{name: {name}}}"))
        }),
        ("clusterRef", |name| {
            run("").replace("{name: demo}", &format!("{{name: {name}}}"))
        }),
        ("tls.secretRef", |name| {
            target(&format!(
                "endpoints: [\"https://h:2379\"]\ntls: {{secretRef: {{name: {name}}}}}"
            ))
        }),
        ("auth.secretRef", |name| {
            target(&format!(
                "endpoints: [\"http://h:2379\"]\nauth: {{secretRef: {{name: {name}}}}}"
            ))
        }),
        ("describedObject", |name| {
            policy(&format!(
                "signal: {{metric: {{object: {{describedObject: {{kind: Pod, name: {name}}}, name: m}}, above: 1}}}}"
            ))
        }),
        ("kind", |name| {
            policy(&format!(
                "signal: {{metric: {{object: {{describedObject: {{kind: {name}, name: a}}, name: m}}, above: 1}}}}"
            ))
        }),
        ("object.name", |name| {
            policy(&format!(
                "signal: {{metric: {{object: {{describedObject: {{kind: Pod, name: a}}, name: {name}}}, above: 1}}}}"
            ))
        }),
        ("external.name", |name| {
            policy(&format!(
                "signal: {{metric: {{external: {{name: {name}}}, above: 1}}}}"
            ))
        }),
    ];
    for (field, wrap) in names {
        for elsewhere in [
            "other/one",
            "../other",
            "..",
            "a/../../b",
            "a%2Fb",
            "\"a\\nb\"",
            "\"http://evil.example/\"",
        ] {
            let said = verdict(&wrap(elsewhere));
            assert!(
                said.contains(field),
                "{field}: {elsewhere} is taken\n{said}"
            );
        }
    }
}
