//! Confinement of a worker process, applied before it reads its first script.
//!
//! 1. On all Unix systems: a limit on address space; no file growth, no further open files, no core dumps; on Linux also no new
//!    processes (unless the user is root). CPU time is limited per job, so that a worker ends even if its engine is gone.
//! 2. On Linux, the worker is killed with its engine, and a filter allows only the system calls that QuickJS and an allocator need:
//!    reading standard input, writing standard output, memory, clocks. All others fail with EPERM: files, network, processes,
//!    signals to other processes.

use std::io::Result;
use std::time::Duration;

/// Address space of a worker in addition to its scripts' values: the program, its stack, and JSON being parsed or written.
const PROGRAM: u64 = 512 << 20;

#[cfg(unix)]
pub(super) fn confine(memory: usize) -> Result<()> {
    use rustix::process::Resource;

    let space = (memory as u64).saturating_mul(4).saturating_add(PROGRAM);
    for (resource, most) in [
        (Resource::As, space),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nofile, 3),
        #[cfg(target_os = "linux")]
        (Resource::Nproc, 0),
    ] {
        limit(resource, most, Some(most))?;
    }
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        filter_calls()?;
    }
    Ok(())
}

/// Limits the process's CPU time to this duration plus a few seconds, from now.
#[cfg(unix)]
pub(super) fn allow_time(time: Duration) {
    use rustix::process::Resource;
    use rustix::time::{ClockId, clock_gettime};

    let used = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0);
    let most = used.saturating_add(time.as_secs()).saturating_add(3);
    // If this fails, another limit still applies: the engine kills a worker that exceeds its time.
    let _: Result<()> = limit(Resource::Cpu, most, None);
}

#[cfg(unix)]
fn limit(resource: rustix::process::Resource, most: u64, ever: Option<u64>) -> Result<()> {
    let before = rustix::process::getrlimit(resource);
    let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    let maximum = least(before.maximum, ever);
    let limit = rustix::process::Rlimit {
        current: least(maximum, Some(most)),
        maximum,
    };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

#[cfg(not(unix))]
pub(super) fn confine(_: usize) -> Result<()> {
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn allow_time(_: Duration) {}

/// Installs the system call filter on supported architectures.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn filter_calls() -> Result<()> {
    use std::collections::BTreeMap;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    // Filters by a call's first argument: a descriptor or a process.
    let only_on = |number: u64| -> std::result::Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let is_it = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, number)?;
        Ok(vec![SeccompRule::new(vec![is_it])?])
    };
    let program = || -> std::result::Result<BpfProgram, seccompiler::BackendError> {
        let mut rules = BTreeMap::from([
            (libc::SYS_read, only_on(0)?),
            (libc::SYS_write, only_on(1)?),
            (libc::SYS_prlimit64, only_on(0)?),
            (libc::SYS_tgkill, only_on(u64::from(std::process::id()))?),
        ]);
        for call in [
            libc::SYS_brk,
            libc::SYS_clock_gettime,
            libc::SYS_exit,
            libc::SYS_exit_group,
            libc::SYS_futex,
            libc::SYS_getrandom,
            libc::SYS_gettid,
            libc::SYS_getpid,
            libc::SYS_madvise,
            libc::SYS_mmap,
            libc::SYS_mprotect,
            libc::SYS_mremap,
            libc::SYS_munmap,
            libc::SYS_rt_sigaction,
            libc::SYS_rt_sigprocmask,
            libc::SYS_rt_sigreturn,
            libc::SYS_sched_yield,
            libc::SYS_sigaltstack,
        ] {
            rules.insert(call, Vec::new());
        }
        let architecture = std::env::consts::ARCH.try_into()?;
        let refused = SeccompAction::Errno(1); // EPERM
        SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
    };
    let program = program().map_err(std::io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(std::io::Error::other)
}

#[cfg(all(target_os = "linux", not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn filter_calls() -> Result<()> {
    Ok(())
}
