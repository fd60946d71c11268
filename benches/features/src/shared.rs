//! Runs in PostgreSQL on several workers, compared with an equal number of steps by absurd's functions, and with embedded SQLite:
//! alternating, on one server and one disk. Every worker is a separate process.
#![allow(clippy::disallowed_methods)] // a benchmark has no host port

pub(crate) mod restate;

use std::io::{Error, Result};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pirn_benches::compare::Times;
use pirn_postgres::{PostgresOptions, PostgresStore};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls, Statement};

use crate::durable::{ANSWER, Line, close, engine, open, sorted};
use crate::server::Server;

const ROUNDS: usize = 7;

/// Number of steps of a run, of runs in a round, and of concurrent runs of a worker.
const STEPS: usize = 10;
const RUNS: usize = 200;
const AT_ONCE: usize = 16;

/// Number of steps of the single run.
const LONG: usize = 200;

const WORKERS: [usize; 3] = [1, 2, 4];

/// Maximum time of a run or a step, as a multiple of the time with absurd's functions.
const MOST: f64 = 1.3;

/// Passes each row to `tell` as soon as it is measured. No rows if no server is installed.
///
/// # Errors
/// Fails if the server, a worker or `tell` does.
pub(crate) async fn measure(tell: impl FnMut(Line) -> Result<()>) -> Result<()> {
    let Some(server) = Server::start() else { return Ok(()) };
    let url = server.database();
    server.set_up(&url);
    let looks = connect(&url).await?;
    looks
        .batch_execute("SELECT absurd.create_queue('bare')")
        .await
        .map_err(Error::other)?;
    let (looks, url) = (&looks, &*url);
    let played = |workers, load| in_turns(looks, url, workers, load);
    rows("PostgreSQL", "absurd's functions", played, tell).await
}

/// Measures runs on workers of a server, compared with its bare use. `played` returns the times of both.
async fn rows<P: Future<Output = Result<(Times, Times)>>>(
    within: &str,
    bare_side: &str,
    played: impl Fn(usize, (usize, usize, usize)) -> P,
    mut tell: impl FnMut(Line) -> Result<()>,
) -> Result<()> {
    let embedded = embedded().await?;
    let beside = |own: &Times, bare: &Times| (own.min() / bare.min(), own.median() / bare.median());
    for workers in WORKERS {
        let (own, bare) = played(workers, (AT_ONCE, STEPS, RUNS)).await?;
        let rate = |us: f64| RUNS as f64 / us * 1e6;
        let (times, medians) = beside(&own, &bare);
        tell((
            format!("runs of {STEPS} steps in {within}, {workers} workers"),
            format!(
                "{:.0} runs/s, {bare_side} {:.0}: {times:.2} x its time (medians {medians:.2} x); embedded SQLite {:.0} runs/s",
                rate(own.min()),
                rate(bare.min()),
                rate(embedded)
            ),
            format!("{MOST} x"),
        ))?;
    }
    let (own, bare) = played(1, (1, LONG, 1)).await?;
    let each = |us: f64| us / LONG as f64;
    let (times, medians) = beside(&own, &bare);
    tell((
        format!("a step of a run of {LONG} alone in {within}"),
        format!(
            "{:.0} us, {bare_side} {:.0} us: {times:.2} x (medians {medians:.2} x)",
            each(own.min()),
            each(bare.min()),
        ),
        format!("{MOST} x"),
    ))
}

/// Measures rounds of several workers with concurrent runs, on Pirn and on absurd's functions. Returns microseconds.
async fn in_turns(
    looks: &Client,
    url: &str,
    workers: usize,
    (at_once, steps, runs): (usize, usize, usize),
) -> Result<(Times, Times)> {
    let store = PostgresStore::connect(url, PostgresOptions::default()).map_err(Error::other)?;
    let puts = engine(store, steps)?;
    let (at_once_each, steps_each) = (at_once.to_string(), steps.to_string());
    let crowd = |side: &'static str| {
        let arguments = ["shared-worker", side, url, &at_once_each, &steps_each];
        (0..workers).map(move |_| Worker::start(arguments))
    };
    let mut own = crowd("pirn").collect::<Result<Vec<_>>>()?;
    let mut bare = crowd("bare").collect::<Result<Vec<_>>>()?;
    for worker in own.iter_mut().chain(&mut bare) {
        worker.expect("ready").await?;
    }
    let (mut own_us, mut bare_us) = (Vec::new(), Vec::new());
    // The first round of each is a warm-up.
    for round in 0..=ROUNDS {
        for _ in 0..runs {
            puts.run("main").enqueue().await.map_err(Error::other)?;
        }
        let us = play(looks, &mut own, "SELECT count(*) FROM pirn.runs WHERE status < 4").await?;
        let sql = "SELECT absurd.spawn_task('bare', 'main', '{\"input\": 0}') FROM generate_series(1, $1)";
        looks
            .query(sql, &[&i32::try_from(runs).map_err(Error::other)?])
            .await
            .map_err(Error::other)?;
        let sql = "SELECT count(*) FROM absurd.t_bare WHERE state IN ('pending', 'running', 'sleeping')";
        let beside = play(looks, &mut bare, sql).await?;
        if round > 0 {
            own_us.push(us);
            bare_us.push(beside);
        }
    }
    close(puts).await;
    Ok((sorted("pirn", own_us), sorted("absurd", bare_us)))
}

/// Starts the workers and returns the microseconds until no work remains.
#[allow(clippy::disallowed_methods)] // a benchmark measures real time
async fn play(looks: &Client, workers: &mut [Worker], left: &str) -> Result<f64> {
    let left = looks.prepare(left).await.map_err(Error::other)?;
    let start = Instant::now();
    for worker in workers.iter_mut() {
        worker.tell("go").await?;
    }
    loop {
        let row = looks.query_one(&left, &[]).await.map_err(Error::other)?;
        if row.get::<_, i64>(0) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = start.elapsed().as_secs_f64() * 1e6;
    for worker in workers {
        worker.tell("stop").await?;
        worker.expect("stopped").await?;
    }
    Ok(took)
}

/// Returns the microseconds of the fastest round of equal runs in embedded SQLite.
async fn embedded() -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let engine = engine(open(folder.path(), "runs.db")?, STEPS)?;
    let mut times = Vec::new();
    for _ in 0..=ROUNDS {
        let (us, ended) = pirn_benches::timed(async {
            let lines = (0..AT_ONCE).map(|line| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    for _ in (line..RUNS).step_by(AT_ONCE) {
                        let run = engine.start("main", json!(0)).map_err(Error::other)?;
                        run.outcome().await;
                    }
                    Result::Ok(())
                })
            });
            for line in lines.collect::<Vec<_>>() {
                line.await.map_err(Error::other)??;
            }
            Result::Ok(())
        })
        .await;
        ended?;
        times.push(us);
    }
    close(engine).await;
    Ok(sorted("embedded", times).min())
}

/// Child process of this program that works on command.
struct Worker {
    _process: Child,
    say: ChildStdin,
    hear: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let pipe = || Error::other("a worker has no pipe");
        Ok(Self {
            say: process.stdin.take().ok_or_else(pipe)?,
            hear: BufReader::new(process.stdout.take().ok_or_else(pipe)?).lines(),
            _process: process,
        })
    }

    async fn tell(&mut self, word: &str) -> Result<()> {
        self.say.write_all(format!("{word}\n").as_bytes()).await
    }

    async fn expect(&mut self, word: &str) -> Result<()> {
        match self.hear.next_line().await? {
            Some(line) if line == word => Ok(()),
            other => Err(Error::other(format!("a worker printed {other:?} instead of {word}"))),
        }
    }
}

/// Main function of a worker process: works from `go` to `stop`, until its input ends.
///
/// # Errors
/// Fails if the server does.
pub(crate) async fn work(side: &str, url: &str, at_once: usize, steps: usize) -> Result<()> {
    let mut words = words();
    match side {
        "pirn" => {
            let store = PostgresStore::connect(url, PostgresOptions::default()).map_err(Error::other)?;
            let engine = engine(store, steps)?;
            say("ready").await?;
            while words.next_line().await?.is_some() {
                tokio::select! {
                    worked = engine.work(at_once) => worked.map_err(Error::other)?,
                    _stop = words.next_line() => {}
                }
                say("stopped").await?;
            }
            close(engine).await;
            Ok(())
        }
        "bare" => {
            let mut bare = Bare::connect(url, at_once, steps).await?;
            say("ready").await?;
            while words.next_line().await?.is_some() {
                let is_stopped = AtomicBool::new(false);
                let stopped = async {
                    let word = words.next_line().await;
                    is_stopped.store(true, Ordering::Relaxed);
                    word.map(drop)
                };
                let (worked, heard) = tokio::join!(bare.work(&is_stopped), stopped);
                worked.and(heard)?;
                say("stopped").await?;
            }
            Ok(())
        }
        other => Err(Error::other(format!("unknown side {other}"))),
    }
}

/// Returns the commands that a worker receives.
fn words() -> Lines<BufReader<Stdin>> {
    BufReader::new(tokio::io::stdin()).lines()
}

async fn say(word: &str) -> Result<()> {
    let mut out = tokio::io::stdout();
    out.write_all(format!("{word}\n").as_bytes()).await?;
    out.flush().await
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(Error::other)?;
    tokio::spawn(connection);
    let set = "SET synchronous_commit = on";
    client.batch_execute(set).await.map_err(Error::other)?;
    Ok(client)
}

/// Worker that uses only absurd's functions, as its clients for other languages do: one connection for claims, and one
/// for each concurrent run. Each step is a checkpoint that extends the claim.
struct Bare {
    claims: Client,
    claim: Statement,
    back: mpsc::UnboundedSender<BareRun>,
    free: mpsc::UnboundedReceiver<BareRun>,
}

impl Bare {
    async fn connect(url: &str, at_once: usize, steps: usize) -> Result<Self> {
        let (back, free) = mpsc::unbounded_channel();
        for _ in 0..at_once {
            back.send(BareRun::connect(url, steps).await?).map_err(Error::other)?;
        }
        let claims = connect(url).await?;
        let sql = "SELECT run_id::text, task_id::text FROM absurd.claim_task('bare', $1, 30, $2)";
        Ok(Self {
            claim: claims.prepare(sql).await.map_err(Error::other)?,
            claims,
            back,
            free,
        })
    }

    async fn work(&mut self, is_stopped: &AtomicBool) -> Result<()> {
        let name = format!("bare {}", std::process::id());
        while !is_stopped.load(Ordering::Relaxed) {
            let mut free: Vec<BareRun> = self.free.recv().await.into_iter().collect();
            while let Ok(another) = self.free.try_recv() {
                free.push(another);
            }
            let most = i32::try_from(free.len()).map_err(Error::other)?;
            let claimed = self.claims.query(&self.claim, &[&name, &most]).await;
            let claimed = claimed.map_err(Error::other)?;
            let is_idle = claimed.is_empty();
            for row in claimed {
                let (run, task): (String, String) = (row.get(0), row.get(1));
                let Some(on) = free.pop() else { break };
                let back = self.back.clone();
                tokio::spawn(async move {
                    on.carry(&run, &task).await?;
                    back.send(on).map_err(Error::other)
                });
            }
            for unused in free {
                self.back.send(unused).map_err(Error::other)?;
            }
            if is_idle {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }
}

/// Connection for one run at a time.
struct BareRun {
    on: Client,
    known: Statement,
    step: Statement,
    end: Statement,
    steps: usize,
}

impl BareRun {
    async fn connect(url: &str, steps: usize) -> Result<Self> {
        let on = connect(url).await?;
        let known = "SELECT checkpoint_name, state::text FROM absurd.get_task_checkpoint_states('bare', $1::text::uuid, $2::text::uuid)";
        let step =
            "SELECT absurd.set_task_checkpoint_state('bare', $1::text::uuid, $2, $3::text::jsonb, $4::text::uuid, 30)";
        let end = "SELECT absurd.complete_run('bare', $1::text::uuid, '{}')";
        Ok(Self {
            known: on.prepare(known).await.map_err(Error::other)?,
            step: on.prepare(step).await.map_err(Error::other)?,
            end: on.prepare(end).await.map_err(Error::other)?,
            on,
            steps,
        })
    }

    async fn carry(&self, run: &str, task: &str) -> Result<()> {
        self.on.query(&self.known, &[&task, &run]).await.map_err(Error::other)?;
        let answer = json!("x".repeat(ANSWER)).to_string();
        for number in 0..self.steps {
            let name = format!("step {number}");
            let stepped = self.on.query(&self.step, &[&task, &name, &answer, &run]).await;
            stepped.map_err(Error::other)?;
        }
        self.on.query(&self.end, &[&run]).await.map_err(Error::other)?;
        Ok(())
    }
}
