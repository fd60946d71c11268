//! Programs that are started for a call or as a server.
//!
//! 1. A program is started without a shell, in a process group of its own, so that what it starts can be ended with it
//!    and a Ctrl-C at the terminal reaches only Pirn, which ends it in order.
//! 2. When a [`Process`] is dropped or has ended, its whole group is killed. Where there are no process groups, the
//!    program alone is. A dropped one is stopped (SIGSTOP) at once, and killed by a thread that may block.
//! 3. Every group that lives is listed, so that a process about to exit without unwinding can end them: [`kill_all`].
//! 4. On Linux, what has left the group is killed with it ([`super::descendants`]). Some of it is found only while the program
//!    lives, which is therefore the last to be killed.
//! 5. An engine's shutdown waits for the groups that are being killed: [`wait_for_ends`].
//!
//! Out of reach: everything after a kill -9 of Pirn itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::descendants::{self, MARK, family_of, kill_every_child, kill_family};

/// A program under way. Its group is killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    /// None once it is dropped.
    program: Option<Program>,
}

/// A program that is killed when this is dropped, after its group.
#[derive(Debug)]
struct Program {
    child: Child,
    group: Group,
}

/// A program's process group, for those who may have to end it.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// None once it was ended: the number may be another's by then.
    id: Arc<Mutex<Option<u32>>>,
    /// Held while the group is being killed.
    ends: Arc<Mutex<()>>,
    mark: Arc<str>,
}

/// The groups that live, with the marks of their programs; none where no more may be started.
static LIVE: Mutex<Option<BTreeMap<u32, Arc<str>>>> = Mutex::new(Some(BTreeMap::new()));

fn live() -> MutexGuard<'static, Option<BTreeMap<u32, Arc<str>>>> {
    // Every holder leaves the set whole.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The groups that are being killed, numbered.
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

/// Time that groups which are being killed are waited for, at most: most of them take milliseconds.
const MOST_WAIT: Duration = Duration::from_secs(5);

/// A number in [`ENDING`] until it is dropped.
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

/// Waits until every program that was dropped before, and what it has started, is killed. Blocks.
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

/// Kills every program that command tools and MCP servers have started, with what those have started, and starts no
/// more: for a program that is about to exit without letting its engines shut down (`std::process::exit`, an aborting
/// panic hook). An engine's shutdown does the same in order.
pub fn kill_all() {
    for (id, mark) in live().take().into_iter().flatten() {
        kill(id, &mark);
    }
    wait_for_ends();
    kill_every_child();
}

impl Process {
    /// Starts a program in a group of its own.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let mark: Arc<str> = descendants::mark().into();
        command.kill_on_drop(true).env(MARK, &*mark);
        #[cfg(unix)]
        command.process_group(0);
        // Under the lock: no program is started and not listed.
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

    /// Its pipes, each once.
    pub(super) fn pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        let Some(Program { child, .. }) = &mut self.program else {
            return (None, None, None);
        };
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    }

    /// Its group.
    #[cfg(feature = "mcp")]
    pub(super) fn group(&self) -> Option<Group> {
        self.program.as_ref().map(|program| program.group.clone())
    }

    /// Waits for its end, and kills what it has left behind.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let Some(Program { child, group }) = &mut self.program else {
            return Err(io::Error::other("it was dropped"));
        };
        let status = child.wait().await;
        if let Some(dropped) = drop_elsewhere(EndOnDrop(group.clone())) {
            // An error: the runtime stops, and the group has ended with the task.
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
        // What has ended has no number of its own any more.
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

/// A group that ends when this is dropped.
struct EndOnDrop(Group);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Drops on a thread that may block what ends a group: descendants are looked for in `/proc`, with pauses. A runtime that stops
/// drops it too; without one it is done when this returns.
#[allow(clippy::disallowed_methods)] // programs have no virtual time
fn drop_elsewhere(ends: impl Send + 'static) -> Option<tokio::task::JoinHandle<()>> {
    let ends = (ends, Ending::begin());
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    Some(runtime.spawn_blocking(move || drop(ends)))
}

impl Group {
    /// Kills what is left of it, or waits for whoever does. Blocks.
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

    /// Kills what is left of it, on a thread that may block.
    #[cfg(feature = "mcp")]
    pub(super) fn kill(&self) {
        if self.locked().is_some() {
            drop(drop_elsewhere(EndOnDrop(self.clone())));
        }
    }

    /// Has it do nothing more, until it is killed.
    fn stop(&self) {
        if let Some(id) = *self.locked() {
            signal_group(id, Sign::Stop);
        }
    }

    /// Asks it to end.
    #[cfg(feature = "mcp")]
    pub(super) fn ask_to_end(&self) {
        if let Some(id) = *self.locked() {
            signal_group(id, Sign::Term);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<u32>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The signal for a group.
#[derive(Clone, Copy)]
enum Sign {
    #[cfg(feature = "mcp")]
    Term,
    Stop,
    Kill,
}

/// Kills a group, and what its program has started elsewhere.
fn kill(id: u32, mark: &str) {
    let family = family_of(id);
    signal_group(id, Sign::Kill);
    kill_family(family, mark);
}

/// Signals a group. One that is empty is no error: its number is taken by no other program while a member lives, and it
/// is asked for only while the first one lives or has just ended.
#[cfg(unix)]
fn signal_group(id: u32, sign: Sign) {
    use rustix::process::{Pid, Signal, kill_process_group};
    let signal = match sign {
        #[cfg(feature = "mcp")]
        Sign::Term => Signal::TERM,
        Sign::Stop => Signal::STOP,
        Sign::Kill => Signal::KILL,
    };
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    if let Some(id) = id
        && let Err(error) = kill_process_group(id, signal)
    {
        tracing::debug!(%error, "nothing left of a process group");
    }
}

#[cfg(not(unix))]
fn signal_group(_: u32, _: Sign) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Stdio;
    use std::sync::mpsc::channel;

    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;

    /// The state of a process, as `/proc` has it; none where it is gone.
    fn state(id: u32) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    }

    fn is_gone(id: u32) -> bool {
        matches!(state(id), None | Some('Z' | 'X'))
    }

    #[test]
    fn a_dropped_program_does_nothing_more_and_ends_with_what_only_its_family_tells_of() {
        // One thread that may block, which has something to do until the gate opens.
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
            out.read_line(&mut line).await.expect("it says whom it has started");
            drop(process);
            let left: u32 = line.trim().parse().expect("a number");
            (program.expect("it lives"), left)
        });
        let is_stopped = (0..1_000_000).any(|_| state(program) == Some('T'));
        assert!(is_stopped, "it goes on: {:?}", state(program));
        assert!(!is_gone(left), "nobody has looked for it yet");
        gate.send(()).expect("it waits");
        wait_for_ends();
        assert!(is_gone(program) && is_gone(left));
    }
}
