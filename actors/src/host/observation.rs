//! Observations that actors report to an [observing](super::Port::observes) host: which thread waits for what, and the inputs so
//! far. An explorer names its choices by them, and detects that two orders led to equal states.

use std::sync::Arc;

/// The kind of event that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AwaitKind {
    /// Permission to take its first step.
    Start,
    /// A model's answer.
    Model,
    /// A tool's result.
    Tool,
    /// The result of an asynchronous function.
    Function,
    /// The result of a script.
    Script,
    /// The value of an expression or template evaluated on another thread.
    Text,
    /// A person's answer.
    Answer,
    /// The end of a WAIT.
    Wait,
    /// The end of the pause before a retry.
    Retry,
    /// The arrival of an event at a WAIT.
    Event,
    /// The arrival of a trigger's action at the run.
    Trigger,
    /// The expiry of a time limit of a node, a JOIN, a run or a trigger.
    Limit,
}

impl AwaitKind {
    /// Returns a one-word name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Function => "function",
            Self::Script => "script",
            Self::Text => "expression",
            Self::Answer => "answer",
            Self::Wait => "wait",
            Self::Retry => "retry",
            Self::Event => "event",
            Self::Trigger => "trigger",
            Self::Limit => "timeout",
        }
    }
}

/// The thread that makes a request to the host, and what it waits for. Used by observing hosts only.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// The thread's run.
    pub run: &'a Arc<str>,
    /// The thread's number in the run.
    pub thread: u32,
    /// Id of its node, or of the trigger for [`AwaitKind::Trigger`]; empty before its first step.
    pub node: &'a str,
    /// The kind of event.
    pub awaits: AwaitKind,
}

/// A step that is part of a run's state.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A thread was created.
    Spawned {
        /// The thread's run.
        run: Arc<str>,
        /// The thread's number in the run.
        thread: u32,
        /// Parent thread and the effect that created this one. None for the main thread.
        parent: Option<(u32, u64)>,
        /// Distinguishes siblings: a path id, or the kind of thread.
        name: Arc<str>,
        /// True for a fork's branch.
        is_branch: bool,
    },
    /// A thread received an input, or a result that determines its later behaviour became final.
    Delivered {
        /// The thread's run.
        run: Arc<str>,
        /// The thread's number in the run.
        thread: u32,
        /// Exact description of the input: equal texts describe equal inputs.
        text: String,
    },
    /// A thread has ended. Its first step, if held, is released.
    Ended {
        /// The thread's run.
        run: Arc<str>,
        /// The thread's number in the run.
        thread: u32,
    },
    /// A value shared by all threads of a run has changed.
    Shared {
        /// The run.
        run: Arc<str>,
        /// The name of the value.
        name: String,
        /// Exact description of the value.
        text: String,
    },
}
