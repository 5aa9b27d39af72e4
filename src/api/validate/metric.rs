//! The verdict on a metric as a policy's signal.

use super::check::{Check, is_dns_name};
use super::{Place, labels, quoted};
use crate::api::policy::{
    DescribedObjectSpec, ExternalMetricSpec, MetricSelectorSpec, MetricSignalSpec, ObjectMetricSpec,
};
use crate::api::schema::MAX_METRIC_NAME;
use crate::core::signal::{DescribedObject, Metric, MetricSignal, Threshold};

const PATH: &str = "spec.signal.metric";

/// `None` when something is wrong.
pub(super) fn metric(check: &mut Check, spec: &MetricSignalSpec) -> Option<MetricSignal> {
    let MetricSignalSpec {
        external,
        object,
        above,
        below,
        reduce,
    } = spec;
    check.only(
        Place::Kubernetes,
        PATH,
        "a metric",
        "use prometheus or probe, or run defragd controller in Kubernetes",
    );
    let metric = match (external, object) {
        (Some(external), None) => external_of(check, external),
        (None, Some(object)) => object_of(check, object),
        (Some(_), Some(_)) => {
            let problem = "external and object exclude one another";
            check.fail(PATH, "", problem, "give only one of them");
            None
        }
        (None, None) => {
            check.fail(PATH, "", "the metric is missing", "give external or object");
            None
        }
    };
    let upper = check.quantity(&format!("{PATH}.above"), above.as_ref());
    let lower = check.quantity(&format!("{PATH}.below"), below.as_ref());
    match (above, below) {
        (Some(_), Some(_)) => {
            let problem = "above and below exclude one another";
            check.fail(PATH, "", problem, "give only one of them");
        }
        (None, None) => check.fail(
            PATH,
            "",
            "there is nothing to compare the metric with",
            "add above or below, such as above: 100Mi",
        ),
        _ => {}
    }
    Some(MetricSignal {
        metric: metric?,
        threshold: upper
            .map(Threshold::Above)
            .or(lower.map(Threshold::Below))?,
        reduce: reduce.map(Into::into),
    })
}

fn external_of(check: &mut Check, spec: &ExternalMetricSpec) -> Option<Metric> {
    let ExternalMetricSpec { name, selector } = spec;
    let path = format!("{PATH}.external");
    let named = metric_name(check, &path, name);
    let selector = selector_of(check, &path, selector.as_ref());
    named.then(|| Metric::External {
        name: name.clone(),
        selector,
    })
}

fn object_of(check: &mut Check, spec: &ObjectMetricSpec) -> Option<Metric> {
    let ObjectMetricSpec {
        described_object,
        name,
        selector,
    } = spec;
    let path = format!("{PATH}.object");
    let described = described(check, &path, described_object);
    let named = metric_name(check, &path, name);
    let selector = selector_of(check, &path, selector.as_ref());
    named.then(|| Metric::Object {
        described,
        name: name.clone(),
        selector,
    })
}

/// What can stand in a path, by Kubernetes' rules.
fn metric_name(check: &mut Check, path: &str, name: &str) -> bool {
    let fits = !matches!(name, "" | "." | "..")
        && name.chars().count() <= MAX_METRIC_NAME
        && !name
            .chars()
            .any(|c| matches!(c, '/' | '%') || c.is_control() || c.is_whitespace());
    if !fits {
        let problem = format!("is no name of a metric of 1 to {MAX_METRIC_NAME} characters");
        let remedy = "write it without blanks, '/' and '%', as the adapter names it";
        check.fail(format!("{path}.name"), quoted(name), problem, remedy);
    }
    fits
}

fn described(check: &mut Check, path: &str, spec: &DescribedObjectSpec) -> DescribedObject {
    let DescribedObjectSpec {
        api_version,
        kind,
        name,
    } = spec;
    let path = format!("{path}.describedObject");
    let api_version = api_version.clone().unwrap_or_else(|| "v1".to_owned());
    if !is_api_version(&api_version) {
        check.fail(
            format!("{path}.apiVersion"),
            quoted(&api_version),
            "is no version of an API",
            "write one such as \"v1\" or \"apps/v1\"",
        );
    }
    let letters = kind.bytes().all(|b| b.is_ascii_alphanumeric());
    if !letters || !kind.starts_with(|c: char| c.is_ascii_uppercase()) || kind.len() > 63 {
        check.fail(
            format!("{path}.kind"),
            quoted(kind),
            "is no kind of an object",
            "write one such as \"Pod\"",
        );
    }
    check.name(&format!("{path}.name"), Some(name));
    DescribedObject {
        api_version,
        kind: kind.clone(),
        name: name.clone(),
    }
}

fn is_api_version(text: &str) -> bool {
    let version = |text: &str| is_dns_name(text) && !text.contains('.') && text.len() <= 63;
    match text.split_once('/') {
        None => version(text),
        Some((group, rest)) => is_dns_name(group) && group.len() <= 253 && version(rest),
    }
}

/// In Kubernetes' text form; empty when there is none.
fn selector_of(check: &mut Check, path: &str, spec: Option<&MetricSelectorSpec>) -> String {
    let Some(MetricSelectorSpec {
        match_labels,
        match_expressions,
    }) = spec
    else {
        return String::new();
    };
    let path = format!("{path}.selector");
    if match_labels.is_empty() && match_expressions.is_empty() {
        let remedy = "give matchLabels or matchExpressions, or remove the selector";
        check.fail(&path, "", "the selector is empty", remedy);
    }
    labels::selector(check, &path, match_labels, match_expressions).to_string()
}

#[cfg(test)]
mod tests;
