//! Request to a provider, independent of its protocol.

use std::sync::Arc;

use pirn_actors::ports::ToolSpec;
use pirn_definition::message::{Message, Role};

use super::cache::CacheHints;
use super::parameters::Parameters;
use crate::formats::reasoning::{Recalled, for_model};
use crate::structured::ResponseFormat;

/// A request, independent of the protocol.
pub(super) struct ProviderRequest<'a> {
    pub(super) model: &'a str,
    pub(super) messages: &'a [Arc<Message>],
    pub(super) tools: &'a [ToolSpec],
    pub(super) parameters: &'a Parameters,
    pub(super) format: Option<&'a ResponseFormat>,
    pub(super) streams: bool,
    /// Hints for the provider's cache, or `None` if it gets no hints.
    pub(super) cache: Option<CacheHints<'a>>,
}

impl<'a> ProviderRequest<'a> {
    /// Creates a request without messages.
    #[cfg(test)]
    pub(super) fn of_model(model: &'a str, parameters: &'a Parameters, tools: &'a [ToolSpec]) -> Self {
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
    pub(super) fn recall(&self, provider: &'static str) -> impl Fn(&'a Message) -> Recalled + use<'a> {
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
