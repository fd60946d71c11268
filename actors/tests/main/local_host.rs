//! Actors on threads of other programs: an actix arbiter, or any thread with local tasks.

use std::sync::mpsc;

use actix_rt::{Arbiter, System, SystemRunner};
use pirn_actors::host::{HostConfig, HostRuntime, HostStopped, NotLocalContext, StopReport};

/// Timeout of a test in milliseconds, far above the expected duration.
const GRACE: u64 = 60_000;

/// A runtime on an arbiter, with the system and arbiter that must stay alive.
fn on_an_arbiter() -> (SystemRunner, Arbiter, HostRuntime) {
    let system = System::new();
    let arbiter = Arbiter::new();
    let (built, runtime) = mpsc::channel();
    arbiter.spawn_fn(move || built.send(HostRuntime::local(HostConfig::default())).unwrap_or(()));
    let runtime = runtime.recv().expect("told").expect("an arbiter runs local tasks");
    (system, arbiter, runtime)
}

#[test]
fn an_actix_arbiter_runs_actors_until_it_stops() {
    let (system, arbiter, runtime) = on_an_arbiter();
    let (told, heard) = mpsc::channel();
    let asked = runtime.clone();
    runtime
        .run_on(0, move |host| {
            let here = (asked.tag().is_here(), asked.is_own_thread());
            host.after(None, 1, move || told.send(here).unwrap_or(())).detach();
        })
        .expect("running");
    assert_eq!(heard.recv(), Ok((true, true)));
    assert!(!runtime.is_own_thread());
    arbiter.stop();
    arbiter.join().expect("no panic");
    assert!(runtime.has_ended());
    assert_eq!(runtime.run_on(0, |_| ()), Err(HostStopped));
    assert_eq!(runtime.stop(GRACE), StopReport::default());
    drop(system);
}

#[test]
fn a_stop_from_another_thread_waits_for_tasks_within_the_grace_period() {
    let (system, arbiter, runtime) = on_an_arbiter();
    runtime
        .run_on(0, |host| {
            let sleep = host.sleep(20);
            host.spawn(None, Box::pin(sleep));
        })
        .expect("running");
    assert_eq!(runtime.stop(GRACE), StopReport::default());
    assert!(runtime.has_ended());
    arbiter.stop();
    arbiter.join().expect("no panic");
    drop(system);
}

#[test]
fn a_stop_without_a_grace_period_drops_and_reports_the_remaining_tasks() {
    let (system, arbiter, runtime) = on_an_arbiter();
    let (dropped, gone) = mpsc::channel::<()>();
    runtime
        .run_on(0, move |host| {
            host.spawn(
                None,
                Box::pin(async move {
                    let _dropped = dropped;
                    std::future::pending::<()>().await;
                }),
            );
        })
        .expect("running");
    let left = StopReport {
        tasks_left: 1,
        ..StopReport::default()
    };
    assert_eq!(runtime.stop(0), left);
    assert!(gone.recv().is_err(), "the task was dropped");
    assert_eq!(runtime.stop(0), left, "the second hears the same");
    arbiter.stop();
    arbiter.join().expect("no panic");
    drop(system);
}

#[test]
fn a_local_host_requires_a_runtime_on_its_thread() {
    assert_eq!(
        HostRuntime::local(HostConfig::default()).err(),
        Some(NotLocalContext::Runtime)
    );
}
