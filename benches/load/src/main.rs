//! Load generator for a workflow service, Pirn's or LangGraph's, measured by a client on the same machine.
//!
//! `pirn-bench-load pirn|langgraph URL PID RUNS SECONDS CLIENTS READERS`: `CLIENTS` concurrent clients start runs of the workflow
//! `echo` and wait for their ends, until `RUNS` have ended or `SECONDS` are over. During the load, `READERS` clients read the
//! events of one run of the workflow `gated` (Pirn only). `PID` is the server's process, for measuring its memory.
//! Prints a row of a Markdown table.
//!
//! `pirn-bench-load turns URL PID TURNS` sends messages to one session of the workflow `chat`; `pirn-bench-load waiting URL PID RUNS`
//! executes small runs beside up to `RUNS` runs that wait. Each prints a table. All exit with 1 if any answer or stream was wrong.
#![allow(clippy::disallowed_methods)] // a benchmark measures real time

mod growth;
mod readers;
mod runs;
mod server;

use std::io::Write as _;
use std::time::Duration;

use server::Server;

/// Any error, which ends the program.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    if let [what @ ("turns" | "waiting"), url, pid, count] = words[..] {
        let (server, pid, count) = (Server::new("pirn", url)?, pid.parse()?, count.parse()?);
        let table = match what {
            "turns" => runtime.block_on(growth::turns(&server, count, pid))?,
            _ => runtime.block_on(growth::waiting(&server, count, pid))?,
        };
        write!(std::io::stdout(), "{table}")?;
        return Ok(());
    }
    let [kind, url, pid, runs, seconds, clients, readers] = words[..] else {
        return Err(
            "pirn-bench-load pirn|langgraph URL PID RUNS SECONDS CLIENTS READERS, or turns|waiting URL PID COUNT"
                .into(),
        );
    };
    let server = Server::new(kind, url)?;
    let load = runs::Load {
        runs: runs.parse()?,
        most: Duration::from_secs(seconds.parse()?),
        clients: clients.parse()?,
    };
    let readers: usize = readers.parse()?;
    let row = runtime.block_on(measure(&server, &load, readers, pid.parse()?))?;
    writeln!(std::io::stdout(), "{row}")?;
    Ok(())
}

async fn measure(server: &Server, load: &runs::Load, readers: usize, pid: u32) -> Result<String, Failure> {
    // Warm-up: excludes the cost of the first runs, and memory that is retained for ended runs.
    let first = runs::Load {
        runs: load.runs / 5,
        most: load.most / 10,
        ..*load
    };
    first.put_on(server).await?;
    let watched = readers::open(server, readers).await?;
    let before = server::resident_mib(pid);
    let times = load.put_on(server).await?;
    let after = server::resident_mib(pid);
    let read = watched.end(server).await?;
    Ok(format!(
        "| {} | {read} | {} | {:.0} | {:.1} | {:.1} | {before:.0} → {after:.0} |",
        server.name(),
        times.count(),
        times.per_second(),
        times.within(50),
        times.within(99),
    ))
}
