//! Child processes of command tools and MCP servers.
//!
//! 1. A program is started without a shell and in a new process group. The group can be killed as a whole, and a Ctrl-C at
//!    the terminal reaches only Pirn, which then stops the program in order.
//! 2. When a [`Process`] exits or is dropped, its whole group is killed. On systems without process groups, only the program is
//!    killed. A dropped process is stopped (SIGSTOP) at once, and killed on a blocking thread.
//! 3. All live groups are registered, so that a process that exits without unwinding can kill them: [`kill_all`].
//! 4. On Linux, descendants that have left the group are killed with it ([`super::descendants`]). Some can be found only while
//!    the program lives, so they are collected before it is killed.
//! 5. An engine's shutdown waits until the groups are killed: [`wait_for_ends`].
//!
//! After a SIGKILL of Pirn, nothing kills its programs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::descendants::{self, MARK, family_of, kill_every_child, kill_family};

/// A running program. Dropping it kills its process group.
#[derive(Debug)]
pub(super) struct Process {
    /// `None` once dropped.
    program: Option<Program>,
}

/// A program and its process group. Dropping it kills the group, then the program.
#[derive(Debug)]
struct Program {
    child: Child,
    group: Group,
}

/// Handle to a program's process group. Clones refer to one group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// `None` once the group has been killed, because the system may reuse the id.
    id: Arc<Mutex<Option<u32>>>,
    /// Locked while the group is being killed.
    ends: Arc<Mutex<()>>,
    mark: Arc<str>,
}

/// Live groups with the marks of their programs; `None` once no further program may be started.
static LIVE: Mutex<Option<BTreeMap<u32, Arc<str>>>> = Mutex::new(Some(BTreeMap::new()));

fn live() -> MutexGuard<'static, Option<BTreeMap<u32, Arc<str>>>> {
    // Poisoning is ignored: the set is consistent whenever the lock can be released.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers of the groups that are being killed, with a condition variable that is notified when one is done.
static ENDING: (Mutex<Endings>, Condvar) = (
    Mutex::new(Endings {
        next: 0,
        under_way: BTreeSet::new(),
    }),
    Condvar::new(),
);

struct Endings {
    next: u64,
    under_way: BTreeSet<u64>,
}

fn endings() -> MutexGuard<'static, Endings> {
    ENDING.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum time to wait for groups that are being killed. Most kills take milliseconds.
const MOST_WAIT: Duration = Duration::from_secs(5);

/// Entry in [`ENDING`], removed on drop.
struct Ending(u64);

impl Ending {
    fn begin() -> Self {
        let mut endings = endings();
        let number = endings.next;
        endings.next += 1;
        endings.under_way.insert(number);
        Self(number)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        endings().under_way.remove(&self.0);
        ENDING.1.notify_all();
    }
}

/// Blocks until the programs that were dropped before this call, and their descendants, are killed, but at most for
/// [`MOST_WAIT`].
pub(super) fn wait_for_ends() {
    let endings = endings();
    let until = endings.next;
    let is_any_left = |endings: &mut Endings| endings.under_way.first().is_some_and(|first| *first < until);
    let waited = ENDING.1.wait_timeout_while(endings, MOST_WAIT, is_any_left);
    let (endings, over) = waited.unwrap_or_else(PoisonError::into_inner);
    if over.timed_out() {
        let groups = endings.under_way.range(..until).count();
        tracing::warn!(groups, "process groups of programs are still being killed");
    }
}

/// Kills every program that command tools and MCP servers have started, with its descendants. No further program can be
/// started.
///
/// Call this in a process that is about to exit without shutting down its engines (`std::process::exit`, an aborting panic
/// hook). Otherwise shut down the engine, which stops its programs in order.
pub fn kill_all() {
    for (id, mark) in live().take().into_iter().flatten() {
        kill(id, &mark);
    }
    wait_for_ends();
    kill_every_child();
}

impl Process {
    /// Starts a program in a new process group.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let mark: Arc<str> = descendants::mark().into();
        command.kill_on_drop(true).env(MARK, &*mark);
        #[cfg(unix)]
        command.process_group(0);
        // The lock is held until the group is registered, so that `kill_all` cannot miss a program that is being started.
        let mut live = live();
        let Some(groups) = live.as_mut() else {
            return Err(io::Error::other("this process is about to exit"));
        };
        let child = command.spawn()?;
        let id = child.id();
        groups.extend(id.map(|id| (id, Arc::clone(&mark))));
        let group = Group {
            id: Arc::new(Mutex::new(id)),
            ends: Arc::default(),
            mark,
        };
        Ok(Self {
            program: Some(Program { child, group }),
        })
    }

    /// Takes the pipes. Each can be taken once.
    pub(super) fn pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        let Some(Program { child, .. }) = &mut self.program else {
            return (None, None, None);
        };
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    }

    /// Returns a handle to the process group; `None` once dropped.
    #[cfg(feature = "mcp")]
    pub(super) fn group(&self) -> Option<Group> {
        self.program.as_ref().map(|program| program.group.clone())
    }

    /// Waits until the program exits, then kills the rest of its group.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let Some(Program { child, group }) = &mut self.program else {
            return Err(io::Error::other("it was dropped"));
        };
        let status = child.wait().await;
        if let Some(dropped) = drop_elsewhere(EndOnDrop(group.clone())) {
            // A join error means that the runtime shuts down. The group was then killed when the task was dropped.
            drop(dropped.await);
        }
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(program) = self.program.take() else {
            return;
        };
        // The id of a program that has exited may already belong to another process.
        if program.child.id().is_some() {
            program.group.stop();
        }
        drop(drop_elsewhere(program));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.group.end();
    }
}

/// Kills a group on drop.
struct EndOnDrop(Group);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Drops `ends`, which kills a group, on a blocking thread, because the search for descendants in `/proc` takes time and
/// pauses. If the runtime shuts down, `ends` is dropped with the task. Outside a runtime, `ends` is dropped before this
/// function returns.
#[allow(clippy::disallowed_methods)] // programs have no virtual time
fn drop_elsewhere(ends: impl Send + 'static) -> Option<tokio::task::JoinHandle<()>> {
    let ends = (ends, Ending::begin());
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    Some(runtime.spawn_blocking(move || drop(ends)))
}

impl Group {
    /// Kills the rest of the group, or waits until another caller has killed it. Blocks.
    fn end(&self) {
        let _ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let id = self.locked().take();
        if let Some(id) = id {
            kill(id, &self.mark);
            if let Some(groups) = live().as_mut() {
                groups.remove(&id);
            }
        }
    }

    /// Kills the rest of the group on a blocking thread.
    #[cfg(feature = "mcp")]
    pub(super) fn kill(&self) {
        if self.locked().is_some() {
            drop(drop_elsewhere(EndOnDrop(self.clone())));
        }
    }

    /// Stops the group (SIGSTOP), so that it executes nothing until it is killed.
    fn stop(&self) {
        if let Some(id) = *self.locked() {
            signal_group(id, GroupSignal::Stop);
        }
    }

    /// Requests termination (SIGTERM).
    #[cfg(feature = "mcp")]
    pub(super) fn ask_to_end(&self) {
        if let Some(id) = *self.locked() {
            signal_group(id, GroupSignal::Term);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<u32>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signal for a process group.
#[derive(Clone, Copy)]
enum GroupSignal {
    #[cfg(feature = "mcp")]
    Term,
    Stop,
    Kill,
}

/// Kills a group and the descendants of its program that have left the group.
fn kill(id: u32, mark: &str) {
    let family = family_of(id);
    signal_group(id, GroupSignal::Kill);
    kill_family(family, mark);
}

/// Sends a signal to a group. An empty group is not an error.
///
/// The id cannot belong to another program: the system does not reuse it while a member lives, and it is signalled only while
/// the group's first process lives or has just exited.
#[cfg(unix)]
fn signal_group(id: u32, sign: GroupSignal) {
    use rustix::process::{Pid, Signal, kill_process_group};
    let signal = match sign {
        #[cfg(feature = "mcp")]
        GroupSignal::Term => Signal::TERM,
        GroupSignal::Stop => Signal::STOP,
        GroupSignal::Kill => Signal::KILL,
    };
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    if let Some(id) = id
        && let Err(error) = kill_process_group(id, signal)
    {
        tracing::debug!(%error, "nothing left of a process group");
    }
}

#[cfg(not(unix))]
fn signal_group(_: u32, _: GroupSignal) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Stdio;
    use std::sync::mpsc::channel;

    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;

    /// Returns the state of a process from `/proc`; `None` if the process does not exist.
    fn state(id: u32) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    }

    fn is_gone(id: u32) -> bool {
        matches!(state(id), None | Some('Z' | 'X'))
    }

    #[test]
    fn a_dropped_program_is_killed_with_descendants_found_only_by_their_parent() {
        // The only blocking thread is occupied until the gate opens, so that the kill has to wait.
        let (gate, opened) = channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        let (program, left) = runtime.block_on(async {
            drop(runtime.spawn_blocking(move || opened.recv()));
            let mut command = Command::new("sh");
            command
                .args(["-c", "env -i setsid sleep 600 & echo $!; wait"])
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            let mut process = Process::start(&mut command).expect("it starts");
            let program = process.program.as_ref().and_then(|program| program.child.id());
            let (_, out, _) = process.pipes();
            let mut line = String::new();
            let mut out = BufReader::new(out.expect("a pipe"));
            out.read_line(&mut line).await.expect("it prints the id of its child");
            drop(process);
            let left: u32 = line.trim().parse().expect("a number");
            (program.expect("it lives"), left)
        });
        let is_stopped = (0..1_000_000).any(|_| state(program) == Some('T'));
        assert!(is_stopped, "it still runs: {:?}", state(program));
        assert!(!is_gone(left), "no sweep has run yet");
        gate.send(()).expect("it waits");
        wait_for_ends();
        assert!(is_gone(program) && is_gone(left));
    }
}
