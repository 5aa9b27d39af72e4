//! One answer for many clusters: each is judged by the series that its label
//! value marks as its own.
//!
//! The question is asked once for all of them, and its answer is taken apart once.
//! What is asked besides (whether series exist, and how old their samples are) is
//! asked by that label too, so that one question serves all clusters.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::{
    Doubts, Failure, PrometheusSource, SampleAge, asks_for_presence, inconclusive, sole_number,
    unknown_age,
};
use crate::core::fleet::{Split, Unmatched};
use crate::core::signal::{Presence, PrometheusSignal, Reading, SignalState, judge};

/// An answer taken apart, or why there is none.
pub(super) type SplitAnswer = Result<Split, Failure>;

impl PrometheusSource {
    /// As [`PrometheusSource::read`], on those series alone whose `label` has `value`.
    pub async fn read_of(
        &self,
        signal: &PrometheusSignal,
        label: &str,
        value: &str,
        asked_at: Timestamp,
        need_sample_age: bool,
    ) -> Reading {
        let split = self.split(signal.query.text(), label, asked_at).await;
        let mut answer = match split.as_ref() {
            Ok(split) => split.of(value),
            Err(failure) => return failure.reading(),
        };
        let mut presence = Presence::Unasked;
        if asks_for_presence(signal, &answer) {
            match self.presence_of(signal, label, value, asked_at).await {
                Ok((found, doubts)) => {
                    presence = found;
                    answer.warnings.extend(doubts.warnings);
                    answer.partial |= doubts.partial;
                }
                Err(reading) => return reading,
            }
        }
        let reading = judge(signal, &answer, presence);
        if need_sample_age && reading.state == SignalState::Firing {
            self.age_of(reading, signal, label, value, asked_at).await
        } else {
            reading
        }
    }

    /// The series of the signal's query that are about none of the `known` values;
    /// `None` without a usable answer.
    pub async fn unmatched(
        &self,
        signal: &PrometheusSignal,
        label: &str,
        known: &BTreeSet<&str>,
        asked_at: Timestamp,
    ) -> Option<Unmatched> {
        let split = self.split(signal.query.text(), label, asked_at).await;
        split
            .as_ref()
            .as_ref()
            .ok()
            .map(|split| split.unmatched(known))
    }

    /// The answer to a query, taken apart by a label, once for all who ask.
    async fn split(&self, query: &str, label: &str, asked_at: Timestamp) -> Arc<SplitAnswer> {
        let question = format!("{label}\n{query}");
        let obtained = self
            .splits
            .get(&question, asked_at, || async {
                let obtained = self.obtain(query, asked_at).await;
                let split = obtained.answer.as_ref().as_ref();
                let split = split.map(|answer| Split::new(answer, label));
                (obtained.sent_at, split.map_err(Clone::clone))
            })
            .await;
        if obtained.shared {
            self.http.counters().shared();
        }
        obtained.answer
    }

    /// S02 for one cluster: its series are there when each expression has some that
    /// are its own or everybody's, and one has some of its own.
    async fn presence_of(
        &self,
        signal: &PrometheusSignal,
        label: &str,
        value: &str,
        asked_at: Timestamp,
    ) -> Result<(Presence, Doubts), Reading> {
        let mut doubts = Doubts::default();
        let (mut own, mut missing) = (false, false);
        for expression in signal.query.presence() {
            let query = format!("group by ({}) ({expression})", by(label));
            let split = self.split(&query, label, asked_at).await;
            match split.as_ref() {
                Ok(split) => {
                    let has = split.has(value);
                    own |= has;
                    if !has && !split.has_unlabelled() {
                        missing = true;
                    }
                    if !has {
                        let answer = split.of(value);
                        doubts.warnings.extend(answer.warnings);
                        doubts.partial |= answer.partial;
                    }
                }
                Err(failure) if failure.reason.is_configuration() => {
                    return Err(inconclusive(format!(
                        "the query returned no series of {value:?}, and whether the series it speaks about exist \
                         cannot be found out: {}",
                        failure.message
                    )));
                }
                Err(failure) => return Err(failure.reading()),
            }
        }
        // A query of nothing but `ALERTS` has nothing to look behind.
        let presence = if (own && !missing) || signal.query.presence().is_empty() {
            Presence::Present
        } else {
            Presence::Absent
        };
        Ok((presence, doubts))
    }

    /// S37 for one cluster, by its own samples and those that are everybody's.
    async fn age_of(
        &self,
        reading: Reading,
        signal: &PrometheusSignal,
        label: &str,
        value: &str,
        asked_at: Timestamp,
    ) -> Reading {
        let mut age = SampleAge::default();
        for selector in signal.query.selectors() {
            let query = format!("min by ({}) (timestamp({selector}))", by(label));
            let split = self.split(&query, label, asked_at).await;
            match split.as_ref() {
                Ok(split) => {
                    for answer in [split.of(value), split.of_all()] {
                        age.add(sole_number(&answer));
                    }
                }
                Err(failure) => return unknown_age(failure, &reading),
            }
        }
        Reading {
            sampled_at: age.on_our_clock(self.http.skew()),
            ..reading
        }
    }
}

/// A label as PromQL takes it; Prometheus 3 also takes any text in quotes.
fn by(label: &str) -> String {
    let plain = label
        .chars()
        .enumerate()
        .all(|(place, c)| c == '_' || c.is_ascii_alphabetic() || (place > 0 && c.is_ascii_digit()));
    if plain {
        label.to_owned()
    } else {
        format!("{label:?}")
    }
}
