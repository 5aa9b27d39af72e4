//! Manifests, good and bad.

mod policies;
mod runs;
mod targets;

pub(crate) use policies::POLICIES;
pub(crate) use runs::RUNS;
pub(crate) use targets::TARGETS;

/// What becomes of a manifest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// The API server and lint take it.
    Good,
    /// Both refuse it; the API server in these words, among others.
    Bad(&'static str),
    /// Only lint refuses it, because the API server cannot know this.
    LintOnly(&'static str),
}

/// A name, a spec in YAML, and what becomes of it. `LONG` stands for very many letters.
pub(crate) type Row = (&'static str, &'static str, Verdict);

// Why the API server takes what lint refuses.
const QUERY: &str = "a query is a text to the API server";
const MATCHER: &str = "a matcher is one too";
const EXPRESSION: &str = "so is an expression";
const TIME: &str = "and so is a time of day, a day, a zone and a schedule";
const SPAN: &str = "durations are compared as texts only, their length is not known";
const URL: &str = "of a URL only the beginning is looked at";
const FILE: &str = "the kind is the same for standalone, which reads files";
const BYTES: &str = "fractions of a byte are quantities";
const NAMES: &str = "the grammar of names inside of other values is not looked at";
