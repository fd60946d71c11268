//! Isolation of JavaScript: scripts run in worker processes, which execute this program.

use std::process::ExitCode;
use std::sync::Arc;

use clap::ValueEnum;
use pirn::script::{ScriptPort, ScriptSettings};

/// The isolation of JavaScript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Worker processes without files and network, which are killed if a script does not stop
    #[default]
    Process,
    /// Threads of this process
    Thread,
}

#[cfg(feature = "javascript")]
impl Level {
    pub(crate) fn port(self) -> Arc<ScriptPort> {
        use std::io::Write as _;

        use pirn::script::{ScriptLevel, WorkerProgram};

        let level = match self {
            Self::Thread => ScriptLevel::Thread,
            Self::Process => match WorkerProgram::this_program() {
                Ok(program) => ScriptLevel::Process(program),
                Err(error) => {
                    let why = "scripts run in this process, because a worker process cannot be started";
                    // Without stderr, the warning has no reader.
                    let _ = writeln!(std::io::stderr(), "warning: {why}: {error}");
                    ScriptLevel::Thread
                }
            },
        };
        let settings = ScriptSettings {
            level,
            ..ScriptSettings::default()
        };
        settings.into()
    }
}

/// Serves scripts if this process is a worker.
#[cfg(feature = "javascript")]
pub(crate) fn serve_worker() -> Option<ExitCode> {
    pirn::script::serve_worker()
}

#[cfg(not(feature = "javascript"))]
impl Level {
    #[allow(clippy::unused_self)] // as with the feature
    pub(crate) fn port(self) -> Arc<ScriptPort> {
        ScriptSettings::default().into()
    }
}

#[cfg(not(feature = "javascript"))]
pub(crate) fn serve_worker() -> Option<ExitCode> {
    None
}
