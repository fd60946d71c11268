//! A panic anywhere in an actor ends only that actor, and its exit is reported exactly once.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use actix::{Actor, ActorContext, Addr, Context, Handler, Message, Running};
use pirn_actors::contain::{Exit, start_contained};
use pirn_actors::host::{Host, HostConfig, HostRuntime, SimulatedHost};

/// Points at which an actor panics; several may be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Breaks {
    started: bool,
    handler: bool,
    stopping: bool,
    stopped: bool,
    drop: bool,
}

const NO_PANIC: Breaks = Breaks {
    started: false,
    handler: false,
    stopping: false,
    stopped: false,
    drop: false,
};

struct Fragile {
    breaks: Breaks,
    calls: Sender<&'static str>,
}

impl Fragile {
    fn call(&self, place: &'static str, breaks: bool) {
        self.calls.send(place).unwrap_or(());
        assert!(!breaks, "{place} broke");
    }
}

impl Actor for Fragile {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.call("started", self.breaks.started);
    }

    fn stopping(&mut self, _: &mut Self::Context) -> Running {
        self.call("stopping", self.breaks.stopping);
        Running::Stop
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.call("stopped", self.breaks.stopped);
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.call("drop", self.breaks.drop);
    }
}

struct Work;

impl Message for Work {
    type Result = ();
}

impl Handler<Work> for Fragile {
    type Result = ();

    fn handle(&mut self, _: Work, _: &mut Self::Context) {
        self.call("handler", self.breaks.handler);
    }
}

struct Stop;

impl Message for Stop {
    type Result = ();
}

impl Handler<Stop> for Fragile {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// Calls and exits recorded for one actor.
struct Received {
    calls: Receiver<&'static str>,
    exits: Receiver<Exit>,
}

impl Received {
    fn calls(&self) -> Vec<&'static str> {
        self.calls.try_iter().collect()
    }
}

fn channels() -> (Sender<&'static str>, Sender<Exit>, Received) {
    let (call, calls) = mpsc::channel();
    let (exit, exits) = mpsc::channel();
    (call, exit, Received { calls, exits })
}

fn start(host: &Host, breaks: Breaks, calls: Sender<&'static str>, exits: Sender<Exit>) -> Addr<Fragile> {
    start_contained(host, Fragile { breaks, calls }, move |exit| {
        exits.send(exit).unwrap_or(());
    })
}

fn panicked(place: &str) -> Exit {
    Exit::Panicked {
        message: format!("{place} broke"),
    }
}

/// Each combination of panics, with the expected calls and the reported exit.
fn cases() -> Vec<(Breaks, Vec<&'static str>, Exit)> {
    let whole = vec!["started", "handler", "stopping", "stopped", "drop"];
    vec![
        (NO_PANIC, whole.clone(), Exit::Stopped),
        (
            Breaks {
                started: true,
                ..NO_PANIC
            },
            vec!["started", "drop"],
            panicked("started"),
        ),
        (
            Breaks {
                handler: true,
                ..NO_PANIC
            },
            vec!["started", "handler", "drop"],
            panicked("handler"),
        ),
        (
            Breaks {
                stopping: true,
                ..NO_PANIC
            },
            vec!["started", "handler", "stopping", "drop"],
            panicked("stopping"),
        ),
        (
            Breaks {
                stopped: true,
                ..NO_PANIC
            },
            whole.clone(),
            panicked("stopped"),
        ),
        (Breaks { drop: true, ..NO_PANIC }, whole.clone(), panicked("drop")),
        (
            Breaks {
                handler: true,
                stopping: true,
                stopped: true,
                drop: true,
                ..NO_PANIC
            },
            vec!["started", "handler", "drop"],
            panicked("handler"),
        ),
        (
            Breaks {
                stopped: true,
                drop: true,
                ..NO_PANIC
            },
            whole,
            panicked("stopped"),
        ),
    ]
}

#[test]
fn a_panic_in_any_callback_ends_only_its_actor_under_simulation() {
    for (breaks, calls, exit) in cases() {
        let simulated = SimulatedHost::new(None);
        let host = simulated.host();
        let (call, told, heard) = channels();
        let (other_call, other_told, other_heard) = channels();
        let fragile = start(&host, breaks, call, told);
        let other = start(&host, NO_PANIC, other_call, other_told);
        fragile.do_send(Work);
        fragile.do_send(Stop);
        simulated.run_until_idle();
        assert_eq!(heard.calls(), calls, "{breaks:?}");
        assert_eq!(heard.exits.try_iter().collect::<Vec<_>>(), [exit], "{breaks:?}");
        assert!(!fragile.connected());

        other.do_send(Work);
        simulated.run_until_idle();
        assert_eq!(other_heard.calls(), ["started", "handler"], "{breaks:?}");
        assert_eq!(simulated.waiting(), 1, "only the other is left");
    }
}

#[test]
fn a_panic_in_any_callback_ends_only_its_actor_on_an_arbiter() {
    let runtime = one_arbiter();
    let (other_call, other_told, other_heard) = channels();
    let other = on(&runtime, move |host| start(host, NO_PANIC, other_call, other_told));
    for (breaks, calls, exit) in cases() {
        let (call, told, heard) = channels();
        let fragile = on(&runtime, move |host| start(host, breaks, call, told));
        fragile.do_send(Work);
        fragile.do_send(Stop);
        assert_eq!(heard.exits.recv(), Ok(exit), "{breaks:?}");
        assert!(heard.exits.recv().is_err(), "told once: {breaks:?}");
        assert_eq!(heard.calls(), calls, "{breaks:?}");
        other.do_send(Work);
        let answered = other_heard.calls.iter().find(|call| *call == "handler");
        assert!(answered.is_some(), "{breaks:?}");
    }
    drop(other);
    assert_eq!(other_heard.exits.recv(), Ok(Exit::Stopped));
    assert_eq!(runtime.stop(10_000).tasks_left, 0);
}

/// Expected calls and exit of a running actor after its host is dropped.
fn shutdown_cases() -> Vec<(Breaks, Vec<&'static str>, Exit)> {
    let farewell = vec!["started", "stopping", "stopped", "drop"];
    vec![
        (NO_PANIC, farewell.clone(), Exit::Dropped),
        (
            Breaks {
                stopping: true,
                ..NO_PANIC
            },
            vec!["started", "stopping", "drop"],
            panicked("stopping"),
        ),
        (
            Breaks {
                stopped: true,
                drop: true,
                ..NO_PANIC
            },
            farewell.clone(),
            panicked("stopped"),
        ),
        (Breaks { drop: true, ..NO_PANIC }, farewell, panicked("drop")),
    ]
}

#[test]
fn an_actor_of_a_dropped_simulated_host_is_stopped_and_reported_as_dropped() {
    for (breaks, calls, exit) in shutdown_cases() {
        let simulated = SimulatedHost::new(None);
        let (call, told, heard) = channels();
        let fragile = start(&simulated.host(), breaks, call, told);
        simulated.run_until_idle();
        drop(simulated);
        assert_eq!(heard.calls(), calls, "{breaks:?}");
        assert_eq!(heard.exits.try_iter().collect::<Vec<_>>(), [exit], "{breaks:?}");
        assert!(!fragile.connected());
    }
}

#[test]
fn an_actor_of_a_stopped_arbiter_is_stopped_and_reported_as_dropped() {
    for (breaks, calls, exit) in shutdown_cases() {
        let runtime = one_arbiter();
        let (call, told, heard) = channels();
        let fragile = on(&runtime, move |host| start(host, breaks, call, told));
        assert_eq!(heard.calls.recv(), Ok("started"));
        let report = runtime.stop(0);
        assert_eq!((report.tasks_left, report.arbiters_stuck), (1, 0), "{breaks:?}");
        assert_eq!(heard.calls(), calls[1..], "{breaks:?}");
        assert_eq!(heard.exits.try_iter().collect::<Vec<_>>(), [exit], "{breaks:?}");
        assert!(!fragile.connected());
    }
}

#[test]
fn an_actor_that_never_ran_is_dropped_without_being_started() {
    let simulated = SimulatedHost::new(None);
    let (call, told, heard) = channels();
    let _address = start(&simulated.host(), NO_PANIC, call, told);
    drop(simulated);
    assert_eq!(heard.calls(), ["drop"]);
    assert_eq!(heard.exits.try_iter().collect::<Vec<_>>(), [Exit::Dropped]);
}

#[test]
fn a_panic_in_the_exit_report_affects_no_other_actor() {
    let simulated = SimulatedHost::new(None);
    let host = simulated.host();
    let (call, told, _heard) = channels();
    drop(told);
    let breaking = start_contained(
        &host,
        Fragile {
            breaks: NO_PANIC,
            calls: call,
        },
        |_| panic!("the report broke"),
    );
    breaking.do_send(Stop);
    assert_eq!(simulated.run_until_idle(), 0);
}

#[test]
fn a_panic_without_a_message_is_reported_as_such() {
    struct Odd;
    impl Actor for Odd {
        type Context = Context<Self>;
        fn started(&mut self, _: &mut Self::Context) {
            std::panic::panic_any(7_u32);
        }
    }
    let simulated = SimulatedHost::new(None);
    let (told, exits) = mpsc::channel();
    let _address = start_contained(&simulated.host(), Odd, move |exit| told.send(exit).unwrap_or(()));
    simulated.run_until_idle();
    let message = "a panic without a message".to_owned();
    assert_eq!(exits.try_iter().collect::<Vec<_>>(), [Exit::Panicked { message }]);
}

fn one_arbiter() -> HostRuntime {
    HostRuntime::start(HostConfig {
        arbiters: 1,
        ..HostConfig::default()
    })
    .expect("threads")
}

/// Runs `job` on the arbiter and returns its result.
fn on<T: Send + 'static>(runtime: &HostRuntime, job: impl FnOnce(&Host) -> T + Send + 'static) -> T {
    let (told, heard) = mpsc::channel();
    runtime
        .run_on(0, move |host| told.send(job(host)).unwrap_or(()))
        .expect("the runtime runs");
    heard.recv_timeout(Duration::from_mins(1)).expect("the job ran")
}
