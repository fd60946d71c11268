//! Ctrl-C, and on Unix SIGTERM and SIGHUP: the first signal stops the run, the second ends the process. Every exit kills the
//! programs that tools have started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn::RunHandle;

use crate::output::terminal::INTERRUPTED;

/// Reason in the report of an interrupted run.
const INTERRUPTED_BY: &str = "interrupted";

/// State of interrupt handling. Before a run is expected, an interrupt ends the process.
#[derive(Clone)]
pub(crate) struct Interrupt {
    state: Arc<Mutex<State>>,
    was_heard: Arc<AtomicBool>,
    /// Set by a command that reloads its files on SIGHUP instead of ending: true if SIGHUP has arrived.
    hangup: Option<Arc<AtomicBool>>,
}

/// True while an interrupt ends the process.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Blocks for ever if an interrupt is ending the process, so that failures caused by the killed programs are not reported.
pub(crate) fn wait_if_ending() {
    while IS_ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

enum State {
    /// No run is active. An interrupt ends the process.
    Idle,
    /// A run is about to start.
    Expecting,
    Running(RunHandle),
    /// A durable run, which an interrupt parks: another process can resume it.
    Durable(RunHandle),
    /// The command handles signals itself.
    Elsewhere,
}

/// Starts a thread that listens for interrupts until the process ends. The handler is installed when this returns, so no later
/// interrupt is lost.
pub(crate) fn listen() -> Interrupt {
    listen_as(None)
}

/// Listens while a command that serves starts: until it listens itself, an interrupt ends the process and its programs.
pub(crate) fn listen_until_served() -> Interrupt {
    listen_as(Some(Arc::default()))
}

fn listen_as(hangup: Option<Arc<AtomicBool>>) -> Interrupt {
    let interrupt = Interrupt {
        state: Arc::new(Mutex::new(State::Idle)),
        was_heard: Arc::default(),
        hangup,
    };
    let (ready, is_ready) = channel();
    let heard = interrupt.clone();
    let listening = std::thread::Builder::new()
        .name("pirn-interrupt".to_owned())
        .spawn(move || wait(&ready, &heard));
    match listening {
        // If the thread cannot listen, it drops its sender, and `recv` returns an error at once.
        Ok(_) => is_ready.recv().unwrap_or(()),
        Err(error) => tracing::warn!(%error, "Ctrl-C will end the process without a report"),
    }
    interrupt
}

impl Interrupt {
    /// Makes an interrupt stop the run that starts next, instead of the process.
    pub(crate) fn expects_a_run(&self) {
        *self.state() = State::Expecting;
    }

    /// Sets the run that an interrupt cancels; cancels it at once if an interrupt has arrived already.
    pub(crate) fn stops(&self, run: &RunHandle) {
        let mut state = self.state();
        // The interrupt arrived between `expects_a_run` and this call.
        if self.was_heard() {
            run.cancel(INTERRUPTED_BY);
            *state = State::Idle;
        } else {
            *state = State::Running(run.clone());
        }
    }

    /// Sets the durable run that an interrupt parks; parks it at once if an interrupt has arrived already.
    pub(crate) fn stops_durable(&self, run: &RunHandle) {
        let mut state = self.state();
        // The interrupt arrived between `expects_a_run` and this call.
        if self.was_heard() {
            run.release();
            *state = State::Idle;
        } else {
            *state = State::Durable(run.clone());
        }
    }

    /// Leaves the handling of signals to the command. Returns true if SIGHUP arrived before.
    pub(crate) fn stand_down(&self) -> bool {
        *self.state() = State::Elsewhere;
        self.hangup.as_ref().is_some_and(|hangup| hangup.load(Ordering::SeqCst))
    }

    /// True once an interrupt has arrived.
    pub(crate) fn was_heard(&self) -> bool {
        self.was_heard.load(Ordering::SeqCst)
    }

    fn interrupted(&self) {
        let mut state = self.state();
        let is_again = self.was_heard.swap(true, Ordering::SeqCst);
        match &*state {
            State::Elsewhere => {}
            // The run has no handle yet: `stops` or `stops_durable` stops it when it has one.
            State::Expecting if !is_again => {}
            State::Running(run) => {
                run.cancel(INTERRUPTED_BY);
                *state = State::Idle;
            }
            State::Durable(run) => {
                run.release();
                *state = State::Idle;
            }
            State::Idle | State::Expecting => {
                IS_ENDING.store(true, Ordering::SeqCst);
                pirn::tools::kill_all();
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Ignore poisoning: every critical section preserves the invariants.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(unix)]
fn wait(ready: &Sender<()>, interrupt: &Interrupt) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
        return;
    };
    runtime.block_on(async {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [Ok(mut ctrl_c), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal) else {
            return;
        };
        ready.send(()).unwrap_or(());
        loop {
            tokio::select! {
                _ = ctrl_c.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {
                    if let Some(has_come) = &interrupt.hangup {
                        has_come.store(true, Ordering::SeqCst);
                        continue;
                    }
                }
            }
            interrupt.interrupted();
        }
    });
}

#[cfg(not(unix))]
fn wait(ready: &Sender<()>, interrupt: &Interrupt) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
        return;
    };
    runtime.block_on(async {
        ready.send(()).unwrap_or(());
        while tokio::signal::ctrl_c().await.is_ok() {
            interrupt.interrupted();
        }
    });
}
