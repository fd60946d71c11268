//! Arguments of the benchmark programs.
//!
//! - no arguments: all workloads on Pirn, raw tokio and the other sides of the program, each in five processes
//!   (`PIRN_BENCH_PROCESSES`); prints the table
//! - `once WORKLOAD SIZE ROUNDS`: a workload on Pirn only, for a profiler; 0 rounds only prepares
//! - `count WORKLOAD SIZE ROUNDS`: like `once`, on one thread under a virtual clock, for counting instructions
//! - `local WORKLOAD SIZE ROUNDS`: like `once`, on the measuring thread
//! - `beside WORKLOAD SIZE ROUNDS`: like `once`, on the other sides of the program
//! - `row WORKLOAD SIZE`: the table rows of one workload
//! - `samples WORKLOAD SIZE`: one process of a row, as JSON
//! - `memory threads|runs COUNT`: size of a waiting thread or run in bytes
//! - `command PIRN FOLDER`: the binary PIRN as a process: cold start, and validation of a large file
//! - `peer`: the workloads of the peers in other languages on Pirn, as JSON lines in the peers' format
//! - `others FILE`: a table of such lines
//!
//! `memory` and `command` print rows of a Markdown table: name, measured value, limit.

use std::io::Write as _;

use crate::sides::{Spin, local, pirn::Bench};
use crate::{Side, Workload, command, memory, others, processes, report};

/// Executes the command line. `beside` are sides other than Pirn and raw tokio.
///
/// # Errors
/// Fails if the arguments are invalid, or something cannot be measured or written.
#[allow(clippy::disallowed_methods)] // a benchmark has no host port
pub fn main(beside: Vec<Side>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut out = std::io::stdout();
    match words[..] {
        [] => report::run(Workload::ALL.to_vec()),
        ["samples", workload, size] => {
            let workload = named(workload, number(size)?)?;
            let rows = runtime
                .block_on(async { tokio::spawn(async move { report::samples(workload, &beside).await }).await? })?;
            writeln!(out, "{}", processes::rows_to_json(&rows))
        }
        ["once", workload, size, rounds] => {
            let workload = named(workload, number(size)?)?;
            let rounds = number(rounds)?;
            let spin = match workload {
                Workload::Cpu(_) => Spin::calibrated(),
                _ => Spin::none(),
            };
            runtime.block_on(async {
                let bench = Bench::new(&[workload], spin);
                let times = tokio::spawn(times(bench, workload, rounds)).await?;
                writeln!(out, "{times:.1?}")
            })
        }
        ["count", workload, size, rounds] => {
            let workload = named(workload, number(size)?)?;
            let rounds = number(rounds)?;
            let times = runtime.block_on(async { times(Bench::counted(&[workload]), workload, rounds).await });
            writeln!(out, "{times:.1?}")
        }
        ["local", workload, size, rounds] => {
            let samples = local::rounds(named(workload, number(size)?)?, number(rounds)?)?;
            let times: Vec<f64> = samples.into_iter().flatten().flatten().map(|(_, us)| us).collect();
            writeln!(out, "{times:.1?}")
        }
        ["beside", workload, size, rounds] => {
            let (workload, rounds) = (named(workload, number(size)?)?, number(rounds)?);
            runtime.block_on(async {
                let measured = async move {
                    for side in &beside {
                        for _ in 0..rounds {
                            (side.run)(workload).await;
                        }
                    }
                };
                Ok(tokio::spawn(measured).await?)
            })
        }
        ["row", workload, size] => report::run(vec![named(workload, number(size)?)?]),
        ["memory", "threads", count] => {
            let bytes = runtime.block_on(memory::a_thread(number(count)?))?;
            writeln!(
                out,
                "| a waiting thread ({count} in one run) | {bytes:.0} bytes | 2,048 bytes |"
            )
        }
        ["memory", "runs", count] => {
            let bytes = runtime.block_on(memory::a_run(number(count)?))?;
            writeln!(out, "| a waiting run (of {count}) | {bytes:.0} bytes | 4,096 bytes |")
        }
        ["command", pirn, folder] => {
            for (times, most) in command::measure(pirn.as_ref(), folder.as_ref())? {
                let [min, median, max] = [times.min(), times.median(), times.max()].map(|us| us / 1e3);
                writeln!(
                    out,
                    "| {} | {min:.1} / {median:.1} / {max:.1} ms (min / median / max) | {most} ms |",
                    times.side
                )?;
            }
            Ok(())
        }
        ["peer"] => runtime.block_on(async {
            for line in tokio::spawn(others::own_lines()).await? {
                writeln!(out, "{line}")?;
            }
            Ok(())
        }),
        ["others", file] => {
            let table = others::table(&std::fs::read_to_string(file)?);
            write!(out, "{}", table.map_err(|fault| usage(&fault))?)
        }
        _ => Err(usage(
            "once|count|local|beside WORKLOAD SIZE ROUNDS, row|samples WORKLOAD SIZE, memory threads|runs COUNT, command PIRN FOLDER, peer, others FILE, \
             or nothing",
        )),
    }
}

async fn times(bench: Bench, workload: Workload, rounds: usize) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        times.extend(bench.round(workload).await.into_iter().flatten().map(|(_, us)| us));
    }
    times
}

fn named(name: &str, size: usize) -> std::io::Result<Workload> {
    Ok(match name {
        "chain" => Workload::Chain(size),
        "fork" => Workload::Fork(size),
        "map" => Workload::Map(size),
        "any" => Workload::Any(size),
        "talk" => Workload::Talk(size),
        "history" => Workload::History(size),
        "events" => Workload::Events(size),
        "cpu" => Workload::Cpu(size),
        "runs" => Workload::Runs(size),
        _ => {
            return Err(usage(
                "a workload is chain, fork, map, any, talk, history, events, cpu or runs",
            ));
        }
    })
}

/// Parses a size or a number of rounds.
///
/// # Errors
/// Fails if the text is not a whole number.
pub fn number(text: &str) -> std::io::Result<usize> {
    text.parse().map_err(|_| usage("sizes and rounds are whole numbers"))
}

/// Creates the error for invalid arguments.
pub fn usage(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, what)
}
