//! Compiler from definitions to graphs: validation, pairing of nodes, derived ids.
//!
//! 1. A graph is built only if there are no faults, and all faults are reported at once.
//! 2. The definition is never changed; events and errors show the user's ids.
//! 3. The work is near-linear in the size of the definitions, and no depth of nesting overflows the stack.
//!
//! Not here: warnings about valid definitions ([`crate::analysis`]), and the implementation of an [`Evaluator`].

mod adjacency;
mod agent_options;
mod code_mode;
mod compile;
mod compile_context;
pub(crate) mod diagnostics;
pub mod draw;
mod dynamic;
mod evaluator;
mod forks;
mod inline;
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
mod submitted;
mod syntax;
mod text_fault;
mod triggers;

pub use agent_options::agent_option_fault;
pub use code_mode::CodeRules;
pub use compile::{Compiled, compile, compile_loaded};
pub use compile_context::CompileContext;
pub use dynamic::DynamicRules;
pub use evaluator::{Evaluator, Unevaluated};
pub use inline::{MAX_INLINE_BYTES, compile_inline};
pub use known_names::name_advice;
pub(crate) use known_names::unknown_field;
pub use map::ITEM_INDEX;
pub use model::{
    About, ChoiceSpec, CompiledReducer, ContextNode, Edge, Fork, ForkIx, ForkPath, Graph, InteractionNode, JoinRule,
    LlmNode, LoopNode, MapNode, Node, NodeIx, NodeKind, NodeSkills, PartSpec, QuestionTimeout, ScriptNode, Snippet,
    SnippetIx, SnippetKind, TemplateMessage, ValueSpec,
};
pub use reducers::REDUCED;
pub use submitted::SubmittedWorkflow;
pub use syntax::{NoSyntax, Syntax, SyntaxFault};
