//! Results as a Markdown table.

use std::fmt::Write as _;

use crate::limit::Limit;
use crate::processes::Measured;

/// Formats the median time of every side, and its ratios to the first side: the median of the processes, the smallest and the
/// largest.
pub fn markdown(all: &[Measured]) -> String {
    let mut text = String::from(
        "| workload | side | median us | x raw | x raw, of all processes | at most |\n|---|---|---:|---:|---:|---|\n",
    );
    for measured in all {
        for side in measured.sides() {
            let Some(ratios) = measured.ratios_to_raw(side) else {
                continue;
            };
            // Writing to a `String` cannot fail.
            let _: std::fmt::Result = writeln!(
                text,
                "| {} | {side} | {:.1} | {:.2} | {:.2} to {:.2} | {} |",
                measured.label(),
                measured.median(side),
                ratios.median,
                ratios.low,
                ratios.high,
                limits(measured, side),
            );
        }
    }
    text
}

fn limits(measured: &Measured, side: &str) -> String {
    let limits = Limit::of(measured.workload(), measured.part(), side).iter();
    let words = limits.filter_map(|limit| {
        let verdict = if limit.is_kept(measured, side)? {
            "met"
        } else {
            "**missed**"
        };
        Some(format!("{limit}: {verdict}"))
    });
    words.collect::<Vec<_>>().join("; ")
}
