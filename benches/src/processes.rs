//! A workload measured in several processes, one after another.
//!
//! The layout of a process's memory and the placement of its threads favour one side or another for as long as the process lives.
//! So one process yields a ratio that more rounds do not correct.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::Workload;
use crate::compare::{Row, Times};

/// Number of processes, unless `PIRN_BENCH_PROCESSES` sets another.
const PROCESSES: usize = 5;

/// A workload, or a part of it: its rows of all processes. Every row has the same sides.
#[derive(Clone, Debug)]
pub struct Measured {
    /// One row for each process.
    pub rows: Vec<Row>,
}

/// Ratios of two sides, one for each process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// Smallest ratio.
    pub low: f64,
    /// Median ratio.
    pub median: f64,
    /// Largest ratio.
    pub high: f64,
}

impl Measured {
    /// Returns the workload.
    pub fn workload(&self) -> Workload {
        self.rows[0].workload
    }

    /// Returns the part of the workload; empty for all of it.
    pub fn part(&self) -> &str {
        &self.rows[0].part
    }

    /// Returns the label of the row.
    pub fn label(&self) -> String {
        self.rows[0].label()
    }

    /// Returns the names of the sides: raw tokio first, Pirn second.
    pub fn sides(&self) -> impl Iterator<Item = &str> {
        self.rows[0].times.iter().map(|times| &*times.side)
    }

    /// Returns the median of the processes' medians in microseconds.
    pub fn median(&self, side: &str) -> f64 {
        let medians = self.rows.iter().filter_map(|row| row.side(side)).map(Times::median);
        Times::of(side, medians.collect()).median()
    }

    /// Returns the ratios of the fastest rounds of two sides; `None` if one of them was not measured.
    pub fn ratios(&self, side: &str, to: &str) -> Option<Ratios> {
        let of_row = |row: &Row| Some(row.side(side)?.min() / row.side(to)?.min());
        let ratios: Option<Vec<f64>> = self.rows.iter().map(of_row).collect();
        let ratios = Times::of(side, ratios?);
        Some(Ratios {
            low: ratios.min(),
            median: ratios.median(),
            high: ratios.max(),
        })
    }

    /// Returns the ratios of a side to raw tokio.
    pub fn ratios_to_raw(&self, side: &str) -> Option<Ratios> {
        self.ratios(side, self.sides().next()?)
    }
}

/// Measures a workload in processes of this program. Returns its parts.
///
/// # Errors
/// Fails if a process cannot be started, or fails.
pub fn measure(workload: Workload) -> std::io::Result<Vec<Measured>> {
    let count = std::env::var("PIRN_BENCH_PROCESSES")
        .ok()
        .and_then(|count| count.parse().ok());
    let mut parts: Vec<Measured> = Vec::new();
    for _ in 0..count.unwrap_or(PROCESSES).max(1) {
        let (name, size) = workload.words();
        let output = Command::new(std::env::current_exe()?)
            .args(["samples", name, &size.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(std::io::Error::other(format!(
                "{} ended with {}",
                workload.label(),
                output.status
            )));
        }
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout)?;
        for row in rows.iter().map(|row| row_of(workload, row)) {
            match parts.iter_mut().find(|part| part.part() == row.part) {
                Some(part) => part.rows.push(row),
                None => parts.push(Measured { rows: vec![row] }),
            }
        }
    }
    Ok(parts)
}

/// Returns the rows of one process as JSON, which [`measure`] reads.
pub fn rows_to_json(rows: &[Row]) -> Value {
    let shown = rows.iter().map(|row| {
        let times = row
            .times
            .iter()
            .map(|times| json!({"side": times.side, "us": times.us}));
        json!({"part": row.part, "times": times.collect::<Vec<_>>()})
    });
    shown.collect()
}

fn row_of(workload: Workload, row: &Value) -> Row {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let times = row["times"].as_array().into_iter().flatten().map(|times| {
        let us = times["us"].as_array().into_iter().flatten();
        Times::of(&text(&times["side"]), us.filter_map(Value::as_f64).collect())
    });
    Row {
        workload,
        part: text(&row["part"]),
        times: times.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_read_from_json_equals_the_measured_one_and_ratios_are_per_process() {
        let row = |raw: f64, pirn: f64| Row {
            workload: Workload::Any(3),
            part: "decided".to_owned(),
            times: vec![
                Times::of("raw tokio", vec![raw, raw + 1.0]),
                Times::of("pirn", vec![9.0 * pirn, pirn]),
            ],
        };
        let rows = [row(1.0, 2.0), row(10.0, 5.0), row(4.0, 4.0)];
        let read: Vec<Row> = rows_to_json(&rows)
            .as_array()
            .into_iter()
            .flatten()
            .map(|json| row_of(Workload::Any(3), json))
            .collect();
        assert_eq!(read, rows);
        let measured = Measured { rows: read };
        let ratios = Ratios {
            low: 0.5,
            median: 1.0,
            high: 2.0,
        };
        assert_eq!(measured.ratios_to_raw("pirn"), Some(ratios));
        assert_eq!(measured.ratios("pirn", "graph-flow"), None);
        assert_eq!(format!("{:.1}", measured.median("raw tokio")), "5.0");
    }
}
