//! Pieces of schema that the kinds share: integer formats that Kubernetes
//! knows, durations, and rules in CEL for what a schema cannot say.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::core::duration;

/// Longest duration text; `104w6d23h59m59s999ms` needs 20.
const MAX_DURATION_LEN: u32 = 64;

/// A count that never is negative. Kubernetes knows `int32` and `int64` only.
pub(super) fn int32(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "minimum": 0 })
}

/// Bytes, revisions and the like.
pub(super) fn int64(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0 })
}

/// A duration as Prometheus writes it.
pub(super) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": duration::PATTERN,
        "maxLength": MAX_DURATION_LEN,
    })
}

/// A point in time that a person writes; validation parses it.
pub(super) fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// The name of an object by RFC 1123, as `Check::name` reads it.
pub(super) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    })
}

/// A name by RFC 1123 without dots.
pub(super) fn label_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    })
}

/// Most labels of a selector.
pub(super) const MAX_LABELS: usize = 16;
/// Longest key of a label: a prefix of 253, a slash, a name of 63.
const MAX_LABEL_KEY: usize = 253 + 1 + 63;
/// Longest value of a label.
pub(super) const MAX_LABEL_VALUE: usize = 63;

/// Labels to select by. A schema cannot speak about keys; see [`label_keys`].
pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_LABELS,
        "additionalProperties": {
            "type": "string",
            "maxLength": MAX_LABEL_VALUE,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
    })
}

/// As [`labels`], where none is needed.
pub(super) fn optional_labels(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = labels(generator);
    schema.remove("minProperties");
    schema
}

/// What can be said in CEL about the keys of labels: to match them against a
/// pattern costs more than the API server allows, because it takes a key to be
/// of any length. Validation says the rest.
pub(super) fn label_keys() -> Rule {
    Rule::new(format!(
        "self.all(key, size(key) >= 1 && size(key) <= {MAX_LABEL_KEY})"
    ))
    .message("the key of a label has 1 to 317 characters")
}

/// Most conditions of a selector.
pub(super) const MAX_CONDITIONS: usize = 16;
/// Most values of one condition.
pub(super) const MAX_VALUES: usize = 64;
/// Longest name of a metric.
pub(super) const MAX_METRIC_NAME: usize = 253;

/// The name of a metric, which becomes part of a path.
pub(super) fn metric_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_METRIC_NAME,
        "pattern": "^[^/%\\s]+$",
    })
}

/// The version of an API, with its group where it has one.
pub(super) fn api_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 317,
        "pattern": "^([a-z0-9.-]+/)?[a-z0-9-]+$",
    })
}

/// The kind of an object.
pub(super) fn kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 63, "pattern": "^[A-Z][A-Za-z0-9]*$" })
}

/// The texts that `Percent::parse` reads.
pub(super) const PERCENT: &str = "^[1-9][0-9]?%$";

/// A whole percentage, 1 to 99.
pub(super) fn percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": PERCENT })
}

/// A duration that must not be zero: some digit of it is not.
pub(super) fn positive_duration() -> Rule {
    Rule::new("self.matches('[1-9]')").message("must be longer than zero, such as 5m")
}

/// A size that must be at least one byte.
pub(super) fn positive_size() -> Rule {
    Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))")
        .message("must be a positive size, such as 200Mi")
}

/// A number that a sample is compared with; negative ones are fine.
pub(super) fn any_quantity() -> Rule {
    Rule::new("isQuantity(string(self))")
        .message("must be a quantity, such as 100Mi, 1500m or 0.5 in quotes")
}

/// No field of `fields` may change, appear or vanish.
pub(super) fn immutable(fields: &[&str]) -> Rule {
    let unchanged: Vec<String> = fields
        .iter()
        .map(|f| {
            format!(
                "has(self.{f}) == has(oldSelf.{f}) && (!has(self.{f}) || self.{f} == oldSelf.{f})"
            )
        })
        .collect();
    Rule::new(unchanged.join(" && ")).message(
        "the spec of a run is immutable but for suspend and ttlSecondsAfterFinished; create a new EtcdDefrag",
    )
}
