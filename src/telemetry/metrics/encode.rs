//! One metric and its series in the OpenMetrics text format.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// One metric.
pub(super) struct Metric {
    /// Without the unit, `_total` and `_info`.
    pub(super) name: &'static str,
    pub(super) unit: Option<&'static str>,
    pub(super) kind: MetricType,
    /// For the documentation's table.
    #[cfg(test)]
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

pub(super) type Done = Result<(), fmt::Error>;

/// Renders one metric after the other; without a series it is left out.
pub(super) struct Writer<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
}

impl<'a, 'b> Writer<'a, 'b> {
    pub(super) fn new(encoder: &'a mut DescriptorEncoder<'b>) -> Self {
        Writer { encoder }
    }

    pub(super) fn metric<'s, L: EncodeLabelSet>(
        &mut self,
        metric: &Metric,
        series: impl IntoIterator<Item = (L, Value<'s>)>,
    ) -> Done {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
        let mut encoder =
            self.encoder
                .encode_descriptor(metric.name, metric.help, unit.as_ref(), metric.kind)?;
        for (labels, value) in series {
            value.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// A metric without labels; absent without a value.
    pub(super) fn single<'s>(
        &mut self,
        metric: &Metric,
        value: impl Into<Option<Value<'s>>>,
    ) -> Done {
        self.metric(metric, value.into().map(|value| (NO_LABELS, value)))
    }
}

const NO_LABELS: [(&str, &str); 0] = [];

/// The value of one series.
pub(super) enum Value<'a> {
    Gauge(f64),
    Counter(u64),
    Seconds(f64),
    Info,
    Histogram(&'a Histogram),
}

impl Value<'_> {
    fn encode(self, mut encoder: MetricEncoder<'_>) -> Done {
        match self {
            Value::Gauge(value) => encoder.encode_gauge(&value),
            Value::Counter(value) => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
            Value::Seconds(value) => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
            Value::Info => encoder.encode_info(&NO_LABELS),
            Value::Histogram(Histogram {
                sum,
                count,
                buckets,
            }) => encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None),
        }
    }
}

/// Counts of observations by bucket.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct Histogram {
    pub(super) sum: f64,
    pub(super) count: u64,
    /// Upper bound and observations in the bucket, not accumulated; the last has
    /// no bound.
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// Empty; `bounds` are in ascending order.
    pub(in crate::telemetry) fn new(bounds: &[f64]) -> Self {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        Histogram {
            sum: 0.0,
            count: 0,
            buckets: bounds.map(|bound| (bound, 0)).collect(),
        }
    }

    pub(in crate::telemetry) fn observe(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        if let Some((_, count)) = self.buckets.iter_mut().find(|(bound, _)| value <= *bound) {
            *count += 1;
        }
    }
}
