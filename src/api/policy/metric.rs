//! A metric of Kubernetes' metrics APIs as a policy's signal.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::ReduceSpec;
use crate::api::scalar::IntOrString;
use crate::api::schema;

/// A metric of the policy's own namespace, as a HorizontalPodAutoscaler reads it;
/// in Kubernetes only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.external) != has(self.object)")
    .message("exactly one of external and object is needed"))]
#[x_kube(validation = Rule::new("has(self.above) != has(self.below)")
    .message("exactly one of above and below is needed"))]
pub struct MetricSignalSpec {
    /// Of external.metrics.k8s.io: about nothing in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalMetricSpec>,
    /// Of custom.metrics.k8s.io: about one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectMetricSpec>,
    /// Fires when the value is larger than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::any_quantity())]
    pub above: Option<IntOrString>,
    /// Fires when the value is smaller than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = schema::any_quantity())]
    pub below: Option<IntOrString>,
    /// How several values become one verdict. Absent: there must be only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce: Option<ReduceSpec>,
}

/// A metric about nothing in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetricSpec {
    /// Of the metric.
    #[schemars(schema_with = "schema::metric_name")]
    pub name: String,
    /// Which of the metric's values count. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<MetricSelectorSpec>,
}

/// A metric about one object in the policy's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMetricSpec {
    /// The object.
    pub described_object: DescribedObjectSpec,
    /// Of the metric.
    #[schemars(schema_with = "schema::metric_name")]
    pub name: String,
    /// Which of the metric's series count, by their own labels. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<MetricSelectorSpec>,
}

/// An object in the policy's namespace, or that namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DescribedObjectSpec {
    /// Such as apps/v1. Absent: v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::api_version")]
    pub api_version: Option<String>,
    /// Such as Pod.
    #[schemars(schema_with = "schema::kind")]
    pub kind: String,
    /// Of the object.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// A selector of labels; all of it must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.matchLabels) || has(self.matchExpressions)")
    .message("a selector needs matchLabels or matchExpressions"))]
pub struct MetricSelectorSpec {
    /// Labels with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    #[x_kube(validation = schema::label_keys())]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    pub match_expressions: Vec<LabelConditionSpec>,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.values) == (self.operator in ['In', 'NotIn'])")
    .message("In and NotIn need values, Exists and DoesNotExist take none"))]
pub struct LabelConditionSpec {
    /// Of the label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How the label's value stands to the values.
    pub operator: LabelOperatorSpec,
    /// With In and NotIn only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// As Kubernetes names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
pub enum LabelOperatorSpec {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}
