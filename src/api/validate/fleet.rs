//! The verdict on the clusters of a policy.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::check::Check;
use super::{Place, labels, quoted};
use crate::api::defrag::ClusterRef;
use crate::api::policy::{ClusterSelectorSpec, MetricSignalSpec, PrometheusSignalSpec, SignalSpec};
use crate::core::fleet::{Fleet, Selector, SeriesMatch};
use crate::core::key::ClusterKind;

/// Most runs of one policy at once.
const MAX_RUNS: i64 = 100;

/// The clusters that a policy selects; `None` when it names one.
pub(super) fn fleet(
    check: &mut Check,
    reference: Option<&ClusterRef>,
    selector: Option<&ClusterSelectorSpec>,
    max_concurrent_runs: Option<i64>,
) -> Option<Fleet> {
    match (reference, selector) {
        (Some(_), Some(_)) => check.fail(
            "spec.clusterSelector",
            "",
            "clusterRef and clusterSelector exclude one another",
            "give only one of them",
        ),
        (None, None) => check.fail(
            "spec.clusterRef",
            "",
            "no cluster is given",
            "give clusterRef with the name of a cluster, or clusterSelector with labels of many",
        ),
        _ => {}
    }
    if let Some(reference) = reference {
        check.cluster_ref("spec.clusterRef", reference);
    }
    let runs = check.count("spec.maxConcurrentRuns", max_concurrent_runs, 1..=MAX_RUNS);
    let Some(selector) = selector else {
        if let Some(runs) = max_concurrent_runs {
            check.fail(
                "spec.maxConcurrentRuns",
                runs.to_string(),
                "needs clusterSelector: one cluster has one run at a time",
                "remove it",
            );
        }
        return None;
    };
    Some(Fleet {
        selector: selector_of(check, selector),
        max_concurrent_runs: runs.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN),
    })
}

fn selector_of(check: &mut Check, spec: &ClusterSelectorSpec) -> Selector {
    const PATH: &str = "spec.clusterSelector";
    let ClusterSelectorSpec {
        match_labels,
        match_expressions,
        kinds,
    } = spec;
    let labels = labels::selector(check, PATH, match_labels, match_expressions);
    let mut wanted: BTreeSet<ClusterKind> = BTreeSet::new();
    for (place, kind) in kinds.iter().enumerate() {
        let kind = ClusterKind::from(*kind);
        if kind != ClusterKind::EtcdTarget {
            check.only(
                Place::Kubernetes,
                format!("{PATH}.kinds[{place}]"),
                quoted(&format!("{}.{}", kind.kind(), kind.group())),
                "describe these clusters by EtcdTargets with endpoints",
            );
        }
        if !wanted.insert(kind) {
            check.fail(
                format!("{PATH}.kinds[{place}]"),
                quoted(kind.kind()),
                "is given twice",
                "remove it",
            );
        }
    }
    if wanted.is_empty() {
        wanted.insert(ClusterKind::EtcdTarget);
    }
    Selector {
        kinds: wanted,
        labels,
    }
}

/// How a series tells which cluster it is about; `None`: each is about all.
pub(super) fn series(check: &mut Check, signal: &SignalSpec, selects: bool) -> Option<SeriesMatch> {
    const PATH: &str = "spec.signal.prometheus";
    let alert = signal.alert.as_ref();
    for (kind, value) in [
        ("alert", alert.map(|alert| alert.matchers.join(", "))),
        ("metric", signal.metric.as_ref().map(metric_name)),
    ] {
        if let Some(value) = value.filter(|_| selects) {
            check.fail(
                format!("spec.signal.{kind}"),
                quoted(&value),
                "does not say which cluster it is about, so it would fire for every cluster that is selected",
                "give a policy with clusterRef for each cluster, or ask Prometheus with clusterLabel",
            );
        }
    }
    let PrometheusSignalSpec {
        cluster_label,
        cluster_label_from,
        same_for_all,
        ..
    } = signal.prometheus.as_ref()?;
    let same = same_for_all.unwrap_or_default();
    if let Some(label) = cluster_label.as_deref() {
        // Prometheus 3 takes any text.
        if label.trim().is_empty() || label.len() > 128 || label.chars().any(char::is_control) {
            check.fail(
                format!("{PATH}.clusterLabel"),
                quoted(label),
                "is not the name of a label",
                "write the label of the series that names its cluster, such as \"cluster\"",
            );
        }
        if same {
            check.fail(
                format!("{PATH}.sameForAll"),
                "",
                "clusterLabel and sameForAll exclude one another",
                "give only one of them",
            );
        }
    } else if selects && !same {
        check.fail(
            format!("{PATH}.clusterLabel"),
            "",
            "it is missing, so one series would fire for every cluster that is selected",
            "name the label of the series that says which cluster it is about, \
             or say sameForAll: true when that is meant",
        );
    }
    if let Some(from) = cluster_label_from.as_deref() {
        labels::label_key(check, &format!("{PATH}.clusterLabelFrom"), from);
        if cluster_label.is_none() {
            check.fail(
                format!("{PATH}.clusterLabelFrom"),
                quoted(from),
                "without clusterLabel nothing is compared with it",
                "add clusterLabel, or remove it",
            );
        }
    }
    if !selects {
        for (name, given) in [
            ("clusterLabelFrom", cluster_label_from.is_some()),
            ("sameForAll", same_for_all.is_some()),
        ] {
            if given {
                check.fail(
                    format!("{PATH}.{name}"),
                    "",
                    "needs clusterSelector: with clusterRef the cluster's name is meant",
                    "remove it",
                );
            }
        }
    }
    Some(SeriesMatch {
        label: cluster_label.clone()?,
        from: cluster_label_from.clone(),
    })
}

/// What the metric is called, as far as that is given.
fn metric_name(metric: &MetricSignalSpec) -> String {
    let external = metric.external.as_ref().map(|external| &external.name);
    let object = metric.object.as_ref().map(|object| &object.name);
    external.or(object).cloned().unwrap_or_default()
}
