//! Ctrl-C: the first stops the run, the second the process.

use std::sync::mpsc::{Receiver, Sender, channel};

use pirn::RunHandle;

/// Exit code of a process that was interrupted.
const INTERRUPTED: i32 = 130;

/// A Ctrl-C that is listened for.
pub(super) struct Interrupt {
    run: Sender<RunHandle>,
}

/// Listens on a thread of its own, for as long as the process lives. When this returns, no Ctrl-C is lost any more.
pub(super) fn listen() -> Interrupt {
    let (run, runs) = channel();
    let (ready, is_ready) = channel();
    let listening = std::thread::Builder::new()
        .name("pirn-interrupt".to_owned())
        .spawn(move || wait(&ready, &runs));
    match listening {
        // A thread that could not listen has dropped its end: nothing to wait for.
        Ok(_) => is_ready.recv().unwrap_or(()),
        Err(error) => tracing::warn!(%error, "Ctrl-C will end the process without a report"),
    }
    Interrupt { run }
}

impl Interrupt {
    /// The run that it stops.
    pub(super) fn stops(&self, run: &RunHandle) {
        // Refused where nobody listens; then Ctrl-C ends the process.
        self.run.send(run.clone()).unwrap_or(());
    }
}

#[cfg(unix)]
fn wait(ready: &Sender<()>, runs: &Receiver<RunHandle>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
        return;
    };
    runtime.block_on(async {
        let Ok(mut interrupts) = signal(SignalKind::interrupt()) else {
            return;
        };
        ready.send(()).unwrap_or(());
        interrupts.recv().await;
        if let Ok(run) = runs.recv() {
            run.cancel("interrupted");
        }
        interrupts.recv().await;
        std::process::exit(INTERRUPTED);
    });
}

#[cfg(not(unix))]
fn wait(ready: &Sender<()>, runs: &Receiver<RunHandle>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
        return;
    };
    runtime.block_on(async {
        ready.send(()).unwrap_or(());
        if tokio::signal::ctrl_c().await.is_ok()
            && let Ok(run) = runs.recv()
        {
            run.cancel("interrupted");
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(INTERRUPTED);
        }
    });
}
