//! The host's threads: some start runs, some act on them, some wait for their end.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use pirn::{BlockingEvents, EventType, RunHandle, RunReport, SubscriptionItem};
use pirn_definition::definition::PinSection;
use serde_json::{Map, json};

use super::ledger::Ledger;
use super::plan::{Meddling, Plan};
use super::workload::{Engines, WORKLOADS};

/// Capacity of a subscriber's buffer, enough for all events of a run of these workflows.
const ROOM: usize = 4096;

/// A run under way, passed from thread to thread.
pub(super) struct Live {
    plan: Plan,
    handle: RunHandle,
    witness: Option<BlockingEvents>,
    slow: Option<BlockingEvents>,
}

/// Starts a run for each number received and counts the refusals.
pub(super) fn start_all(seed: u64, numbers: &Receiver<u64>, engines: &Engines, live: &Sender<Live>) -> Ledger {
    let mut books = Ledger::default();
    for number in numbers {
        let plan = Plan::of(seed, number, engines.len());
        let mut prepared = engines[plan.engine].run(WORKLOADS[plan.workload].id);
        let witness = plan.witness.then(|| prepared.blocking_events(&[], ROOM));
        let slow = plan.slow.map(|room| prepared.blocking_events(&[], room));
        if plan.leaver {
            drop(prepared.blocking_events(&[], 1));
        }
        books.asked += 1;
        match prepared.input(json!({ "number": number })).start() {
            Ok(handle) => {
                books.started += 1;
                let one = Live {
                    plan,
                    handle,
                    witness,
                    slow,
                };
                if live.send(one).is_err() {
                    books.violate("the threads that perform actions are gone");
                }
            }
            Err(error) => *books.refused.entry(error.code.as_str()).or_default() += 1,
        }
    }
    books
}

/// Performs each run's planned action and forwards the run.
pub(super) fn perform_actions(live: &Receiver<Live>, onward: &Sender<Live>) -> Ledger {
    let mut books = Ledger::default();
    for one in live {
        books.count_action(one.plan.meddling.word());
        let handle = &one.handle;
        match one.plan.meddling {
            Meddling::Nothing => {}
            Meddling::Cancel => handle.cancel("by the host"),
            Meddling::CancelTwice => {
                let other = handle.clone();
                let second = std::thread::spawn(move || other.cancel("by another thread"));
                handle.cancel("by the host");
                if second.join().is_err() {
                    books.violate("a cancel panicked");
                }
            }
            Meddling::PauseAndResume => {
                handle.pause();
                handle.resume();
            }
            Meddling::PauseAndCancel => {
                handle.pause();
                handle.cancel("while paused");
            }
            Meddling::Emit => {
                handle.emit("go", Map::new());
                handle.emit("nobody waits for this", Map::new());
            }
            Meddling::Pin => handle.pin(PinSection::Role, json!("You are a test.")),
            Meddling::AskStatus => {
                // `None` once the run has settled; the check is that the call returns.
                let _ = futures::executor::block_on(handle.status());
            }
        }
        if onward.send(one).is_err() {
            books.violate("the threads that wait are gone");
        }
    }
    books
}

/// Waits for each run to end and checks it. `shut` is the engine that was shut down while its runs were active.
pub(super) fn close_all(live: &Receiver<Live>, shut: Option<usize>, done: &Sender<()>) -> Ledger {
    let mut books = Ledger::default();
    for one in live {
        let report = one.handle.outcome_blocking();
        if !Arc::ptr_eq(&report, &one.handle.outcome_blocking()) {
            books.violate(format!("{} ended twice", report.run_id));
        }
        one.handle.wait_all_ended_blocking();
        *books.ended.entry(format!("{:?}", report.status)).or_default() += 1;
        check_end(&one.plan, &report, shut == Some(one.plan.engine), &mut books);
        let main = format!("{}.0", report.run_id);
        let raised = one.witness.map(|witness| check_witness(witness, &main, &mut books));
        if let (Some(slow), Some(raised)) = (one.slow, raised) {
            check_slow(slow, raised, &report.run_id, &mut books);
        }
        // The watcher has timed out: nothing to notify.
        let _ = done.send(());
    }
    books
}

fn check_end(plan: &Plan, report: &RunReport, was_shut: bool, books: &mut Ledger) {
    let workload = &WORKLOADS[plan.workload];
    let cancelled = report.status == pirn::ThreadStatus::Cancelled && (plan.meddling.cancels() || was_shut);
    if report.status != workload.ends && !cancelled {
        books.violate(format!(
            "{}: `{}`, {}, ended {:?}: {:?}",
            report.run_id,
            workload.id,
            plan.meddling.word(),
            report.status,
            report.error
        ));
    }
    if report.status == pirn::ThreadStatus::Failed && report.error.is_none() {
        books.violate(format!("{} failed and does not say why", report.run_id));
    }
}

/// Reads every event, checks that there is no gap and that every thread ended once, and returns the number of events.
fn check_witness(witness: BlockingEvents, main: &str, books: &mut Ledger) -> u64 {
    let mut count = 0;
    let mut threads: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for heard in witness {
        let event = match heard {
            SubscriptionItem::Event(event) => event,
            SubscriptionItem::Lagged(missed) => {
                books.violate(format!("{main}: a subscriber with room missed {missed} events"));
                continue;
            }
        };
        count += 1;
        if event.sequence != count {
            books.violate(format!("{main}: event {} came as number {count}", event.sequence));
        }
        match event.raised.event_type {
            EventType::ThreadStarted => threads.entry(event.thread_id.to_string()).or_default().0 += 1,
            EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => {
                threads.entry(event.thread_id.to_string()).or_default().1 += 1;
            }
            _other => {}
        }
    }
    for (thread, (starts, ends)) in &threads {
        // a thread that is stopped before its first step ends without having started
        if *ends != 1 || *starts > 1 {
            books.violate(format!("{thread} started {starts} times and ended {ends} times"));
        }
    }
    if !threads.contains_key(main) {
        books.violate(format!("{main} was never heard of"));
    }
    books.heard += count;
    count
}

/// Checks that events received and events reported as missed add up to the events raised.
fn check_slow(slow: BlockingEvents, raised: u64, run_id: &str, books: &mut Ledger) {
    let (mut heard, mut missed, mut last) = (0, 0, 0);
    for one in slow {
        match one {
            SubscriptionItem::Event(event) => {
                heard += 1;
                if event.sequence <= last {
                    books.violate(format!("{run_id}: event {} came after {last}", event.sequence));
                }
                last = event.sequence;
            }
            SubscriptionItem::Lagged(count) => missed += count,
        }
    }
    books.heard_slowly += heard;
    books.missed += missed;
    if heard + missed != raised {
        books.violate(format!(
            "{run_id}: {heard} events heard and {missed} missed, of {raised}"
        ));
    }
}
