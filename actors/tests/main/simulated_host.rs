//! The simulated host: virtual time, reproducible orders, external work and deadlock detection.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex, mpsc};

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message};
use futures::FutureExt;
use futures::channel::oneshot;
use pirn_actors::answer::{Answer, Lost};
use pirn_actors::contain::{Exit, start_contained};
use pirn_actors::host::{Deadlock, Host, SimulatedConfig, SimulatedHost};
use proptest::prelude::*;

#[test]
fn actix_mailboxes_work_without_a_system() {
    struct Adder(u32);
    struct Add(u32);
    impl Actor for Adder {
        type Context = Context<Self>;
    }
    impl Message for Add {
        type Result = u32;
    }
    impl Handler<Add> for Adder {
        type Result = u32;
        fn handle(&mut self, Add(more): Add, _: &mut Self::Context) -> u32 {
            self.0 += more;
            self.0
        }
    }

    assert!(actix_rt::System::try_current().is_none());
    let simulated = SimulatedHost::new(None);
    let adder = start_contained(&simulated.host(), Adder(1), |_| ());
    adder.do_send(Add(2));
    let sum = simulated.block_on(adder.send(Add(3)));
    assert_eq!(sum.map(Result::ok), Ok(Some(6)));
}

#[test]
fn a_simulated_week_passes_at_once_and_in_order() {
    const DAY: u64 = 86_400_000;
    let simulated = SimulatedHost::with_config(SimulatedConfig {
        wall_clock_origin: 5,
        ..SimulatedConfig::default()
    });
    let host = simulated.host();
    let fired = Rc::new(RefCell::new(Vec::new()));
    for day in [7, 1, 3, 2] {
        let (fired, inner) = (Rc::clone(&fired), host.clone());
        host.after(None, day * DAY, move || fired.borrow_mut().push((day, inner.now())))
            .detach();
    }
    assert_eq!(simulated.run_until(3 * DAY), 0);
    assert_eq!(*fired.borrow(), [(1, DAY), (2, 2 * DAY), (3, 3 * DAY)]);
    assert_eq!(host.now(), 3 * DAY);
    simulated.run_until_idle();
    assert_eq!(fired.borrow().last(), Some(&(7, 7 * DAY)));
    assert_eq!(host.wall_clock(), 7 * DAY + 5);
}

#[test]
fn a_dropped_timer_never_fires_even_if_due() {
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    let fired = Rc::new(RefCell::new(Vec::new()));
    let note = |what: &'static str| {
        let fired = Rc::clone(&fired);
        move || fired.borrow_mut().push(what)
    };
    let second = Rc::new(RefCell::new(None));
    // Both timers are due at once; the first cancels the second.
    let take_back = {
        let (second, noted) = (Rc::clone(&second), note("first"));
        move || {
            noted();
            drop(second.borrow_mut().take());
        }
    };
    host.after(None, 10, take_back).detach();
    *second.borrow_mut() = Some(host.after(None, 10, note("second")));
    drop(host.after(None, 1, note("dropped")));
    simulated.run_until_idle();
    assert_eq!(*fired.borrow(), ["first"]);
}

#[test]
fn a_panicking_timer_or_task_does_not_affect_others() {
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    host.after(None, 1, || panic!("timer broke")).detach();
    host.spawn(None, Box::pin(async { panic!("task broke") }));
    host.work(None, Box::pin(async { panic!("work broke") })).detach();
    let slept = simulated.block_on(host.sleep(2));
    assert_eq!((slept, simulated.waiting()), (Ok(()), 0));
}

#[test]
fn a_deadlock_reports_the_number_of_waiting_tasks() {
    let simulated = SimulatedHost::new(None);
    for _ in 0..3 {
        simulated.host().spawn(None, std::future::pending().boxed_local());
    }
    assert_eq!(
        simulated.block_on(std::future::pending::<()>()),
        Err(Deadlock { waiting: 3 })
    );
    assert_eq!(simulated.run_until_idle(), 3);
    assert!(Deadlock { waiting: 3 }.to_string().contains("3 tasks"));
}

#[test]
fn work_sleeps_in_virtual_time_and_the_answer_of_aborted_work_is_lost() {
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let work = |name: &'static str, delay| {
        let heard = Arc::clone(&heard);
        let clock = host.work_clock();
        let answer = Answer::new({
            let clock = clock.clone();
            move |result: Result<(), Lost>| heard.lock().expect("sound").push((name, result, clock.now()))
        });
        host.work(
            None,
            Box::pin(async move {
                clock.sleep(delay).await;
                answer.give(());
            }),
        )
    };
    work("slow", 60_000).detach();
    let aborted = work("aborted", 50_000);
    work("fast", 10).detach();
    simulated.run_until(1_000);
    drop(aborted);
    assert_eq!(simulated.run_until_idle(), 0);
    assert_eq!(
        *heard.lock().expect("sound"),
        [
            ("fast", Ok(()), 10),
            ("aborted", Err(Lost), 1_000),
            ("slow", Ok(()), 60_000)
        ]
    );
}

#[test]
fn the_virtual_clock_waits_for_external_work() {
    let simulated = SimulatedHost::new(Some(3));
    let host = simulated.host();
    let (release, gate) = mpsc::channel::<()>();
    let (answer, answered) = oneshot::channel();
    let here = std::thread::current().id();
    host.external(
        None,
        Box::pin(async move {
            // The gate opens only after the executor has started to wait.
            gate.recv().expect("released");
            answer.send(std::thread::current().id()).expect("heard");
        }),
    )
    .detach();
    // The clock must not jump to this timer while external work is in flight.
    host.after(None, 86_400_000, || ()).detach();
    host.spawn(
        None,
        Box::pin(async move { release.send(()).expect("the gate is there") }),
    );
    let there = simulated.block_on(answered).expect("no deadlock").expect("answered");
    assert_ne!(there, here);
    assert!(host.now() < 86_400_000, "the clock jumped to {}", host.now());
    simulated.run_until_idle();
    assert_eq!(host.now(), 86_400_000, "afterwards it jumps again");
}

#[test]
fn a_timer_never_fires_while_a_store_is_accessed() {
    for is_commit in [true, false] {
        let simulated = SimulatedHost::new(None);
        let host = simulated.host();
        let (fire, fired) = mpsc::channel();
        let (open, gate) = oneshot::channel::<()>();
        let (answer, answered) = oneshot::channel();
        // As slow as a store that hangs: the gate opens early only if the timer fires first.
        let slow = std::thread::spawn(move || {
            let is_first = fired.recv_timeout(std::time::Duration::from_millis(200)).is_ok();
            open.send(()).expect("the store waits");
            is_first
        });
        let access = async move {
            gate.await.expect("opened");
            answer.send(()).expect("heard");
        };
        if is_commit {
            host.wait(Box::pin(access));
        } else {
            host.access_store(Box::pin(access)).detach();
        }
        host.after(None, 5, move || fire.send(()).unwrap_or(())).detach();
        let reader = host.clone();
        let at = simulated.block_on(async move {
            answered.await.expect("the store answers");
            reader.now()
        });
        assert_eq!(at, Ok(0), "a store takes no virtual time");
        assert!(!slow.join().expect("no panic"), "the timer was first");
        simulated.run_until_idle();
        assert_eq!(host.now(), 5, "afterwards the clock advances");
    }
}

#[test]
fn the_result_of_external_work_is_received_whenever_it_ends() {
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    // The delay varies, so that the work ends at different steps of the executor: before, between and after its checks.
    for round in 0..20_000_u32 {
        let (answer, answered) = oneshot::channel();
        let meeting = Arc::new(Barrier::new(2));
        let there = Arc::clone(&meeting);
        let work = async move {
            there.wait();
            (0..round % 300).for_each(|_| std::hint::spin_loop());
            answer.send(()).expect("heard");
        };
        host.external(None, Box::pin(work)).detach();
        let hears = async move {
            meeting.wait();
            answered.await.expect("answered");
        };
        host.spawn(None, Box::pin(hears));
        assert_eq!(simulated.run_until_idle(), 0, "round {round}: somebody waits");
    }
}

#[test]
fn a_timeout_fires_while_external_work_is_pending() {
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    let hung = host.external(None, std::future::pending().boxed());
    assert_eq!(simulated.block_on(host.sleep(3)), Ok(()));
    assert!(host.now() >= 3);
    drop(hung);
    assert_eq!(simulated.run_until_idle(), 0, "aborted work holds nothing up");
}

#[test]
fn external_work_may_sleep_on_the_virtual_clock() {
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    let clock = host.work_clock();
    let (answer, answered) = oneshot::channel();
    host.external(
        None,
        Box::pin(async move {
            for _ in 0..3 {
                clock.sleep(1).await;
            }
            answer.send(clock.now()).expect("heard");
        }),
    )
    .detach();
    let now = simulated.block_on(answered).expect("no deadlock").expect("answered");
    assert!(now >= 3, "slept until {now}");
}

#[test]
fn external_work_runs_on_the_given_runtime() {
    let outside = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("embedding")
        .build()
        .expect("a runtime");
    let simulated = SimulatedHost::with_config(SimulatedConfig {
        external: Some(outside.handle().clone()),
        ..SimulatedConfig::default()
    });
    let (answer, answered) = oneshot::channel();
    simulated
        .host()
        .external(
            None,
            Box::pin(async move {
                let name = std::thread::current().name().map(str::to_owned);
                answer.send(name).expect("heard");
            }),
        )
        .detach();
    let name = simulated.block_on(answered).expect("no deadlock").expect("answered");
    assert_eq!(name.as_deref(), Some("embedding"));
}

#[test]
fn a_dropped_host_drops_new_tasks_timers_and_work() {
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    drop(simulated);
    let lost = Arc::new(Mutex::new(0));
    let answer = || {
        let lost = Arc::clone(&lost);
        Answer::<()>::new(move |_| *lost.lock().expect("sound") += 1)
    };
    let (task, work, outside, timer) = (answer(), answer(), answer(), answer());
    host.spawn(None, Box::pin(async move { task.give(()) }));
    host.work(None, Box::pin(async move { work.give(()) })).detach();
    host.external(None, Box::pin(async move { outside.give(()) })).detach();
    host.after(None, 1, move || timer.give(())).detach();
    assert_eq!(*lost.lock().expect("sound"), 4);
}

#[test]
fn a_task_that_spawns_during_the_drop_of_its_host_does_not_hang() {
    struct Once(Host, Rc<RefCell<u32>>);
    impl Drop for Once {
        fn drop(&mut self) {
            *self.1.borrow_mut() += 1;
            self.0.spawn(None, std::future::pending().boxed_local());
            self.0.after(None, 1, || ()).detach();
        }
    }
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    let dropped = Rc::new(RefCell::new(0));
    let held = Once(host.clone(), Rc::clone(&dropped));
    host.spawn(
        None,
        Box::pin(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }),
    );
    simulated.run_ready();
    drop(simulated);
    assert_eq!(*dropped.borrow(), 1);
}

/// Returns the ball until its hits are used up, and records every hit in a shared trace.
struct Player {
    number: u32,
    partner: Option<Addr<Player>>,
    trace: Rc<RefCell<Vec<u32>>>,
}

struct Ball {
    hits_left: u32,
}

impl Message for Ball {
    type Result = ();
}

struct Meet(Addr<Player>);

impl Message for Meet {
    type Result = ();
}

impl Actor for Player {
    type Context = Context<Self>;
}

impl Handler<Meet> for Player {
    type Result = ();

    fn handle(&mut self, Meet(partner): Meet, _: &mut Self::Context) {
        self.partner = Some(partner);
    }
}

impl Handler<Ball> for Player {
    type Result = ();

    fn handle(&mut self, Ball { hits_left }: Ball, ctx: &mut Self::Context) {
        self.trace.borrow_mut().push(self.number);
        match (&self.partner, hits_left.checked_sub(1)) {
            (Some(partner), Some(hits_left)) => partner.do_send(Ball { hits_left }),
            (None, Some(hits_left)) => ctx.address().do_send(Ball { hits_left }),
            (_, None) => {
                // Ends both players: the partner loses its last address.
                self.partner = None;
                ctx.stop();
            }
        }
    }
}

/// Runs `players` (an even number) in pairs. Returns the order of all hits, and the schedule's fingerprint.
fn play(seed: Option<u64>, players: u32, hits: u32) -> (Vec<u32>, u64) {
    let simulated = SimulatedHost::new(seed);
    let host = simulated.host();
    let trace = Rc::new(RefCell::new(Vec::new()));
    let ended = Rc::new(RefCell::new(0));
    let starting: Vec<Addr<Player>> = (0..players)
        .map(|number| {
            let player = Player {
                number,
                partner: None,
                trace: Rc::clone(&trace),
            };
            let ended = Rc::clone(&ended);
            start_contained(&host, player, move |exit| {
                assert_eq!(exit, Exit::Stopped);
                *ended.borrow_mut() += 1;
            })
        })
        .collect();
    for pair in starting.chunks_exact(2) {
        pair[0].do_send(Meet(pair[1].clone()));
        pair[1].do_send(Meet(pair[0].clone()));
        pair[0].do_send(Ball { hits_left: hits });
    }
    drop(starting);
    simulated.run_until_idle();
    assert!(*ended.borrow() >= players / 2, "every pair's last player stopped");
    let fingerprint = simulated.fingerprint();
    drop(simulated);
    (trace.take(), fingerprint)
}

#[test]
fn ten_thousand_actors_run_in_equal_order_for_equal_seeds() {
    let first = play(Some(42), 10_000, 8);
    assert_eq!(first.0.len(), 5_000 * 9);
    assert!(first == play(Some(42), 10_000, 8), "one seed gave two orders");
    assert!(first != play(Some(43), 10_000, 8), "two seeds gave one order");
    let in_order = play(None, 10_000, 8);
    assert!(
        in_order == play(None, 10_000, 8),
        "first come, first served gave two orders"
    );
    // All players were queued at the start, and have the ball in their mailbox at their first turn.
    assert!(
        in_order.0[..10_000].iter().copied().eq(0..10_000),
        "first come, first served"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_seed_determines_the_order(seed: u64, pairs in 1_u32..20, hits in 0_u32..20) {
        prop_assert_eq!(play(Some(seed), pairs * 2, hits), play(Some(seed), pairs * 2, hits));
    }

    #[test]
    fn timers_fire_in_sorted_order(delays in prop::collection::vec((0_u64..50, any::<bool>()), 0..60)) {
        let simulated = SimulatedHost::new(None);
        let host = simulated.host();
        let fired = Rc::new(RefCell::new(Vec::new()));
        let mut expected = Vec::new();
        for (index, (delay, is_kept)) in delays.into_iter().enumerate() {
            let (fired, inner) = (Rc::clone(&fired), host.clone());
            let timer = host.after(None, delay, move || fired.borrow_mut().push((inner.now(), index)));
            if is_kept {
                timer.detach();
                expected.push((delay, index));
            }
        }
        expected.sort_unstable();
        simulated.run_until_idle();
        prop_assert_eq!(&*fired.borrow(), &expected);
    }

    #[test]
    fn two_seeds_usually_give_two_orders(seed: u64) {
        prop_assert_ne!(play(Some(seed), 40, 8).0, play(Some(seed.wrapping_add(1)), 40, 8).0);
    }
}
