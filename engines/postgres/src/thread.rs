//! Thread of the store: its tasks run there, independent of the runtimes of callers.

use std::future::Future;
use std::thread::{Builder, JoinHandle};

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    // One thread is enough: the store waits for the server and computes nothing.
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| error.to_string())
}

/// Runs a future on a separate thread: the caller may be on a tokio worker, where blocking panics.
pub(crate) fn block_on<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        // A scoped thread may borrow from the caller.
        let thread = scope.spawn(|| Ok::<_, String>(runtime()?.block_on(work)));
        thread.join().map_err(|_| "its thread panicked".to_owned())?
    })
}

/// Starts a thread that runs a future.
pub(crate) fn start(work: impl Future<Output = ()> + Send + 'static) -> Result<JoinHandle<()>, String> {
    // Built before the thread starts, so that an error is returned to the caller.
    let runtime = runtime()?;
    let started = Builder::new()
        .name("pirn-postgres".to_owned())
        .spawn(move || runtime.block_on(work));
    started.map_err(|error| error.to_string())
}
