//! From a source's answer to a signal's state.

use std::collections::BTreeMap;

use super::{PrometheusSignal, Reading, Reason, Reduce, SignalState, Threshold};
use crate::core::quantity::{Quantity, human_bytes};

/// The longest message of a [`Reading`] in characters, source's words included.
const MESSAGE_CHARS: usize = 600;
/// How much of a series' labels a message shows, in characters.
const LABELS_CHARS: usize = 160;
/// How much of a source's warning a message shows, in characters.
const WARNING_CHARS: usize = 200;

/// What a source answered to an instant query.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub result: AnswerKind,
    /// Warnings, which may hide series; not the harmless `infos` (S13).
    pub warnings: Vec<String>,
    /// The source says that parts of the data were not reachable (S11).
    pub partial: bool,
}

/// The result of an instant query, as far as it can be compared.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerKind {
    Vector(Vec<Series>),
    Scalar(f64),
    /// A result with no number to compare: `matrix`, `string`, `native histogram`.
    Unsuitable {
        kind: &'static str,
        /// How many series are of that kind.
        count: usize,
    },
}

/// One series of an instant vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// Whether the series behind an empty answer exist, see
/// [`PromQuery::presence`](crate::core::promql::PromQuery::presence).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nobody has asked; an empty answer is then no data.
    Unasked,
    /// Every presence expression returned series, or none is needed.
    Present,
    /// At least one returned nothing.
    Absent,
}

/// Judges an answer. Nothing but a number that truly crosses fires, nothing but
/// a complete answer clears.
///
/// - S01, S02: an empty vector is no data, unless the query filters and its
///   series are there.
/// - S03, S04: NaN and the infinities are inconclusive, a query read as an
///   alerting rule included.
/// - S05, S08: what cannot be reduced to one verdict is an error.
/// - S11: with warnings or a partial answer only `Firing` stands.
/// - S14: comparisons are strict and exact.
/// - T78: an alert that is pending does not fire.
pub fn judge(signal: &PrometheusSignal, answer: &Answer, presence: Presence) -> Reading {
    let mut reading = match &answer.result {
        AnswerKind::Unsuitable { kind, count } => unsuitable(kind, *count),
        AnswerKind::Scalar(value) => match signal.threshold {
            Some(threshold) => judge_one(&Comparison(threshold), "the scalar", *value),
            None => Reading::error(
                Reason::ResultUnsuitable,
                "the query returned a scalar, which always has a value: add `above` or `below`",
            ),
        },
        AnswerKind::Vector(series) if series.is_empty() => judge_empty(signal, presence),
        AnswerKind::Vector(series) => match signal.threshold {
            None => judge_alert(series),
            Some(threshold) => judge_numbers(&Comparison(threshold), signal.reduce, series),
        },
    };
    doubt(&mut reading, answer);
    reading.message = bounded(&reading.message, MESSAGE_CHARS);
    reading
}

fn unsuitable(kind: &str, count: usize) -> Reading {
    let remedy = match kind {
        "matrix" => ": wrap it in a function such as last_over_time()",
        "native histogram" => {
            ": take a number out of it with histogram_count(), histogram_avg() or \
             histogram_quantile()"
        }
        _ => "",
    };
    Reading::error(
        Reason::ResultUnsuitable,
        format!(
            "the query returned a {kind} ({count} in all), wanted an instant vector or a \
             scalar{remedy}"
        ),
    )
}

fn judge_empty(signal: &PrometheusSignal, presence: Presence) -> Reading {
    let numeric = signal.threshold.is_some() && !signal.query.is_comparison();
    let no_data = |message: &str| Reading::new(SignalState::NoData, Reason::NoData, message);
    match presence {
        _ if numeric => no_data("the query returned no series"),
        Presence::Present => Reading::new(
            SignalState::NotFiring,
            Reason::SignalNotFiring,
            "the query's condition is false: it returned no series, but the series it speaks \
             about exist",
        ),
        Presence::Absent => no_data(
            "the query returned no series, and the series it speaks about do not exist either",
        ),
        Presence::Unasked => no_data(
            "the query returned no series, and whether the series it speaks about exist is not \
             known",
        ),
    }
}

/// Without a threshold, as an alerting rule is read: what is returned fires.
fn judge_alert(series: &[Series]) -> Reading {
    let finite: Vec<&Series> = series.iter().filter(|s| s.value.is_finite()).collect();
    let Some(any) = finite.first() else {
        return not_finite(&series[0]);
    };
    let finite: Vec<&Series> = finite.iter().filter(|s| !is_pending(s)).copied().collect();
    let Some(first) = finite.first() else {
        let message = format!("pending, which is not firing: {}", labels(any));
        return Reading::new(SignalState::NotFiring, Reason::SignalNotFiring, message);
    };
    let sample = format!("{} of {}", plain(first.value), labels(first));
    Reading {
        value: (finite.len() == 1).then_some(first.value),
        ..Reading::new(
            SignalState::Firing,
            Reason::SignalFiring,
            match finite.len() {
                1 => format!("the query returned {sample}"),
                n => format!("the query returned {n} series, among them {sample}"),
            },
        )
    }
}

/// A series of `ALERTS` whose alert has not held for long enough yet.
fn is_pending(series: &Series) -> bool {
    series.labels.get("alertstate").map(String::as_str) == Some("pending")
}

/// A threshold and its strict, exact comparison.
struct Comparison(Threshold);

impl Comparison {
    fn crosses(&self, value: f64) -> bool {
        use std::cmp::Ordering::{Greater, Less};
        match self.0 {
            Threshold::Above(limit) => limit.cmp_f64(value) == Some(Greater),
            Threshold::Below(limit) => limit.cmp_f64(value) == Some(Less),
        }
    }

    /// "above 100Mi", "not below 0.5"
    fn words(&self, crossed: bool) -> String {
        let not = if crossed { "" } else { "not " };
        match self.0 {
            Threshold::Above(limit) => format!("{not}above {}", say_quantity(limit)),
            Threshold::Below(limit) => format!("{not}below {}", say_quantity(limit)),
        }
    }

    /// The value, as a size beside a threshold that is one.
    fn show(&self, value: f64) -> String {
        let (Threshold::Above(limit) | Threshold::Below(limit)) = self.0;
        // Up to 2^53 a whole f64 is exact, so the cast loses nothing.
        let whole = (0.0..=9_007_199_254_740_992.0).contains(&value) && value.fract() == 0.0;
        if whole && limit.to_string().ends_with('i') {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole, not negative and below 2^53, as checked above"
            )]
            let bytes = value as u64;
            format!("{} ({})", human_bytes(bytes), plain(value))
        } else {
            plain(value)
        }
    }

    fn reading(&self, crossed: bool, value: f64, message: String) -> Reading {
        let (state, reason) = if crossed {
            (SignalState::Firing, Reason::SignalFiring)
        } else {
            (SignalState::NotFiring, Reason::SignalNotFiring)
        };
        Reading {
            value: Some(value),
            ..Reading::new(state, reason, message)
        }
    }
}

fn judge_one(comparison: &Comparison, what: &str, value: f64) -> Reading {
    if !value.is_finite() {
        return Reading::new(
            SignalState::Inconclusive,
            Reason::Inconclusive,
            format!(
                "{what} is {}, which proves nothing{}",
                plain(value),
                zero_hint(value)
            ),
        );
    }
    let crossed = comparison.crosses(value);
    let message = format!(
        "{what} is {}, {}",
        comparison.show(value),
        comparison.words(crossed)
    );
    comparison.reading(crossed, value, message)
}

fn judge_numbers(comparison: &Comparison, reduce: Option<Reduce>, series: &[Series]) -> Reading {
    if let ([one], _) = (series, reduce) {
        return judge_one(comparison, &the_value(one), one.value);
    }
    // One direction of `Max` and `Min` asks for any series, the other for all.
    match (reduce, comparison.0) {
        (None, _) => Reading::error(
            Reason::ResultUnsuitable,
            match replica_label(series) {
                None => format!(
                    "the query returned {} series and the policy does not say how to reduce them: \
                     set `reduce`, or aggregate in the query, for example with max()",
                    series.len()
                ),
                Some(label) => format!(
                    "the query returned {} series that differ in {label} only, as those of an HA \
                     pair do: set `reduce: Max`, aggregate in the query with max without \
                     ({label}), or let the source deduplicate",
                    series.len()
                ),
            },
        ),
        (Some(Reduce::Any), _)
        | (Some(Reduce::Max), Threshold::Above(_))
        | (Some(Reduce::Min), Threshold::Below(_)) => judge_any(comparison, series),
        (Some(Reduce::All), _)
        | (Some(Reduce::Max), Threshold::Below(_))
        | (Some(Reduce::Min), Threshold::Above(_)) => judge_all(comparison, series),
        (Some(Reduce::Sum), _) => judge_fold(comparison, series, "sum", 1.0),
        (Some(Reduce::Avg), _) => {
            // Counts of series are far below 2^52, where f64 stops being exact.
            let divisor = u32::try_from(series.len()).map_or(f64::INFINITY, f64::from);
            judge_fold(comparison, series, "average", divisor)
        }
    }
}

/// The series that goes furthest, or least far, in the direction of crossing.
fn extreme<'a>(
    comparison: &Comparison,
    series: &'a [Series],
    furthest: bool,
) -> Option<&'a Series> {
    let upwards = matches!(comparison.0, Threshold::Above(_)) == furthest;
    let finite = series.iter().filter(|s| s.value.is_finite());
    if upwards {
        finite.max_by(|a, b| a.value.total_cmp(&b.value))
    } else {
        finite.min_by(|a, b| a.value.total_cmp(&b.value))
    }
}

fn judge_any(comparison: &Comparison, series: &[Series]) -> Reading {
    let Some(furthest) = extreme(comparison, series, true) else {
        return not_finite(&series[0]);
    };
    let crossing = series
        .iter()
        .filter(|s| s.value.is_finite() && comparison.crosses(s.value));
    let count = crossing.count();
    if let (0, Some(odd)) = (count, series.iter().find(|s| !s.value.is_finite())) {
        return not_finite(odd);
    }
    let message = format!(
        "{count} of {} series {} {}, {} of {} goes furthest",
        series.len(),
        if count == 1 { "is" } else { "are" },
        comparison.words(true),
        comparison.show(furthest.value),
        labels(furthest),
    );
    comparison.reading(count > 0, furthest.value, message)
}

fn judge_all(comparison: &Comparison, series: &[Series]) -> Reading {
    let Some(nearest) = extreme(comparison, series, false) else {
        return not_finite(&series[0]);
    };
    let crossed = comparison.crosses(nearest.value);
    if let (true, Some(odd)) = (crossed, series.iter().find(|s| !s.value.is_finite())) {
        return not_finite(odd);
    }
    let message = if crossed {
        format!(
            "all {} series are {}, {} of {} goes least far",
            series.len(),
            comparison.words(true),
            comparison.show(nearest.value),
            labels(nearest)
        )
    } else {
        format!(
            "not all of {} series are {}: {} of {} is not",
            series.len(),
            comparison.words(true),
            comparison.show(nearest.value),
            labels(nearest)
        )
    };
    comparison.reading(crossed, nearest.value, message)
}

fn judge_fold(comparison: &Comparison, series: &[Series], word: &str, divisor: f64) -> Reading {
    if let Some(odd) = series.iter().find(|s| !s.value.is_finite()) {
        return not_finite(odd);
    }
    let value = compensated_sum(series.iter().map(|s| s.value)) / divisor;
    let twice = match replica_label(series) {
        Some(label) => format!(" (which differ in {label} only: the same thing counted twice?)"),
        None => String::new(),
    };
    judge_one(
        comparison,
        &format!("the {word} of {} series{twice}", series.len()),
        value,
    )
}

/// The label that tells series apart which are otherwise the same, when its name
/// is that of a replica.
fn replica_label(series: &[Series]) -> Option<&str> {
    let (first, others) = series.split_first()?;
    let others_of = |series: &Series, but: &str| -> BTreeMap<String, String> {
        let mut labels = series.labels.clone();
        labels.remove(but);
        labels
    };
    let mut candidates = first.labels.keys().filter(|key| key.contains("replica"));
    candidates
        .find(|key| {
            let rest = others_of(first, key);
            !others.is_empty()
                && others
                    .iter()
                    .all(|other| other.labels.contains_key(*key) && others_of(other, key) == rest)
        })
        .map(String::as_str)
}

/// Neumaier's summation, as Prometheus does it, so that the sum does not depend
/// on the order in which the series came.
fn compensated_sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        sum = next;
    }
    sum + lost
}

fn not_finite(series: &Series) -> Reading {
    Reading::new(
        SignalState::Inconclusive,
        Reason::Inconclusive,
        format!(
            "{} is {}, which proves nothing{}",
            the_value(series),
            plain(series.value),
            zero_hint(series.value)
        ),
    )
}

fn zero_hint(value: f64) -> &'static str {
    if value.is_infinite() {
        " (a division by zero?)"
    } else {
        ""
    }
}

/// S11: what a warning may hide cannot clear a signal.
fn doubt(reading: &mut Reading, answer: &Answer) {
    let doubt = match (answer.warnings.first(), answer.partial) {
        (Some(warning), _) => {
            let more = match answer.warnings.len() {
                1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            format!(
                "the source warns: {}{more}",
                bounded(warning, WARNING_CHARS)
            )
        }
        (None, true) => "the source says that its answer is partial".to_owned(),
        (None, false) => return,
    };
    match reading.state {
        SignalState::NotFiring | SignalState::NoData => {
            reading.state = SignalState::Inconclusive;
            reading.reason = Reason::Inconclusive;
            reading.value = None;
            reading.message = format!("{doubt}, so this proves nothing: {}", reading.message);
        }
        SignalState::Firing | SignalState::Inconclusive => {
            reading.message = format!("{}; {doubt}", reading.message);
        }
        SignalState::Error => {}
    }
}

/// A quantity for a sentence: `100Mi` stays, `500m` becomes 0.5.
pub(in crate::core) fn say_quantity(quantity: Quantity) -> String {
    let text = quantity.to_string();
    if text.ends_with(['n', 'u', 'm']) {
        plain(quantity.as_f64())
    } else {
        text
    }
}

/// A number as a person writes it: exact, without an exponent where that is
/// short enough.
fn plain(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else if value == f64::NEG_INFINITY {
        "-Inf".to_owned()
    } else if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

/// A reduced query's only series has no labels to tell it by.
fn the_value(series: &Series) -> String {
    if series.labels.is_empty() {
        "the value".to_owned()
    } else {
        format!("the value of {}", labels(series))
    }
}

/// A series' labels as PromQL writes them, bounded. Names beyond letters, digits
/// and underscores stand in quotes.
fn labels(series: &Series) -> String {
    let name = series.labels.get("__name__").map_or("", String::as_str);
    let (name, quoted) = if is_plain_name(name) {
        (name, None)
    } else {
        ("", Some(format!("{name:?}")))
    };
    let others = (series.labels.iter())
        .filter(|(key, _)| *key != "__name__")
        .map(|(key, value)| {
            if is_plain_name(key) {
                format!("{key}={value:?}")
            } else {
                format!("{key:?}={value:?}")
            }
        });
    let inside: Vec<String> = quoted.into_iter().chain(others).collect();
    bounded(&format!("{name}{{{}}}", inside.join(", ")), LABELS_CHARS)
}

fn is_plain_name(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

/// At most `limit` characters of a foreign text, on one line: blanks become
/// spaces, other control and direction-changing characters are escaped, and an
/// ellipsis stands for what is left out.
pub fn bounded(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit + 8));
    for (count, c) in text.trim().chars().enumerate() {
        if count == limit {
            shown.push('…');
            break;
        }
        match c {
            c if c.is_whitespace() => shown.push(' '),
            c if c.is_control() || is_invisible(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Characters that reorder or hide the text around them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
