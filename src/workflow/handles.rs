//! Handles of the nodes of one workflow. Their lifetime is that of the building function, so the compiler rejects handles of
//! another workflow.

use std::marker::PhantomData;

/// An invariant lifetime: neither a longer nor a shorter one is accepted.
// Each builder has its own lifetime, so the compiler refuses a handle of another workflow.
pub(super) type Brand<'f> = PhantomData<fn(&'f ()) -> &'f ()>;

/// A node with incoming and outgoing edges.
#[derive(Clone, Copy, Debug)]
pub struct Node<'f> {
    pub(super) at: usize,
    brand: Brand<'f>,
}

impl Node<'_> {
    pub(super) fn new(at: usize) -> Self {
        let brand = PhantomData;
        Self { at, brand }
    }
}

/// The START or START_FROM_TRIGGER node, which has no incoming edges.
#[derive(Clone, Copy, Debug)]
pub struct Start<'f>(pub(super) Node<'f>);

/// An END or CONTINUE_FROM_TRIGGER node, which has no outgoing edges.
#[derive(Clone, Copy, Debug)]
pub struct End<'f>(pub(super) Node<'f>);

/// A ROUTE, from which only its routes lead to other nodes.
#[derive(Clone, Copy, Debug)]
pub struct Route<'f>(pub(super) Node<'f>);

/// A USER_INTERACTION.
#[derive(Clone, Copy, Debug)]
pub struct Question<'f>(pub(super) Node<'f>);

/// A FORK that has no JOIN yet, from which only its paths lead to other nodes.
#[derive(Debug)]
#[must_use = "a FORK needs a JOIN"]
// Neither `Clone` nor `Copy`: `join` consumes the fork, so a fork cannot have two joins.
pub struct Fork<'f>(pub(super) Node<'f>);

/// A LOOP_START that has no LOOP_END yet.
#[derive(Debug)]
#[must_use = "a LOOP_START needs a LOOP_END"]
pub struct LoopStart<'f> {
    pub(super) node: Node<'f>,
    pub(super) loop_id: String,
}

/// A path of a FORK.
#[derive(Clone, Copy, Debug)]
pub struct Path<'f> {
    pub(super) fork: Node<'f>,
    pub(super) number: usize,
}

/// A handle of a node.
pub trait Handle<'f>: sealed::Sealed + Sized {
    /// Returns the node as a general handle.
    #[doc(hidden)]
    fn node(self) -> Node<'f>;
}

/// A node that can be the source of an edge.
pub trait Leaves<'f>: Handle<'f> {}

/// A node that can be the target of edges, routes and paths.
pub trait Enters<'f>: Handle<'f> {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! handles {
    ($($type:ty: $node:expr, [$($trait:ident)*];)*) => {$(
        impl<'f> sealed::Sealed for $type {}
        impl<'f> Handle<'f> for $type {
            fn node(self) -> Node<'f> {
                let node: fn(Self) -> Node<'f> = $node;
                node(self)
            }
        }
        $(impl<'f> $trait<'f> for $type {})*
    )*};
}

handles! {
    Node<'f>: |node| node, [Leaves Enters];
    Start<'f>: |start| start.0, [Leaves];
    End<'f>: |end| end.0, [Enters];
    Route<'f>: |route| route.0, [Enters];
    Question<'f>: |question| question.0, [Leaves Enters];
    Fork<'f>: |fork| fork.0, [];
    // By reference: an edge to a fork must not consume it before its join.
    &Fork<'f>: |fork| fork.0, [Enters];
    &LoopStart<'f>: |start| start.node, [Leaves Enters];
}
