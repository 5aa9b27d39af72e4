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
