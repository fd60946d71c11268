//! Errors of building an engine.

use std::path::PathBuf;

use pirn_actors::host::NotLocalContext;
use pirn_definition::definition::Fault;
use pirn_definition::error::RunError;

use pirn_models::ProfileFault;

/// Reasons why an engine could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// All faults of the workflows.
    #[error("{}", lines(.0))]
    Workflows(Vec<Fault>),
    /// All faults of the profiles.
    #[error("{}", lines(.0))]
    Profiles(Vec<ProfileFault>),
    /// All files that could not be read.
    #[error("{}", lines(.0.iter().map(|(path, error)| format!("{}: {error}", path.display()))))]
    Files(Vec<(PathBuf, std::io::Error)>),
    /// The operating system could not start threads.
    #[error("cannot start threads: {0}")]
    Threads(#[source] std::io::Error),
    /// The engine was to be [local](super::EngineBuilder::local), and the calling thread cannot run it.
    #[error("the engine cannot run on the thread that builds it: {0}")]
    Local(#[source] NotLocalContext),
    /// Two settings that exclude each other, by name.
    #[error("an engine accepts {0} or {1}, not both")]
    Settings(&'static str, &'static str),
    /// All tools that have the name of a built-in one.
    #[error("{}", lines(.0.iter().map(|name| format!("`{name}` is the name of a built-in tool: rename this tool"))))]
    ReservedTools(Vec<String>),
    /// The engine stopped while it started.
    #[error(transparent)]
    Engine(RunError),
}

/// Returns the faults, separated by line breaks.
fn lines(faults: impl IntoIterator<Item: ToString>) -> String {
    let faults: Vec<String> = faults.into_iter().map(|fault| fault.to_string()).collect();
    faults.join("\n")
}
