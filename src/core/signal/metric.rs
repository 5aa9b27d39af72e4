//! Metrics of the Kubernetes metrics APIs, as a HorizontalPodAutoscaler reads them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::judge::{bounded, say_quantity};
use super::{Reading, Reduce, SignalState, Threshold};
use crate::core::duration;
use crate::core::quantity::{Quantity, human_bytes};
use crate::core::reason::Reason;

/// An older value is no data: as long as Prometheus takes a sample for current.
pub const OLDEST: SignedDuration = SignedDuration::from_mins(5);
/// For so long a metric that is not served is no data; after that, an error. An
/// adapter looks for new metrics every ten minutes unless told otherwise.
pub const MISSING_TOLERATED: SignedDuration = SignedDuration::from_mins(15);

/// The longest message of a reading, in characters.
const MESSAGE_CHARS: usize = 600;
/// How much of an item's labels a message shows, in characters.
const LABELS_CHARS: usize = 160;

/// What adapters make of NaN and the infinities of an external metric: the
/// bounds of a signed 64-bit number of thousandths. Which of the two is a matter
/// of the machine that the adapter runs on.
const NOT_A_NUMBER: [&str; 2] = ["-9223372036854775808m", "9223372036854775807m"];

/// A metric of the policy's own namespace, and what it is compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSignal {
    pub metric: Metric,
    pub threshold: Threshold,
    pub reduce: Option<Reduce>,
}

/// Which metric. A selector is in Kubernetes' text form; empty selects all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Of `external.metrics.k8s.io`.
    External { name: String, selector: String },
    /// Of `custom.metrics.k8s.io`.
    Object {
        described: DescribedObject,
        name: String,
        selector: String,
    },
}

impl Metric {
    /// The name of the metric.
    pub fn name(&self) -> &str {
        match self {
            Metric::External { name, .. } | Metric::Object { name, .. } => name,
        }
    }

    /// The question that this metric is in a namespace; equal for those who can
    /// share an answer.
    pub fn question(&self, namespace: &str) -> String {
        match self {
            Metric::External { name, selector } => {
                format!("external\n{namespace}\n{name}\n{selector}")
            }
            Metric::Object {
                described:
                    DescribedObject {
                        api_version,
                        kind,
                        name: object,
                    },
                name,
                selector,
            } => format!("object\n{namespace}\n{api_version}/{kind}/{object}\n{name}\n{selector}"),
        }
    }
}

/// The object that a metric is about, in the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DescribedObject {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

impl DescribedObject {
    /// The API group; empty for the core's.
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }
}

/// The group of an `apiVersion`. Adapters write `/v1` for the core's.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// One value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricItem {
    /// Its labels, or for an object's metric nothing.
    pub labels: BTreeMap<String, String>,
    /// A quantity as it was written.
    pub value: String,
    /// When it was measured, by the clock of whoever answered; `None` when that
    /// is not told.
    pub at: Option<Timestamp>,
    /// Over how long before `at` it was measured.
    pub window: SignedDuration,
    /// Whom an object's metric is about, as far as the answer says.
    pub about: Option<About>,
    /// The name of the metric, as far as the answer says.
    pub metric: Option<String>,
}

/// The object that an answer is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub api_version: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: Option<String>,
}

/// An answer with the clocks that it can be read by.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricAnswer {
    pub items: Vec<MetricItem>,
    /// When it came, on this machine's clock.
    pub received_at: Timestamp,
    /// The answering server's clock minus this machine's; zero when it is not
    /// known or too small to be told from none.
    pub ahead: SignedDuration,
}

/// A value that can be compared, or what keeps it from being one.
enum Value {
    Exact(Quantity),
    /// What stands for NaN or an infinity.
    NotANumber(String),
}

struct Sample<'a> {
    item: &'a MetricItem,
    value: Value,
}

/// Judges an answer about a metric of this namespace. Comparisons are strict
/// and exact; nothing but a fresh number that crosses fires.
///
/// - S87: no items are no data; several need `reduce`.
/// - S90: an answer about another object or metric is refused.
pub fn judge_metric(signal: &MetricSignal, namespace: &str, answer: &MetricAnswer) -> Reading {
    let mut reading = match samples(signal, namespace, answer) {
        Ok((samples, old)) => {
            let mut reading = judge_samples(signal, &samples);
            if old > 0 {
                reading.message = format!(
                    "{}; {old} older than {} ignored",
                    reading.message,
                    duration::format(OLDEST)
                );
            }
            reading.sampled_at = sampled_at(&samples, answer);
            reading
        }
        Err(reading) => reading,
    };
    reading.message = bounded(&reading.message, MESSAGE_CHARS);
    reading
}

/// The metric, or the API that has it, has not been served for `lasting`; `why`
/// is the server's word.
///
/// S86: no data at first, an error when it lasts longer than `tolerated`.
pub fn missing(why: &str, lasting: SignedDuration, tolerated: SignedDuration) -> Reading {
    let tolerance = duration::format(tolerated);
    // No message tells how long: it would be written to the status again and again.
    if lasting < tolerated {
        let message = format!("{why}; an error when it is so for {tolerance}");
        let message = bounded(&message, MESSAGE_CHARS);
        Reading::new(SignalState::NoData, Reason::NoData, message)
    } else {
        let message = format!(
            "{why}, for more than {tolerance}: check the metric's name and the adapter's \
             configuration"
        );
        Reading::error(Reason::MetricNotFound, bounded(&message, MESSAGE_CHARS))
    }
}

/// The fresh values, and how many were too old.
fn samples<'a>(
    signal: &MetricSignal,
    namespace: &str,
    answer: &'a MetricAnswer,
) -> Result<(Vec<Sample<'a>>, usize), Reading> {
    let no_data = |message: String| Reading::new(SignalState::NoData, Reason::NoData, message);
    if answer.items.is_empty() {
        return Err(no_data("the metric has no values".to_owned()));
    }
    let its_now = answer
        .received_at
        .checked_add(answer.ahead)
        .unwrap_or(answer.received_at);
    let mut fresh = Vec::new();
    let mut newest_old: Option<Timestamp> = None;
    let mut old = 0;
    for item in &answer.items {
        refuse_others(&signal.metric, namespace, item)?;
        let age = item.at.map(|at| its_now.duration_since(at));
        if age.is_some_and(|age| age > OLDEST) {
            old += 1;
            newest_old = newest_old.max(item.at);
            continue;
        }
        if age.is_some_and(|age| age < -OLDEST) {
            return Err(Reading::new(
                SignalState::Inconclusive,
                Reason::Inconclusive,
                format!(
                    "{} is dated more than {} ahead of the API server's clock, which proves \
                     nothing: set the clocks right",
                    the_value(item),
                    duration::format(OLDEST)
                ),
            ));
        }
        let value = value_of(item)?;
        fresh.push(Sample { item, value });
    }
    match (fresh.is_empty(), newest_old) {
        (true, Some(at)) => Err(no_data(format!(
            "the newest value is of {at}, and none older than {} is believed: what the adapter \
             asks has stopped",
            duration::format(OLDEST)
        ))),
        _ => Ok((fresh, old)),
    }
}

/// S90.
fn refuse_others(metric: &Metric, namespace: &str, item: &MetricItem) -> Result<(), Reading> {
    let refused = |what: &str, said: &str, wanted: &str| {
        Err(Reading::error(
            Reason::SourceAnswerUnusable,
            format!(
                "the answer is about the {what} {:?}, wanted {wanted:?}: it is refused",
                bounded(said, LABELS_CHARS)
            ),
        ))
    };
    if let Some(said) = item.metric.as_deref().filter(|said| *said != metric.name()) {
        return refused("metric", said, metric.name());
    }
    let Metric::Object { described, .. } = metric else {
        return Ok(());
    };
    let About {
        api_version,
        kind,
        namespace: place,
        name,
    } = item.about.clone().unwrap_or_default();
    if let Some(said) = api_version
        .as_deref()
        .filter(|said| group_of(said) != described.group())
    {
        return refused("API", said, &described.api_version);
    }
    let (kind, name) = (kind.unwrap_or_default(), name.unwrap_or_default());
    if kind != described.kind {
        return refused("kind", &kind, &described.kind);
    }
    if name != described.name {
        return refused(&format!("{kind} named"), &name, &described.name);
    }
    // A namespace lies in none.
    match place.as_deref().filter(|place| !place.is_empty()) {
        Some(place) if place != namespace => refused("namespace", place, namespace),
        _ => Ok(()),
    }
}

fn value_of(item: &MetricItem) -> Result<Value, Reading> {
    if NOT_A_NUMBER.contains(&item.value.as_str()) {
        return Ok(Value::NotANumber(item.value.clone()));
    }
    Quantity::parse(&item.value)
        .map(Value::Exact)
        .map_err(|error| {
            Reading::error(
                Reason::SourceAnswerUnusable,
                format!("{} cannot be used: {error}", the_value(item)),
            )
        })
}

/// S37: when the oldest evidence was measured, on this machine's clock. `None`
/// when a value does not tell.
fn sampled_at(samples: &[Sample<'_>], answer: &MetricAnswer) -> Option<Timestamp> {
    let began = |sample: &Sample<'_>| {
        let at = sample.item.at?.checked_sub(sample.item.window).ok()?;
        at.checked_sub(answer.ahead).ok()
    };
    let oldest = samples
        .iter()
        .map(began)
        .collect::<Option<Vec<Timestamp>>>()?
        .into_iter()
        .min()?
        // Nothing is measured after it was told.
        .min(answer.received_at);
    // As exact as everything else that is stored.
    Timestamp::from_millisecond(oldest.as_millisecond()).ok()
}

fn judge_samples(signal: &MetricSignal, samples: &[Sample<'_>]) -> Reading {
    let comparison = Comparison(signal.threshold);
    let numbers: Vec<(&MetricItem, Quantity)> = samples
        .iter()
        .filter_map(|sample| match &sample.value {
            Value::Exact(quantity) => Some((sample.item, *quantity)),
            Value::NotANumber(_) => None,
        })
        .collect();
    let odd = samples.iter().find_map(|sample| match &sample.value {
        Value::NotANumber(text) => Some((sample.item, text.as_str())),
        Value::Exact(_) => None,
    });
    if let (None, 2..) = (signal.reduce, samples.len()) {
        return Reading::error(
            Reason::ResultUnsuitable,
            format!(
                "the metric has {} values and the policy does not say how to reduce them: set \
                 `reduce`, or narrow the selector",
                samples.len()
            ),
        );
    }
    let by_any = matches!(
        (signal.reduce, signal.threshold),
        (Some(Reduce::Any), _)
            | (Some(Reduce::Max), Threshold::Above(_))
            | (Some(Reduce::Min), Threshold::Below(_))
    );
    let by_all = matches!(
        (signal.reduce, signal.threshold),
        (Some(Reduce::All), _)
            | (Some(Reduce::Max), Threshold::Below(_))
            | (Some(Reduce::Min), Threshold::Above(_))
    );
    match (numbers.as_slice(), odd) {
        ([], Some(odd)) => not_a_number(odd),
        ([], None) => Reading::new(
            SignalState::NoData,
            Reason::NoData,
            "the metric has no values",
        ),
        // One that stands for all, whatever `reduce` says.
        ([(item, value)], None) => one(signal, &comparison, item, *value),
        _ if by_any => {
            let (item, value) = comparison.extreme(&numbers, true);
            match (comparison.crosses(value), odd) {
                (false, Some(odd)) => not_a_number(odd),
                (crossed, _) => {
                    let count = numbers
                        .iter()
                        .filter(|(_, value)| comparison.crosses(*value))
                        .count();
                    let message = format!(
                        "{count} of {} values {} {}, {} of {} goes furthest",
                        samples.len(),
                        if count == 1 { "is" } else { "are" },
                        comparison.words(true),
                        comparison.show(value),
                        labels(item)
                    );
                    comparison.reading(crossed, value.as_f64(), message)
                }
            }
        }
        _ if by_all => {
            let (item, value) = comparison.extreme(&numbers, false);
            match (comparison.crosses(value), odd) {
                (true, Some(odd)) => not_a_number(odd),
                (crossed, _) => {
                    let message = format!(
                        "{} {} values are {}, {} of {} {}",
                        if crossed { "all" } else { "not all" },
                        samples.len(),
                        comparison.words(true),
                        comparison.show(value),
                        labels(item),
                        if crossed { "goes least far" } else { "is not" }
                    );
                    comparison.reading(crossed, value.as_f64(), message)
                }
            }
        }
        (_, Some(odd)) => not_a_number(odd),
        (numbers, None) => fold(signal, &comparison, numbers),
    }
}

fn one(
    signal: &MetricSignal,
    comparison: &Comparison,
    item: &MetricItem,
    value: Quantity,
) -> Reading {
    let crossed = comparison.crosses(value);
    let object = matches!(signal.metric, Metric::Object { .. });
    if crossed && object && value.is_zero() {
        return Reading::new(
            SignalState::Inconclusive,
            Reason::Inconclusive,
            format!(
                "the value is 0, {}, which proves nothing: prometheus-adapter writes 0 also for \
                 NaN of an object's metric; use an external metric where 0 is to fire",
                comparison.words(true)
            ),
        );
    }
    let message = format!(
        "{} is {}, {}",
        the_value(item),
        comparison.show(value),
        comparison.words(crossed)
    );
    comparison.reading(crossed, value.as_f64(), message)
}

/// The sum, or the average, which is compared without a division.
fn fold(
    signal: &MetricSignal,
    comparison: &Comparison,
    numbers: &[(&MetricItem, Quantity)],
) -> Reading {
    let sum = Quantity::sum(numbers.iter().map(|(_, value)| *value));
    let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    let (word, parts) = match signal.reduce {
        Some(Reduce::Avg) => ("average", count),
        _ => ("sum", 1),
    };
    let crossed = comparison.crosses_as_part(sum, parts);
    let value = sum.as_f64() / f64::from(parts);
    let shown = if parts == 1 {
        comparison.show(sum)
    } else {
        value.to_string()
    };
    let message = format!(
        "the {word} of {count} values is {shown}, {}",
        comparison.words(crossed)
    );
    comparison.reading(crossed, value, message)
}

fn not_a_number((item, text): (&MetricItem, &str)) -> Reading {
    Reading::new(
        SignalState::Inconclusive,
        Reason::Inconclusive,
        format!(
            "{} is {text}, which is what adapters write for NaN and infinity: it proves nothing \
             (a division by zero?)",
            the_value(item)
        ),
    )
}

/// A threshold and its strict, exact comparison.
struct Comparison(Threshold);

impl Comparison {
    fn limit(&self) -> Quantity {
        let (Threshold::Above(limit) | Threshold::Below(limit)) = self.0;
        limit
    }

    fn crosses(&self, value: Quantity) -> bool {
        self.crosses_as_part(value, 1)
    }

    /// Whether one of `parts` equal parts of `sum` crosses.
    fn crosses_as_part(&self, sum: Quantity, parts: u32) -> bool {
        let wanted = match self.0 {
            Threshold::Above(_) => Ordering::Greater,
            Threshold::Below(_) => Ordering::Less,
        };
        sum.cmp(&self.limit().times(parts)) == wanted
    }

    /// The value that goes furthest, or least far, in the direction of crossing.
    /// There is at least one.
    fn extreme<'a>(
        &self,
        numbers: &[(&'a MetricItem, Quantity)],
        furthest: bool,
    ) -> (&'a MetricItem, Quantity) {
        let upwards = matches!(self.0, Threshold::Above(_)) == furthest;
        let mut best = numbers[0];
        for candidate in &numbers[1..] {
            let further = match upwards {
                true => candidate.1 > best.1,
                false => candidate.1 < best.1,
            };
            if further {
                best = *candidate;
            }
        }
        best
    }

    /// "above 100Mi", "not below 0.5"
    fn words(&self, crossed: bool) -> String {
        let not = if crossed { "" } else { "not " };
        let word = match self.0 {
            Threshold::Above(_) => "above",
            Threshold::Below(_) => "below",
        };
        format!("{not}{word} {}", say_quantity(self.limit()))
    }

    /// The value, as a size beside a threshold that is one.
    fn show(&self, value: Quantity) -> String {
        let plain = say_quantity(value);
        match value.to_bytes() {
            Some(bytes) if self.limit().to_string().ends_with('i') => {
                format!("{} ({bytes})", human_bytes(bytes))
            }
            _ => plain,
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

fn the_value(item: &MetricItem) -> String {
    if item.labels.is_empty() {
        "the value".to_owned()
    } else {
        format!("the value of {}", labels(item))
    }
}

/// An item's labels, bounded.
fn labels(item: &MetricItem) -> String {
    let all: Vec<String> = item
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    bounded(&format!("{{{}}}", all.join(", ")), LABELS_CHARS)
}

#[cfg(test)]
mod tests;
