//! Compiler from definitions to graphs: validation, pairing of nodes, derived ids.
//!
//! 1. A graph is built only if there are no faults, and all faults are reported at once.
//! 2. The definition is never changed; events and errors show the user's ids.
//! 3. The work is near-linear in the size of the definitions, and no depth of nesting overflows the stack.
//!
//! Not here: warnings about valid definitions ([`crate::analysis`]), and the implementation of an [`Evaluator`].

mod adjacency;
mod compile;
mod compile_context;
pub(crate) mod diagnostics;
pub mod draw;
mod evaluator;
mod forks;
mod interaction;
mod known_names;
mod llm;
mod loops;
mod map;
mod model;
mod nodes;
mod pairing;
mod reducers;
mod references;
mod regions;
pub(crate) mod scc;
mod snippets;
mod syntax;
mod text_fault;
mod triggers;

pub use compile::{Compiled, compile, compile_loaded};
pub use compile_context::CompileContext;
pub use evaluator::{Evaluator, Unevaluated};
pub use known_names::name_advice;
pub use map::ITEM_INDEX;
pub use model::{
    About, ChoiceSpec, CompiledReducer, ContextNode, Edge, Fork, ForkIx, ForkPath, Graph, InteractionNode, JoinRule,
    LlmNode, LoopNode, MapNode, Node, NodeIx, NodeKind, PartSpec, QuestionTimeout, Snippet, SnippetIx, SnippetKind,
    TemplateMessage, ValueSpec,
};
pub use reducers::REDUCED;
pub use syntax::{NoSyntax, Syntax, SyntaxFault};
