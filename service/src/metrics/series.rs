//! The values of metrics, by their labels.

use std::collections::BTreeMap;

use super::metric::{Kind, MetricId};

/// The labels of a series: names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Maximum number of series of one metric; further label sets are counted in one additional series, with [`OTHERS`] as each value.
const MAX_SERIES: usize = 2_000;

const OTHERS: &str = "other";

/// A value of a series.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sample {
    Number(f64),
    Counted(Histogram),
}

/// Counts of values by upper bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    /// Number of values above the previous bound and up to each bound; the last entry counts the values above all bounds.
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
}

/// Values of all metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(BTreeMap<MetricId, BTreeMap<Labels, Sample>>);

impl Series {
    /// Adds to a counter.
    pub(super) fn add(&mut self, id: MetricId, labels: Labels, amount: f64) {
        if let Sample::Number(number) = self.sample(id, labels) {
            *number += amount;
        }
    }

    /// Sets the value of a counter or gauge.
    pub(crate) fn set(&mut self, id: MetricId, labels: Labels, value: f64) {
        *self.sample(id, labels) = Sample::Number(value);
    }

    /// Adds a value to a histogram.
    pub(super) fn record(&mut self, id: MetricId, labels: Labels, value: f64) {
        let Kind::Histogram(bounds) = id.descriptor().kind else {
            return;
        };
        if let Sample::Counted(histogram) = self.sample(id, labels) {
            let place = bounds.iter().take_while(|bound| **bound < value).count();
            histogram.counts[place] += 1;
            histogram.sum += value;
        }
    }

    /// Sets a histogram that was counted elsewhere, in the form of [`Histogram`]'s counts.
    pub(crate) fn set_counted(&mut self, id: MetricId, labels: Labels, counts: &[u64], sum: f64) {
        if let Sample::Counted(histogram) = self.sample(id, labels) {
            for (count, value) in histogram.counts.iter_mut().zip(counts) {
                *count = *value;
            }
            histogram.sum = sum;
        }
    }

    /// Iterates over all series, by metric and labels.
    pub(super) fn iter(&self) -> impl Iterator<Item = (MetricId, &BTreeMap<Labels, Sample>)> {
        self.0.iter().map(|(id, series)| (*id, series))
    }

    fn sample(&mut self, id: MetricId, mut labels: Labels) -> &mut Sample {
        let series = self.0.entry(id).or_default();
        if series.len() >= MAX_SERIES && !series.contains_key(&labels) {
            for (_, value) in &mut labels {
                OTHERS.clone_into(value);
            }
        }
        series.entry(labels).or_insert_with(|| match id.descriptor().kind {
            Kind::Counter | Kind::Gauge => Sample::Number(0.0),
            Kind::Histogram(bounds) => Sample::Counted(Histogram {
                counts: vec![0; bounds.len() + 1],
                sum: 0.0,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_over_the_limit_are_counted_in_one_series() {
        let mut series = Series::default();
        let tool = |name: String| vec![("tool", name), ("result", "failed".to_owned())];
        for number in 0..MAX_SERIES + 50 {
            series.add(MetricId::ToolCalls, tool(format!("made-up-{number}")), 1.0);
        }
        series.add(MetricId::ToolCalls, tool("made-up-3".to_owned()), 1.0);
        let (_, calls) = series.iter().next().expect("they were counted");
        assert_eq!(calls.len(), MAX_SERIES + 1);
        assert_eq!(calls[&tool("made-up-3".to_owned())], Sample::Number(2.0));
        let others = vec![("tool", OTHERS.to_owned()), ("result", OTHERS.to_owned())];
        assert_eq!(calls[&others], Sample::Number(50.0));
    }

    #[test]
    fn a_value_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let mut series = Series::default();
        for value in [0.0, 0.001, 0.0011, 5_000.0] {
            series.record(MetricId::RunDuration, Vec::new(), value);
        }
        let (_, runs) = series.iter().next().expect("they were counted");
        let Sample::Counted(histogram) = &runs[&Vec::new()] else {
            panic!("no histogram")
        };
        assert_eq!(histogram.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((histogram.sum - 5_000.002_1).abs() < 1e-9);
    }
}
