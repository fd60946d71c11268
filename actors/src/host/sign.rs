//! What actors say of themselves to a host that [watches](super::Port::is_watching): who asks for what, and what they
//! have heard so far. An explorer names its choices by it, and knows by it when two orders have led to the same state.

use std::sync::Arc;

/// What a thread asks its host for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asked {
    /// To take its first step.
    Start,
    /// A model's answer.
    Model,
    /// A tool's result.
    Tool,
    /// A registered function that takes its time.
    Function,
    /// A script's end.
    Script,
    /// The end of a WAIT.
    Wait,
    /// The end of the pause before another attempt.
    Retry,
    /// The end of a time limit: a node's, a JOIN's, a run's, a trigger's.
    Limit,
}

impl Asked {
    /// One word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Function => "function",
            Self::Script => "script",
            Self::Wait => "wait",
            Self::Retry => "retry",
            Self::Limit => "timeout",
        }
    }
}

/// What actors say.
#[derive(Clone, Debug)]
pub enum Sign {
    /// A thread came to be; the task that is spawned next is its actor.
    Born {
        /// Its run.
        run: Arc<str>,
        /// Its number in the run.
        thread: u32,
        /// Who started it, by which effect; none for the main thread.
        parent: Option<(u32, u64)>,
        /// Which of what was started together: a path's id, or what kind of thread.
        name: Arc<str>,
        /// Whether it is a fork's branch.
        is_branch: bool,
        /// Whether its first steps wait for nobody: when it takes them is then a choice.
        starts_in_place: bool,
    },
    /// A thread heard something: an answer, a cancel.
    Heard {
        /// Its run.
        run: Arc<str>,
        /// Its number in the run.
        thread: u32,
        /// What, exactly; equal texts mean equal things.
        text: String,
    },
    /// A thread is told to stop: it does not wait for its first step any longer.
    Stopped {
        /// Its run.
        run: Arc<str>,
        /// Its number in the run.
        thread: u32,
    },
    /// What is asked of the host next is asked by this thread.
    Asks {
        /// Its run.
        run: Arc<str>,
        /// Its number in the run.
        thread: u32,
        /// The node it stands at.
        node: Arc<str>,
        /// What for.
        what: Asked,
    },
    /// Something that every thread of a run sees has a new value.
    Shared {
        /// The run.
        run: Arc<str>,
        /// What it is called.
        name: String,
        /// Its value, exactly.
        text: String,
    },
}
