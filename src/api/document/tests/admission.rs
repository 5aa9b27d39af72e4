//! The verdict of the API server, from the CRDs alone, beside that of validation.

use kube::core::cel::{CompiledSchema, Validator, compile_schema};

use super::targets::bad_targets;
use super::*;

/// The CRDs as the API server has them.
struct Admission {
    /// Kind, schema, and its rules.
    kinds: Vec<(String, Value, CompiledSchema)>,
}

impl Admission {
    fn new() -> Self {
        let kind = |crd| {
            let crd = serde_json::to_value(crd).unwrap();
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
            (kind.to_owned(), schema.clone(), compile_schema(schema))
        };
        Admission {
            kinds: crds::crds().into_iter().map(kind).collect(),
        }
    }

    /// What the API server has against the first document of a manifest: unknown fields, the
    /// schema's types and bounds, the rules in CEL.
    fn refusals(&self, text: &str) -> Vec<String> {
        let document = serde_yaml::Deserializer::from_str(text).next().unwrap();
        let mut object = serde::Deserialize::deserialize(document).unwrap();
        drop_nulls(&mut object);
        self.refusals_of(&object)
    }

    fn refusals_of(&self, object: &Value) -> Vec<String> {
        let (_, schema, compiled) = self
            .kinds
            .iter()
            .find(|(kind, ..)| object["kind"] == **kind)
            .unwrap();
        let spec = &schema["properties"]["spec"];
        let mut refusals = Vec::new();
        bounds("spec", &object["spec"], spec, &mut refusals);
        // The server evaluates rules only once the rest is right.
        if refusals.is_empty()
            && let Err(errors) = Validator::new().validate_compiled(compiled, object, None)
        {
            refusals.push(errors.to_string());
        }
        refusals
    }
}

/// A field without a value is dropped before anything is checked.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn bounds(path: &str, value: &Value, schema: &Value, refusals: &mut Vec<String>) {
    let mut refuse = |why: &str| refusals.push(format!("{path}: {why}"));
    let limit = |name: &str| schema[name].as_f64();
    let mut within = |what: &str, n: f64, min: &str, max: &str| {
        if limit(min).is_some_and(|min| n < min) || limit(max).is_some_and(|max| n > max) {
            refuse(what);
        }
    };
    let kind = if schema["x-kubernetes-int-or-string"] == true {
        match value {
            Value::String(_) => "string",
            _ => "integer",
        }
    } else {
        schema["type"].as_str().unwrap()
    };
    match (kind, value) {
        ("object", Value::Object(fields)) => {
            within(
                "size",
                fields.len() as f64,
                "minProperties",
                "maxProperties",
            );
            for name in schema["required"].as_array().into_iter().flatten() {
                if fields
                    .get(name.as_str().unwrap())
                    .is_none_or(Value::is_null)
                {
                    refusals.push(format!("{path}.{name}: required"));
                }
            }
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                let schema = match &schema["additionalProperties"] {
                    Value::Null => &schema["properties"][name],
                    values => values,
                };
                if schema.is_null() {
                    refusals.push(format!("{path}: unknown"));
                } else {
                    bounds(&path, value, schema, refusals);
                }
            }
        }
        ("array", Value::Array(items)) => {
            within("length", items.len() as f64, "minItems", "maxItems");
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            for key in keys.into_iter().flatten() {
                let values: Vec<&Value> = items
                    .iter()
                    .map(|item| &item[key.as_str().unwrap()])
                    .collect();
                if (1..values.len()).any(|i| values[..i].contains(&values[i])) {
                    refusals.push(format!("{path}: duplicate"));
                }
            }
            for (i, item) in items.iter().enumerate() {
                bounds(&format!("{path}[{i}]"), item, &schema["items"], refusals);
            }
        }
        ("string", Value::String(text)) => {
            let length = text.chars().count() as f64;
            within("length", length, "minLength", "maxLength");
            if let Some(values) = schema["enum"].as_array()
                && !values.contains(value)
            {
                refusals.push(format!("{path}: enum"));
            }
            if let Some(pattern) = schema["pattern"].as_str()
                && !matches(text, pattern)
            {
                refusals.push(format!("{path}: pattern"));
            }
            if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
                refusals.push(format!("{path}: format"));
            }
        }
        ("integer", Value::Number(number)) if is_integer(number.as_f64().unwrap()) => {
            within("range", number.as_f64().unwrap(), "minimum", "maximum");
        }
        ("boolean", Value::Bool(_)) => {}
        _ => refuse("type"),
    }
}

/// A whole number in YAML is one in JSON, also when it was written as 1e3.
fn is_integer(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() < 9_223_372_036_854_775_808.0
}

/// As the API server does, by RE2.
fn matches(text: &str, pattern: &str) -> bool {
    let mut context = ::cel::Context::default();
    context.add_variable("text", text.to_owned()).unwrap();
    context.add_variable("pattern", pattern.to_owned()).unwrap();
    let program = ::cel::Program::compile("text.matches(pattern)").unwrap();
    program.execute(&context).unwrap() == ::cel::Value::Bool(true)
}

/// A manifest that lint takes for Kubernetes, or for either host, is admitted.
#[test]
fn what_is_valid_is_admitted() {
    let admission = Admission::new();
    for text in good() {
        assert_eq!(admission.refusals(&text), Vec::<String>::new(), "{text}");
        // As defragd writes it.
        for object in parse("p.yaml", &text).objects {
            let object = match &object.value {
                Object::Target(object) => serde_json::to_value(object),
                Object::Policy(object) => serde_json::to_value(object),
                Object::Run(object) => serde_json::to_value(object),
            };
            let refusals = admission.refusals_of(&object.unwrap());
            assert_eq!(refusals, Vec::<String>::new(), "{text}");
        }
    }
}

/// What is not valid is refused at admission already. The exceptions are what needs a parser
/// (PromQL, cron, CEL, zones, URLs), names of labels, and what is compared across texts; lint says
/// them beforehand, the controller in the condition Ready.
#[test]
fn what_only_validation_refuses() {
    let admission = Admission::new();
    let mut out = String::new();
    let tables = [
        ("policy", bad_policies(), policy as fn(&str) -> String),
        ("run", bad_runs(), run),
        ("target", bad_targets(), target),
    ];
    for (kind, cases, wrap) in tables {
        for (name, changes) in cases {
            // Numbers that JSON has not do not get as far as the API server.
            let readable = !changes.contains("99999999999999999999") && !changes.contains(".nan");
            if readable && admission.refusals(&wrap(&changes)).is_empty() {
                writeln!(out, "{kind}: {name}").unwrap();
            }
        }
    }
    insta::assert_snapshot!(out);
}
