//! Values of the metrics of the last 15 minutes, for charts.
//!
//! Samples are taken at an interval; a point is `None` if a sample was missed or lacks the series. The memory is limited: a number of
//! points, and of series for each metric.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use super::metric::{Kind, MetricId};
use super::series::{Labels, Sample, Series};

/// Time that the points cover.
const SPAN: Duration = Duration::from_mins(15);

/// Maximum number of points of a series.
const MAX_POINTS: u64 = 900;

/// Maximum number of series of a metric; further ones are left out.
const MAX_LINES: usize = 50;

/// The recent values of all metrics.
pub(crate) struct RecentMetrics {
    interval_ms: u64,
    points: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of the last sample: its time divided by the interval.
    last: Option<u64>,
    /// Number of points that each line has.
    length: usize,
    lines: BTreeMap<MetricId, BTreeMap<(Part, Labels), VecDeque<f64>>>,
    omitted: usize,
}

/// The figure of a series that a line shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Value,
    /// Number of values of a histogram.
    Count,
    /// Sum of the values of a histogram.
    Sum,
}

impl Part {
    fn suffix(self) -> &'static str {
        match self {
            Self::Value => "",
            Self::Count => "_count",
            Self::Sum => "_sum",
        }
    }
}

/// Values of metrics at equal intervals.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MetricHistory {
    /// Time between two points in milliseconds.
    interval_ms: u64,
    /// Time of the first point, in milliseconds since the Unix epoch.
    from: u64,
    /// The series of `/metrics`; a histogram has two, its count and its sum.
    series: Vec<MetricLine>,
    /// Number of series that are left out, because a metric has more than 50.
    omitted: usize,
}

/// A series of values.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MetricLine {
    /// Name, as in `/metrics`.
    name: String,
    /// `counter` for a value that only increases, `gauge` for any other.
    kind: &'static str,
    labels: BTreeMap<&'static str, String>,
    /// `s` for seconds, otherwise the counted thing.
    unit: &'static str,
    /// Values, oldest first; null if there was none.
    points: Vec<Option<f64>>,
}

impl RecentMetrics {
    pub(crate) fn new(interval: Duration) -> Self {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(10);
        let points = (SPAN.as_millis() as u64 / interval_ms).clamp(1, MAX_POINTS);
        Self {
            interval_ms,
            points: points as usize,
            state: Mutex::default(),
        }
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Adds a sample, taken at this time in milliseconds since the Unix epoch.
    pub(crate) fn push(&self, at: u64, series: &Series) {
        let number = at / self.interval_ms;
        let mut state = self.state();
        let missed = match state.last {
            // Two samples in one interval, or a clock that was set back: the first one stays.
            Some(last) if number <= last => return,
            Some(last) => number - last - 1,
            None => 0,
        };
        // After a long suspension all points are empty, however long it was.
        for _ in 0..missed.min(self.points as u64) {
            state.extend(self.points, None);
        }
        state.extend(self.points, Some(series));
        state.last = Some(number);
    }

    pub(crate) fn shown(&self, now: u64) -> MetricHistory {
        let state = self.state();
        let first = state.last.map(|last| (last + 1).saturating_sub(state.length as u64));
        let lines = state
            .lines
            .iter()
            .flat_map(|(id, lines)| lines.iter().map(|line| (*id, line)));
        MetricHistory {
            interval_ms: self.interval_ms,
            from: first.map_or(now, |first| first * self.interval_ms),
            series: lines
                .map(|(id, ((part, labels), points))| line(id, *part, labels, points))
                .collect(),
            omitted: state.omitted,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a point to every line: from a sample, or an empty one.
    fn extend(&mut self, most: usize, series: Option<&Series>) {
        for points in self.lines.values_mut().flat_map(BTreeMap::values_mut) {
            points.push_back(f64::NAN);
        }
        let length = self.length;
        self.omitted = 0;
        for (id, samples) in series.into_iter().flat_map(Series::iter) {
            let lines = self.lines.entry(id).or_default();
            for (labels, sample) in samples {
                for (part, value) in figures(sample) {
                    let key = (part, labels.clone());
                    if !lines.contains_key(&key) && lines.len() >= MAX_LINES {
                        self.omitted += 1;
                        continue;
                    }
                    let empty = || std::iter::repeat_n(f64::NAN, length + 1).collect();
                    if let Some(last) = lines.entry(key).or_insert_with(empty).back_mut() {
                        *last = value;
                    }
                }
            }
        }
        self.length = (length + 1).min(most);
        for lines in self.lines.values_mut() {
            for points in lines.values_mut() {
                while points.len() > most {
                    points.pop_front();
                }
            }
            // A series that has no value any more makes room for another.
            lines.retain(|_, points| points.iter().any(|point| !point.is_nan()));
        }
    }
}

fn figures(sample: &Sample) -> Vec<(Part, f64)> {
    match sample {
        Sample::Number(number) => vec![(Part::Value, *number)],
        Sample::Counted(histogram) => {
            let count: u64 = histogram.counts.iter().sum();
            vec![(Part::Count, count as f64), (Part::Sum, histogram.sum)]
        }
    }
}

fn line(id: MetricId, part: Part, labels: &Labels, points: &VecDeque<f64>) -> MetricLine {
    let descriptor = id.descriptor();
    let unit = if part == Part::Count { "" } else { descriptor.unit };
    MetricLine {
        name: format!("{}{}", descriptor.prometheus(), part.suffix()),
        kind: if descriptor.kind == Kind::Gauge {
            "gauge"
        } else {
            "counter"
        },
        labels: labels.iter().map(|(name, value)| (*name, value.clone())).collect(),
        unit: unit.trim_matches(['{', '}']),
        points: points
            .iter()
            .map(|point| Some(*point).filter(|point| !point.is_nan()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(runs: f64) -> Series {
        let mut series = Series::default();
        series.set(MetricId::RunsLive, Vec::new(), runs);
        series
    }

    fn points(recent: &RecentMetrics) -> (u64, Vec<Option<f64>>) {
        let shown = recent.shown(0);
        (
            shown.from,
            shown
                .series
                .into_iter()
                .next()
                .map(|line| line.points)
                .unwrap_or_default(),
        )
    }

    #[test]
    fn points_have_equal_intervals_and_missed_ones_are_empty() {
        let recent = RecentMetrics::new(Duration::from_secs(5));
        assert_eq!(points(&recent), (0, Vec::new()));
        recent.push(100_000, &Series::default());
        for (at, runs) in [
            (105_100, 1.0),
            (105_200, 9.0),
            (110_000, 2.0),
            (125_000, 3.0),
            (90_000, 9.0),
        ] {
            recent.push(at, &live(runs));
        }
        let expected = [None, Some(1.0), Some(2.0), None, None, Some(3.0)];
        assert_eq!(points(&recent), (100_000, expected.to_vec()));
    }

    #[test]
    fn only_the_last_15_minutes_are_retained() {
        let recent = RecentMetrics::new(Duration::from_secs(5));
        for sample in 0..1_000_u64 {
            recent.push(sample * 5_000, &live(sample as f64));
        }
        let (from, all) = points(&recent);
        assert_eq!((from, all.len(), all[0]), (820 * 5_000, 180, Some(820.0)));
        recent.push(u64::MAX / 2, &live(7.0));
        let (_, all) = points(&recent);
        assert_eq!(all.iter().flatten().collect::<Vec<_>>(), [&7.0]);
        assert_eq!(RecentMetrics::new(Duration::ZERO).points as u64, MAX_POINTS);
    }

    #[test]
    fn a_metric_with_many_labels_shows_some_and_counts_the_rest() {
        let recent = RecentMetrics::new(Duration::from_secs(5));
        let mut series = live(1.0);
        for number in 0..200 {
            series.add(MetricId::RunsStarted, vec![("workflow", format!("w-{number}"))], 1.0);
        }
        series.record(MetricId::RunDuration, Vec::new(), 0.5);
        for sample in 0..20 {
            recent.push(sample * 5_000, &series);
        }
        let shown = recent.shown(0);
        assert_eq!(shown.omitted, 150);
        let names: Vec<&str> = shown.series.iter().map(|line| &*line.name).collect();
        assert_eq!(
            names.iter().filter(|name| **name == "pirn_runs_started_total").count(),
            MAX_LINES
        );
        assert!(names.contains(&"pirn_run_duration_seconds_count") && names.contains(&"pirn_run_duration_seconds_sum"));
    }
}
