//! Hosts on real threads: repeated starts and stops from any context, and completion or report of all work.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier};

use actix::{Actor, Context, Handler, Message};
use pirn_actors::answer::{Answer, Lost};
use pirn_actors::contain::{Exit, start_contained};
use pirn_actors::host::{ArbiterLease, HostConfig, HostRuntime, HostStopped};

/// Timeout of a test in milliseconds, far above the expected duration.
const GRACE: u64 = 60_000;

fn start(arbiters: usize) -> HostRuntime {
    HostRuntime::start(HostConfig {
        arbiters,
        ..HostConfig::default()
    })
    .expect("threads")
}

/// A reply slot and its receiver.
fn answer<T: Send + 'static>() -> (Answer<T>, Receiver<Result<T, Lost>>) {
    let (told, heard) = mpsc::channel();
    (Answer::new(move |result| told.send(result).unwrap_or(())), heard)
}

#[test]
fn an_actor_answers_across_threads() {
    struct Doubler;
    struct Double(u32);
    impl Actor for Doubler {
        type Context = Context<Self>;
    }
    impl Message for Double {
        type Result = u32;
    }
    impl Handler<Double> for Doubler {
        type Result = u32;
        fn handle(&mut self, Double(number): Double, _: &mut Self::Context) -> u32 {
            number * 2
        }
    }
    let runtime = start(2);
    let (addresses, address) = mpsc::channel();
    let (exits, exit) = mpsc::channel();
    runtime
        .run_on(1, move |host| {
            let doubler = start_contained(host, Doubler, move |exit| exits.send(exit).unwrap_or(()));
            addresses.send(doubler).expect("heard");
        })
        .expect("running");
    let doubler = address.recv().expect("started");
    let answered = futures::executor::block_on(doubler.send(Double(21)));
    assert_eq!(answered, Ok(42));
    drop(doubler);
    assert_eq!(exit.recv(), Ok(Exit::Stopped));
    assert_eq!(runtime.stop(GRACE), pirn_actors::host::StopReport::default());
}

#[test]
fn jobs_of_one_sender_run_in_order_on_a_named_thread_of_their_arbiter() {
    let runtime = start(2);
    let (told, heard) = mpsc::channel();
    for number in 0..1_000 {
        let told = told.clone();
        let job = move |_: &_| told.send((number, std::thread::current().id())).expect("heard");
        runtime.run_on(number % 2, job).expect("running");
    }
    drop(told);
    let (even, odd): (Vec<_>, Vec<_>) = heard.iter().partition(|(number, _)| number % 2 == 0);
    for jobs in [even, odd] {
        assert!(jobs.is_sorted_by_key(|(number, _)| *number));
        assert!(
            jobs.iter().all(|(_, thread)| *thread == jobs[0].1),
            "one arbiter, one thread"
        );
    }
}

#[test]
fn a_lease_is_on_the_least_loaded_arbiter_and_released_on_drop() {
    let runtime = start(3);
    let leases: Vec<ArbiterLease> = (0..7).map(|_| runtime.lease()).collect();
    assert_eq!(
        (0..3).map(|arbiter| runtime.load(arbiter)).collect::<Vec<_>>(),
        [3, 2, 2]
    );
    drop(leases);
    assert_eq!((0..3).map(|arbiter| runtime.load(arbiter)).sum::<usize>(), 0);
}

#[test]
fn a_panicking_job_timer_or_work_does_not_affect_others() {
    let runtime = start(1);
    let (lost, heard_lost) = answer::<()>();
    runtime.run_on(0, |_| panic!("job broke")).expect("running");
    runtime
        .run_on(0, |host| {
            host.after(None, 0, || panic!("timer broke")).detach();
            host.spawn(None, Box::pin(async { panic!("task broke") }));
            host.work(
                None,
                Box::pin(async move {
                    let _held = lost;
                    panic!("work broke");
                }),
            )
            .detach();
        })
        .expect("running");
    assert_eq!(heard_lost.recv(), Ok(Err(Lost)));
    let (given, heard) = answer();
    runtime
        .run_on(0, |host| host.after(None, 1, move || given.give(7)).detach())
        .expect("running");
    assert_eq!(heard.recv(), Ok(Ok(7)));
    assert_eq!(runtime.stop(GRACE).tasks_left, 0);
}

/// A timer that fired: the range of its deadline, and when it fired.
struct Fired {
    earliest: u64,
    latest: u64,
    now: u64,
}

#[test]
fn ten_thousand_timers_fire_in_order_and_never_early() {
    let runtime = start(1);
    let (told, heard) = mpsc::channel();
    runtime
        .run_on(0, move |host| {
            for number in 0..10_000_u64 {
                // Decreasing deadlines, so that later timers precede the one for which the driver sleeps.
                let wait = (10_000 - number) % 20;
                let latest = Rc::new(Cell::new(0));
                let earliest = host.now() + wait;
                let (told, bound, inner) = (told.clone(), Rc::clone(&latest), host.clone());
                host.after(None, wait, move || {
                    let (latest, now) = (bound.get(), inner.now());
                    told.send(Fired { earliest, latest, now }).expect("heard");
                })
                .detach();
                // The thread may be preempted between the calls, so the deadline lies between the two readings of the clock.
                latest.set(host.now() + wait + 1);
                drop(host.after(None, wait, || panic!("a cancelled timer fired")));
            }
        })
        .expect("running");
    let mut due_so_far = 0;
    let mut count = 0;
    for Fired { earliest, latest, now } in heard {
        assert!(now >= earliest, "due at {earliest}, fired at {now}");
        assert!(
            due_so_far <= latest,
            "one due at {due_so_far} overtook one due by {latest}"
        );
        due_so_far = due_so_far.max(earliest);
        count += 1;
    }
    assert_eq!(count, 10_000);
}

#[test]
fn work_runs_off_the_arbiter_on_the_given_runtime() {
    let embedding = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("embedding")
        .build()
        .expect("a runtime");
    let runtime = HostRuntime::start(HostConfig {
        arbiters: 1,
        work: Some(embedding.handle().clone()),
        ..HostConfig::default()
    })
    .expect("threads");
    let (given, heard) = answer();
    runtime
        .run_on(0, |host| {
            let clock = host.work_clock();
            host.work(
                None,
                Box::pin(async move {
                    // The embedding runtime has no timers here.
                    let before = clock.now();
                    clock.sleep(2).await;
                    let name = std::thread::current().name().map(str::to_owned);
                    given.give((name, clock.now() - before));
                }),
            )
            .detach();
        })
        .expect("running");
    let (name, waited) = heard.recv().expect("told").expect("answered");
    assert_eq!(name.as_deref(), Some("embedding"));
    assert!(waited >= 2, "waited {waited} ms");
}

#[test]
fn dropping_a_work_handle_aborts_the_work() {
    let runtime = start(1);
    let (held, heard) = answer::<()>();
    runtime
        .run_on(0, |host| {
            let work = host.work(
                None,
                Box::pin(async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                }),
            );
            drop(work);
        })
        .expect("running");
    assert_eq!(heard.recv(), Ok(Err(Lost)));
    assert_eq!(runtime.stop(GRACE).work_left, 0);
}

#[test]
fn a_stop_waits_for_tasks_and_work_within_the_grace_period() {
    let runtime = start(2);
    let (open, gate) = futures::channel::oneshot::channel::<()>();
    let (given, heard) = answer();
    let (opened, seen) = mpsc::channel();
    runtime
        .run_on(0, |host| {
            let inner = host.clone();
            host.spawn(
                None,
                Box::pin(async move {
                    gate.await.expect("opened");
                    // The task starts work during the stop, and the work waits for a timer: all of it must complete.
                    let clock = inner.work_clock();
                    inner
                        .work(
                            None,
                            Box::pin(async move {
                                clock.sleep(5).await;
                                given.give("done");
                            }),
                        )
                        .detach();
                }),
            );
        })
        .expect("running");
    let stopping = {
        let runtime = runtime.clone();
        std::thread::spawn(move || {
            opened.send(()).expect("seen");
            runtime.stop(GRACE)
        })
    };
    seen.recv().expect("the stop is on its way");
    open.send(()).expect("the gate is there");
    let report = stopping.join().expect("no panic");
    assert_eq!((report.tasks_left, report.work_left), (0, 0));
    assert_eq!(heard.try_recv(), Ok(Ok("done")));
}

#[test]
fn a_stop_without_a_grace_period_drops_and_reports_the_remaining_tasks() {
    let runtime = start(1);
    let (task, task_heard) = answer::<()>();
    let (timer, timer_heard) = answer::<()>();
    let (work, work_heard) = answer::<()>();
    let ready = Arc::new(Barrier::new(2));
    let at_work = Arc::clone(&ready);
    runtime
        .run_on(0, |host| {
            let held = host.work(
                None,
                Box::pin(async move {
                    let _held = work;
                    at_work.wait();
                    std::future::pending::<()>().await;
                }),
            );
            host.after(None, u64::MAX, move || timer.give(())).detach();
            host.spawn(
                None,
                Box::pin(async move {
                    let _held = (task, held);
                    std::future::pending::<()>().await;
                }),
            );
        })
        .expect("running");
    ready.wait();
    // Queued behind the job above, so that its task is alive.
    let (given, heard) = answer();
    runtime.run_on(0, |_| given.give(())).expect("running");
    assert_eq!(heard.recv(), Ok(Ok(())));
    let report = runtime.stop(0);
    assert_eq!((report.work_left, report.arbiters_stuck), (1, 0));
    assert!(report.tasks_left >= 1, "{report:?}");
    for heard in [task_heard, timer_heard, work_heard] {
        assert_eq!(heard.recv(), Ok(Err(Lost)));
    }
    assert_eq!(runtime.stop(GRACE), report, "the second stop tells the same");
    assert_eq!(runtime.run_on(0, |_| panic!("ran after the stop")), Err(HostStopped));
    assert_eq!(runtime.alive(), 0);
}

#[test]
fn a_runtime_starts_and_stops_inside_tokio() {
    for flavour in [
        tokio::runtime::Builder::new_current_thread(),
        tokio::runtime::Builder::new_multi_thread(),
    ] {
        let mut flavour = flavour;
        let embedding = flavour.enable_all().build().expect("a runtime");
        embedding.block_on(async {
            let stopped = start(2);
            let (given, heard) = futures::channel::oneshot::channel();
            stopped
                .run_on(0, |host| {
                    host.work(None, Box::pin(async move { given.send(7).expect("heard") }))
                        .detach();
                })
                .expect("running");
            assert_eq!(heard.await, Ok(7));
            assert_eq!(stopped.stop_async(GRACE).await.work_left, 0);

            let dropped = start(1);
            dropped.run_on(0, |_| ()).expect("running");
            drop(dropped);
            assert_eq!(start(1).stop(GRACE).tasks_left, 0);
        });
        let on_a_worker = embedding.handle().clone();
        let worker = on_a_worker.clone();
        embedding.block_on(async move {
            let joined = spawn_on(&worker, async { start(1).stop(GRACE).tasks_left }).await;
            assert_eq!(joined, Ok(0));
        });
    }
}

/// Runs `future` as a task of `runtime`, on one of its workers.
async fn spawn_on<T: Send + 'static>(
    runtime: &tokio::runtime::Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, futures::channel::oneshot::Canceled> {
    let (told, heard) = futures::channel::oneshot::channel();
    let task = runtime.spawn(async move { told.send(future.await).unwrap_or(()) });
    let result = heard.await;
    drop(task);
    result
}

#[test]
fn stopping_or_dropping_a_runtime_on_its_threads_does_not_deadlock() {
    let runtime = start(2);
    let (dropped, heard_dropped) = mpsc::channel::<()>();
    let last = runtime.clone();
    let ready = Arc::new(Barrier::new(2));
    let go = Arc::clone(&ready);
    runtime
        .run_on(1, move |_| {
            go.wait();
            let report = last.stop(GRACE);
            assert_eq!(report.tasks_left, 1, "this job itself");
            drop(last);
            drop(dropped);
        })
        .expect("running");
    drop(runtime);
    ready.wait();
    assert!(heard_dropped.recv().is_err(), "the job ended");
}

#[test]
fn a_blocked_thread_is_reported_and_detached() {
    let runtime = HostRuntime::start(HostConfig {
        arbiters: 2,
        patience: 10,
        ..HostConfig::default()
    })
    .expect("threads");
    let (open, gate) = mpsc::channel::<()>();
    let (given, heard) = answer();
    runtime
        .run_on(0, move |_| {
            given.give(());
            // Blocks until the end of the test.
            assert!(gate.recv().is_err());
        })
        .expect("running");
    assert_eq!(heard.recv(), Ok(Ok(())));
    let report = runtime.stop(0);
    assert_eq!((report.tasks_left, report.arbiters_stuck), (1, 1));
    drop(open);
}

#[test]
fn runtimes_in_one_process_are_independent() {
    let (first, second) = (start(1), start(1));
    first.stop(GRACE);
    let (given, heard) = answer();
    second.run_on(0, |_| given.give(1)).expect("running");
    assert_eq!(heard.recv(), Ok(Ok(1)));
}

#[test]
fn actors_that_exchange_messages_across_arbiters_end_within_the_grace_period() {
    struct Relay {
        next: Option<actix::Recipient<Token>>,
        done: mpsc::Sender<u32>,
    }
    struct Token(u32);
    struct Next(actix::Recipient<Token>);
    impl Message for Token {
        type Result = ();
    }
    impl Message for Next {
        type Result = ();
    }
    impl Actor for Relay {
        type Context = Context<Self>;
    }
    impl Handler<Next> for Relay {
        type Result = ();
        fn handle(&mut self, Next(next): Next, _: &mut Self::Context) {
            self.next = Some(next);
        }
    }
    impl Handler<Token> for Relay {
        type Result = ();
        fn handle(&mut self, Token(hops): Token, _: &mut Self::Context) {
            if let (Some(hops), Some(next)) = (hops.checked_sub(1), &self.next) {
                next.do_send(Token(hops));
            } else {
                self.next = None;
                self.done.send(hops).unwrap_or(());
            }
        }
    }
    let runtime = start(2);
    let (done, heard) = mpsc::channel();
    let (addresses, address) = mpsc::channel();
    for arbiter in 0..2 {
        let (addresses, done) = (addresses.clone(), done.clone());
        runtime
            .run_on(arbiter, move |host| {
                let relay = start_contained(host, Relay { next: None, done }, |_| ());
                addresses.send(relay).expect("heard");
            })
            .expect("running");
    }
    let (one, other) = (address.recv().expect("started"), address.recv().expect("started"));
    one.do_send(Next(other.clone().recipient()));
    other.do_send(Next(one.clone().recipient()));
    one.do_send(Token(10_000));
    assert_eq!(heard.recv(), Ok(0));
    drop((one, other));
    assert_eq!(runtime.stop(GRACE).tasks_left, 0, "the circle opened with the last hop");
}
