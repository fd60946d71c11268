//! Last request to a conversation's model. A summary request can continue it.

use std::sync::Arc;

use pirn_conversation::conversation::{
    AgentKind, Conversation, CountedMessage, MessageRules, ModelRequest, Outline, PinStrategy, PrefixWatch,
    RequestParts, Tokenizer, build_request,
};
use pirn_conversation::model_call::CacheWatch;
use pirn_definition::definition::Pinned;
use pirn_definition::message::{Message, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::summaries::SummaryWarning;
use crate::thread::{ContinuedRequest, OfferedTools};

/// Request state of a conversation.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct Requests {
    /// Last request to its model.
    pub(in crate::run) last: Option<LastRequest>,
    /// Last requests in comparable form, while REQUEST_PREPARED has a subscriber.
    pub(in crate::run) prefix: Option<PrefixWatch>,
    /// Use of the provider's prompt cache; `None` until a reply reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::run) cache: Option<Box<CacheWatch>>,
    /// Warnings of the summaries that compressed this conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::run) warnings: Vec<SummaryWarning>,
    /// Cached outline of the next request. Not serialized: it is computed from the conversation.
    #[serde(skip)]
    pub(in crate::run) outline: Outline,
}

/// Parts of a request that do not come from the conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastRequest {
    pub(in crate::run) thread_id: Arc<str>,
    /// Profile; `None` for the default one.
    pub(in crate::run) profile_id: Option<Arc<str>>,
    pub(in crate::run) tools: Vec<Arc<str>>,
    /// Tools that the request offered in addition to its node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::run) offered: Option<Arc<OfferedTools>>,
    pub(in crate::run) parameters: Option<Arc<Map<String, Value>>>,
    pub(in crate::run) agent: AgentKind,
    pub(in crate::run) system: Option<String>,
    pub(in crate::run) pinned: Option<Box<Pinned>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::run) budget: Option<String>,
    pub(in crate::run) strategy: PinStrategy,
    pub(in crate::run) tool_tokens: u64,
    pub(in crate::run) rules: MessageRules,
}

impl LastRequest {
    /// Returns the parts with which the conversation becomes the next request of the model.
    pub(in crate::run) fn parts(&self) -> RequestParts<'_> {
        RequestParts {
            agent: self.agent,
            pinned: self.pinned.as_deref(),
            budget: self.budget.as_deref(),
            strategy: self.strategy,
            system: self.system.as_deref(),
            pending: None,
            tool_tokens: self.tool_tokens,
            rules: self.rules,
        }
    }

    /// Builds the next request of the conversation, followed by the instruction to summarize all but its last `kept` messages.
    /// Returns `None` if the model would not see every message that the summary replaces.
    pub(in crate::run) fn summary_request(
        &self,
        conversation: &Conversation,
        kept: usize,
        tokenizer: &dyn Tokenizer,
    ) -> Option<ModelRequest> {
        let is_left_out =
            |counted: &CountedMessage| self.agent == AgentKind::Main && counted.message.sub_agent_internal;
        // The request of a main agent leaves these messages out: the summary would lose them.
        if conversation.visible().iter().any(is_left_out) {
            return None;
        }
        // The instruction is appended below, after the part that the provider has cached.
        let mut request = build_request(conversation, &self.parts(), tokenizer);
        // Results without a call were removed from the request: the summary would lose them.
        if !request.repairs.dropped_results.is_empty() {
            return None;
        }
        let order = CountedMessage::new(Message::new(Role::User, instruction(kept)), tokenizer);
        request.tokens = request.tokens.saturating_add(order.tokens);
        request.messages.push(order.message);
        Some(request)
    }

    /// Returns the profile, tools and parameters with which the request is sent.
    pub(in crate::run) fn goes_on(&self, transcript: Arc<ModelRequest>) -> ContinuedRequest {
        ContinuedRequest {
            thread_id: Arc::clone(&self.thread_id),
            // Equal tools are part of the prefix that the provider has cached.
            tools: self.tools.clone(),
            offered: self.offered.clone(),
            parameters: self.parameters.clone(),
            transcript,
        }
    }
}

fn instruction(kept: usize) -> String {
    let but = match kept {
        0 => String::new(),
        1 => " except its last message, which stays word for word".to_owned(),
        _ => format!(" except its last {kept} messages, which stay word for word"),
    };
    format!(
        "Stop here: do not continue the conversation, and call no tool. Summarize all of it{but}. Include names, \
         numbers, decisions, open questions and promises. Answer with the summary alone."
    )
}
