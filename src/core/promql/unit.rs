//! Guessing a query's unit, for hints only: no decision rests on it.

use promql_parser::label::METRIC_NAME;
use promql_parser::parser::token::{
    T_ADD, T_AVG, T_BOTTOMK, T_DIV, T_LAND, T_LOR, T_LUNLESS, T_MAX, T_MIN, T_MUL, T_QUANTILE,
    T_SUB, T_SUM, T_TOPK,
};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{BinaryExpr, Expr, VectorSelector};

use super::super::signal::{Threshold, say_quantity};

/// A doubt about a signal that is valid all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitHint {
    /// A sentence that names what was seen and what may have been meant.
    pub message: String,
}

/// The unit of an expression's values, as far as names and operators tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    Bytes,
    /// About 0 to 1.
    Ratio,
    /// About 0 to 100.
    Percent,
    /// A constant.
    Number(f64),
    Unknown,
}

impl Unit {
    pub(super) fn of(expr: &Expr) -> Unit {
        match expr {
            Expr::Paren(ex) => Unit::of(&ex.expr),
            Expr::Unary(ex) => match Unit::of(&ex.expr) {
                Unit::Number(n) => Unit::Number(-n),
                other => other,
            },
            Expr::Subquery(ex) => Unit::of(&ex.expr),
            Expr::NumberLiteral(number) => Unit::Number(number.val),
            Expr::VectorSelector(selector) => Unit::of_selector(selector),
            Expr::MatrixSelector(selector) => Unit::of_selector(&selector.vs),
            Expr::Aggregate(ex) => match ex.op.id() {
                T_SUM | T_AVG | T_MIN | T_MAX | T_TOPK | T_BOTTOMK | T_QUANTILE => {
                    Unit::of(&ex.expr)
                }
                _ => Unit::Unknown,
            },
            Expr::Call(call) => Unit::of_call(call.func.name, &call.args.args),
            Expr::Binary(ex) => Unit::of_binary(ex),
            Expr::StringLiteral(_) | Expr::Extension(_) => Unit::Unknown,
        }
    }

    fn of_selector(selector: &VectorSelector) -> Unit {
        let by_matcher = selector.matchers.find_matchers(METRIC_NAME);
        let name = match &selector.name {
            Some(name) => name.as_str(),
            None => by_matcher.first().map_or("", |m| m.value.as_str()),
        };
        if name.ends_with("_bytes") {
            Unit::Bytes
        } else if name.ends_with("_ratio") {
            Unit::Ratio
        } else if name.ends_with("_percent") {
            Unit::Percent
        } else {
            Unit::Unknown
        }
    }

    fn of_call(name: &str, args: &[Box<Expr>]) -> Unit {
        let argument = match name {
            "abs" | "ceil" | "floor" | "round" | "sort" | "sort_desc" | "clamp" | "clamp_min"
            | "clamp_max" | "label_replace" | "label_join" | "scalar" | "vector"
            | "last_over_time" | "first_over_time" | "max_over_time" | "min_over_time"
            | "avg_over_time" | "predict_linear" | "delta" | "increase" => args.first(),
            "quantile_over_time" => args.get(1),
            _ => None,
        };
        argument.map_or(Unit::Unknown, |arg| Unit::of(arg))
    }

    fn of_binary(ex: &BinaryExpr) -> Unit {
        let (lhs, rhs) = (Unit::of(&ex.lhs), Unit::of(&ex.rhs));
        if ex.op.is_comparison_operator() {
            return match (ex.return_bool(), ex.lhs.value_type()) {
                (true, _) => Unit::Unknown,
                (false, ValueType::Scalar) => rhs,
                (false, _) => lhs,
            };
        }
        match (ex.op.id(), lhs, rhs) {
            (T_LAND | T_LUNLESS, lhs, _) => lhs,
            (T_ADD | T_SUB | T_LOR, lhs, rhs) if lhs == rhs => lhs,
            (T_ADD | T_SUB, Unit::Number(_), other) | (T_ADD | T_SUB, other, Unit::Number(_)) => {
                other
            }
            (T_DIV, Unit::Bytes, Unit::Bytes) => Unit::Ratio,
            // `requests / limits` of whatever unit, but not `x / 1024`.
            (T_DIV, Unit::Unknown, Unit::Unknown) => Unit::Ratio,
            (T_MUL, Unit::Ratio, Unit::Number(100.0))
            | (T_MUL, Unit::Number(100.0), Unit::Ratio) => Unit::Percent,
            (T_DIV, Unit::Percent, Unit::Number(100.0)) => Unit::Ratio,
            // Scaled by a constant: megabytes, per mille, who knows.
            _ => Unit::Unknown,
        }
    }
}

/// Where a threshold stops being a plausible ratio or percentage and starts to
/// look like bytes, and the other way round.
const SMALLEST_BYTES: f64 = 1024.0;
const LARGEST_RATIO: f64 = 10.0;
const LARGEST_PERCENT: f64 = 1000.0;

pub(super) fn hint(unit: Unit, threshold: &Threshold) -> Option<UnitHint> {
    let (word, quantity) = match threshold {
        Threshold::Above(quantity) => ("above", quantity),
        Threshold::Below(quantity) => ("below", quantity),
    };
    let size = quantity.as_f64().abs();
    let quantity = say_quantity(*quantity);
    let message = match unit {
        Unit::Ratio if size > LARGEST_RATIO => format!(
            "the query looks like a ratio, about 0 to 1, but `{word}: {quantity}` looks like {}: \
             write a fraction such as 0.5",
            if size < SMALLEST_BYTES {
                "a percentage"
            } else {
                "bytes"
            },
        ),
        Unit::Percent if size > LARGEST_PERCENT => format!(
            "the query looks like a percentage, about 0 to 100, but `{word}: {quantity}` looks \
             like bytes: write a number such as 80"
        ),
        Unit::Percent if size > 0.0 && size < 1.0 => format!(
            "the query looks like a percentage, about 0 to 100, but `{word}: {quantity}` looks \
             like a fraction: write a number such as 80"
        ),
        Unit::Bytes if size > 0.0 && size < SMALLEST_BYTES => format!(
            "the query looks like bytes, but `{word}: {quantity}` is less than 1Ki: write a size \
             such as 100Mi"
        ),
        _ => return None,
    };
    Some(UnitHint { message })
}
