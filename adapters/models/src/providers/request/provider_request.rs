//! Request to a provider, independent of its protocol, with hints for the cache of the provider.

use std::sync::Arc;

use pirn_actors::ports::{ModelCall, ToolSpec};
use pirn_definition::message::{Message, Role};

use super::parameters::Parameters;
use crate::formats::reasoning::{Recalled, for_model};
use crate::structured::ResponseFormat;

/// A request, independent of the protocol.
pub(in crate::providers) struct ProviderRequest<'a> {
    pub(in crate::providers) model: &'a str,
    pub(in crate::providers) messages: &'a [Arc<Message>],
    pub(in crate::providers) tools: &'a [ToolSpec],
    pub(in crate::providers) parameters: &'a Parameters,
    pub(in crate::providers) format: Option<&'a ResponseFormat>,
    pub(in crate::providers) streams: bool,
    /// Hints for the provider's cache, or `None` if it gets no hints.
    pub(in crate::providers) cache: Option<CacheHints<'a>>,
}

impl<'a> ProviderRequest<'a> {
    /// Creates a request without messages.
    #[cfg(test)]
    pub(in crate::providers) fn of_model(model: &'a str, parameters: &'a Parameters, tools: &'a [ToolSpec]) -> Self {
        Self {
            model,
            messages: &[],
            tools,
            parameters,
            format: None,
            streams: false,
            cache: None,
        }
    }

    /// Returns a function that yields the reasoning to send back with a message: the reasoning of this model in the current turn,
    /// which starts after the last assistant message without tool calls.
    pub(in crate::providers) fn recall(&self, provider: &'static str) -> impl Fn(&'a Message) -> Recalled + use<'a> {
        let said = |message: &Arc<Message>| message.role == Role::Assistant && !message.asks_for_tools();
        let turn = self.messages.iter().rposition(said).map_or(0, |last| last + 1);
        let (turn, model) = (&self.messages[turn..], self.model);
        move |message| {
            let is_now = turn.iter().any(|one| std::ptr::eq(Arc::as_ptr(one), message));
            if is_now {
                for_model(message, provider, model)
            } else {
                Recalled::default()
            }
        }
    }
}

/// Maximum length of a key in bytes.
const LONGEST_KEY: usize = 64;

/// Cache hints for one request.
#[derive(Clone, Copy)]
pub(in crate::providers) struct CacheHints<'a> {
    /// The thread; requests of a thread share a prefix. A long id is shortened to its end, which distinguishes the threads of a
    /// run.
    pub(in crate::providers) key: &'a str,
    /// Number of messages after which the preceding request had a cache mark.
    pub(in crate::providers) repeated: usize,
    /// Number of messages before the pinned context, which moves in the next request; all messages if nothing is pinned.
    pub(in crate::providers) stable: usize,
}

impl<'a> CacheHints<'a> {
    pub(in crate::providers) fn of(call: &'a ModelCall) -> Self {
        let thread = &*call.goes_on_from;
        let from = thread.len().saturating_sub(LONGEST_KEY);
        let from = (from..=thread.len()).find(|from| thread.is_char_boundary(*from));
        let request = &call.request;
        Self {
            key: from.and_then(|from| thread.get(from..)).unwrap_or_default(),
            repeated: request.repeated,
            stable: request.inserted_at.unwrap_or(request.messages.len()),
        }
    }
}
