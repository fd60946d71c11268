//! Calls from one object to another.

use restate_sdk::context::{ContextClient, Request, RequestTarget};
use restate_sdk::serde::Json;

use crate::objects::{CONTENT, NAMES, ONE, PROCESS, QUEUE, RUN, SESSION};

/// A handler of an object.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) object: &'static str,
    pub(crate) key: String,
    pub(crate) handler: &'static str,
}

impl Target {
    pub(crate) fn run(key: &str, handler: &'static str) -> Self {
        Self::of(RUN, key, handler)
    }

    pub(crate) fn session(key: &str, handler: &'static str) -> Self {
        Self::of(SESSION, key, handler)
    }

    pub(crate) fn content(key: &str, handler: &'static str) -> Self {
        Self::of(CONTENT, key, handler)
    }

    pub(crate) fn process(key: &str, handler: &'static str) -> Self {
        Self::of(PROCESS, key, handler)
    }

    pub(crate) fn queue(handler: &'static str) -> Self {
        Self::of(QUEUE, ONE, handler)
    }

    pub(crate) fn names(handler: &'static str) -> Self {
        Self::of(NAMES, ONE, handler)
    }

    pub(crate) fn of(object: &'static str, key: &str, handler: &'static str) -> Self {
        Self {
            object,
            key: key.to_owned(),
            handler,
        }
    }

    /// Creates a request. The server starts it when it is called or sent.
    pub(super) fn ask<'ctx, Q, A>(self, from: &impl ContextClient<'ctx>, asked: Q) -> Request<'ctx, Json<Q>, Json<A>> {
        from.request(RequestTarget::object(self.object, self.key, self.handler), Json(asked))
    }

    /// Sends a one-way call.
    pub(super) fn tell<'ctx, Q>(self, from: &impl ContextClient<'ctx>, told: Q)
    where
        Q: serde::Serialize + 'static,
    {
        // The handle of the call is not needed: the server delivers it exactly once.
        drop(self.ask::<Q, ()>(from, told).send());
    }
}
