//! What an expression selects, and what its empty answer means.

use std::time::Duration;

use jiff::SignedDuration;
use promql_parser::parser::token::{T_DIV, T_LAND, T_LOR, T_LUNLESS, T_MOD, T_SUB, TokenType};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{
    self, AggregateExpr, BinaryExpr, Call, Expr, FunctionArgs, Offset, ParenExpr, SubqueryExpr,
    UnaryExpr, VectorSelector,
};

/// The series that Prometheus writes for pending and firing alerts. It exists
/// only meanwhile, so its absence means "not firing".
const ALERTS: &str = "ALERTS";

/// See the methods of [`super::PromQuery`] of the same names.
pub(super) struct Shape {
    pub(super) filters: bool,
    /// Whether an empty answer is an ordinary one: the query filters, or selects
    /// nothing but `ALERTS`.
    pub(super) can_be_false: bool,
    pub(super) presence: Vec<String>,
    pub(super) selectors: Vec<String>,
    pub(super) max_range: Option<SignedDuration>,
}

impl Shape {
    pub(super) fn of(expr: &Expr) -> Self {
        let mut found = Found::default();
        found.walk(expr, 0, 0);
        let selectors = found.texts(|_| true);
        let without_alerts = found.texts(|s| !is_alerts(s));
        let filters = filters(expr);
        let presence = if filters {
            filter_presence(expr).unwrap_or_else(|| without_alerts.clone())
        } else {
            without_alerts.clone()
        };
        Shape {
            filters,
            can_be_false: filters || (without_alerts.is_empty() && !selectors.is_empty()),
            presence,
            selectors,
            max_range: (found.longest > 0).then(|| {
                SignedDuration::from_millis(i64::try_from(found.longest).unwrap_or(i64::MAX))
            }),
        }
    }
}

fn is_alerts(selector: &VectorSelector) -> bool {
    selector.name.as_deref() == Some(ALERTS)
        || selector
            .matchers
            .find_matchers(promql_parser::label::METRIC_NAME)
            .iter()
            .any(|m| m.value == ALERTS)
}

/// True for a comparison that drops what does not fulfil it.
fn is_filter(ex: &BinaryExpr) -> bool {
    ex.op.is_comparison_operator() && !ex.return_bool()
}

fn is_absent(call: &Call) -> bool {
    matches!(call.func.name, "absent" | "absent_over_time")
}

/// True when the expression may be empty because a condition in it is false.
fn filters(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(ex) => filters(&ex.expr),
        Expr::Unary(ex) => filters(&ex.expr),
        Expr::Subquery(ex) => filters(&ex.expr),
        Expr::Aggregate(ex) => filters(&ex.expr),
        Expr::Binary(ex) if is_filter(ex) => true,
        Expr::Binary(ex) => match ex.op.id() {
            T_LAND | T_LUNLESS => true,
            // `x / (y > 0)` guards against a division by zero. The quotient that
            // is missing then is unknown, not "not crossed".
            T_DIV | T_MOD => filters(&ex.lhs),
            _ => filters(&ex.lhs) || filters(&ex.rhs),
        },
        Expr::Call(call) if is_absent(call) => true,
        // These two answer whatever their argument does.
        Expr::Call(call) if matches!(call.func.name, "scalar" | "vector") => false,
        Expr::Call(call) => call.args.args.iter().any(|arg| filters(arg)),
        Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::Extension(_) => false,
    }
}

/// The presence expressions of a filtering query; `None` when one of them would
/// not be PromQL any more, which no known query brings about.
fn filter_presence(expr: &Expr) -> Option<Vec<String>> {
    let mut sides = Vec::new();
    split_at_and(expr, &mut sides);
    let mut texts = Vec::new();
    for side in sides.into_iter().filter_map(without_filters) {
        let mut found = Found::default();
        found.walk(&side, 0, 0);
        if found.selectors.is_empty() {
            continue;
        }
        let text = unwrap_parens(&side).to_string();
        if parser::parse(&text).is_err() {
            return None;
        }
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Some(texts)
}

fn split_at_and<'a>(expr: &'a Expr, sides: &mut Vec<&'a Expr>) {
    match expr {
        Expr::Paren(ex) => split_at_and(&ex.expr, sides),
        Expr::Binary(ex) if ex.op.id() == T_LAND => {
            split_at_and(&ex.lhs, sides);
            split_at_and(&ex.rhs, sides);
        }
        other => sides.push(other),
    }
}

fn unwrap_parens(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(ex) => unwrap_parens(&ex.expr),
        other => other,
    }
}

/// Brackets around what an operator beside it could take apart.
fn bracketed(expr: Expr) -> Box<Expr> {
    match expr {
        Expr::Binary(_) | Expr::Unary(_) => Box::new(Expr::Paren(ParenExpr {
            expr: Box::new(expr),
        })),
        other => Box::new(other),
    }
}

/// The expression with every filter taken out, so that it is empty only when
/// its series are gone. `None` when it then always has an answer.
fn without_filters(expr: &Expr) -> Option<Expr> {
    Some(match expr {
        Expr::Paren(ex) => Expr::Paren(ParenExpr {
            expr: Box::new(without_filters(&ex.expr)?),
        }),
        Expr::Unary(ex) => Expr::Unary(UnaryExpr {
            expr: bracketed(without_filters(&ex.expr)?),
        }),
        Expr::Subquery(ex) => Expr::Subquery(SubqueryExpr {
            expr: bracketed(without_filters(&ex.expr)?),
            ..ex.clone()
        }),
        Expr::Aggregate(ex) => Expr::Aggregate(AggregateExpr {
            expr: Box::new(without_filters(&ex.expr)?),
            ..ex.clone()
        }),
        Expr::Binary(ex) => return binary_without_filters(ex),
        Expr::Call(call) if is_absent(call) => return None,
        Expr::Call(call) => {
            let args = call
                .args
                .args
                .iter()
                .map(|arg| without_filters(arg).map(Box::new))
                .collect::<Option<Vec<_>>>()?;
            Expr::Call(Call {
                func: call.func.clone(),
                args: FunctionArgs { args },
            })
        }
        Expr::VectorSelector(selector) if is_alerts(selector) => return None,
        Expr::MatrixSelector(selector) if is_alerts(&selector.vs) => return None,
        other => other.clone(),
    })
}

fn binary_without_filters(ex: &BinaryExpr) -> Option<Expr> {
    let is_scalar = |side: &Expr| side.value_type() == ValueType::Scalar;
    let join = |op: TokenType, lhs: Option<Expr>, rhs: Option<Expr>| match (lhs, rhs) {
        (Some(lhs), Some(rhs)) => Some(Expr::Binary(BinaryExpr {
            op,
            lhs: bracketed(lhs),
            rhs: bracketed(rhs),
            modifier: ex.modifier.clone(),
        })),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => None,
    };
    if is_filter(ex) {
        return match (is_scalar(&ex.lhs), is_scalar(&ex.rhs)) {
            (_, true) => without_filters(&ex.lhs),
            (true, false) => without_filters(&ex.rhs),
            // The same pairs of series meet in a difference as in a comparison.
            (false, false) => join(
                TokenType::new(T_SUB),
                without_filters(&ex.lhs),
                without_filters(&ex.rhs),
            ),
        };
    }
    match ex.op.id() {
        T_LUNLESS => without_filters(&ex.lhs),
        T_LOR => {
            let (lhs, rhs) = (without_filters(&ex.lhs)?, without_filters(&ex.rhs)?);
            join(ex.op, Some(lhs), Some(rhs))
        }
        T_DIV | T_MOD => join(ex.op, without_filters(&ex.lhs), Some((*ex.rhs).clone())),
        _ => join(ex.op, without_filters(&ex.lhs), without_filters(&ex.rhs)),
    }
}

/// Selectors and look-back, gathered in one walk.
#[derive(Default)]
struct Found {
    selectors: Vec<VectorSelector>,
    /// Milliseconds.
    longest: i128,
}

impl Found {
    /// `shift` and `reach` (milliseconds) are the offset and the range of the
    /// subqueries around `expr`.
    fn walk(&mut self, expr: &Expr, shift: i128, reach: i128) {
        match expr {
            Expr::Paren(ex) => self.walk(&ex.expr, shift, reach),
            Expr::Unary(ex) => self.walk(&ex.expr, shift, reach),
            Expr::Aggregate(ex) => {
                if let Some(param) = &ex.param {
                    self.walk(param, shift, reach);
                }
                self.walk(&ex.expr, shift, reach);
            }
            Expr::Binary(ex) => {
                self.walk(&ex.lhs, shift, reach);
                self.walk(&ex.rhs, shift, reach);
            }
            Expr::Call(ex) => {
                for arg in &ex.args.args {
                    self.walk(arg, shift, reach);
                }
            }
            Expr::Subquery(ex) => {
                let shift = shift + offset_millis(ex.offset.as_ref());
                self.walk(&ex.expr, shift, reach + duration_millis(ex.range));
            }
            Expr::VectorSelector(selector) => self.add(selector, shift, reach),
            Expr::MatrixSelector(ex) => self.add(&ex.vs, shift, reach + duration_millis(ex.range)),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
        }
    }

    fn add(&mut self, selector: &VectorSelector, shift: i128, reach: i128) {
        let shift = shift + offset_millis(selector.offset.as_ref());
        self.longest = self.longest.max(reach + shift);
        let mut selector = selector.clone();
        let magnitude = Duration::from_millis(u64::try_from(shift.abs()).unwrap_or(u64::MAX));
        selector.offset = match shift {
            0 => None,
            1.. => Some(Offset::Pos(magnitude)),
            _ => Some(Offset::Neg(magnitude)),
        };
        if !self.selectors.contains(&selector) {
            self.selectors.push(selector);
        }
    }

    fn texts(&self, wanted: impl Fn(&VectorSelector) -> bool) -> Vec<String> {
        self.selectors
            .iter()
            .filter(|s| wanted(s))
            .map(ToString::to_string)
            .collect()
    }
}

fn duration_millis(duration: Duration) -> i128 {
    i128::try_from(duration.as_millis()).unwrap_or(i128::MAX / 4)
}

fn offset_millis(offset: Option<&Offset>) -> i128 {
    match offset {
        None => 0,
        Some(Offset::Pos(by)) => duration_millis(*by),
        Some(Offset::Neg(by)) => -duration_millis(*by),
    }
}
