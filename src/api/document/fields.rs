//! Fields against the schema: unknown ones, missing ones, wrong types.
//!
//! The API server checks the same from the same schema. Here it is done before
//! the text becomes a Rust value, because then every error can be told at once,
//! by its path, and with a guess at what was meant.

use serde_json::{Map, Number, Value};

use super::lines::join;
use crate::api::scalar::IntOrString;
use crate::api::schema::PERCENT;
use crate::api::validate::{FieldError, quoted};
use crate::core::duration;

/// Fields of `metadata` that a person may write or that an export carries.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Nested deeper than any field of ours.
const MAX_DEPTH: usize = 32;

/// How alike two names must be for one to be a slip of the other: about one
/// wrong, missing or swapped letter in three.
const ALIKE: f64 = 0.65;

/// YAML has values that JSON, and so the API, has not.
pub(super) fn to_json(
    value: &serde_yaml::Value,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Value {
    convert(value, path, 0, errors)
}

fn convert(
    value: &serde_yaml::Value,
    path: &str,
    depth: usize,
    errors: &mut Vec<FieldError>,
) -> Value {
    use serde_yaml::Value as Yaml;
    let mut refuse = |problem: String, remedy: &str| {
        errors.push(FieldError::new(path, "", problem, remedy));
        Value::Null
    };
    if depth > MAX_DEPTH {
        return refuse(
            "it is nested too deep".to_owned(),
            "no object of defragd is",
        );
    }
    match value {
        Yaml::Null => Value::Null,
        Yaml::Bool(value) => Value::Bool(*value),
        Yaml::String(text) => Value::String(text.clone()),
        Yaml::Number(number) => {
            let json = number
                .as_i64()
                .map(Number::from)
                .or_else(|| number.as_u64().map(Number::from))
                .or_else(|| number.as_f64().and_then(Number::from_f64));
            json.map_or_else(
                || {
                    refuse(
                        format!("{number} is not a number that can be compared"),
                        "write a finite number",
                    )
                },
                Value::Number,
            )
        }
        Yaml::Sequence(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(i, item)| convert(item, &format!("{path}[{i}]"), depth + 1, errors))
                .collect(),
        ),
        Yaml::Mapping(entries) => {
            let mut object = Map::new();
            for (key, value) in entries {
                match key.as_str() {
                    Some(key) => {
                        let value = convert(value, &join(path, key), depth + 1, errors);
                        object.insert(key.to_owned(), value);
                    }
                    None => errors.push(FieldError::new(
                        path,
                        "",
                        "a field's name is not a text",
                        "put it in quotes if it is meant as one",
                    )),
                }
            }
            Value::Object(object)
        }
        Yaml::Tagged(tagged) => refuse(
            format!("the tag {} has no meaning here", tagged.tag),
            "remove it",
        ),
    }
}

/// What an unknown field is said to be.
const UNKNOWN: &str = "the field is unknown";

/// True when the only fault is fields that nobody reads. The others can still
/// be judged.
pub(super) fn only_unknown(errors: &[FieldError]) -> bool {
    errors.iter().all(|error| error.problem == UNKNOWN)
}

/// Checks a whole object against the schema of its spec. The status is left
/// alone: it is not read from files.
pub(super) fn check(object: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    known("", object, &TOP, errors);
    match object.get("metadata") {
        Some(metadata @ Value::Object(_)) => {
            known("metadata", metadata, &METADATA, errors);
            for name in ["name", "namespace"] {
                match metadata.get(name) {
                    Some(Value::String(text)) if !text.is_empty() => {}
                    Some(Value::String(_)) => errors.push(FieldError::new(
                        join("metadata", name),
                        "",
                        "it is empty",
                        "write a name",
                    )),
                    None if name == "namespace" => {}
                    None => errors.push(missing("metadata.name")),
                    Some(other) => errors.push(wrong_type(
                        &join("metadata", name),
                        other,
                        "a text",
                        "write a name",
                    )),
                }
            }
        }
        Some(other) => {
            errors.push(wrong_type(
                "metadata",
                other,
                "an object",
                "write metadata: {name: …}",
            ));
        }
        None => errors.push(missing("metadata.name")),
    }
    match object.get("spec") {
        Some(value) => walk("spec", value, spec, errors),
        None => errors.push(missing("spec")),
    }
}

fn missing(path: &str) -> FieldError {
    FieldError::new(path, "", "it is missing", "add it")
}

fn wrong_type(path: &str, value: &Value, wanted: &str, remedy: &str) -> FieldError {
    if value.is_null() {
        return FieldError::new(
            path,
            "",
            "it is empty",
            "give it a value, or remove the field",
        );
    }
    let shown = match value {
        Value::String(text) => quoted(text),
        Value::Array(_) | Value::Object(_) => "it".to_owned(),
        scalar => scalar.to_string(),
    };
    FieldError::new(
        path,
        shown,
        format!("is {}, not {wanted}", kind_of(value)),
        remedy,
    )
}

/// What a value is, in words.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a decimal point",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn walk(path: &str, value: &Value, schema: &Value, errors: &mut Vec<FieldError>) {
    if schema["x-kubernetes-int-or-string"] == true {
        match value {
            Value::String(_) => {}
            Value::Number(number) if !number.is_f64() => {}
            Value::Number(number) => {
                if let Some(Err(problem)) = number.as_f64().map(IntOrString::from_float) {
                    let (problem, remedy) = problem
                        .split_once("; ")
                        .unwrap_or((&problem, "put it in quotes"));
                    errors.push(FieldError::new(path, "", problem, remedy));
                }
            }
            other => errors.push(wrong_type(
                path,
                other,
                "a quantity",
                "write one such as \"200Mi\"",
            )),
        }
        return;
    }
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("object", Value::Object(fields)) if schema["additionalProperties"].is_object() => {
            for (name, value) in fields {
                let values = &schema["additionalProperties"];
                walk(&join(path, name), value, values, errors);
            }
        }
        ("object", Value::Object(fields)) => {
            let properties = schema["properties"].as_object();
            let names: Vec<&str> = properties
                .into_iter()
                .flat_map(|p| p.keys())
                .map(String::as_str)
                .collect();
            known(path, value, &names, errors);
            for name in schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                if !fields.contains_key(name) {
                    errors.push(missing(&join(path, name)));
                }
            }
            for (name, value) in fields {
                if let Some(schema) = properties.and_then(|p| p.get(name)) {
                    walk(&join(path, name), value, schema, errors);
                }
            }
        }
        ("array", Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                walk(&format!("{path}[{i}]"), item, &schema["items"], errors);
            }
        }
        ("boolean", Value::Bool(_)) => {}
        ("string", Value::String(text)) => {
            let allowed: Vec<&str> = schema["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            if !allowed.is_empty() && !allowed.contains(&text.as_str()) {
                let remedy = meant(text, &allowed).map_or_else(
                    || format!("write {}", allowed.join(" or ")),
                    |m| format!("did you mean {m}?"),
                );
                errors.push(FieldError::new(
                    path,
                    quoted(text),
                    "is not a value that this field takes",
                    remedy,
                ));
            }
        }
        ("integer", Value::Number(number)) if number.is_i64() => {}
        ("integer", Value::Number(number)) if number.is_u64() => {
            errors.push(FieldError::new(
                path,
                number.to_string(),
                "is too large",
                in_range(schema),
            ));
        }
        ("integer", Value::String(text)) if beyond_integers(text) => {
            let problem = if text.starts_with('-') {
                "is too small"
            } else {
                "is too large"
            };
            errors.push(FieldError::new(
                path,
                text.as_str(),
                problem,
                in_range(schema),
            ));
        }
        ("string", Value::Number(number)) => {
            let remedy = match schema["pattern"].as_str() {
                Some(duration::PATTERN) => format!("add a unit, such as \"{number}s\""),
                Some(PERCENT) => {
                    // 0.8 is meant as 80%. Percentages are whole, from 1 to 99.
                    let part = number.as_f64().filter(|x| *x > 0.0 && *x < 1.0);
                    let meant = part.map_or_else(
                        || number.to_string(),
                        |part| (part * 100.0).round().clamp(1.0, 99.0).to_string(),
                    );
                    format!("write it with a percent sign, such as \"{meant}%\"")
                }
                _ => format!("put it in quotes: \"{number}\""),
            };
            errors.push(wrong_type(path, value, "a text", &remedy));
        }
        ("string", other) => errors.push(wrong_type(path, other, "a text", "put a text in quotes")),
        ("integer", other) => errors.push(wrong_type(
            path,
            other,
            "a whole number",
            "write one without quotes",
        )),
        ("boolean", other) => {
            errors.push(wrong_type(path, other, "a boolean", "write true or false"));
        }
        ("array", other) => errors.push(wrong_type(
            path,
            other,
            "a list",
            "write one as [a, b] or with dashes",
        )),
        (_, other) => errors.push(wrong_type(
            path,
            other,
            "an object",
            "write fields below it",
        )),
    }
}

/// What to write instead of a number that is too large or too small.
fn in_range(schema: &Value) -> String {
    // Schemas hold their bounds as floating-point numbers.
    let bound = |name: &str| match IntOrString::from_float(schema[name].as_f64()?) {
        Ok(IntOrString::Int(bound)) => Some(bound),
        Ok(IntOrString::String(_)) | Err(_) => None,
    };
    let most = bound("maximum").unwrap_or(i64::MAX);
    match bound("minimum") {
        Some(least) => format!("write a number from {least} to {most}"),
        None => format!("write a number of at most {most}"),
    }
}

/// A whole number that fits none of the integers that objects are made of.
pub(super) fn beyond_integers(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    // A leading zero makes it a text.
    !digits.starts_with('0')
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && text.parse::<i64>().is_err()
        && text.parse::<u64>().is_err()
}

/// Refuses the fields that are not among `names`.
fn known(path: &str, object: &Value, names: &[&str], errors: &mut Vec<FieldError>) {
    for field in object.as_object().into_iter().flat_map(Map::keys) {
        if names.contains(&field.as_str()) {
            continue;
        }
        let remedy = meant(field, names).map_or_else(
            || format!("remove it, or write one of {}", names.join(", ")),
            |name| format!("did you mean {name:?}?"),
        );
        errors.push(FieldError::new(join(path, field), "", UNKNOWN, remedy));
    }
}

/// The name that a slip stands for.
pub(super) fn meant<'a>(slip: &str, names: &[&'a str]) -> Option<&'a str> {
    let slip = slip.to_lowercase();
    names
        .iter()
        .map(|name| {
            (
                strsim::normalized_damerau_levenshtein(&slip, &name.to_lowercase()),
                *name,
            )
        })
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
