//! The results for people: a Markdown table.

use std::fmt::Write as _;

use crate::compare::{Row, Times};

/// min / median / max of every side, and their ratios to the first side by the fastest and by the middle round.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| workload | side | min us | median us | max us | x raw, by min | x raw, by median | limit |\n|---|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let label = format!("{} {}", row.workload.label(), row.part);
        let Some(raw) = row.times.first() else { continue };
        for times in &row.times {
            let limit = row.workload.limit().filter(|_| times.side == "pirn");
            let limit = limit.map_or(String::new(), |limit| limit.to_string());
            // Writing to a text never fails.
            let _: std::fmt::Result = writeln!(
                text,
                "| {} | {} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} | {limit} |",
                label.trim_end(),
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

fn ratio(times: &Times, raw: &Times, which: impl Fn(&Times) -> f64) -> f64 {
    which(times) / which(raw)
}
