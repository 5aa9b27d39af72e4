//! The verdict on an object: its spec parsed once into core's types, or every
//! error in it with the field, the value and the remedy.

mod blockers;
mod check;
mod fleet;
mod labels;
mod metric;
mod policy;
mod run;
mod target;

use std::fmt;

pub use policy::policy;
pub use run::run;
pub use target::target;

/// Where an object is going to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Place {
    /// `defragd controller`: it finds pods and other operators' clusters, and
    /// reads Secrets. It never reads a file that an object names: whoever may
    /// write a target must not have the controller's own files sent to a server
    /// of theirs.
    Kubernetes,
    /// `defragd standalone`: it reads files and knows no Kubernetes.
    Standalone,
    /// Not known: what one of the two hosts takes is right.
    #[default]
    Anywhere,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, such as `spec.backoff.max`.
    pub path: String,
    /// What stands there, bounded and quoted as text is; empty when nothing does.
    pub value: String,
    /// What is wrong about it, naming the value.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl FieldError {
    /// `problem` follows the value in the sentence: `"0s" is not positive`.
    pub(crate) fn new(
        path: impl Into<String>,
        value: impl Into<String>,
        problem: impl fmt::Display,
        remedy: impl Into<String>,
    ) -> Self {
        let value = value.into();
        let problem = if value.is_empty() {
            problem.to_string()
        } else {
            format!("{value} {problem}")
        };
        FieldError {
            path: path.into(),
            value,
            problem,
            remedy: remedy.into(),
        }
    }

    /// From the words of a parser of core. Those end with what was wanted, which
    /// is the remedy; `remedy` stands in when they do not.
    pub(crate) fn said(
        path: impl Into<String>,
        value: &str,
        error: &dyn fmt::Display,
        remedy: &str,
    ) -> Self {
        let message = error.to_string();
        let wanted = [", want ", ", wanted "];
        let split = wanted.iter().find_map(|w| message.rsplit_once(w));
        let (problem, remedy) = match split {
            Some((problem, wanted)) => (problem.to_owned(), format!("write {wanted}")),
            None => (message, remedy.to_owned()),
        };
        FieldError {
            path: path.into(),
            value: quoted(value),
            problem,
            remedy,
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path, self.problem, self.remedy)
    }
}

impl std::error::Error for FieldError {}

/// How much of a value is repeated in a message, in characters.
const SHOWN: usize = 64;

/// A text in quotes, cut short, with control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// All errors in one bounded text, for a condition or a log line.
pub fn summary(errors: &[FieldError]) -> String {
    const MOST: usize = 10;
    let mut text: Vec<String> = errors.iter().take(MOST).map(ToString::to_string).collect();
    if errors.len() > MOST {
        text.push(format!("and {} more", errors.len() - MOST));
    }
    text.join(" | ")
}
