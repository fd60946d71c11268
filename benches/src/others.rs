//! Comparison with peers that are not written in Rust: each prints JSON lines, Pirn adds its lines, and a table is made of all.
//!
//! A line has `peer`, `w` (the workload and its variant), a size (`k`, `n` or `n_slow`), and milliseconds:
//! `run_ms_med`, or the smaller one of `sync_ms_med` and `async_ms_med`, or `decision_ms`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::compare::{self, Times};
use crate::sides::{Spin, pirn};
use crate::{Side, Workload};

/// Workloads of the peers' programs.
const WORKLOADS: [Workload; 6] = [
    Workload::Chain(1_000),
    Workload::Fork(8),
    Workload::Fork(100),
    Workload::Fork(1_000),
    Workload::Any(100),
    Workload::Talk(100),
];

/// Measures Pirn on the peers' workloads, all rounds once.
pub async fn own_lines() -> Vec<Value> {
    let mut lines = Vec::new();
    for workload in WORKLOADS {
        let side: Side = pirn::side(&[workload], Spin::none(), false);
        for row in compare::measure(workload, &[&side]).await {
            let median = row.times.first().map_or(f64::NAN, Times::median) / 1e3;
            lines.extend(match (workload, &*row.part) {
                (Workload::Chain(k), _) => Some(json!({"peer": "pirn", "w": "W1_chain", "k": k, "run_ms_med": median})),
                (Workload::Fork(n), _) => {
                    Some(json!({"peer": "pirn", "w": "W2_fork_all", "n": n, "run_ms_med": median}))
                }
                (Workload::Any(n), "decided") => Some(
                    // The workload asserts that all losers were stopped.
                    json!({"peer": "pirn", "w": "W3_any", "n_slow": n, "decision_ms": median, "slow_ran_to_end": 0}),
                ),
                (Workload::Talk(n), _) => {
                    Some(json!({"peer": "pirn", "w": "W4_convo_fork", "n": n, "run_ms_med": median}))
                }
                (
                    Workload::Map(_)
                    | Workload::Any(_)
                    | Workload::History(_)
                    | Workload::Events(_)
                    | Workload::Cpu(_)
                    | Workload::Runs(_),
                    _,
                ) => None,
            });
        }
    }
    lines
}

/// Fastest times of one side on a workload.
struct Measured {
    workload: Workload,
    side: String,
    least_ms: f64,
    ran_on: Option<u64>,
}

/// Returns the table of JSON lines: workload by workload, Pirn first.
///
/// # Errors
/// Message with the number of the first line that is malformed.
pub fn table(lines: &str) -> Result<String, String> {
    let mut measured: Vec<Measured> = Vec::new();
    for (number, line) in lines.lines().enumerate() {
        let line = serde_json::from_str(line).ok();
        let new = line.as_ref().and_then(read);
        let new = new.ok_or_else(|| format!("line {} is not one of a peer's", number + 1))?;
        let same = |old: &&mut Measured| old.workload == new.workload && old.side == new.side;
        match measured.iter_mut().find(same) {
            Some(old) => old.least_ms = old.least_ms.min(new.least_ms),
            None => measured.push(new),
        }
    }
    let mut text =
        String::from("| workload | side | ms | x Pirn | losers that ran to their end |\n|---|---|---:|---:|---:|\n");
    for workload in WORKLOADS {
        let of_it = |side: &&Measured| side.workload == workload;
        let Some(pirn) = measured.iter().filter(of_it).find(|side| side.side == "pirn") else {
            continue;
        };
        let others = measured.iter().filter(of_it).filter(|side| side.side != "pirn");
        for side in std::iter::once(pirn).chain(others) {
            let ratio = side.least_ms / pirn.least_ms;
            let ran_on = side.ran_on.map(|losers| losers.to_string()).unwrap_or_default();
            // Writing to a `String` cannot fail.
            let _: std::fmt::Result = writeln!(
                text,
                "| {} | {} | {:.3} | {ratio:.1} | {ran_on} |",
                workload.label(),
                side.side,
                side.least_ms
            );
        }
    }
    Ok(text)
}

fn read(line: &Value) -> Option<Measured> {
    let written = line["w"].as_str()?;
    let count = |name: &str| usize::try_from(line[name].as_u64()?).ok();
    let (workload, how) = match written.split('_').collect::<Vec<_>>()[..] {
        ["W1", how] => (Workload::Chain(count("k")?), how),
        ["W2", "fork", "all"] => (Workload::Fork(count("n")?), ""),
        ["W2", "fork", "all", how] => (Workload::Fork(count("n")?), how),
        ["W3", "any", ..] => (Workload::Any(count("n_slow")?), ""),
        ["W4", "convo", "fork", ..] => (Workload::Talk(count("n")?), ""),
        _ => return None,
    };
    let times = ["run_ms_med", "sync_ms_med", "async_ms_med", "decision_ms"];
    let least_ms = times.iter().filter_map(|name| line[*name].as_f64()).reduce(f64::min)?;
    let peer = line["peer"].as_str()?;
    let side = match how {
        "" | "chain" => peer.to_owned(),
        how => format!("{peer}, {how}"),
    };
    let ran_on = line["slow_ran_to_end"].as_u64();
    Some(Measured {
        workload,
        side,
        least_ms,
        ran_on,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_the_fastest_round_of_each_peer_next_to_pirn() {
        let lines = [
            json!({"peer": "slow 1.0", "w": "W2_fork_all_send", "n": 8, "sync_ms_med": 9.0, "async_ms_med": 5.0}),
            json!({"peer": "pirn", "w": "W2_fork_all", "n": 8, "run_ms_med": 0.5}),
            json!({"peer": "slow 1.0", "w": "W2_fork_all_send", "n": 8, "sync_ms_med": 4.0, "async_ms_med": 7.0}),
            json!({"peer": "slow 1.0", "w": "W3_any_native", "n_slow": 100, "decision_ms": 1000.0, "slow_ran_to_end": 100}),
            json!({"peer": "pirn", "w": "W3_any", "n_slow": 100, "decision_ms": 0.1, "slow_ran_to_end": 0}),
        ];
        let text = lines.map(|line| line.to_string()).join("\n");
        let rows: Vec<String> = table(&text)
            .expect("every line is valid")
            .lines()
            .skip(2)
            .map(str::to_owned)
            .collect();
        assert_eq!(
            rows,
            [
                "| W2 fork 8, join ALL | pirn | 0.500 | 1.0 |  |",
                "| W2 fork 8, join ALL | slow 1.0, send | 4.000 | 8.0 |  |",
                "| W3 ANY, 100 sleeping losers | pirn | 0.100 | 1.0 | 0 |",
                "| W3 ANY, 100 sleeping losers | slow 1.0 | 1000.000 | 10000.0 | 100 |",
            ]
        );
        assert_eq!(table("{}"), Err("line 1 is not one of a peer's".to_owned()));
    }
}
