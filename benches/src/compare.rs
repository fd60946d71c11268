//! Alternating measurement of the sides, round by round, so that disturbances of the machine affect all of them.

use crate::{Side, Workload};

/// Times of one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Name of the side.
    pub side: String,
    /// Microseconds, sorted.
    pub us: Vec<f64>,
}

/// Row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Measured workload.
    pub workload: Workload,
    /// Measured part of the workload; empty for all of it.
    pub part: String,
    /// Times of the sides: raw tokio first, Pirn second.
    pub times: Vec<Times>,
}

impl Row {
    /// Returns the times of the side whose name starts with `name`, such as `graph-flow` without its version.
    pub fn side(&self, name: &str) -> Option<&Times> {
        let is_whole = |times: &&Times| times.side == name;
        let is_start = |times: &&Times| times.side.starts_with(name);
        // `pirn` is also the start of `pirn, local`.
        self.times
            .iter()
            .find(is_whole)
            .or_else(|| self.times.iter().find(is_start))
    }

    /// Returns the label of the row.
    pub fn label(&self) -> String {
        match &*self.part {
            "" => self.workload.label(),
            part => format!("{}: {part}", self.workload.label()),
        }
    }
}

impl Times {
    /// Creates the times of a side from unsorted microseconds.
    pub fn of(side: &str, mut us: Vec<f64>) -> Self {
        us.sort_by(f64::total_cmp);
        Self {
            side: side.to_owned(),
            us,
        }
    }

    /// Returns the time of the fastest round.
    pub fn min(&self) -> f64 {
        self.us.first().copied().unwrap_or(f64::NAN)
    }

    /// Returns the median.
    pub fn median(&self) -> f64 {
        self.us.get(self.us.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Returns the time of the slowest round.
    pub fn max(&self) -> f64 {
        self.us.last().copied().unwrap_or(f64::NAN)
    }
}

/// Measures all rounds of a process on every side.
pub async fn measure(workload: Workload, sides: &[&Side]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    // The first round of each is a warm-up.
    for round in 0..=workload.rounds() {
        for side in sides {
            let Some(sample) = (side.run)(workload).await else {
                continue;
            };
            for (part, us) in sample.into_iter().filter(|_| round > 0) {
                let place = rows.iter().position(|row| row.part == part).unwrap_or_else(|| {
                    let times = Vec::new();
                    let part = part.to_owned();
                    rows.push(Row { workload, part, times });
                    rows.len() - 1
                });
                let times = &mut rows[place].times;
                match times.iter_mut().find(|times| times.side == side.name) {
                    Some(times) => times.us.push(us),
                    None => times.push(Times {
                        side: side.name.clone(),
                        us: vec![us],
                    }),
                }
            }
        }
    }
    for times in rows.iter_mut().flat_map(|row| &mut row.times) {
        times.us.sort_by(f64::total_cmp);
    }
    rows
}
