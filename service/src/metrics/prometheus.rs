//! Metrics in Prometheus' text format.

use std::fmt::Write;

use super::metric::Kind;
use super::series::{Histogram, Labels, Sample, Series};

/// The format's media type.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Formats all metrics, each family with its help and type.
pub(crate) fn text(series: &Series) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _written = write(&mut text, series);
    text
}

fn write(text: &mut String, series: &Series) -> std::fmt::Result {
    for (id, series) in series.iter() {
        let descriptor = id.descriptor();
        let (name, kind) = (descriptor.prometheus(), word(descriptor.kind));
        writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", descriptor.text)?;
        for (labels, sample) in series {
            match (sample, descriptor.kind) {
                (Sample::Counted(histogram), Kind::Histogram(bounds)) => {
                    write_histogram(text, &name, labels, histogram, bounds)?;
                }
                (Sample::Number(number), _) => {
                    text.push_str(&name);
                    write_labels(text, labels, None)?;
                    writeln!(text, " {number}")?;
                }
                (Sample::Counted(_), Kind::Counter | Kind::Gauge) => {}
            }
        }
    }
    Ok(())
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    }
}

/// Writes a histogram. Prometheus buckets are cumulative: each includes the buckets before it.
fn write_histogram(
    text: &mut String,
    name: &str,
    labels: &Labels,
    histogram: &Histogram,
    bounds: &[f64],
) -> std::fmt::Result {
    let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    let mut count = 0;
    for (bound, counted) in bounds.zip(&histogram.counts) {
        count += counted;
        write!(text, "{name}_bucket")?;
        write_labels(text, labels, Some(&bound))?;
        writeln!(text, " {count}")?;
    }
    for (end, value) in [("sum", histogram.sum), ("count", count as f64)] {
        write!(text, "{name}_{end}")?;
        write_labels(text, labels, None)?;
        writeln!(text, " {value}")?;
    }
    Ok(())
}

fn write_labels(text: &mut String, labels: &Labels, bound: Option<&str>) -> std::fmt::Result {
    let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
    let mut before = '{';
    for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        // Names of OpenTelemetry's conventions have dots.
        let name = name.replace('.', "_");
        write!(text, "{before}{name}=\"{value}\"")?;
        before = ',';
    }
    if before == ',' {
        text.push('}');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::metric::MetricId;
    use super::*;

    #[test]
    fn a_metric_family_has_help_type_and_samples() {
        let mut series = Series::default();
        let workflow = || vec![("workflow", "a \"b\"\\\n".to_owned())];
        series.add(MetricId::RunsStarted, workflow(), 2.0);
        series.record(MetricId::RunDuration, workflow(), 0.0625);
        series.set(MetricId::OpenStreams, Vec::new(), 3.0);
        let label = r#"workflow="a \"b\"\\\n""#;
        let buckets = [("0.001", 0), ("0.005", 0), ("0.02", 0)].into_iter();
        let later = ["0.1", "0.5", "2", "10", "60", "300", "3600", "+Inf"].map(|bound| (bound, 1));
        let buckets: Vec<String> = buckets
            .chain(later)
            .map(|(bound, count)| format!("pirn_run_duration_seconds_bucket{{{label},le=\"{bound}\"}} {count}\n"))
            .collect();
        let buckets = buckets.concat();
        let expected = format!(
            "# HELP pirn_runs_started_total Runs started, by workflow\n# TYPE pirn_runs_started_total counter\n\
             pirn_runs_started_total{{{label}}} 2\n\
             # HELP pirn_run_duration_seconds Time from a run's start to its end\n\
             # TYPE pirn_run_duration_seconds histogram\n{buckets}\
             pirn_run_duration_seconds_sum{{{label}}} 0.0625\npirn_run_duration_seconds_count{{{label}}} 1\n\
             # HELP pirn_streams_open Open event streams\n# TYPE pirn_streams_open gauge\npirn_streams_open 3\n"
        );
        assert_eq!(text(&series), expected);
    }
}
