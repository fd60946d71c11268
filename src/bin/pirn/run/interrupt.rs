//! Ctrl-C: the first stops the run, the second the process.

use pirn::RunHandle;

/// Exit code of a process that was interrupted.
const INTERRUPTED: i32 = 130;

/// Watches for it on a thread of its own, for as long as the process lives.
pub(super) fn watch(run: &RunHandle) {
    let run = run.clone();
    let watching = std::thread::Builder::new()
        .name("pirn-interrupt".to_owned())
        .spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
                return;
            };
            runtime.block_on(async {
                if tokio::signal::ctrl_c().await.is_err() {
                    return;
                }
                run.cancel("interrupted");
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(INTERRUPTED);
                }
            });
        });
    if let Err(error) = watching {
        tracing::warn!(%error, "Ctrl-C will end the process without a report");
    }
}
