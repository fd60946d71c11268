//! The cost of a turn of a long session, and of a small run beside many runs that wait.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;

use crate::Failure;
use crate::runs::Load;
use crate::server::{Server, answer, resident_mib};

/// Sends `turns` messages to one session, and returns a row after each tenth of them: time of a turn and memory of the service.
pub(crate) async fn turns(server: &Server, turns: usize, pid: u32) -> Result<String, Failure> {
    let mut rows = String::from("| turns | ms per turn | resident MiB |\n|---:|---:|---:|\n");
    let part = (turns / 10).max(1);
    for tenth in 1..=10 {
        let begun = Instant::now();
        for turn in (tenth - 1) * part..tenth * part {
            let body =
                json!({"workflow": "chat", "session": "long", "input": format!("message {turn} of the conversation")});
            let ended = answer(server.post("/v1/runs?wait=600", &body)).await?;
            if ended["status"] != "COMPLETED" {
                return Err(format!("turn {turn} was answered {ended}").into());
            }
        }
        let each = begun.elapsed().as_secs_f64() * 1e3 / part as f64;
        writeln!(rows, "| {} | {each:.2} | {:.0} |", tenth * part, resident_mib(pid))?;
    }
    Ok(rows)
}

/// Measures small runs beside 0, a fifth of `most` and `most` runs that wait. Returns a row for each.
pub(crate) async fn waiting(server: &Server, most: usize, pid: u32) -> Result<String, Failure> {
    let mut rows = String::from("| waiting runs | small runs/s | p99 ms | resident MiB |\n|---:|---:|---:|---:|\n");
    let small = Load {
        runs: 20_000,
        most: Duration::from_secs(10),
        clients: 16,
    };
    small.put_on(server).await?;
    let mut started = 0;
    for count in [0, most / 5, most] {
        let body = json!({"workflow": "gated"});
        let start = |_| async { answer(server.post("/v1/runs", &body)).await.map(drop) };
        let starts = stream::iter(started..count).map(start).buffer_unordered(16);
        starts.try_collect::<Vec<()>>().await?;
        started = count;
        let times = small.put_on(server).await?;
        let (each, tail) = (times.per_second(), times.within(99));
        writeln!(rows, "| {count} | {each:.0} | {tail:.1} | {:.0} |", resident_mib(pid))?;
    }
    Ok(rows)
}
