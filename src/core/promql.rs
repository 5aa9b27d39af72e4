//! A PromQL expression, parsed once.
//!
//! [`PromQuery`] keeps the text and what defragd needs to know about it, not the
//! syntax tree: ten thousand policies hold ten thousand of these.

mod place;
mod shape;
mod unit;

use std::fmt;
use std::sync::Arc;

use jiff::SignedDuration;
use promql_parser::parser::value::ValueType;

use super::signal::Threshold;
use shape::Shape;
use unit::{Unit, UsedPart};
pub use unit::{UnitHint, name_hint};

/// The longest accepted query in bytes. Longer ones belong into a recording
/// rule, and some proxies cut a request line off at 8 KiB.
pub const MAX_BYTES: usize = 8 * 1024;

/// The deepest accepted nesting of brackets.
pub const MAX_DEPTH: usize = 64;

/// The largest accepted number of operators and brackets. The parser and the
/// tree that it builds recurse once for each of them.
pub const MAX_OPERATORS: usize = 512;

/// Why a text is not a usable PromQL expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromqlError {
    #[error(
        "the query is empty, wanted a PromQL expression such as `max(etcd_mvcc_db_total_size_in_bytes)`"
    )]
    Empty,
    #[error(
        "the query has {bytes} bytes, at most {MAX_BYTES} are accepted: move a part of it into a recording rule"
    )]
    TooLong { bytes: usize },
    #[error(
        "the query has {seen} {what}, at most {limit} are accepted: move a part of it into a recording rule"
    )]
    TooComplex {
        what: &'static str,
        seen: usize,
        limit: usize,
    },
    /// The text is not PromQL. `place` says where the fault shows.
    #[error("the query is not valid PromQL {place}: {message}")]
    Syntax { place: Place, message: String },
    #[error("the query returns a {kind}, wanted an instant vector or a scalar: {remedy}")]
    NotComparable {
        kind: &'static str,
        remedy: &'static str,
    },
}

/// A place in a query; lines and columns count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
    /// A short piece of the text at that place; empty at the end of the query.
    pub near: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at line {}, column {}", self.line, self.column)?;
        if self.near.is_empty() {
            f.write_str(" (at its end)")
        } else {
            write!(f, " (near `{}`)", self.near)
        }
    }
}

/// A PromQL expression that parses and whose result can be compared.
///
/// Two queries are equal when their texts are, blanks at both ends aside.
/// Cloning is cheap.
#[derive(Clone)]
pub struct PromQuery(Arc<Parsed>);

struct Parsed {
    text: String,
    shape: Shape,
    unit: Unit,
    used_part: UsedPart,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scalar,
    Vector,
}

impl PromQuery {
    /// Parses a query and learns its shape.
    ///
    /// # Errors
    /// Blank, too long, too deeply nested or unparsable text, and expressions
    /// whose result is a range vector or a string.
    pub fn parse(text: &str) -> Result<Self, PromqlError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(PromqlError::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(PromqlError::TooLong { bytes: text.len() });
        }
        let expr = place::parse(text)?;
        let kind = match expr.value_type() {
            ValueType::Scalar => Kind::Scalar,
            ValueType::Vector => Kind::Vector,
            ValueType::Matrix => {
                return Err(PromqlError::NotComparable {
                    kind: "range vector",
                    remedy: "wrap it in a function such as last_over_time()",
                });
            }
            ValueType::String => {
                return Err(PromqlError::NotComparable {
                    kind: "string",
                    remedy: "name a metric without quotes",
                });
            }
        };
        Ok(PromQuery(Arc::new(Parsed {
            text: text.to_owned(),
            shape: Shape::of(&expr),
            unit: Unit::of(&expr),
            used_part: UsedPart::of(&expr),
            kind,
        })))
    }

    /// The query as it is sent: the author's text without blanks at its ends.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// True when an empty answer can mean "false": the query filters, by a
    /// comparison without `bool`, by `and`, `unless` or `absent`.
    pub fn is_comparison(&self) -> bool {
        self.0.shape.filters
    }

    /// True when the query yields a scalar, which cannot be read as an alerting
    /// rule is: it always has a value.
    pub fn is_scalar(&self) -> bool {
        self.0.kind == Kind::Scalar
    }

    /// The expressions that must all return series for an empty answer to mean
    /// "false" and not "vanished" (S02).
    ///
    /// For a filtering query: the query without its comparisons, taken apart at
    /// each top-level `and`. `unless` gives its left side, two compared vectors
    /// give their join. For any other query: its vector selectors. What has no
    /// selector, `absent()` and `ALERTS`, which say "false" by being absent, ask
    /// for nothing; so the list is empty when an empty answer is always "false".
    pub fn presence(&self) -> &[String] {
        &self.0.shape.presence
    }

    /// Every vector selector, without its range and with its offset, each once:
    /// `min(timestamp(selector))` is the age of the evidence (S37).
    pub fn selectors(&self) -> &[String] {
        &self.0.shape.selectors
    }

    /// The longest time that a sample can go on influencing the answer by a
    /// range, a subquery or an offset. `None` when the query has none of these.
    pub fn max_range(&self) -> Option<SignedDuration> {
        self.0.shape.max_range
    }

    /// A hint when the query's unit, guessed from names and operators, does not
    /// go with the threshold: 100Mi for a ratio, 0.5 for bytes.
    pub fn unit_hint(&self, threshold: &Threshold) -> Option<UnitHint> {
        unit::hint("the query", self.0.unit, threshold)
    }

    /// A hint when the query is the part of a file that is in use, and fires by
    /// being above something.
    pub fn direction_hint(&self, threshold: Option<&Threshold>) -> Option<UnitHint> {
        unit::direction_hint(self.0.used_part, threshold)
    }

    /// A hint when the query would be read as an alerting rule is, for want of a
    /// threshold, and fires whenever it returns anything.
    pub fn alert_hint(&self) -> Option<UnitHint> {
        (!self.0.shape.can_be_false).then(|| UnitHint {
            message: "the query has no comparison that filters, so without `above` or `below` it \
                      fires whenever it returns a series"
                .to_owned(),
        })
    }
}

impl PartialEq for PromQuery {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for PromQuery {}

impl fmt::Debug for PromQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PromQuery").field(&self.0.text).finish()
    }
}

impl fmt::Display for PromQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

#[cfg(test)]
mod tests;
