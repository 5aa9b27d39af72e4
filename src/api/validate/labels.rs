//! The verdict on labels, and on what is asked of them.

use std::collections::BTreeMap;

use super::check::{Check, MAX_NAME, is_dns_name};
use super::quoted;
use crate::api::policy::{LabelConditionSpec, LabelOperatorSpec};
use crate::api::schema::{MAX_CONDITIONS, MAX_LABEL_VALUE, MAX_LABELS, MAX_VALUES};
use crate::core::labels::{LabelSelector, Operator, Requirement};

/// `path` is that of the selector.
pub(super) fn selector(
    check: &mut Check,
    path: &str,
    match_labels: &BTreeMap<String, String>,
    match_expressions: &[LabelConditionSpec],
) -> LabelSelector {
    equal(check, &format!("{path}.matchLabels"), match_labels);
    let path = format!("{path}.matchExpressions");
    at_most(check, &path, match_expressions.len(), MAX_CONDITIONS);
    let expressions = match_expressions.iter().take(MAX_CONDITIONS).enumerate();
    LabelSelector {
        match_labels: match_labels.clone(),
        match_expressions: expressions
            .map(|(place, spec)| requirement(check, &format!("{path}[{place}]"), spec))
            .collect(),
    }
}

/// Labels as Kubernetes takes them; anything else matches nothing.
pub(super) fn equal(check: &mut Check, path: &str, labels: &BTreeMap<String, String>) {
    at_most(check, path, labels.len(), MAX_LABELS);
    for (key, value) in labels.iter().take(MAX_LABELS) {
        if label_key(check, path, key) {
            label_value(check, &format!("{path}.{key}"), value);
        }
    }
}

fn requirement(check: &mut Check, path: &str, spec: &LabelConditionSpec) -> Requirement {
    let LabelConditionSpec {
        key,
        operator,
        values,
    } = spec;
    label_key(check, &format!("{path}.key"), key);
    let path = format!("{path}.values");
    at_most(check, &path, values.len(), MAX_VALUES);
    for (place, value) in values.iter().take(MAX_VALUES).enumerate() {
        label_value(check, &format!("{path}[{place}]"), value);
    }
    let asks = matches!(operator, LabelOperatorSpec::In | LabelOperatorSpec::NotIn);
    if asks && values.is_empty() {
        let problem = "In and NotIn compare with values, and none is given";
        let remedy = "give at least one, or write Exists or DoesNotExist";
        check.fail(path, "", problem, remedy);
    } else if !asks && !values.is_empty() {
        let problem = "has no meaning with Exists and DoesNotExist";
        check.fail(
            path,
            quoted(&values.join(",")),
            problem,
            "remove the values",
        );
    }
    let values = || values.iter().cloned().collect();
    Requirement {
        key: key.clone(),
        operator: match operator {
            LabelOperatorSpec::In => Operator::In(values()),
            LabelOperatorSpec::NotIn => Operator::NotIn(values()),
            LabelOperatorSpec::Exists => Operator::Exists,
            LabelOperatorSpec::DoesNotExist => Operator::DoesNotExist,
        },
    }
}

fn at_most(check: &mut Check, path: &str, count: usize, most: usize) {
    if count > most {
        let remedy = format!("give at most {most}");
        check.fail(path, count.to_string(), "are too many", remedy);
    }
}

/// True when it is one.
pub(super) fn label_key(check: &mut Check, path: &str, key: &str) -> bool {
    let fits = is_key(key);
    if !fits {
        check.fail(
            path,
            quoted(key),
            "is not the key of a label",
            "write one such as \"component\" or \"app.kubernetes.io/name\"",
        );
    }
    fits
}

fn label_value(check: &mut Check, path: &str, value: &str) {
    if !(value.is_empty() || is_name(value)) {
        check.fail(
            path,
            quoted(value),
            "is not the value of a label",
            format!(
                "write at most {MAX_LABEL_VALUE} letters, digits, '-', '_' and '.', \
                 with a letter or a digit at both ends"
            ),
        );
    }
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(|prefix| prefix.len() <= MAX_NAME && is_dns_name(prefix)) && is_name(name)
}

/// The name of a label, and a value that is not empty.
fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL_VALUE
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}
