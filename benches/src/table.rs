//! Results as a Markdown table.

use std::fmt::Write as _;

use crate::compare::{Row, Times};
use crate::limit::Limit;

/// Formats min, median and max of every side, and their ratios to the first side by the fastest and by the median round.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| workload | side | min us | median us | max us | x raw, by min | x raw, by median | at most |\n|---|---|---:|---:|---:|---:|---:|---|\n",
    );
    for row in rows {
        let Some(raw) = row.times.first() else { continue };
        for times in &row.times {
            let limit = limits(row, times);
            // Writing to a `String` cannot fail.
            let _: std::fmt::Result = writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} | {limit} |",
                row.label(),
                times.side,
                times.min(),
                times.median(),
                times.max(),
                ratio(times, raw, Times::min),
                ratio(times, raw, Times::median),
            );
        }
    }
    text
}

fn limits(row: &Row, times: &Times) -> String {
    let limits = Limit::of(row.workload, row.part, &times.side).iter();
    let words = limits.filter_map(|limit| {
        let verdict = if limit.is_kept(row, times)? {
            "met"
        } else {
            "**missed**"
        };
        Some(format!("{limit}: {verdict}"))
    });
    words.collect::<Vec<_>>().join("; ")
}

fn ratio(times: &Times, raw: &Times, which: impl Fn(&Times) -> f64) -> f64 {
    which(times) / which(raw)
}
