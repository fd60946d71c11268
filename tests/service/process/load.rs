//! Many concurrent runs and readers: no error, nothing left. `PIRN_LOAD_RUNS=10000 PIRN_LOAD_READERS=2000` is the size that
//! docs/service.md allows; `--nocapture` prints the throughput.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream;
use serde_json::{Value, json};

use crate::world::{Events, World, answer};

/// Number of concurrent clients that start runs.
const CLIENTS: usize = 64;

fn amount(variable: &str, in_short: usize) -> usize {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(in_short)
}

/// Resident memory of this process, service and clients together; 0 if the system does not report it.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_concurrent_runs_complete_while_many_readers_read_each_stream() {
    let world = World::new().await;
    let (runs, readers) = (amount("PIRN_LOAD_RUNS", 500), amount("PIRN_LOAD_READERS", 200));
    let watched = world.start("gated", Value::Null).await;
    let path = format!("/v1/runs/{watched}/events");
    // Every reader connects before the first run is started.
    let open = stream::iter(0..readers)
        .map(|_| Events::open(world.get(&path)))
        .buffer_unordered(CLIENTS);
    let open: Vec<Events> = open.collect().await;
    let (before, begun) = (resident_kib(), Instant::now());
    let ended = stream::iter(0..runs).map(|n| {
        let request = world.post("/v1/runs?wait=600", &json!({"workflow": "echo", "input": {"n": n}}));
        async move {
            let sent = Instant::now();
            let report = answer(request).await.body;
            assert_eq!(
                (&report["status"], &report["output"]),
                (&json!("COMPLETED"), &json!({"n": n}))
            );
            sent.elapsed()
        }
    });
    let mut times: Vec<Duration> = ended.buffer_unordered(CLIENTS).collect().await;
    let took = begun.elapsed();
    assert_eq!(times.len(), runs);
    times.sort_unstable();
    eprintln!(
        "{runs} runs over HTTP, {CLIENTS} at once, {readers} readers: {:.0} runs/s, half within {:?}, 99 % within {:?}; {} KiB more",
        runs as f64 / took.as_secs_f64(),
        times[runs / 2],
        times[runs * 99 / 100],
        resident_kib().saturating_sub(before),
    );
    world.gate.add_permits(1);
    let read = futures::future::join_all(open.into_iter().map(Events::all)).await;
    assert!(read.iter().all(|events| *events == read[0]));
    assert_eq!(read[0].last().and_then(|end| end.name.as_deref()), Some("end"));
    let metrics = answer(world.get("/metrics")).await.body;
    let text = metrics.as_str().expect("text");
    for sample in [
        "pirn_runs_live 0",
        &format!("pirn_runs_ended_total{{workflow=\"echo\",status=\"COMPLETED\"}} {runs}"),
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample}\n{text}");
    }
}
