//! Limits of snippets, and their isolation level.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Limits on the expressions and templates that a node or a trigger evaluates at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpressionLimits {
    /// Real time for all of them together (default 1 s).
    pub time: Duration,
    /// Maximum bytes for the values of all compiled expressions and one evaluation (default 64 MiB).
    pub memory: usize,
    /// Maximum stack in bytes (default 256 KiB).
    pub stack: usize,
    /// Maximum number of cached compiled snippets (default 4096). When it is exceeded, the cache is cleared.
    pub cached: usize,
}

impl Default for ExpressionLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(1),
            memory: 64 << 20,
            stack: 256 << 10,
            cached: 4096,
        }
    }
}

/// Limits on one execution of CODE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLimits {
    /// Real time (default 5 s).
    pub time: Duration,
    /// Maximum bytes of its values (default 64 MiB).
    pub memory: usize,
    /// Maximum stack in bytes (default 256 KiB).
    pub stack: usize,
}

impl Default for CodeLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(5),
            memory: 64 << 20,
            stack: 256 << 10,
        }
    }
}

/// Isolation level of JavaScript. `docs/security.md` describes the protection of each level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScriptLevel {
    /// On threads of this process. A script inside a built-in function that does not poll the time limit occupies its thread, which
    /// is then abandoned and replaced.
    #[default]
    Thread,
    /// In worker processes, which are killed at the time limit and replaced.
    Process(WorkerProgram),
}

/// The program of a worker process. It must call [`serve_worker`](crate::serve_worker) first in its `main`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProgram {
    /// The program.
    pub program: PathBuf,
    /// Arguments of the program, which must make it a worker.
    pub arguments: Vec<OsString>,
}

impl WorkerProgram {
    /// Command-line argument by which [`serve_worker`](crate::serve_worker) recognizes a worker process.
    pub const ARGUMENT: &str = "--pirn-script-worker";

    /// Uses the current executable as the worker.
    ///
    /// # Errors
    /// Fails if the operating system cannot determine the executable's path.
    pub fn this_program() -> std::io::Result<Self> {
        Ok(Self::at(std::env::current_exe()?))
    }

    /// Uses the program at a path: the `pirn` command, or a custom one.
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: vec![Self::ARGUMENT.into()],
        }
    }
}

/// Settings of an engine's scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptSettings {
    /// Isolation level of scripts.
    pub level: ScriptLevel,
    /// Maximum number of concurrent scripts (default: cores + 1). One run can use all but one of them.
    pub threads: usize,
    /// Maximum number of stuck threads (default 2). While it is exceeded, every further script is refused with `OVERLOADED`.
    pub max_stuck: usize,
    /// Maximum number of scripts that wait for a thread (default 1,000,000); further ones are refused with `OVERLOADED`.
    pub max_waiting: usize,
    /// Limits on CODE, and on one evaluation of a script workflow.
    pub code: CodeLimits,
    /// Limits on expressions and templates.
    pub expressions: ExpressionLimits,
    /// Maximum number of script workflows that are cached between their steps (default 32). With [`ScriptLevel::Process`], each has a
    /// process. Further ones are evaluated from their start in every step.
    pub live_scripts: usize,
    /// Maximum bytes of the values of all cached script workflows (default 256 MiB).
    pub live_script_bytes: usize,
}

impl Default for ScriptSettings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            level: ScriptLevel::default(),
            threads: cores + 1,
            max_stuck: 2,
            max_waiting: 1_000_000,
            code: CodeLimits::default(),
            expressions: ExpressionLimits::default(),
            live_scripts: 32,
            live_script_bytes: 256 << 20,
        }
    }
}
