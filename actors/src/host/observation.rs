//! The things that actors tell a host which [observes](super::Port::observes): who waits for what, and what they have heard
//! so far. An explorer names its choices by it, and knows by it when two orders have led to the same state.

use std::sync::Arc;

/// The things that a thread awaits of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AwaitKind {
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
    /// The value of an expression or a template that is not evaluated inline.
    Text,
    /// A person's answer.
    Answer,
    /// The end of a WAIT.
    Wait,
    /// The end of the pause before another attempt.
    Retry,
    /// The end of a time limit: a node's, a JOIN's, a run's, a trigger's.
    Limit,
}

impl AwaitKind {
    /// One word.
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
            Self::Limit => "timeout",
        }
    }
}

/// The thread that asks a host for something, and what for. A host that does not observe looks at none of it.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// The thread's run.
    pub run: &'a Arc<str>,
    /// The thread's number in the run.
    pub thread: u32,
    /// The node it stands at; empty before its first step.
    pub node: &'a str,
    /// The thing that it awaits.
    pub awaits: AwaitKind,
}

/// A step of a run that decides in which state it is.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A thread came to be.
    Spawned {
        /// The thread's run.
        run: Arc<str>,
        /// The thread's number in the run.
        thread: u32,
        /// The thread that started it, and by which effect; none for the main thread.
        parent: Option<(u32, u64)>,
        /// The one of several that were started together: a path's id, or what kind of thread.
        name: Arc<str>,
        /// It is a fork's branch.
        is_branch: bool,
    },
    /// An answer or a cancel was delivered to a thread, or something else that decides what it does later is known.
    Delivered {
        /// The thread's run.
        run: Arc<str>,
        /// The thread's number in the run.
        thread: u32,
        /// The input, exactly; equal texts mean equal things.
        text: String,
    },
    /// A thread has ended: it does not wait for its first step any longer.
    Ended {
        /// The thread's run.
        run: Arc<str>,
        /// The thread's number in the run.
        thread: u32,
    },
    /// Something that every thread of a run sees has a new value.
    Shared {
        /// The run.
        run: Arc<str>,
        /// The name of the value.
        name: String,
        /// The value, exactly.
        text: String,
    },
}
