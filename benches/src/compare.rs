//! Measures the sides in turns, round by round, so that what disturbs the machine disturbs them all.

use crate::{Side, Workload};

/// The times of one side.
#[derive(Clone, Debug)]
pub struct Times {
    /// The side's name.
    pub side: String,
    /// In microseconds, sorted.
    pub us: Vec<f64>,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload.
    pub workload: Workload,
    /// The part of it that was measured; empty: all of it.
    pub part: &'static str,
    /// The times of the sides, raw tokio first and Pirn second.
    pub times: Vec<Times>,
}

impl Row {
    /// The name of the row, for people.
    pub fn label(&self) -> String {
        match self.part {
            "" => self.workload.label(),
            part => format!("{}: {part}", self.workload.label()),
        }
    }
}

impl Times {
    /// The fastest round.
    pub fn min(&self) -> f64 {
        self.us.first().copied().unwrap_or(f64::NAN)
    }

    /// The middle round.
    pub fn median(&self) -> f64 {
        self.us.get(self.us.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The slowest round.
    pub fn max(&self) -> f64 {
        self.us.last().copied().unwrap_or(f64::NAN)
    }
}

/// Does all of a workload's rounds on every side.
pub async fn measure(workload: Workload, sides: &[&Side]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    // The first round of each warms up.
    for round in 0..=workload.rounds() {
        for side in sides {
            let Some(sample) = (side.run)(workload).await else {
                continue;
            };
            for (part, us) in sample.into_iter().filter(|_| round > 0) {
                let place = rows.iter().position(|row| row.part == part).unwrap_or_else(|| {
                    let times = Vec::new();
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
