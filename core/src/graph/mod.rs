//! From definition to compiled graph: validation, pairing, derived ids.

mod model;

pub use model::{
    ContextNode, Edge, Fork, ForkIx, ForkPath, Graph, JoinRule, LlmNode, Node, NodeIx, NodeKind, Snippet, SnippetIx,
    SnippetKind, ValueSpec,
};
