//! Prints the table: each workload on Pirn and on raw tokio, in one run, and the ratio.

use std::io::Write as _;
use std::sync::Arc;

use pirn_benches::{median, pirn_side, raw_side};

const ROUNDS: usize = 11;

#[allow(clippy::disallowed_methods)] // a benchmark has no host port
fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let words: Vec<String> = std::env::args().collect();
    if let [_, once, workload, size, rounds] = &words[..]
        && once == "once"
    {
        let (size, rounds) = (size.parse().expect("a size"), rounds.parse().expect("rounds"));
        let workload = workload.clone();
        return runtime
            .block_on(async { tokio::spawn(self::once(workload, size, rounds)).await })
            .map_err(std::io::Error::other);
    }
    // As a spawned task, so that the thread that blocks is not in the way of either side.
    let rows = runtime
        .block_on(async { tokio::spawn(compare()).await })
        .map_err(std::io::Error::other)?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{:<34} {:>12} {:>12} {:>8}",
        "workload", "raw us", "pirn us", "ratio"
    )?;
    for (name, raw, ours) in rows {
        writeln!(out, "{name:<34} {raw:>12.1} {ours:>12.1} {:>8.2}", ours / raw)?;
    }
    Ok(())
}

async fn compare() -> Vec<(String, f64, f64)> {
    let forks = [8, 100, 1_000, 10_000];
    let engine = pirn_side::engine(1_000, &forks, 10);
    let mut rows = Vec::new();
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        raw.push(raw_side::chain(1_000).await);
        ours.push(pirn_side::run(&engine, "chain").await);
    }
    rows.push(("W1 chain of 1000 (actor ask)".to_owned(), median(raw), median(ours)));
    for branches in forks {
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            raw.push(raw_side::fork(branches).await);
            ours.push(pirn_side::run(&engine, &format!("fork-{branches}")).await);
        }
        rows.push((format!("W2 fork {branches}, join ALL"), median(raw), median(ours)));
    }
    let base = Arc::new(
        (0..10_000)
            .map(|n| format!("{n} {}", "x".repeat(200)))
            .collect::<Vec<_>>(),
    );
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        raw.push(raw_side::conversation(&base, 100).await);
        ours.push(pirn_side::conversation(&engine, 10_000).await);
    }
    rows.push(("W4 10000 messages, 100 branches".to_owned(), median(raw), median(ours)));
    for runs in [1_000, 10_000] {
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            raw.push(raw_side::concurrent(runs, 10).await);
            ours.push(pirn_side::concurrent(&engine, runs).await);
        }
        rows.push((format!("W10 {runs} runs of 10 waits"), median(raw), median(ours)));
    }
    rows
}

async fn once(workload: String, size: usize, rounds: usize) {
    let engine = pirn_side::engine(size, &[size], 10);
    let mut all = Vec::new();
    for _ in 0..rounds {
        all.push(match workload.as_str() {
            "chain" => pirn_side::run(&engine, "chain").await,
            "fork" => pirn_side::run(&engine, &format!("fork-{size}")).await,
            "talk" => pirn_side::conversation(&engine, size).await,
            _ => pirn_side::concurrent(&engine, size).await,
        });
    }
    eprintln!("{all:?}");
}
