//! Which labels are meant, as in a Kubernetes label selector.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A selector of labels; all of it must hold. Written out, it is Kubernetes' text form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<Requirement>,
}

/// What is asked of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
}

/// As in a Kubernetes label selector: `NotIn` is also fulfilled without the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// True when an object with these labels is meant.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(equal)
            && self.match_expressions.iter().all(|wanted| {
                let value = labels.get(&wanted.key);
                match &wanted.operator {
                    Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                    Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                    Operator::Exists => value.is_some(),
                    Operator::DoesNotExist => value.is_none(),
                }
            })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (key, value) in &self.match_labels {
            write!(f, "{comma}{key}={value}")?;
            comma = ",";
        }
        for wanted in &self.match_expressions {
            write!(f, "{comma}{wanted}")?;
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requirement { key, operator } = self;
        let (word, values) = match operator {
            Operator::In(values) => ("in", values),
            Operator::NotIn(values) => ("notin", values),
            Operator::Exists => return f.write_str(key),
            Operator::DoesNotExist => return write!(f, "!{key}"),
        };
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        write!(f, "{key} {word} ({})", values.join(","))
    }
}

#[cfg(test)]
mod tests;
