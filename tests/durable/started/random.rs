//! Random trees of runs that triggers start, and random operations on their processes and runs. However the runs are moved, every run
//! ends as in one process, and its starter has recorded exactly that end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use pirn::store::{RunStatus, Store};
use pirn::{Engine, RunReport, ThreadStatus, idempotency_key};
use serde_json::{Value, json};

use super::shared_memory::SharedMemory;
use super::{RUN, answer, asks};

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// Number of calls by idempotency key.
type Calls = Arc<Mutex<BTreeMap<String, u32>>>;

/// A sequence of pseudo-random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

/// A run of the tree.
struct Planned {
    id: String,
    starter: Option<usize>,
    /// The reason, if the test has cancelled the run.
    cancelled: Option<String>,
}

struct Process {
    store: SharedMemory,
    engine: Engine,
    worker: JoinHandle<()>,
}

struct World {
    chance: Chance,
    store: SharedMemory,
    processes: Vec<Process>,
    workflows: Vec<Value>,
    runs: Vec<Planned>,
    calls: Calls,
    /// Number of operations that may interrupt a call.
    interruptions: u32,
    log: Vec<String>,
}

/// Returns a tree of 2 to 5 runs: their workflows, and the runs with their starters.
fn tree(chance: &mut Chance) -> (Vec<Value>, Vec<Planned>) {
    let count = 2 + chance.below(4);
    let starters: Vec<usize> = (1..count).map(|run| chance.below(run)).collect();
    let children = |of: usize| -> Vec<usize> { (1..count).filter(|run| starters[run - 1] == of).collect() };
    let workflows = (0..count).map(|run| {
        let starts: Vec<String> = children(run).iter().map(|child| format!("w{child}")).collect();
        asks(&format!("w{run}"), &starts)
    });
    let workflows = workflows.collect();
    let mut runs = vec![Planned {
        id: RUN.to_owned(),
        starter: None,
        cancelled: None,
    }];
    for run in 1..count {
        let starter = starters[run - 1];
        // Triggers on one event fire in the order of their definition.
        let firing = 1 + children(starter).iter().take_while(|child| **child < run).count();
        runs.push(Planned {
            id: format!("{}-f{firing}", runs[starter].id),
            starter: Some(starter),
            cancelled: None,
        });
    }
    (workflows, runs)
}

impl World {
    fn new(seed: u64, has_claims: bool) -> Self {
        let mut chance = Chance(seed);
        let (workflows, runs) = tree(&mut chance);
        let mut world = Self {
            chance,
            store: SharedMemory::new(has_claims),
            processes: Vec::new(),
            workflows,
            runs,
            calls: Calls::default(),
            interruptions: 0,
            log: Vec::new(),
        };
        world.begin_process();
        world
    }

    fn begin_process(&mut self) {
        let store = self.store.next_process();
        let calls = Arc::clone(&self.calls);
        let parks_after = if self.chance.below(2) == 0 {
            Duration::ZERO
        } else {
            Duration::MAX
        };
        let engine = Engine::builder()
            .store(store.clone())
            .arbiters(1 + self.chance.below(2))
            .park_after(parks_after)
            .workflows(json!({ "workflows": self.workflows }).to_string())
            .async_function("work", move |_| {
                let key = idempotency_key().expect("a call has a key");
                *calls
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .entry(key)
                    .or_default() += 1;
                std::future::ready(Ok::<_, String>(Value::Null))
            })
            .build()
            .expect("builds");
        let working = engine.clone();
        let worker = std::thread::spawn(move || drop(block_on(working.work(100))));
        self.processes.push(Process { store, engine, worker });
    }

    /// Stops a process: it is killed, or shut down. Another one is started if it was the last.
    fn stop_process(&mut self) {
        let place = self.chance.below(self.processes.len());
        let process = self.processes.remove(place);
        let is_killed = self.chance.below(2) == 0;
        let grace = Duration::from_millis(self.chance.below(2) as u64 * 20);
        self.log.push(format!("stop {place} killed {is_killed} {grace:?}"));
        if is_killed {
            process.store.kill();
        }
        process.engine.shutdown_blocking(grace);
        process.store.kill();
        process.worker.join().expect("no panic");
        self.interruptions += 1;
        if self.processes.is_empty() {
            self.begin_process();
        }
    }

    fn is_final(&self, run: usize) -> bool {
        let stored = block_on(self.store.store.run(&self.runs[run].id)).expect("is read");
        stored.is_some_and(|run| run.status.is_final())
    }

    fn is_stored(&self, run: usize) -> bool {
        let stored = block_on(self.store.store.run(&self.runs[run].id)).expect("is read");
        stored.is_some()
    }

    /// Gives each run without an owner to a process, in a random order.
    fn adopt(&mut self) {
        let mut orphans: Vec<usize> = (0..self.runs.len())
            .filter(|run| self.is_stored(*run) && !self.is_final(*run) && !self.is_executed(*run))
            .collect();
        while !orphans.is_empty() {
            let place = self.chance.below(orphans.len());
            let run = orphans.swap_remove(place);
            self.move_to_any(run);
        }
    }

    fn is_executed(&self, run: usize) -> bool {
        let id = &self.runs[run].id;
        if self.store.has_claims {
            self.store.is_owned(id)
        } else {
            self.processes.iter().any(|process| process.engine.find(id).is_some())
        }
    }

    fn move_to_any(&mut self, run: usize) {
        let process = self.chance.below(self.processes.len());
        let id = self.runs[run].id.clone();
        self.log.push(format!("move {id} to {process}"));
        let process = &self.processes[process];
        if self.store.has_claims {
            return process.store.take(&id);
        }
        // Without claims there is one process. It may have resumed the run together with its starter.
        drop(block_on(process.engine.resume(&id).start()));
    }

    /// Performs a random operation.
    fn disturb(&mut self) {
        let run = self.chance.below(self.runs.len());
        let id = self.runs[run].id.clone();
        match self.chance.below(8) {
            0 => self.stop_process(),
            1 if self.store.has_claims => {
                self.begin_process();
                self.log.push("begin".to_owned());
            }
            2 | 3 if self.store.has_claims && self.is_stored(run) && !self.is_final(run) => {
                self.interruptions += 1;
                self.move_to_any(run);
            }
            4 | 5 => {
                self.log.push(format!("release {id}"));
                self.interruptions += 1;
                if let Some(handle) = self.handle(&id) {
                    handle.release();
                    handle.outcome_blocking();
                }
            }
            6 if self.is_leaf(run) => {
                self.log.push(format!("answer {id}"));
                if let Some(handle) = self.handle(&id) {
                    answer(&handle, &id);
                }
            }
            7 if self.is_leaf(run) && self.runs[run].cancelled.is_none() => self.cancel(run),
            _ => self.adopt(),
        }
        // The runs make progress that differs from case to case.
        for _ in 0..self.chance.below(3) * 50 {
            std::thread::yield_now();
        }
    }

    fn cancel(&mut self, run: usize) {
        let id = self.runs[run].id.clone();
        let Some(handle) = self.handle(&id) else { return };
        self.log.push(format!("cancel {id}"));
        handle.cancel(format!("cancelled {id}"));
        let report = handle.outcome_blocking();
        if report.status == ThreadStatus::Cancelled {
            self.runs[run].cancelled = Some(format!("cancelled {id}"));
        }
    }

    fn handle(&self, id: &str) -> Option<pirn::RunHandle> {
        self.processes.iter().find_map(|process| process.engine.find(id))
    }

    fn is_leaf(&self, run: usize) -> bool {
        self.runs.iter().all(|other| other.starter != Some(run))
    }

    /// Executes all runs to their ends. A run ends after those that it started.
    fn finish(&mut self) {
        let until = Instant::now() + PATIENCE;
        for run in (0..self.runs.len()).rev() {
            let id = self.runs[run].id.clone();
            while !self.is_final(run) {
                assert!(Instant::now() < until, "{id} does not end: {:#?}", self.state());
                self.adopt();
                if let Some(handle) = self.handle(&id) {
                    answer(&handle, &id);
                }
                std::thread::yield_now();
            }
            let Some(starter) = self.runs[run].starter else {
                continue;
            };
            while !self.has_recorded(starter, &id) {
                assert!(Instant::now() < until, "the end of {id} was lost: {:#?}", self.state());
                self.adopt();
                std::thread::yield_now();
            }
        }
    }

    /// Returns true if the starter has recorded the end of a run.
    fn has_recorded(&self, starter: usize, id: &str) -> bool {
        let report = self.report(starter);
        let starter = &self.runs[starter].id;
        let mut firings = report.firings.iter();
        firings.any(|firing| format!("{starter}-f{}", firing.firing) == id && firing.status.is_some())
    }

    fn report(&self, run: usize) -> Arc<RunReport> {
        let view = block_on(self.processes[0].engine.view(&self.runs[run].id, None));
        Arc::new(view.expect("is read").report.clone())
    }

    fn state(&self) -> Vec<String> {
        let of = |run: usize| {
            let id = &self.runs[run].id;
            let stored = block_on(self.store.store.run(id)).expect("is read");
            let status = stored.map(|run| run.status);
            format!("{id}: {status:?}, executed {}", self.is_executed(run))
        };
        let runs = (0..self.runs.len()).map(of);
        runs.chain(self.log.iter().cloned()).collect()
    }

    /// Compares all runs with those of an uninterrupted process.
    fn check(&self) {
        for (run, planned) in self.runs.iter().enumerate() {
            let (id, report) = (&planned.id, self.report(run));
            let stored = block_on(self.store.store.run(id)).expect("is read").expect("is there");
            let (status, output) = match &planned.cancelled {
                None => (RunStatus::Completed, json!(id)),
                Some(_) => (RunStatus::Cancelled, Value::Null),
            };
            assert_eq!(stored.status, status, "{id}: {:#?}", self.state());
            assert_eq!(report.output, output, "{id}: {:#?}", self.state());
            let started = self.runs.iter().filter(|other| other.starter == Some(run));
            assert_eq!(
                report.firings.len(),
                started.clone().count(),
                "{id}: {:#?} {:#?}",
                report.firings,
                self.state()
            );
            for child in started {
                let mut firings = report.firings.iter();
                let firing = firings.find(|firing| format!("{id}-f{}", firing.firing) == child.id);
                let firing = firing.expect("is listed");
                let error = firing.error.as_ref().map(|error| error.message.clone());
                assert_eq!(error, child.cancelled, "{}: {:#?}", child.id, self.state());
            }
        }
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, times) in calls.iter() {
            // A call that was interrupted is repeated.
            assert!(*times <= 1 + self.interruptions, "{key}: {times}");
        }
    }

    fn end(self) {
        for process in self.processes {
            process.store.kill();
            process.engine.shutdown_blocking(Duration::ZERO);
            process.worker.join().expect("no panic");
        }
    }
}

fn play(seed: u64, has_claims: bool) {
    let mut world = World::new(seed, has_claims);
    let first = &world.processes[0].engine;
    let run = first.run("w0").run_id(RUN).start().expect("starts");
    block_on(run.wait_durable()).expect("is durable");
    for _ in 0..2 + world.chance.below(8) {
        world.disturb();
    }
    world.finish();
    world.check();
    world.end();
}

/// Number of cases: `PROPTEST_CASES`, or this one.
fn cases(default: u64) -> u64 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

#[test]
fn runs_of_several_processes_and_their_starters_agree_on_every_end() {
    for seed in 0..cases(100) {
        println!("seed {seed}");
        play(seed, true);
    }
}

#[test]
fn runs_of_one_process_and_their_starters_agree_on_every_end() {
    for seed in 0..cases(100) {
        println!("seed {seed}");
        play(seed, false);
    }
}
