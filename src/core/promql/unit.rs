//! Guessing a query's unit, for hints only: no decision rests on it.

use promql_parser::label::METRIC_NAME;
use promql_parser::parser::token::{
    T_ADD, T_AVG, T_BOTTOMK, T_DIV, T_GTE, T_GTR, T_LAND, T_LOR, T_LUNLESS, T_MAX, T_MIN, T_MUL,
    T_QUANTILE, T_SUB, T_SUM, T_TOPK,
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

    /// By the last word that names a unit: whoever feeds a metrics API names its metrics
    /// as they like, often after a recording rule (`etcd:free_ratio:max`).
    fn of_name(name: &str) -> Unit {
        let lower = name.to_ascii_lowercase();
        let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        // A rate has another unit, and so has how many there were.
        if words
            .iter()
            .any(|word| ["per", "rate", "count"].contains(word))
        {
            return Unit::Unknown;
        }
        let units = words.iter().rev().find_map(|word| match *word {
            "byte" | "bytes" => Some(Unit::Bytes),
            "ratio" | "fraction" => Some(Unit::Ratio),
            "percent" | "percentage" => Some(Unit::Percent),
            _ => None,
        });
        units.unwrap_or(Unit::Unknown)
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

/// How a query stands to the part of a file that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct UsedPart {
    /// It is that part.
    is: bool,
    /// It asks whether that part is above something.
    above: bool,
}

impl UsedPart {
    pub(super) fn of(expr: &Expr) -> UsedPart {
        UsedPart {
            is: is_used_part(expr),
            above: asks_above(expr),
        }
    }
}

/// `in_use / total`, however it is aggregated.
fn is_used_part(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(ex) => is_used_part(&ex.expr),
        Expr::Aggregate(ex) => is_used_part(&ex.expr),
        Expr::Subquery(ex) => is_used_part(&ex.expr),
        Expr::Call(call) if call.func.name.ends_with("_over_time") => {
            call.args.args.iter().any(|arg| is_used_part(arg))
        }
        Expr::Binary(ex) => match ex.op.id() {
            T_DIV => names_in_use(&ex.lhs) == Some(true) && names_in_use(&ex.rhs) == Some(false),
            T_MUL => is_used_part(&ex.lhs) || is_used_part(&ex.rhs),
            _ if ex.op.is_comparison_operator() && !ex.return_bool() => is_used_part(&ex.lhs),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a selector of bytes in use is all that it is made of; `None` when it
/// is more than a selector, aggregated perhaps.
fn names_in_use(expr: &Expr) -> Option<bool> {
    let of_selector = |selector: &VectorSelector| {
        let name = selector.name.as_deref().unwrap_or_default();
        (!name.is_empty()).then(|| name.contains("in_use"))
    };
    match expr {
        Expr::Paren(ex) => names_in_use(&ex.expr),
        Expr::Aggregate(ex) => names_in_use(&ex.expr),
        Expr::VectorSelector(selector) => of_selector(selector),
        Expr::MatrixSelector(selector) => of_selector(&selector.vs),
        Expr::Call(call) => call.args.args.iter().find_map(|arg| names_in_use(arg)),
        _ => None,
    }
}

/// `in_use / total > 0.5`, also beside other conditions.
fn asks_above(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(ex) => asks_above(&ex.expr),
        Expr::Binary(ex) => match ex.op.id() {
            T_GTR | T_GTE => is_used_part(&ex.lhs),
            T_LAND | T_LUNLESS => asks_above(&ex.lhs) || asks_above(&ex.rhs),
            _ => false,
        },
        _ => false,
    }
}

/// A doubt when the part in use fires by being high: it is low when there is
/// much to give back.
pub(super) fn direction_hint(part: UsedPart, threshold: Option<&Threshold>) -> Option<UnitHint> {
    let above = part.above || part.is && matches!(threshold, Some(Threshold::Above(_)));
    above.then(|| UnitHint {
        message: "the query looks like the part of the file that is in use, which is low when \
                  there is much to give back, so it fires where nothing is due: compare it with \
                  `below` or `<`, or write 1 minus it"
            .to_owned(),
    })
}

/// Where a threshold stops being a plausible ratio or percentage and starts to
/// look like bytes, and the other way round.
const SMALLEST_BYTES: f64 = 1024.0;
const LARGEST_RATIO: f64 = 10.0;
const LARGEST_PERCENT: f64 = 1000.0;

pub(super) fn hint(what: &str, unit: Unit, threshold: &Threshold) -> Option<UnitHint> {
    let (word, quantity) = match threshold {
        Threshold::Above(quantity) => ("above", quantity),
        Threshold::Below(quantity) => ("below", quantity),
    };
    let size = quantity.as_f64().abs();
    let quantity = say_quantity(*quantity);
    let message = match unit {
        Unit::Ratio if size > LARGEST_RATIO => format!(
            "{what} looks like a ratio, about 0 to 1, but `{word}: {quantity}` looks like {}: \
             write a fraction such as 0.5",
            if size < SMALLEST_BYTES {
                "a percentage"
            } else {
                "bytes"
            },
        ),
        Unit::Percent if size > LARGEST_PERCENT => format!(
            "{what} looks like a percentage, about 0 to 100, but `{word}: {quantity}` looks \
             like bytes: write a number such as 80"
        ),
        Unit::Percent if size > 0.0 && size < 1.0 => format!(
            "{what} looks like a percentage, about 0 to 100, but `{word}: {quantity}` looks \
             like a fraction: write a number such as 80"
        ),
        Unit::Bytes if size > 0.0 && size < SMALLEST_BYTES => format!(
            "{what} looks like bytes, but `{word}: {quantity}` is less than 1Ki: write a size \
             such as 100Mi"
        ),
        _ => return None,
    };
    Some(UnitHint { message })
}

/// A hint when the unit that a metric's name speaks of does not go with the threshold.
pub fn name_hint(name: &str, threshold: &Threshold) -> Option<UnitHint> {
    hint("the metric", Unit::of_name(name), threshold)
}
