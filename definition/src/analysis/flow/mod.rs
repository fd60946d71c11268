//! Checks of the way through a workflow: joins, branches, loops and routes.
//!
//! Not here: the facts that these checks use ([`facts`](super::facts)).

pub(super) mod joins;
pub(super) mod loops;
pub(super) mod routes;
pub(super) mod unstarted_branches;
