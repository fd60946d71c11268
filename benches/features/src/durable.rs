//! Durable runs compared with raw SQLite with group commit and with a bare `fdatasync`, alternating, on one disk.

use std::io::{Error, Result, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pirn::store::{SqliteStore, Store};
use pirn::{Engine, EngineBuilder, RunHandle, ThreadStatus};
use pirn_test_disk::{Disk, Kind, VFS};
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use pirn_benches::compare::Times;
use pirn_benches::sides::workflows::{asks, line};
use pirn_benches::timed;

const ROUNDS: usize = 7;

/// Approximate number of steps of all runs together.
const STEPS: usize = 4_000;

/// Size of a step's answer, and of the data that Pirn writes with it, in bytes.
pub(crate) const ANSWER: usize = 100;
const RECORD: usize = 190;

/// Number of steps of the run that is rebuilt.
const LONG: usize = 10_000;

/// Number of runs in the store that is opened, and of live runs among them.
const RUNS: usize = 100_000;
const LIVE: usize = 1_000;

/// Table row: name, measured value, limit.
pub(crate) type Line = (String, String, String);

/// Names of the measurements.
pub(crate) const PARTS: [&str; 5] = ["steps", "alone", "syncs", "rebuilt", "ready"];

/// Runs one of [`PARTS`] in `folder`, on its disk. Passes each row to `tell` at once.
pub(crate) async fn measure(part: &str, folder: &Path, mut tell: impl FnMut(Line) -> Result<()>) -> Result<()> {
    match part {
        "steps" => {
            for runs in [32, 1_000] {
                tell(throughput(folder, runs).await?)?;
            }
            Ok(())
        }
        "alone" => tell(single_step(folder).await?),
        "syncs" => {
            for (runs, calls) in [(1, true), (32, true), (1, false)] {
                tell(syncs(runs, calls).await?)?;
            }
            Ok(())
        }
        "rebuilt" => tell(rebuilt(folder).await?),
        "ready" => tell(opened(folder).await?),
        other => Err(Error::other(format!(
            "unknown part {other}; there are: {}",
            PARTS.join(", ")
        ))),
    }
}

/// Measures the steps per second of concurrent runs. Each step is a call, and its outcome is durable before the next step.
async fn throughput(folder: &Path, runs: usize) -> Result<Line> {
    let steps = (STEPS / runs).max(20);
    let engine = engine(open(folder, &format!("steps-{runs}.db"))?, steps)?;
    let kept_nowhere = row(Engine::builder(), steps, &call())?;
    let raw = Raw::open(&folder.join(format!("raw-{runs}.db")))?;
    let (mut own, mut beside, mut in_memory) = (Vec::new(), Vec::new(), Vec::new());
    // The first round of each is a warm-up.
    for round in 0..=ROUNDS {
        let (us, raw_us) = (play(&engine, runs).await?, raw.play(runs, steps).await?);
        let memory_us = play(&kept_nowhere, runs).await?;
        if round > 0 {
            own.push(us);
            beside.push(raw_us);
            in_memory.push(memory_us);
        }
    }
    close(engine).await;
    let [own, beside, in_memory] =
        [("pirn", own), ("raw", beside), ("in memory", in_memory)].map(|(of, us)| sorted(of, us));
    let rate = |us: f64| (runs * steps) as f64 / us * 1e6;
    let times = beside.min() / own.min();
    Ok((
        format!("durable steps, {runs} runs of {steps}"),
        format!(
            "{:.0} steps/s, raw SQLite {:.0}: {times:.2} x (medians {:.2} x); without a store {:.0}",
            rate(own.min()),
            rate(beside.min()),
            beside.median() / own.median(),
            rate(in_memory.min()),
        ),
        "at least 0.7 x".to_owned(),
    ))
}

/// Measures a step of a single run, compared with a write and its sync.
#[allow(clippy::disallowed_methods)] // a benchmark measures real time
async fn single_step(folder: &Path) -> Result<Line> {
    const STEPS: usize = 300;
    let engine = engine(open(folder, "alone.db")?, STEPS)?;
    let mut file = std::fs::File::create(folder.join("bare"))?;
    let (mut own, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let us = play(&engine, 1).await? / STEPS as f64;
        let start = std::time::Instant::now();
        for _ in 0..STEPS {
            // Size of a commit: two pages of the log.
            file.write_all(&[7; 2 * 4_120])?;
            file.sync_data()?;
        }
        let bare_us = start.elapsed().as_secs_f64() * 1e6 / STEPS as f64;
        if round > 0 {
            own.push(us);
            bare.push(bare_us);
        }
    }
    close(engine).await;
    let (own, bare) = (sorted("pirn", own), sorted("bare", bare));
    Ok((
        "a durable step alone".to_owned(),
        format!(
            "{:.0} us, a write with fdatasync {:.0} us (medians {:.0} and {:.0})",
            own.min(),
            bare.min(),
            own.median(),
            bare.median()
        ),
        format!("fdatasync + 100 us: {:.0} us", bare.min() + 100.0),
    ))
}

/// Measures the syncs per step, on a disk in memory with syncs of one millisecond.
async fn syncs(runs: usize, calls: bool) -> Result<Line> {
    const STEPS: usize = 20;
    let of = async |steps: usize| -> Result<usize> {
        let disk = Arc::new(Disk::new());
        let store = SqliteStore::open_on(VFS, disk.path("runs.db")).map_err(Error::other)?;
        let engine = if calls {
            engine(store, steps)?
        } else {
            pure_engine(store, steps)?
        };
        let syncs = || {
            let operations = disk.operations();
            operations.iter().filter(|one| one.kind == Kind::Sync).count()
        };
        let opened = syncs();
        let slow = SlowSyncs::begin(&disk);
        play(&engine, runs).await?;
        drop(slow);
        let took = syncs() - opened;
        close(engine).await;
        Ok(took)
    };
    // Subtracts the cost of the start and the end of a run.
    let (none, all) = (of(0).await?, of(STEPS).await?);
    let each = all.saturating_sub(none) as f64 / (runs * STEPS) as f64;
    let (what, most) = match (runs, calls) {
        (_, false) => ("in place", "0"),
        (1, true) => ("of calls", "1"),
        (_, true) => ("of calls", "0.125"),
    };
    Ok((
        format!("syncs a step {what}, {runs} runs"),
        format!("{each:.3}"),
        most.to_owned(),
    ))
}

/// While this value exists, every sync of a disk in memory takes about a millisecond.
struct SlowSyncs {
    over: Sender<()>,
    thread: Option<JoinHandle<()>>,
    disk: Arc<Disk>,
}

impl SlowSyncs {
    #[allow(clippy::disallowed_methods)] // a benchmark has no host port
    fn begin(disk: &Arc<Disk>) -> Self {
        let (over, is_over) = channel();
        disk.block_syncs();
        let held = Arc::clone(disk);
        let thread = std::thread::spawn(move || {
            while is_over.recv_timeout(Duration::from_millis(1)).is_err() {
                held.release_syncs();
                held.block_syncs();
            }
            held.release_syncs();
        });
        Self {
            over,
            thread: Some(thread),
            disk: Arc::clone(disk),
        }
    }
}

impl Drop for SlowSyncs {
    fn drop(&mut self) {
        self.over.send(()).unwrap_or(());
        if let Some(thread) = self.thread.take() {
            // After a panic of the thread the syncs must still be released.
            let _ended = thread.join();
        }
        self.disk.release_syncs();
    }
}

/// Measures the time until a waiting run of many steps is rebuilt in a new process.
async fn rebuilt(folder: &Path) -> Result<Line> {
    let mut workflow = line("main", LONG, &call());
    let at = LONG + 1;
    let ask = json!({"id": "ask", "type": "USER_INTERACTION", "config": {"question": "On?"}});
    let nodes = workflow["nodes"].as_array_mut().into_iter().flatten();
    let end = nodes.last().map_or(Value::Null, |end| end["id"].clone());
    let before = workflow["nodes"][LONG]["id"].clone();
    if let Some(nodes) = workflow["nodes"].as_array_mut() {
        nodes.insert(at, ask);
    }
    if let Some(edges) = workflow["edges"].as_array_mut() {
        edges.pop();
        edges.push(json!({"from": before, "to": "ask"}));
        edges.push(json!({"from": "ask", "to": end}));
    }
    workflow["config"] = json!({"maxSteps": LONG + 10});
    let first = built(Engine::builder().store(open(folder, "long.db")?), &workflow)?;
    let run = first.run("main").run_id("long").start().map_err(Error::other)?;
    while run.interactions().await.is_empty() {
        tokio::task::yield_now().await;
    }
    run.wait_durable().await.map_err(Error::other)?;
    drop(run);
    close(first).await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let engine = built(Engine::builder().store(open(folder, "long.db")?), &workflow)?;
        let (us, there) = timed(async {
            let run = engine.resume("long").start().await.map_err(Error::other)?;
            Result::Ok(run.status().await)
        })
        .await;
        there?;
        times.push(us);
        close(engine).await;
    }
    let times = sorted("rebuilt", times);
    Ok((
        format!("a run of {LONG} steps rebuilt"),
        spread(&times),
        "15 ms".to_owned(),
    ))
}

/// Measures the time until a store of many runs is open and its live runs are resumed.
async fn opened(folder: &Path) -> Result<Line> {
    let workflows = json!({"workflows": [asks(), line("short", 0, &call())]});
    let engine = built(Engine::builder().store(open(folder, "many.db")?), &workflows)?;
    for first in (LIVE..RUNS).step_by(1_000) {
        let runs = (first..(first + 1_000).min(RUNS)).map(|_| engine.start("short", json!(0)));
        for run in runs.collect::<std::result::Result<Vec<_>, _>>().map_err(Error::other)? {
            run.wait_all_ended().await;
        }
    }
    let live = (0..LIVE).map(|_| engine.start("asks", json!(0)));
    let live = live.collect::<std::result::Result<Vec<_>, _>>().map_err(Error::other)?;
    for run in &live {
        run.wait_durable().await.map_err(Error::other)?;
    }
    drop(live);
    close(engine).await;
    let (mut times, mut opens) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (open_us, store) = timed(async { open(folder, "many.db") }).await;
        let engine = built(Engine::builder().store(store?), &workflows)?;
        let (us, recovered) = timed(engine.recover()).await;
        let recovered = recovered.map_err(Error::other)?;
        if recovered.len() != LIVE || recovered.iter().any(|(_, run)| run.is_err()) {
            return Err(Error::other("not every live run continues"));
        }
        opens.push(open_us);
        times.push(open_us + us);
        drop(recovered);
        close(engine).await;
    }
    let (times, opens) = (sorted("ready", times), sorted("open", opens));
    Ok((
        format!("a store of {RUNS} runs, {LIVE} live, ready"),
        format!("{}, {:.1} ms of it to open the file", spread(&times), opens.min() / 1e3),
        "150 ms".to_owned(),
    ))
}

/// Raw SQLite with equal durability: one thread writes all waiting rows in one transaction, and answers after the sync.
struct Raw {
    commands: Sender<(Vec<u8>, oneshot::Sender<()>)>,
}

impl Raw {
    fn open(path: &Path) -> Result<Self> {
        let sql = Connection::open(path).map_err(Error::other)?;
        let set = "PRAGMA page_size = 4096; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; \
                   PRAGMA synchronous = FULL; CREATE TABLE journal(id INTEGER PRIMARY KEY, body BLOB NOT NULL);";
        sql.execute_batch(set).map_err(Error::other)?;
        let (commands, waiting) = channel();
        std::thread::spawn(move || {
            // After an error the answers are dropped, which ends the waiting tasks.
            let _failed = write(&sql, &waiting);
        });
        Ok(Self { commands })
    }

    /// Measures concurrent writers that write their rows sequentially. Returns microseconds.
    #[allow(clippy::disallowed_methods)] // a benchmark has no host port
    async fn play(&self, writers: usize, rows: usize) -> Result<f64> {
        let writer = || {
            let commands = self.commands.clone();
            tokio::spawn(async move {
                for _ in 0..rows {
                    let (answer, answered) = oneshot::channel();
                    let body = vec![7; ANSWER + RECORD];
                    commands.send((body, answer)).map_err(Error::other)?;
                    answered.await.map_err(Error::other)?;
                }
                Result::Ok(())
            })
        };
        let (us, written) = timed(async {
            let writers: Vec<_> = (0..writers).map(|_| writer()).collect();
            for writer in writers {
                writer.await.map_err(Error::other)??;
            }
            Result::Ok(())
        })
        .await;
        written.map(|()| us)
    }
}

fn write(sql: &Connection, waiting: &Receiver<(Vec<u8>, oneshot::Sender<()>)>) -> rusqlite::Result<()> {
    while let Ok(first) = waiting.recv() {
        let rows: Vec<_> = std::iter::once(first).chain(waiting.try_iter().take(1_023)).collect();
        sql.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for (body, _) in &rows {
            sql.prepare_cached("INSERT INTO journal(body) VALUES (?1)")?
                .execute([body])?;
        }
        sql.prepare_cached("COMMIT")?.execute([])?;
        for (_, answer) in rows {
            // The receiver is gone if the benchmark was aborted.
            answer.send(()).unwrap_or(());
        }
    }
    Ok(())
}

fn call() -> Value {
    json!({"type": "CODE", "config": {"function": "work"}})
}

/// Creates an engine with a workflow `main` of `steps` calls.
pub(crate) fn engine(store: impl Store, steps: usize) -> Result<Engine> {
    row(Engine::builder().store(store), steps, &call())
}

fn pure_engine(store: SqliteStore, steps: usize) -> Result<Engine> {
    let node = json!({"type": "CODE", "config": {"function": "pure"}});
    row(Engine::builder().store(store), steps, &node)
}

fn row(builder: EngineBuilder, steps: usize, node: &Value) -> Result<Engine> {
    let mut workflow = line("main", steps, node);
    workflow["config"] = json!({"maxSteps": steps + 2});
    built(builder, &workflow)
}

fn built(builder: EngineBuilder, workflow: &Value) -> Result<Engine> {
    let answer = || Ok::<_, String>(json!("x".repeat(ANSWER)));
    let engine = builder
        .workflows(workflow.to_string())
        .function("pure", move |_| answer())
        .async_function("work", move |_| std::future::ready(answer()))
        .build();
    engine.map_err(|error| Error::other(error.to_string()))
}

pub(crate) fn open(folder: &Path, name: &str) -> Result<SqliteStore> {
    SqliteStore::open(folder.join(name)).map_err(Error::other)
}

/// Measures concurrent runs. Returns microseconds.
async fn play(engine: &Engine, runs: usize) -> Result<f64> {
    let (us, ended) = timed(async {
        let started = (0..runs).map(|_| engine.start("main", json!(0)));
        let started: Vec<RunHandle> = started.collect::<std::result::Result<_, _>>().map_err(Error::other)?;
        for run in started {
            let report = run.outcome().await;
            if report.status != ThreadStatus::Completed {
                return Err(Error::other(format!("{:?}", report.error)));
            }
        }
        Ok(())
    })
    .await;
    ended.map(|()| us)
}

/// Shuts the engine down and closes its store. Waiting runs can be resumed from it.
pub(crate) async fn close(engine: Engine) {
    engine.shutdown(Duration::ZERO).await;
}

pub(crate) fn sorted(side: &str, mut us: Vec<f64>) -> Times {
    us.sort_by(f64::total_cmp);
    Times {
        side: side.to_owned(),
        us,
    }
}

fn spread(times: &Times) -> String {
    let [min, median, max] = [times.min(), times.median(), times.max()].map(|us| us / 1e3);
    format!("{min:.1} / {median:.1} / {max:.1} ms (min / median / max)")
}
