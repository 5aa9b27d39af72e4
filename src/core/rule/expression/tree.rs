//! The typed form of an expression: built once from CEL's syntax tree, total
//! when evaluated.
//!
//! CEL's own evaluator is not used because it needs tens of KiB of stack a
//! level in debug builds and gives its types only at run time. A differential
//! test holds this one to it.

use std::fmt;
use std::ops::Not;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

use super::{ExpressionError, Kind, VARIABLES, Values};

/// The largest whole number below which a double holds every one (2^53).
const MAX_WHOLE: u64 = 1 << 53;

/// Why a part has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::core::rule) enum Stop {
    /// It hangs on this variable, which is unknown.
    Missing(&'static str),
    /// It compares or truncates something that is no finite number.
    NoValue(String),
}

/// What can be computed.
#[derive(Debug)]
pub(super) enum Number {
    Literal(f64),
    /// An index into [`VARIABLES`].
    Variable(usize),
    Negate(Box<Number>),
    Truncate(Box<Number>),
    Binary(Box<Number>, Arithmetic, Box<Number>),
    If(Box<Condition>, Box<Number>, Box<Number>),
}

/// What can be decided: the root of every expression is one.
#[derive(Debug)]
pub(super) enum Condition {
    Literal(bool),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    /// Both alike, or (negated) not.
    Same(Box<Condition>, Box<Condition>),
    If(Box<Condition>, Box<Condition>, Box<Condition>),
    Compare(Number, Comparison, Number),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// A part whose kind is not yet asked for.
enum Part {
    Number(Number),
    Condition(Condition),
}

impl Part {
    fn kind(&self) -> Kind {
        match self {
            Self::Number(_) => Kind::Number,
            Self::Condition(_) => Kind::Condition,
        }
    }

    fn number(self, operator: &'static str) -> Result<Number, ExpressionError> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Condition(_) => Err(ExpressionError::Type {
                operator,
                found: Kind::Condition,
                wanted: Kind::Number,
            }),
        }
    }

    fn condition(self, operator: &'static str) -> Result<Box<Condition>, ExpressionError> {
        match self {
            Self::Condition(condition) => Ok(Box::new(condition)),
            Self::Number(_) => Err(ExpressionError::Type {
                operator,
                found: Kind::Number,
                wanted: Kind::Condition,
            }),
        }
    }
}

impl Condition {
    /// Types a syntax tree.
    ///
    /// # Errors
    /// Whatever is not a condition over numbers.
    pub(super) fn build(tree: IdedExpr) -> Result<Self, ExpressionError> {
        match build(tree)? {
            Part::Condition(condition) => Ok(condition),
            Part::Number(_) => Err(ExpressionError::NotBoolean),
        }
    }

    /// Evaluates by CEL's logic: `&&` and `||` are decided by either side, and
    /// have no value only when neither side decides.
    pub(super) fn evaluate(&self, values: &Values) -> Result<bool, Stop> {
        match self {
            Self::Literal(holds) => Ok(*holds),
            Self::Not(inner) => inner.evaluate(values).map(Not::not),
            Self::And(left, right) => either(false, left, right, values),
            Self::Or(left, right) => either(true, left, right, values),
            Self::Same(left, right) => Ok(left.evaluate(values)? == right.evaluate(values)?),
            Self::If(condition, then, otherwise) => {
                if condition.evaluate(values)? {
                    then.evaluate(values)
                } else {
                    otherwise.evaluate(values)
                }
            }
            Self::Compare(left, comparison, right) => {
                comparison.apply(left.evaluate(values)?, right.evaluate(values)?)
            }
        }
    }
}

/// `&&` (decided by false) and `||` (decided by true).
fn either(
    decisive: bool,
    left: &Condition,
    right: &Condition,
    values: &Values,
) -> Result<bool, Stop> {
    match (left.evaluate(values), right.evaluate(values)) {
        (Ok(holds), _) | (_, Ok(holds)) if holds == decisive => Ok(decisive),
        // A missing number tells a reader more than a comparison that failed.
        (Err(stop @ Stop::Missing(_)), _) | (_, Err(stop @ Stop::Missing(_))) => Err(stop),
        (Err(stop), _) | (_, Err(stop)) => Err(stop),
        (Ok(_), Ok(_)) => Ok(!decisive),
    }
}

impl Number {
    fn evaluate(&self, values: &Values) -> Result<f64, Stop> {
        match self {
            Self::Literal(value) => Ok(*value),
            Self::Variable(index) => values[*index].ok_or(Stop::Missing(VARIABLES[*index])),
            Self::Negate(inner) => inner.evaluate(values).map(|value| -value),
            Self::Truncate(inner) => {
                let value = inner.evaluate(values)?;
                // CEL's int() covers 64 bits.
                if value.abs() < 9_223_372_036_854_775_808.0 {
                    Ok(value.trunc())
                } else {
                    Err(Stop::NoValue(format!("int() cannot take {value}")))
                }
            }
            Self::Binary(left, arithmetic, right) => {
                let (left, right) = (left.evaluate(values)?, right.evaluate(values)?);
                Ok(match arithmetic {
                    Arithmetic::Add => left + right,
                    Arithmetic::Subtract => left - right,
                    Arithmetic::Multiply => left * right,
                    Arithmetic::Divide => left / right,
                })
            }
            Self::If(condition, then, otherwise) => {
                if condition.evaluate(values)? {
                    then.evaluate(values)
                } else {
                    otherwise.evaluate(values)
                }
            }
        }
    }
}

impl Comparison {
    fn apply(self, left: f64, right: f64) -> Result<bool, Stop> {
        match self {
            Self::Equal => return Ok(left == right),
            Self::NotEqual => return Ok(left != right),
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => {}
        }
        let order = left
            .partial_cmp(&right)
            .ok_or_else(|| Stop::NoValue(format!("{left} and {right} have no order")))?;
        Ok(match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Equal | Self::NotEqual => order.is_eq(),
        })
    }
}

fn build(node: IdedExpr) -> Result<Part, ExpressionError> {
    match node.expr {
        Expr::Literal(literal) => build_literal(&literal),
        Expr::Ident(name) => match VARIABLES.iter().position(|variable| *variable == name) {
            Some(index) => Ok(Part::Number(Number::Variable(index))),
            None => Err(ExpressionError::UnknownName { name }),
        },
        Expr::Call(call) => build_call(call),
        Expr::Select(select) => Err(ExpressionError::UnknownName {
            name: format!(".{}", select.field),
        }),
        Expr::Unspecified
        | Expr::Comprehension(_)
        | Expr::List(_)
        | Expr::Map(_)
        | Expr::Struct(_) => Err(ExpressionError::Unsupported {
            what: "a list, map or macro",
            remedy: "only numbers and conditions",
        }),
    }
}

fn build_literal(literal: &LiteralValue) -> Result<Part, ExpressionError> {
    let whole = |text: String, magnitude: u64, value: f64| {
        if magnitude > MAX_WHOLE {
            Err(ExpressionError::Inexact { value: text })
        } else {
            Ok(Part::Number(Number::Literal(value)))
        }
    };
    match literal {
        LiteralValue::Boolean(value) => Ok(Part::Condition(Condition::Literal(*value.inner()))),
        LiteralValue::Double(value) => Ok(Part::Number(Number::Literal(*value.inner()))),
        LiteralValue::Int(value) => {
            let value = *value.inner();
            whole(value.to_string(), value.unsigned_abs(), value as f64)
        }
        LiteralValue::UInt(value) => {
            let value = *value.inner();
            whole(value.to_string(), value, value as f64)
        }
        LiteralValue::String(_) | LiteralValue::Bytes(_) | LiteralValue::Null => {
            Err(ExpressionError::Unsupported {
                what: "text or null",
                remedy: "only numbers and conditions",
            })
        }
    }
}

fn build_call(call: CallExpr) -> Result<Part, ExpressionError> {
    let CallExpr {
        func_name,
        target,
        args,
    } = call;
    if target.is_some() {
        return Err(ExpressionError::UnknownFunction { name: func_name });
    }
    let count = args.len();
    let mut args = args
        .into_iter()
        .map(build)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter();
    match (args.next(), args.next(), args.next(), count) {
        (Some(only), None, None, 1) => build_unary(func_name, only),
        (Some(left), Some(right), None, 2) => build_binary(func_name, left, right),
        (Some(condition), Some(then), Some(otherwise), 3)
            if func_name == operators::CONDITIONAL =>
        {
            build_if(condition, then, otherwise)
        }
        _ => Err(ExpressionError::UnknownFunction { name: func_name }),
    }
}

fn build_unary(name: String, only: Part) -> Result<Part, ExpressionError> {
    match name.as_str() {
        operators::LOGICAL_NOT => Ok(Part::Condition(Condition::Not(only.condition("!")?))),
        operators::NEGATE => Ok(Part::Number(Number::Negate(Box::new(only.number("-")?)))),
        // Every number is a double already.
        "double" => Ok(Part::Number(only.number("double()")?)),
        "int" => Ok(Part::Number(Number::Truncate(Box::new(
            only.number("int()")?,
        )))),
        _ => Err(ExpressionError::UnknownFunction { name }),
    }
}

fn build_binary(name: String, left: Part, right: Part) -> Result<Part, ExpressionError> {
    let arithmetic = |operator, arithmetic, left: Part, right: Part| {
        let (left, right) = (
            Box::new(left.number(operator)?),
            Box::new(right.number(operator)?),
        );
        Ok(Part::Number(Number::Binary(left, arithmetic, right)))
    };
    let comparison = |operator, comparison, left: Part, right: Part| {
        Ok(Part::Condition(Condition::Compare(
            left.number(operator)?,
            comparison,
            right.number(operator)?,
        )))
    };
    match name.as_str() {
        operators::LOGICAL_AND => Ok(Part::Condition(Condition::And(
            left.condition("&&")?,
            right.condition("&&")?,
        ))),
        operators::LOGICAL_OR => Ok(Part::Condition(Condition::Or(
            left.condition("||")?,
            right.condition("||")?,
        ))),
        operators::ADD => arithmetic("+", Arithmetic::Add, left, right),
        operators::SUBSTRACT => arithmetic("-", Arithmetic::Subtract, left, right),
        operators::MULTIPLY => arithmetic("*", Arithmetic::Multiply, left, right),
        operators::DIVIDE => arithmetic("/", Arithmetic::Divide, left, right),
        operators::LESS => comparison("<", Comparison::Less, left, right),
        operators::LESS_EQUALS => comparison("<=", Comparison::LessOrEqual, left, right),
        operators::GREATER => comparison(">", Comparison::Greater, left, right),
        operators::GREATER_EQUALS => comparison(">=", Comparison::GreaterOrEqual, left, right),
        operators::EQUALS => match left {
            Part::Number(_) => comparison("==", Comparison::Equal, left, right),
            Part::Condition(left) => same(left, right.condition("==")?),
        },
        operators::NOT_EQUALS => match left {
            Part::Number(_) => comparison("!=", Comparison::NotEqual, left, right),
            // Exclusive or: alike with one side turned around.
            Part::Condition(left) => same(Condition::Not(Box::new(left)), right.condition("!=")?),
        },
        operators::MODULO => Err(ExpressionError::Unsupported {
            what: "%",
            remedy: "only + - * /, as every number is a double",
        }),
        _ => Err(ExpressionError::UnknownFunction { name }),
    }
}

fn same(left: Condition, right: Box<Condition>) -> Result<Part, ExpressionError> {
    Ok(Part::Condition(Condition::Same(Box::new(left), right)))
}

fn build_if(condition: Part, then: Part, otherwise: Part) -> Result<Part, ExpressionError> {
    let condition = condition.condition("?:")?;
    match (then, otherwise) {
        (Part::Number(then), Part::Number(otherwise)) => Ok(Part::Number(Number::If(
            condition,
            Box::new(then),
            Box::new(otherwise),
        ))),
        (Part::Condition(then), Part::Condition(otherwise)) => Ok(Part::Condition(Condition::If(
            condition,
            Box::new(then),
            Box::new(otherwise),
        ))),
        (then, otherwise) => Err(ExpressionError::Type {
            operator: "?:",
            found: otherwise.kind(),
            wanted: then.kind(),
        }),
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "{name} is unknown"),
            Self::NoValue(reason) => f.write_str(reason),
        }
    }
}
