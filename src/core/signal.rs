//! What a signal says: five states, never a bare number.

mod judge;
mod metric;

use jiff::Timestamp;

use super::alert::AlertSignal;
use super::promql::PromQuery;
use super::quantity::Quantity;
use super::reason::Reason;
use super::rule::Rule;
pub(super) use judge::say_quantity;
pub use judge::{Answer, AnswerKind, Presence, Series, bounded, judge};
pub use metric::{
    About, DescribedObject, MISSING_TOLERATED, Metric, MetricAnswer, MetricItem, MetricSignal,
    OLDEST, group_of, judge_metric, missing,
};

/// The five states of a signal. Only [`SignalState::Firing`], held for `for`,
/// starts a run; only [`SignalState::NotFiring`] ends a firing episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignalState {
    Firing,
    NotFiring,
    /// The source answered, but nothing speaks about the question.
    NoData,
    /// There is an answer that proves nothing: NaN, ±Inf, warnings.
    Inconclusive,
    /// No usable answer.
    Error,
}

impl SignalState {
    /// The name as it stands in status and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            SignalState::Firing => "Firing",
            SignalState::NotFiring => "NotFiring",
            SignalState::NoData => "NoData",
            SignalState::Inconclusive => "Inconclusive",
            SignalState::Error => "Error",
        }
    }
}

/// One evaluation of a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    pub state: SignalState,
    pub reason: Reason,
    /// The number that was compared, where there is one.
    pub value: Option<f64>,
    /// A sentence for a person; bounded in length.
    pub message: String,
    /// When the newest evidence was sampled at its origin, on this machine's
    /// clock. `None` when the source cannot tell.
    pub sampled_at: Option<Timestamp>,
    /// Since when it has fired by the source's own word, on this machine's clock
    /// and never later than now. `None`: since it was first seen.
    pub firing_since: Option<Timestamp>,
}

impl Reading {
    /// A reading without a number.
    pub fn new(state: SignalState, reason: Reason, message: impl Into<String>) -> Self {
        Reading {
            state,
            reason,
            value: None,
            message: message.into(),
            sampled_at: None,
            firing_since: None,
        }
    }

    /// An [`SignalState::Error`] with its reason.
    pub fn error(reason: Reason, message: impl Into<String>) -> Self {
        Reading::new(SignalState::Error, reason, message)
    }
}

/// The signal of a policy, exactly one.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    Prometheus(PrometheusSignal),
    Metric(MetricSignal),
    Alert(AlertSignal),
    Probe(Rule),
}

/// A PromQL expression, asked of a source that an administrator configured.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusSignal {
    pub source: String,
    pub query: PromQuery,
    /// Absent: the query is read as an alerting rule is, a non-empty vector fires.
    pub threshold: Option<Threshold>,
    pub reduce: Option<Reduce>,
}

/// What a numeric query is compared with; both are strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    Above(Quantity),
    Below(Quantity),
}

/// How several series become one verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// One series that crosses is enough.
    Any,
    /// Every series must cross.
    All,
    Max,
    Min,
    Avg,
    Sum,
}
