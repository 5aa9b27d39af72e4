//! Rules written as CEL over a member's numbers.
//!
//! The language is the part of CEL that talks about numbers and truth: the five
//! variables, literals, `+ - * /`, comparisons, `&& || !`, `?:`, `double()` and
//! `int()`. Every number is a double, as in etcd-defrag's rules: CEL itself
//! would refuse `dbSize > 200 * 1024 * 1024 + 0.5` for mixing types, so whole
//! literals are read as doubles (and `1/2` is a half). What remains is typed
//! when it is parsed, so that a rule is known to give a boolean on every branch,
//! not only on the one that a sample happened to take.

mod tree;

use std::fmt;
use std::sync::Arc;

use cel::common::ast::IdedExpr;
use cel::parser::Parser;

use tree::Condition;
pub(super) use tree::Stop;

/// The longest expression that is read, in bytes.
pub const MAX_LEN: usize = 1024;

/// How deep brackets and `?:` may be nested: the CEL parser recurses with each.
const MAX_DEPTH: usize = 16;

/// What the CEL parser gets. Measured: up to 256 KiB a nested bracket in debug
/// builds, which the usual 2 MiB of a thread would not survive.
const PARSER_STACK: usize = 16 << 20;

/// How many operators an expression may hold: bounds the depth of the tree, as
/// `a + b + c` leans to one side.
const MAX_OPERATORS: usize = 64;

/// The names that an expression may use; all are doubles, sizes in bytes.
pub const VARIABLES: [&str; 5] = [
    "dbSize",
    "dbSizeInUse",
    "dbSizeFree",
    "dbQuota",
    "dbQuotaUsage",
];

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// There is nothing to evaluate.
    #[error(
        "the expression is empty, want one such as \"dbQuotaUsage > 0.8 || dbSizeFree > 200*1024*1024\""
    )]
    Empty,
    /// The text is longer than [`MAX_LEN`].
    #[error("the expression is {len} bytes long, want at most 1024")]
    TooLong {
        /// Bytes given.
        len: usize,
    },
    /// A character that no number expression needs.
    #[error(
        "the expression has {found:?} at byte {at}, want only numbers, names, ( ) and the operators + - * / < <= > >= == \
         != && || ! ? :"
    )]
    Character {
        /// The character found.
        found: char,
        /// Its place, in bytes from the start.
        at: usize,
    },
    /// Brackets are nested too deep or there are too many operators.
    #[error(
        "the expression is too complex, want at most 16 nested brackets or ?: and 64 operators"
    )]
    TooComplex,
    /// CEL does not parse it.
    #[error("the expression does not parse at line {line}, column {column}: {message}")]
    Syntax {
        /// Line, from 1.
        line: isize,
        /// Column, from 1.
        column: isize,
        /// The parser's words, bounded.
        message: String,
    },
    /// The parser itself failed.
    #[error("the expression could not be parsed ({message}), want a simpler one")]
    Parser {
        /// What happened.
        message: String,
    },
    /// A name that is not one of [`VARIABLES`].
    #[error(
        "the expression uses the unknown name {name:?}, want dbSize, dbSizeInUse, dbSizeFree, dbQuota or dbQuotaUsage"
    )]
    UnknownName {
        /// The name found.
        name: String,
    },
    /// A function that a rule may not call.
    #[error("the expression calls {name:?}, want only double() and int()")]
    UnknownFunction {
        /// The function or method found.
        name: String,
    },
    /// A part of CEL that has no meaning for numbers.
    #[error("the expression uses {what}, want {remedy}")]
    Unsupported {
        /// What was found.
        what: &'static str,
        /// What to write instead.
        remedy: &'static str,
    },
    /// A whole literal that a double cannot hold.
    #[error(
        "the expression has the number {value}, want at most 9007199254740992 (2^53) so that it is exact"
    )]
    Inexact {
        /// The literal found.
        value: String,
    },
    /// An operator is applied to the wrong kind of value.
    #[error("the expression applies {operator} to {found}, want {wanted}")]
    Type {
        /// The operator as written.
        operator: &'static str,
        /// The kind of the operand.
        found: Kind,
        /// The kind that it takes.
        wanted: Kind,
    },
    /// The whole is a number.
    #[error(
        "the expression gives a number, want a condition such as \"dbSizeFree > 200*1024*1024\""
    )]
    NotBoolean,
}

/// What a part of an expression gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A double.
    Number,
    /// True or false.
    Condition,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "a number",
            Self::Condition => "a condition",
        })
    }
}

/// The values of [`VARIABLES`], in that order; `None` is unknown.
pub(super) type Values = [Option<f64>; VARIABLES.len()];

/// A parsed rule. Equal when the texts are equal.
#[derive(Clone)]
pub struct Expression {
    text: Arc<str>,
    condition: Arc<Condition>,
}

impl Expression {
    /// Reads and types a rule: afterwards it can only give a boolean, hang on an
    /// unknown number, or compare with a NaN.
    ///
    /// # Errors
    /// [`ExpressionError`]; every kind of bad text ends there, none panics.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        guard(text)?;
        let condition = Condition::build(parse_tree(text)?)?;
        Ok(Self {
            text: text.into(),
            condition: Arc::new(condition),
        })
    }

    /// The rule as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Evaluates by CEL's logic: an unknown number makes a comparison unknown,
    /// and `||` and `&&` may still be decided by their other side.
    pub(super) fn evaluate(&self, values: &Values) -> Result<bool, Stop> {
        self.condition.evaluate(values)
    }
}

/// Runs the CEL parser where its stack is known to suffice, and where a panic of
/// it (in builds that unwind) is an error like any other.
fn parse_tree(text: &str) -> Result<IdedExpr, ExpressionError> {
    let failed = |message: &str| ExpressionError::Parser {
        message: message.to_owned(),
    };
    let parsed = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(PARSER_STACK)
            .spawn_scoped(scope, || {
                Parser::new().parse(text).map_err(|errors| {
                    // Only the first: the others are its consequences.
                    let first = errors.errors.into_iter().next();
                    first.map(|error| (error.pos, error.msg))
                })
            })
            .map_err(|error| failed(&error.to_string()))?
            .join()
            .map_err(|_| failed("the parser panicked"))
    })?;
    parsed.map_err(|first| {
        let ((line, column), message) = first.unwrap_or(((1, 1), "unreadable".to_owned()));
        ExpressionError::Syntax {
            line,
            column,
            message: message.chars().take(200).collect(),
        }
    })
}

/// Refuses what the parser behind should not even see: release builds abort on
/// a panic, so its depth and its alphabet are bounded before it starts.
fn guard(text: &str) -> Result<(), ExpressionError> {
    if text.len() > MAX_LEN {
        return Err(ExpressionError::TooLong { len: text.len() });
    }
    if text.trim().is_empty() {
        return Err(ExpressionError::Empty);
    }
    let mut depth = 0_usize;
    let mut operators = 0_usize;
    let mut previous = ' ';
    for (at, found) in text.char_indices() {
        match found {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | ',' | ' ' | '\t' | '\n' | '\r' => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            // The second half of `&&`, `||`, `==`, `>=` and the like is no operator.
            '&' | '|' if previous == found => {}
            '=' if matches!(previous, '=' | '!' | '<' | '>') => {}
            '?' => (depth, operators) = (depth + 1, operators + 1),
            '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' | '&' | '|' | ':' => operators += 1,
            _ => return Err(ExpressionError::Character { found, at }),
        }
        previous = found;
        if depth > MAX_DEPTH || operators > MAX_OPERATORS {
            return Err(ExpressionError::TooComplex);
        }
    }
    Ok(())
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
