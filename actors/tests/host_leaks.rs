//! Starting and stopping a runtime leaks neither threads nor descriptors. In a separate binary, because the test counts those of
//! the whole process.

#![cfg(target_os = "linux")]

use std::sync::mpsc;

use pirn_actors::host::{HostConfig, HostRuntime};

#[test]
fn two_hundred_runtimes_leak_no_thread_or_descriptor() {
    // tokio's one-time setup per process (for example its signal pipe) is not a leak.
    HostRuntime::start(HostConfig::default()).expect("threads").stop(0);
    let before = (threads(), descriptors());
    for round in 0..200_u32 {
        let runtime = HostRuntime::start(HostConfig {
            arbiters: 2,
            ..HostConfig::default()
        })
        .expect("threads");
        let (told, heard) = mpsc::channel();
        runtime
            .run_on(1, move |host| {
                host.after(None, u64::MAX, || ()).detach();
                host.spawn(None, Box::pin(std::future::pending()));
                if round % 4 == 0 {
                    // Starts the threads for work.
                    host.work(None, Box::pin(async move { told.send(()).expect("heard") }))
                        .detach();
                } else {
                    told.send(()).expect("heard");
                }
            })
            .expect("running");
        heard.recv().expect("ran");
        match round % 3 {
            0 => assert_eq!(runtime.stop(0).arbiters_stuck, 0),
            1 => drop(runtime),
            _ => assert_eq!(futures::executor::block_on(runtime.stop_async(0)).arbiters_stuck, 0),
        }
    }
    // A joined thread may remain in the kernel's list for a moment.
    let is_back = (0..1_000_000).any(|_| {
        std::thread::yield_now();
        (threads(), descriptors()) == before
    });
    assert!(is_back, "before {before:?}, now {:?}", (threads(), descriptors()));
}

fn threads() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"))
        .and_then(|count| count.trim().parse().ok())
        .expect("the kernel counts threads")
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count()
}
