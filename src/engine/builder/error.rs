//! Errors of building an engine.

use std::path::PathBuf;

use pirn_actors::host::NotLocalContext;
use pirn_definition::definition::Fault;
use pirn_definition::error::RunError;

use pirn_models::ProfileFault;

/// Reasons why an engine could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// All faults of the workflows.
    Workflows(Vec<Fault>),
    /// All faults of the profiles.
    Profiles(Vec<ProfileFault>),
    /// All files that could not be read.
    Files(Vec<(PathBuf, std::io::Error)>),
    /// The operating system could not start threads.
    Threads(std::io::Error),
    /// The engine was to be [local](super::EngineBuilder::local), and the calling thread cannot run it.
    Local(NotLocalContext),
    /// Two settings that exclude each other, by name.
    Settings(&'static str, &'static str),
    /// All tools that have the name of a built-in one.
    ReservedTools(Vec<String>),
    /// The engine stopped while it started.
    Engine(RunError),
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Workflows(faults) => lines(f, faults),
            Self::Profiles(faults) => lines(f, faults),
            Self::Files(unread) => {
                let said = unread
                    .iter()
                    .map(|(path, error)| format!("{}: {error}", path.display()));
                lines(f, &said.collect::<Vec<_>>())
            }
            Self::Threads(error) => write!(f, "cannot start threads: {error}"),
            Self::Local(missing) => write!(f, "the engine cannot run on the thread that builds it: {missing}"),
            Self::Settings(one, other) => write!(f, "an engine accepts {one} or {other}, not both"),
            Self::ReservedTools(names) => {
                let said = names
                    .iter()
                    .map(|name| format!("`{name}` is the name of a built-in tool: rename this tool"));
                lines(f, &said.collect::<Vec<_>>())
            }
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Threads(error) => Some(error),
            Self::Local(missing) => Some(missing),
            // The message is that of the run's error, so its cause is the next one of the chain.
            Self::Engine(error) => error.source(),
            Self::Workflows(_) | Self::Profiles(_) | Self::Files(_) | Self::Settings(..) | Self::ReservedTools(_) => {
                None
            }
        }
    }
}

fn lines<T: std::fmt::Display>(f: &mut std::fmt::Formatter<'_>, faults: &[T]) -> std::fmt::Result {
    for (place, fault) in faults.iter().enumerate() {
        if place > 0 {
            writeln!(f)?;
        }
        fault.fmt(f)?;
    }
    Ok(())
}
