//! Compiler from definitions to graphs: validation, pairing of nodes, derived ids.
//!
//! 1. A graph is built only if there are no faults, and all faults are reported at once.
//! 2. The definition is never changed; events and errors show the user's ids.
//! 3. The work is near-linear in the size of the definitions, and no depth of nesting overflows the stack.
//!
//! Not here: warnings about valid definitions ([`crate::analysis`]), and the implementation of an [`Evaluator`].

mod compile;
mod compile_context;
pub(crate) mod diagnostics;
pub mod draw;
mod evaluator;
mod inline;
mod model;
mod nodes;
mod snippets;
pub(crate) mod structure;
mod submitted;
mod syntax;
mod triggers;

pub use compile::{Compiled, compile, compile_loaded};
pub use compile_context::CompileContext;
pub use evaluator::{Evaluator, Unevaluated};
pub use inline::{MAX_INLINE_BYTES, compile_inline};
pub use model::{
    About, ChoiceSpec, CompiledReducer, ContextNode, Edge, Fork, ForkIx, ForkPath, Graph, InteractionNode, JoinRule,
    LlmNode, LoopNode, MapNode, Node, NodeIx, NodeKind, NodeSkills, PartSpec, QuestionTimeout, ScriptNode, Snippet,
    SnippetIx, SnippetKind, TemplateMessage, ValueSpec,
};
pub use nodes::map::ITEM_INDEX;
pub use nodes::reducers::REDUCED;
pub use snippets::known_names::name_advice;
pub(crate) use snippets::known_names::unknown_field;
pub use submitted::code_mode::CodeRules;
pub use submitted::dynamic::DynamicRules;
pub use submitted::workflow::SubmittedWorkflow;
pub use syntax::{NoSyntax, Syntax, SyntaxFault, agent_option_fault};
