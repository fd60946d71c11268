//! Programs that are started for a call or as a server.
//!
//! 1. A program is started without a shell, in a process group of its own, so that what it starts can be ended with it
//!    and a Ctrl-C at the terminal reaches only Pirn, which ends it in order.
//! 2. When a [`Process`] is dropped or has ended, its whole group is killed. Where there are no process groups, the
//!    program alone is.
//! 3. Every group that lives is listed, so that a process about to exit without unwinding can end them: [`kill_all`].
//! 4. On Linux, what has left the group is killed with it ([`super::descendants`]).
//!
//! Out of reach: everything after a kill -9 of Pirn itself.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::descendants::{self, MARK, family_of, kill_every_child, kill_family};

/// A program under way. Its group is killed when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Group,
}

/// A program's process group, for those who may have to end it.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// None once it was ended: the number may be another's by then.
    id: Arc<Mutex<Option<u32>>>,
    mark: Arc<str>,
}

/// The groups that live, with the marks of their programs; none where no more may be started.
static LIVE: Mutex<Option<BTreeMap<u32, Arc<str>>>> = Mutex::new(Some(BTreeMap::new()));

fn live() -> MutexGuard<'static, Option<BTreeMap<u32, Arc<str>>>> {
    // Every holder leaves the set whole.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every program that command tools and MCP servers have started, with what those have started, and starts no
/// more: for a program that is about to exit without letting its engines shut down (`std::process::exit`, an aborting
/// panic hook). An engine's shutdown does the same in order.
pub fn kill_all() {
    for (id, mark) in live().take().into_iter().flatten() {
        kill(id, &mark);
    }
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
        Ok(Self {
            child,
            group: Group {
                id: Arc::new(Mutex::new(id)),
                mark,
            },
        })
    }

    /// Its pipes, each once.
    pub(super) fn pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (
            self.child.stdin.take(),
            self.child.stdout.take(),
            self.child.stderr.take(),
        )
    }

    /// Its group.
    #[cfg(feature = "mcp")]
    pub(super) fn group(&self) -> Group {
        self.group.clone()
    }

    /// Waits for its end, and kills what it has left behind.
    #[allow(clippy::disallowed_methods)] // programs have no virtual time
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        // Where the runtime stops meanwhile, the closure is dropped and its group ends with it.
        let ended = EndOnDrop(self.group.clone());
        drop(tokio::task::spawn_blocking(move || drop(ended)).await);
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.group.locked().is_none() {
            return;
        }
        let ended = EndOnDrop(self.group.clone());
        // Descendants are looked for in /proc, with pauses: not on a thread that has other tasks.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(ended))),
            Err(_outside) => drop(ended),
        }
    }
}

/// A group that ends when this is dropped: by the blocking task that owns it, or with a task that a runtime which stops does not run.
struct EndOnDrop(Group);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Group {
    /// Kills what is left of it.
    pub(super) fn end(&self) {
        let id = self.locked().take();
        if let Some(id) = id {
            kill(id, &self.mark);
            if let Some(groups) = live().as_mut() {
                groups.remove(&id);
            }
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
