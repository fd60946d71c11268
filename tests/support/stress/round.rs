//! A round of the load test: new engines, runs started by the host's threads, shutdown and the checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, unbounded};
use pirn::ShutdownReport;

use super::ledger::Ledger;
use super::workload::{Engines, engine};
use super::{Config, host, process};

/// Threads that act on runs.
const MEDDLERS: usize = 2;

/// The treatment of this round's first engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All runs end before the shutdown.
    Calm,
    /// The engine admits only few runs.
    Full,
    /// The engine is shut down while runs are started.
    Abrupt,
}

/// Executes the round and adds to the counters.
pub(super) fn run(config: &Config, number: u64, stop: &AtomicBool, books: &mut Ledger) {
    let kind = [Kind::Calm, Kind::Abrupt, Kind::Full][(number % 3) as usize];
    let threads_before = process::threads();
    let seed = config.seed.wrapping_add(number.wrapping_mul(0x0123_4567_89ab_cdef));
    let built: Result<Vec<_>, String> = (0..config.engines.max(1))
        .map(|place| engine(if kind == Kind::Full && place == 0 { 4 } else { 1_000_000 }))
        .collect();
    let engines: Engines = match built {
        Ok(engines) => Arc::new(engines),
        Err(error) => return books.violate(format!("an engine could not be built: {error}")),
    };
    let (numbers, to_start) = bounded(64);
    let (started, to_meddle) = bounded(256);
    let (meddled, to_close) = unbounded();
    let (done, ended) = unbounded();
    let shut = (kind == Kind::Abrupt).then_some(0);
    let mut hosts: Vec<JoinHandle<Ledger>> = Vec::new();
    let mut spawn = |name: String, work: Box<dyn FnOnce() -> Ledger + Send>| match Builder::new().name(name).spawn(work)
    {
        Ok(host) => hosts.push(host),
        Err(error) => books.violate(format!("no thread: {error}")),
    };
    for host in 0..config.hosts.max(1) {
        let (to_start, engines, started) = (to_start.clone(), Arc::clone(&engines), started.clone());
        spawn(
            format!("starter-{host}"),
            Box::new(move || host::start_all(seed, &to_start, &engines, &started)),
        );
        let (to_close, done) = (to_close.clone(), done.clone());
        spawn(
            format!("closer-{host}"),
            Box::new(move || host::close_all(&to_close, shut, &done)),
        );
    }
    for host in 0..MEDDLERS {
        let (to_meddle, meddled) = (to_meddle.clone(), meddled.clone());
        spawn(
            format!("meddler-{host}"),
            Box::new(move || host::perform_actions(&to_meddle, &meddled)),
        );
    }
    drop((to_start, started, to_meddle, meddled, to_close, done));

    for run in 0..config.runs {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if kind == Kind::Abrupt && run == config.runs / 2 {
            check_shutdown(&engines[0].shutdown_blocking(Duration::ZERO), books);
        }
        if numbers.send_timeout(run, config.patience).is_err() {
            return books.violate(format!("the host's threads are stuck at run {run} of round {number}"));
        }
    }
    drop(numbers);
    if !wait_for_all(&ended, config.patience) {
        return books.violate(format!("a run of round {number} never ended"));
    }
    for host in hosts {
        match host.join() {
            Ok(counted) => books.add(counted),
            Err(_) => books.violate("a host thread panicked"),
        }
    }
    for (place, engine) in engines.iter().enumerate() {
        let report = engine.shutdown_blocking(config.patience);
        let is_second = kind == Kind::Abrupt && place == 0;
        check_shutdown(&report, books);
        if report.runs_cancelled > 0 && !is_second {
            books.violate(format!(
                "{} runs were left although all had settled",
                report.runs_cancelled
            ));
        }
        if engine.live_runs() != 0 {
            books.violate(format!("{} runs are still counted", engine.live_runs()));
        }
    }
    drop(engines);
    if threads_before.is_some_and(|before| !process::thread_count_falls_to(before, Duration::from_secs(5))) {
        books.violate(format!(
            "{threads_before:?} threads before round {number}, {:?} after it",
            process::threads()
        ));
    }
    let ends: u64 = books.ended.values().sum();
    let refusals: u64 = books.refused.values().sum();
    if ends != books.started || books.started + refusals != books.asked {
        books.violate(format!(
            "asked {}, admitted {}, refused {refusals}, ended {ends}",
            books.asked, books.started
        ));
    }
    books.rounds += 1;
}

/// Waits for outcomes until every sender is dropped. Returns false if none arrives for `patience`.
fn wait_for_all(ended: &Receiver<()>, patience: Duration) -> bool {
    loop {
        match ended.recv_timeout(patience) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

fn check_shutdown(report: &ShutdownReport, books: &mut Ledger) {
    if (report.runs_left, report.tasks_left, report.work_left) != (0, 0, 0) {
        books.violate(format!("left after shutdown: {report:?}"));
    }
}
