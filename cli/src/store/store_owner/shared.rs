//! Participation of a command in a store that several processes share, while the command's runs execute.

use std::thread::{Builder, JoinHandle};

use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{Either, select};
use pirn::Engine;

/// Receives inputs that other processes send to runs here, and stops runs that another process has taken over, until it is dropped.
pub(crate) struct Listener {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts the listener; `None` if no thread can be spawned: the runs then receive no inputs from other processes.
    pub(super) fn start(engine: &Engine) -> Option<Self> {
        let engine = engine.clone();
        let (stop, stopped) = oneshot::channel();
        let listening = move || {
            let working = std::pin::pin!(engine.work(0));
            if let Either::Left((Err(error), _)) = block_on(select(working, stopped)) {
                tracing::error!(%error, "receiving inputs from other processes failed: the runs of this process receive no more of them");
            }
        };
        let started = Builder::new().name("pirn-listener".to_owned()).spawn(listening);
        started.ok().map(|thread| Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed.
            thread.join().unwrap_or(());
        }
    }
}
