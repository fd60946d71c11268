//! Signals that a serving process handles.

/// A request by signal.
#[derive(PartialEq)]
pub(crate) enum Signal {
    Reload,
    Stop,
}

/// Makes writes beyond the limit on the size of files (`ulimit -f`) fail, instead of ending the process by SIGXFSZ.
#[cfg(unix)]
pub(crate) fn survive_file_limit() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    /// SIGXFSZ on Linux, macOS and the BSDs.
    const FILE_LIMIT: i32 = 25;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // A handler, which remains without the runtime. Programs that this process starts would inherit that the signal is ignored.
    signal(SignalKind::from_raw(FILE_LIMIT)).map(drop)
}

/// Does nothing: only Unix has the signal.
#[cfg(not(unix))]
pub(crate) fn survive_file_limit() -> std::io::Result<()> {
    Ok(())
}

/// Handlers of the signals, installed when this is created.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }

    pub(crate) async fn second_stop(&mut self) {
        while self.next().await == Signal::Reload {}
    }
}

/// Handler of Ctrl-C only: other systems have no SIGTERM and SIGHUP.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) -> Signal {
        // If the handler cannot be installed, this returns `Stop` at once.
        tokio::signal::ctrl_c().await.unwrap_or(());
        Signal::Stop
    }

    pub(crate) async fn second_stop(&mut self) {
        self.next().await;
    }
}
