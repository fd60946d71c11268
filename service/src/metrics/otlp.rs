//! Conversion of metrics to OTLP.

use std::time::{SystemTime, UNIX_EPOCH};

use pirn_otel::opentelemetry_proto::tonic::common::v1::any_value::Value;
use pirn_otel::opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use pirn_otel::opentelemetry_proto::tonic::metrics::v1::metric::Data;
use pirn_otel::opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use pirn_otel::opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

use super::metric::{Kind, MetricId};
use super::series::{Labels, Sample, Series};

/// Sums are cumulative: the next message makes up for one that was lost.
const WHOLE: i32 = AggregationTemporality::Cumulative as i32;

/// Nanoseconds since the Unix epoch.
type Nanos = u64;

/// Converts the values that were counted since `since`, at `now`.
pub(crate) fn metrics(series: &Series, since: SystemTime, now: SystemTime) -> Vec<Metric> {
    let times = (nanos(since), nanos(now));
    let series = series.iter();
    series.map(|(id, series)| metric(id, series, times)).collect()
}

fn nanos(time: SystemTime) -> Nanos {
    // A clock before 1970 is treated as 1970.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn metric<'a>(
    id: MetricId,
    series: impl IntoIterator<Item = (&'a Labels, &'a Sample)>,
    times: (Nanos, Nanos),
) -> Metric {
    let descriptor = id.descriptor();
    let series = series.into_iter();
    let data = match descriptor.kind {
        Kind::Counter => Data::Sum(Sum {
            data_points: numbers(series, times),
            aggregation_temporality: WHOLE,
            is_monotonic: true,
        }),
        Kind::Gauge => Data::Gauge(Gauge {
            data_points: numbers(series, times),
        }),
        Kind::Histogram(bounds) => Data::Histogram(Histogram {
            data_points: series
                .filter_map(|(labels, sample)| counted(labels, sample, bounds, times))
                .collect(),
            aggregation_temporality: WHOLE,
        }),
    };
    Metric {
        name: descriptor.name.to_owned(),
        description: descriptor.text.to_owned(),
        unit: descriptor.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn numbers<'a>(
    series: impl Iterator<Item = (&'a Labels, &'a Sample)>,
    (since, now): (Nanos, Nanos),
) -> Vec<NumberDataPoint> {
    let point = |(labels, sample): (&Labels, &Sample)| match sample {
        Sample::Number(number) => Some(NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: since,
            time_unix_nano: now,
            value: Some(Number::AsDouble(*number)),
            ..NumberDataPoint::default()
        }),
        Sample::Counted(_) => None,
    };
    series.filter_map(point).collect()
}

fn counted(
    labels: &Labels,
    sample: &Sample,
    bounds: &[f64],
    (since, now): (Nanos, Nanos),
) -> Option<HistogramDataPoint> {
    let Sample::Counted(histogram) = sample else {
        return None;
    };
    Some(HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: since,
        time_unix_nano: now,
        count: histogram.counts.iter().sum(),
        sum: Some(histogram.sum),
        bucket_counts: histogram.counts.clone(),
        explicit_bounds: bounds.to_vec(),
        ..HistogramDataPoint::default()
    })
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    let attribute = |(name, value): &(&str, String)| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.clone())),
        }),
        ..KeyValue::default()
    };
    labels.iter().map(attribute).collect()
}
