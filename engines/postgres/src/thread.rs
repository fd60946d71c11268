//! The store's own thread: what waits for the server lives there, whoever asked for it.

use std::future::Future;
use std::thread::{Builder, JoinHandle};

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| error.to_string())
}

/// Runs it to its end on a thread of its own, because the caller's may be of a runtime, where nobody may block.
pub(crate) fn block_on<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| Ok::<_, String>(runtime()?.block_on(work)));
        thread.join().map_err(|_| "its thread panicked".to_owned())?
    })
}

/// Runs it until it ends.
pub(crate) fn start(work: impl Future<Output = ()> + Send + 'static) -> Result<JoinHandle<()>, String> {
    let runtime = runtime()?;
    let started = Builder::new()
        .name("pirn-postgres".to_owned())
        .spawn(move || runtime.block_on(work));
    started.map_err(|error| error.to_string())
}
